"""Chips at their operating point: what they are sold with is what they hold, and memory that a run does not use costs no clock."""

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.load import record
from hwopt.model.chip.thermal import operating_point
from tests.in_numpy import in_numpy
from tests.slopes import memory_elasticity

CHIPS = [name for name in catalog.names("chips") if "unsupported" not in record("chips", name).text]


@pytest.fixture(scope="module")
def points():
    """Clusters of each chip in the cooling of its own servers, and where they run."""
    clusters = [catalog.cluster(name, 8) for name in CHIPS]
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), *clusters)
    found = in_numpy(lambda c: operating_point(c.chip, c.cooling))(stacked)
    return {name: (clusters[i], jax.tree.map(lambda row: float(row[i]), found)) for i, name in enumerate(CHIPS)}  # noqa: B023


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_holds_its_clock_and_its_power_as_it_is_sold(name, points):
    """Datasheet clock within 2 %, no more than its TDP and nine tenths of it, in the cooling of its own servers."""
    cluster, point = points[name]
    tdp = record("chips", name).si("tdp")
    assert point.clock_ratio == pytest.approx(1.0, abs=0.02)
    assert 0.9 * tdp <= point.power_w <= tdp * (1.0 + 1e-9)
    assert point.junction_k <= float(cluster.cooling.junction_limit_k)
    assert point.clock_margin >= 0.0


@pytest.fixture(scope="module")
def elasticities():
    run = catalog.training_run("llama3.1-8b", global_batch=512)
    plan = catalog.plan(run, 64, dp=64)
    slopes = memory_elasticity([(run, catalog.cluster(name, 64), plan) for name in CHIPS])
    return dict(zip(CHIPS, slopes, strict=True))


@pytest.mark.parametrize("name", CHIPS)
def test_faster_memory_never_slows_a_step(name, elasticities):
    """Elasticity of step time to HBM bandwidth, of every chip in the servers that it is sold in."""
    assert -1.0 <= elasticities[name] <= 1e-12
