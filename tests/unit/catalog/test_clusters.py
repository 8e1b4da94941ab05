"""Chips, networks, buildings and prices from entries: parts add up, options act, nonsense is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.chips import rated_junction_k
from hwopt.catalog.facilities import own_cooling
from hwopt.catalog.fields import ARCHITECTURES
from hwopt.catalog.load import data_root
from hwopt.errors import UserError
from hwopt.hardware.chip import LEAKAGE_REFERENCE_K
from hwopt.model.chip.thermal import full_load_w, operating_point
from hwopt.model.facility import bill, cost
from hwopt.model.facility.power import FULL_LOAD, it_w, pue
from hwopt.types import PRECISIONS
from tests.rotation import rotated

CHIPS = catalog.names("chips")


@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_becomes_a_cluster(name):
    cluster = catalog.cluster(name, 256)
    for part in jax.tree.leaves(cluster):
        assert isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim <= 1
        assert np.isfinite(part).all() and (part >= 0).all()
    held, chip, network = catalog.record("chips", name), cluster.chip, cluster.network
    assert held.text["architecture"] in ARCHITECTURES
    rated_k = rated_junction_k(own_cooling(name), held.si("tdp"), float(chip.heat_area_m2))
    assert rated_k >= LEAKAGE_REFERENCE_K
    assert full_load_w(chip, chip.clock_ratio, rated_k) == pytest.approx(held.si("tdp"), rel=1e-6)
    cool = chip.standby_power_w + chip.leakage_power_w * np.exp(-35.0 * chip.leakage_per_k)
    assert cool == pytest.approx(held.si("idle_fraction") * held.si("tdp"), rel=1e-9)
    assert (chip.matmul_efficiency > 0).all() and (chip.matmul_efficiency <= 1).all()
    assert 0 < chip.hbm_efficiency <= 1 and 0 < chip.threshold_voltage_fraction < 1
    assert (network.efficiency > 0).all() and (network.efficiency <= 1).all()
    assert (np.diff(network.size) >= 0).all() and (np.diff(network.latency_s) >= 0).all()


@pytest.mark.parametrize("name", CHIPS)
def test_parts_add_up_to_the_price(name):
    held, cluster = catalog.record("chips", name), catalog.cluster(name, 8)
    chip, prices = cluster.chip, cluster.prices
    memory = (
        chip.hbm_capacity_bytes * prices.hbm_usd_per_byte
        + chip.hbm_bandwidth_bytes_per_s * prices.hbm_usd_per_byte_per_s
    )
    links = cluster.network.bandwidth_bytes_per_s[0] * prices.network_usd_per_byte_per_s[0]
    assert prices.chip_base_usd + memory + links == pytest.approx(held.si("price"), rel=1e-9)
    assert prices.chip_base_usd >= 0.19 * held.si("price")


@pytest.mark.parametrize("name", ["h100-sxm", "b200", "mi300x", "tpu-v5p"])
@pytest.mark.parametrize("prices", ["default", "at-cost", "rented"])
def test_dearer_memory_makes_chips_and_clusters_dearer_by_its_bytes(name, prices, tmp_path):
    """The base was once the list price less memory at the same list's price, so that dearer memory changed nothing."""
    usual = catalog.record("prices", prices)
    text = (data_root() / "prices" / f"{usual.slug}.toml").read_text(encoding="utf-8")
    old = usual.quantities["hbm_usd_per_byte"].value
    dear = tmp_path / "dear.toml"
    dear.write_text(
        text.replace(f"\nhbm_usd_per_byte = {{ value = {old:g}", f"\nhbm_usd_per_byte = {{ value = {1.5 * old:g}")
    )
    before, after = (catalog.cluster(name, 512, prices=each) for each in (prices, str(dear)))
    more = after.prices.hbm_usd_per_byte - before.prices.hbm_usd_per_byte
    assert more == pytest.approx(0.5 * before.prices.hbm_usd_per_byte)
    assert after.prices.chip_base_usd == before.prices.chip_base_usd
    stacks = before.chip.hbm_capacity_bytes * more
    assert cost.chip_usd(after) - cost.chip_usd(before) == pytest.approx(stacks, rel=1e-5)
    built = [cost.capital(each, np.float64(1e6), np.float64(512.0)).equipment for each in (before, after)]
    bought = 512 * (1.0 + before.prices.spares_fraction)
    assert built[1] - built[0] == pytest.approx(bought * stacks, rel=1e-4)
    if name == "h100-sxm" and prices == "default":
        assert stacks == pytest.approx(30.0 * float(before.chip.hbm_capacity_bytes) * 1e-9)


def is_torus(chip: str) -> bool:
    """Whether a chip's links are a torus of stated axes."""
    return "dimensions" in catalog.record("links", str(catalog.record("chips", chip).text["scale_up"])).quantities


TORI = [name for name in CHIPS if is_torus(name) and not name.startswith("wse")]


@pytest.mark.parametrize("name", [*rotated(TORI, 3), "h100-sxm"])
def test_a_torus_pays_for_a_torus(name):
    """Its links, with the optics and optical switches that their price holds, however many chips it joins; no switched domain's
    optics and backplane: 15,148 $ of a TPU v5p of 3,694 $ once were."""
    link = catalog.record("links", catalog.record("chips", name).text["scale_up"])
    small, large = (catalog.cluster(name, 2048, domain=domain) for domain in (8, 512))
    network = [float(cost.network_usd(each)) for each in (small, large)]
    lines = [bill.bill_lines(each) for each in (small, large)]
    beyond = [
        float(sum(each[part].count * each[part].unit_usd for part in ("optics beyond racks", "domain cabling")))
        for each in lines
    ]
    drawn = [float(each["optics beyond racks"].count * each["optics beyond racks"].unit_w) for each in lines]
    if name == "h100-sxm":
        assert beyond[1] > beyond[0] > 0 and drawn[1] > drawn[0] and network[1] > network[0]
        return
    assert beyond == [0.0, 0.0] and drawn == [0.0, 0.0]
    assert network[1] == pytest.approx(network[0])
    links = small.network.bandwidth_bytes_per_s[0] * small.prices.network_usd_per_byte_per_s[0]
    assert 0 < links <= network[0] and links <= link.si("price") * small.network.bandwidth_bytes_per_s[0] * (1 + 1e-6)


@pytest.mark.parametrize("name", CHIPS)
def test_formats_without_units_hold_the_peak_they_run_at(name):
    held = catalog.record("chips", name)
    peak = dict(zip(PRECISIONS, catalog.chip(name).peak_flops_per_s, strict=True))
    native = held.words("native")
    for precision in ("fp8", "fp4", "int8"):
        if precision not in native:
            assert peak[precision] in {peak["bf16"], peak["fp8"]}
            with pytest.raises(UserError, match=f"does not compute in {precision}"):
                catalog.check_precision(name, precision)
    for precision in native:
        assert catalog.check_precision(name, precision) == precision


def test_precisions_a_chip_has():
    assert catalog.check_precision("v100", "fp16") == "fp16"
    assert catalog.check_precision("h100-sxm", "FP16") == "fp16"
    assert catalog.check_precision("b200", "nvfp4") == "nvfp4"
    with pytest.raises(UserError, match="does not compute in bf16"):
        catalog.check_precision("v100", "bf16")
    with pytest.raises(UserError, match="does not compute in fp8"):
        catalog.check_precision("a100-80", "fp8")
    with pytest.raises(UserError, match="unknown precision 'fp9'"):
        catalog.check_precision("h100-sxm", "fp9")


def test_published_numbers_arrive_in_si():
    chip, network = catalog.chip("H100-SXM-80GB"), catalog.network("h100-sxm")
    assert chip.peak_flops_per_s[2] == 989e12 and chip.hbm_bandwidth_bytes_per_s == 3.35e12
    assert chip.hbm_capacity_bytes == 81_559 * 2**20 and chip.sram_bytes == 50 * 2**20
    assert network.size[0] == 8 and network.bandwidth_bytes_per_s.tolist() == [450e9, 50e9, 50e9]
    assert catalog.network("gb200").size[0] == 72
    torchtitan = catalog.chip("H100-96GB-HBM2e-500W")
    assert (torchtitan.hbm_capacity_bytes, torchtitan.hbm_bandwidth_bytes_per_s) == (95 * 2**30, 2.4e12)


def test_halves_are_halves():
    for whole, half in (("mi250x", "mi250x-gcd"), ("trainium1", "trainium1-core")):
        a, b = catalog.chip(whole), catalog.chip(half)
        for field in ("peak_flops_per_s", "hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes", "core_power_w"):
            np.testing.assert_allclose(getattr(b, field), getattr(a, field) / 2, rtol=1e-12)


def test_network_options_act():
    network = catalog.network("h100-sxm", domain=72, scale_out="infiniband-xdr", pod=1024, oversubscription=7)
    assert network.size.tolist()[:2] == [72, 1024]
    assert network.bandwidth_bytes_per_s.tolist() == pytest.approx([450e9, 100e9, 100e9 / 7])
    assert catalog.network("h100-sxm", scale_out_bytes_per_s=12.5e9).bandwidth_bytes_per_s[1] == 12.5e9
    assert catalog.network("h100-sxm", scale_up="nvlink-5").bandwidth_bytes_per_s[0] == 900e9
    assert catalog.network("h800").bandwidth_bytes_per_s[0] == 200e9
    assert catalog.network("h100-sxm").reduction_factor.tolist() == [1, 1, 1]
    assert (catalog.network("h100-sxm", in_network_reduction=True).reduction_factor < 1).all()


@pytest.mark.parametrize(("stack", "asked", "reduces"), [
    ("nemo-2025", None, False), ("tensorrt-llm-2026", None, True), ("tensorrt-llm-2026", False, False), ("nemo-2025", True, True),
])  # fmt: skip
def test_switches_reduce_where_the_stack_lets_them(stack, asked, reduces):
    cluster = catalog.cluster("h100-sxm", 8, stack=stack, in_network_reduction=asked)
    assert bool(cluster.network.reduction_factor[0] < 1) == reduces
    assert catalog.network("h100-sxm", domain=9000).size[1] == 9000


def test_stacks_know_chip_families():
    flash2, flash3 = catalog.stack("torch-fsdp-2023", "hopper"), catalog.stack("nemo-2025", "hopper")
    assert flash2.attention_forward_efficiency < flash3.attention_forward_efficiency
    assert (
        catalog.stack("nemo-2025").attention_forward_efficiency
        == catalog.stack("nemo-2025", "lpu").attention_forward_efficiency
    )
    ideal = catalog.stack("ideal", "hopper")
    assert (
        ideal.attention_forward_efficiency == ideal.tp_overlap == 1 and ideal.host_layer_s == ideal.gemm_half_size == 0
    )
    assert catalog.default_stack("h100-sxm") == "nemo-2024" and catalog.default_stack("mi300x") == "rocm-primus-2025"
    assert catalog.default_stack("tpu-v5p") == "jax-maxtext-tpu"
    for name in catalog.names("stacks"):
        for architecture in ARCHITECTURES:
            held = catalog.stack(name, architecture)
            assert held.attention_backward_efficiency <= held.attention_forward_efficiency <= 1


def test_sites_and_price_lists_act():
    norway, average = catalog.facility("norway", "h100-sxm"), catalog.facility("us-average", "h100-sxm")
    assert norway.carbon_kg_per_j < average.carbon_kg_per_j and norway.wet_bulb_k < average.wet_bulb_k
    assert average.host_power_w == 175.0 and catalog.facility("us-average", "gb200").host_power_w == 185.0
    assert average.electricity_usd_per_j * 3.6e6 == pytest.approx(0.0826)
    assert catalog.prices("at-cost", "h100-sxm").chip_base_usd < catalog.prices("default", "h100-sxm").chip_base_usd
    dearer = catalog.prices("default", "h100-sxm", scale_out="infiniband-xdr").network_usd_per_byte_per_s
    assert dearer[1] != catalog.prices("default", "h100-sxm").network_usd_per_byte_per_s[1]


@pytest.mark.parametrize("name", catalog.names("sites"))
def test_climate_and_plant_make_the_published_pue(name):
    """Built up from wet bulb, plant, chillers and conversion, a site's PUE is the one published for it, to 0.02."""
    held = catalog.record("sites", name)
    built = pue(catalog.facility(name, "h100-sxm"), catalog.cooling(str(held.text["cooling"])))
    assert float(built) == pytest.approx(held.si("pue"), abs=0.02)


@pytest.mark.parametrize("name", rotated(CHIPS, 4))
def test_racks_hold_what_they_can_power_and_carry(name):
    """Provisioned at the datasheet's power, a default rack carries its chips at full load."""
    cluster = catalog.cluster(name, 256)
    rack, limit = cluster.rack, min(float(cluster.cooling.rack_limit_w), float(cluster.rack.busbar_limit_w))
    used = float(rack.chips * it_w(cluster, operating_point(cluster.chip, cluster.cooling), FULL_LOAD))
    assert rack.chips >= 1 and float(rack.chips).is_integer()
    assert used <= limit * (1 + 1e-6)
    assert rack.empty_weight_kg + rack.chips * rack.chip_weight_kg <= rack.weight_limit_kg


def test_a_coolant_must_be_cooler_than_the_junction(tmp_path):
    text = (data_root() / "cooling" / "air.toml").read_text(encoding="utf-8")
    path = tmp_path / "lava.toml"
    path.write_text(
        text.replace("coolant_temperature = { value = 27", "coolant_temperature = { value = 90").replace(
            "low = 18, high = 27", "low = 18, high = 97"
        )
    )
    with pytest.raises(UserError, match="cannot hold a junction"):
        catalog.cooling(path)


@pytest.mark.parametrize("chips", [0, -8, 0.5, float("nan"), float("inf"), "many", None])
def test_a_number_of_chips_must_be_one(chips):
    with pytest.raises(UserError, match="chips"):
        catalog.cluster("h100-sxm", chips)


@pytest.mark.parametrize(
    "wrong",
    [
        {"domain": 0}, {"domain": float("nan")}, {"scale_out": "nvlink-4"}, {"scale_out": "ndrr"}, {"scale_up": "nvlink-9"},
        {"scale_out_bytes_per_s": -1}, {"pod": 0}, {"oversubscription": 0}, {"stack": "megatron"}, {"site": "mars"},
        {"prices": "free"}, {"cooling": "snow"}, {"rack": "tower"}, {"rack_chips": 0}, {"reliability": "perfect"},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_in_one_line(wrong):
    with pytest.raises(UserError) as caught:
        catalog.cluster("h100-sxm", 8, **wrong)
    assert "\n" not in str(caught.value)


def test_a_chip_of_ones_own(tmp_path):
    text = (data_root() / "chips" / "h100-sxm.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("value = 3.35, unit", "value = 6.7, unit"))
    assert catalog.chip(path).hbm_bandwidth_bytes_per_s == 6.7e12
    assert catalog.cluster(str(path), 64).chips == 64
    path.write_text(text.replace("value = 700, unit", "value = 100, unit"))
    with pytest.raises(UserError, match="leaves no power for computation"):
        catalog.chip(path)
