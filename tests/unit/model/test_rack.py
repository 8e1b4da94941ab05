"""Levels of switches within a domain: what leaves the first passes two more, which cost, draw and take time."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.facility import cost, power, rack


def of_domain(chips: float, **changed):
    cluster = catalog.cluster("gb200", 4608, domain=chips, rack_chips=72, **changed)
    with jax.enable_x64(True):
        levels, watts, dollars = (float(of(cluster)) for of in (rack.domain_levels, power.network_w, cost.network_usd))
        return cluster, levels, watts, dollars, float(rack.spread_out(cluster).latency_s[0])


@pytest.mark.parametrize(("domain", "levels"), [(8.0, 1.0), (72.0, 1.0), (144.0, 2.0), (576.0, 2.75)])
def test_three_switches_where_a_byte_leaves_its_level(domain, levels):
    """1 - 72 / D of the bytes go up, across and down."""
    assert of_domain(domain)[1] == pytest.approx(levels, rel=1e-12)


def test_a_second_level_costs_draws_and_takes_time():
    """NVL576 beside eight times NVL72: links once outside the first level cost and draw 2.75 times as much."""
    small, _, watts, dollars, seconds = of_domain(72.0)
    _, levels, more_watts, more_dollars, longer = of_domain(576.0)
    rate = float(small.network.bandwidth_bytes_per_s[0])
    optics_w = rate * 7 / 8 * float(small.rack.optics_energy_j_per_byte)
    links_w = rate * float(small.network.energy_j_per_byte[0])
    assert more_watts - watts == pytest.approx((levels - 1.0) * links_w + optics_w, rel=1e-9)
    assert more_dollars > dollars + (levels - 1.0) * rate * float(small.prices.network_usd_per_byte_per_s[0])
    assert longer - seconds > 0.9 * 7 / 8 * float(small.network.level_latency_s)


def test_direct_networks_have_no_levels():
    cluster = catalog.cluster("tpu-v5p", 8960)
    assert float(rack.second_level_share(cluster)) == 0.0


def test_the_share_beyond_a_level_rises_with_the_domain():
    cluster = catalog.cluster("h100-sxm", 4096)
    sizes = np.array([8.0, 64.0, 65.0, 128.0, 1024.0])
    at = lambda size: rack.second_level_share(eqx.tree_at(lambda c: c.network.size, cluster, np.array([size, 4096.0])))
    shares = [float(at(size)) for size in sizes]
    assert shares[:2] == [0.0, 0.0] and (np.diff(shares[1:]) > 0).all() and shares[-1] < 1.0
