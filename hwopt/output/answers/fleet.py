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
from hwopt.declared import plain
from hwopt.model.report import over_words
from hwopt.output.answer import Answer, Facts, Lines, Outline, Section, Sentences, Table
from hwopt.output.answers.documents import metrics
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
        **metrics(report, whole.feasible),
        **dict(zip(("unit_of_work", "tokens_per_unit"), unit_of_work(report), strict=True)),
        "low": {"step_time_s": low},
        "high": {"step_time_s": high},
        "constants": constants,
        "layout": whole.layout,
        "other_layout": _other(study),
        "groups": [_group(whole, place) for place in range(len(whole.groups))],
        "worth": plain(study.worths),
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
    names = {PIPELINE: "one pipeline over all groups", DATA: "data parallel over the groups"}
    if study.other is None:
        other = names[DATA if study.whole.layout == PIPELINE else PIPELINE]
        return f"{other}: {study.failed}" if study.failed else None
    other, step = study.other, float(study.whole.report.step_time_s)
    if not other.feasible:
        return f"{names[other.layout]}: does not fit"
    seconds = float(other.report.step_time_s)
    return f"{names[other.layout]}: {pretty(seconds, 's')}, {100 * (seconds / step - 1.0):.3g} % slower"


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
    whole = study.whole
    groups = _groups(whole)
    declared = fleet_document(study, around, constants)
    if not whole.feasible:
        fails = Section("Why it does not fit", [Lines(violation_words(whole), "  - ")], titled=False)
        verdict, sections = "This fleet does not fit.", (fails, groups)
        return Answer("fleet", declared, title, verdict, ("", ""), ("", False, ""), sections, sources, False, asked)
    worths = [worth_words(whole, place, each) for place, each in enumerate(study.worths)]
    sections = (
        Section("At a glance", [Facts(_facts(study, around, constants))], titled=False),
        groups,
        Section("Marginal value of each group", [Outline(worths)]),
        Section(
            "How good is it", [Sentences([fleet_scope(study)], later="  "), Lines([REPRODUCED.strip()])], titled=False
        ),
    )
    proof = ("model", False, MODEL_ONLY)
    return Answer(
        "fleet", declared, title, verdict_words(study), ("the run takes", took(whole)), proof, sections, sources, True, asked
    )  # fmt: skip


def took(whole: FleetAnswer) -> str:
    """Return the time and cost of a run on a fleet, as text."""
    report = whole.report
    return f"{pretty(float(report.run_time_s), 's')}, {pretty(float(report.run_cost_usd), 'USD')}"


def verdict_words(study: FleetStudy) -> str:
    """Return a sentence with the time and cost of the run on all groups, and without each of them."""
    others = [f"without {each.name} {took(each.without) if each.without else 'no plan fits'}" for each in study.worths]
    with_all = f"{'With all groups the' if len(study.whole.groups) > 1 else 'The'} run takes {took(study.whole)}"
    return f"{'; '.join([with_all, *others])}."


def _facts(study: FleetStudy, around: Interval | None, constants: str) -> list[tuple[str, str]]:
    """Return (name, text) pairs on a training run across all chips of a fleet: step time, throughput, power, failures, cost."""
    whole, report = study.whole, study.whole.report
    step, ideal, moved = (
        pretty(float(seconds), "s") for seconds in (report.step_time_s, report.ideal_step_time_s, report.exchange_s)
    )
    if whole.layout == PIPELINE:
        shared = f", of which {moved} sends between groups; {ideal} if groups could split a layer"
    else:
        shared = f", of which {moved} gradient reduction between groups; {ideal} if groups could split a sequence"
    chips, tons = float(report.chips), float(report.run_carbon_kg) / 1e3
    mean, peak = pretty(float(report.power_w), "W"), pretty(float(report.peak_power_w), "W")
    unit, tokens = unit_of_work(report)
    failures = pretty(float(report.mean_time_between_failures_s), "s")
    return [
        ("step time", f"{step}{shared if len(whole.groups) > 1 else ''}"),
        *([("other layout", words)] if (words := other_words(study)) else []),
        (
            "throughput",
            f"{rate_words(report, report.tokens_per_s)}, {float(report.tokens_per_s) / tokens / chips:,.0f} {unit}/s per chip, "
            f"MFU {100 * float(report.mfu):.1f} % of the peak of all chips",
        ),
        ("power", f"{mean} on average at the meter, {peak} at full load on the hottest design day"),
        (
            "failures",
            f"MTBF {failures} (a failure of any chip stops all), goodput {100 * float(report.goodput):.1f} %",
        ),
        ("cost", f"capital {pretty(float(report.capex_usd), 'USD')}; {million_words(report)}"),
        (
            "whole run",
            f"{float(study.run.tokens) / tokens:.4g} {unit}s in {took(whole)}, {tons:,.0f} t CO2e, "
            f"final loss {float(report.loss):.4f}",
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


def _groups(whole: FleetAnswer) -> Section:
    """Return a table of the groups of chips with their plans.

    The groups are either stages of one pipeline, each with some of the layers, or data-parallel, each with a share of the batch.
    """
    staged, total = whole.layout == PIPELINE, sum(whole.shares)
    rows, plans = [], []
    for group, plan, share, own, waits in group_rows(whole):
        filled = float(own.memory_per_chip_bytes / own.memory_capacity_bytes)
        plans.append(plan_line(own, plan))
        rows.append([
            f"{float(group.cluster.chips):,.0f} {group.name}", f"{share:,.0f} ({100 * share / total:.1f} %)",
            pretty(float(own.step_time_s), "s"), f"{100 * waits:.1f} %", f"{100 * float(own.mfu):.1f} %", f"{100 * filled:.0f} %",
        ])  # fmt: skip
    heads = ("chips", "layers" if staged else "sequences", "busy" if staged else "step alone", "waits", "MFU", "memory")
    title = "Stages of the pipeline, first to last" if staged else "Shares of the batch"
    table = Table("groups", heads, rows, least=(24, 14, 10, 7, 7, 7), under=plans)
    return Section(title, [table, Sentences([_group_times(whole)] if len(rows) > 1 else [])])


def _group_times(whole: FleetAnswer) -> str:
    """Return sentences on what the times of a group include, and what the rest of a step is."""
    report = whole.report
    if whole.layout == DATA:
        return "Waits: share of the step that a group waits for the slowest one, before they reduce gradients together."
    rest = float(report.step_time_s) - max(float(each.step_time_s) for each in report.groups)
    return (
        "Busy: all micro-batches of a step on the group's slowest stage. Waits: share of the step lost at the pace of a slower "
        f"stage. The other {pretty(rest, 's', 3)} of the step: filling and draining the pipeline, gradient reduction, optimizer, "
        "stragglers and overhead."
    )


def worth_words(whole: FleetAnswer, place: int, each: GroupValue) -> list[str]:
    """Return sentences on the value of a group of chips: the run with and without it, and whether owning or renting it pays."""
    group = whole.groups[place]
    if each.without is None:
        return [f"{group.name}: needed; the other groups alone have no plan that fits the whole batch."]
    chips = float(group.cluster.chips) / float(whole.report.chips)
    peak = float(whole.report.groups[place].peak_power_w / whole.report.peak_power_w)
    if each.saved_s <= 0.0:
        slower = f"{100 * -each.faster:.3g} % slower" if each.faster < 0.0 else "no faster"
        return [f"{group.name}: turn it off; with it the run is {slower}."]
    days, mwh = each.saved_s / _S_PER_DAY, each.more_j / (1e3 * _J_PER_KWH)
    energy = f"uses {abs(mwh):,.3g} MWh {'more' if mwh > 0.0 else 'less'}"
    now = _J_PER_KWH * float(whole.report.electricity_usd_per_j[place])
    if math.isinf(each.most_usd_per_j):
        owned = "at any price of electricity, as the run needs less energy"
    else:
        standing = pretty(_S_PER_DAY * sum(map(float, whole.report.standing_usd_per_s)), "USD")
        owned = (
            f"up to {_J_PER_KWH * each.most_usd_per_j:.3g} $/kWh of electricity (now {now:.3g}), as each day saved frees "
            f"all groups, which cost {standing} a day without electricity"
        )
    if each.owned_usd_per_s > 0.0:
        owned += f", or if finishing a day sooner is worth more than {pretty(_S_PER_DAY * each.owned_usd_per_s, 'USD')}"
    more = pretty(abs(each.rented_usd_per_s) * each.saved_s, "USD")
    if each.rented_usd_per_s > 0.0:
        dearer = pretty(_S_PER_DAY * each.rented_usd_per_s, "USD")
        rented = (
            f"the run costs {more} more with it: worth it only if finishing a day sooner is worth more than {dearer}"
        )
    else:
        rented = f"worth it, as the run costs {more} less with it"
    return [
        f"{group.name}: the run is {100 * each.faster:.3g} % faster with it ({100 * chips:.3g} % of the chips, {100 * peak:.3g} % "
        f"of the peak power), ends {days:,.3g} days sooner and {energy}.",
        f"if owned (its capital is spent either way): worth running {owned}",
        f"if rented, or useful elsewhere (its cost ends with its use): {rented}",
    ]
