"""Chips side by side, as one screen and as JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hwopt import escape
from hwopt.optim.solution import Outcome
from hwopt.report.budget_prices import PRICED
from hwopt.report.layout import MODEL_ONLY, budget_words, heading, wrapped
from hwopt.report.parts import number
from hwopt.study.comparison import Row
from hwopt.units import pretty

KINDS = {"datasheet": "list", "measured": "paid", "paper": "published", "derived": "derived"}
"""How a price was come by -> its word in the table; all else is an estimate."""

METRICS = ("run_time_s", "peak_power_w", "capex_usd")
"""Of a machine's report, as far as its kind has them."""


def price_kind(row: Row) -> str:
    """Whether a chip's price is a list price or a guess."""
    return "" if row.price is None else KINDS.get(row.price.kind, "estimate")


def binding(row: Row) -> list[str]:
    """Budgets that bind, the one that matters most first."""
    if row.solution is None or not row.feasible:
        return []
    worth = [each for each in row.solution.budgets if each.elasticity > PRICED]
    return [budget_words(each.name) for each in sorted(worth, key=lambda each: -each.elasticity)]


def to_win(row: Row) -> str:
    """What would have to change for a chip that is not the best."""
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


def comparison_document(rows: Sequence[Row]) -> dict[str, Any]:
    """An answer of `compare`: an entry a chip, the best first."""
    asked = next((row.solution for row in rows if row.solution is not None), None)
    goal = None if asked is None else asked.problem.objective
    return {
        "objective": None if goal is None else {"name": goal.name, "unit": goal.unit},
        "feasible": any(row.feasible for row in rows),
        "approximations": [] if asked is None else asked.problem.provenance.approximations,
        "chips": [_entry(row) for row in rows],
    }


def _entry(row: Row) -> dict[str, Any]:
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


def comparison_screen(rows: Sequence[Row]) -> str:
    """One screen for a comparison."""
    rows = [replace(row, chip=escape.line(row.chip)) for row in rows]
    answers = [row for row in rows if row.feasible]
    asked = next((row.solution for row in rows if row.solution is not None), None)
    if asked is None:
        return "\n".join(f"{row.chip}: {row.refused}" for row in rows)
    goal, width = asked.problem.objective, max(len(row.chip) for row in rows)
    left_out = "".join(f"; {each}" for each in asked.problem.provenance.approximations)
    lines = [f"{goal.name} of one question on each chip, {_proved(answers)}{left_out}", ""]
    columns = f"{goal.name:>14}  {'above best':>10}  {'gap':>8}  {'chips':>7}  {'run time':>10}  {'full load':>9}"
    lines.append(f"  {'chip':<{width}}  {columns}  {'a chip':>9}  {'price is':>9}  binds")
    lines += [_line(row, width, goal.unit) for row in answers]
    others = [row for row in answers if row.share]
    if others:
        lines += heading("What would have to change for it to win, machine and plan as they are")
        lines += [wrapped(to_win(row), f"  {row.chip:<{width}}  ", " " * (width + 4)) for row in others]
    rest = [row for row in rows if not row.feasible]
    if rest:
        lines += heading("No answer")
        lines += [wrapped(_why_not(row), f"  {row.chip:<{width}}  ", " " * (width + 4)) for row in rest]
    return "\n".join([*lines, "", f"  {MODEL_ONLY}; constants: {asked.problem.provenance.mode}"])


def _line(row: Row, width: int, unit: str) -> str:
    solution = row.solution
    assert solution is not None
    report, gap = solution.report, solution.certificate.gap
    of = lambda name, unit: pretty(float(getattr(report, name)), unit) if hasattr(report, name) else "-"
    above = "the best" if not row.share else f"+{100 * row.share:.1f} %"
    price = "-" if row.price is None else f"{row.price.si:,.0f} $"
    return (
        f"  {row.chip:<{width}}  {pretty(solution.objective, unit, 5):>14}  {above:>10}  "
        f"{'-' if gap is None else f'{100 * gap:.2g} %':>8}  {float(solution.built.cluster.chips):>7,.0f}  "
        f"{of('run_time_s', 's'):>10}  {of('peak_power_w', 'W'):>9}  {price:>9}  {price_kind(row):>9}  "
        f"{', '.join(binding(row)) or 'no budget'}"
    )


def _proved(answers: Sequence[Row]) -> str:
    """How many of the answers are proved; one that is not may be beaten by a chip above it."""
    open_ = [row.chip for row in answers if row.solution is not None and row.solution.outcome is not Outcome.proved]
    return f"not proved: {', '.join(open_)}" if open_ else "each proved"


def _why_not(row: Row) -> str:
    if row.solution is None:
        return row.refused
    return row.solution.infeasibility or row.solution.headline
