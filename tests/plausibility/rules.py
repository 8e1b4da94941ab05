"""Rules that an answer must satisfy to be bought and run, written from the catalog's files and the answer's JSON alone.

Nothing here imports hwopt: a constraint that the model forgot must not be forgotten here by the same mistake.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "hwopt" / "data"

UNITS = {"TB": 1e12, "GB": 1e9, "TB/s": 1e12, "GB/s": 1e9, "Gb/s": 1e9 / 8}
SAME = 1.001
"""Ratio up to which two computed numbers count as equal."""

MOST_OF_DRAM, MOST_PINNED, LEAST_FULL, LEAST_GOODPUT, LEAST_CLOCK = 0.8, 0.9, 0.25, 0.7, 0.9
"""Share of a host's DRAM bandwidth, share of its DRAM, share of HBM below which nothing is offloaded, goodput below which
another recovery is due, and clock below which something must limit it."""


def entry(kind: str, name: str) -> dict[str, Any]:
    """Return a file of the catalog."""
    return tomllib.loads((DATA / kind / f"{name}.toml").read_text())


def si(record: dict[str, Any], key: str, default: float = 0.0) -> float:
    """Return a number of a catalog file in SI units."""
    found = record.get(key)
    return default if found is None else found["value"] * UNITS.get(found["unit"], 1.0)


@dataclass(frozen=True)
class Case:
    """An answer with the catalog files of its machine."""

    answer: dict[str, Any]
    chip: dict[str, Any]
    system: dict[str, Any]
    stack: dict[str, Any]

    @property
    def report(self) -> dict[str, Any]:
        """The report of the answer: a part of it, or the answer itself."""
        return self.answer.get("report") or self.answer

    @property
    def plan(self) -> dict[str, Any]:
        """The parallel plan; of a service in two groups, that of the decode group."""
        plan = self.answer["plan"]
        return plan.get("decode", plan)

    def design(self, name: str) -> float | None:
        """Return the value of a design variable; None where the answer has none of that name."""
        found = self.answer.get("design", {}).get(name)
        return None if found is None else found["value"]

    @property
    def used(self) -> list[int]:
        """Numbers of its chips that jobs use in practice; empty where they use all."""
        return [int(each) for each in self.system.get("used_chips", [])]

    @property
    def slices(self) -> list[int]:
        """Chips of the slices that the answer names and the catalog offers; 0 for a shape that is not on offer."""
        named = [each.get("slice") for each in (*self.answer.get("systems", []), self.answer)]
        known = {shape: math.prod(map(int, shape.split("x"))) for shape in self.system.get("slices", [])}
        return [known.get(shape, 0) for shape in named if shape]

    @property
    def chips(self) -> float:
        """Number of chips that the plan uses."""
        return self.plan["tp"] * self.plan["pp"] * self.plan["dp"] * self.plan.get("cp", 1)

    @property
    def offloads(self) -> list[str]:
        """Parts of the state that the plan keeps in host memory."""
        return [part for part in ("weights", "optimizer", "activations") if self.plan.get(f"{part}_offloaded", 0) > 0]

    @property
    def micro_batches(self) -> float:
        """Micro-batches of a step and replica."""
        batch = self.design("global_batch_sequences") or self.answer.get("global_batch") or 0.0
        return batch / (self.plan["dp"] * self.plan["micro_batch"])

    def host_bytes(self) -> float:
        """Return a lower bound of the bytes that a step moves between a chip and its host, both directions added."""
        moved = 0.0
        if "activations" in self.offloads and len(self.offloads) == 1:
            waiting = min(
                self.plan["pp"], self.micro_batches
            )  # micro-batches whose activations the pool holds at least
            if self.plan["virtual_stages"] > 1:
                waiting *= 2.0 - 1.0 / self.plan["pp"]
            moved += 2.0 * self.micro_batches / waiting * self.report["pool_per_chip_bytes"]
        if "weights" in self.offloads:  # 16-bit weights in twice, gradients of at least 16 bits out, each micro-batch
            here = self.report["parameters"] / (self.plan["tp"] * self.plan["pp"] * max(self.plan["ep"], 1))
            moved += 6.0 * self.micro_batches * here
        return moved


Rule = Callable[[Case], bool]
RULES: dict[str, Rule] = {}
"""Name of a rule -> whether a case breaks it."""


def rule(broken: Rule) -> Rule:
    """Register a rule under its name."""
    RULES[broken.__name__] = broken
    return broken


@rule
def servers_have_their_nics(case: Case) -> bool:
    """The ports of a server are those that it is sold with."""
    nics, hosts = case.design("nics_per_server"), si(case.system, "hosts", 1.0)
    if nics is None:
        return False
    sold = si(case.system, "compute_nics") / hosts * si(case.system, "nic_rate")
    link = entry("links", case.chip["scale_out"])
    return not math.isclose(nics * si(link, "lane", si(case.system, "nic_rate")), sold, rel_tol=1e-3)


@rule
def racks_are_sold(case: Case) -> bool:
    """A rack holds whole systems in a number that is on offer; a rack-scale system is not cut, only left idle in part."""
    size = case.design("chips_per_rack")
    if size is None or size in case.used:
        return False
    whole = si(case.system, "chips") / si(case.system, "racks", 1.0)
    if "systems_per_rack" not in case.system and "racks" not in case.system:  # whole servers, any number of them
        return not math.isclose(size, whole * round(size / whole))
    offers = [int(each) for each in case.system.get("systems_per_rack", ["1"])]
    return not any(math.isclose(size, whole * each) for each in offers)


@rule
def chips_fill_systems(case: Case) -> bool:
    """Whole systems are bought: their chips are used, or as many of each as jobs use in practice."""
    each = si(case.system, "chips")
    for bought in case.answer.get("systems", []):
        used, count = bought.get("used_each", bought["chips_each"]), bought["count"]
        if not math.isclose(count, round(count)) or used not in (case.used or [bought["chips_each"]]):
            return True
    each = max(case.slices, default=each) or each
    if case.chips < each:  # one system, in part
        return False
    size = case.design("chips_per_rack")
    used = [size] if size in case.used else case.used or [each]
    return not any(math.isclose(case.chips % some, 0.0) for some in used)


@rule
def idle_chips_are_bought(case: Case) -> bool:
    """Chips that a job leaves idle are on the bill as hot spares."""
    idle = [each["count"] * (each["chips_each"] - each.get("used_each", each["chips_each"]))
            for each in case.answer.get("systems", [])]  # fmt: skip
    spares = sum(each["count"] for each in case.answer.get("bill", []) if each["part"].endswith("hot spares"))
    return spares < sum(idle) / SAME


@rule
def torus_is_a_slice(case: Case) -> bool:
    """A torus is one of the shapes on offer, and the chips are a whole number of them."""
    if not case.system.get("slices"):
        return False
    domain = case.design("scale_up_domain")
    if domain is not None:  # a domain of any size, on request
        sizes = [math.prod(map(int, shape.split("x"))) for shape in case.system["slices"]]
        return domain > si(case.system, "chips") and domain not in sizes
    return not case.slices or any(not each or case.chips % each for each in case.slices)


@rule
def nics_are_within_the_host_link(case: Case) -> bool:
    """A chip's share of the NICs is not faster than its link to them: one of their own, or the link to the host."""
    nics, link = case.design("nics_per_server"), si(case.chip, "nic_link") or si(case.chip, "host_bandwidth")
    rate = (nics or 0.0) * si(case.system, "nic_rate") / max(si(case.chip, "server_chips"), 1.0)
    return bool(link) and rate > SAME * link


@rule
def dram_keeps_up(case: Case) -> bool:
    """Traffic between chips and host memory is below 80 % of what the DRAM of the system delivers."""
    if "dram_bandwidth" not in case.system:
        return False
    moved = case.host_bytes() * si(case.system, "chips")
    return moved > MOST_OF_DRAM * si(case.system, "dram_bandwidth") * case.report["step_time_s"]


@rule
def host_memory_keeps_a_reserve(case: Case) -> bool:
    """Pinned memory leaves a tenth of a host's DRAM to the system."""
    if "dram" not in case.system:
        return False
    held = (case.report.get("pool_per_chip_bytes") or 0.0) * si(case.system, "chips")
    return held > MOST_PINNED * si(case.system, "dram")


@rule
def offload_is_needed(case: Case) -> bool:
    """Nothing is offloaded from memory that is three quarters empty."""
    return bool(case.offloads) and (
        case.report["memory_per_chip_bytes"] < LEAST_FULL * case.report["memory_capacity_bytes"]
    )


@rule
def software_streams_weights(case: Case) -> bool:
    """Weights are streamed only by software that documents it."""
    return "weights" in case.offloads and not case.stack.get("capabilities", {}).get("weight_streaming")


@rule
def software_offloads_in_a_pipeline(case: Case) -> bool:
    """Activations are offloaded in a pipeline only by software that documents it."""
    documented = si(case.stack.get("capabilities", {}), "activation_offload")
    needed = 2.0 if case.plan["pp"] > 1 else 1.0
    return "activations" in case.offloads and documented < needed


@rule
def coolant_is_in_range(case: Case) -> bool:
    """A coolant that the search chooses is in its technology's range, and at most as warm as the system allows at its inlet."""
    chosen = case.design("coolant_degc")
    stated = entry("cooling", case.system.get("cooling", "air"))["coolant_temperature"]
    return chosen is not None and not stated["low"] <= chosen <= min(
        stated["high"], si(case.system, "coolant_limit", 1e3)
    )


@rule
def first_tokens_are_in_time_at_p95(case: Case) -> bool:
    """The budget of the first token holds at the 95th percentile, not on average."""
    limits = [each["limit"] for each in case.answer.get("budgets", []) if each["name"] == "ttft_budget_s"]
    seen = case.report.get("time_to_first_token_p95_s")
    return seen is not None and any(seen > SAME * limit for limit in limits)


@rule
def recovery_is_the_documented_best(case: Case) -> bool:
    """A job that loses 30 % of its time to failures does not restart from storage."""
    word = case.answer.get("design", {}).get("recovery", {}).get("word", "from-storage")
    return case.report["goodput"] < LEAST_GOODPUT and word != "in-memory"


@rule
def a_slow_clock_has_a_reason(case: Case) -> bool:
    """A question for money or time lowers the clock only where heat, the chip's cap, power or the host link limits it."""
    goal = case.answer["objective"]["name"] if isinstance(case.answer["objective"], dict) else ""
    if goal not in ("run_cost_usd", "run_time_s") or case.report["clock_ratio"] >= LEAST_CLOCK:
        return False
    power = [each["used"] / each["limit"] for each in case.answer["budgets"] if each["unit"] == "W"]
    margins = case.report["margins"]
    tight = min(case.report["clock_margin"], margins["cooling"], margins["rack_power"]) < SAME - 1.0
    waits = case.report.get("breakdown", {}).get("offload_s", 0.0) > 0.0  # a faster chip would wait for its host
    return not tight and not waits and not any(share > 1.0 / SAME for share in power)


@rule
def something_limits_the_time(case: Case) -> bool:
    """A question for time ends at a limit: chips, power, money or the batch."""
    if not isinstance(case.answer["objective"], dict) or case.answer["objective"]["name"] != "run_time_s":
        return False
    full = any(each["used"] > each["limit"] / 1.01 for each in case.answer["budgets"])  # whole units leave a remainder
    design = case.answer["design"]
    names = ("chips", "global_batch_sequences")
    return not full and not any(design[name]["value"] > design[name]["upper"] / 1.05 for name in names)


def systems() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the systems of the catalog with the chip of each."""
    for path in sorted((DATA / "systems").glob("*.toml")):
        record = tomllib.loads(path.read_text())
        yield record["chip"], record


def typical(chip: dict[str, Any]) -> dict[str, Any]:
    """Return the server of a chip that no system of the catalog has: its own links, no rack and no host memory stated."""
    count, rate = si(chip, "server_chips", 1.0), si(chip, "scale_out_bandwidth")
    lane = si(entry("links", chip["scale_out"]), "lane", rate)
    return {
        "chips": {"value": count, "unit": "chips"},
        "compute_nics": {"value": count * rate / lane, "unit": "1"},
        "nic_rate": {"value": lane, "unit": "B/s"},
    }


def case_of(answer: dict[str, Any]) -> Case:
    """Return an answer with the catalog files of its machine."""
    named = answer.get("chip") or next(each["source"] for each in answer["bill"] if each["part"] == "chips")
    name = named.split(":")[0]
    chip = entry("chips", name)
    serves = "ttft" in str(answer.get("budgets")) or "replicas" in answer.get("design", {})
    stack = {} if serves else entry("stacks", chip["default_stack"])
    return Case(answer, chip, dict(systems()).get(name) or typical(chip), stack)


def broken(answer: dict[str, Any]) -> list[str]:
    """Return the names of the rules that an answer breaks."""
    case = case_of(answer)
    return [name for name, breaks in RULES.items() if breaks(case)]
