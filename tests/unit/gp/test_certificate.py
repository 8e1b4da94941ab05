"""The bound is rigorous from any point and any multipliers: it never passes a feasible value."""

from __future__ import annotations

import numpy as np
import pytest

from hwopt.solver.gp.certificate import infeasibility, kkt_residual, lower_bound, violation
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve


def programmes(random, problem=50, variable=5, group=7, term=18, exponential=1):
    """Random programmes that hold at a known point."""
    of = np.sort(np.r_[np.arange(group), random.integers(0, group, term - group)])
    target = np.full(group, -1)
    target[0] = 0
    exponents = random.normal(size=(term, variable)) * (random.uniform(size=(term, variable)) < 0.6)
    exponents[of == 0, 0] = 0.0
    lower = random.normal(size=(problem, variable)) - 2
    upper = lower + np.exp(random.uniform(-13, 3, (problem, variable)))
    inside = lower + random.uniform(size=lower.shape) * (upper - lower)
    b = random.normal(size=(problem, term)) - inside @ exponents.T
    b[random.uniform(size=b.shape) < 0.15] = -np.inf
    total = np.exp(b + inside @ exponents.T) @ (of[:, None] == np.arange(group))
    room = random.exponential(size=total.shape) * random.integers(0, 2, total.shape)
    b -= np.where(target >= 0, 0.0, np.log(np.where(total > 0, total, 1.0)) + room)[:, of]
    offsets = np.where(target >= 0, inside[:, np.maximum(target, 0)] - total - room, 0.0)
    return (
        ProgramStructure(exponents, of, target, random.normal(size=variable)),
        ProgramNumbers(b, offsets, lower, upper),
        inside,
    )


@pytest.mark.parametrize("seed", range(10))
def test_never_above_a_feasible_value(seed):
    random = np.random.default_rng(seed)
    structure, numbers, inside = programmes(random)
    answers = solve(structure, numbers)
    assert np.all(violation(structure, numbers, inside) < 1e-12)
    shape = answers.multipliers.shape
    optimum = np.minimum(inside @ structure.objective, answers.objective + 1e-8)
    for _ in range(40):
        kind = random.integers(4)
        y = numbers.lower + random.uniform(-0.2, 1.2, inside.shape) * (numbers.upper - numbers.lower)
        multipliers = np.exp(random.normal(size=shape) * 3) * random.integers(0, 2, shape)
        if kind == 1:
            y, multipliers = answers.y, answers.multipliers * np.exp(0.1 * random.normal(size=shape))
        elif kind == 2:
            y = inside + 1e-3 * random.normal(size=inside.shape)
            multipliers = answers.multipliers
        elif kind == 3:
            y, multipliers = answers.y, multipliers * 1e6
        assert np.all(lower_bound(structure, numbers, y, multipliers) <= optimum)
        assert np.all(infeasibility(structure, numbers, y, multipliers) <= 0)


def test_what_makes_no_sense_proves_nothing():
    structure, numbers, inside = programmes(np.random.default_rng(1), problem=3)
    multipliers = np.ones((3, 7))
    bad = multipliers.copy()
    bad[0, 0] = np.nan
    assert lower_bound(structure, numbers, inside, bad)[0] == -np.inf
    assert np.isfinite(lower_bound(structure, numbers, inside, bad)[1:]).all()
    np.testing.assert_array_equal(
        lower_bound(structure, numbers, inside, -multipliers), lower_bound(structure, numbers, inside, 0 * multipliers)
    )
    assert np.all(lower_bound(structure, numbers, inside + 1e5, multipliers) < 0)


def test_by_hand():
    # minimise y subject to exp(-y) ≤ 1, that is y ≥ 0, in [-5, 5]: multiplier 1.
    structure = ProgramStructure(np.array([[-1.0]]), np.array([0]), np.array([-1]), np.array([1.0]))
    numbers = ProgramNumbers(np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1), -5.0), np.full((1, 1), 5.0))
    y, one = np.zeros((1, 1)), np.ones((1, 1))
    assert lower_bound(structure, numbers, y, one)[0] == pytest.approx(0.0, abs=1e-11)
    assert lower_bound(structure, numbers, y, 0 * one)[0] == pytest.approx(-5.0, abs=1e-11)
    assert kkt_residual(structure, numbers, y, one)[0] == 0.0
    assert kkt_residual(structure, numbers, y, 0 * one)[0] == pytest.approx(1.0)
    assert violation(structure, numbers, y - 2.0)[0] == pytest.approx(2.0)
    assert violation(structure, numbers, y + 7.0)[0] == pytest.approx(2.0)
    above = ProgramNumbers(np.full((1, 1), 6.0), np.zeros((1, 1)), numbers.lower, numbers.upper)
    assert infeasibility(structure, above, y, one)[0] == pytest.approx(1.0)
