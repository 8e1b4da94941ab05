"""Published strong scaling: what each size took lies in our interval, by runs that no constant was fitted to."""

import pytest

from hwopt.calibration.holdout import in_test_set
from results.benchmarks.scaling import PUBLISHED, gain, series

MEGASCALE, NEMOTRON = PUBLISHED["train_round2"]


@pytest.fixture(scope="module")
def points():
    return {name: series(name, searched=False) for name in (MEGASCALE, NEMOTRON)}


def of(points, model, batch):
    return points[MEGASCALE][MEGASCALE, f"GPT-175B ({model})", batch]


def test_no_locked_study_is_looked_at():
    assert not any(in_test_set(source) for sources in PUBLISHED.values() for source in sources)


def test_megascale_from_3072_to_12288_chips_lies_in_the_interval_of_its_plan(points):
    sizes = of(points, "MegaScale", "6144")
    assert [each.chips for each in sizes] == [3072, 6144, 8192, 12288]
    for each in sizes:
        assert each.holds
        assert gain(each, sizes[0], "predicted_s") == pytest.approx(gain(each, sizes[0], "measured_s"), rel=0.07)


def test_nemotron_whose_batch_grows_lies_in_the_interval_of_its_plan(points):
    ((_, sizes),) = points[NEMOTRON].items()
    assert [each.sequences for each in sizes] == [768, 1536, 2304]
    for each in sizes:
        assert each.holds
        assert gain(each, sizes[0], "predicted_s") == pytest.approx(gain(each, sizes[0], "measured_s"), rel=0.05)


def test_a_cluster_that_slows_megatron_down_is_not_foreseen(points):
    """The paper's Megatron-LM loses a fifth of its speed from 256 to 1,024 chips at one batch, to stragglers that it then mends."""
    sizes = of(points, "Megatron-LM", "768")
    assert sizes[0].holds and not sizes[-1].holds and sizes[-1].predicted_s < sizes[-1].measured_s


@pytest.mark.search
def test_the_best_plan_is_no_slower_than_the_published_one_and_its_interval_holds_megascale():
    """It is searched among plans that offload nothing, by the same model: one plan or another more can only be better."""
    points = {MEGASCALE: series(MEGASCALE)}
    every = [each for sizes in points[MEGASCALE].values() for each in sizes]
    assert all(each.best_s <= 1.0001 * each.predicted_s for each in every)
    assert all(each.best_holds for each in of(points, "MegaScale", "6144"))
