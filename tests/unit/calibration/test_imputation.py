"""Weights of alternatives, and the median and spread of what they predict."""

from __future__ import annotations

import numpy as np
import pytest

from hwopt.calibration.validation.imputation import TEMPERATURE, WeightedAlternative, impute, weights


def of(step_s=1.0, over=-1.0, usual=1.0, likely=1.0, circumstances="a"):
    return WeightedAlternative(circumstances, likely, usual, step_s, over)


def test_the_fast_is_likelier_than_the_slow():
    slow, fast = weights([of(step_s=np.exp(TEMPERATURE)), of(step_s=1.0)])
    assert fast / slow == pytest.approx(np.e)


def test_what_does_not_fit_has_no_weight():
    fits, misfit = weights([of(step_s=2.0), of(step_s=1.9, over=0.7)])
    assert fits > 1.0 - 1e-5 and misfit < 1e-5


def test_where_nothing_fits_what_people_do_and_speed_decide():
    usual, rare = weights([of(over=1.0, usual=0.9), of(over=0.9, usual=0.1)])
    assert usual == pytest.approx(0.9, abs=1e-6) and rare == pytest.approx(0.1, abs=1e-6)


def test_circumstances_are_not_tuned():
    """Software and format keep their weights however fast they are; circumstances in which nothing fits lose theirs."""
    both = [of(step_s=1.0, likely=0.3), of(step_s=5.0, likely=0.7, circumstances="b")]
    assert weights(both) == pytest.approx([0.3, 0.7])
    assert weights([*both[:1], both[1]._replace(over=0.7)]) == pytest.approx([1.0, 0.0], abs=1e-5)
    more = [of(likely=0.3), of(likely=0.3), of(likely=0.7, circumstances="b")]
    assert weights(more) == pytest.approx([0.15, 0.15, 0.7])


def test_weights_sum_to_one():
    drawn = np.random.default_rng(0)
    some = [of(*drawn.uniform(0.1, 2.0, 4), drawn.choice(["a", "b", "c"])) for _ in range(20)]
    assert weights(some).sum() == pytest.approx(1.0)


def test_the_median_lies_between_alternatives():
    values = np.array([1.0, 2.0])
    even = impute(values, np.array([0.5, 0.5]))
    assert even.value == pytest.approx(np.sqrt(2.0)) and even.spread == pytest.approx(0.5 * np.log(2.0))
    slower = [impute(values, np.array([1.0 - w, w])).value for w in (0.0, 0.2, 0.45, 0.55, 0.8, 1.0)]
    assert slower == sorted(slower) and slower[0] == pytest.approx(1.0) and slower[-1] == pytest.approx(2.0)
    assert slower[1] < 1.05 and slower[4] > 1.9  # that of the likelier, nearly
    assert slower[2] < 1.4 < 1.42 < slower[3]


def test_one_value_has_no_spread():
    assert impute(np.array([3.0, 3.0]), np.array([0.4, 0.6]))[:2] == pytest.approx((3.0, 0.0), abs=1e-9)


def test_a_likely_alternative_near_the_median_stands_for_the_row():
    near = impute(np.array([1.0, 1.01, 4.0]), np.array([0.35, 0.4, 0.25]))
    assert near.chosen == 1
    assert impute(np.array([1.0, 2.0]), np.array([1.0, 0.0])).chosen == 0
