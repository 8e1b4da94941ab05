"""Claim checks that use the model: time, utilization, memory, racks, power and cost."""

from __future__ import annotations

import math
from collections.abc import Callable

from hwopt import catalog
from hwopt.analysis.claim_check.arithmetic_checks import MFU_LEEWAY, with_corrections
from hwopt.analysis.claim_check.check_line import (
    EXACT,
    CheckLine,
    CheckRelation,
    CheckVerdict,
    checked_line,
    unchecked_line,
)
from hwopt.analysis.claim_check.machine import ModelledClaim
from hwopt.analysis.claim_check.statement import Blueprint
from hwopt.model.report import FEASIBILITY_TOLERANCE, over_words
from hwopt.units import pretty

POWER_LEEWAY = 0.08
"""Mean relative error of the power of racks and servers against seven published values (README, accuracy)."""

SIZE_LEEWAY = 0.03
"""Relative tolerance of parameter counts: published with two or three digits, with or without embeddings (assumption)."""

GOODPUT_LEEWAY = 0.005
"""Relative tolerance of goodput, which is published in whole percent (assumption)."""

PUE_LEEWAY = 0.03
"""Relative tolerance of PUE, which is published with two digits, for a year or a day (assumption)."""

NOT_MEASURED = "by prices of the catalogue, which no measurement bounds"

_RACK = ("rack_power", "rack_cables", "rack_weight")
"""Names of the rack's constraints."""

_OF_THE_RUN = (
    ("time", "the run ends in time", "s"),
    ("chip_hours", "the run takes no more chip hours", "s"),
    ("mfu", "MFU", "fraction"),
    ("goodput", "share of time that failures leave", "fraction"),
    ("communication", "share of a step that waits for communication", "fraction"),
    ("run_cost", "the run costs no more", "USD"),
    ("energy", "the run takes no more energy", "J"),
)


def model_checks(b: Blueprint, judged: ModelledClaim | str) -> list[CheckLine]:
    """Return all check lines that compare stated numbers with the model.

    **Arguments:** `b`: the claim; `judged`: model results, or the reason for their absence.
    """
    if isinstance(judged, str):
        return _without_model(b, judged)
    return [*_of_model(b, judged), *_of_plan(b, judged), *_run(b, judged), *_racks(b, judged), *_machine(b, judged)]


_OF_MACHINE = (("rack_power", "rack power", "W"), ("power", "power", "W"), ("capex", "capital", "USD"))


def _without_model(b: Blueprint, why: str) -> list[CheckLine]:
    lines = [
        unchecked_line(key.replace("_", " "), claim, why, unit, b[key])
        for key, claim, unit in _OF_THE_RUN
        if b.has(key)
    ]
    machine = [unchecked_line(name, name, why, unit, b[key]) for key, name, unit in _OF_MACHINE if b.has(key)]
    plan = [unchecked_line("plan", "the plan can be run", why)] if b.word("plan") else []
    if plan and why.startswith("plan: "):  # the reason is about the plan itself
        plan = [
            CheckLine("plan", "the plan can be run", CheckVerdict.fails, why=why.removeprefix("plan: "), modelled=True)
        ]
    return [*plan, *lines, *machine]


def _of_model(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check stated parameter counts against the named workload."""
    if b.word("workload") is None or not j.runs:
        return []
    lines = []
    for key in ("parameters", "active_parameters"):
        if b.has(key):
            line = checked_line(
                key.replace("_", " "),
                f"as {b.word('workload')} has",
                CheckRelation.equal,
                b[key],
                float(getattr(j.report, key)),
                "parameter",
                leeway=SIZE_LEEWAY,
                keys=(key,),
            )
            lines.append(with_corrections(line, b, [(key, float(getattr(j.report, key)))]))
    return lines


def _of_plan(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check whether the plan divides chips and batch and fits into memory."""
    if not j.runs:
        return [unchecked_line("plan", "the plan can be run", j.taken[0])] if b.word("plan") else []
    lines = []
    for key, name, claim in (
        ("chips", "plan", "the plan's degrees multiply to the chips"),
        ("global_batch", "batch of the plan", "the batch divides among replicas"),
    ):
        if key in j.refused:
            why, near = j.refused[key]
            stated, ours = b.chips if key == "chips" else b[key], near[0]
            line = CheckLine(name, claim, CheckVerdict.fails, "", stated, ours, why=why, keys=(key,), modelled=True)
            lines.append(with_corrections(line, b, [(key, value) for value in near]))
        elif key == "chips" and b.word("plan"):
            lines.append(
                CheckLine(name, claim, CheckVerdict.holds, "", b.chips, j.chips, keys=("chips",), modelled=True)
            )
    used, room = float(j.report.memory_per_chip_bytes), float(j.report.memory_capacity_bytes)
    offloaded = j.report.violations().get("pool", 0.0)  # overflow of the memory pool, for states that are offloaded
    used, where = (room * (1.0 + offloaded), "as much over as the memory pool beside is") if offloaded else (used, "")
    line = checked_line(
        "fits",
        "model, gradients and optimizer fit the memory of a chip",
        CheckRelation.at_most,
        room,
        used,
        "B",
        leeway=FEASIBILITY_TOLERANCE,
        why=where,
        keys=("chips", "chip_memory"),
        modelled=True,
    )
    others = {name: over for name, over in j.report.violations().items() if name not in ("memory", "pool", *_RACK)}
    if others:
        why = "; ".join(over_words(name, over) for name, over in others.items())
        lines.append(
            CheckLine("limits of the model", "what every machine must hold", CheckVerdict.fails, why=why, modelled=True)
        )
    return [*lines, line]


def _exposed(j: ModelledClaim) -> float:
    """Return the share of a step that waits for communication."""
    parts = [getattr(j.report.breakdown, name) for name in j.report.breakdown._fields if name.endswith("_comm_s")]
    return float(sum(parts)) / float(j.report.step_time_s)


def _run(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check time, utilization, cost and energy of the run."""
    asked = [each for each in _OF_THE_RUN if b.has(each[0])]
    if not j.runs:
        return [unchecked_line(key.replace("_", " "), claim, j.taken[0], unit, b[key]) for key, claim, unit in asked]
    if set(j.report.violations()) - set(_RACK):
        why = "no plan fits: see above"
        return [unchecked_line(key.replace("_", " "), claim, why, unit, b[key]) for key, claim, unit in asked]
    paced: Callable[[float], tuple[float, float]] = (lambda v: (v, v)) if j.interval is None else j.interval.times
    report, chips = j.report, j.chips
    priced = b.has("chip_hour_price")
    cost = float(report.run_time_s) * chips * b["chip_hour_price"] if priced else float(report.run_cost_usd)
    at_price = f"at {pretty(b['chip_hour_price'], 'USD/s')} a chip, as stated" if priced else NOT_MEASURED
    ours = {
        "time": (float(report.run_time_s), CheckRelation.at_most, paced, ""),
        "chip_hours": (float(report.run_time_s) * chips, CheckRelation.at_most, paced, ""),
        "mfu": (float(report.mfu), CheckRelation.at_least, paced, "of steps, without what failures take"),
        "goodput": (float(report.goodput), CheckRelation.at_least, lambda v: (v, v), ""),
        "communication": (_exposed(j), CheckRelation.at_most, paced, "what is not hidden under arithmetic"),
        "run_cost": (cost, CheckRelation.at_most, paced, at_price),
        "energy": (float(report.run_energy_j), CheckRelation.at_most, paced, ""),
    }
    lines = []
    for key, claim, unit in asked:
        value, relation, ends, why = ours[key]
        leeway = {"goodput": GOODPUT_LEEWAY, "mfu": MFU_LEEWAY}.get(key, EXACT)
        line = checked_line(
            key.replace("_", " "),
            claim,
            relation,
            b[key],
            value,
            unit,
            ends=ends(value),
            why=why,
            keys=(key,),
            leeway=leeway,
            modelled=True,
        )
        scaled = key in ("time", "chip_hours", "run_cost", "energy") and b.has("tokens")
        tokens = [("tokens", b["tokens"] * b[key] / value)] if scaled else []
        lines.append(with_corrections(line, b, [(key, value), *tokens]))
    return lines


def _about(draws: float) -> tuple[float, float]:
    """Return the range of power that the model error allows."""
    return draws / (1.0 + POWER_LEEWAY), draws * (1.0 + POWER_LEEWAY)


def _whole_servers(j: ModelledClaim, chips: float) -> float:
    """Return the number of chips in full servers."""
    server = float(j.cluster.rack.server_chips)
    return math.floor(chips / server) * server


def _racks(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check the power of a rack with the stated chips, and whether it can be powered, cooled, cabled and carried."""
    if not b.has("rack_chips"):
        return (
            [
                unchecked_line(
                    "rack power", "a rack is given enough", "chips of a rack are not stated", "W", b["rack_power"]
                )
            ]
            if b.has("rack_power")
            else []
        )
    report, lines = j.racked, []
    draws = float(report.rack_power_w)
    if b.has("rack_power"):
        line = checked_line(
            "rack power",
            "a rack is given what its chips draw at full load",
            CheckRelation.at_most,
            b["rack_power"],
            draws,
            "W",
            ends=_about(draws),
            keys=("rack_power", "rack_chips"),
            modelled=True,
        )
        fewer = _whole_servers(j, b["rack_chips"] * b["rack_power"] / draws)
        lines.append(with_corrections(line, b, [("rack_power", draws), ("rack_chips", fewer)]))
    over = {name: each for name, each in report.violations().items() if name in _RACK}
    cooling = b.word("cooling") or catalog.default_cooling(str(b.word("chip")), b.word("site") or "us-average")
    most = float(j.cluster.rack.chips)  # as many as fit where no number is stated
    why = f"{cooling} and the rack carry {most:,.0f} of {b['rack_chips']:,.0f} chips"
    if not over:
        lines.append(
            CheckLine(
                "rack",
                "a rack can be fed, cooled, cabled and carried",
                CheckVerdict.holds,
                "W",
                None,
                draws,
                why=cooling,
                modelled=True,
            )
        )
        return lines
    worst = max(over.values())
    line = CheckLine(
        "rack",
        "a rack can be fed, cooled, cabled and carried",
        CheckVerdict.fails,
        "chip",
        b["rack_chips"],
        most,
        why=f"{why}: {100 * worst:.0f} % too much{_better_cooling(b, j, draws)}",
        keys=("rack_chips",),
        modelled=True,
    )
    return [*lines, with_corrections(line, b, [("rack_chips", most)])]


def _better_cooling(b: Blueprint, j: ModelledClaim, draws: float) -> str:
    """Return a remark that names a cooling system of the catalog sufficient for the rack; empty without any."""
    able = []
    for name in catalog.names("cooling"):
        entry = catalog.record("cooling", name)
        if "unsupported" not in entry.text and entry.si("rack_limit", 0.0) >= draws and name != b.word("cooling"):
            able.append((entry.si("rack_limit"), name))
    return f"; {min(able)[1]} carries it" if able else ""


def _machine(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check power at the meter, capital cost and PUE of the machine."""
    report, lines = j.racked, []
    if b.has("power"):
        draws = float(report.peak_power_w) * b.chips / j.chips
        line = checked_line(
            "power",
            "the machine is given what it draws at full load, on the design day",
            CheckRelation.at_most,
            b["power"],
            draws,
            "W",
            ends=_about(draws),
            keys=("power", "chips"),
            modelled=True,
            why=f"{pretty(float(report.power_w), 'W')} on average" if j.runs else "",
        )
        fewer = _whole_servers(j, b.chips * b["power"] / draws)
        lines.append(with_corrections(line, b, [("power", draws), ("chips", fewer)]))
    if b.has("capex"):
        costs = float(report.capex_usd) * b.chips / j.chips
        line = checked_line(
            "capital",
            "the machine costs no more to build",
            CheckRelation.at_most,
            b["capex"],
            costs,
            "USD",
            why=NOT_MEASURED,
            keys=("capex", "chips"),
            modelled=True,
        )
        fewer = _whole_servers(j, b.chips * b["capex"] / costs)
        lines.append(with_corrections(line, b, [("capex", costs), ("chips", fewer)]))
    if b.has("pue"):
        ours = float(report.pue)
        line = checked_line(
            "PUE",
            "the building takes no more besides",
            CheckRelation.at_most,
            b["pue"],
            ours,
            "",
            leeway=PUE_LEEWAY,
            why=f"mean over the year at site {b.word('site') or 'us-average'}",
            keys=("pue",),
            modelled=True,
        )
        lines.append(with_corrections(line, b, [("pue", ours)]))
    return lines
