"""The page of `invest`: what one more of everything is worth, replanned and at the margin."""

from hwopt.evidence.intervals import Interval
from hwopt.optim.solution import Outcome
from hwopt.report.customary import amount
from hwopt.report.invest import arcs, budget_sentence, certainty, parts, row_cells
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Child, element, li, p
from hwopt.report.token_prices import unit_of_work
from hwopt.study.invest import Investments


def invest_page(answer: Investments, around: Interval | None, command: str) -> str:
    """One page for `invest`. **Arguments:** `around` the run's time; `command` that asked for it."""
    start = answer.start
    name, question, sources = start.problem.name, start.problem.question, start.problem.sources
    kind, goal = f"hwopt invest {name}", start.problem.objective
    if not start.feasible:
        return sheet.page(
            kind, name, question, sheet.refusal(start.infeasibility or start.headline), [], command, sources
        )
    work = unit_of_work(start.report)
    certain = start.outcome is Outcome.proved
    top = sheet.answer(
        pieces.words(goal.name, goal.unit),
        amount(start.objective, goal.unit, 5, work),
        "proved" if certain else "partly proved",
        certain,
        start.headline,
    )
    said = [li(arcs(each, start.objective, goal.unit, work)) for each in answer.replanned]
    heads = ("", "now", "one more", "changes", "of it", "10 % better saves")
    sections: list[Child] = [
        sheet.section("Replanned with a number 10 % better, and 10 % worse", element("ul", said)) if said else None,
        sheet.section("Budgets", element("ul", [li(budget_sentence(each, work)) for each in start.budgets])),
        *(
            sheet.section(
                f"One more unit: {part}",
                pieces.table(
                    part, heads, [list(row_cells(each, start.objective, goal.unit, work)) for each in rows], "lrrrrr"
                ),
            )
            for part, rows in parts(answer).items()
        ),
        sheet.section("How good is it", p(certainty(answer, around))),
    ]
    return sheet.page(kind, name, question, top, sections, command, sources)
