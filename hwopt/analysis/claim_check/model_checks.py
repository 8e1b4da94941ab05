"""Claim checks that use the model: time, utilization, memory, racks, power and cost."""

import math
from collections.abc import Callable
from typing import Any

from hwopt import catalog
from hwopt.analysis.claim_check.arithmetic_checks import MFU_LEEWAY, corrections
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
from hwopt.model.facility.rack import rack_limit_w
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

NOT_MEASURED = "at catalog prices, without an uncertainty interval of their own"

_RACK = ("rack_power", "rack_cables", "rack_weight")
"""Names of the rack's constraints."""

_OF_THE_RUN = (
    ("time", "the run ends within the stated time", "s"),
    ("chip_hours", "the run takes no more chip hours than stated", "s"),
    ("mfu", "MFU at least as stated", "fraction"),
    ("goodput", "goodput at least as stated", "fraction"),
    ("communication", "exposed communication no more than stated", "fraction"),
    ("run_cost", "the run costs no more than stated", "USD"),
    ("energy", "the run takes no more energy than stated", "J"),
)


def model_checks(b: Blueprint, judged: ModelledClaim | str) -> list[CheckLine]:
    """Return all check lines that compare stated numbers with the model.

    **Arguments:** `b`: the claim; `judged`: model results, or the reason for their absence.
    """
    if isinstance(judged, str):
        return _without_model(b, judged)
    return [*_of_model(b, judged), *_of_plan(b, judged), *_run(b, judged), *_racks(b, judged), *_machine(b, judged)]


_OF_MACHINE = (("rack_power", "rack power", "W"), ("power", "power", "W"), ("capex", "capital", "USD"))


def _unjudged(b: Blueprint, why: str) -> list[CheckLine]:
    """Return a line without a verdict for each stated number of the run."""
    return [
        unchecked_line(key.replace("_", " "), claim, why, unit, b[key])
        for key, claim, unit in _OF_THE_RUN
        if b.has(key)
    ]


def _without_model(b: Blueprint, why: str) -> list[CheckLine]:
    machine = [unchecked_line(name, name, why, unit, b[key]) for key, name, unit in _OF_MACHINE if b.has(key)]
    plan = [unchecked_line("plan", "the plan is valid", why)] if b.word("plan") else []
    if plan and why.startswith("plan: "):  # the reason is about the plan itself
        plan = [
            CheckLine("plan", "the plan is valid", CheckVerdict.fails, why=why.removeprefix("plan: "), modelled=True)
        ]
    return [*plan, *_unjudged(b, why), *machine]


def _of_model(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check stated parameter counts against the named workload."""
    if b.word("workload") is None or not j.runs:
        return []
    return [
        checked_line(
            key.replace("_", " "),
            f"equal to {b.word('workload')} of the catalog",
            CheckRelation.equal,
            b[key],
            ours := float(getattr(j.report, key)),
            "parameter",
            leeway=SIZE_LEEWAY,
            keys=(key,),
            repairs=corrections(b, [(key, ours)]),
        )
        for key in ("parameters", "active_parameters")
        if b.has(key)
    ]


def _of_plan(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check whether the plan divides chips and batch and fits into memory."""
    if not j.runs:
        return [unchecked_line("plan", "the plan is valid", j.taken[0])] if b.word("plan") else []
    lines = []
    for key, name, claim in (
        ("chips", "plan", "product of the parallel degrees = chips"),
        ("global_batch", "batch of the plan", "the batch is a multiple of the replicas"),
    ):
        if key in j.refused:
            why, near = j.refused[key]
            stated, ours = b.chips if key == "chips" else b[key], near[0]
            repairs = corrections(b, [(key, value) for value in near])
            about: dict[str, Any] = {"why": why, "keys": (key,), "modelled": True, "repairs": repairs}
            lines.append(CheckLine(name, claim, CheckVerdict.fails, "", stated, ours, **about))
        elif key == "chips" and b.word("plan"):
            lines.append(
                CheckLine(name, claim, CheckVerdict.holds, "", b.chips, j.chips, keys=("chips",), modelled=True)
            )
    used, room = float(j.report.memory_per_chip_bytes), float(j.report.memory_capacity_bytes)
    offloaded = j.report.violations().get("pool", 0.0)  # overflow of the memory pool, for states that are offloaded
    used, where = (room * (1.0 + offloaded), "exceeded by as much as the memory pool is") if offloaded else (used, "")
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
            CheckLine(
                "limits of the model", "physical limits of the machine", CheckVerdict.fails, why=why, modelled=True
            )
        )
    return [*lines, line]


def _exposed(j: ModelledClaim) -> float:
    """Return the share of a step that waits for communication."""
    parts = [getattr(j.report.breakdown, name) for name in j.report.breakdown._fields if name.endswith("_comm_s")]
    return float(sum(parts)) / float(j.report.step_time_s)


def _run(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check time, utilization, cost and energy of the run."""
    if not j.runs:
        return _unjudged(b, j.taken[0])
    if set(j.report.violations()) - set(_RACK):
        return _unjudged(b, "no plan fits: see above")
    paced: Callable[[float], tuple[float, float]] = (lambda v: (v, v)) if j.interval is None else j.interval.times
    report, chips = j.report, j.chips
    priced = b.has("chip_hour_price")
    cost = float(report.run_time_s) * chips * b["chip_hour_price"] if priced else float(report.run_cost_usd)
    at_price = f"at {pretty(b['chip_hour_price'], 'USD/s')} per chip, as stated" if priced else NOT_MEASURED
    ours = {
        "time": (float(report.run_time_s), CheckRelation.at_most, paced, ""),
        "chip_hours": (float(report.run_time_s) * chips, CheckRelation.at_most, paced, ""),
        "mfu": (float(report.mfu), CheckRelation.at_least, paced, "of the steps, without time lost to failures"),
        "goodput": (float(report.goodput), CheckRelation.at_least, lambda v: (v, v), ""),
        "communication": (
            _exposed(j),
            CheckRelation.at_most,
            paced,
            "not overlapped with compute, as a share of the step",
        ),
        "run_cost": (cost, CheckRelation.at_most, paced, at_price),
        "energy": (float(report.run_energy_j), CheckRelation.at_most, paced, ""),
    }
    lines = []
    for key, claim, unit in _OF_THE_RUN:
        if not b.has(key):
            continue
        value, relation, ends, why = ours[key]
        scaled = key in ("time", "chip_hours", "run_cost", "energy") and b.has("tokens")
        tokens = [("tokens", b["tokens"] * b[key] / value)] if scaled else []
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
            leeway={"goodput": GOODPUT_LEEWAY, "mfu": MFU_LEEWAY}.get(key, EXACT),
            modelled=True,
            repairs=corrections(b, [(key, value), *tokens]),
        )
        lines.append(line)
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
                    "rack power", "rack power covers peak draw", "chips per rack are not stated", "W", b["rack_power"]
                )
            ]
            if b.has("rack_power")
            else []
        )
    report, lines = j.racked, []
    draws = float(report.rack_power_w)
    if b.has("rack_power"):
        fewer = _whole_servers(j, b["rack_chips"] * b["rack_power"] / draws)
        line = checked_line(
            "rack power",
            "rack power covers the peak draw of its chips",
            CheckRelation.at_most,
            b["rack_power"],
            draws,
            "W",
            ends=_about(draws),
            keys=("rack_power", "rack_chips"),
            modelled=True,
            repairs=corrections(b, [("rack_power", draws), ("rack_chips", fewer)]),
        )
        lines.append(line)
    over = {name: each for name, each in report.violations().items() if name in _RACK}
    cooling = b.word("cooling") or catalog.default_cooling(str(b.word("chip")), b.word("site") or "us-average")
    most = float(j.cluster.rack.chips)  # as many as fit where no number is stated
    why = f"with {cooling} cooling a rack supports {most:,.0f} of {b['rack_chips']:,.0f} chips"
    if not over:
        lines.append(
            CheckLine(
                "rack",
                "within the rack's limits of power, cooling, cabling and weight",
                CheckVerdict.holds,
                "W",
                None,
                draws,
                why=f"{cooling} cooling and busbars carry up to {pretty(float(rack_limit_w(j.cluster)), 'W')} a rack",
                modelled=True,
            )
        )
        return lines
    worst = max(over.values())
    line = CheckLine(
        "rack",
        "within the rack's limits of power, cooling, cabling and weight",
        CheckVerdict.fails,
        "chip",
        b["rack_chips"],
        most,
        relation=CheckRelation.at_least,
        why=f"{why}: {100 * worst:.0f} % above a limit{_better_cooling(b, draws)}",
        keys=("rack_chips",),
        modelled=True,
        repairs=corrections(b, [("rack_chips", most)]),
    )
    return [*lines, line]


def _better_cooling(b: Blueprint, draws: float) -> str:
    """Return a remark that names a cooling system of the catalog sufficient for the rack; empty without any."""
    able = []
    for name in catalog.names("cooling"):
        entry = catalog.record("cooling", name)
        if "unsupported" not in entry.text and entry.si("rack_limit", 0.0) >= draws and name != b.word("cooling"):
            able.append((entry.si("rack_limit"), name))
    return f"; {min(able)[1]} cooling is sufficient" if able else ""


def _machine(b: Blueprint, j: ModelledClaim) -> list[CheckLine]:
    """Check power at the meter, capital cost and PUE of the machine."""
    report = j.racked
    draws, costs = (float(each) * b.chips / j.chips for each in (report.peak_power_w, report.capex_usd))
    average = f"{pretty(float(report.power_w), 'W')} on average" if j.runs else ""
    yearly = f"annual mean at site {b.word('site') or 'us-average'}"
    limits: tuple[tuple[str, str, str, float, str, dict[str, Any]], ...] = (
        ("power", "power", "site power covers peak draw on the hottest design day", draws, "W",
         {"ends": _about(draws), "why": average}),
        ("capex", "capital", "capital cost no more than stated", costs, "USD", {"why": NOT_MEASURED}),
        ("pue", "PUE", "PUE no more than stated", float(report.pue), "", {"leeway": PUE_LEEWAY, "why": yearly}),
    )  # fmt: skip
    lines = []
    for key, name, claim, ours, unit, about in limits:
        if b.has(key):
            fewer = [] if key == "pue" else [("chips", _whole_servers(j, b.chips * b[key] / ours))]
            keys, repairs = (key, *(each for each, _ in fewer)), corrections(b, [(key, ours), *fewer])
            about |= {"keys": keys, "modelled": True, "repairs": repairs}
            lines.append(checked_line(name, claim, CheckRelation.at_most, b[key], ours, unit, **about))
    return lines
