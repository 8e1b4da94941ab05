"""Chips at their operating point: what they are sold with is what they hold, and memory that a run does not use costs no clock."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog.load import record
from hwopt.model.thermal import operating_point

CHIPS = [name for name in catalog.names("chips") if "unsupported" not in record("chips", name).text]


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_holds_its_clock_and_its_power_as_it_is_sold(name):
    """Datasheet clock within 2 %, no more than its TDP and nine tenths of it, in the cooling of its own servers."""
    with jax.enable_x64(True):
        cluster = catalog.cluster(name, 8)
        point = operating_point(cluster.chip, cluster.cooling)
        tdp = record("chips", name).si("tdp")
        assert float(point.clock_ratio) == pytest.approx(1.0, abs=0.02)
        assert 0.9 * tdp <= float(point.power_w) <= tdp * (1.0 + 1e-9)
        assert float(point.junction_k) <= float(cluster.cooling.junction_limit_k)
        assert float(point.clock_margin) >= 0.0


def step_s(name, scale):
    run = catalog.training_run("llama3.1-8b", global_batch=512)
    cluster = catalog.cluster(name, 64)
    cluster = eqx.tree_at(lambda c: c.chip.hbm_bandwidth_bytes_per_s, cluster, replace_fn=lambda rate: rate * scale)
    return hwopt.estimate(run, cluster, catalog.plan(run, 64, dp=64)).step_time_s


@pytest.mark.parametrize("name", CHIPS)
def test_faster_memory_never_slows_a_step(name):
    """Elasticity of step time to HBM bandwidth, of every chip in the servers that it is sold in."""
    with jax.enable_x64(True):
        slope = jax.grad(lambda u: jnp.log(step_s(name, jnp.exp(u))))(jnp.asarray(0.0))
        assert -1.0 <= float(slope) <= 1e-12
