"""Ports and switches outside the domain, by the link's radix or a fabric's topology."""

from __future__ import annotations

import pytest

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.errors import UserError
from hwopt.model.facility.bill import bill_lines
from hwopt.model.network import switch_counts
from tests.in_numpy import once

switches_per_chip = once(switch_counts.switches_per_chip)


def test_a_link_of_radix_64_takes_five_ports_of_switches_a_port():
    """Three levels of full bandwidth: 3 ports up to the second, 2 more above, those thinned where the core is oversubscribed."""
    whole, thin = (catalog.cluster("h100-sxm", 16384, oversubscription=over) for over in (1.0, 7.0))
    assert 16384 * switches_per_chip(whole) == pytest.approx(16384 * 5 / 64)
    assert 16384 * switches_per_chip(thin) == pytest.approx(16384 * (3 + 2 / 7) / 64)


@pytest.mark.parametrize("name", ["ndr-rail", "ndr-fat-tree", "dragonfly-400", "oversubscribed-3", "xdr-cpo"])
@pytest.mark.parametrize("chips", [64, 4096, 32768])
def test_a_fabric_has_the_switches_of_its_topology(name, chips):
    cluster = catalog.cluster("h100-sxm", chips, fabric=name)
    counted = float(catalog.topology(name).switches(chips))
    assert chips * switches_per_chip(cluster) == pytest.approx(counted, rel=1e-5)


@pytest.mark.parametrize("name", ["ndr-rail", "dragonfly-400"])
def test_switches_of_a_fabric_cost_what_its_parts_cost(name):
    chips = 4096.0
    parts, switches = catalog.parts(name), catalog.topology(name).switch_ports(chips)
    line = once(bill_lines)(catalog.cluster("h100-sxm", chips, fabric=name))["switches"]
    assert line.count * line.unit_usd == pytest.approx(float(switches * parts.switch_port_usd), rel=1e-5)
    assert line.count * line.unit_w == pytest.approx(float(switches * parts.switch_port_w), rel=1e-5)


def test_a_switch_of_a_link_costs_and_draws_what_one_does():
    """QM9700: 36,000 USD and 747 W, which its shares of the link's price and power are from."""
    line = once(bill_lines)(catalog.cluster("h100-sxm", 16384.0))["switches"]
    assert line.unit_usd == pytest.approx(36_000, rel=0.02) and line.unit_w == pytest.approx(747, rel=0.03)


def test_a_torus_has_none_and_none_fail():
    cluster = catalog.cluster("h100-sxm", 4096, fabric="torus-3d-400")
    assert switches_per_chip(cluster) == 0.0
    assert once(bill_lines)(cluster)["switches"].unit_usd == 0.0


def test_a_share_of_switches_above_one_is_refused(tmp_path):
    good = (data_root() / "links" / "infiniband-ndr.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(
        good.replace(
            '{ value = 0.3, unit = "1", kind = "derived", source = "ib-prices", low = 0.25, high = 0.45,',
            '{ value = 3, unit = "1", kind = "derived", source = "ib-prices", low = 0.25, high = 4,',
        ),
        encoding="utf-8",
    )
    with pytest.raises(UserError, match="share of its price is 3"):
        catalog.cluster("h100-sxm", 64, scale_out=path)
