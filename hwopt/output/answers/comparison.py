"""Answer of `hwopt compare`: one design question answered on several chips, side by side."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hwopt import escape
from hwopt.analysis.comparison import ChipResult
from hwopt.output.answer import Answer, Lines, Named, Section, Table
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.parts import number
from hwopt.output.text.shadow_prices import PRICED
from hwopt.solver.solution import Outcome
from hwopt.units import pretty

KINDS = {"datasheet": "list", "measured": "paid", "paper": "published", "derived": "derived"}
"""Type of a price's source -> its label in the table; any other type is an estimate."""

METRICS = ("run_time_s", "peak_power_w", "capex_usd")
"""Metrics shown for each chip, where its report has them."""


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
        ways.append(f"a chip for {row.winning_price_usd:,.0f} $ instead of {row.price.si:,.0f} ({less:.0f} % less)")
    if row.winning_level is not None:
        ways.append(f"steps {100 * (1.0 - row.winning_level):.0f} % shorter")
    speed = " and no speed of its software" if row.trains else ""
    return " or ".join(ways) or f"no price of the chip{speed} alone would do"


def comparison_document(rows: Sequence[ChipResult]) -> dict[str, Any]:
    """Return the answer of `compare` as JSON: one entry a chip, the best first."""
    asked = next((row.solution for row in rows if row.solution is not None), None)
    goal = None if asked is None else asked.problem.objective
    return {
        "objective": None if goal is None else {"name": goal.name, "unit": goal.unit},
        "feasible": any(row.feasible for row in rows),
        "approximations": [] if asked is None else asked.problem.provenance.approximations,
        "chips": [_entry(row) for row in rows],
    }


def _entry(row: ChipResult) -> dict[str, Any]:
    solution, price = row.solution, row.price
    known = solution if row.feasible else None
    report = None if known is None else known.report
    return {
        "chip": row.chip,
        "outcome": "refused" if solution is None else solution.outcome.name,
        "status": "refused" if solution is None else solution.outcome.status,
        "message": row.refused or ("" if solution is None else solution.infeasibility or solution.headline),
        "objective": None if known is None else number(known.objective),
        "share_above_best": row.share,
        "lower_bound": None if known is None else known.certificate.lower_bound,
        "gap": None if known is None else known.certificate.gap,
        "chips": None if known is None else number(known.built.cluster.chips),
        **{name: None if report is None or not hasattr(report, name) else number(getattr(report, name)) for name in METRICS},
        "binding": binding(row),
        "price_usd": None if price is None else price.si,
        "price_kind": price_kind(row) or None,
        "price_range_usd": None if price is None or price.low is None else [price.low, price.high],
        "winning_price_usd": row.winning_price_usd,
        "winning_step_time_share": row.winning_level,
    }  # fmt: skip


def comparison_answer(rows: Sequence[ChipResult]) -> Answer:
    """Return the answer of `hwopt compare`. **Arguments:** `rows`: one result a chip, the best first."""
    document = comparison_document(rows)
    rows = [replace(row, chip=escape.line(row.chip)) for row in rows]
    answers = [row for row in rows if row.feasible]
    asked = next((row.solution for row in rows if row.solution is not None), None)
    if asked is None:
        title = "\n".join(f"{row.chip}: {row.refused}" for row in rows)
        return Answer("compare", document, title, "", ("", ""), ("", False, ""), (), feasible=False)
    goal, width = asked.problem.objective, max(len(row.chip) for row in rows)
    left_out = "".join(f"; {each}" for each in asked.problem.provenance.approximations)
    heads = ("chip", goal.name, "above best", "gap", "chips", "run time", "full load", "a chip", "price is", "binds")
    cells = [_cells(row, goal.unit) for row in answers]
    table = Table("chips", heads, cells, "l" + "r" * 8 + "l", (width, 14, 10, 8, 7, 10, 9, 9, 9))
    sections = (
        Section("Every chip", [table], titled=False),
        Section("What would have to change for it to win, machine and plan as they are",
                [Named([(row.chip, to_win(row)) for row in answers if row.share], width)]),
        Section("No answer", [Named([(row.chip, _why_not(row)) for row in rows if not row.feasible], width)]),
        Section("How good is it", [Lines([f"{MODEL_ONLY}; constants: {asked.problem.provenance.mode}"])], titled=False),
    )  # fmt: skip
    title = f"{goal.name} of one question on each chip, {_proved(answers)}{left_out}"
    best = (cells[0][0], cells[0][1]) if cells else ("", "")
    badge = (
        _proved(answers),
        all(row.solution is not None and row.solution.outcome is Outcome.proved for row in answers),
        "",
    )
    return Answer("compare", document, title, "", best, badge, sections, asked.problem.sources, bool(answers))


def _cells(row: ChipResult, unit: str) -> list[str]:
    solution = row.solution
    assert solution is not None
    report, gap = solution.report, solution.certificate.gap
    of = lambda name, unit: pretty(float(getattr(report, name)), unit) if hasattr(report, name) else "-"
    return [
        row.chip, pretty(solution.objective, unit, 5), "the best" if not row.share else f"+{100 * row.share:.1f} %",
        "-" if gap is None else f"{100 * gap:.2g} %", f"{float(solution.built.cluster.chips):,.0f}", of("run_time_s", "s"),
        of("peak_power_w", "W"), "-" if row.price is None else f"{row.price.si:,.0f} $", price_kind(row),
        ", ".join(binding(row)) or "no budget",
    ]  # fmt: skip


def _proved(answers: Sequence[ChipResult]) -> str:
    """Return which answers are not proved optimal.

    The true optimum of such a chip may be below that of a chip ranked higher.
    """
    open_ = [row.chip for row in answers if row.solution is not None and row.solution.outcome is not Outcome.proved]
    return f"not proved: {', '.join(open_)}" if open_ else "each proved"


def _why_not(row: ChipResult) -> str:
    if row.solution is None:
        return row.refused
    return row.solution.infeasibility or row.solution.headline
