"""Define the JSON Schemas of the answers to design problems, one for each command.

The commands are `optimize`, `compare` (several chips), `walls` (which budgets bind), `sensitivity`, `invest` (value of better
inputs) and `sources` (references).
"""

from __future__ import annotations

from hwopt.analysis.chance_constraints.value_of_information import Regret
from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.output.schema.elements import (
    INTEGER,
    NUMBER,
    TEXT,
    Schema,
    answer,
    by_name,
    either,
    listed,
    maybe,
    record,
    said,
    shared,
)
from hwopt.output.schema.machines import STATUS
from hwopt.output.text.bill import SystemCount
from hwopt.output.text.choices import CANDIDATE
from hwopt.solver.portfolio.solution import MemberAnswer, PortfolioSolution
from hwopt.solver.solution import Branch, BudgetUse, Solution

_NUMBERS = by_name(maybe(NUMBER))
_SOURCES = said(listed(TEXT), "references behind the numbers that were used")

REPRODUCED = {"reproduced": said(record({
    "file": TEXT, "numbers": said(INTEGER, "numbers that both have"), "largest_difference": said(NUMBER, "relative"),
    "where": said(TEXT, "place of the largest difference"),
}), "of `estimate --design`: how far the numbers are from those of the file")}  # fmt: skip

_BUDGET = answer(BudgetUse)

_GOAL = {
    "question": TEXT, "status": STATUS, "objective": shared("goal"), "certificate": shared("certificate"), "bill": shared("bill"),
    "choices": shared("choices"), "sources": _SOURCES, "reproduce": said(TEXT, "command that evaluates this answer again"),
}  # fmt: skip
"""Keys that the answer to a question and the answer to a portfolio have in common."""

SOLUTION = answer(Solution, {
    **_GOAL, "design": shared("design"), "plan": shared("plan"), "report": shared("report"),
    "systems": said(listed(answer(SystemCount)), "systems that are bought; none where the machine is not a product"),
    "chip": said(shared("chip"), "of a custom chip; null for chips as they are sold"),
    "price_of_parts": said(maybe(answer(IntegralityGap)), "what buying in whole units costs over continuous hardware"),
    "alternatives": listed(answer(AnswerAlternative)), "regret": maybe(answer(Regret)),
}, {"approximations": said(listed(TEXT), "parts of the workload that an estimate omits"), **REPRODUCED})  # fmt: skip

PORTFOLIO = answer(PortfolioSolution, {
    **_GOAL, "members": listed(answer(MemberAnswer, {"share": maybe(NUMBER), "answer": shared("solution")})),
}, REPRODUCED)  # fmt: skip

OPTIMIZE = either(shared("solution"), PORTFOLIO)

SOURCES = record({"question": TEXT, "sources": _SOURCES})

_CHOICE = answer(Branch, None, CANDIDATE.schema["properties"])

DEFINITIONS: dict[str, Schema] = {
    "solution": SOLUTION, "choices": said(listed(_CHOICE), "outcome of each combination of choices"),
}  # fmt: skip
