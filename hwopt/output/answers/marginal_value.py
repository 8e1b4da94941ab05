"""Answer of `hwopt invest`: the marginal value of every input."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hwopt.analysis.marginal_value import MarginalValue, MarginalValues, ReoptimizedValue
from hwopt.analysis.sensitivity.improvement import ImprovementValue
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.calibration.intervals import Interval
from hwopt.output.answer import Answer, Part, Section, Sentences
from hwopt.output.html import components
from hwopt.output.html.markup import Child
from hwopt.output.schema.elements import NUMBER, TEXT, YES_OR_NO, by_name, listed, maybe, pair, shared
from hwopt.output.schema.elements import answer as schema_of
from hwopt.output.schema.keys import OF_START, Keys, goal_of
from hwopt.output.text.customary_units import amount, one_more, shown, words
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.token_prices import TOKENS, Work, unit_of_work
from hwopt.solver.solution import BudgetUse, Outcome
from hwopt.units import pretty

SHOWN = 5e-5
"""Saving from a 10 % improvement, as a share of the objective, below which an input is not listed."""


def _moved(each: MarginalValue, factor: float) -> float:
    """Return the relative change of the objective when an input is multiplied by `factor`: factor^elasticity - 1."""
    return math.expm1(each.elasticity * math.log(factor))


_KNOWN = Keys({
    "kind": (maybe(TEXT), lambda known: known.kind or None),
    "low": (maybe(NUMBER), lambda known: known.low),
    "high": (maybe(NUMBER), lambda known: known.high),
    "stated": (YES_OR_NO, lambda known: known.stated),
    "source": (maybe(TEXT), lambda known: known.source or None),
})  # fmt: skip
_ONE_MORE = Keys({
    "words": (TEXT, lambda each, objective, factor, unit: unit),
    "factor": (NUMBER, lambda each, objective, factor, unit: factor),
    "share": (NUMBER, lambda each, objective, factor, unit: _moved(each, factor)),
    "change": (NUMBER, lambda each, objective, factor, unit: objective * _moved(each, factor)),
})  # fmt: skip
_MARGINAL = Keys({
    "name": (TEXT, lambda each, _: each.name),
    "words": (TEXT, lambda each, _: words(each.input)),
    "part": (TEXT, lambda each, _: each.part),
    "value": (NUMBER, lambda each, _: each.input.value),
    "unit": (TEXT, lambda each, _: each.input.unit),
    "shown": (TEXT, lambda each, _: shown(each.input)),
    "elasticity": (maybe(NUMBER), lambda each, _: each.elasticity),
    "one_more": (_ONE_MORE.schema, lambda each, objective: _ONE_MORE.document(each, objective, *one_more(each.input))),
    "tenth_better": (schema_of(ImprovementValue), lambda each, _: each.worth),
    "replanned": (maybe(schema_of(ReoptimizedValue)), lambda each, _: each.replanned),
    "known": (_KNOWN.schema, lambda each, _: _KNOWN.document(each.worth.parameter.range)),
})  # fmt: skip
INVEST = Keys(OF_START | {
    "objective": (shared("goal"), lambda found, _: goal_of(found.start.problem, value=found.start.objective)),
    "lower_bound": (maybe(NUMBER), lambda found, _: found.start.certificate.lower_bound),
    "chosen": (by_name(TEXT), lambda found, _: found.start.chosen),
    "step_time_factors": (maybe(pair(NUMBER)), lambda _, around: around and around.times(1.0)),
    "numbers": (listed(_MARGINAL.schema), lambda found, _: [
        _MARGINAL.document(each, found.start.objective) for each in found.numbers
    ]),
    "budgets": (listed(schema_of(BudgetUse)), lambda found, _: found.start.budgets),
    "unknown": (TEXT, lambda found, _: found.unknown),
    "complete": (YES_OR_NO, lambda found, _: not found.over),
})  # fmt: skip
"""Keys of `invest --json`. Shares are of the objective. `between` bounds an input's value after re-optimization."""


def percent(share: float) -> str:
    """Return a share in percent; "no design" where it is infinite."""
    return "no design" if math.isinf(share) else f"{100 * share:.2g} %"


def between(ends: tuple[float, float]) -> str:
    """Return an interval of shares in words; one number where both ends print alike."""
    low, high = ("0" if each <= 0.0 else percent(each).removesuffix(" %") for each in ends)
    if high == "no design":
        return "feasibility: no design is left" if low == high else f"{low} % or more"
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
    step = f"{UNSTATED_K:g} K" if of.is_temperature else "10 %"
    low, high = found.between
    money = " to ".join(dict.fromkeys(amount(x * objective, unit, work=work) for x in (low, high) if math.isfinite(x)))
    kept = "plan unchanged" if found.better.same and found.worse.same else "plan or machine size changes"
    known = f" ({parameter.range.kind})" if parameter.range.kind else ""
    low_end, high_end = (shown(of, end / of.value) for end in (parameter.range.low, parameter.range.high))
    ends = f"uncertainty range in the catalog: {low_end} to {high_end}{known}"
    doubt = ends if parameter.range.stated else "no uncertainty range in the catalog"
    return (
        f"{words(of)} ({each.part}): {shown(of)} to {shown(of, found.better.factor)} saves {saves}, to "
        f"{shown(of, found.worse.factor)} costs {costs}; {step} is worth {money or 'more than any design costs'}; {kept}; {doubt}"
    )


def budget_sentence(each: BudgetUse, work: Work = TOKENS) -> str:
    """Return the cost of a budget 10 % tighter and the saving from one 10 % looser, in a sentence."""
    name, limit = budget_words(each.name), pretty(each.limit, each.unit)
    sides = each.one_sided_prices
    if sides is None:
        return f"{name} {limit}: {pretty(each.used, each.unit)} used"
    told = []
    for side, verb in zip(sides, ("costs", "saves"), strict=True):
        moved = abs(side.limit - each.limit)
        low, high = (x * moved for x in (side.low, side.high))
        unit = each.shadow_price_unit.rpartition("/")[0]
        if side.leaves_no_design:
            told.append(f"{pretty(side.limit, each.unit)} is infeasible")
        elif not side.resolved:
            told.append(f"{pretty(side.limit, each.unit)} has no measurable effect (within the certificate)")
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
        off = f"80 % prediction interval of the step time: {low:+.0f} % to {high:+.0f} %; {goal.name} scales with it. "
    proofs = (
        "re-optimized values are intervals that include the optimality gaps"
        if answer.replanned
        else "marginal values hold with the integers and the plan of this design"
    )
    late = " Time limit reached before all inputs were re-optimized." if answer.over else ""
    return f"{off}{proofs[0].upper()}{proofs[1:]}; {MODEL_ONLY}; constants: {mode}.{late}"


def invest_answer(found: MarginalValues, around: Interval | None, top: int) -> Answer:
    """Return the answer of `hwopt invest`.

    **Arguments:**

    - `around`: prediction interval of the step time.
    - `top`: number of rows of each part on a screen.
    """
    start = found.start
    problem, goal = start.problem, start.problem.objective
    common = ("invest", INVEST.document(found, around), problem.question)
    if not start.feasible:
        why = start.infeasibility or start.headline
        return Answer(*common, why, sources=problem.sources, feasible=False, question=problem.name)
    work = unit_of_work(start.report)
    chosen = f" ({', '.join(start.chosen.values())})" if start.chosen else ""
    metric = components.words(goal.name, goal.unit)
    line = f"{metric} {amount(start.objective, goal.unit, 5, work)} with {float(start.built.cluster.chips):,.0f} chips"
    unknown = [f"Marginal values are not known: {found.unknown}"] if found.unknown else []
    priced = "Budgets 10 % tighter and 10 % looser, re-optimized"
    certain = start.outcome is Outcome.proved
    sections = (
        Section("The answer", [Sentences(unknown, later="  ")], titled=False),
        Section("Inputs 10 % better and 10 % worse, machine and plan re-optimized",
                [Sentences([arcs(each, start.objective, goal.unit, work) for each in found.replanned])]),
        Section(priced if start.budgets and start.budgets[0].one_sided_prices else "Budgets",
                [Sentences([budget_sentence(each, work) for each in start.budgets])]),
        Section(f"Marginal values, machine and plan fixed: change of {goal.name} by one more unit, saving by a 10 % improvement",
                [_Values(found, top)]),
        Section("How good is it", [Sentences([certainty(found, around)], "", "")], titled=False),
    )  # fmt: skip
    headline = (metric, amount(start.objective, goal.unit, 5, work))
    badge = ("proved" if certain else "partly proved", certain, start.headline)
    said = f"{line[0].upper()}{line[1:]}{chosen}."
    return Answer(
        *common, said, headline, badge, sections, problem.sources, question=problem.name, details=start.headline
    )  # fmt: skip


def parts(answer: MarginalValues) -> dict[str, list[MarginalValue]]:
    """Return the inputs whose 10 % improvement saves at least the share `SHOWN`, grouped by part of the machine.

    Their order, and that of the parts, is that of the answer: the most valuable first.
    """
    found: dict[str, list[MarginalValue]] = {}
    for each in answer.numbers:
        if each.worth.share >= SHOWN:
            found.setdefault(each.part, []).append(each)
    return found


_HEADS = ("value", "one more", "change", "relative", "10 % better")


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
        lines, wide = [], "    {:<38} {:>18} {:>16} {:>12} {:>9}   {:>16}".format
        for part, rows in parts(self.answer).items():
            lines.append(f"  {part}")
            for name, now, more, change, share, tenth in self._rows(rows[: self.top]):
                lines.append(wide(name, now, more, change, share, tenth))
            if len(rows) > self.top:
                lines.append(f"    and {len(rows) - self.top} more, with --top {len(rows)} or --json")
        note = f"  For temperatures, 10 % stands for {UNSTATED_K:g} K. ~: a decrease has another effect per unit."
        return [wide("", *_HEADS), *lines, note] if lines else []

    def html(self) -> Child:
        """Return one table of marginal values per part of the machine."""
        return [components.table(part, (part, *_HEADS), self._rows(rows)) for part, rows in parts(self.answer).items()]
