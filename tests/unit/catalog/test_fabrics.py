"""Fabrics: published price sheets, and how a fabric appears as two tiers."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.fabrics import UNLIMITED, fabric_tiers, parts, topology
from hwopt.catalog.names import data_root
from hwopt.errors import UserError

NAMES = catalog.names("fabrics")


def without_nic(name):
    return replace(parts(name), nic_usd=np.asarray(0.0))


def test_the_sheet_of_1024_gpus():
    """48 switches, 1.728 M USD of them, 2.62 M USD of cables and optics, 4,248 USD a GPU: two levels of NDR."""
    shape, built, n = topology("ndr-fat-tree"), without_nic("ndr-fat-tree"), jnp.asarray(1024.0)
    assert shape.switches(n) == 48
    assert shape.switch_ports(n) * built.switch_port_usd == pytest.approx(1.728e6, rel=1e-6)
    assert shape.cables(n) * built.optical_link_usd == pytest.approx(2.62e6, rel=0.01)
    assert shape.price_usd(n, built) / n == pytest.approx(4248, rel=0.01)
    assert sum(fabric_tiers("ndr-fat-tree", 1024).usd_per_endpoint) == pytest.approx(4248 + 1364, rel=0.01)


def test_the_sheet_of_32768_gpus():
    """2,560 switches, 6,613 USD a GPU: three levels. No part's price is set by it."""
    shape, built, n = topology("ndr-fat-tree"), without_nic("ndr-fat-tree"), jnp.asarray(32768.0)
    assert shape.switches(n) == 2560
    assert shape.price_usd(n, built) / n == pytest.approx(6613, rel=0.15)
    assert shape.price_usd(n, built) / n == pytest.approx(6613, rel=0.01)  # what it was when this was written


def test_the_sheet_of_512_gpus():
    """One level of eight rails: 8 switches, 675,840 USD of cables."""
    shape, built, n = topology("ndr-rail"), without_nic("ndr-rail"), jnp.asarray(512.0)
    assert (shape.switches(n), shape.worst_hops(n)) == (8, 1)
    assert shape.cables(n) * built.optical_link_usd == pytest.approx(675_840, rel=0.15)


@pytest.mark.parametrize("name", [name for name in NAMES if "torus" not in name and "oversubscribed" not in name])
def test_prices_and_powers_agree_with_the_links(name):
    """The link's entry prices two levels with the NIC; a fabric's parts stay within its range."""
    tiers = fabric_tiers(name, 1024)
    link = catalog.record("links", tiers.link)
    rate = link.si("bandwidth")
    per_rate = tiers.usd_per_endpoint[0] / rate * 1e9
    per_bit = tiers.power_w_per_endpoint[0] / rate / 8e-12
    for key, value in (("price", per_rate), ("energy", per_bit)):
        stated = link.quantities[key]
        assert stated.low is not None and stated.high is not None
        assert stated.low <= value <= stated.high, key


def test_tiers_of_a_fat_tree():
    within, beyond = fabric_tiers("ndr-fat-tree", 2048), fabric_tiers("ndr-fat-tree", 32768)
    assert (within.pod, beyond.pod) == (2048, 1024)  # a third level takes half of the spines' ports
    assert (within.hops, beyond.hops) == ((3, 3), (3, 5))
    assert within.usd_per_endpoint[1] == within.power_w_per_endpoint[1] == 0
    assert beyond.usd_per_endpoint[0] == pytest.approx(within.usd_per_endpoint[0])
    assert beyond.usd_per_endpoint[1] == pytest.approx(2 * 562.5 + 1280, rel=1e-5)
    assert beyond.power_w_per_endpoint == pytest.approx((2 * 17 + 3 * 11.7, 17 + 2 * 11.7), rel=1e-4)
    assert beyond.added_latency_s == pytest.approx((0.9e-6, 1.8e-6))
    assert (beyond.link, beyond.core_bandwidth_ratio, beyond.dimensions, beyond.links) == ("infiniband-ndr", 1, 1, 1)
    assert fabric_tiers("ndr-rail", 16_384).pod == 16_384
    assert fabric_tiers("roce-800-multiplane", 1e5).pod == 131_072
    assert fabric_tiers("xdr-cpo", 1e4).pod == 10_368
    assert fabric_tiers("ndr-fat-tree", 32).hops == (1, 1)


def test_tiers_of_an_oversubscribed_tree_split_at_the_leaf():
    tiers = fabric_tiers("oversubscribed-3", 3072)
    assert (tiers.pod, tiers.hops) == (48, (1, 3))
    assert tiers.core_bandwidth_ratio == pytest.approx(1 / 3)
    assert sum(tiers.usd_per_endpoint) < sum(fabric_tiers("ndr-fat-tree", 2048).usd_per_endpoint)


def test_tiers_of_a_dragonfly():
    tiers = fabric_tiers("dragonfly-200", 37_888)
    assert (tiers.pod, tiers.hops, tiers.core_bandwidth_ratio) == (512, (2, 4), 1)
    assert float(topology("dragonfly-200").largest) == 279_040  # 545 groups of 512
    # NIC, 4 ports, host and 31/32 local cables of copper
    assert tiers.usd_per_endpoint[0] == pytest.approx(700 + 4 * 280 + 120 * (1 + 31 / 32), rel=1e-5)
    assert tiers.usd_per_endpoint[1] == pytest.approx(600 * 17 / 32, rel=1e-4)
    with pytest.raises(UserError, match="connects 279,040 endpoints"):
        fabric_tiers("dragonfly-400", 3e5)


def test_tiers_of_a_torus():
    tiers = fabric_tiers("torus-3d-400", 4096)
    assert (tiers.pod, tiers.core_bandwidth_ratio, tiers.dimensions) == (UNLIMITED, 1, 3)
    assert (tiers.links, tiers.switched, tiers.usd_per_endpoint[1]) == (6, 0, 0)
    assert tiers.hops == pytest.approx((24, 24))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chips", [1, 8, 1000, 20_000])
def test_tiers_are_plain_finite_numbers(name, chips):
    for field in fabric_tiers(name, chips)[1:]:
        for value in field if isinstance(field, tuple) else (field,):
            assert type(value) is float and math.isfinite(value) and value >= 0.0


def test_unknown_names_are_answered():
    for read in (topology, parts, lambda name: fabric_tiers(name, 8)):
        with pytest.raises(UserError, match="did you mean 'ndr-rail'"):
            read("ndr-rial")
    with pytest.raises(UserError, match="chips"):
        fabric_tiers("ndr-rail", 0)


def own(tmp_path, **changed):
    """A file of one's own: the dragonfly with lines changed."""
    lines = (data_root() / "fabrics" / "dragonfly-200.toml").read_text(encoding="utf-8").splitlines()
    for key, value in changed.items():
        lines = [line for line in lines if not line.startswith(f"{key} =")]
        lines.insert(0, f"{key} = {value}")
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(lines))
    return path


ASSUMED = 'unit = "1", kind = "assumption", source = "hwopt-assumption" }'


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"topology": '"dragonfyl"'}, "did you mean 'dragonfly'"),
        ({"hosts": "{ value = 40, " + ASSUMED}, "88 ports of a router are used, but its radix is 64"),
        ({"hosts": "{ value = 0.5, " + ASSUMED}, "'hosts' = 0.5 must be an integer"),
        ({"host_copper": "{ value = 1.5, " + ASSUMED}, "'host_copper' = 1.5 must not exceed 1"),
        ({"link": '"nvlink-4"'}, "'nvlink-4' is not a scale-out link"),
        ({"topology": '"fat tree"', "radix": "{ value = 2, " + ASSUMED}, "more than 2 ports"),
        ({"topology": '"full mesh"'}, "has no 'ports'"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, changed, complaint):
    with pytest.raises(UserError, match=complaint):
        fabric_tiers(own(tmp_path, **changed), 64)


def test_a_good_file_of_ones_own(tmp_path):
    path = own(tmp_path, topology='"full mesh"', ports="{ value = 7, " + ASSUMED)
    assert fabric_tiers(path, 8).links == 7
    assert fabric_tiers(own(tmp_path, topology='"crossbar"'), 64).hops == (1, 1)
