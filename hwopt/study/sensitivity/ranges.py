"""How well each input is known: the range, the kind and the source that the catalogue states for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwopt import catalog
from hwopt.catalog.schema import Quantity, Record
from hwopt.study.sensitivity.inputs import Input, unit_of
from hwopt.units import to_si

UNSTATED = 0.1
"""Relative change to each side that is shown for inputs without a stated range."""

UNSTATED_K = 5.0
"""The same of temperatures, where percents of the absolute one mean nothing."""

_ROLES = {
    "workload.law": ("law",),
    "cluster.chip": ("chip",),
    "cluster.network": ("chip",),
    "cluster.cooling": ("cooling",),
    "cluster.rack": ("rack", "scale_up"),
    "cluster.facility": ("chip", "site"),
    "cluster.reliability": ("reliability",),
    "cluster.pool": ("pool",),
    "cluster.storage": ("storage", "reliability"),
    "cluster.sites": ("lines",),
    "cluster.prices": ("chip", "prices"),
    "cluster.stack": ("stack",),
    "project.technology": ("technology", "memory", "datapath", "design"),
    "project.process": ("process",),
    "project.base_process": ("base_process",),
    "project": ("prices", "design"),
}
"""Part of the inputs -> the catalogue entries that may state its numbers, the first that does counts."""

_RENAMED = {
    "cluster.chip.peak_flops_per_s": "peak",
    "cluster.chip.hbm_efficiency": "memory_efficiency",
    "cluster.chip.hbm_energy_j_per_byte": "memory_energy",
    "cluster.chip.leakage_power_w": "leakage_fraction",
    "cluster.chip.leakage_per_k": "leakage_growth",
    "cluster.chip.silicon_area_m2": "die_area",
    "cluster.cooling.coolant_temperature_k": "coolant_temperature",
    "cluster.cooling.junction_limit_k": "junction_temperature",
    "cluster.cooling.heat_flux_limit_w_per_m2": "heat_flux",
    "cluster.cooling.rack_limit_w": "rack_power",
    "cluster.cooling.captured_fraction": "heat_captured",
    "cluster.cooling.capital_usd_per_w": "capital_cost",
    "cluster.rack.optics_usd_per_byte_per_s": "optics_price",
    "cluster.reliability.failures_per_chip_s": "failures",
    "cluster.pool.usd_per_byte": "price",
    "cluster.pool.usd_per_byte_per_s": "bandwidth_price",
    "cluster.sites.lease_usd_per_byte": "lease",
    "cluster.sites.fixed_usd": "site_price",
    "cluster.storage.checkpoint_bytes_per_s_per_chip": "storage_bandwidth",
    "cluster.storage.input_bytes_per_s_per_chip": "input_bandwidth",
    "project.technology.hbm_bandwidth_bytes_per_s": "bandwidth",
    "project.technology.hbm_capacity_bytes": "capacity",
    "project.technology.hbm_efficiency": "efficiency",
    "project.technology.hbm_energy_j_per_byte": "energy",
    "project.technology.hbm_phy_m2": "phy_area",
    "project.technology.hbm_controller_transistors": "controller_transistors",
    "project.technology.hbm_edge_m": "edge",
    "project.technology.hbm_stack_m2": "stack_area",
    "project.technology.hbm_standby_w": "standby",
    "project.technology.register_bytes": "registers",
    "project.technology.local_bytes": "local_memory",
    "project.technology.fabric_area_per_compute": "fabric",
    "project.technology.register_transistors_per_byte": "register_transistors",
    "project.technology.local_transistors_per_byte": "local_transistors",
    "project.technology.sram_m2_per_byte": "sram_area",
    "project.technology.scale_up_m2_per_byte_per_s": "scale_up_area",
    "project.technology.scale_out_m2_per_byte_per_s": "scale_out_area",
    "project.technology.scale_up_edge_m_per_byte_per_s": "scale_up_edge",
    "project.technology.scale_out_edge_m_per_byte_per_s": "scale_out_edge",
    "project.technology.fixed_m2": "fixed_area",
    "project.technology.nominal_clock_hz": "clock",
    "project.technology.leakage_per_k": "leakage_growth",
    "project.technology.matrix_energy_j_per_flop": "matrix_energy",
    "project.technology.register_energy_j_per_flop_byte": "register_energy",
    "project.technology.local_energy_j_per_flop_byte": "local_energy",
    "project.volume": "chip_volume",
} | {
    f"project.{maker}.{field}": key
    for maker in ("process", "base_process")
    for field, key in {
        "wafer_usd": "wafer_price",
        "defects_per_m2": "defect_density",
        "sort_usd_per_m2": "sort_cost",
        "test_usd_per_m2": "test_cost",
        "interposer_wafer_usd": "interposer_wafer_price",
        "interposer_defects_per_m2": "interposer_defect_density",
        "substrate_usd_per_m2": "substrate_cost",
        "assembly_usd_per_part": "assembly_cost",
        "hbm_usd_per_byte": "hbm_price",
    }.items()
}
"""Inputs whose key in the catalogue is not their own name without its unit."""

_MEMORY_KEYS = frozenset(key for name, key in _RENAMED.items() if ".technology.hbm_" in name)


@dataclass(frozen=True)
class Range:
    """What the catalogue says of an input: ends in SI, what kind of number it is, and whose."""

    low: float
    high: float
    stated: bool  # by the catalogue; else a convention, to have something to show
    kind: str = ""
    source: str = ""


def records_of(objective: Any) -> dict[str, Record]:
    """Catalogue entries behind a design question, by role; none of a question that names none."""
    if not (hasattr(objective, "chip") and hasattr(objective, "site")):
        return {}
    chip = catalog.record("chips", objective.chip)
    held = {
        "chip": chip,
        "scale_up": catalog.record("links", str(chip.text["scale_up"])),
        "scale_out": catalog.record("links", str(chip.text["scale_out"])),
        "stack": catalog.record("stacks", objective.stack),
        "site": catalog.record("sites", objective.site),
        "cooling": catalog.record(
            "cooling", objective.cooling or catalog.default_cooling(objective.chip, objective.site)
        ),
        "rack": catalog.record("racks", "orv3"),
        "storage": catalog.record("storages", "shared-flash"),
        "reliability": catalog.record("reliability", objective.reliability),
        "prices": catalog.record("prices", objective.prices),
    }
    if hasattr(objective, "law"):
        held["law"] = catalog.record("laws", objective.law)
    if getattr(objective, "fabric", ""):
        held["fabric"] = catalog.record("fabrics", objective.fabric)
        held["scale_out"] = catalog.record("links", str(held["fabric"].text["link"]))
    pool = getattr(objective, "pool", "") or str(chip.text.get("pool", "none"))
    held["pool"] = catalog.record("pools", pool)
    held["lines"] = catalog.record("lines", getattr(objective, "lines", "") or catalog.USUAL_LINES)
    if getattr(objective, "design", ""):
        roles = ("design", "technology", "memory", "datapath", "process", "base_process")
        records = catalog.project_records(objective.design, objective.technology or None, objective.memory or None)
        held |= dict(zip(roles, records, strict=True))
    return held


def range_of(each: Input, records: dict[str, Record]) -> Range:
    """The range of one input; where none is stated, `UNSTATED` to both sides, or `UNSTATED_K`."""
    found = _found(each, records)
    if found is None:
        return _unstated(each)
    record, key, shift = found
    quantity = record.quantities[key]
    kind, source = quantity.kind, record.citation(key)
    if quantity.low is None and quantity.high is None:
        plain = _unstated(each)
        return Range(plain.low, plain.high, False, kind, source)
    low, high = (
        _end(each, quantity, value, shift)
        for value in (
            quantity.value if quantity.low is None else quantity.low,
            quantity.value if quantity.high is None else quantity.high,
        )
    )
    return Range(low, high, True, kind, source)


def _unstated(each: Input) -> Range:
    """What is shown of an input whose range nobody states."""
    if each.is_temperature:
        return Range(each.value - UNSTATED_K, each.value + UNSTATED_K, False)
    return Range(each.value * (1.0 - UNSTATED), each.value * (1.0 + UNSTATED), False)


def _end(each: Input, quantity: Quantity, end: float, shift: float) -> float:
    """One end of a range as the input has it: in proportion, or moved along with it by `shift` for each unit."""
    if shift or quantity.unit == "degC":
        return each.value + (shift or 1.0) * (to_si(end, quantity.unit) - quantity.si)
    return each.value * to_si(end, quantity.unit) / quantity.si


def _found(each: Input, records: dict[str, Record]) -> tuple[Record, str, float] | None:
    """The entry and key that state an input, and how far the input moves with it (0: in proportion)."""
    path, element = each.name.split("[")[0], each.name.rstrip("]").partition("[")[2]
    room = path.rsplit(".", 1)[0]
    if not records:
        return None
    if path == "cluster.prices.chip_base_usd":
        # What memory and links leave of the price of a chip, which the list's factor makes uncertain.
        paid, chip = records["prices"], records["chip"]
        price = chip.si("price", chip.si("peak.bf16") * paid.si("chip_usd_per_bf16_flops"))
        return paid, "price_factor", price
    if room == "cluster.network" or path == "cluster.prices.network_usd_per_byte_per_s":
        return _link(each.field, element, records)
    key = _RENAMED.get(path, "")
    roles = _ROLES.get(room, ())
    if key in _MEMORY_KEYS and room == "project.technology" and each.field.startswith("hbm_"):
        roles = ("memory",)
    for name in (f"{key}.{element}", key, *_plain(each, element, records)):
        for role in roles:
            if role in records and name in records[role].quantities:
                return records[role], name, 0.0
    return None


def _plain(each: Input, element: str, records: dict[str, Record]) -> list[str]:
    """Keys that are an input's own name, with and without its unit."""
    field, unit = each.field, unit_of(each.field)
    bare = field
    while unit and "_" in bare and unit_of(bare):
        bare = bare.rsplit("_", 1)[0].removesuffix("_per")
    family = str(records["chip"].text.get("architecture", ""))
    return [f"{field}.{element}", f"{field}.{family}", f"{field}.default", field, bare]


def _link(field: str, tier: str, records: dict[str, Record]) -> tuple[Record, str, float] | None:
    """The link, or the chip, that states a number of a tier."""
    keys = {
        "network_usd_per_byte_per_s": "price", "efficiency": "efficiency", "latency_s": "latency", "ramp": "ramp",
        "energy_j_per_byte": "energy", "reduction_factor": "reduction_factor", "size": "pod",
        "tree_step": "tree_step", "latency_tail_s": "latency_tail", "bandwidth_spread": "bandwidth_spread",
    }  # fmt: skip
    if field not in keys:
        return None
    key = keys[field]
    if tier == "scale_up" and f"scale_up_{key}" in records["chip"].quantities:
        return records["chip"], f"scale_up_{key}", 0.0
    record = records["scale_up" if tier == "scale_up" else "scale_out"]
    if tier == "core" and f"core_{key}" in record.quantities:
        return record, f"core_{key}", 0.0
    return (record, key, 0.0) if key in record.quantities else None
