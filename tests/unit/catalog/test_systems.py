"""Systems as sold agree with the chips that name them, and with the model's power."""

import equinox as eqx
import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.chip.thermal import operating_point
from hwopt.model.facility.bill import bill_lines
from hwopt.model.facility.power import FULL_LOAD, it_w
from hwopt.model.machine import machine
from hwopt.model.network.route import links_crossed

SYSTEMS = catalog.names("systems")
WITHIN = 0.15
"""Largest relative difference between the stated maximum power of a system and the model's."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_made_of_the_servers_of_its_chip(name):
    system = catalog.record("systems", name)
    chip = catalog.record("chips", str(system.text["chip"]))
    assert system.si("chips") % chip.si("server_chips") == 0.0
    assert system.si("compute_nics") * system.si("nic_rate") / system.si("chips") == pytest.approx(
        chip.si("scale_out_bandwidth")
    )
    usual = catalog.system_of(chip.slug)
    assert usual.slug == name or usual.si("scale_up_domain") != system.si("scale_up_domain")
    if usual.slug == name:
        assert system.si("scale_up_domain") == chip.si("scale_up_domain")
        assert system.text["cooling"] == catalog.default_cooling(chip.slug, "us-average")
    servers = {round(system.si("chips")), *catalog.rack_sizes(system)}
    assert all(each % chip.si("server_chips") == 0.0 for each in servers)
    assert system.si("typical_power") <= system.si("maximum_power")
    assert not {key for key in system.quantities if key.startswith(("memory", "hbm"))}
    if used := catalog.used_chips(system):  # one domain, in one rack
        assert max(used) == system.si("chips") == system.si("scale_up_domain") and system.si("racks") == 1.0
        assert all(each % chip.si("server_chips") == 0.0 for each in used)


@pytest.mark.parametrize("name", SYSTEMS)
def test_host_memory_is_the_dram_of_the_system(name):
    system = catalog.record("systems", name)
    cluster = catalog.cluster(str(system.text["chip"]), 256)
    assert float(cluster.pool.capacity_bytes) == pytest.approx(system.si("dram") / system.si("chips"))
    stated = catalog.cluster(str(system.text["chip"]), 256, pool="cxl-ddr5").pool.capacity_bytes
    assert float(stated) == catalog.record("pools", "cxl-ddr5").si("capacity")
    share = system.si("dram_bandwidth") / system.si("chips")
    assert float(cluster.pool.update_bandwidth_bytes_per_s) <= 0.8 * share * (1 + 1e-9)


@pytest.mark.parametrize("name", SYSTEMS)
def test_parts_cost_what_a_system_costs(name):
    """Chips, links and hosts within the range of the system's price; its NICs may be in that price or not."""
    system = catalog.record("systems", name)
    cluster = catalog.cluster(str(system.text["chip"]), 64 * system.si("chips"), domain=system.si("scale_up_domain"))
    lines = {key: float(line.count * line.unit_usd) for key, line in bill_lines(cluster).items()}
    inside = sum(lines[part] for part in ("chips", "HBM stacks", "scale-up lanes", "domain cabling", "hosts")) / 64
    price = system.quantities["price"]
    assert inside <= price.high and inside + lines["NICs and cables"] / 64 >= price.low


def test_a_host_costs_its_dram_and_flash():
    """384 GB and no flash for eight chips of TPU v5e, where the price list states a host of 2.048 TB and 30.7 TB."""
    listed, tpu = (float(catalog.prices("default", chip).host_usd) for chip in ("h100-sxm", "tpu-v5e"))
    assert listed == 6150.0
    assert tpu == pytest.approx(listed - 13.8 * (256 - 48) - 0.365 * 3837.5)
    assert float(catalog.prices("rented", "tpu-v5e").host_usd) == pytest.approx(tpu)
    assert float(catalog.prices("default", "gb200").host_usd) == 4000.0  # stated by the chip's entry


def test_maximum_power_of_systems_is_the_models():
    ratios = {}
    for name in SYSTEMS:
        system = catalog.record("systems", name)
        chips, domain = system.si("chips"), system.si("scale_up_domain")
        rack = min(catalog.rack_sizes(system))
        cluster = catalog.cluster(str(system.text["chip"]), 4 * chips, domain=domain, rack_chips=rack)
        watts = float(it_w(cluster, operating_point(cluster.chip, cluster.cooling), FULL_LOAD))
        ratios[name] = watts * chips / system.si("maximum_power")
    assert all(abs(ratio - 1.0) <= WITHIN for ratio in ratios.values()), ratios


def test_a_chip_without_a_system_has_a_typical_server_marked_as_an_estimate(tmp_path):
    system = catalog.system_of("a100-80")
    assert system.slug == "typical-a100-80" and "estimate" in str(system.text["note"])
    assert system.si("chips") == 8.0 and system.si("compute_nics") == 8.0
    assert {each.kind for each in system.quantities.values()} == {"estimate"}
    assert catalog.rack_sizes(system) == ()
    assert catalog.sources_of(system)
    own = tmp_path / "own.toml"
    own.write_text('base = "h100-sxm"\nscale_up_domain = 16\nserver_chips = 16\n', encoding="utf-8")
    assert catalog.system_of(own).slug == "typical-own" and catalog.system_of(own).si("chips") == 16.0


def test_racks_are_multiples_of_a_server_or_whole():
    assert catalog.rack_sizes(catalog.record("systems", "hgx-h100")) == (8, 16, 24, 32)
    assert catalog.rack_sizes(catalog.record("systems", "gb200-nvl72")) == (72,)
    assert catalog.rack_sizes(catalog.record("systems", "trn3-ultraserver")) == (72,)
    assert catalog.rack_sizes(catalog.record("systems", "tpu-v7")) == (64,)


@pytest.mark.parametrize(("recovery", "spares"), [("from-storage", 128.0), ("hot-spares", 128.0)])
def test_chips_that_a_job_leaves_idle_are_hot_spares_and_are_paid(recovery, spares):
    run = catalog.training_run("llama3.1-405b")
    plan = catalog.plan(run, 1024, tp=8, pp=8, dp=16)
    half = catalog.cluster("gb200", 1024, recovery=recovery, used_chips=64)
    with jax.enable_x64(True):
        report = hwopt.estimate(run, half, plan)
    assert float(report.racks) == 16.0 and float(report.servers) == 16 * 16 and float(report.hot_spares) == spares
    bill = bill_lines(half, run)
    assert float(bill["chips"].count) == 1024.0 and float(bill["racks"].count) == 16.0
    assert float(bill["optics beyond racks"].count) == 0.0  # the domain has 64 chips as well
    total = sum(float(line.count) * np.array([float(line.unit_usd), float(line.unit_w)]) for line in bill.values())
    assert total == pytest.approx([float(report.capex_usd), float(report.peak_power_w)], rel=1e-5)
    all_used = hwopt.estimate(run, catalog.cluster("gb200", 1152, recovery=recovery), plan)
    assert float(report.peak_power_w) == pytest.approx(float(all_used.peak_power_w), rel=0.02)


def test_more_hot_spares_than_idle_chips_are_added():
    few = catalog.cluster("gb200", 1024, recovery="hot-spares", used_chips=64)
    many = eqx.tree_at(lambda c: c.recovery.repair_s, few, few.recovery.repair_s * 100.0)
    assert float(machine(few, None).powered) == 1152.0 < float(machine(many, None).powered)


@pytest.mark.parametrize(("chip", "settings"), [("gb200", {"used_chips": 60}), ("h100-sxm", {"used_chips": 64}),
                                                ("gb200", {"used_chips": 64, "rack_chips": 36})])  # fmt: skip
def test_chips_that_cannot_be_left_idle_are_refused(chip, settings):
    with pytest.raises(UserError, match="used_chips"):
        catalog.cluster(chip, 1024, **settings)


TORI = [name for name in SYSTEMS if catalog.record("systems", name).words("slices")]


@pytest.mark.parametrize("name", TORI)
def test_slices_consist_of_servers_and_racks(name):
    system = catalog.record("systems", name)
    (rack,) = catalog.rack_sizes(system)
    known = [each.chips for each in catalog.slices(system).values()]
    assert known == sorted(set(known)) and system.si("chips") in known and known[-1] <= system.si("scale_up_domain")
    server = catalog.record("chips", str(system.text["chip"])).si("server_chips")
    assert all(each % server == 0.0 and (each % rack == 0 or rack % each == 0) for each in known)


@pytest.mark.parametrize(
    ("chip", "shape", "share"),
    [("tpu-v6e", "16x16", 1.0), ("tpu-v6e", "8x16", 0.75), ("tpu-v5e", "8x8", 0.5), ("tpu-v5p", "4x4x8", 1.0)],
)
def test_rings_of_a_slice_follow_its_shape(chip, shape, share):
    """Only rings of 16 close on v6e, all on cubes; an all-to-all of the whole slice takes longest side over 4 times a share."""
    sides = [int(each) for each in shape.split("x")]
    chips = int(np.prod(sides))
    cut, whole = catalog.network(chip, torus=catalog.slice_of(chip, shape)), catalog.network(chip, domain=chips)
    assert cut.size[0] == chips and cut.efficiency[0] == pytest.approx(share * whole.efficiency[0])
    assert cut.bandwidth_bytes_per_s[0] == whole.bandwidth_bytes_per_s[0]
    links = float(links_crossed(cut, np.array([chips, 1.0, 1.0]))[0])
    assert links == pytest.approx(max(1.0, len(sides) * max(sides) / 4.0))
    assert float(catalog.cluster(chip, 2 * chips, slice=shape).rack.system_chips) == chips


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"slice": "4x4x6"}, "did you mean"), ({"slice": "4x4x4", "domain": 8}, "remove one of them")],
)
def test_slices_that_are_not_rented_are_refused(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        catalog.cluster("tpu-v5p", 64, **settings)


@pytest.mark.parametrize(
    ("chip", "chips", "shape"),
    [
        ("tpu-v5p", 512, "8x8x8"),
        ("tpu-v5p", 8960, "4x8x8"),
        ("tpu-v6e", 24, "2x4"),
        ("tpu-v6e", 4, None),
        ("b200", 64, None),
    ],
)
def test_the_largest_slices_of_a_number_of_chips(chip, chips, shape):
    assert catalog.largest_slice(chip, chips) == shape


def test_a_chip_stands_in_the_rack_of_its_system():
    """Kyber and Helios draw more than Open Rack v3 carries; a stated rack has priority."""
    own, stated = catalog.cluster("rubin-ultra", 288), catalog.cluster("rubin-ultra", 288, rack="orv3")
    assert float(own.rack.busbar_limit_w) == catalog.record("racks", "kyber").si("busbar_limit")
    assert float(stated.rack.busbar_limit_w) == catalog.record("racks", "orv3").si("busbar_limit")
    for name in ("kyber-nvl144", "helios", "groq-3-lpx"):
        system = catalog.record("systems", name)
        cluster = catalog.cluster(str(system.text["chip"]), 4 * system.si("chips"))
        assert float(cluster.rack.chips) == system.si("chips")
