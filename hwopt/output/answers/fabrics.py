"""Answer of `hwopt fabrics`: machines compared with ideal links and with link jitter."""

from collections.abc import Mapping, Sequence
from typing import Any

from hwopt.analysis.fabrics import FabricCase, Fabrics, JitterLevel
from hwopt.calibration.intervals import Interval
from hwopt.output.answer import Answer, Lines, Named, Section, Sentences, Table
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.units import pretty

METRICS = (
    "step_time_s", "run_time_s", "run_cost_usd", "mfu", "goodput", "mean_time_between_failures_s", "hot_spares", "capex_usd",
    "power_w",
)  # fmt: skip
"""Metrics of a machine that the JSON has for each level of jitter."""

Around = Mapping[str, Interval | None]
"""Prediction intervals by machine name."""


_LEVELS = {"even": "ideal", "in production": "typical", "least even": "worst case"}
"""Name of a level of jitter in JSON -> its label on screens."""


def level_words(level: JitterLevel) -> str:
    """Return a level of jitter with its numbers: spread of bandwidth and latency tail."""
    spread, tail = f"{100 * level.spread:.3g} %", pretty(level.tail_s, "s", 3)
    return f"{_LEVELS[level.name]}: link bandwidth varies by {spread} (standard deviation), mean latency tail {tail}"


def headline(answer: Fabrics) -> str:
    """Return the cheapest machine with typical jitter, and the saving and value per chip of links without jitter, in words."""
    if not answer.trained:
        return "No machine fits this run."
    best, worst = answer.trained[0], answer.cheapest(-1)
    tie = f", a tie with {', '.join(each.name for each in answer.ties)}" if answer.ties else ""
    even, price = -best.dearer[1] / (1.0 + best.dearer[1]), best.worth_usd_per_chip[1]
    said = (
        f"{best.name} is the cheapest with typical jitter{tie}: {pretty(best.costs_usd[1], 'USD')} in "
        f"{pretty(float(best.reports[1].run_time_s), 's', 3)}. Eliminating link variability would save {-100 * even:.2g} %"
    )
    said += f" ({price:,.0f} $ per chip)." if price > 0.0 else "."
    if worst is not best:
        said += f" In the worst case {worst.name} is cheaper: {pretty(worst.costs_usd[-1], 'USD')}."
    return said


def rule(answer: Fabrics) -> str:
    """Return which plans were compared: one stated plan for all machines, or the cheapest plan of each machine."""
    plan = (
        "one stated plan for all machines" if answer.held else "the cheapest plan of each machine with typical jitter"
    )
    return f"{plan}, the same at every level of jitter"


def fabrics_document(answer: Fabrics, around: Around, constants: str) -> dict[str, Any]:
    """Return the answer as JSON: levels of jitter, and an entry for each machine.

    **Arguments:**

    - `around`: intervals by machine name.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    return {
        "feasible": bool(answer.trained),
        "headline": headline(answer),
        "rule": rule(answer),
        "levels": [each._asdict() for each in answer.levels],
        "cheapest": {each.name: answer.cheapest(i).name for i, each in enumerate(answer.levels)}
        if answer.trained
        else None,
        "machines": [_case(each, answer, around.get(each.name)) for each in answer.cases],
        "constants": constants or None,
    }


def _case(each: FabricCase, answer: Fabrics, around: Interval | None) -> dict[str, Any]:
    fits = each.feasible
    usual = each.reports[min(1, len(each.reports) - 1)] if fits else None
    within = around.times(float(usual.step_time_s)) if usual is not None and around is not None else None
    rate = None if each.cluster is None else number(each.cluster.network.bandwidth_bytes_per_s[1])
    return {
        "name": each.name,
        "feasible": fits,
        "reason": each.reason or None,
        "scale_out_bytes_per_s": rate,
        "plan": plan_document(usual, each.plan) if usual is not None else None,
        "step_time_interval_s": None if within is None else list(within),
        "levels": [
            {"level": level.name, "dearer": dearer, "worth_usd_per_chip": worth}
            | {name: number(getattr(report, name)) for name in METRICS}
            for level, report, dearer, worth in zip(
                answer.levels, each.reports, each.dearer, each.worth_usd_per_chip, strict=True
            )
        ]
        if fits
        else None,
    }


HEADS = (
    "machine",
    "scale-out",
    "step",
    "80 % interval",
    "goodput",
    "run",
    "cost: ideal",
    "typical",
    "worst case",
    "ideal links worth",
)
"""Column headings. Three of the last four are costs of the run at each level; the last is the value of links without jitter."""


def cells(each: FabricCase, around: Interval | None) -> list[str]:
    """Return a machine as table cells, in the order of `HEADS`."""
    assert each.cluster is not None
    usual = each.reports[1]
    step, costs = float(usual.step_time_s), each.costs_usd
    ends = "-" if around is None else "{} to {}".format(*(pretty(end, "s", 3) for end in around.times(step)))
    more = [
        f"{pretty(cost, 'USD', 4)} ({100 * by:+.1f} %)" for cost, by in zip(costs[1:], each.dearer[1:], strict=True)
    ]
    return [
        each.name, pretty(float(each.cluster.network.bandwidth_bytes_per_s[1]), "B/s", 3), pretty(step, "s", 3), ends,
        f"{100 * float(usual.goodput):.2f} %", pretty(float(usual.run_time_s), "s", 3), pretty(costs[0], "USD", 4), *more,
        f"{each.worth_usd_per_chip[-1]:,.0f} $/chip",
    ]  # fmt: skip


def fabrics_answer(
    found: Fabrics, title: str, around: Around, constants: str, asked: Mapping[str, Any], sources: Sequence[str]
) -> Answer:
    """Return the answer of `hwopt fabrics`.

    **Arguments:**

    - `title`: title of the question.
    - `asked`: its JSON keys.
    - `sources`: citations of its numbers.
    - `around`: intervals by machine name.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    trained, none = found.trained, [(each.name, each.reason) for each in found.cases if not each.feasible]
    price = "last column: break-even premium of ideal links over worst-case ones, in capital per chip"
    scope = f"{rule(found)}; {price}; {MODEL_ONLY}; constants: {constants}"
    plans = [(each.name, plan_line(each.reports[1], each.plan)) for each in trained]
    best = f"{trained[0].name}, {pretty(trained[0].costs_usd[1], 'USD')}" if trained else ""
    rows = [cells(each, around.get(each.name)) for each in trained]
    tables = (
        Section("Every machine", [Table("machines", HEADS, rows)], titled=False),
        Section("Plans", [Named(plans, wrap=False)]),
    )  # fmt: skip
    return Answer(
        "fabrics", fabrics_document(found, around, constants), title, headline(found), ("cheapest with typical jitter", best),
        ("model", False, rule(found)),
        (
            Section("Levels of jitter", [Lines([level_words(each) for each in found.levels])], titled=False),
            *(tables if trained else ()),
            Section("Machines that do not fit", [Named(none)]),
            Section("How good is it", [Sentences([scope], later="  ")], titled=False),
        ),
        sources, bool(trained), asked,
    )  # fmt: skip
