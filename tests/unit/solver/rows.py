"""What tests of bounds share: the rows of a box's programme at a true design, every atom at its true value."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hwopt.design.problem import Problem
from hwopt.integers.boxes import Boxes
from hwopt.integers.system import System
from hwopt.solver.gp.integer_relaxation import quantity_ranges
from hwopt.solver.gp.signomial import Algebra, AtomKind
from hwopt.solver.search.canonicalize import canonicalize, free_values
from tests.unit.gp.reading import value


def rows_held(problem: Problem, lattice: System, box: Boxes, design: Mapping[str, float], objective: float) -> int:
    """How many rows of a box's programme were looked at, which a design inside must hold; asserts that it does.

    **Arguments:** one `box`; the `design` by the names of atoms, what the model's roots come to among them; its `objective`, a
    logarithm, of which the programme's must be no more.
    """
    algebra = Algebra()
    values, ties = free_values(problem, lattice, algebra, quantity_ranges(lattice, box))
    programme = canonicalize(problem, algebra, values).draft(ties).programme(1)
    given = [np.asarray([design[each.name]]) for each in algebra.atoms if each.kind is AtomKind.variable]
    _, atoms = value([], algebra, given)
    y = np.full(programme.structure.exponents.shape[1], np.nan)
    for atom, column in programme.columns.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            y[column] = np.log(atoms[atom][0])
    form, numbers = programme.structure, programme.numbers
    known = np.isfinite(y)
    inside = (y >= numbers.lower[0] - 1e-6) & (y <= numbers.upper[0] + 1e-6)
    assert inside[known].all(), [programme.names[c] for c in np.flatnonzero(known & ~inside)]
    checked = 0
    for k, target in enumerate(form.target):
        at = np.flatnonzero((form.group == k) & np.isfinite(numbers.constants[0]))
        needs = (form.exponents[at] != 0).any(axis=0)
        if not len(at) or not known[needs].all() or (target >= 0 and not known[target]):
            continue
        z = np.where(needs, y, 0.0)
        total = np.exp(form.exponents[at] @ np.nan_to_num(z) + numbers.constants[0, at]).sum()
        row = math.log(total) if target < 0 else total + numbers.offsets[0, k] - y[target]
        assert row <= 2e-6 * (1.0 + abs(y[target]) if target >= 0 else 1.0), programme.labels[k]
        checked += 1
    goal = form.objective != 0
    if known[goal].all():
        assert form.objective[goal] @ y[goal] + programme.constant[0] <= objective + 2e-6
    return checked
