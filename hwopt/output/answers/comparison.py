"""Answer of `hwopt compare`: one design question answered on several chips, side by side."""

from collections.abc import Sequence
from dataclasses import replace

from hwopt import escape
from hwopt.analysis.comparison import ChipResult
from hwopt.output.answer import Answer, Lines, Named, OnPage, Section
from hwopt.output.html import components
from hwopt.output.html.live import NOTE, LiveMachine, live
from hwopt.output.schema.elements import NUMBER, TEXT, listed, maybe, pair, record, word
from hwopt.output.schema.keys import Keys, goal_of
from hwopt.output.schema.machines import FEASIBLE
from hwopt.output.text.choices import CANDIDATE, candidate_table, tie_words
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.shadow_prices import PRICED
from hwopt.output.text.token_prices import million_words
from hwopt.solver.solution import Outcome

KINDS = {"datasheet": "list", "measured": "paid", "paper": "published", "derived": "derived"}
"""Type of a price's source -> its label in the table; any other type is an estimate."""


def price_kind(row: ChipResult) -> str:
    """Return the type of a chip's price (list, paid, published, derived or estimate); empty without a price."""
    return "" if row.price is None else KINDS.get(row.price.kind, "estimate")


def binding(row: ChipResult) -> list[str]:
    """Return the names of the binding budgets, those with the largest elasticity first."""
    if row.solution is None or not row.feasible:
        return []
    worth = [each for each in row.solution.budgets if each.elasticity > PRICED]
    return [budget_words(each.name) for each in sorted(worth, key=lambda each: -each.elasticity)]


def to_win(row: ChipResult) -> str:
    """Return the change in chip price or in software speed that makes a losing chip the cheapest; empty for the best."""
    if row.solution is None or not row.share or row.price is None:
        return ""
    ways = []
    if row.winning_price_usd is not None:
        less = 100 * (1.0 - row.winning_price_usd / row.price.si)
        ways.append(f"chip price {row.winning_price_usd:,.0f} $ instead of {row.price.si:,.0f} $ ({-less:.0f} %)")
    if row.winning_level is not None:
        ways.append(f"steps {100 * (1.0 - row.winning_level):.0f} % shorter")
    speed = " or speed" if row.trains else ""
    return " or ".join(ways) or f"no break-even by price{speed} alone"


_CHIP = Keys({
    "chip": (TEXT, lambda row, _: row.chip),
    "outcome": (word("refused", *Outcome.__members__), lambda row, _: row.solution.outcome if row.solution else "refused"),
    "status": (word("refused", *dict.fromkeys(each.status for each in Outcome)),
               lambda row, _: row.solution.outcome.status if row.solution else "refused"),
    "message": (TEXT, lambda row, _: row.refused or (_why_not(row) if row.solution else "")),
    "objective": (maybe(NUMBER), lambda _, known: known and known.objective),
    "lower_bound": (maybe(NUMBER), lambda _, known: known and known.certificate.lower_bound),
    **CANDIDATE.keys,
    "binding": (listed(TEXT), lambda row, _: binding(row)),
    "price_usd": (maybe(NUMBER), lambda row, _: row.price and row.price.si),
    "price_kind": (maybe(TEXT), lambda row, _: price_kind(row) or None),
    "price_range_usd": (maybe(pair(NUMBER)),
                        lambda row, _: [row.price.low, row.price.high] if row.price and row.price.low is not None else None),
    "winning_price_usd": (maybe(NUMBER), lambda row, _: row.winning_price_usd),
    "winning_step_time_share": (maybe(NUMBER), lambda row, _: row.winning_level),
})  # fmt: skip
COMPARE = Keys({
    "objective": (maybe(record({"name": TEXT, "unit": TEXT})), lambda _, asked: asked and goal_of(asked.problem)),
    "feasible": (FEASIBLE, lambda rows, _: any(row.feasible for row in rows)),
    "approximations": (listed(TEXT), lambda _, asked: asked.problem.provenance.approximations if asked else []),
    "chips": (listed(_CHIP.schema),
              lambda rows, _: [_CHIP.document(row, row.solution if row.feasible else None) for row in rows]),
})  # fmt: skip
"""Keys of `compare --json`: one entry a chip, the best first."""


def comparison_answer(rows: Sequence[ChipResult], movable: Sequence[LiveMachine] = ()) -> Answer:
    """Return the answer of `hwopt compare`.

    **Arguments:** `rows`: one result a chip, the best first; `movable`: for a page, the machines of its live part.
    """
    asked, asking = next(((row.solution, row.chip) for row in rows if row.solution is not None), (None, ""))
    document = COMPARE.document(rows, asked)
    rows = [replace(row, name=escape.line(row.name)) for row in rows]
    answers = [row for row in rows if row.feasible]
    if asked is None:
        title = "\n".join(f"{row.chip}: {row.refused}" for row in rows)
        return Answer("compare", document, title, "No chip has an answer.", feasible=False)
    goal, width = asked.problem.objective, max(len(row.chip) for row in rows)
    left_out = "".join(f"; {each}" for each in asked.problem.provenance.approximations)
    name, question = components.words(goal.name, goal.unit), asked.problem.question
    table = candidate_table("chip", answers, goal.unit, name, {
        "chip price": ["-" if row.price is None else f"{row.price.si:,.0f} $" for row in answers],
        "price source": [price_kind(row) for row in answers],
        "binding": [", ".join(binding(row)) or "none" for row in answers],
    })  # fmt: skip
    of_price = "" if any(row.trains for row in answers) else "; a service has no steps to shorten: price only"
    sections = (
        Section("Every chip", [table], titled=False),
        Section("Try other settings", [OnPage(live(movable))], note=NOTE),
        Section(f"Break-even with the best chip (same design{of_price})",
                [Named([(row.chip, to_win(row)) for row in answers if row.share], width)]),
        Section("No answer", [Named([(row.chip, _why_not(row)) for row in rows if not row.feasible], width)]),
        Section("How good is it", [Lines([f"{MODEL_ONLY}; constants: {asked.problem.provenance.mode}"])], titled=False),
    )  # fmt: skip
    title = f"{question.replace(f' {asking} as sold', ' each chip as sold')}{left_out}"
    best = (table.rows[0][0], table.rows[0][1]) if answers else ("", "")
    if answers and goal.name == "cost_per_token_usd" and answers[0].solution is not None:
        best = (best[0], million_words(answers[0].solution.report))
    verdict = f"Best: {best[0]}, {name} {best[1]}; {_proved(answers)}. {tie_words(answers)}".rstrip()
    verdict = verdict if answers else "No chip has a feasible design."
    badge = (
        _proved(answers),
        all(row.solution is not None and row.solution.outcome is Outcome.proved for row in answers),
        "",
    )
    return Answer("compare", document, title, verdict, best, badge, sections, asked.problem.sources, bool(answers))


def _proved(answers: Sequence[ChipResult]) -> str:
    """Return which answers are not proved optimal.

    The true optimum of such a chip may be below that of a chip ranked higher.
    """
    open_ = [row.chip for row in answers if row.solution is not None and row.solution.outcome is not Outcome.proved]
    return f"not certified: {', '.join(open_)}" if open_ else "each chip's answer is certified optimal within its gap"


def _why_not(row: ChipResult) -> str:
    if row.solution is None:
        return row.refused
    return row.solution.infeasibility or row.solution.headline
