"""Kernels of engines that serve: all-reduces by direct reads, and tiles of experts."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving.exchanges import direct_reduce_s
from hwopt.model.serving.forward import pass_gemms
from hwopt.model.serving.steady_state import steady_pass
from tests.in_numpy import once

CLUSTER = catalog.cluster("h100-sxm", 16, stack="vllm-2026")
ESTIMATE = once(hwopt.estimate)


@pytest.fixture(autouse=True)
def exactly():
    with jax.enable_x64(True):
        yield


def with_stack(cluster, **numbers):
    leaves = {name: catalog.leaf(value) for name, value in numbers.items()}
    return replace(cluster, stack=replace(cluster.stack, **leaves))


@pytest.mark.parametrize(
    ("ranks", "kilobytes", "measured_us", "within"),
    [(2, 0.5, 3.7, 0.75), (4, 0.5, 4.8, 0.35), (8, 0.5, 5.9, 0.1), (8, 32, 7.8, 0.2)],
)
def test_an_all_reduce_by_direct_reads_takes_what_is_measured(ranks, kilobytes, measured_us, within):
    """H100: sgl-project/sglang, pull request 2904. One start for any number of ranks: too slow on two."""
    found = direct_reduce_s(CLUSTER, jnp.array(1e3 * kilobytes), jnp.array(float(ranks)), jnp.array(1.0))
    assert float(found) == pytest.approx(1e-6 * measured_us, rel=within)


def test_it_is_a_start_and_the_bytes_of_all_others():
    network, start = CLUSTER.network, float(CLUSTER.stack.direct_reduce_s)
    rate = float(network.bandwidth_bytes_per_s[0] * network.efficiency[0])
    of = lambda size, ranks, library=1.0: float(
        direct_reduce_s(CLUSTER, jnp.array(size), jnp.array(ranks), jnp.array(library))
    )
    assert of(1e5, 8.0) == pytest.approx(start + 7e5 / rate)
    assert of(1e6, 1.0) == 0.0  # nothing to add up
    assert of(2e5, 8.0, 3e-5) == 3e-5  # the library moves larger buffers
    assert of(1e3, 16.0, 5e-5) == 5e-5  # not beyond a scale-up domain


def test_it_is_faster_where_few_sequences_decode_only():
    service = catalog.service("llama3.1-70b", mode="decode", precision="fp8")
    without = with_stack(CLUSTER, direct_reduce_s=1.0)
    time = lambda cluster, batch: float(
        ESTIMATE(service, cluster, catalog.serving_plan(service, 16, tp=8, batch=batch)).step_time_s
    )
    assert time(CLUSTER, 1) < 0.97 * time(without, 1)
    assert time(CLUSTER, 4096) == pytest.approx(time(without, 4096), rel=1e-12)


def gemm_seconds(precision, weights, tile, stack="vllm-2026"):
    service = catalog.service("qwen3-235b-a22b", mode="decode", precision=precision, weights=weights)
    cluster = with_stack(catalog.cluster("b200", 8, stack=stack), expert_tile_share=tile)
    plan = catalog.serving_plan(service, 8, tp=8, ep=1, expert_tp=8, batch=128)
    table, times = pass_gemms(service, cluster, *steady_pass(service, plan), hard_maximum)
    inside = np.asarray(table.in_experts) > 0.0
    return np.asarray(times.core_s)[inside].sum(), np.asarray(times.core_s)[~inside].sum()


@pytest.mark.parametrize(
    ("precision", "weights", "shorter"),
    [("bf16", "bf16", True), ("fp4", "fp4", True), ("bf16", "fp4", True), ("fp8", "fp4", True), ("fp8", "fp8", False)],
)
def test_tiles_of_experts_are_shorter_unless_weights_have_8_bits(precision, weights, shorter):
    (usual, rest), (short, same) = (gemm_seconds(precision, weights, tile) for tile in (1.0, 0.3))
    assert same == rest
    assert short < 0.8 * usual if shorter else short == usual


def test_gradients_are_finite():
    service = catalog.service("qwen3-235b-a22b", mode="serve", precision="fp8")
    plan = catalog.serving_plan(service, 16, tp=8, ep=1, expert_tp=8, batch=16)

    def step(numbers):
        cluster = replace(CLUSTER, stack=replace(CLUSTER.stack, **numbers))
        return hwopt.estimate(service, cluster, plan).step_time_s

    at = {
        name: jnp.asarray(getattr(CLUSTER.stack, name))
        for name in ("direct_reduce_s", "expert_tile_share", "cast_start_s")
    }
    slopes = jax.grad(step)(at)
    assert all(np.isfinite(float(each)) for each in slopes.values())
    two_a_layer = 2.0 * float(service.model.layers)
    assert float(slopes["direct_reduce_s"]) == pytest.approx(two_a_layer, rel=0.05)
