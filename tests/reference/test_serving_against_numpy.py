"""The serving model equals the plain-Python one, in every leaf."""

from __future__ import annotations

import dataclasses
from collections import Counter

import jax
import numpy as np
import pytest

from hwopt.model.estimate import estimate
from hwopt.plan import ServingLayout
from hwopt.solver.jit_options import quick_jit
from tests.cases import KINDS, count, replace, stack_cases, take
from tests.in_numpy import in_numpy
from tests.reference.plain.inputs import fields
from tests.reference.plain.serving import estimate as plain_estimate
from tests.reference.test_against_numpy import a_few_of_each, assert_same, leaves
from tests.rotation import sample
from tests.serving_cases import MODES, serving_case, serving_cases

CASES = 80
COMPARED = 24
"""Of them with the plain model, which takes 3 ms a row: others each turn."""


def in_float64(cases) -> dict[str, np.ndarray]:
    return leaves(in_numpy(estimate)(*cases))


def reference(cases) -> dict[str, np.ndarray]:
    rows = [plain_estimate(*map(fields, take(cases, i))) for i in range(count(cases))]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def assert_equal(cases) -> dict[str, np.ndarray]:
    """Compare some of the cases; the leaves of all of them."""
    actual, some = in_float64(cases), sample(count(cases), COMPARED)
    assert_same({name: values[some] for name, values in actual.items()}, reference(take(cases, some)))
    return actual


def drawn(kind, mode):
    """The cases of a kind of network and a mode: the same for every test that asks."""
    seed = 100 + 10 * MODES.index(mode) + KINDS.index(kind)
    return serving_cases(np.random.default_rng(seed), CASES, kind, mode, headroom=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_reference(kind, mode):
    assert_equal(drawn(kind, mode))


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_reference_where_requests_are_given(mode):
    """From a thousandth of what the machines can answer to ten times as much."""
    rng = np.random.default_rng(160)
    service, cluster, plan = cases = serving_cases(rng, CASES, mode=mode)
    share = 10.0 ** rng.uniform(-3, 1, CASES)
    cases = replace(service, requests_per_s=share * in_float64(cases)["requests_per_s"]), cluster, plan
    actual = assert_equal(cases)
    assert not actual["feasible"][share > 1].any()


@pytest.mark.parametrize("mode", MODES[:2])
def test_equals_the_reference_with_windows(mode):
    """Windows that the cached tokens fill, that new ones fill, and that stay open."""
    rng = np.random.default_rng(180)
    service, cluster, plan = serving_cases(rng, CASES, mode=mode)
    window, cached = service.input_tokens * rng.uniform(0, 1.2, CASES), service.input_tokens - service.new_tokens
    service = replace(service, model__window_tokens=window, model__local_layers_fraction=0.7)
    cases = service, cluster, plan
    assert_equal(cases)
    for some in (window < cached, (cached < window) & (window < service.input_tokens), window > service.input_tokens):
        assert some.sum() > CASES // 10


def spread(plan, rng):
    """The same plan with weights spread over replicas, over all of them or over some."""
    groups = np.where(rng.uniform(size=CASES) < 0.5, 1.0, np.maximum(plan.dp ** rng.uniform(0, 1, CASES), 1.0))
    return replace(plan, weights_sharded=1.0, shard_groups=groups)


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_reference_where_replicas_share_weights(mode):
    rng = np.random.default_rng(170)
    service, cluster, plan = serving_cases(rng, CASES, mode=mode)
    if mode == "disaggregated":
        plan = type(plan)(prefill=spread(plan.prefill, rng), decode=spread(plan.decode, rng))
    else:
        plan = spread(plan, rng)
    cases = service, cluster, plan
    actual = assert_equal(cases)
    assert (actual["breakdown.dp_comm_s"] > 0).sum() > CASES // 3


def laid_out(plan, w, rng):
    """The same plan with experts held twice, in halves and with keys and values split by token, each for some."""
    some = lambda share: rng.uniform(size=CASES) < share
    copies = np.where(some(0.7) & (plan.ep > 1), np.round(rng.uniform(0, 1, CASES) * w.experts), 0.0)
    ranks = np.where(w.kv_rank > 0, plan.tp, np.maximum(plan.tp / w.kv_heads, 1.0)) ** rng.choice(
        [0.0, 0.5, 1.0], CASES
    )
    two = (some(0.5) & (plan.ep > 1)).astype(float)
    layout = ServingLayout(expert_slots=(w.experts + copies) / plan.ep, two_batches=two, cache_split=ranks)
    return dataclasses.replace(plan, layout=layout)


@pytest.mark.parametrize("mode", ("serve", "prefill", "disaggregated"))
def test_equals_the_reference_with_layouts(mode):
    """Of two groups the one that generates answers alone."""
    rng = np.random.default_rng(190)
    service, cluster, plan = serving_cases(rng, CASES, mode=mode)
    own = laid_out(plan.decode if mode == "disaggregated" else plan, service.model, rng)
    plan = type(plan)(prefill=plan.prefill, decode=own) if mode == "disaggregated" else own
    cases = service, cluster, plan
    assert_equal(cases)
    for some in (
        own.layout.expert_slots * own.ep > 1.01 * service.model.experts,
        own.layout.two_batches > 0,
        own.layout.cache_split > 1,
    ):
        assert some.sum() >= CASES // 20


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_reference_on_one_chip(mode):
    service, cluster, plan = serving_cases(np.random.default_rng(140), CASES, mode=mode)
    ones = dict.fromkeys(("tp", "pp", "dp", "ep", "expert_tp", "fullest_stage", "last_stage"), 1.0)
    if mode == "disaggregated":
        plan, chips = type(plan)(prefill=replace(plan.prefill, **ones), decode=replace(plan.decode, **ones)), 2.0
    else:
        plan, chips = replace(plan, **ones), 1.0
    cases = service, replace(cluster, chips=chips, sites__count=1.0), plan
    assert_equal(cases)


def test_every_part_is_compared():
    """What few services and plans have occurs among the cases above, where it can show."""
    found = Counter()
    for kind in KINDS:
        occurs = occurring(*drawn(kind, MODES[0]))
        found.update({name: int(rows.sum()) for name, rows in occurs.items()})
        cases = take(drawn(kind, MODES[0]), a_few_of_each(occurs, 1))
        assert_same(in_float64(cases), reference(cases))
    cases = drawn(KINDS[2], MODES[0])
    actual = in_float64(cases)
    found["no memory"], found["room"] = (actual["margins.memory"] < 0).sum(), (actual["margins.memory"] > 0).sum()
    for part in ("pp_imbalance_s", "pp_comm_s", "ep_comm_s", "tp_comm_s"):
        found[part] = (actual[f"breakdown.{part}"] > 0).sum()
    assert not {name: count for name, count in found.items() if count < 5}


def occurring(service, cluster, plan):
    """Which of the cases have what few have."""
    w = service.model
    return {
        "narrow weights": service.weight_bytes < 1,
        "drafts": (service.drafted_tokens > 0) & (service.acceptance > 0) & (service.acceptance < 1),
        "all accepted": (service.drafted_tokens > 0) & (service.acceptance == 1),
        "none accepted": (service.drafted_tokens > 0) & (service.acceptance == 0),
        "windows that close": (w.local_layers_fraction > 0) & (w.window_tokens < service.input_tokens),
        "short answers": service.output_tokens < 2,
        "short prompts": service.new_tokens < 100,
        "copies of heads": (plan.tp > w.kv_heads) & (cluster.stack.cache_sharded == 0),
        "shared heads": (plan.tp > w.kv_heads) & (cluster.stack.cache_sharded == 1),
        "heads read again": (w.heads > w.kv_heads) & (cluster.stack.cache_rereads > 0),
        "parallel layers": (w.parallel_layers == 1) & (w.moe_layers < w.layers) & (plan.tp > 1),
        "spread experts": plan.ep > 1,
        "split and spread experts": (plan.ep > 1) & (plan.expert_tp > 1),
        "shared and spread experts": (plan.ep > 1) & (plan.tp > 1) & (w.shared_experts > 0),
        "split experts": (plan.ep == 1) & (plan.tp > 1),
        "all experts": w.experts_per_token == w.experts,
        "stages": (plan.pp > 1) & (plan.tp > 1),
        "experts beyond a replica": plan.ep * plan.expert_tp > plan.tp,
        "few tokens an expert": plan.micro_batch * w.experts_per_token < w.experts,
        "cached prompts": service.cached_fraction > 0,
        "stored scores": cluster.stack.attention_scores_stored > 0,
    }


def test_two_groups_wait_for_either_and_for_links():
    """The prefill, the decode and the links each hold back some of the pairs."""
    service, cluster, plan = serving_cases(np.random.default_rng(150), 400, mode="disaggregated")
    actual = in_float64((service, cluster, plan))
    gain = sum(service.acceptance**i * (i <= service.drafted_tokens) for i in range(8))
    decoded = plan.decode.micro_batch * plan.decode.pp * plan.decode.dp * gain / actual["step_time_s"]
    without_first = np.maximum(service.output_tokens - 1, 1)
    by_decode = np.isclose(actual["requests_per_s"] * without_first, decoded)
    assert 20 < by_decode.sum() < 380


@pytest.mark.search
def test_eager_equals_jitted_equals_mapped():
    cases = [serving_case(np.random.default_rng(seed), kind) for seed, kind in enumerate(KINDS)]
    with jax.enable_x64(True):
        together = leaves(quick_jit(jax.vmap(lambda *case: estimate(*case)))(*stack_cases(cases)))
        jitted = jax.jit(estimate)
        for i, case in enumerate(cases):
            one = {name: values[i] for name, values in together.items()}
            assert_same(leaves(jitted(*case)), one, rel=1e-12)
