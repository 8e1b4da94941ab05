"""How unevenly tokens come to ranks of experts."""

import numpy as np
import pytest

from hwopt.calibration.validation.expert_imbalance import POPULARITY_SPREAD, busiest_rank


@pytest.mark.parametrize(("experts", "ranks"), [(256, 4), (256, 8), (128, 8), (64, 16), (256, 32)])
def test_busiest_rank_is_the_mean_largest_of_drawn_loads(experts, ranks):
    """Gamma-distributed loads of experts, in ranks of equal size, over their own mean."""
    shape = 1.0 / POPULARITY_SPREAD**2
    loads = np.random.default_rng(experts + ranks).gamma(shape, size=(4000, ranks, experts // ranks)).sum(2)
    drawn = (loads.max(1) / loads.mean(1)).mean()
    assert busiest_rank(experts, ranks) - 1.0 == pytest.approx(drawn - 1.0, rel=0.25)


def test_one_rank_is_the_mean_and_more_ranks_are_worse():
    assert busiest_rank(128.0, 1.0) == 1.0
    found = [busiest_rank(128.0, ranks) for ranks in (2.0, 4.0, 8.0, 16.0, 32.0)]
    assert found == sorted(found)
    assert busiest_rank(16.0, 4.0) > busiest_rank(256.0, 4.0)
