"""The page of `scale`: where adding chips stops paying and why, every size, every plan."""

from collections.abc import Sequence

from hwopt.report.layout import MODEL_ONLY
from hwopt.report.page import pieces, points, sheet
from hwopt.report.page.axis import Axis
from hwopt.report.page.markup import Child, Html, p
from hwopt.report.plan_words import plan_line
from hwopt.report.scaling import Around
from hwopt.report.scaling_words import CAUSES, headline, rule, sooner, why
from hwopt.report.scaling_words import points as in_points
from hwopt.study.scaling import Scaling, Size
from hwopt.units import pretty


def scaling_page(answer: Scaling, title: str, around: Around, command: str, sources: Sequence[str]) -> str:
    """One page for `scale`. **Arguments:** as of `scaling_screen`; `command` that asked for it; `sources` of its numbers."""
    kind = "hwopt scale"
    if not answer.trained:
        top = sheet.refusal(headline(answer))
        return sheet.page(kind, "", title, top, [_none(answer)], command, sources)
    proved = f"the best plan of each of {len(answer.trained)} sizes, every plan of its lattice examined"
    knee = answer.knee
    top = sheet.answer(
        "adding chips stops paying at" if knee is not None else "adding chips pays up to",
        f"{(knee.before if knee is not None else answer.trained[-1]).chips:,} chips",
        "proved",
        True,
        proved,
        p(headline(answer)),
        p(f"{why(knee)} {sooner(answer)}".rstrip()) if knee is not None else None,
    )
    sections = [
        sheet.section("At a glance", pieces.tiles(_tiles(answer)), note=rule(answer)),
        _chart(answer),
        _sizes(answer, around),
        _causes(answer),
        _plans(answer),
        _none(answer),
        sheet.section("How good is it", pieces.terms([("Proved", proved), ("Of what", MODEL_ONLY)])),
    ]
    return sheet.page(kind, "", title, top, sections, command, sources)


def _tiles(answer: Scaling) -> list[tuple[str, str]]:
    cheapest, soonest = answer.cheapest, answer.soonest
    assert cheapest is not None and soonest is not None
    said = lambda size: f"{size.chips:,} chips: {pretty(size.time_s, 's', 3)}, {pretty(size.cost_usd, 'USD', 4)}"
    return [("cheapest", said(cheapest)), ("soonest", said(soonest))]


def _chart(answer: Scaling) -> Html | None:
    """Cost over time of the run, a point a size."""
    if len(answer.trained) < 2:
        return None
    knee = answer.knee
    drawn = [
        points.Point(each.time_s, each.cost_usd, "var(--within)", True, _said(each),
                     best=knee is not None and each is knee.before)
        for each in answer.trained
    ]  # fmt: skip
    up = Axis.over("cost of the run", "USD", [each.cost_usd for each in answer.trained])
    across = Axis.over("time of the run", "s", [each.time_s for each in answer.trained])
    name = "What a shorter run costs"
    caption = "A point a size; the star is the last size that pays. Hover, touch or use the arrow keys to read a point."
    return sheet.section(name, points.chart(name, (across, up), drawn, caption=caption))


def _said(size: Size) -> str:
    return f"{size.chips:,} chips\n{pretty(size.time_s, 's', 3)}\n{pretty(size.cost_usd, 'USD', 4)}"


def _sizes(answer: Scaling, around: Around) -> Html:
    heads = ("chips", *(("batch", "tokens") if answer.weak else ()), "step", "four in five", "MFU", "goodput", "run", "cost",
             "speed-up", "efficiency", "a doubling saved", "and was dearer by")  # fmt: skip
    grown = {each.after.chips: each for each in answer.growths}
    rows: list[list[Child]] = []
    for each in answer.trained:
        report, growth, within = each.report, grown.get(each.chips), around.get(each.chips)
        step = float(report.step_time_s)
        ends = "" if within is None else " to ".join(pretty(end, "s", 3) for end in within.times(step))
        batch = [f"{float(each.run.global_batch_sequences):,.0f}", f"{each.tokens_needed:.2f} x"] if answer.weak else []
        doubling = ["", ""] if growth is None else [f"{100 * growth.saved:.1f} %", f"{100 * growth.dearer:.1f} %"]
        rows.append([
            f"{each.chips:,}", *batch, pretty(step, "s", 3), ends, f"{100 * float(report.mfu):.1f} %",
            f"{100 * float(report.goodput):.1f} %", pretty(each.time_s, "s", 3), pretty(each.cost_usd, "USD", 4),
            f"{answer.speedup(each):.4g}", f"{100 * answer.efficiency(each):.0f} %", *doubling,
        ])  # fmt: skip
    return sheet.section("Every size", pieces.table("sizes", heads, rows, "r" * len(heads)))


def _causes(answer: Scaling) -> Html | None:
    """What grew from each size to the next, in points of the smaller one's cost."""
    if not answer.growths:
        return None
    most = {name: max(dict(each.causes).get(name, 0.0) for each in answer.growths) for name in CAUSES}
    names = sorted((name for name in CAUSES if most[name] >= 5e-4), key=lambda name: -most[name])
    heads = ("to chips", "cost", *(CAUSES[name] for name in names))
    rows = [
        [f"{each.after.chips:,}", f"{in_points(each.after.cost_usd / each.before.cost_usd - 1.0)} %",
         *(in_points(dict(each.causes).get(name, 0.0)) for name in names)]
        for each in answer.growths
    ]  # fmt: skip
    note = "From each size to the next, in points of the smaller one's cost; they add up to it."
    return sheet.section("What grew", pieces.table("causes", heads, rows, "r" * len(heads)), note=note)


def _plans(answer: Scaling) -> Html:
    rows: list[list[Child]] = [
        [f"{each.chips:,}", plan_line(each.report, each.search.best.plan)]
        for each in answer.trained
        if each.search is not None
    ]
    return sheet.section("The best plan of each size", pieces.table("plans", ("chips", "plan"), rows, "rl"))


def _none(answer: Scaling) -> Html | None:
    rows: list[list[Child]] = [[f"{each.chips:,}", each.reason] for each in answer.sizes if not each.feasible]
    if not rows:
        return None
    return sheet.section("Sizes without an answer", pieces.table("without", ("chips", "why"), rows, "rl"))
