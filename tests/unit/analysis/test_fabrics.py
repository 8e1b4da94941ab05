"""The price of predictability: levels of unevenness, what evenness is worth, and larger failure domains."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwopt
from hwopt import catalog
from hwopt.analysis.fabrics import FabricVariant, JitterLevel, jitter_levels
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy

RUN = catalog.training_run("gpt3-6.7b", global_batch=1024, tokens=1e11)
PLAN = catalog.plan(RUN, 256, tp=2, pp=4, virtual_stages=2)


def machine(name: str, **around) -> FabricVariant:
    def cluster(spread: float, tail_s: float):
        return catalog.cluster("h100-sxm", 256, bandwidth_spread=spread, latency_tail_s=tail_s, **around)

    return FabricVariant(name, cluster)


def test_levels_are_those_of_the_catalogue():
    even, usual, worst = jitter_levels()
    record = catalog.record("operations", "production")
    assert (even.spread, even.tail_s) == (0.0, 0.0)
    assert (usual.spread, usual.tail_s) == (record.si("bandwidth_spread"), record.si("latency_tail"))
    assert worst.spread == pytest.approx(0.4) and worst.tail_s == pytest.approx(30e-6)
    assert jitter_levels(spread=0.2, tail_s=1e-5)[2] == JitterLevel("least even", 0.2, 1e-5)


def test_what_evenness_is_worth_makes_the_least_even_as_cheap():
    """Capital of the even machine, raised by its worth, costs the run as much as unevenness does: money in proportion."""
    answer = hwopt.fabrics(RUN, [machine("ndr", fabric="ndr-fat-tree")], plan=lambda _: PLAN)
    (case,) = answer.cases
    even, *others = (float(each.run_cost_usd) for each in case.reports)
    capital = float(case.reports[0].capex_usd)
    for cost, worth in zip((even, *others), case.worth_usd_per_chip, strict=True):
        assert (capital + 256 * worth) / capital == pytest.approx(cost / even, rel=1e-12)
    assert case.costs_usd == sorted(case.costs_usd) and case.dearer[0] == case.worth_usd_per_chip[0] == 0.0


def test_each_machine_has_its_cheapest_plan_and_stays_with_it():
    answer = hwopt.fabrics(RUN, [machine("ndr", fabric="ndr-fat-tree"), machine("roce", fabric="roce-400-fat-tree")])
    level = answer.levels[1]
    for case, fabric in zip(answer.cases, ("ndr-fat-tree", "roce-400-fat-tree"), strict=True):
        usual = machine("", fabric=fabric).cluster(level.spread, level.tail_s)
        assert case.costs_usd[1] == pytest.approx(
            float(hwopt.best_plan(RUN, usual, "run_cost_usd").best.report.run_cost_usd)
        )
        assert len({float(each.memory_per_chip_bytes) for each in case.reports}) == 1
    assert answer.trained == sorted(answer.cases, key=lambda each: each.costs_usd[1])


def test_no_machine_or_too_many_are_refused():
    for count in (0, 33):
        with pytest.raises(UserError, match=f"{count} machines"):
            hwopt.fabrics(RUN, [machine(str(i)) for i in range(count)])


def grown(cluster, times: float):
    """The same events, each of which takes so many times the chips: racks, and servers, fail as often in sum."""
    racks = lambda c: (c.rack.chips, c.reliability.rack_failures_per_s, c.reliability.loop_failures_per_s)
    return eqx.tree_at(racks, cluster, tuple(np.asarray(each * times) for each in racks(cluster)))


@settings(deadline=None, max_examples=12)
@given(st.floats(1.5, 16.0), st.sampled_from(["from-storage", "hot-spares", "in-memory"]))
def test_a_larger_failure_domain_never_raises_goodput(times, recovery):
    """All else equal, the number of events too: as many racks lost a year, each with more chips."""
    small = catalog.cluster("h100-sxm", 256, rack_chips=8, recovery=recovery)
    before, after = (evaluate_in_numpy(estimate, RUN, each, PLAN) for each in (small, grown(small, times)))
    assert float(after.goodput) <= float(before.goodput) * (1.0 + 1e-12)
    assert float(after.hot_spares) >= float(before.hot_spares) * (1.0 - 1e-12)
    assert (float(after.hot_spares) > float(before.hot_spares)) == (float(small.recovery.hot_spares) > 0.0)


def test_fewer_racks_that_fail_as_often_each_stop_the_job_less_often():
    """What a denser rack gains where its shelves and loops fail no more often than a smaller one's: an assumption of the model."""
    sparse, dense = (catalog.cluster("h100-sxm", 256, rack_chips=chips) for chips in (8, 16))
    first, second = (evaluate_in_numpy(estimate, RUN, each, PLAN) for each in (sparse, dense))
    assert float(second.interruptions.racks) == pytest.approx(0.5 * float(first.interruptions.racks))
    assert float(second.goodput) > float(first.goodput)
