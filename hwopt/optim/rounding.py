"""Integer designs around a relaxed one: what can be built and launched; and the best of many around no optimum at all."""

import math
from collections.abc import Mapping

import numpy as np

from hwopt.design.exact import FEASIBLE, Exact, ExactModel, logarithms
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.integers.relations import SLIP
from hwopt.integers.system import Integer, System

SPREAD = 13
"""Values of a count that fills what is left, between the least and the most that it may be."""

SHARES = (0.25, 0.5, 0.75, 0.95)
"""Places in the box, from its lower to its upper end, around which a first look tries integer designs."""

MOST = 128
"""Integer designs that it tries at each place."""

FOLLOWED = 256
"""Integer designs that those are drawn from: the ones of two machines multiply, and a first look is for when time is over."""


def first_look(problem: Problem, model: ExactModel) -> tuple[np.ndarray, Exact]:
    """The best of a few hundred designs spread over the box, the least violated where none holds; without a compiler.

    **Returns:** its variables in logarithms, and what the exact model says of it.
    """
    rng, rows = np.random.default_rng(0), []
    for share in SHARES:
        y = problem.lower + share * (problem.upper - problem.lower)
        values = {each.name: math.exp(at) for each, at in zip(problem.variables, y, strict=True)}
        others, lattice, points = _points(problem, values, FOLLOWED)
        for i in rng.permutation(len(points))[:MOST]:
            design = others | lattice.design(points[i])
            rows.append([design.get(name, value) for name, value in values.items()])
    points = logarithms(rows or [np.exp(0.5 * (problem.lower + problem.upper))])
    exact = model.at(points)
    best = best_of(exact.objective, exact.violation)
    return points[best], exact.one(best)


def best_of(objective: np.ndarray, violation: np.ndarray, tolerance: float = FEASIBLE) -> int:
    """Lowest feasible objective, else the least violated design; those that are not numbers come last."""
    feasible = violation <= tolerance
    if feasible.any():
        return int(np.nanargmin(np.where(feasible, objective, np.inf)))
    return int(np.argmin(np.nan_to_num(violation, nan=np.inf)))


def rounding_candidates(problem: Problem, relaxed: Mapping[str, float]) -> list[dict[str, float]]:
    """Valid integer settings near a relaxed design.

    Coordinates of the question's lattice in turn, each at its few values next to the relaxed one that the relations leave it.
    Integers that the lattice does not hold (the model's width) are rounded down first, where memory and power still suffice.

    **Arguments:** `relaxed` values by variable name, SI. **Returns:** values of all integer variables and look-ups.
    """
    others, lattice, points = _points(problem, relaxed)
    names = {each.name for each in problem.variables}
    return [
        others | {name: value for name, value in lattice.design(point).items() if name in names} for point in points
    ]


def _points(
    problem: Problem, relaxed: Mapping[str, float], most: int | None = None
) -> tuple[dict[str, float], System, np.ndarray]:
    """Values of integers that the lattice does not hold, the lattice, and its points (point, coordinate).

    **Arguments:** `most` points that are followed at a time, spread evenly over all; None for no limit.
    """
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
    points = _nearest(lattice, relaxed, most)
    return shape, lattice, points[lattice.valid(points)]


def _nearest(lattice: System, relaxed: Mapping[str, float], most: int | None) -> np.ndarray:
    """Points (point, coordinate) from the values next to relaxed ones."""
    ends = {each.name: float(each.ends[0]) for each in lattice.coordinates}
    wanted = {name: float(quantity.ends(ends)[0]) for name, quantity in lattice.quantities.items()} | dict(relaxed)
    rows: list[dict[str, float]] = [{}]
    for each in sorted(lattice.coordinates, key=lambda c: (c.fills, lattice.at[c.name])):
        rows = [row | {each.name: value} for row in rows for value in _values(lattice, each, row, wanted)]
        rows = rows[:: math.ceil(len(rows) / most) or 1] if most else rows
    return np.array([[row[name] for name in lattice.names] for row in rows], np.int64).reshape(-1, len(lattice.names))


def _values(lattice: System, each: Integer, row: Mapping[str, float], wanted: Mapping[str, float]) -> list[float]:
    """A coordinate's values to try, the others of a row known. **Arguments:** `wanted` values of coordinates and products."""
    target = float(lattice.coordinates_at(dict(wanted) | dict(row))[each.name])
    lows, highs = (
        {c.name: np.array([row.get(c.name, c.ends[end])], float) for c in lattice.coordinates} for end in (0, 1)
    )
    with np.errstate(all="ignore"):
        (least,), (most,) = lattice.bounds(each.name, lows, highs)
        (step,) = lattice.steps(each.name, lows, highs).astype(float)
    if each.values is not None:
        known = [float(value) for value in each.values if least <= value <= most]
        return sorted(known, key=lambda value: abs(math.log(value / target)))[: each.near]
    first, last = math.ceil(least / step - SLIP), math.floor(most / step + SLIP)
    if first > last:
        return []
    if each.fills:
        return sorted({step * round(first + (last - first) * k / (SPREAD - 1)) for k in range(SPREAD)})
    target = min(max(target / step, first), last)
    near = {-1: [math.floor(target + 1e-6)], 1: [math.ceil(target - 1e-4 * target)], 0: []}[each.rounding]
    around = range(max(first, round(target) - each.near), min(last, round(target) + each.near) + 1)
    near = near or sorted(around, key=lambda value: abs(math.log(value / target)))[: each.near]
    return [step * min(max(value, first), last) for value in near]
