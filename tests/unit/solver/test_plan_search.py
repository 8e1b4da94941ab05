"""The search against a plain loop over `estimate`, the published plan, and clusters on which nothing fits."""

import itertools
import math

import equinox as eqx
import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.plan import OFFLOADED
from hwopt.planning.plan_search import best_plan, fitting_chips
from hwopt.planning.plan_table import reports

OBJECTIVES = ("step_time_s", "run_cost_usd", "run_energy_j")


def plain_loop(run, cluster):
    """Reports of every plan the checked constructor accepts."""
    chips, batch = int(cluster.chips), int(run.global_batch_sequences)
    layers, experts = int(run.model.layers), int(run.model.experts)
    numbers = range(1, chips + 1)
    found = []
    with jax.enable_x64(True):
        for tp, pp, dp in itertools.product(numbers, repeat=3):
            if chips % (tp * pp * dp) or batch % dp:
                continue
            cp = chips // (tp * pp * dp)
            schedules = itertools.product(range(1, (layers + 2) // pp + 1), range(1, batch // dp + 1))
            places = itertools.product(range(1, experts + 1) if experts else (1,), range(1, tp + 1))
            kinds = itertools.product(("none", "selective", "full"), (1, 2, 3))
            for (v, b), (ep, expert_tp), (recompute, zero) in itertools.product(schedules, list(places), list(kinds)):
                if experts and experts % ep:
                    continue  # the constructor would say so too, slowly
                if (zero > 1 and pp > 1) or (batch % (dp * b)) or tp % expert_tp or (not experts and expert_tp != tp):
                    continue
                if cp > 1 and int(run.sequence_length) < 1024 * cp:
                    continue
                if zero > 1 and dp * cp == 1 and not experts:
                    continue  # one rank has nothing to shard
                words = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "expert_tp": expert_tp, "zero": zero}
                words |= {"virtual_stages": v, "micro_batch": b, "recompute": recompute}
                try:
                    plan = catalog.plan(run, chips, **words)
                except UserError:
                    continue
                found.append(plan)
    return reports(run, cluster, jax.tree.map(lambda *leaves: np.asarray(leaves, float), *found))


@pytest.mark.parametrize(
    ("workload", "chip", "chips", "asked"),
    [
        pytest.param("llama3.1-8b", "h100-sxm", 4, {"global_batch": 2}, marks=pytest.mark.search),
        ("deepseek-v2-lite", "h100-sxm", 4, {"global_batch": 2, "sequence_length": 2048}),
    ],
)
def test_a_plain_loop_finds_the_same(workload, chip, chips, asked):
    run, cluster = catalog.training_run(workload, **asked), catalog.cluster(chip, chips)
    found = plain_loop(run, cluster)
    fits = np.asarray(found.feasible) > 0
    assert fits.sum() > 20
    for objective in OBJECTIVES:
        search = best_plan(run, cluster, objective, common=dict.fromkeys(OFFLOADED, 0.0))
        least = float(getattr(found, objective)[fits].min())
        assert math.isclose(search.best.objective, least, rel_tol=1e-10)
        assert (search.fitting, search.examined) == (fits.sum(), len(fits)) and search.gap == 0.0
        values = [search.best.objective, *(each.objective for each in search.alternatives)]
        assert all(a <= b * (1.0 + 1e-12) for a, b in itertools.pairwise(values))
        with jax.enable_x64(True):
            again = hwopt.estimate(run, cluster, search.best.plan)
        for field in ("step_time_s", "memory_per_chip_bytes", objective):
            assert math.isclose(float(getattr(again, field)), float(getattr(search.best.report, field)), rel_tol=1e-10)


@pytest.fixture(scope="module")
def llama():
    return catalog.training_run("llama3.1-405b"), catalog.cluster("h100-sxm", 16384)


@pytest.fixture(scope="module")
def llama_search(llama):
    return best_plan(*llama, alternatives=8)


def test_at_least_as_fast_as_the_published_plan(llama, llama_search):
    """tp = 8, pp = 16, dp = 128 (The Llama 3 herd of models, arXiv 2407.21783, table 4), whatever is unpublished of it."""
    run, cluster = llama
    times = []
    for chunks, zero, recompute in itertools.product(range(1, 9), (1, 2), ("none", "selective", "full")):
        words = {"tp": 8, "pp": 16, "dp": 128, "virtual_stages": chunks, "zero": zero, "recompute": recompute}
        with jax.enable_x64(True):
            report = hwopt.estimate(run, cluster, catalog.plan(run, 16384, **words))
        if bool(report.feasible):
            times.append(float(report.step_time_s))
    assert times and llama_search.best.objective <= min(times) * (1 + 1e-12)


CALCULON = {
    "tp": 8, "pp": 5, "dp": 128, "virtual_stages": 21, "micro_batch": 3, "recompute": "selective", "activations_offloaded": 1.0,
    "optimizer_offloaded": 1.0,
}  # fmt: skip
"""The fastest of 50,496 executions of Turing-NLG 530B that Calculon's own search tries on 5,120 A100, batch 1,920, with overlapped
reductions (calculon-ai/calculon on GitHub, `systems/a100_80g.json`): 10.4 s by its model."""


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.search)])
def test_no_random_plan_and_none_of_calculon_is_faster(count):
    """Plans of the checked constructor, recomputed, sharded and offloaded as it comes, where memory is short."""
    run = catalog.training_run("mt-nlg-530b", global_batch=1920, sequence_length=2048)
    cluster, rng = catalog.cluster("a100-80", 5120, any_software=True), np.random.default_rng(0)
    cluster = eqx.tree_at(lambda c: c.stack.gradient_bytes, cluster, np.float64(2.0))  # as in Calculon
    search, plans = best_plan(run, cluster, alternatives=0), [catalog.plan(run, 5120, **CALCULON)]
    while len(plans) <= count:
        tp, pp = 2 ** rng.integers(0, 5), int(rng.choice([1, 2, 4, 5, 8, 10, 16, 20, 32, 35, 40, 64]))
        dp = int(rng.choice([d for d in range(1, 1921) if 1920 % d == 0]))
        words = {"tp": int(tp), "pp": pp, "dp": dp, "zero": int(rng.integers(1, 4)) if pp == 1 else 1}
        words |= {
            "micro_batch": int(rng.integers(1, 9)),
            "virtual_stages": int(rng.integers(1, 107 // pp + 1)) if pp > 1 else 1,
        }
        words |= {"recompute": str(rng.choice(["none", "selective", "full"])), "cp": int(rng.choice([1, 2]))}
        words |= {name: float(rng.integers(0, 2)) for name in OFFLOADED}
        try:
            plans.append(catalog.plan(run, 5120, **words))
        except UserError:
            continue
    with jax.enable_x64(True):
        report = reports(run, cluster, jax.tree.map(lambda *leaves: np.asarray(leaves, float), *plans))
    fits = np.asarray(report.feasible) > 0
    assert (
        fits[0]
        and fits.sum() > count / 10
        and (np.stack([getattr(plan, OFFLOADED[0]) for plan in plans])[fits] > 0).any()
    )
    assert report.step_time_s[fits].min() >= search.best.objective * (1.0 - 1e-12)


def test_alternatives_are_other_plans(llama_search):
    names = ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch")
    keys = {
        tuple(float(getattr(each.plan, name)) for name in names)
        for each in (llama_search.best, *llama_search.alternatives)
    }
    assert len(keys) == 9
    assert all(bool(each.report.feasible) for each in llama_search.alternatives)
    assert llama_search.best.objective == llama_search.lower_bound and llama_search.gap == 0.0
    assert f"global over {llama_search.examined:,} plans" in llama_search.scope
    assert 0 < llama_search.fitting <= llama_search.examined


def test_ties_go_to_the_faster_and_plainer_plan():
    run = catalog.training_run("llama3.1-8b", global_batch=32)
    cluster = catalog.cluster("h100-sxm", 8)
    fastest = best_plan(run, cluster, alternatives=0)
    same_for_all = best_plan(run, cluster, "capex_usd", alternatives=0)
    assert float(same_for_all.best.report.step_time_s) == float(fastest.best.report.step_time_s)
    plan = fastest.best.plan
    if float(plan.gradients_sharded):  # only because less sharding does not fit
        words = {name: float(getattr(plan, name)) for name in ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch")}
        with jax.enable_x64(True):
            assert not bool(hwopt.estimate(run, cluster, catalog.plan(run, 8, zero=1, **words)).feasible)
    assert jax.tree.all(jax.tree.map(np.array_equal, plan, best_plan(run, cluster, alternatives=0).best.plan))


def test_where_nothing_fits_the_closest_and_the_chips_that_would_do():
    run = catalog.training_run("llama3.1-70b", global_batch=64)
    cluster_of = lambda chips: catalog.cluster("h100-sxm", chips, pool="none")
    search = best_plan(run, cluster_of(4))
    assert not search.feasible and search.alternatives == []
    assert search.lower_bound is None and search.gap is None
    assert list(search.best.report.violations()) == ["memory"]
    chips = fitting_chips(run, cluster_of, 4)
    assert chips is not None and best_plan(run, cluster_of(chips)).feasible
    assert not best_plan(run, cluster_of(chips // 2)).feasible
    assert fitting_chips(run, cluster_of, 131) is None  # a prime beyond the layers divides into nothing


def test_unknown_metrics_are_named():
    run, cluster = catalog.training_run("llama3.1-8b"), catalog.cluster("h100-sxm", 8)
    with pytest.raises(UserError, match="step_time_s"):
        best_plan(run, cluster, "step_time")
    assert hwopt.best_plan is best_plan
