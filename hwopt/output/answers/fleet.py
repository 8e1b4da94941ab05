"""Answer of `hwopt fleet`: shares of the batch or of the layers, the run, and the marginal value of each group."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from hwopt.analysis.fleet.data_parallel import (
    DATA,
    PIPELINE,
    FleetAnswer,
    FleetStudy,
    GroupValue,
    fleet_scope,
    group_rows,
)
from hwopt.calibration.intervals import Interval
from hwopt.model.fleet.data_parallel import FleetReport
from hwopt.model.report import outputs, over_words
from hwopt.output.answer import Answer, Facts, Lines, Outline, Section, Sentences, Table
from hwopt.output.text.cluster import interval_words
from hwopt.output.text.layout import MODEL_ONLY, REPRODUCE, REPRODUCED
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.output.text.token_prices import million_words, rate_words, unit_of_work
from hwopt.units import pretty

_J_PER_KWH, _S_PER_DAY = 3.6e6, 86400.0

_OF_GROUP = (
    "step_time_s", "mfu", "memory_per_chip_bytes", "memory_capacity_bytes", "power_w", "peak_power_w", "capex_usd", "clock_ratio",
)  # fmt: skip
"""Metrics reported for each group of chips, computed for the group alone with its share of the work."""


def fleet_document(study: FleetStudy, around: Interval | None, constants: str) -> dict[str, Any]:
    """Return a fleet as JSON.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    whole, report = study.whole, study.whole.report
    low, high = (None, None) if around is None else around.times(float(report.step_time_s))
    return {
        "feasible": whole.feasible,
        "violations": report.violations(),
        **_metrics(report),
        **dict(zip(("unit_of_work", "tokens_per_unit"), unit_of_work(report), strict=True)),
        "low": {"step_time_s": low},
        "high": {"step_time_s": high},
        "constants": constants,
        "layout": whole.layout,
        "other_layout": _other(study),
        "groups": [_group(whole, place) for place in range(len(whole.groups))],
        "worth": [_worth(each) for each in study.worths],
        "scope": fleet_scope(study),
        "leaves": [number(leaf) for leaf in jax.tree.leaves(whole.plan)],
        "reproduce": REPRODUCE,
    }


def _other(study: FleetStudy) -> dict[str, Any] | None:
    """Return the slower layout (data parallel or pipeline) as JSON; None where only one layout was evaluated."""
    if study.other is None:
        return None
    fits, seconds = study.other.feasible, number(study.other.report.step_time_s)
    return {"layout": study.other.layout, "feasible": fits, "step_time_s": seconds if fits else None}


def other_words(study: FleetStudy) -> str | None:
    """Return the step time of the other layout (data parallel or pipeline), or why it failed; None where not requested."""
    names = {PIPELINE: "layers shared by stages of one pipeline", DATA: "the batch shared out"}
    if study.other is None:
        other = names[DATA if study.whole.layout == PIPELINE else PIPELINE]
        return f"{other}: {study.failed}" if study.failed else None
    other, step = study.other, float(study.whole.report.step_time_s)
    if not other.feasible:
        return f"{names[other.layout]}: does not fit"
    seconds = float(other.report.step_time_s)
    return f"{names[other.layout]}: {pretty(seconds, 's')}, {100 * (seconds / step - 1.0):.3g} % slower"


def _metrics(report: FleetReport) -> dict[str, float | None]:
    fits = bool(report.feasible)
    return {
        name: number(getattr(report, name)) if fits or each.standing else None
        for name, each in outputs(FleetReport).items()
    }


def _group(whole: FleetAnswer, place: int) -> dict[str, Any]:
    group, plan, share, own, waits = group_rows(whole)[place]
    staged = whole.layout == PIPELINE
    return {
        "chip": group.name,
        "chips": number(group.cluster.chips),
        "sequences": None if staged else share,
        "layers": share if staged else None,
        "share": share / sum(whole.shares),
        "waits": waits,
        **{name: number(getattr(own, name)) for name in _OF_GROUP},
        "standing_usd_per_s": number(whole.report.standing_usd_per_s[place]),
        "plan": plan_document(own, plan),
    }


def _worth(each: GroupValue) -> dict[str, Any]:
    without = each.without
    return {
        "chip": each.name,
        "faster": number(each.faster),
        "saved_s": number(each.saved_s),
        "more_j": number(each.more_j),
        "most_usd_per_j": number(each.most_usd_per_j),
        "owned_usd_per_s": number(each.owned_usd_per_s),
        "rented_usd_per_s": number(each.rented_usd_per_s),
        "without": None if without is None else _metrics(without.report),
    }


def fleet_answer(
    study: FleetStudy,
    title: str,
    around: Interval | None,
    constants: str,
    asked: Mapping[str, Any],
    sources: Sequence[str],
) -> Answer:
    """Return the answer of `hwopt fleet`.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    whole, report = study.whole, study.whole.report
    table = Table("groups", heads(whole), group_cells(whole), least=(24, 14, 9, 7, 7, 7), under=_plans(whole))
    groups = Section(shares_title(whole), [table])
    declared = fleet_document(study, around, constants)
    if not whole.feasible:
        fails = Section("Why it does not fit", [Lines(violation_words(whole), "  - ")], titled=False, joined=True)
        verdict, sections = "This fleet does not fit:", (fails, groups)
        return Answer("fleet", declared, title, verdict, ("", ""), ("", False, ""), sections, sources, False, asked)
    worths = [worth_words(whole, place, each) for place, each in enumerate(study.worths)]
    sections = (
        Section("At a glance", [Facts(_facts(study, around, constants))], titled=False, joined=True),
        groups,
        Section("What each group adds, and when it is better switched off", [Outline(worths)]),
        Section(
            "How good is it", [Sentences([fleet_scope(study)], later="  "), Lines([REPRODUCED.strip()])], titled=False
        ),
    )
    took = f"{pretty(float(report.run_time_s), 's')}, {pretty(float(report.run_cost_usd), 'USD')}"
    proof = ("model", False, MODEL_ONLY)
    return Answer("fleet", declared, title, "", ("the run takes", took), proof, sections, sources, True, asked)


def _facts(study: FleetStudy, around: Interval | None, constants: str) -> list[tuple[str, str]]:
    """Return (name, text) pairs on a training run across all chips of a fleet: step time, throughput, power, failures, cost."""
    whole, report = study.whole, study.whole.report
    step, ideal, moved = (
        pretty(float(seconds), "s") for seconds in (report.step_time_s, report.ideal_step_time_s, report.exchange_s)
    )
    if whole.layout == PIPELINE:
        shared = f", of which {moved} by links between the groups; {ideal} if shares were not whole layers"
    else:
        shared = f", of which {moved} to reduce over the groups; {ideal} if shares were not whole sequences"
    chips, tons = float(report.chips), float(report.run_carbon_kg) / 1e3
    mean, peak = pretty(float(report.power_w), "W"), pretty(float(report.peak_power_w), "W")
    unit, tokens = unit_of_work(report)
    failures = pretty(float(report.mean_time_between_failures_s), "s")
    return [
        ("step time", f"{step}{shared if len(whole.groups) > 1 else ''}"),
        *([("other layout", words)] if (words := other_words(study)) else []),
        (
            "throughput",
            f"{rate_words(report, report.tokens_per_s)}, {float(report.tokens_per_s) / tokens / chips:,.0f} {unit}/s a chip, "
            f"MFU {100 * float(report.mfu):.1f} % of all peaks",
        ),
        ("power", f"{mean} on average at the meter, {peak} at full load on the design day"),
        (
            "failures",
            f"one in {failures}, any of which stops all; {100 * float(report.goodput):.1f} % of the time useful",
        ),
        ("money", f"{pretty(float(report.capex_usd), 'USD')} to build; {million_words(report)}"),
        (
            "whole run",
            f"{pretty(float(report.run_time_s), 's')}, {pretty(float(report.run_cost_usd), 'USD')}, {tons:,.0f} t CO2e, "
            f"loss {float(report.loss):.4f}",
        ),
        ("constants", interval_words(report, around, constants)),
    ]


def violation_words(whole: FleetAnswer) -> list[str]:
    """Return the violated constraints with their amounts; a constraint of one group is preceded by the group's name."""
    words = []
    for name, over in whole.report.violations().items():
        place, _, plain = name.rpartition(".")
        group = f"{whole.groups[int(place) - 1].name} " if place else ""
        words.append(f"{group}{over_words(plain, over)}")
    return words


def heads(whole: FleetAnswer) -> tuple[str, ...]:
    """Return the column headings of `group_cells`."""
    return "chips", "layers" if whole.layout == PIPELINE else "sequences", "own step", "waits", "MFU", "memory"


def shares_title(whole: FleetAnswer) -> str:
    """Return the title of the table of a fleet's groups of chips.

    The groups are either stages of one pipeline, each with some of the layers, or data-parallel, each with a share of the batch.
    """
    return "Stages of the pipeline, first to last" if whole.layout == PIPELINE else "Shares of the batch"


def group_cells(whole: FleetAnswer) -> list[list[str]]:
    """Return a table row for each group: chips, sequences or layers, own step time, share of time waiting, MFU, memory."""
    total = sum(whole.shares)
    cells = []
    for group, _, share, own, waits in group_rows(whole):
        filled = float(own.memory_per_chip_bytes / own.memory_capacity_bytes)
        cells.append([
            f"{float(group.cluster.chips):,.0f} {group.name}", f"{share:,.0f} ({100 * share / total:.1f} %)",
            pretty(float(own.step_time_s), "s"), f"{100 * waits:.1f} %", f"{100 * float(own.mfu):.1f} %", f"{100 * filled:.0f} %",
        ])  # fmt: skip
    return cells


def _plans(whole: FleetAnswer) -> list[str]:
    """Return the plan of each group in a line."""
    return [plan_line(own, plan) for _, plan, _, own, _ in group_rows(whole)]


def worth_words(whole: FleetAnswer, place: int, each: GroupValue) -> list[str]:
    """Return sentences on the value of a group of chips: the run with and without it, and whether owning or renting it pays."""
    group = whole.groups[place]
    if each.without is None:
        return [f"{group.name}: the others do not train alone, no plan of theirs fits the whole batch."]
    chips = float(group.cluster.chips) / float(whole.report.chips)
    peak = float(whole.report.groups[place].peak_power_w / whole.report.peak_power_w)
    if each.saved_s <= 0.0:
        slower = f"{100 * -each.faster:.3g} % slower" if each.faster < 0.0 else "no faster"
        return [f"{group.name}: turn it off: with it the run is {slower} than without."]
    days, kwh = each.saved_s / _S_PER_DAY, each.more_j / _J_PER_KWH
    energy = f"takes {kwh:,.4g} kWh more" if kwh > 0.0 else f"takes {-kwh:,.4g} kWh less"
    now = _J_PER_KWH * float(whole.report.electricity_usd_per_j[place])
    if math.isinf(each.most_usd_per_j):
        owned = "at any price of electricity"
    else:
        owned = f"up to {_J_PER_KWH * each.most_usd_per_j:.3g} $/kWh of electricity (now {now:.3g})"
    if each.owned_usd_per_s > 0.0:
        owned += f", or where a day of the run is worth more than {pretty(_S_PER_DAY * each.owned_usd_per_s, 'USD')}"
    if each.rented_usd_per_s > 0.0:
        dearer = pretty(_S_PER_DAY * each.rented_usd_per_s, "USD")
        rented = f"only where a day of the run is worth more than {dearer}"
    else:
        rented = "it makes the run cheaper, too"
    return [
        f"{group.name}: {100 * each.faster:.3g} % faster with it, by {100 * chips:.3g} % of the chips and {100 * peak:.3g} % "
        f"of the power; the run ends {days:,.3g} days sooner and {energy}.",
        f"owned, its capital spent anyway: worth running {owned}",
        f"rented, or of as much use elsewhere: {rented}",
    ]
