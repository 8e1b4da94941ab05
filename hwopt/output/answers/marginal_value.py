"""Answer of `hwopt invest`: the marginal value of every input."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwopt.analysis.marginal_value import MarginalValue, MarginalValues, ReoptimizedValue
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.calibration.intervals import Interval
from hwopt.declared import plain
from hwopt.output.answer import Answer, Lines, Part, Section, Sentences
from hwopt.output.html import components
from hwopt.output.html.markup import Child
from hwopt.output.text.customary_units import amount, one_more, shown, words
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.parts import number
from hwopt.output.text.token_prices import TOKENS, Work, unit_of_work
from hwopt.solver.solution import BudgetUse, Outcome
from hwopt.units import pretty

SHOWN = 5e-5
"""Saving from a 10 % improvement, as a share of the objective, below which an input is not listed."""


def invest_document(answer: MarginalValues, around: Interval | None) -> dict[str, Any]:
    """Return the answer of `invest` as JSON.

    Shares are fractions of the objective. `between` bounds the value of an input after re-optimization of machine and plan.
    """
    start = answer.start
    goal = start.problem.objective
    return {
        "question": start.problem.question,
        "approximations": start.problem.provenance.approximations,
        "objective": {"name": goal.name, "value": number(start.objective), "unit": goal.unit},
        "feasible": start.feasible,
        "message": start.infeasibility or start.headline,
        "lower_bound": start.certificate.lower_bound,
        "chosen": start.chosen,
        "step_time_factors": None if around is None else list(around.times(1.0)),
        "numbers": [_number(each, start.objective) for each in answer.numbers],
        "budgets": plain(start.budgets),
        "unknown": answer.unknown,
        "complete": not answer.over,
    }


def _number(each: MarginalValue, objective: float) -> dict[str, Any]:
    parameter = each.worth.parameter
    factor, unit = one_more(parameter.input)
    found = each.replanned
    return {
        "name": each.name,
        "words": words(parameter.input),
        "part": each.part,
        "value": parameter.input.value,
        "unit": parameter.input.unit,
        "shown": shown(parameter.input),
        "elasticity": number(each.elasticity),
        "one_more": {"words": unit, "factor": factor, "share": _moved(each, factor), "change": objective * _moved(each, factor)},
        "tenth_better": {"factor": each.worth.factor, "share": each.worth.share, "saves": each.worth.saves},
        "replanned": None if found is None else _replanned(found),
        "known": {"kind": parameter.range.kind or None, "low": parameter.range.low, "high": parameter.range.high,
                  "stated": parameter.range.stated, "source": parameter.range.source or None},
    }  # fmt: skip


def _replanned(found: ReoptimizedValue) -> dict[str, Any]:
    end = lambda each: {
        "factor": each.factor,
        "objective": number(each.objective),
        "lower_bound": number(each.bound),
        "same_plan": each.same,
        "proved": each.proved,
    }
    return {
        "between": [number(each) for each in found.between],
        "saves": [number(each) for each in found.gain],
        "costs": [number(each) for each in found.loss],
        "better": end(found.better),
        "worse": end(found.worse),
    }


def _moved(each: MarginalValue, factor: float) -> float:
    """Return the relative change of the objective when an input is multiplied by `factor`: factor^elasticity - 1."""
    return math.expm1(each.elasticity * math.log(factor))


def percent(share: float) -> str:
    """Return a share in percent; "no design" where it is infinite."""
    return "no design" if math.isinf(share) else f"{100 * share:.2g} %"


def between(ends: tuple[float, float]) -> str:
    """Return an interval of shares in words; one number where both ends print alike."""
    low, high = ("0" if each <= 0.0 else percent(each).removesuffix(" %") for each in ends)
    if high == "no design":
        return "no design is left" if low == high else f"{low} % or more"
    return f"{low} %" if low == high else f"{low} to {high} %"


def row_cells(each: MarginalValue, objective: float, unit: str, work: Work = TOKENS) -> list[str]:
    """Return the table row of an input: name, value, one more unit, absolute and relative change, saving from 10 % better."""
    of = each.worth.parameter.input
    factor, more = one_more(of)
    change = _moved(each, factor)
    sign = "-" if change < 0.0 else "+"
    costs = f"{sign}{amount(abs(change) * objective, unit, work=work)}"
    mark = "~" if each.worth.parameter.kinked else ""
    return [words(of), shown(of), f"+{more}", costs, f"{100 * change:+.2g} %{mark}", percent(each.worth.share)]


def arcs(each: MarginalValue, objective: float, unit: str, work: Work = TOKENS) -> str:
    """Return the value of an input after re-optimization, in a sentence."""
    found, parameter = each.replanned, each.worth.parameter
    assert found is not None
    of = parameter.input
    saves, costs = between(found.gain), between(found.loss)
    step = f"{UNSTATED_K:g} K are" if of.is_temperature else "a tenth is"
    low, high = found.between
    money = " to ".join(dict.fromkeys(amount(x * objective, unit, work=work) for x in (low, high) if math.isfinite(x)))
    kept = (
        "today's plan stays the best"
        if found.better.same and found.worse.same
        else "another plan or size is best there"
    )
    known = f"{parameter.range.kind}, " if parameter.range.kind else ""
    ends = (
        f"known as {known}{shown(of, parameter.range.low / of.value)} to {shown(of, parameter.range.high / of.value)}"
    )
    doubt = ends if parameter.range.stated else "no range is stated of it"
    return (
        f"{words(of)} ({each.part}): {shown(of)} to {shown(of, found.better.factor)} saves {saves}, to "
        f"{shown(of, found.worse.factor)} costs {costs}: {step} worth {money or 'more than any design'}; {kept}; {doubt}"
    )


def budget_sentence(each: BudgetUse, work: Work = TOKENS) -> str:
    """Return the cost of a budget 10 % tighter and the saving from one 10 % looser, in a sentence."""
    name, limit = budget_words(each.name), pretty(each.limit, each.unit)
    sides = each.one_sided_prices
    if sides is None:
        return f"{name} {limit}: {pretty(each.used, each.unit)} of it used"
    told = []
    for side, verb in zip(sides, ("costs", "saves"), strict=True):
        moved = abs(side.limit - each.limit)
        low, high = (x * moved for x in (side.low, side.high))
        unit = each.shadow_price_unit.rpartition("/")[0]
        if side.leaves_no_design:
            told.append(f"{pretty(side.limit, each.unit)} leaves no design")
        elif not side.resolved:
            told.append(f"{pretty(side.limit, each.unit)} {verb} nothing that a proof can tell from 0")
        else:
            ends = dict.fromkeys(amount(x, unit, work=work) for x in (low, high))
            told.append(f"{pretty(side.limit, each.unit)} {verb} {' to '.join(ends)}")
    return f"{name} {limit}: {'; '.join(told)}"


def certainty(answer: MarginalValues, around: Interval | None) -> str:
    """Return a sentence on accuracy: prediction interval, what the values assume, and the name of the constants."""
    start = answer.start
    goal, mode = start.problem.objective, start.problem.provenance.mode
    off = ""
    if around is not None:
        low, high = (100.0 * (each - 1.0) for each in around.times(1.0))
        off = f"Four times in five a step takes {low:+.0f} % to {high:+.0f} % of what is said; amounts of {goal.name} follow. "
    proofs = (
        "intervals hold what proofs leave open"
        if answer.replanned
        else "marginal values hold with today's integers and plan"
    )
    late = " Time ran out before all were replanned." if answer.over else ""
    return f"{off}{proofs[0].upper()}{proofs[1:]}; {MODEL_ONLY}; constants: {mode}.{late}"


def invest_answer(found: MarginalValues, around: Interval | None, top: int) -> Answer:
    """Return the answer of `hwopt invest`.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `top`: number of rows of each part on a screen.
    """
    start = found.start
    problem, goal = start.problem, start.problem.objective
    common = ("invest", invest_document(found, around), problem.question)
    if not start.feasible:
        why, none = start.infeasibility or start.headline, ("", False, "")
        return Answer(*common, why, ("", ""), none, (), problem.sources, False, question=problem.name)
    work = unit_of_work(start.report)
    chosen = f" ({', '.join(start.chosen.values())})" if start.chosen else ""
    line = f"{goal.name} = {amount(start.objective, goal.unit, 5, work)} with {float(start.built.cluster.chips):,.0f} chips"
    unknown = [f"Values of numbers are not known: {found.unknown}"] if found.unknown else []
    priced = "Budgets, 10 % tighter and 10 % looser, replanned"
    certain = start.outcome is Outcome.proved
    sections = (
        Section("The answer", [Lines([f"{line}{chosen}. {start.headline}"], ""), Sentences(unknown, later="  ")], titled=False),
        Section("Replanned: the best machine and plan, searched again with a number 10 % better, and 10 % worse",
                [Sentences([arcs(each, start.objective, goal.unit, work) for each in found.replanned])]),
        Section(priced if start.budgets and start.budgets[0].one_sided_prices else "Budgets",
                [Sentences([budget_sentence(each, work) for each in start.budgets])]),
        Section(f"One more unit of each (machine and plan fixed): what it changes of {goal.name}; what 10 % better saves",
                [_Values(found, top)]),
        Section("How good is it", [Sentences([certainty(found, around)], "", "")], titled=False),
    )  # fmt: skip
    headline = (components.words(goal.name, goal.unit), amount(start.objective, goal.unit, 5, work))
    badge = ("proved" if certain else "partly proved", certain, start.headline)
    return Answer(*common, "", headline, badge, sections, problem.sources, question=problem.name)


def parts(answer: MarginalValues) -> dict[str, list[MarginalValue]]:
    """Return the inputs whose 10 % improvement saves at least the share `SHOWN`, grouped by part of the machine.

    Their order, and that of the parts, is that of the answer: the most valuable first.
    """
    found: dict[str, list[MarginalValue]] = {}
    for each in answer.numbers:
        if each.worth.share >= SHOWN:
            found.setdefault(each.part, []).append(each)
    return found


@dataclass(frozen=True)
class _Values(Part):
    """Table of the value of one more unit of each input, by part of the machine.

    A page lists all inputs, a screen the first `top`.
    """

    answer: MarginalValues
    top: int

    def _rows(self, rows: Sequence[MarginalValue]) -> list[list[str]]:
        start = self.answer.start
        work = unit_of_work(start.report)
        return [row_cells(each, start.objective, start.problem.objective.unit, work) for each in rows]

    def lines(self) -> list[str]:
        """Return the table as lines of text for a terminal."""
        lines = []
        for part, rows in parts(self.answer).items():
            lines.append(f"  {part}")
            for name, now, more, change, share, tenth in self._rows(rows[: self.top]):
                lines.append(f"    {name:<38} {now:>18} {more:>16} {change:>12} {share:>9}   {tenth:>8}")
            if len(rows) > self.top:
                lines.append(f"    and {len(rows) - self.top} more, with --top {len(rows)} or --json")
        note = f"  10 % of a temperature: {UNSTATED_K:g} K; ~: another value to the other side"
        return [*lines, note] if lines else []

    def html(self) -> Child:
        """Return one table of marginal values per part of the machine."""
        heads = ("now", "one more", "changes", "of it", "10 % better saves")
        return [components.table(part, (part, *heads), self._rows(rows)) for part, rows in parts(self.answer).items()]
