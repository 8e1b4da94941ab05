"""Answer of `hwopt scale`: one training run on more and more chips."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hwopt.analysis.scaling import Scaling, ScalingPoint, ScalingStep
from hwopt.calibration.intervals import Interval
from hwopt.declared import document
from hwopt.output.answer import Answer, Lines, Named, OnPage, Part, Section, Sentences, Table
from hwopt.output.html import components, points
from hwopt.output.html.axis import Axis
from hwopt.output.html.markup import Child, Html
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.output.text.parts import number, numbers
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.output.text.scaling import CAUSES, ends, headline, remedy, rule, sooner, why
from hwopt.output.text.scaling import points as in_points
from hwopt.output.text.token_prices import unit_of_work
from hwopt.units import pretty

METRICS = (
    "step_time_s",
    "mfu",
    "hfu",
    "goodput",
    "tokens_per_s",
    "memory_per_chip_bytes",
    "power_w",
    "cost_per_token_usd",
    "loss",
)
"""Metrics of each cluster size, as in its report. Time and cost of the run are those to reach the same loss at every size."""

_COLUMNS = 6
"""Maximum number of chip-time components that have a column."""

Around = Mapping[int, Interval | None]
"""Prediction intervals by number of chips."""


def scaling_document(answer: Scaling, around: Around, constants: str = "") -> dict[str, Any]:
    """Return the answer of `scale` as JSON.

    It has an entry for each cluster size and for each increase in size, and the size at which more chips stop paying.

    **Arguments:**

    - `around`: prediction intervals by number of chips.
    - `constants`: name of the constants in use, such as `calibrated`.
    """
    knee = answer.knee
    named = {"cheapest": answer.cheapest, "soonest": answer.soonest}
    return {
        "objective": answer.objective,
        **document(answer),
        "scaling": "weak" if answer.weak else "strong",
        "rule": rule(answer),
        "feasible": bool(answer.trained),
        "headline": headline(answer),
        "sooner": sooner(answer) or None,
        "knee": None if knee is None else _growth(knee, answer),
        **{name: None if size is None else size.chips for name, size in named.items()},
        "sizes": [_size(each, answer, around.get(each.chips)) for each in answer.sizes],
        "growths": [_growth(each, answer) for each in answer.growths],
        "constants": constants or None,
    }


def _size(size: ScalingPoint, answer: Scaling, around: Interval | None) -> dict[str, Any]:
    fits = size.feasible
    report, search = (size.report, size.search) if size.search is not None else (None, None)
    known = report if fits else None
    within = around.times(float(known.step_time_s)) if known is not None and around is not None else (None, None)
    return {
        "chips": size.chips,
        "feasible": fits,
        "reason": size.reason or None,
        "violations": {} if report is None else report.violations(),
        "global_batch_sequences": number(size.run.global_batch_sequences),
        "tokens_needed": size.tokens_needed,
        "plan": None if known is None or search is None else plan_document(known, search.best.plan),
        **{name: None if known is None else number(getattr(known, name)) for name in METRICS},
        "step_time_interval_s": None if within[0] is None else list(within),
        "run_time_s": size.time_s if fits else None,
        "run_cost_usd": size.cost_usd if fits else None,
        "speedup": answer.speedup(size) if fits else None,
        "efficiency": answer.efficiency(size) if fits else None,
        "breakdown": None if known is None else numbers(known.breakdown._asdict()),
        "chip_time_s_per_token": size.chip_time if fits else None,
        "certificate": None if search is None else {"lower_bound": search.lower_bound, "gap": search.gap, "scope": search.scope},
        "examined": None if search is None else search.examined,
        "fitting": None if search is None else search.fitting,
    }  # fmt: skip


def _growth(each: ScalingStep, answer: Scaling) -> dict[str, Any]:
    return {
        "from_chips": each.before.chips,
        "to_chips": each.after.chips,
        **document(each),
        "pays": answer.pays(each),
        "causes": {cause.name: cause.share for cause in each.causes},
        "why": why(each),
    }


def scaling_answer(
    found: Scaling,
    title: str,
    around: Around,
    constants: str = "",
    recovery: str = "",
    asked: Mapping[str, Any] = MappingProxyType({}),
    sources: Sequence[str] = (),
) -> Answer:
    """Return the answer of `hwopt scale`.

    **Arguments:**

    - `title`: workload, chip and site in words.
    - `around`: prediction intervals by number of chips.
    - `constants`: name of the constants in use, such as `calibrated`.
    - `recovery`: the failure recovery in use.
    - `asked`: JSON keys that repeat the question.
    - `sources`: citations of its numbers.
    """
    trained, knee = found.trained, found.knee
    why_not = [(f"{each.chips:>9,}", each.reason) for each in found.sizes if not each.feasible]
    common = ("scale", scaling_document(found, around, constants), title, headline(found))
    none = Section("Sizes without a plan", [Named(why_not, 9)])
    if not trained:
        return Answer(*common, ("", ""), ("", False, ""), [none], sources, False, asked, subtitle=rule(found))
    more = [] if knee is None else [" ".join(filter(None, (why(knee), sooner(found), remedy(found, recovery))))]
    proof = "each size has the best of all plans searched (every plan was evaluated: optimality gap 0)"
    sections = (
        Section("Why, and at what price", [Sentences(more, "", ""), Lines(ends(found))], titled=False, joined=True),
        Section("Cost of a shorter run", [] if len(trained) < 2 else [OnPage(_chart(found))]),
        Section("Every size", [table(found, around)], titled=False),
        Section("Causes of cost growth", [OnPage(_causes(found))] if found.growths else [],
                note="From each size to the next, in percentage points of the smaller size's cost. They add up to the growth."),
        Section("The best plan of each size", [Named(_plans(found), 9)]),
        Section("Chip time by component, %", _chip_time(found)),
        none,
        Section("How good is it", [Sentences([f"{proof}; {MODEL_ONLY}; constants: {constants}"], later="  ")], titled=False),
    )  # fmt: skip
    stops = "adding chips stops paying at" if knee is not None else "adding chips pays up to"
    large = f"{(knee.before if knee is not None else trained[-1]).chips:,} chips"
    badge = ("proved", True, f"the best plan of each of {len(trained)} sizes")
    return Answer(*common, (stops, large), badge, sections, sources, asked=asked, subtitle=rule(found))


def table(answer: Scaling, around: Around | None = None) -> Table:
    """Return the table of sizes, with a row for each size that trains.

    **Arguments:** `around`: prediction intervals by number of chips; without any there is no column for them.
    """
    around = around if around and any(around.values()) else {}  # models without measurements have no interval
    grown = {each.after.chips: each for each in answer.growths}
    unit, _ = unit_of_work(answer.trained[0].run)
    heads = {"chips": 9} | ({"batch": 9, "tokens": 6} if answer.weak else {}) | {"step": 8}
    heads |= ({"80 % interval": 16} if around else {}) | {"MFU": 6, "goodput": 7, "run": 10, "cost": 8, f"$/M{unit}": 8}
    heads |= {"speedup": 7, "efficiency": 6, "saved": 6, "extra cost": 7}
    rows = [_cells(each, answer, around, grown.get(each.chips)) for each in answer.trained]
    return Table("sizes", list(heads), rows, "r" * len(heads), list(heads.values()))


def _cells(size: ScalingPoint, answer: Scaling, around: Around, growth: ScalingStep | None) -> list[str]:
    report, own = size.report, around.get(size.chips)
    step = float(report.step_time_s)
    ends = "" if own is None else "{} to {}".format(*(pretty(end, "s", 3) for end in own.times(step)))
    per_million = 1e6 * size.cost_usd / float(size.run.tokens) * unit_of_work(size.run)[1]
    return [
        f"{size.chips:,}",
        *([f"{float(size.run.global_batch_sequences):,.0f}", f"{size.tokens_needed:.2f}x"] if answer.weak else []),
        pretty(step, "s", 3), *([ends] if around else []), f"{100 * float(report.mfu):.1f} %",
        f"{100 * float(report.goodput):.1f} %", pretty(size.time_s, "s", 3), pretty(size.cost_usd, "USD", 3),
        f"{per_million:.4g}", f"{answer.speedup(size):.4g}", f"{100 * answer.efficiency(size):.0f} %",
        *(["", ""] if growth is None else [f"{100 * growth.saved:.1f} %", f"{100 * growth.dearer:+.1f} %"]),
    ]  # fmt: skip


def _plans(answer: Scaling) -> list[tuple[str, str]]:
    return [
        (f"{each.chips:>9,}", plan_line(each.report, each.search.best.plan))
        for each in answer.trained
        if each.search is not None
    ]


def _chip_time(answer: Scaling) -> list[Part]:
    """Return a table of the shares of chip time by component, in percent, with a row for each size, and what its heads mean.

    Columns are ordered by the largest share of a component at any size; small components are summed as "rest".
    """
    shares = {each.chips: _shares(each) for each in answer.trained}
    most = lambda name: max(each.get(name, 0.0) for each in shares.values())
    names = sorted({name for each in shares.values() for name in each}, key=lambda name: -most(name))[:_COLUMNS]
    rest = lambda share: abs(100 * (1.0 - sum(share.get(name, 0.0) for name in names)))
    rows = [
        [f"{chips:,}", *(f"{100 * share.get(name, 0.0):.1f}" for name in names), f"{rest(share):.1f}"]
        for chips, share in shares.items()
    ]
    heads = ("chips", *(name.replace("_", " ") for name in names), "rest")
    meant = [f"{head}: {CAUSES[name]}" for name, head in zip(names, heads[1:], strict=False) if head != CAUSES[name]]
    table = Table("shares", heads, rows, "r" * len(heads), (9, *[6] * len(names), 5))
    return [table, Sentences(["; ".join(meant)] if meant else [])]


def _shares(size: ScalingPoint) -> dict[str, float]:
    whole = sum(size.chip_time.values())
    return {name: value / whole for name, value in size.chip_time.items()}


def _chart(answer: Scaling) -> Html:
    """Return a chart of the cost of the run against its duration, a point for each size."""
    knee = answer.knee
    said = lambda each: f"{each.chips:,} chips\n{pretty(each.time_s, 's', 3)}\n{pretty(each.cost_usd, 'USD', 4)}"
    drawn = [
        points.Point(each.time_s, each.cost_usd, "var(--within)", True, said(each),
                     best=knee is not None and each is knee.before)
        for each in answer.trained
    ]  # fmt: skip
    up = Axis.over("cost of the run", "USD", [each.cost_usd for each in answer.trained])
    across = Axis.over("time of the run", "s", [each.time_s for each in answer.trained])
    caption = (
        "Each point is a size; the star is the last size that pays. Hover, touch or use the arrow keys to read a point."
    )
    return points.chart("Cost of a shorter run", (across, up), drawn, caption=caption)


def _causes(answer: Scaling) -> Child:
    """Return a table of the causes of cost growth from each size to the next, in points of the smaller size's cost."""
    most = {name: max(dict(each.causes).get(name, 0.0) for each in answer.growths) for name in CAUSES}
    names = sorted((name for name in CAUSES if most[name] >= 5e-4), key=lambda name: -most[name])
    heads = ("to chips", "cost", *(CAUSES[name] for name in names))
    rows = [
        [f"{each.after.chips:,}", f"{in_points(each.after.cost_usd / each.before.cost_usd - 1.0)} %",
         *(in_points(dict(each.causes).get(name, 0.0)) for name in names)]
        for each in answer.growths
    ]  # fmt: skip
    return components.table("causes", heads, rows, "r" * len(heads))
