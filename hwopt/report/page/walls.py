"""The page of `walls`: which budget binds when, the answer between them, where chip time goes."""

from hwopt.optim.solution import Outcome
from hwopt.report.layout import MODEL_ONLY, budget_words
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Child, element, li, p
from hwopt.report.walls import METRICS, end, gap_words, sentence, shares, stage_words, value_words
from hwopt.study.walls import Walls
from hwopt.units import pretty


def walls_page(answer: Walls, command: str) -> str:
    """One page for `walls`; `command` that asked for it."""
    start = answer.start
    name, question = start.problem.name, start.problem.question
    kind, sources = f"hwopt walls {name}", start.problem.sources
    if not start.feasible:
        return sheet.page(
            kind, name, question, sheet.refusal(start.infeasibility or start.headline), [], command, sources
        )
    goal, certain = start.problem.objective, all(each.outcome is Outcome.proved for each in answer.answers)
    first, last = (pretty(each.objective, goal.unit, 4) for each in (answer.answers[0], answer.answers[-1]))
    order = ", then ".join(" and ".join(map(budget_words, each.names)) for each in answer.walls) or "no budget"
    top = sheet.answer(
        f"{order} binds; {pieces.words(goal.name, goal.unit)} as asked and without",
        f"{first} to {last}" if answer.walls else first,
        "proved" if certain else "partly proved",
        certain,
        f"{len(answer.answers)} answers, each with its own proof",
    )
    told = [li(sentence(answer, place)) for place in range(len(answer.walls))]
    idle = f"Never binds: {', '.join(map(budget_words, answer.idle))}." if answer.idle else ""
    sections = [
        sheet.section(
            "The walls, in the order in which they come", element("ol", told), p(end(answer)), p(idle) if idle else None
        ),
        _answers(answer),
        *(
            sheet.section(
                f"Where chip time goes: {words}",
                pieces.parts("chip time", [(name, "", share) for name, share in shares(each).items() if share >= 1e-3]),
                wide=False,
            )
            for words, each in zip(stage_words(answer), answer.answers, strict=True)
            if shares(each)
        ),
        sheet.section("How good is it", pieces.terms([("Of what", MODEL_ONLY)])),
    ]
    return sheet.page(kind, name, question, top, sections, command, sources)


def _answers(answer: Walls) -> Child:
    goal = answer.start.problem.objective
    known = {name: words for name, words in METRICS.items() if hasattr(answer.start.report, name) and name != goal.name}
    heads = ("", pieces.words(goal.name, goal.unit), "gap", "chips", *known.values())
    rows: list[list[Child]] = [
        [words, pretty(each.objective, goal.unit, 5), gap_words(each), f"{float(each.built.cluster.chips):,.0f}",
         *(value_words(each, name) for name in known)]
        for words, each in zip(stage_words(answer), answer.answers, strict=True)
    ]  # fmt: skip
    return sheet.section("The answer between walls", pieces.table("answers", heads, rows))
