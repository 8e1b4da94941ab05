"""Answer to a portfolio as text and as JSON: shared components, a table of members, one machine's bill, the proof."""

import math
from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from hwopt.declared import document, plain
from hwopt.design.portfolio import OF_ALL
from hwopt.model.report import ServingReport, TrainingReport
from hwopt.output.answer import Answer, Named, OnPage, Section, Sentences, Table
from hwopt.output.answers.optimum import budget_section, design_table, proof_words, solution_document
from hwopt.output.text.bill import bill_section, joint_bill, rented
from hwopt.output.text.choices import choice_section
from hwopt.output.text.cluster import breakdown_section
from hwopt.output.text.layout import MODEL_ONLY, REPRODUCE
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_line
from hwopt.output.text.verdict import purchase
from hwopt.solver.portfolio.solution import MemberAnswer, PortfolioSolution
from hwopt.solver.solution import Outcome
from hwopt.units import pretty

COST = "cost_usd"
"""Name of the portfolio's objective: the weighted total cost of all members."""


@singledispatch
def pace(report: Any) -> str:
    """Return the run time of a training machine or the token rate of a serving machine, as text."""
    raise TypeError(f"no words for the pace of a {type(report).__name__}")


@pace.register
def _(report: TrainingReport) -> str:
    return f"{pretty(float(report.run_time_s), 's', 4)} a run"


@pace.register
def _(report: ServingReport) -> str:
    return pretty(float(report.tokens_per_s), "token/s", 4)


def portfolio_answer(solution: PortfolioSolution) -> Answer:
    """Return the answer to a portfolio (a list of questions with shared components)."""
    portfolio, unit, proof = solution.portfolio, solution.portfolio.unit, solution.certificate
    least = pretty(solution.objective, unit, 4) if solution.members else ""
    answers = [each.solution for each in solution.members]
    sections = [
        Section("Reason", [Sentences([solution.infeasibility] if solution.infeasibility else [], "", "")], False, True),
        Section("", [OnPage(None, [f"Total cost: {least}"] if least else [])], False, True),
        *(_members(solution) if solution.members else []),
        *([bill_section(joint_bill(answers), rented(answers[0]))] if answers else []),
        choice_section(solution.choices, unit),
        Section("How good is it", [Named([
            *proof_words(proof, unit), *_sharing_words(solution), ("validity", MODEL_ONLY),
            ("reproduce", f"{REPRODUCE}, where ANSWER.json is this answer with --json"),
        ])]),
    ]  # fmt: skip
    bought = (
        f"{purchase(answers)} Total cost of {len(answers)} members: {least}."
        if solution.feasible
        else solution.headline
    )
    return Answer(
        "optimize", portfolio_document(solution), portfolio.question, bought,
        ("least total cost", least if solution.feasible else ""),
        (solution.outcome.status, solution.outcome is Outcome.proved, f"{len(solution.members)} members share their components"),
        sections, portfolio.sources, solution.feasible, question=portfolio.name,
        details=solution.headline if solution.feasible else "",
    )  # fmt: skip


def _members(solution: PortfolioSolution) -> Iterator[Section]:
    """Return the sections on shared components, members, costs and budgets."""
    unit, members = solution.portfolio.unit, solution.members
    yield Section("Shared components", [design_table(solution.parts)])
    heads = ("member", "quantity", "chips", "speed", "cost", "cost with its own components")
    plans = [(each.name, plan_line(each.solution.report, each.solution.plan)) for each in members]
    yield Section("Members", [Table("members", heads, [_cells(each, unit) for each in members]), Named(plans)])
    shares = [(each.name, pretty(each.cost, unit), each.cost / solution.objective) for each in members]
    yield breakdown_section("Cost by member", shares)
    yield budget_section("Joint budgets", solution.budgets, False)
    for each in members:
        own = [budget for budget in each.solution.budgets if not budget.name.endswith(OF_ALL)]
        yield budget_section(f"Budgets of {each.name}", own, solution.feasible, alone=False)


def _cells(each: MemberAnswer, unit: str) -> list[str]:
    """Return the row of a member. Its last cell is the minimum cost of the member with components of its own."""
    chips = float(each.solution.built.cluster.chips)
    alone = pretty(each.alone, unit) if each.alone is not None else f"at least {pretty(each.alone_bound, unit)}"
    return [
        each.name, f"{each.weight:g} {each.counted}", f"{chips:,.0f}", pace(each.solution.report), pretty(each.cost, unit),
        "" if math.isnan(each.alone_bound) else alone,
    ]  # fmt: skip


def _sharing_words(solution: PortfolioSolution) -> list[tuple[str, str]]:
    """Return a bound on the cost of sharing, and the total in each member's best components."""
    unit, separate = solution.portfolio.unit, solution.separate_bound
    if len(solution.members) < 2 or not separate > 0.0:
        return []
    more = 100.0 * (solution.objective / separate - 1.0)
    sharing = f"at most {more:.2g} %: with components of its own for each member the total is at least {pretty(separate, unit, 4)}"
    each_best = [(f"on the best components of {each.name}", _on_its_parts(each, unit)) for each in solution.members
                 if each.on_its_parts is not None]  # fmt: skip
    return [("cost of sharing", sharing), *each_best]


def _on_its_parts(each: MemberAnswer, unit: str) -> str:
    """Return the total cost of all members with the components that are best for one of them, in words."""
    least = each.on_its_parts_bound or 0.0
    if each.on_its_parts is not None and math.isfinite(each.on_its_parts):
        return f"total cost {pretty(each.on_its_parts, unit, 4)} (best found)"
    return (
        "another member has no feasible design"
        if math.isinf(least)
        else f"total cost at least {pretty(least, unit, 4)}"
    )


def portfolio_document(solution: PortfolioSolution) -> dict[str, Any]:
    """Return the answer to a portfolio (a list of questions with shared components) as JSON."""
    members = [
        document(each) | {"share": number(each.cost / solution.objective), "answer": solution_document(each.solution)}
        for each in solution.members
    ]
    return {
        "question": solution.portfolio.question,
        "status": solution.outcome.status,
        **document(solution),
        "objective": {"name": COST, "value": number(solution.objective), "unit": solution.portfolio.unit},
        "members": members,
        "bill": plain(joint_bill(each.solution for each in solution.members)),
        "reproduce": REPRODUCE,
        "sources": list(solution.portfolio.sources),
    }
