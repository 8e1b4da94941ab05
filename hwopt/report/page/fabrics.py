"""The page of `fabrics`: what uneven links cost on each machine, and what even ones are worth."""

from collections.abc import Sequence

from hwopt.report.fabrics import HEADS, Around, cells, headline, level_words, rule
from hwopt.report.layout import MODEL_ONLY
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import p
from hwopt.report.plan_words import plan_line
from hwopt.study.fabrics import Fabrics
from hwopt.units import pretty


def fabrics_page(answer: Fabrics, title: str, around: Around, command: str, sources: Sequence[str]) -> str:
    """One page for `fabrics`. **Arguments:** as of `fabrics_screen`; `command` that asked for it; `sources` of its numbers."""
    none = [[each.name, each.reason] for each in answer.cases if not each.feasible]
    left = (
        sheet.section("Machines that do not train it", pieces.table("none", ("machine", "why"), none)) if none else None
    )
    if not answer.trained:
        return sheet.page("hwopt fabrics", "", title, sheet.refusal(headline(answer)), [left], command, sources)
    best = answer.trained[0]
    top = sheet.answer(
        "cheapest in production", f"{best.name}, {pretty(best.costs_usd[1], 'USD')}", "model", False, rule(answer),
        p(headline(answer)),
    )  # fmt: skip
    rows = [cells(each, around.get(each.name)) for each in answer.trained]
    plans = [[each.name, plan_line(each.reports[1], each.plan)] for each in answer.trained]
    sections = [
        sheet.section("Every machine", pieces.table("machines", HEADS, rows, "l" + "r" * (len(HEADS) - 1)),
                      note="; ".join(map(level_words, answer.levels))),
        sheet.section("Plans", pieces.table("plans", ("machine", "plan"), plans)),
        left,
        sheet.section("How good is it", pieces.terms([("Searched", rule(answer)), ("Of what", MODEL_ONLY)])),
    ]  # fmt: skip
    return sheet.page("hwopt fabrics", "", title, top, sections, command, sources)
