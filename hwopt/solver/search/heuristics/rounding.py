"""Integer designs near a relaxed solution, and the best of many sampled designs where no solution is known."""

import math
from collections.abc import Mapping

import numpy as np

from hwopt.design.exact import ExactModel, ExactValues, logarithms
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.integers.relations import SLIP, Columns
from hwopt.integers.system import Integer, System
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.options import SEARCH, LocalOptions


def sampled_start(
    problem: Problem, model: ExactModel, options: LocalOptions = SEARCH.local
) -> tuple[np.ndarray, ExactValues]:
    """Return the best of a few thousand sampled designs, or the least violated if none is feasible. Nothing is compiled.

    **Returns:** logarithms of the design's variables, and its evaluation by the exact model.
    """
    rng, tables = np.random.default_rng(0), []
    for share in options.places:
        y = problem.lower + share * (problem.upper - problem.lower)
        values = {each.name: math.exp(at) for each, at in zip(problem.variables, y, strict=True)}
        others, lattice, points = _points(problem, values, options.spread)
        points = points[rng.permutation(len(points))[: options.designs_per_place]]
        design = values | others | lattice.quantities_at(lattice.columns(points.astype(float)))
        tables.append(np.stack([np.broadcast_to(design[name], len(points)) for name in values], axis=1))
    rows = np.concatenate(tables)
    points = logarithms(rows if len(rows) else [np.exp(0.5 * (problem.lower + problem.upper))])
    exact = model.at(points)
    best = best_candidate(exact.objective, exact.violation)
    return points[best], exact.one(best)


def best_candidate(objective: np.ndarray, violation: np.ndarray, tolerance: float = FEASIBILITY_TOLERANCE) -> int:
    """Return the index of the lowest feasible objective, else of the least violated design. NaN comes last."""
    feasible = violation <= tolerance
    if feasible.any():
        return int(np.nanargmin(np.where(feasible, objective, np.inf)))
    return int(np.argmin(np.nan_to_num(violation, nan=np.inf)))


def rounding_candidates(
    problem: Problem, relaxed: Mapping[str, float], options: LocalOptions = SEARCH.local
) -> list[dict[str, float]]:
    """Return valid integer settings near a relaxed design.

    The lattice's coordinates are set one after the other. Each takes the few values closest to the relaxed one that the
    relations allow. Integers outside the lattice, such as the model's width, are rounded down first, so that memory and power
    still suffice.

    **Arguments:** `relaxed`: values by variable name, SI units.

    **Returns:** values of all integer variables and look-ups, one dict for each setting.
    """
    others, lattice, points = _points(problem, relaxed, options.spread)
    columns = lattice.quantities_at(lattice.columns(points.astype(float)))
    table = {each.name: columns[each.name] for each in problem.variables if each.name in columns}
    return [others | {name: float(column[row]) for name, column in table.items()} for row in range(len(points))]


def _points(problem: Problem, relaxed: Mapping[str, float], spread: int) -> tuple[dict[str, float], System, np.ndarray]:
    """Return values of integers that the lattice does not contain, the lattice, and its points (point, coordinate)."""
    lattice = lattice_of(problem)
    known = {*lattice.names, *lattice.quantities}
    others = [each for each in problem.variables if each.integer and each.name not in known]
    shape = {}
    for each in others:
        first, last = math.ceil(each.lower / each.step), math.floor(each.upper / each.step)
        below = math.floor(relaxed[each.name] / each.step * (1.0 + SLIP))
        shape[each.name] = min(max(below, first), last) * each.step
    if shape:
        lattice = lattice_of(problem.narrowed({name: (value, value) for name, value in shape.items()}))
    points = _nearest(lattice, relaxed, spread)
    return shape, lattice, points[lattice.valid(points)]


def _nearest(lattice: System, relaxed: Mapping[str, float], spread: int) -> np.ndarray:
    """Return points (point, coordinate) composed of the values closest to relaxed ones. Some violate relations."""
    ends = {each.name: float(each.ends[0]) for each in lattice.coordinates}
    wanted = {name: float(quantity.ends(ends)[0]) for name, quantity in lattice.quantities.items()} | dict(relaxed)
    columns: dict[str, np.ndarray] = {}
    count = 1
    late = {name for name, pairs in lattice.stepped.items() if any(when for _, when in pairs)}
    for each in sorted(lattice.coordinates, key=lambda c: (c.fills, c.name in late, lattice.at[c.name])):
        rows, values = _values(lattice, each, columns, wanted, count, spread)
        columns = {name: column[rows] for name, column in columns.items()} | {each.name: values}
        count = len(rows)
    return np.stack([columns[name] for name in lattice.names], axis=1).astype(np.int64)


def _values(
    lattice: System, each: Integer, columns: Columns, wanted: Mapping[str, float], count: int, spread: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values to try of a coordinate, for each of `count` rows in which earlier coordinates are set.

    **Arguments:**

    - `each`: the coordinate.
    - `columns`: coordinates that are already set, by name.
    - `wanted`: relaxed values of coordinates and products.
    - `spread`: number of values to try if the coordinate `fills` what is left.

    **Returns:** row numbers and values, in the order of the rows. Within a row the closest come first, or the smallest if the
    coordinate `fills`.
    """
    target = np.broadcast_to(lattice.coordinates_at({**wanted, **columns})[each.name], count)[:, None]
    lows, highs = (
        {c.name: columns.get(c.name, np.full(count, c.ends[end], float)) for c in lattice.coordinates} for end in (0, 1)
    )
    with np.errstate(all="ignore"):
        least, most = (np.broadcast_to(end, count)[:, None] for end in lattice.bounds(each.name, lows, highs))
        step = lattice.steps(each.name, lows, highs).astype(float)[:, None]
        first, last = np.ceil(least / step - SLIP), np.floor(most / step + SLIP)
        if each.values is not None:
            step, tried = 1.0, np.array([each.values], float)
            first, last = least, most
        elif each.fills:
            shares = np.arange(spread) / (spread - 1)
            near = np.clip(target / step + np.arange(-1, 2), first, last)
            parts = (first + (last - first) * shares, first * (last / first) ** shares, near)
            wide = [np.broadcast_to(part, (count, part.shape[-1])) for part in parts]
            tried = np.sort(np.rint(np.concatenate(wide, axis=1)), axis=1)
        else:
            target = np.clip(target / step, first, last)
            around = np.rint(target) + np.arange(-each.near, each.near + 1)
            tried = {-1: np.floor(target + 1e-6), 1: np.ceil(target - 1e-4 * target), 0: around}[each.rounding]
            tried = np.clip(tried, first, last) if each.rounding else tried
        allowed = (first <= tried) & (tried <= last)
        if each.fills:
            allowed &= np.diff(tried, axis=1, prepend=-1.0) > 0
        else:
            tried = np.broadcast_to(tried, allowed.shape)
            distance = np.where(allowed, abs(np.log(tried / target)), np.inf)
            order = np.argsort(distance, axis=1, kind="stable")[:, : each.near]
            tried, allowed = (np.take_along_axis(table, order, axis=1) for table in (tried, allowed))
    rows, places = np.nonzero(allowed)
    return rows, np.broadcast_to(step * tried, allowed.shape)[rows, places]
