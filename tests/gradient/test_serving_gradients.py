"""Gradients of a service: equal to differences off the kinks, finite in float32."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.model.estimate import estimate
from hwopt.model.serving import cache, queueing
from hwopt.trace.cache import cached_trace
from hwopt.trace.derivatives import value_and_gradient
from tests.cases import replace
from tests.compiling import THOROUGH
from tests.serving_cases import serving_cases

OUTPUTS = ("step_time_s", "time_to_first_token_s", "time_per_output_token_s", "tokens_per_s", "memory_per_chip_bytes",
           "power_w", "energy_per_token_j", "cost_per_token_usd", "carbon_per_token_kg", "mfu", "users_per_w")  # fmt: skip
SERVICE = ("input_tokens", "cached_fraction", "output_tokens", "requests_per_s", "load", "draft_fraction", "gemm_precision",
           "weight_bytes", "kv_bytes", "activation_bytes", "routing_imbalance", "model__hidden", "model__layers",
           "model__vocab", "model__experts")  # fmt: skip
CLUSTER = ("chip__peak_flops_per_s", "chip__matmul_efficiency", "chip__clock_ratio", "chip__sram_bytes",
           "chip__hbm_bandwidth_bytes_per_s", "chip__hbm_capacity_bytes", "chip__power_cap_w", "chip__core_power_w",
           "chip__hbm_energy_j_per_byte", "network__size", "network__bandwidth_bytes_per_s", "network__latency_s",
           "cooling__coolant_temperature_k", "facility__electricity_usd_per_j", "prices__chip_base_usd",
           "prices__server_lifetime_s", "reliability__restart_s", "stack__gemm_half_size", "stack__kernel_launch_s",
           "stack__collective_launch_s", "stack__attention_forward_efficiency", "stack__elementwise_passes")  # fmt: skip
PLAN = ("tp", "pp", "dp", "ep", "micro_batch")
STEP = 1e-3


def multiplied(tree, factors: dict):
    """A copy with leaves times (traced) factors, `model__layers` for nested ones."""
    values = {name: getattr(tree, name) for name in tree.__dataclass_fields__}
    for path, factor in factors.items():
        first, _, rest = path.partition("__")
        values[first] = multiplied(values[first], {rest: factor}) if rest else values[first] * factor
    return type(tree)(**values)


def log_outputs(moves, service, cluster, plan):
    """Logarithms of the outputs with each input moved by the exponential of one of `moves`."""
    factors = jnp.exp(moves)
    ends = np.cumsum([0, len(SERVICE), len(CLUSTER), len(PLAN)])
    of_service, of_cluster, of_plan = (
        dict(zip(names, factors[a:b], strict=True))
        for names, a, b in zip((SERVICE, CLUSTER, PLAN), ends, ends[1:], strict=False)
    )
    report = estimate(
        multiplied(service, of_service),
        multiplied(cluster, of_cluster),
        jax.tree.map(lambda part: multiplied(part, of_plan), plan, is_leaf=lambda part: hasattr(part, "micro_batch")),
    )
    return jnp.log(jnp.stack([getattr(report, name) for name in OUTPUTS]))


INPUTS = (*SERVICE, *CLUSTER, *PLAN)
BATCH = 32


def compiled(function, *examples):
    """Without XLA's fusion pass, which takes most of the time and saves little of it."""
    return jax.jit(jax.vmap(function)).lower(*examples).compile(THOROUGH | {"xla_disable_hlo_passes": "fusion"})


@pytest.mark.search
@pytest.mark.parametrize("mode", ["serve", "disaggregated"])
def test_slopes_are_those_of_differences(mode):
    """To 1e-6 |e| + 1e-8, off the kinks; a degree of exactly 1 sits on one. Every fourth machine is told how many come."""
    service, cluster, plan = serving_cases(np.random.default_rng(80), BATCH, mode=mode)
    cases = replace(service, requests_per_s=np.resize([0.0, 0.0, 0.0, 2.0], BATCH)), cluster, plan
    width = len(INPUTS)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], np.float64), cases)
    report = cached_trace(log_outputs, jax.ShapeDtypeStruct((width,), np.float64), *one)
    numbers = np.concatenate([leaf.reshape(BATCH, -1) for leaf in jax.tree.leaves(cases)], axis=1)
    points = np.concatenate([np.zeros((BATCH, width)), numbers], axis=1)
    exact = np.stack([value_and_gradient(report.line, point, range(len(OUTPUTS)))[1][:, :width] for point in points])
    by_step = {}
    for step in (STEP, -STEP, STEP / 2, -STEP / 2):
        moved = np.tile(points, (1 + width, 1, 1))
        moved[np.arange(width), :, np.arange(width)] = step
        y = report(list(moved.reshape(-1, points.shape[1]).T), (1 + width) * BATCH).reshape(1 + width, BATCH, -1)
        with np.errstate(invalid="ignore"):  # an overloaded machine waits forever at both points
            by_step[step] = np.moveaxis(y[:-1] - y[-1], 0, -1)
    central = (by_step[STEP] - by_step[-STEP]) / (2 * STEP)
    half_central = (by_step[STEP / 2] - by_step[-STEP / 2]) / STEP
    bend, half_bend = (by_step[s] + by_step[-s] for s in (STEP, STEP / 2))
    kink = (np.abs(bend - 4 * half_bend) > 2e-11) | (np.abs(central - half_central) > 1e-5 * (1 + np.abs(central)))
    difference = (4 * half_central - central) / 3
    wrong = ~kink & (np.abs(exact - difference) > 1e-6 * np.abs(exact) + 1e-8)
    words = [
        f"case {i}: {OUTPUTS[o]} by {INPUTS[k]}: {exact[i, o, k]:.9g}, not {difference[i, o, k]:.9g}"
        for i, o, k in np.argwhere(wrong)[:8]
    ]
    assert not words, words
    assert kink.mean() < 0.1
    idle = {name for name, slope in zip(INPUTS, np.abs(exact).max((0, 1)), strict=True) if slope == 0}
    assert idle <= ({"load"} if mode == "serve" else set())  # chips for prompts alone have a load


@pytest.mark.search
@pytest.mark.parametrize("mode", ["serve", "disaggregated"])
def test_gradients_are_finite(mode):
    """In float32, of every output by every input."""
    cases = jax.tree.map(np.float32, serving_cases(np.random.default_rng(81), 300, mode=mode))

    def outputs(*case):
        report = estimate(*case)
        return jnp.stack([getattr(report, name) for name in OUTPUTS])

    jax.clear_caches()  # constants traced under the other precision do not fit this one
    slopes = compiled(jax.jacrev(outputs, argnums=(0, 1, 2)), *cases)(*cases)
    wrong = [
        f"{OUTPUTS[o]} by {'.'.join(str(part) for part in path)} in case {i}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(slopes)
        for i, o, *_ in np.argwhere(~np.isfinite(np.asarray(leaf)))[:3]
    ]
    assert not wrong, wrong[:8]


def gained_by_four(acceptance):
    """Tokens that a pass gains with four drafts."""
    service, *_ = serving_cases(np.random.default_rng(82), 1)
    values = {name: getattr(service, name) for name in service.__dataclass_fields__}
    drafted = jnp.asarray(4.0, acceptance.dtype)
    return type(service)(**values | {"acceptance": acceptance, "drafted_tokens": drafted}).tokens_per_pass


def test_drafts_have_a_slope_at_either_end():
    """`1 + a + a^2 + ... + a^g` has slope 1 where no guess is right, `g (g + 1) / 2` where all are."""
    with jax.enable_x64(True):
        for acceptance in (0.0, 0.3, 0.9, 0.999, 1.0):
            expected = sum(i * acceptance ** (i - 1) for i in range(1, 5))
            np.testing.assert_allclose(jax.grad(gained_by_four)(jnp.asarray(acceptance)), expected, rtol=1e-6)


def test_drafts_count_in_float32():
    """Near an acceptance of 1 too, where a quotient of differences would lose its digits."""
    for below in (1e-2, 1e-4, 1e-5, 3e-6, 0.0):
        acceptance = np.float32(1.0 - below)
        expected = sum(float(acceptance) ** i for i in range(5))
        assert float(gained_by_four(jnp.asarray(acceptance))) == pytest.approx(expected, rel=1e-6)


def test_shared_keys_and_values_have_no_kink_where_ranks_are_as_many_as_heads():
    """Ranks that spread a head's keys and values among them hold `k / t` of a token each, on both sides."""
    service, cluster, plan = jax.tree.map(lambda leaf: leaf[0], serving_cases(np.random.default_rng(83), 1))
    grouped = replace(service, model__kv_heads=8.0, model__kv_rank=0.0)
    spread = replace(cluster.stack, cache_sharded=1.0)

    def held(tp):
        ranks_of = eqx.tree_at(lambda p: p.tp, plan, tp)
        return jnp.log(cache.token_bytes(grouped, ranks_of) * cache.sharing(grouped, ranks_of, spread))

    with jax.enable_x64(True):
        for ranks in (4.0, 8.0, 16.0):
            assert float(jax.grad(held)(jnp.asarray(ranks))) == pytest.approx(-1.0 / ranks, rel=1e-12)


def test_an_almost_idle_queue_has_slopes_in_float32():
    """The decay rate of its waiting time is 1 up to rounding, and one replica raises what remains to the power 0."""
    numbers = np.float32([1.7e-3, 0.27, 0.023, 1.0]), np.float32([0.27, 1.37, 1.03, 1.0])

    def mean_s(queue, requests):
        load, arrivals, each_s, replicas = queue
        found = queueing.prompt_queue(queueing.Requests(arrivals, *requests[1:]), load, each_s, replicas)
        return found.mean_s

    assert mean_s(*numbers) == pytest.approx(0.0, abs=1e-6)
    assert all(np.isfinite(slope).all() for slope in jax.grad(mean_s, argnums=(0, 1))(*numbers))
