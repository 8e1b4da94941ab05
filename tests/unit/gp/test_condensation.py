"""Programmes that touch a model at a point: values, slopes and what solving one after the other finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hwopt.solver.gp.canonical import draft
from hwopt.solver.gp.condensation import Condensation
from hwopt.solver.gp.signomial import Algebra, AtomKind, number
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus


def descend(question, start, width=0.2, rounds=60):
    """Solve beside what was found last, until that stays. **Returns:** values by name, the objective, the last programme."""
    for _ in range(rounds):
        algebra = Algebra()
        x = {name: algebra.variable(name, v / math.exp(width), v * math.exp(width)) for name, v in start.items()}
        programme = draft(algebra, *question(algebra, x), rows_of=Condensation).programme(1)
        answers = solve(programme.structure, programme.numbers, tolerance=1e-10)
        assert answers.status[0] == SolveStatus.solved
        found = {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name}
        moved = max(abs(math.log(found[name] / start[name])) for name in found)
        start = start | found
        width = min(width, max(10.0 * moved, 1e-4))
        if moved < 1e-9:
            break
    return start, math.exp(answers.objective[0] + programme.constant[0]), programme


def test_a_sum_that_must_be_large():
    """min x + y, 1 <= x + x y: a lower side of a sum. At x (1 + y) = 1 the least is at y = 0; with y >= 0.2 at its end."""

    def question(algebra, v):
        product = algebra.plus(v["x"], algebra.times(v["x"], v["y"]))
        large = {"large": algebra.over(number(1.0), product), "least": algebra.over(number(0.2), v["y"])}
        return algebra.plus(v["x"], algebra.times(number(4.0), v["y"])), large

    found, value, programme = descend(question, {"x": 2.0, "y": 1.0})
    assert found["y"] == pytest.approx(0.2, rel=1e-6) and found["x"] == pytest.approx(1 / 1.2, rel=1e-6)
    assert value == pytest.approx(1 / 1.2 + 0.8, rel=1e-7) and not programme.relaxed


def test_a_difference_is_taken_with_its_slope():
    """min x^2 / (x - 1): at x = 2 it is 4."""

    def question(algebra, v):
        least = algebra.plus(v["x"], number(1.0), -1.0)
        return algebra.over(algebra.power(v["x"], 2.0), least), {}

    found, value, _ = descend(question, {"x": 3.0})
    assert found["x"] == pytest.approx(2.0, rel=1e-4) and value == pytest.approx(4.0, rel=1e-8)


def test_a_difference_below_one():
    """min 1 / x, x^2 - x <= 1: at the golden ratio."""

    def question(algebra, v):
        return algebra.power(v["x"], -1.0), {
            "below": algebra.plus(algebra.power(v["x"], 2.0), v["x"], -1.0),
        }

    found, _, _ = descend(question, {"x": 1.2})
    assert found["x"] == pytest.approx((1 + math.sqrt(5)) / 2, rel=1e-6)


@pytest.mark.parametrize("kind", [AtomKind.maximum, AtomKind.minimum])
def test_extremes_from_their_other_side(kind):
    """min y under y >= 1 / max(x, 2 / x), or y >= min(x, 2 / x): the part that is the extreme one at the point."""

    def question(algebra, v):
        either = algebra.extreme([v["x"], algebra.over(number(2.0), v["x"])], kind)
        either = algebra.power(either, -1.0) if kind is AtomKind.maximum else either
        bounds = {"x": algebra.over(v["x"], number(3.0)), "least": algebra.over(number(0.5), v["x"])}
        return either, bounds

    found, value, programme = descend(question, {"x": 2.5})
    assert not programme.relaxed
    assert found["x"] == pytest.approx(3.0, rel=1e-6)
    assert value == pytest.approx(1 / 3 if kind is AtomKind.maximum else 2 / 3, rel=1e-7)


def test_exponentials_of_differences():
    """min exp(x - 2 sqrt x): at x = 1."""

    def question(algebra, v):
        inside = algebra.plus(v["x"], algebra.times(number(2.0), algebra.power(v["x"], 0.5)), -1.0)
        return algebra.exponential(inside), {}

    found, value, _ = descend(question, {"x": 2.0})
    assert found["x"] == pytest.approx(1.0, rel=1e-3) and value == pytest.approx(math.exp(-1.0), rel=1e-6)


def test_what_is_known_by_its_range_alone_is_still_noted():
    algebra = Algebra()
    x = algebra.variable("x", 0.9, 1.1)
    unknown = algebra.hull(np.array([1.0]), np.array([2.0]))
    drafted = draft(algebra, algebra.plus(x, unknown), {}, Condensation)
    assert [str(each).endswith("a hull that must be small") for each in drafted.relaxed] == [True]
