"""Candidates side by side, such as chips, and the outcome of each combination of choices, in words and as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hwopt import escape
from hwopt.analysis.comparison import Candidate, candidates_of
from hwopt.declared import plain
from hwopt.output.answer import Section, Sentences, Table
from hwopt.output.schema.elements import NUMBER, YES_OR_NO, answer, by_name, listed, maybe, pair
from hwopt.output.schema.keys import Keys
from hwopt.output.schema.machines import every_output
from hwopt.output.text.bill import SystemCount, systems
from hwopt.output.text.customary_units import amount
from hwopt.output.text.layout import budget_words
from hwopt.output.text.token_prices import million_words
from hwopt.output.text.verdict import ranged, run_time
from hwopt.solver.solution import Branch, BranchOutcome
from hwopt.units import pretty

MOST_SHOWN = 24
"""Maximum number of combinations that a screen lists; the JSON has all."""

BOUNDED = (
    "Candidates other than the best show the best design of a bounded search: one run of the heuristic, with convex programs for "
    "its best designs. No design of such a candidate is better by more than its optimality gap."
)
"""Sentence on figures of combinations that are not the best."""

_EQUAL = 1e-6
"""Relative difference up to which two objectives are called equal: that of numbers rounded to 32 bits."""


def exceeded(row: Candidate | Branch) -> dict[str, float]:
    """Return the budgets that the nearest design of a candidate exceeds, each with the excess as a share of its limit."""
    budgets = row.solution.budgets if row.solution else ()
    return {each.name: each.used / each.limit - 1.0 for each in budgets if each.status == "exceeded"}


CANDIDATE = Keys({
    "share_above_best": (maybe(NUMBER), lambda row, _: row.share),
    "tied": (YES_OR_NO, lambda row, _: row.tied),
    "run_time_interval_s": (maybe(pair(NUMBER)), lambda row, known: (known and row.around and row.trains
                            and list(row.around.times(float(known.report.run_time_s)))) or None),
    "gap": (maybe(NUMBER), lambda _, known: known and known.certificate.gap),
    "chips": (maybe(NUMBER), lambda _, known: known and known.built.cluster.chips),
    "systems": (listed(answer(SystemCount)), lambda _, known: systems(known) if known else []),
    **{name: (every_output()[name], lambda _, known, name=name: known and getattr(known.report, name, None))
       for name in ("run_time_s", "peak_power_w", "capex_usd")},
    "exceeded": (by_name(NUMBER), lambda row, _: exceeded(row)),
})  # fmt: skip
"""Keys of a candidate. Their functions take it and its solution, None where that is not feasible."""


def candidate_table(
    what: str, rows: Sequence[Candidate], unit: str, objective: str, further: Mapping[str, Sequence[str]]
) -> Table:
    """Return the table of candidates with a feasible design, without columns that are empty.

    **Arguments:**

    - `what`: first heading, such as chip.
    - `rows`: the candidates, the best first.
    - `unit`, `objective`: unit and name of the objective.
    - `further`: more columns by heading; the last is text.
    """
    known = [(row, row.solution, row.solution.report) for row in rows if row.solution is not None]
    columns = {
        what: [escape.line(row.name) for row in rows],
        objective: [amount(each.objective, unit, 5) for _, each, _ in known],
        "above best": [f"+{100 * row.share:.1f} %{' (tie)' * row.tied}" if row.share else "best" for row in rows],
        "optimality gap": [
            "-" if (gap := each.certificate.gap) is None else f"{100 * gap:.2g} %" for _, each, _ in known
        ],
        "systems": [
            f"{' + '.join(one.slices or f'{one.count:,.0f} x {one.name}' for one in systems(each))} "
            f"({float(each.built.cluster.chips):,.0f} chips)".lstrip()
            for _, each, _ in known
        ],
        "run time": [run_time(report, row.around) if row.trains else "-" for row, _, report in known],
        "price": ["-" if row.trains else ranged(million_words(report), row.around) for row, _, report in known],
        "peak power": [pretty(float(report.peak_power_w), "W") for _, _, report in known],
        "capital": [pretty(float(report.capex_usd), "USD") for _, _, report in known],
        **further,
    }
    kept = {head: cells for head, cells in columns.items() if any(cell != "-" for cell in cells) or not rows}
    align = "".join("l" if head in (what, "systems", list(columns)[-1]) else "r" for head in kept)
    return Table(f"{what}s", list(kept), list(zip(*kept.values(), strict=True)), align)


def tie_words(rows: Sequence[Candidate]) -> str:
    """Return which candidates tie with the best, the first one, in a sentence; empty where none does."""
    best, *tied = [escape.line(row.name) for row in rows if row.tied or row is rows[0]] or [""]
    every = f"{best} and {'each of ' * (len(tied) > 1)}{', '.join(tied)}"
    return f"Tie, within each other's range (80 %): {every}." if tied else ""


def choice_section(rows: Sequence[Branch], unit: str, objective: str = "objective") -> Section:
    """Return the section on the combinations of categorical choices, the best first; empty without choices.

    Combinations with a feasible design are in a table, the others in a list. **Arguments:** `objective`: its name in words.
    """
    every = list(zip(rows, candidates_of(rows), strict=True))
    built = [(row, each) for row, each in every if each.feasible]
    left = [(row.name, outcome_words(row, unit, rows[0])) for row, each in every if not each.feasible]
    fates = {"outcome": [row.fate.value for row, _ in built]}
    table = candidate_table("candidate", [each for _, each in built], unit, objective, fates)
    others = Table("the choices", ("combination", "outcome"), left, "ll")
    tables = [replace(each, most=MOST_SHOWN) for each in (table, others) if each.rows]
    bounded = any(each.solution and each.solution.certificate.stopped == "node limit" for _, each in built[1:])
    return Section("Choices", [*tables, Sentences([BOUNDED] * bounded)])


def winner_words(rows: Sequence[Branch]) -> str:
    """Return the name of the best combination, the first row, and the names of those that are equal to it; empty without one."""
    if not rows or rows[0].fate is not BranchOutcome.best:
        return ""
    equal = [each.name for each in rows[1:] if _excess(each, rows[0]) == 0.0]
    more = f" and {len(equal) - 1} more" if len(equal) > 1 else ""
    return f"with {rows[0].name}" + (f" (equal: {equal[0]}{more})" if equal else "")


def _excess(each: Branch, best: Branch) -> float:
    """Return by what share the objective of a combination exceeds the best one, 0 where they are equal; NaN if unknown."""
    if each.objective is None or best.objective is None:
        return math.nan
    over = each.objective - best.objective
    return (
        0.0 if abs(over) <= _EQUAL * abs(best.objective) else over / abs(best.objective) if best.objective else math.inf
    )


def outcome_words(each: Branch, unit: str, best: Branch) -> str:
    """Return the outcome of a combination of categorical choices in words. **Arguments:** `best`: the best combination."""
    also = f"; {each.achieved}" if each.achieved else ""
    if each.fate is BranchOutcome.best and each.objective is not None:
        return f"{amount(each.objective, unit, 5)}: the best{also}"
    if each.fate is BranchOutcome.refused:
        return f"{each.fate.value}: {each.refused}"
    over = [f"{budget_words(name)} by {100 * share:.2g} %" for name, share in exceeded(each).items()]
    near = f"; the nearest design found exceeds {' and '.join(over)}" if over else ""
    if each.lower_bound is None:
        return f"{each.fate.value}{near}"
    bound = f"{each.fate.value}: lower bound {amount(each.lower_bound, unit, 5)}{near}"
    if each.objective is None:
        return bound
    found, over = amount(each.objective, unit, 5), _excess(each, best)
    if over == 0.0:
        return f"{found}: equal to the best{also}"
    if each.objective == each.lower_bound and math.isfinite(over):
        return f"{found}: {100 * over:.3g} % above the best{also}"
    return f"{bound}, best design found {found}"


def choices_document(rows: Sequence[Branch]) -> list[dict[str, Any]]:
    """Return the outcomes of the combinations of categorical choices for JSON."""
    known = lambda each: CANDIDATE.document(each, each.solution if each.feasible else None) if each.solution else {}
    return [plain(row) | known(each) for row, each in zip(rows, candidates_of(rows), strict=True)]
