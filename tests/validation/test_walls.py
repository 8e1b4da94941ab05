"""The published walls of training, by this model: within a factor of three."""

from __future__ import annotations

import pytest

from tests.validation.walls import PUBLISHED_FLOP, RUN_DAYS, fastest


@pytest.mark.search
@pytest.mark.parametrize("kind", PUBLISHED_FLOP)
def test_the_largest_run_in_a_quarter_is_the_published_one_within_a_factor_of_three(kind):
    """Beyond it no number of chips finishes in time."""
    published = PUBLISHED_FLOP[kind]
    below, above = (fastest(size, kind == "latency") for size in (published / 3.0, published * 3.0))
    assert below.days < RUN_DAYS < above.days


def test_more_chips_than_the_fastest_run_uses_would_not_help():
    """The split over most chips is slower: latency and idle stages have caught up."""
    found = fastest(1e27, latency_only=False)
    assert found.days_of_most_chips > found.days
    assert found.mfu < 0.1  # the fastest run is far from an efficient one
