"""Parts of a layer: deduplicated dispatch, recomputation that stops early, host time, weights gathered in a pipeline."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.chip.roofline import gemm_time
from hwopt.model.estimate import estimate
from hwopt.model.layers import work
from hwopt.model.layers.layer_time import _distinct_domains
from hwopt.model.network import collectives
from tests.cases import one_chip_cases, random_cases, replace
from tests.in_numpy import in_numpy

N = 400


def run_model(cases):
    return in_numpy(estimate)(*cases)


@pytest.fixture(scope="module")
def moe():
    """Mixtures of experts whose communication nothing hides."""
    run, cluster, plan = random_cases(np.random.default_rng(50), N, "moe")
    return run, replace(cluster, stack__ep_overlap=0.0, stack__communication_slowdown=0.0), plan


def after(cases, **fields):
    """What the model says with some fields changed, at a level of one: parts are compared with what they are made of."""
    run, cluster, plan = cases
    return run_model((run, replace(cluster, **{"stack__level": 1.0} | fields), plan))


# Dispatch --------------------------------------------------------------------------------------------------------------


def distinct(domains: float, copies: float, routed_groups: float = 0.0) -> float:
    """`_distinct_domains` of a group that fills so many domains of eight chips, in one pod."""
    network = SimpleNamespace(size=np.array([8.0, 1e6]))
    with jax.enable_x64(True):
        group = SimpleNamespace(ep=np.float64(8 * domains), expert_tp=np.float64(1))
        shape = SimpleNamespace(experts_per_token=np.float64(copies), routed_groups=np.float64(routed_groups))
        return float(_distinct_domains(SimpleNamespace(network=network), group, shape))


@pytest.mark.parametrize(("domains", "error"), [(2, 0.30), (4, 0.10), (8, 0.10), (16, 0.10), (64, 0.10)])
def test_copies_that_travel_are_near_those_of_experts_chosen_at_random(domains, error):
    for copies in (1, 2, 4, 6, 8):
        expected = domains * (1 - (1 - 1 / domains) ** copies) / copies
        assert distinct(domains, copies) == pytest.approx(expected, rel=error)


def test_one_copy_travels_and_many_domains_share_none():
    assert distinct(4, 1) == 1.0
    assert distinct(1e5, 8) == pytest.approx(1.0, abs=1e-4)
    assert distinct(2, 1e9) == pytest.approx(0.0, abs=1e-8)
    assert distinct(4, 4) > distinct(4, 8) and distinct(8, 8) > distinct(4, 8)


def test_node_limited_routing_bounds_the_copies_that_travel():
    """DeepSeek-V3: eight experts of a token lie on at most four of eight nodes."""
    assert distinct(8, 8, routed_groups=4) == pytest.approx(4 / 8)
    assert distinct(2, 8, routed_groups=4) == distinct(2, 8)
    assert distinct(64, 8, routed_groups=8) == distinct(64, 8)


def test_tokens_in_eight_bits_on_their_way_to_experts_save_a_quarter(moe):
    """Half of the bytes one way; latencies stay."""
    wide, narrow = (after(moe, stack__dispatch_bytes_share=x).breakdown.ep_comm_s for x in (1.0, 0.5))
    sends = wide > 0.0
    assert sends.any() and (narrow[sends] < wide[sends]).all()
    assert (narrow >= 0.75 * wide * (1.0 - 1e-9)).all() and (narrow[sends] / wide[sends]).min() < 0.76


def test_misaligned_heads_slow_products_of_stored_scores_alone():
    run, cluster, plan = one_chip_cases(np.random.default_rng(59), N, "dense")
    wide = lambda stored, odd: run_model((
        replace(run, model__misaligned_heads=odd), replace(cluster, stack__attention_scores_stored=stored, stack__level=1.0), plan,
    )).breakdown.compute_s  # fmt: skip
    assert (wide(1.0, 1.0) > wide(1.0, 0.0)).all()
    np.testing.assert_array_equal(wide(0.0, 1.0), wide(0.0, 0.0))


def test_a_hosts_collectives_bound_small_layers_of_tensor_groups():
    """Four a layer and direction; none for a group of one."""
    run, cluster, plan = random_cases(np.random.default_rng(60), N, "dense")
    waits = {"stack__host_layer_s": 0.0, "stack__host_moe_layer_s": 0.0}
    none, some = (after((run, cluster, plan), **waits, stack__host_collective_s=x) for x in (0.0, 1e3))
    grows = some.breakdown.host_s > none.breakdown.host_s
    assert (grows == (plan.tp > 1.0)).all() and grows.any() and not grows.all()


def test_deduplicated_dispatch_never_sends_more_than_an_all_to_all(moe):
    every, once = (after(moe, stack__dispatch_deduplicated=x) for x in (0.0, 1.0))
    assert (once.breakdown.ep_comm_s <= every.breakdown.ep_comm_s * (1 + 1e-12)).all()
    assert (once.breakdown.ep_comm_s < every.breakdown.ep_comm_s).mean() > 0.1
    assert (once.step_time_s <= every.step_time_s * (1 + 1e-12)).all()


def test_deduplicated_dispatch_is_an_all_to_all_within_one_domain_or_of_one_copy(moe):
    run, cluster, plan = moe
    size = np.maximum(cluster.network.size, (plan.ep * plan.expert_tp)[:, None])
    for inside in (
        (run, replace(cluster, network__size=size), plan),
        (replace(run, model__experts_per_token=1.0), cluster, plan),
    ):
        every, once = (after(inside, stack__dispatch_deduplicated=x) for x in (0.0, 1.0))
        np.testing.assert_allclose(once.step_time_s, every.step_time_s, rtol=1e-14)


def test_what_does_not_leave_the_domain_is_sent_whole(moe):
    """An all-to-all with nothing to send outwards still pays its bytes inside, and every latency."""
    _, cluster, _ = moe
    rng = np.random.default_rng(52)
    size, group = np.exp(rng.uniform(0, 25, N)), np.exp(rng.uniform(0, 8, N))
    of = jax.vmap(lambda *a: collectives.all_to_all_s(a[0], a[1], a[2], 1.0, 1e-5, a[3]))
    with jax.enable_x64(True):
        whole, half, none = (np.asarray(of(cluster.network, size, group, np.full(N, x))) for x in (1.0, 0.5, 0.0))
        inside = np.minimum(group, cluster.network.size[:, 0])
        bandwidth = cluster.network.bandwidth_bytes_per_s[:, 0] * cluster.network.efficiency[:, 0]
    assert (none <= half).all() and (half <= whole).all()
    assert (none >= (inside - 1) / group * size / bandwidth).all()


# Recomputation ---------------------------------------------------------------------------------------------------------


def last_product_s(run, cluster, plan) -> np.ndarray:
    """Seconds of arithmetic of the last product of all layers, forward, once a micro-batch."""

    def one(run, cluster, plan):
        table = gemm_time(work.gemms(work.flow(run, plan), plan), run, cluster.chip, cluster.stack, np.maximum)
        dense, routed, shared = (
            table.compute_s[work.GEMMS.index(n)] for n in ("mlp_down", "expert_down", "shared_down")
        )
        w = run.model
        return (w.layers - w.moe_layers) * dense + w.moe_layers * (routed + shared)

    return np.array([one(*jax.tree.map(lambda leaf, i=i: leaf[i], (run, cluster, plan))) for i in range(len(plan.tp))])


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_recomputation_that_stops_early_leaves_out_the_last_product(kind):
    run, cluster, plan = one_chip_cases(np.random.default_rng(53), 60, kind)
    plan = replace(plan, recompute_full=1.0)
    early, late = (after((run, cluster, plan), stack__recompute_stops_early=x) for x in (1.0, 0.0))
    with jax.enable_x64(True):
        each = last_product_s(run, cluster, plan)
    micro_batches = run.global_batch_sequences / plan.micro_batch
    saved = late.breakdown.compute_s - early.breakdown.compute_s
    fits = late.clock_margin >= 0.0  # others keep clocks of their own
    assert fits.sum() > 10
    np.testing.assert_allclose(saved[fits], (micro_batches * each)[fits], rtol=1e-9)
    assert (early.step_time_s <= late.step_time_s * (1.0 + 1e-12)).all() and (
        early.step_time_s < late.step_time_s
    ).any()


def test_flops_repeated_leave_out_the_last_product():
    """Of a GPT layer's 12 h^2 weights the last product has 4 h^2; of a mixture those of the experts that a token meets."""
    run, cluster, plan = random_cases(np.random.default_rng(54), 60)
    with jax.enable_x64(True):
        late, early = (
            np.asarray(
                jax.vmap(lambda run, *others: work.repeated_flops(run.model, run, *others))(
                    run, replace(plan, recompute_full=1.0), stack
                )
            )
            for stack in (replace(cluster.stack, recompute_stops_early=x) for x in (0.0, 1.0))
        )
    w = run.model
    met = (w.layers - w.moe_layers) * w.ffn + w.moe_layers * w.expert_ffn * (w.experts_per_token + w.shared_experts)
    tokens = run.global_batch_sequences * run.sequence_length
    np.testing.assert_allclose(late - early, 2.0 * tokens * w.hidden * met, rtol=1e-9)
    assert (early > 0).all()


def test_stopping_early_matters_only_where_layers_are_recomputed():
    run, cluster, plan = random_cases(np.random.default_rng(55), N)
    plan = replace(plan, recompute_full=0.0)
    early, late = (after((run, cluster, plan), stack__recompute_stops_early=x) for x in (1.0, 0.0))
    for a, b in zip(jax.tree.leaves(early), jax.tree.leaves(late), strict=True):
        assert (a == b).all()


# Host, routing, gathering ----------------------------------------------------------------------------------------------


def test_each_kind_of_layer_has_its_own_host_time():
    run, cluster, plan = one_chip_cases(np.random.default_rng(56), N, "moe")
    plan = replace(plan, recompute_full=0.0)
    waits = after((run, cluster, plan), stack__host_layer_s=1e7, stack__host_moe_layer_s=2e7)
    layers = run.model.layers + run.model.moe_layers
    micro_batches = run.global_batch_sequences / plan.micro_batch
    stalled = 1.0 + cluster.operation.stall_fraction
    np.testing.assert_allclose(waits.step_time_s, 2e7 * layers * micro_batches * stalled, rtol=1e-3)  # both ways


def test_routing_passes_are_bytes_of_hbm():
    run, cluster, plan = one_chip_cases(np.random.default_rng(57), N, "moe")
    plan = replace(plan, recompute_full=0.0)
    more, none = (after((run, cluster, plan), stack__routing_passes=x) for x in (2.0, 0.0))
    w, chip = run.model, cluster.chip
    copies = plan.micro_batch * run.sequence_length * w.experts_per_token * run.routing_imbalance
    size = 4.0 * run.activation_bytes * w.hidden * copies * w.moe_layers
    rate = chip.hbm_bandwidth_bytes_per_s * chip.hbm_efficiency
    seconds = 3.0 * 2.0 * size / rate * run.global_batch_sequences / plan.micro_batch  # forward, and twice backward
    np.testing.assert_allclose(more.breakdown.memory_bound_s - none.breakdown.memory_bound_s, seconds, rtol=1e-6)


def test_a_pipeline_gathers_its_weights_once_a_step():
    """Twice the micro-batches gather no more with stages, and twice as much without."""
    run, cluster, plan = random_cases(np.random.default_rng(58), N, "dense")
    cluster = replace(cluster, stack__dp_overlap=0.0, stack__communication_slowdown=0.0)
    plan = replace(plan, gradients_sharded=1.0, weights_sharded=1.0, shard_groups=1.0)
    twice = replace(run, global_batch_sequences=2 * run.global_batch_sequences)
    for pp, factor in ((1.0, 2.0), (2.0, 1.0), (4.0, 1.0)):
        staged = replace(plan, pp=pp, virtual_stages=1.0, fullest_stage=1.0, last_stage=1.0)
        once, more = run_model((run, cluster, staged)), run_model((twice, cluster, staged))
        slow = replace(cluster, stack__gather_efficiency=0.5 * cluster.stack.gather_efficiency)
        slower = run_model((run, slow, staged))
        before, rounding = once.breakdown.dp_comm_s, 1e-12 * once.step_time_s
        assert (np.abs(more.breakdown.dp_comm_s - factor * before) <= 1e-9 * before + rounding).all()
        assert (np.abs(slower.breakdown.dp_comm_s - 2.0 * before) <= 1e-9 * before + rounding).all()


def test_sharded_gradients_are_scattered_for_each_micro_batch():
    """ZeRO-2 on one stage: a chip keeps its share alone, so a step with twice the micro-batches has twice the traffic for it."""
    run, cluster, plan = random_cases(np.random.default_rng(59), N, "dense")
    cluster = replace(cluster, stack__dp_overlap=0.0, stack__communication_slowdown=0.0)
    plan = replace(
        plan, pp=1.0, virtual_stages=1.0, fullest_stage=1.0, last_stage=1.0, weights_sharded=0.0, shard_groups=1.0
    )
    sync = lambda sharded, factor: (
        run_model(
            (
                replace(run, global_batch_sequences=factor * run.global_batch_sequences),
                cluster,
                replace(plan, optimizer_sharded=1.0, gradients_sharded=sharded),
            )
        ).breakdown.dp_comm_s
    )
    once, twice, thrice = (sync(1.0, factor) for factor in (1, 2, 3))
    np.testing.assert_allclose(thrice - twice, twice - once, rtol=1e-6, atol=1e-12)
    whole = sync(0.0, 1)
    np.testing.assert_allclose(sync(0.0, 2), whole, rtol=1e-6)
    several = plan.dp / cluster.sites.count * plan.cp > 1  # replicas of a site: sites exchange among themselves
    assert (twice > once)[several].all() and several.sum() > 50
    assert (twice[~several] == 0).all()


def test_a_dense_layer_that_no_layer_is_has_no_width():
    """A model of experts alone may state a dense width of 0, as published configurations do: nothing depends on it."""
    run = catalog.training_run("qwen3-30b-a3b", global_batch=512)
    cluster = catalog.cluster("h100-sxm", 64)
    plan = catalog.plan(run, 64, ep=8, tp=1)
    assert run.model.moe_layers == run.model.layers
    both = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), run)
    slope_of = in_numpy(jax.value_and_grad(lambda run: estimate(run, cluster, plan).step_time_s))
    (absent, idle), slopes = slope_of(replace(both, model__ffn=np.array([0.0, 4096.0])))
    assert absent == pytest.approx(idle, rel=1e-12) and slopes.model.ffn[0] == 0
    assert all(np.isfinite(leaf[0]).all() for leaf in jax.tree.leaves(slopes))
