"""Layouts of plans that serve: redundant experts, batches in two halves, keys and values split by token."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.layers.work import Flow, imbalance
from hwopt.model.serving.exchanges import LOG_WEIGHT_BYTES, split_s
from hwopt.model.serving.steady_state import steady_pass
from hwopt.output.text.plans import plan_document
from hwopt.workload.layer_work import layer_work
from tests.in_numpy import once

SERVICE = catalog.service("deepseek-v3", mode="decode", precision="fp8", input_tokens=4096, output_tokens=1024)
CLUSTER = catalog.cluster("h200", 32, stack="tensorrt-llm-2026")
ESTIMATE = once(hwopt.estimate)


def plan(chips=32, **settings):
    return catalog.serving_plan(SERVICE, chips, **settings)


def report(chips=32, cluster=CLUSTER, service=SERVICE, **settings):
    with jax.enable_x64(True):
        return ESTIMATE(service, cluster, catalog.serving_plan(service, chips, **settings))


def test_plain_plans_have_no_layout():
    assert plan(tp=1, ep=32, batch=8, redundant_experts=0, two_batches="no", cache_split=1).layout is None


def test_slots_and_copies_say_the_same():
    """Nine experts a rank on 32 ranks: 32 redundant ones; words of answers are words of plans."""
    one, other = plan(tp=1, ep=32, batch=8, redundant_experts=32), plan(tp=1, ep=32, batch=8, expert_slots=9)
    assert float(one.layout.expert_slots) == float(other.layout.expert_slots) == 9.0
    asked = {"tp": 4, "ep": 32, "batch": 8, "expert_slots": 9, "cache_split": 2, "two_batches": "yes"}
    said = plan_document(report(**asked), plan(**asked))
    assert {name: said[name] for name in asked} == asked
    assert plan(**said).layout.expert_slots == 9.0


def test_redundant_experts_take_memory_as_their_weights():
    """32 on 32 ranks: a ninth expert a rank in each of 58 layers, 3 x 7,168 x 2,048 bytes each."""
    plain, more = report(tp=1, ep=32, batch=8), report(tp=1, ep=32, batch=8, redundant_experts=32)
    each = 58 * 3 * 7168 * 2048
    assert float(more.memory.weights_bytes - plain.memory.weights_bytes) == pytest.approx(each, rel=1e-9)
    assert float(more.parameters) == float(plain.parameters)


def test_degrees_that_do_not_divide_the_experts():
    """72 and 144 chips hold 4 and 2 experts each, 320 one, as DeepSeek's do (arXiv 2412.19437, section 3.4.2)."""
    held = {}
    for chips, copies in ((72, 32), (144, 32), (256, 0), (320, 64)):
        cluster = catalog.cluster("h200", chips, stack="tensorrt-llm-2026")
        found = report(chips, cluster, tp=1, ep=chips, batch=32, redundant_experts=copies)
        assert bool(found.feasible)
        held[chips] = float(found.memory.weights_bytes) / (58 * 3 * 7168 * 2048)
    assert [held[chips] - held[256] for chips in (72, 144, 320)] == pytest.approx([3.0, 1.0, 0.0])


def test_copies_lower_imbalance_and_nothing_else():
    """An imbalance of 1 stays; 1.6 with a copy a rank is 1.3."""
    work = layer_work(SERVICE.model)
    flow = lambda busiest: Flow(SERVICE.model, work, np.float64(32.0), np.float64(2.0), np.float64(busiest))
    with_copies = plan(tp=1, ep=32, batch=8, redundant_experts=32)
    assert float(imbalance(flow(1.6), with_copies)) == pytest.approx(1.3)
    assert float(imbalance(flow(1.0), with_copies)) == 1.0
    assert float(imbalance(flow(1.6), plan(tp=1, ep=32, batch=8))) == 1.6


def busiest(loads: np.ndarray, ranks: int) -> float:
    """Load of the busiest of ranks with as many experts each over the mean, heaviest experts first on the lightest rank."""
    total, left = np.zeros(ranks), np.full(ranks, len(loads) // ranks)
    for load in np.sort(loads)[::-1]:
        rank = np.argmin(np.where(left > 0, total, np.inf))
        total[rank] += load
        left[rank] -= 1
    return total.max() / total.mean()


def copied(loads: np.ndarray, copies: int) -> np.ndarray:
    """Loads of experts of which the heaviest copy is copied again and again."""
    held = np.ones(len(loads))
    for _ in range(copies):
        held[np.argmax(loads / held)] += 1
    return np.repeat(loads / held, held.astype(int))


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5])
@pytest.mark.parametrize(("ranks", "copies"), [(32, 32), (64, 64), (128, 128), (16, 32)])
def test_imbalance_is_on_the_safe_side(spread, ranks, copies):
    """What greedy copies and placement leave is below the form, for experts placed anyhow before: lognormal popularity."""
    rng = np.random.default_rng(3)
    loads = rng.lognormal(0.0, spread, (10, 256))
    anyhow = np.mean([each.reshape(ranks, -1).sum(1).max() / each.sum() * ranks for each in loads])
    placed = np.mean([busiest(copied(each, copies), ranks) for each in loads])
    assert 1.0 <= placed <= 1.0 + (anyhow - 1.0) / (1.0 + copies / ranks)


def test_halves_hide_exchanges_and_cost_efficiency():
    """All exchanges but the share that slows work; kernels of halves take longer, no less than those of the whole."""
    whole, halves = (report(tp=1, ep=32, batch=128, two_batches=two) for two in ("no", "yes"))
    assert float(halves.breakdown.ep_comm_s) < 0.2 * float(whole.breakdown.ep_comm_s)
    kernels = lambda each: float(each.breakdown.compute_s + each.breakdown.memory_bound_s + each.breakdown.host_s)
    assert kernels(halves) > 1.1 * kernels(whole)
    assert float(halves.step_time_s) < float(whole.step_time_s)
    few = [float(report(tp=1, ep=32, batch=2, two_batches=two).step_time_s) for two in ("no", "yes")]
    assert few[1] > few[0]  # weights are read twice for nothing


def test_a_sequence_alone_is_not_halved():
    """Percentiles start from the pass of one sequence: that of a plan without halves."""
    asked = catalog.service("deepseek-v3", precision="fp8")
    lone = [
        float(report(service=asked, tp=1, ep=32, batch=64, two_batches=two).time_per_output_token_p50_s)
        for two in ("no", "yes")
    ]
    assert lone[0] > 0 and lone[1] > 0
    own, _ = steady_pass(asked, catalog.serving_plan(asked, 32, tp=1, ep=32, batch=64, two_batches="yes"))
    assert float(own.layout.two_batches) == 1.0


def test_split_keys_and_values():
    """An eighth of the cache on each of eight ranks of a latent; queries and outputs travel, in closed form but for latency."""
    whole, split = (report(tp=8, ep=32, batch=64, cache_split=ranks) for ranks in (1, 8))
    assert float(split.memory.cache_bytes) == pytest.approx(float(whole.memory.cache_bytes) / 8.0)
    assert float(split.breakdown.tp_comm_s) > float(whole.breakdown.tp_comm_s)
    assert float(split.floor_time_s) < float(whole.floor_time_s)

    def seconds(batch: int) -> float:
        own, passed = steady_pass(SERVICE, plan(tp=8, ep=32, batch=batch, cache_split=8))
        return float(split_s(SERVICE, CLUSTER, own, passed))

    network = CLUSTER.network
    byte_s = 1.0 / float(network.bandwidth_bytes_per_s[0] * network.efficiency[0])
    sent = 128 * ((512 + 64) * 2.0 + 512 * 2.0 + LOG_WEIGHT_BYTES)  # a sequence: all heads of eight ranks
    slope = (seconds(200_000) - seconds(100_000)) / 100_000
    assert slope == pytest.approx((7.0 / 8.0 + 0.5 / 8.0) * sent * byte_s, rel=0.03)


def test_long_contexts_want_split_keys_and_values():
    """A million tokens of Llama's eight heads on 64 ranks of one domain: an eighth of the reading, a shorter step."""
    asked = catalog.service("llama3.1-405b", mode="decode", precision="fp8", input_tokens=1_000_000, output_tokens=1000)
    cluster = catalog.cluster("gb200-nvl72", 64, stack="tensorrt-llm-2026")
    times = [
        float(report(64, cluster, asked, tp=64, batch=2, cache_split=ranks).time_per_output_token_s) for ranks in (1, 8)
    ]
    assert times[1] < 0.85 * times[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tp": 1, "ep": 24, "dp": 32}, "redundant_experts=8 would fill all ranks"),
        ({"ep": 1, "redundant_experts": 8}, "ep > 1"),
        ({"ep": 32, "redundant_experts": 1024}, "two further copies"),
        ({"ep": 32, "redundant_experts": -1}, "at least 0"),
        ({"ep": 32, "expert_slots": 7}, "hold 224 of the 256 experts"),
        ({"ep": 32, "expert_slots": 9, "redundant_experts": 16}, "32 redundant experts, not 16"),
        ({"ep": 32, "redundant_experts": 1.5}, "integer"),
        ({"ep": 32, "redundant_experts": 8}, "256 experts and 8 redundant ones"),
        ({"ep": 1, "batch": 4, "two_batches": "yes"}, "ep=1 does not have"),
        ({"ep": 32, "batch": 1, "two_batches": "yes"}, "batch=2 or more"),
        ({"ep": 32, "batch": 4, "two_batches": "perhaps"}, "yes or no"),
        ({"tp": 8, "cache_split": 3}, "does not divide the 8 ranks"),
        ({"tp": 8, "cache_split": 16}, "does not divide the 8 ranks"),
    ],
)
def test_refusals(settings, words):
    with pytest.raises(UserError, match=words):
        plan(**settings)
