"""Whether an answer can be bought: from its JSON and the catalogue's files alone, without a line of the model."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "hwopt" / "data"
_SCALE = {
    "GB/s": 1e9,
    "TB/s": 1e12,
    "Gb/s": 1.25e8,
    "MiB": 2**20,
    "GiB": 2**30,
    "GB": 1e9,
    "W": 1.0,
    "kW": 1e3,
    "kg": 1.0,
}


def read(kind: str, name: str) -> dict[str, Any]:
    """An entry of the catalogue, as its file says it."""
    return tomllib.loads((DATA / kind / f"{name}.toml").read_text(encoding="utf-8"))


def si(number: dict[str, Any]) -> float:
    """A number of a file in SI."""
    return number["value"] * _SCALE.get(number["unit"], 1.0)


def whole(value: float) -> bool:
    return abs(value - round(value)) <= 1e-6 * max(1.0, abs(value))


def faults(answer: dict[str, Any], chip_name: str, free: str = "none") -> list[str]:
    """What of an answer to a question about training cannot be bought, in words; none where all of it can."""
    chip, rack = read("chips", chip_name), read("racks", "orv3")
    link = read("links", chip["scale_up"])
    report, design = answer["report"], {name: each["value"] for name, each in answer["design"].items()}
    chips, server = report["servers"] * chip["server_chips"]["value"], chip["server_chips"]["value"]
    per_rack, found = design["chips_per_rack"], []

    def check(holds: bool, words: str) -> None:
        if not holds:
            found.append(words)

    check(whole(report["servers"]), f"{report['servers']} servers")
    check(whole(report["racks"]) and whole(chips / per_rack), f"{report['racks']} racks of {per_rack}")
    check(whole(per_rack / server), f"{per_rack} chips a rack in servers of {server}")
    check(whole(report["nics"] / report["servers"]), f"{report['nics']} NICs in {report['servers']} servers")
    check(whole(report["lanes"] / chips), f"{report['lanes'] / chips} lanes a chip")
    domain = design.get("scale_up_domain", chip["scale_up_domain"]["value"])
    check(whole(domain / per_rack) or whole(per_rack / domain), f"domains of {domain} in racks of {per_rack}")
    plan = answer["plan"]
    check(
        plan["tp"] * plan["pp"] * plan["dp"] * plan.get("cp", 1) == round(chips), f"a plan of other than {chips} chips"
    )
    check(domain % plan["tp"] == 0, f"domains of {domain} cut by groups of {plan['tp']}")
    stacks = chip["memory_stacks"]["value"]
    if "hbm" not in free and free != "all":
        check(
            whole(report["hbm_stacks"] / chips) and round(report["hbm_stacks"] / chips) == stacks,
            "other stacks than sold",
        )
        check(
            math.isclose(report["memory_capacity_bytes"], si(chip["memory_capacity"]), rel_tol=1e-9),
            "other memory than sold",
        )
        check(
            design["clock_ratio"] <= 1.0 and report["chip_power_w"] <= si(chip["tdp"]) * 1.0001,
            "above its TDP or clock",
        )
    else:
        sites = max(stacks, chip.get("memory_sites", {"value": 0})["value"])
        own = report["hbm_stacks"] / chips
        check(whole(own) and own <= sites, f"{own} stacks on {sites} sites")
        check(
            math.isclose(report["memory_capacity_bytes"] / own, si(chip["memory_capacity"]) / stacks, rel_tol=1e-9),
            "part stacks",
        )
    if "links" not in free and free != "all" and "scale_up_bandwidth" in chip:
        sold = si(chip["scale_up_bandwidth"]) / si(link["lane"])
        check(math.isclose(report["lanes"] / chips, sold, rel_tol=1e-9), "other lanes than sold")
    busbar = si(rack["busbar_limit"])
    check(report["rack_power_w"] <= busbar * 1.0001, f"racks of {report['rack_power_w']} W on a busbar of {busbar} W")
    check(
        report["clock_margin"] >= -1e-6 and all(x is None or x >= -1e-6 for x in report["margins"].values()),
        "a broken margin",
    )
    for each in answer["budgets"]:
        check(each["used"] <= each["limit"] * (1.0 + 1e-6), f"{each['name']} exceeded")
    paid = sum(row["count"] * row["unit_price"] for row in answer["bill"])
    drawn = sum(row["count"] * row["power_w"] for row in answer["bill"])
    check(
        math.isclose(paid, report["capex_usd"], rel_tol=1e-9, abs_tol=1e-6),
        f"a bill of {paid} for {report['capex_usd']}",
    )
    check(
        math.isclose(drawn, report["peak_power_w"], rel_tol=1e-9), f"{drawn} W on the bill for {report['peak_power_w']}"
    )
    return found
