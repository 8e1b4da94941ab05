"""Answer to a portfolio as text and as JSON: shared components, a table of members, one machine's bill, the proof."""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from hwopt.declared import plain
from hwopt.design.portfolio import OF_ALL
from hwopt.model.report import ServingReport, TrainingReport
from hwopt.output.answers.documents import certificate_document, solution_document
from hwopt.output.answers.screens import bound_of, residuals
from hwopt.output.text.bill import joint_bill, rented, rows_table
from hwopt.output.text.choices import choice_lines, choices_document
from hwopt.output.text.layout import (
    MODEL_ONLY,
    REPRODUCE,
    REPRODUCED,
    budget_line,
    design_line,
    heading,
    part_lines,
    wrapped,
)
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_line
from hwopt.output.text.shadow_prices import price_words
from hwopt.solver.portfolio.solution import MemberAnswer, PortfolioSolution
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


def portfolio_screen(solution: PortfolioSolution) -> str:
    """Return the answer to a portfolio (a list of questions) as text for a terminal."""
    portfolio, unit = solution.portfolio, solution.portfolio.unit
    lines = [portfolio.question, "", solution.headline, *filter(None, [solution.infeasibility])]
    if solution.members:
        lines += [f"{COST} = {pretty(solution.objective, unit, 6)}"]
        lines += heading("Parts, the same for all")
        for name, each in solution.parts.items():
            bound = f"  <- {bound_of(each)}" if each.at_bound else ""
            lines.append(design_line(name, each.value, each.unit, each.lower, each.upper, bound))
        lines += [*heading("Members"), *_table(_cells(solution))]
        lines += [f"  {each.name}: {plan_line(each.solution.report, each.solution.plan)}" for each in solution.members]
        lines += heading("Who costs what")
        width = max(len(each.name) for each in solution.members)
        shares = [(each.name, pretty(each.cost, unit), each.cost / solution.objective) for each in solution.members]
        lines += part_lines(shares, name=width)
        lines += heading("Budgets of all together") if solution.budgets else []
        lines += [budget_line(b.name, b.used, b.limit, b.unit, "") for b in solution.budgets]
        for each in solution.members:
            own = [b for b in each.solution.budgets if not b.name.endswith(OF_ALL)]
            lines += heading(f"Budgets of {each.name}") if own else []
            lines += [budget_line(b.name, b.used, b.limit, b.unit, price_words(b, alone=False)) for b in own]
        answers = [each.solution for each in solution.members]
        lines += rows_table(joint_bill(answers), rented(answers[0]))
    lines += choice_lines(solution.choices, unit)
    lines += [*heading("How good is it"), wrapped(solution.certificate.scope), *_proof_lines(solution)]
    return "\n".join([*lines, f"  {MODEL_ONLY}", REPRODUCED])


def _cells(solution: PortfolioSolution) -> list[list[str]]:
    """Return the table of members. Its last column is the minimum cost of each member with components of its own."""
    unit = solution.portfolio.unit
    rows = [["member", "paid for", "chips", "pace", "cost", "on parts of its own"]]
    for each in solution.members:
        chips = float(each.solution.built.cluster.chips)
        alone = pretty(each.alone, unit) if each.alone is not None else f"{pretty(each.alone_bound, unit)} or more"
        alone = "" if math.isnan(each.alone_bound) else alone
        rows.append([
            each.name, f"{each.weight:g} {each.counted}", f"{chips:,.0f}", pace(each.solution.report), pretty(each.cost, unit),
            alone,
        ])  # fmt: skip
    return rows


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of text: the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _proof_lines(solution: PortfolioSolution) -> list[str]:
    """Return the certificate, a bound on the cost of sharing, and the total in each member's best components."""
    proof, unit = solution.certificate, solution.portfolio.unit
    if not solution.members:
        return []
    bound = "no bound"
    if proof.gap is not None and proof.lower_bound is not None:
        bound = f"no list is below {pretty(proof.lower_bound, unit, 6)}: gap {100 * proof.gap:.2g} %"
    lines = [f"  {residuals(proof)}; {bound}"]
    separate = solution.separate_bound
    if len(solution.members) > 1 and separate > 0.0:
        more = 100.0 * (solution.objective / separate - 1.0)
        lines.append(
            f"  parts of their own would cost {pretty(separate, unit, 6)} or more: sharing them costs {more:.2g} % at most"
        )
        lines += [f"  in the parts best for {each.name}: {_on_its_parts(each, unit)}" for each in solution.members
                  if each.on_its_parts is not None]  # fmt: skip
    return lines


def _on_its_parts(each: MemberAnswer, unit: str) -> str:
    """Return the total cost of all members with the components that are best for one of them, in words."""
    least = each.on_its_parts_bound or 0.0
    if each.on_its_parts is not None and math.isfinite(each.on_its_parts):
        return f"all cost {pretty(each.on_its_parts, unit, 6)} (best found)"
    return "another member has no design" if math.isinf(least) else f"all cost {pretty(least, unit, 6)} or more"


def portfolio_document(solution: PortfolioSolution) -> dict[str, Any]:
    """Return the answer to a portfolio (a list of questions with shared components) as JSON."""
    proof, portfolio = solution.certificate, solution.portfolio
    answers = [each.solution for each in solution.members]
    known = lambda value: None if value is None else number(value)
    return {
        "question": portfolio.question,
        "outcome": solution.outcome.name,
        "status": solution.outcome.status,
        "message": solution.headline,
        "feasible": solution.feasible,
        "objective": {"name": COST, "value": number(solution.objective), "unit": portfolio.unit},
        "parts": {
            name: {key: getattr(each, key) for key in ("value", "unit", "lower", "upper", "at_bound")}
            for name, each in solution.parts.items()
        },
        "members": [
            {
                "name": each.name,
                "weight": each.weight,
                "counted": each.counted,
                "cost_usd": number(each.cost),
                "share": number(each.cost / solution.objective),
                "alone_usd": known(each.alone),
                "alone_lower_bound_usd": known(each.alone_bound),
                "all_on_its_parts_usd": known(each.on_its_parts),
                "all_on_its_parts_lower_bound_usd": known(each.on_its_parts_bound),
                "answer": solution_document(each.solution),
            }
            for each in solution.members
        ],
        **({"budgets": plain(solution.budgets)} if solution.budgets else {}),
        "bill": [row._asdict() for row in joint_bill(answers)],
        "infeasibility": solution.infeasibility,
        "certificate": certificate_document(proof),
        "reproduce": REPRODUCE,
        "separate_lower_bound": number(solution.separate_bound) if solution.members else None,
        "choices": choices_document(solution.choices),
        "sources": list(portfolio.sources),
    }
