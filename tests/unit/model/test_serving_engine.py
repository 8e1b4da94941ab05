"""What an engine adds to kernels: starts, gathered tokens, unpacked weights, passes without a graph, a slow host."""

from __future__ import annotations

from dataclasses import replace

import jax
import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog import leaf
from tests.in_numpy import once

SERVICE = catalog.service("qwen3-235b-a22b", precision="fp8", input_tokens=1000, output_tokens=1000)
CLUSTER = catalog.cluster("h200", 8, stack="tensorrt-llm-2026")
LAYERS = 94.0
ESTIMATE = once(hwopt.estimate)


def with_stack(**fields):
    stack = replace(CLUSTER.stack, **{name: leaf(value) for name, value in fields.items()})
    return replace(CLUSTER, stack=stack)


def report(cluster=CLUSTER, service=SERVICE, mode="decode", **settings):
    decodes, prefills = {"decode": (1.0, 0.0), "prefill": (0.0, 1.0), "serve": (1.0, 1.0)}[mode]
    service = replace(service, decodes=leaf(decodes), prefills=leaf(prefills))
    with jax.enable_x64(True):
        return ESTIMATE(
            service, cluster, catalog.serving_plan(service, 8, **({"tp": 1, "ep": 8, "batch": 16} | settings))
        )


def test_experts_start_once_a_layer():
    more = report(with_stack(expert_start_s=4e-5)).breakdown.host_s - report().breakdown.host_s
    assert float(more) == pytest.approx(LAYERS * 4e-5, rel=1e-6)


@pytest.mark.parametrize("copies", [8.0, 1.0])
def test_gathering_all_tokens_against_sending_copies(copies):
    """Among 8 ranks 8 copies are as many bytes as all tokens everywhere; a single copy is an eighth."""
    few = replace(SERVICE, model=replace(SERVICE.model, experts_per_token=leaf(copies)))
    plain = with_stack(dispatch_deduplicated=0.0, dispatch_bytes_share=1.0)
    gathered = with_stack(tokens_gathered=1.0, dispatch_deduplicated=0.0, dispatch_bytes_share=1.0)
    sent, all_ = (report(each, few, batch=4096).breakdown.ep_comm_s for each in (plain, gathered))
    assert float(all_) == pytest.approx(float(sent) * 8.0 / copies, rel=0.3)
    slow = report(with_stack(tokens_gathered=1.0, gathered_launch_s=1e-5), few).breakdown.ep_comm_s
    quick = report(with_stack(tokens_gathered=1.0, gathered_launch_s=0.0), few).breakdown.ep_comm_s
    assert float(slow - quick) == pytest.approx(2.0 * LAYERS * 1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "products", "unpacks"), [("fp4", "bf16", True), ("fp8", "bf16", True), ("fp4", "fp8", False)]
)
def test_weights_are_unpacked_before_16_bit_products_alone(weights, products, unpacks):
    service = catalog.service(
        "gpt-oss-120b", precision=products, weights=weights, input_tokens=1000, output_tokens=1000
    )
    settings = {"service": service, "mode": "prefill", "batch": 8, "ep": 1, "expert_tp": 8}
    whole, half = (report(with_stack(expert_unpacking=x), **settings).breakdown.compute_s for x in (1.0, 0.5))
    assert (float(half) > 1.2 * float(whole)) is unpacks


def test_passes_with_prompts_are_enqueued_and_others_are_graphs():
    """A host of 2 ms a layer holds up all passes, or those with prompts alone."""
    eager, graphs = (with_stack(host_moe_layer_s=2e-3, passes_graphed=x) for x in (0.0, 1.0))
    assert float(report(eager).step_time_s) >= LAYERS * 2e-3
    assert float(report(graphs).step_time_s) == pytest.approx(float(report().step_time_s), rel=1e-12)
    assert float(report(graphs, mode="prefill", batch=1).step_time_s) >= LAYERS * 2e-3


def test_a_slow_host_takes_longer_for_sequences_and_between_passes():
    slow = replace(CLUSTER, chip=replace(CLUSTER.chip, host_slowness=leaf(2.0)))
    more = report(slow).breakdown.overhead_s - report().breakdown.overhead_s
    assert float(more) == pytest.approx(float(CLUSTER.stack.step_overhead_s), rel=1e-6)
    assert float(catalog.chip("gb200").host_slowness) > float(catalog.chip("b200").host_slowness) == 1.0
