"""The page of `fleet`: the run on chips of several kinds, each group's share and plan, and what each adds."""

from collections.abc import Sequence

from hwopt.evidence.intervals import Interval
from hwopt.report.fleet import group_cells, heads, other_words, shares_title, violation_words, worth_words
from hwopt.report.layout import MODEL_ONLY
from hwopt.report.machine import interval_words
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Html, p
from hwopt.report.plan_words import plan_line
from hwopt.report.token_prices import million_words, rate_words
from hwopt.study.fleet import FleetStudy, group_rows, scope
from hwopt.units import pretty


def fleet_page(
    study: FleetStudy, title: str, around: Interval | None, constants: str, command: str, sources: Sequence[str]
) -> str:
    """One page for `fleet`. **Arguments:** as of `fleet_screen`; `command` that asked for it; `sources` of its numbers."""
    whole, report = study.whole, study.whole.report
    if not whole.feasible:
        top = sheet.refusal("This fleet does not fit", *(p(words) for words in violation_words(whole)))
        return sheet.page("hwopt fleet", "", title, top, [_groups(study)], command, sources)
    top = sheet.answer(
        "the run takes", f"{pretty(float(report.run_time_s), 's')}, {pretty(float(report.run_cost_usd), 'USD')}", "model", False,
        scope(study), p(interval_words(report, around, constants)),
    )  # fmt: skip
    tiles = [
        ("step", pretty(float(report.step_time_s), "s")),
        ("throughput", rate_words(report, report.tokens_per_s)),
        ("MFU, of all peaks", pretty(float(report.mfu), "fraction", 3)),
        ("useful time", pretty(float(report.goodput), "fraction", 3)),
        ("money", million_words(report)),
    ]
    words = other_words(study)
    other = [("Other layout", words)] if words else []
    terms = [("Searched", scope(study)), *other, ("Of what", MODEL_ONLY)]
    sections = [
        sheet.section("At a glance", pieces.tiles(tiles)),
        _groups(study),
        _worths(study),
        sheet.section("How good is it", pieces.terms(terms)),
    ]
    return sheet.page("hwopt fleet", "", title, top, sections, command, sources)


def _groups(study: FleetStudy) -> Html:
    rows = group_rows(study.whole)
    table = pieces.table("groups", heads(study.whole), group_cells(study.whole), "lrrrrr")
    plans = pieces.table(
        "plans", ("chips", "plan"), [[group.name, plan_line(own, plan)] for group, plan, _, own, _ in rows]
    )
    return sheet.section(shares_title(study.whole), table, plans)


def _worths(study: FleetStudy) -> Html | None:
    """What each group adds, in the sentences of the screen."""
    if not study.worths:
        return None
    said = [p(" ".join(worth_words(study.whole, place, each))) for place, each in enumerate(study.worths)]
    return sheet.section("What each group adds, and when it is better switched off", *said)
