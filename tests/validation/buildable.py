"""Whether an answer can be bought: from its JSON and the catalogue's files alone, without a line of the model."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "hwopt" / "data"
_SCALE = {
    "1": 1.0, "chips": 1.0, "USD": 1.0, "K": 1.0, "degC": 1.0, "W": 1.0, "kg": 1.0, "kW": 1e3, "W/TB": 1e-12,
    "J/B": 1.0, "TB": 1e12,
    "GB/s": 1e9, "TB/s": 1e12, "Gb/s": 1.25e8, "MiB": 2.0**20, "GiB": 2.0**30, "GB": 1e9, "mm2": 1e-6, "W/cm2": 1e4, "W/mm2": 1e6,
    "pJ/bit": 8e-12,
}  # fmt: skip
_ZERO_CELSIUS_K = 273.15
_CLOSE = 1e-6


def read(kind: str, name: str) -> dict[str, Any]:
    """An entry of the catalogue, as its file says it."""
    return tomllib.loads((DATA / kind / f"{name}.toml").read_text(encoding="utf-8"))


def si(number: dict[str, Any]) -> float:
    """A number of a file in SI; temperatures in degC.

    **Raises:** `KeyError` for a unit that is not in the table: silence would pass whatever it is.
    """
    return number["value"] * _SCALE[number["unit"]]


def whole(value: float) -> bool:
    return abs(value - round(value)) <= _CLOSE * max(1.0, abs(value))


def same(a: float, b: float, within: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=within)


def faults(
    answer: dict[str, Any], chip_name: str, free: str = "none", memory: str = "", site: str = "us-average"
) -> list[str]:
    """What of an answer to a question about training cannot be bought, in words; none where all of it can."""
    parts = (_machine, _chip, _cooling, _plan, _budgets, _bill)
    return [fault for part in parts for fault in part(_Answer(answer, chip_name, free, memory, site))]


class _Answer:
    """An answer beside the files that it stands on."""

    def __init__(self, answer: dict[str, Any], chip_name: str, free: str, memory: str, site: str):
        self.answer, self.free, self.site = answer, free, read("sites", site)
        self.stack = read("memories", memory) if memory else None
        self.chip = read("chips", chip_name)
        system = read("systems", self.chip["system"]) if "system" in self.chip else {}
        self.rack = read("racks", system.get("rack", "orv3"))
        self.up, self.out = read("links", self.chip["scale_up"]), read("links", self.chip["scale_out"])
        self.cooling = read("cooling", self.chip.get("cooling") or "air")
        self.report = answer["report"]
        self.design = {name: each["value"] for name, each in answer["design"].items()}
        self.server = self.chip["server_chips"]["value"]
        self.chips = self.report["servers"] * self.server
        self.per_rack = self.design["chips_per_rack"]
        sold = read("systems", self.chip["system"]).get("used_chips", []) if "system" in self.chip else []
        self.sold_domain = self.chip["scale_up_domain"]["value"]
        if f"{self.per_rack:.0f}" in sold:  # the other chips of rack and domain are idle
            self.sold_domain = self.per_rack
        self.domain = self.design.get("scale_up_domain", self.sold_domain)

    def frees(self, part: str) -> bool:
        return part in self.free or self.free == "all"

    def count(self, part: str) -> float:
        """Of a part, by the bill."""
        return sum(row["count"] for row in self.answer["bill"] if row["part"] == part)


def _said(*checks: tuple[bool, str]) -> list[str]:
    return [words for holds, words in checks if not holds]


def _machine(a: _Answer) -> list[str]:
    report, chips, per_rack = a.report, a.chips, a.per_rack
    weight = si(a.rack["empty_weight"]) + per_rack * si(a.rack["chip_weight"])
    sold = a.chip.get("scale_up_bandwidth", a.up["bandwidth"])
    lanes, nics = report["lanes"] / chips, report["nics"] / report["servers"]
    return _said(
        (whole(report["servers"]), f"{report['servers']} servers"),
        (whole(report["racks"]) and whole(chips / per_rack), f"{report['racks']} racks of {per_rack}"),
        (same(report["racks"] * per_rack, chips), f"{report['racks']} racks of {per_rack} for {chips} chips"),
        (whole(per_rack / a.server), f"{per_rack} chips a rack in servers of {a.server}"),
        (whole(nics) and same(nics, a.design["nics_per_server"]), f"{nics} NICs a server"),
        (whole(lanes), f"{lanes} lanes a chip"),
        (a.frees("links") or same(lanes, si(sold) / si(a.up["lane"])), "other lanes than sold"),
        (whole(a.domain / per_rack) or whole(per_rack / a.domain), f"domains of {a.domain} in racks of {per_rack}"),
        (a.frees("domain") or a.domain == a.sold_domain, f"domains of {a.domain}, not as sold"),
        (weight <= si(a.rack["weight_limit"]), f"racks of {weight} kg without their cables"),
    )


def _chip(a: _Answer) -> list[str]:
    report, chip, sold = a.report, a.chip, a.chip["memory_stacks"]["value"]
    own, each = report["hbm_stacks"] / a.chips, si(chip["memory_capacity"]) / sold
    each = si(a.stack["capacity"]) if a.stack else each
    sites = max(sold, chip.get("memory_sites", {"value": 0})["value"])
    return _said(
        (whole(own) and 1 <= own <= sites, f"{own} stacks on {sites} sites"),
        (a.frees("hbm") or same(own, sold), f"{own} stacks, sold with {sold}"),
        (same(report["memory_capacity_bytes"], each * own), "memory of other stacks than these"),
        (a.frees("clock") or a.design["clock_ratio"] <= 1.0, f"clock {a.design['clock_ratio']} of the one sold"),
        (
            a.frees("hbm") or a.frees("clock") or report["chip_power_w"] <= si(chip["tdp"]) * (1.0 + 1e-4),
            f"chips of {report['chip_power_w']} W above their TDP",
        ),
        (report["clock_margin"] >= -_CLOSE, "a clock that power or heat forbids"),
    )


def _cooling(a: _Answer) -> list[str]:
    report, area = a.report, si(a.chip.get("heat_area", a.chip["die_area"]))
    fed = min(si(a.rack["busbar_limit"]), si(a.cooling["rack_power"]))
    flux, kelvin = report["chip_power_w"] / area, report["junction_temperature_k"]
    limit = si(a.chip.get("junction_limit", a.cooling["junction_temperature"])) + _ZERO_CELSIUS_K
    return _said(
        (report["rack_power_w"] <= fed * (1.0 + _CLOSE), f"racks of {report['rack_power_w']} W where {fed} W are"),
        (flux <= si(a.cooling["heat_flux"]) * (1.0 + _CLOSE), f"a heat flux of {flux} W/m2"),
        (kelvin <= limit * (1.0 + _CLOSE), f"a junction of {kelvin} K"),
    )


def _plan(a: _Answer) -> list[str]:
    plan, margins = a.answer["plan"], a.report["margins"]
    used = plan["tp"] * plan["pp"] * plan["dp"] * plan.get("cp", 1)
    broken = [name for name, margin in margins.items() if margin is not None and margin < -_CLOSE]
    return _said(
        (used == round(a.chips), f"a plan of {used} chips on {a.chips}"),
        (
            a.domain % plan["tp"] == 0 or plan["tp"] % a.domain == 0,
            f"domains of {a.domain} cut by groups of {plan['tp']}",
        ),
        (not broken, f"broken margins {broken}"),
        (a.report["memory_per_chip_bytes"] <= a.report["memory_capacity_bytes"] * (1.0 + _CLOSE), "memory overfull"),
    )


def least_peak_w(a: _Answer) -> float:
    """Power at the meter on the design day: chips, hosts, links to the first switches, storage; fabrics come on top."""
    report, site, cooling = a.report, a.site, a.cooling
    host = si(a.chip.get("host_power", site["host_power"]))
    leaving = max(0.0, 1.0 - a.per_rack / a.domain)  # of the domain's links, on optics
    optics = si(a.up.get("optics_energy", a.rack["optics_energy"]))  # of a torus in its own energy
    up = report["lanes"] / a.chips * si(a.up["lane"]) * (si(a.up["energy"]) + leaving * optics)
    out = report["nics"] / a.chips * si(a.out["lane"]) * si(a.out["energy"])
    inlet = (report["chip_power_w"] + host + up + out) / (1.0 - si(cooling["fan_fraction"]))
    shelf = read("storages", "shared-flash")
    stored = a.count("storage, TB") * 1e12 * si(shelf["power"])
    overhead = si(site["other_fraction"]) * si(cooling["other_share"])
    wet, captured = si(site["design_wet_bulb"]), si(cooling["heat_captured"])
    for share, plant, approach, supply, rise in (
        (captured, cooling["plant_fraction"], cooling["approach"], cooling["coolant_temperature"], cooling["range"]),
        (
            1.0 - captured,
            site["room_plant_fraction"],
            site["room_approach"],
            site["room_temperature"],
            site["room_range"],
        ),
    ):
        chilled = min(max((wet + si(approach) - si(supply)) / si(rise), 0.0), 1.0)  # less than with a spread
        overhead += share * (si(plant) + chilled / si(site["chiller_cop"]))
    pue = (1.0 + overhead) / si(site["distribution_efficiency"])
    return pue * (a.chips * inlet / si(site["supply_efficiency"]) + stored)


def _budgets(a: _Answer) -> list[str]:
    report, peak_w = a.report, least_peak_w(a)
    days = report["run_time_s"] / 86400.0
    found = _said(
        (peak_w <= report["peak_power_w"] * (1.0 + 1e-6), f"{report['peak_power_w']} W said of {peak_w} W at least"),
        (report["peak_power_w"] <= 1.25 * peak_w, f"{report['peak_power_w']} W said of about {peak_w} W"),
    )
    of = {"power_budget_w": peak_w, "capex_budget_usd": report["capex_usd"], "time_budget_s": report["run_time_s"]}
    for each in a.answer["budgets"]:
        drawn = max(each["used"], of.get(each["name"], 0.0))
        found += _said((drawn <= each["limit"] * (1.0 + 1e-6), f"{each['name']} exceeded: {drawn} ({days:.1f} days)"))
    return found


def _bill(a: _Answer) -> list[str]:
    rows, report = a.answer["bill"], a.report
    paid, drawn = (sum(row["count"] * row[key] for row in rows) for key in ("unit_price", "power_w"))
    per_chip = sum(
        row["count"] * row["unit_price"] for row in rows if row["part"] in ("chips", "HBM stacks", "scale-up lanes")
    )
    sold = a.chip.get("price", {"value": 0.0})["value"] * a.chips
    as_sold = sold == 0.0 or a.frees("hbm") or a.frees("links")
    return _said(
        (same(paid, report["capex_usd"]), f"a bill of {paid} for {report['capex_usd']}"),
        (same(drawn, report["peak_power_w"]), f"{drawn} W on the bill for {report['peak_power_w']}"),
        (same(a.count("chips"), a.chips), f"{a.count('chips')} chips on the bill of {a.chips}"),
        (same(a.count("HBM stacks"), report["hbm_stacks"]), f"{a.count('HBM stacks')} stacks on the bill"),
        (same(a.count("racks"), report["racks"]), f"{a.count('racks')} racks on the bill"),
        (same(a.count("hosts"), report["servers"]), f"{a.count('hosts')} hosts on the bill"),
        (same(a.count("NICs and cables"), report["nics"]), f"{a.count('NICs and cables')} NICs on the bill"),
        (not _too_few_switches(a), _too_few_switches(a)),
        (whole(a.count("hot spares") / a.server), f"{a.count('hot spares')} chips stand by in servers of {a.server:g}"),
        (whole(a.count("spares")), f"{a.count('spares')} spares"),
        (as_sold or same(per_chip, sold, 1e-6), f"chips for {per_chip}, sold for {sold}"),
    )


def _too_few_switches(a: _Answer) -> str:
    """A tree of three levels takes five ports of switches for one of a NIC; whole switches of the link's radix have them."""
    switches, ports = a.count("switches"), 5.0 * a.count("NICs and cables")
    if whole(switches) and switches * a.out["radix"]["value"] >= ports * (1.0 - _CLOSE):
        return ""
    return f"{switches} switches of {a.out['radix']['value']} ports for {ports:g}"
