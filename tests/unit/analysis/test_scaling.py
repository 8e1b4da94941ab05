"""A run on more and more chips: sizes by the plan search, causes that add up, the knee, weak scaling by the law of batches."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

import hwopt
from hwopt import catalog
from hwopt.analysis.chip_time import FAILURES
from hwopt.analysis.scaling import Scaling, ScalingStep, scale
from hwopt.output.answers.scaling import scaling_answer
from hwopt.output.text.scaling import CAUSES, headline, remedy, sooner, why

SIZES = [8, 16, 48, 64]
HELD = {"weights_offloaded": 0.0, "optimizer_offloaded": 0.0, "activations_offloaded": 0.0}


def cluster(chips):
    return catalog.cluster("h100-sxm", chips)


@pytest.fixture(scope="module")
def run():
    return catalog.training_run("llama3.1-8b", global_batch=48)


@pytest.fixture(scope="module")
def strong(run):
    return scale(run, cluster, SIZES, common=HELD)


@pytest.fixture(scope="module")
def weak(run):
    return scale(run, cluster, SIZES, common=HELD, weak=True)


def test_each_size_is_the_plan_search_of_its_cluster(strong, run):
    alone = hwopt.best_plan(run, cluster(48), "run_time_s", 0, HELD)
    size = strong.sizes[2]
    assert size.chips == 48 and size.search.best.objective == alone.best.objective == size.time_s
    assert size.search.lower_bound == alone.lower_bound and size.search.examined == alone.examined
    assert size.cost_usd == float(alone.best.report.run_cost_usd)


def test_chip_time_of_a_token_adds_up_to_chips_times_time_over_tokens(strong, weak):
    for size in (*strong.trained, *weak.trained):
        whole = size.chips * size.time_s / float(size.run.tokens)
        assert sum(size.chip_time.values()) == pytest.approx(whole, rel=1e-12)
        assert size.chip_time.keys() <= CAUSES.keys()


def test_causes_add_up_to_what_the_cost_grew_by(strong, weak):
    for growth in (*strong.growths, *weak.growths):
        ratio = growth.after.cost_usd / growth.before.cost_usd
        assert sum(each.share for each in growth.causes) == pytest.approx(ratio - 1.0, abs=1e-12)


def test_what_a_doubling_saves_is_the_same_share_each_time_it_is_done(strong):
    tripled = strong.growths[1]
    assert tripled.after.chips == 3 * tripled.before.chips
    ratio = tripled.after.time_s / tripled.before.time_s
    assert (1.0 - tripled.saved) ** math.log2(3.0) == pytest.approx(ratio, rel=1e-12)
    assert (1.0 + tripled.dearer) ** math.log2(3.0) == pytest.approx(
        tripled.after.cost_usd / tripled.before.cost_usd, rel=1e-12
    )


def test_time_that_is_halved_costs_nothing_but_the_price(strong):
    growth = strong.growths[0]
    price = float(growth.after.report.chip_usd_per_s) / float(growth.before.report.chip_usd_per_s)
    assert (1.0 + growth.dearer) == pytest.approx(2.0 * (1.0 - growth.saved) * price, rel=1e-12)


def test_speedup_and_efficiency_are_over_the_smallest_size(strong):
    first, last = strong.trained[0], strong.trained[-1]
    assert strong.speedup(first) == strong.efficiency(first) == 1.0
    assert strong.speedup(last) == first.time_s / last.time_s
    assert strong.efficiency(last) == pytest.approx(strong.speedup(last) * 8 / 64)


def test_the_knee_is_the_first_growth_that_does_not_pay(strong):
    dearer = [each.dearer for each in strong.growths]
    place = int(np.argmax(dearer))
    between = Scaling(strong.sizes, strong.objective, False, 0.0, np.nextafter(dearer[place], 0.0))
    knee = next(each for each, by in zip(strong.growths, dearer, strict=True) if by >= dearer[place])
    assert between.knee == knee
    assert Scaling(strong.sizes, strong.objective, False, 0.0, dearer[place]).knee is None
    assert Scaling(strong.sizes, strong.objective, False, 0.5, 10.0).knee == strong.growths[0]


def test_the_headline_names_the_knee_and_says_why(strong):
    strict = Scaling(strong.sizes, strong.objective, False, 0.5, 10.0)
    assert headline(strict).startswith("Adding chips stops paying at 8: twice as many save ")
    assert "the largest size requested" in headline(Scaling(strong.sizes, strong.objective, False, 0.0, 10.0))
    growth = strong.growths[-1]
    assert CAUSES[growth.causes[0].name] in why(growth)


def test_what_a_day_sooner_costs_is_told_on_both_sides_of_the_knee(strong):
    by = sorted(each.dearer for each in strong.growths)
    told = Scaling(strong.sizes, strong.objective, False, 0.0, by[-2])
    knee = told.knee
    assert knee is not None and f"{knee.before.chips:,} to {knee.after.chips:,}" in sooner(told)
    assert sooner(Scaling(strong.sizes, strong.objective, False, 0.0, 10.0)) == ""


def test_where_failures_grow_most_another_recovery_is_named(strong):
    knee = Scaling(strong.sizes, strong.objective, False, 0.5, 10.0)
    failing = [replace(each) for each in knee.sizes]
    for each, lost in zip(failing, (0.0, 1.0, 2.0, 3.0), strict=True):
        each.__dict__["chip_time"] = {"compute": 1.0, FAILURES: lost}
    lossy = Scaling(failing, knee.objective, False, 0.5, 10.0)
    assert "--recovery in-memory" in remedy(lossy, "from-storage") and remedy(lossy, "in-memory") == ""
    assert remedy(Scaling(failing, knee.objective, False, 0.0, 10.0), "from-storage") == ""


def test_weak_scaling_keeps_the_sequences_of_a_chip(weak):
    assert [float(each.run.global_batch_sequences) for each in weak.sizes] == [48.0, 96.0, 288.0, 384.0]
    assert weak.sizes[0].tokens_needed == 1.0
    assert all(b.tokens_needed > a.tokens_needed for a, b in zip(weak.sizes, weak.sizes[1:], strict=False))


def test_tokens_that_weak_scaling_needs_reach_the_same_loss_by_a_root_of_our_own(weak, run):
    """`D (1 + B / B_crit(D)) = T` solved for D at the smallest batch by bisection, in NumPy."""
    law, report = run.law, weak.sizes[0].report
    of = {
        name: float(np.asarray(value))
        for name, value in vars(law).items()
        if np.ndim(value) == 0 and not isinstance(value, str)
    }
    n = float(report.active_parameters) ** (1 - of["moe_exponent"]) * float(report.parameters) ** of["moe_exponent"]

    def critical(d):
        loss = of["irreducible_loss"] + of["parameter_coefficient"] * n ** -of["parameter_exponent"]
        loss += of["token_coefficient"] * d ** -of["token_exponent"]
        grown = (d / of["critical_reference_tokens"]) ** of["critical_token_exponent"]
        return of["critical_batch_tokens"] * grown * loss ** -of["critical_loss_exponent"]

    tokens, unique = float(run.tokens), float(run.unique_tokens)
    assert tokens <= unique, "fresh tokens: nothing is repeated"
    batch = [float(each.run.global_batch_sequences * each.run.sequence_length) for each in weak.sizes]
    useful = brentq(lambda d: d * (1.0 + batch[0] / critical(d)) - tokens, 1e-2 * tokens, tokens, xtol=1.0, rtol=1e-14)
    for size, each in zip(weak.sizes, batch, strict=True):
        assert size.tokens_needed == pytest.approx(useful * (1.0 + each / critical(useful)) / tokens, rel=1e-9)


def test_a_size_that_cannot_be_asked_or_does_not_fit_stays_with_its_reason(run):
    answer = scale(run, cluster, [1, 8, 53, 2**40], common=HELD)
    none, fits, odd, many = answer.sizes
    assert not none.feasible and "more memory than a chip has" in none.reason
    assert odd.search is None and "no plan divides 53 chips" in odd.reason
    assert fits.feasible and not fits.reason
    assert many.search is None and "outside" in many.refused
    assert answer.growths == [] and "Only 8 chips have an answer" in headline(answer)
    screen = scaling_answer(answer, "title", {}).screen()
    assert "Sizes without a plan" in screen and f"{2**40:,}" in screen


def test_where_no_size_can_be_asked_for_the_reason_is_an_error(run):
    with pytest.raises(hwopt.UserError, match="nonsense"):
        scale(run, lambda chips: catalog.cluster("h100-sxm", chips, cooling="nonsense"), [8, 16])
    with pytest.raises(hwopt.UserError, match="no plan divides 53 chips"):
        scale(run, cluster, [53, 59])
    assert all(each.search.best.plan.tp == 8.0 for each in scale(run, cluster, [8, 16], common={"tp": 8.0}).sizes)


@pytest.mark.parametrize(
    ("chips", "settings", "said"),
    [
        ([8], {}, "hwopt plan answers for one"),
        ([8, 8], {}, "hwopt plan answers for one"),
        ([0, 8], {}, "an integer of at least 1"),
        ([8.5, 16], {}, "an integer of at least 1"),
        (list(range(1, 70)), {}, "64 at most"),
        ([8, 16], {"least_saving": 0.6}, "half of the time at most"),
        ([8, 16], {"most_dearer": -0.1}, "at least 0"),
        ([8, 16], {"most_dearer": math.nan}, "at least 0"),
        ([8, 16], {"objective": "users"}, "not available for this workload"),
        ([7, 8], {"weak": True}, "no whole number; choose sizes that are multiples of 7"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_search(chips, settings, said, run, monkeypatch):
    monkeypatch.setattr("hwopt.analysis.scaling.best_plan", lambda *_: pytest.fail("searched"))
    with pytest.raises(hwopt.UserError, match=said):
        scale(run, cluster, chips, **settings)


def test_a_ramp_and_a_service_are_refused(run):
    with pytest.raises(hwopt.UserError, match="leave the ramp out"):
        scale(catalog.training_run("llama3.1-8b", global_batch=48, batch_ramp="16@10%,48"), cluster, [8, 16], weak=True)
    with pytest.raises(hwopt.UserError, match="name a training run"):
        scale(catalog.service("llama3.1-8b"), cluster, [8, 16])


def test_longer_runs_on_more_chips_have_no_price_of_a_second_saved(strong):
    growth = strong.growths[0]
    assert growth.usd_per_second_saved == pytest.approx(
        (growth.after.cost_usd - growth.before.cost_usd) / (growth.before.time_s - growth.after.time_s)
    )
    assert ScalingStep(growth.after, growth.before).usd_per_second_saved is None
