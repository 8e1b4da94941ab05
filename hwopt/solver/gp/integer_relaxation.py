"""Continuous relaxation of a system of integer variables and relations over search-tree nodes, expressed as signomials."""

from typing import Any

import numpy as np

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import SLIP, ConditionalRelation, DerivedColumns, ProductLimit
from hwopt.integers.system import System
from hwopt.solver.gp.signomial import Algebra, AtomKind, Signomial, number

FIXED_SLACK = 1e-4
"""Relative slack of a fixed product of integers in a relaxation, so that an interior point exists. Single points get none."""

_WIDE = 1.001  # ratio of the limits above which they have an interior without added slack

Ends = dict[str, tuple[Any, Any]]
"""Lower and upper ends of coordinates, look-ups and segmented variables, by name: floating arrays with one value per box."""


def quantity_ranges(system: System, boxes: Boxes) -> Ends:
    """Return the range of each quantity of an integer system over each box, considered on its own."""
    low, high = boxes.low.astype(float), boxes.high.astype(float)
    ends: Ends = {name: (low[:, column], high[:, column]) for name, column in system.at.items()}
    for lookup in system.lookups:
        ends |= _lookup_ends(system, lookup, boxes)
    for piece in system.pieces:
        first, last = system.column(boxes, piece.name)
        edges = np.asarray(piece.edges)
        ends[piece.variable] = edges[first - 1], edges[last]
    return ends


def relaxed_system(system: System, algebra: Algebra, ends: Ends) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
    """Formulate coordinates, named products and look-ups over boxes as signomials, with ranges in place of integers.

    **Arguments:**

    - `system`: the integer system.
    - `algebra`: the algebra that gets the new variables.
    - `ends`: ranges of all quantities, as `quantity_ranges` returns them.

    **Returns:** quantities by name; and their constraints by label, as expressions that must not exceed 1. A constraint
    that no corner of any box violates is left out.
    """
    values = {
        each.name: _boxed(algebra, AtomKind.variable, each.name, *ends[each.name], not each.sloped)
        for each in system.coordinates
    }
    corners = [{name: ends[name][side] for name in system.names} for side in (0, 1)]
    atoms = dict(values)
    for each in system.quantities.values():
        values[each.name] = _quotient(algebra, each, atoms)
    ties: dict[str, Signomial] = {}
    for index, relation in enumerate(system.relations):
        for each in (relation.then if isinstance(relation, ConditionalRelation) else relation).monomials():
            in_force = (
                relation.in_force(corners[0]).astype(float) if isinstance(relation, ConditionalRelation) else None
            )
            ties |= _ties(algebra, each, each.name or f"relation {index}", atoms, corners, in_force)
    for name in (name for lookup in system.lookups for name in lookup.names):
        values[name] = _boxed(algebra, AtomKind.hull, name, *ends[name])
    for piece in system.pieces:
        values[piece.variable] = algebra.variable(piece.variable, *ends[piece.variable])
    return values, ties


def _boxed(algebra: Algebra, kind: AtomKind, name: str, low: Any, high: Any, narrow: bool = True) -> Signomial:
    """Return a quantity as a constant if it is a single number in every box, else as a new variable.

    **Arguments:** `narrow`: whether branching reduces its range to a point (`Algebra.narrow`).
    """
    if (low == high).all():
        return number(low)
    value = algebra.atom(kind, (), low, high, name)
    if narrow:
        algebra.narrow.add(len(algebra.atoms) - 1)
    return value


def _quotient(algebra: Algebra, each: ProductLimit, atoms: dict[str, Signomial]) -> Signomial:
    value = number(each.coefficient)
    for name in each.factors:
        value = algebra.times(value, atoms[name])
    for name in each.over:
        value = algebra.over(value, atoms[name])
    return value


def _ties(
    algebra: Algebra,
    each: ProductLimit,
    label: str,
    atoms: dict[str, Signomial],
    corners: list[dict[str, np.ndarray]],
    in_force: np.ndarray | None,
) -> dict[str, Signomial]:
    """Return the lower and upper limit of a product as expressions that must not exceed 1.

    **Arguments:** `in_force`: 1 or 0 for each box, None if the limit always applies.
    """
    least, most = each.ends(corners[0])[0], each.ends(corners[1])[1]
    smallest, largest = each.range(corners[0], corners[1])
    slack = np.where(most > _WIDE * least, SLIP, FIXED_SLACK)
    force: Any = 1.0 if in_force is None else in_force
    value = _quotient(algebra, each, atoms)
    ties: dict[str, Signomial] = {}
    if (force * (smallest < least)).any():
        ties[f"least {label}"] = algebra.times(number(force), algebra.over(number(least * (1.0 - slack)), value))
    if (force * (largest > most)).any():
        ties[f"most {label}"] = algebra.times(number(force), algebra.over(value, number(most * (1.0 + slack))))
    return {name: tie for name, tie in ties.items() if tie.constant is None}


def _lookup_ends(system: System, lookup: DerivedColumns, boxes: Boxes) -> Ends:
    """Return the range of each look-up result over boxes, taken over the valid points of each box."""
    ends = [np.stack(system.column(boxes, name), axis=1) for name in lookup.of]
    corners, where = np.unique(np.concatenate(ends, axis=1), axis=0, return_inverse=True)
    ranges = np.array([_range(system, lookup, corner.reshape(-1, 2)) for corner in corners])  # (corner, name, end)
    low, high = ranges[where.ravel()].transpose(2, 1, 0)  # (name, box) each
    return {name: (low[i], high[i]) for i, name in enumerate(lookup.names)}


def _range(system: System, lookup: DerivedColumns, corner: np.ndarray) -> np.ndarray:
    """Return minimum and maximum of each look-up result between two corners, (name, 2); 1 if no point between them is valid."""
    known, key = system.lookup_ranges, (lookup.names, corner.tobytes())
    if key not in known:
        axes = [np.arange(low, high + 1, dtype=float) for low, high in corner]
        grid = dict(zip(lookup.of, (x.ravel() for x in np.meshgrid(*axes, indexing="ij")), strict=True))
        valid = np.ones(len(next(iter(grid.values()))), bool)
        for relation in system.relations:
            if set(relation.needs) <= set(lookup.of):
                valid &= relation.holds(grid)
        numbers = lookup.function(*(grid[name][valid] for name in lookup.of))
        known[key] = np.array([(x.min(), x.max()) if valid.any() else (1.0, 1.0) for x in map(np.asarray, numbers)])
    return known[key]
