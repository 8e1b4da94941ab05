"""Measured runs that differ in one word of the run: predictions change in the measured direction."""

from __future__ import annotations

import pytest

from hwopt import catalog
from hwopt.calibration.validation.score import Scored
from hwopt.calibration.validation.validate import score
from results.benchmarks.pairs import COLUMNS, RUNS, seconds_of


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Scored, Scored]]:
    scored = score(RUNS, catalog.calibration(catalog.CALIBRATED)).scored
    return list(zip(scored[::2], scored[1::2], strict=True))


def changed(one: Scored, other: Scored) -> set[str]:
    return {name for name, column in COLUMNS.items() if getattr(one.row, column) != getattr(other.row, column)}


def agrees(one: Scored, other: Scored) -> bool:
    measured, predicted = seconds_of(other) / seconds_of(one), other.prediction.step_s / one.prediction.step_s
    return (measured - 1.0) * (predicted - 1.0) > 0.0


def test_rows_of_a_pair_differ_in_words_alone(pairs):
    assert len(pairs) == 26
    for one, other in pairs:
        assert changed(one, other) and one.row.configuration == other.row.configuration, one.row.id
        assert (one.accelerator, one.stack, one.metric) == (other.accelerator, other.stack, other.metric)


@pytest.mark.parametrize(
    ("word", "right", "of"),
    [("cuda_graphs", 0, 2), ("dispatcher", 6, 10), ("ep_overlap", 4, 4), ("compilation", 6, 6), ("expert_routing", 1, 1)],
)  # fmt: skip
def test_a_word_moves_a_prediction_as_it_moved_the_run(pairs, word, right, of):
    """The others: DeepEP's interface by other transports of AWS, and graphs that replayed no faster on H100."""
    alone = [pair for pair in pairs if changed(*pair) == {word}]
    assert (sum(agrees(*pair) for pair in alone), len(alone)) == (right, of)


def test_a_functional_run_is_slower(pairs):
    ((one, other),) = (pair for pair in pairs if "tuning" in changed(*pair))
    assert agrees(one, other) and other.prediction.step_s < 0.9 * one.prediction.step_s
