"""Warm start of importance sampling: boxes of the unit cube around the best design of a branch-and-bound search."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.options import SEARCH, SearchOptions, SweepOptions
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.sweeps.space import Space
from hwopt.sweeps.specification import KnownOptimum


def strata_around_optimum(problem: Problem, samples: int, options: SearchOptions = SEARCH) -> KnownOptimum | None:
    """Return the best design of a branch-and-bound search scaled to the sweep, with its lower bound; None if none is found.

    **Arguments:** `samples`: number of variants of the sweep, which limits the nodes; `options` of the search.
    """
    if reason_without_lattice(problem):
        return None
    with jax.enable_x64(True):
        lattice = lattice_of(problem)
        try:
            result = search(
                NodeRelaxations(problem, lattice, options=options),
                tolerance=options.sweep.gap,
                most_boxes=samples // options.sweep.variants_per_node,
                exact=[ExactModel(problem)],
                nearby=True,
            )
        except NotDGP:
            return None
        if result.point is None:
            return None
        design = result.design | lattice.design(result.point)
    own = {
        each.name: design.get(each.name, each.lower) for each in problem.variables
    }  # variables of absent features: nothing depends on them
    bound = math.exp(result.proved_bound) if math.isfinite(result.proved_bound) else math.nan
    return KnownOptimum(own, math.exp(result.value), bound, feasible=True)


def around(
    space: Space, design: Mapping[str, float], options: SweepOptions = SEARCH.sweep
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return two boxes of the unit cube around a design.

    The first contains all designs with the same integers, the second only those whose continuous variables are near it as well.

    **Arguments:** `design`: variables by name, in SI units. A coordinate that cannot reproduce its integer gets its full range.

    **Returns:** lower and upper ends of both boxes, in the order of `space.coordinates`.
    """
    names, variables = space.coordinates, space.variables
    ratio, count = options.neighbor_ratio, options.places
    whole, near = np.tile([0.0, 1.0], (2, len(names), 1))
    for place, name in enumerate(names):
        near[place] = [_place(variables[name], design[name] * by) for by in (1.0 / ratio, ratio)]
    at = {name: _place(variables[name], design[name]) for name in names}
    places = np.arange(count) / count
    with jax.enable_x64(True):
        for name in space.in_turn:
            columns = {other: jnp.full(count, place) for other, place in at.items()} | {name: jnp.asarray(places)}
            met = np.flatnonzero(np.isclose(np.asarray(space.drawn(columns)[name]), design[name], rtol=1e-6))
            own = [places[met[0]], places[met[-1]] + 1.0 / count] if len(met) else [0.0, 1.0]
            near[names.index(name)] = whole[names.index(name)] = own
            at[name] = float(np.mean(own)) if len(met) else at[name]
    return [(ends[:, 0], ends[:, 1]) for ends in (whole, near)]


def _place(variable: Variable, value: float) -> float:
    """Return the position of a value between the bounds of a variable on a log scale, clipped to [0, 1]."""
    place = math.log(value / variable.lower) / math.log(variable.upper / variable.lower)
    return min(max(place, 0.0), 1.0)
