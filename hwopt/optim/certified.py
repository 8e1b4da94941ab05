"""The certified answer: the best whole-number design of a question, its bound, and what its budgets are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from hwopt.convex import certificate
from hwopt.convex.canonical import Programme
from hwopt.convex.interior_point import Answers
from hwopt.convex.signomial import Algebra, Signomial
from hwopt.design.problem import Problem, place
from hwopt.design.variables import Design
from hwopt.optim.boxes import Boxes, DesignLattice
from hwopt.optim.branch_and_bound import Found, bounded, search
from hwopt.optim.exact import FEASIBLE, Exact, compiled_estimate, exact_design
from hwopt.optim.lattices import lattice_of
from hwopt.optim.solution import Certificate, Outcome, Solution, build_solution

SHARP = 1e-10
"""Gap to which the programme of the answer itself is solved."""

AGREES = 1e-5
"""Relative difference between the programme's objective and the exact model's beyond which something was misread."""

MOST_STRETCH = 100.0
"""Budgets are stretched by this factor at most when asking what would mend an infeasible question."""

PROVED = "Proved: "
"""How an infeasible answer's words begin where it is proved that no design holds all budgets."""

MEND_TOLERANCE = 1e-3
MEND_BOXES = 8_000
"""Gap and boxes of the search for the smallest mending relaxation, each."""


def certified(
    problem: Problem,
    *,
    seconds: float = math.inf,
    progress: bool = False,
    designs: Sequence[np.ndarray] = (),
    mending: bool = True,
) -> Solution:
    """Solve a question over its whole lattice of designs.

    **Arguments:** `seconds` after which the search stops with the best so far and an honest gap; `designs`: points of the
    lattice to start from; `mending`: say what would mend an infeasible question, which takes longer than to prove it so.

    **Returns:** a `Solution`, whose certificate says what is proved.
    """
    lattice = lattice_of(problem)
    with ThreadPoolExecutor(1) as pool, tqdm(total=1.0, desc="optimize", disable=not progress, leave=False) as bar:
        model = pool.submit(compiled_estimate, _some(problem))  # while the search runs
        found = search(problem, lattice, seconds=seconds, progress=lambda now: _show(bar, now), designs=designs)
        question = _Question(problem, lattice, model.result())
        return _infeasible(question, found, mending) if found.point is None else _optimal(question, found)


def _some(problem: Problem) -> Design:
    """A design of the question: its shape is that of all."""
    return place(problem.form, problem.template, problem.lower)


@dataclass(frozen=True)
class _Question:
    problem: Problem
    lattice: DesignLattice
    program: Callable[..., Any]

    def exact(self, y: np.ndarray) -> Exact:
        return exact_design(self.problem, y, self.program)


def with_one_sided_prices(solution: Solution, step: float = 0.01) -> Solution:
    """The same answer with both prices of each budget: all whole numbers solved again at `1 - step` and `1 + step` of it.

    `shadow_price` holds with the plan of the answer; where the best plan changes with the budget, what a little less costs
    and what a little more saves differ from it and from each other. Infinite where no design holds the tightened budget.
    """
    lattice = lattice_of(solution.problem)
    point = lattice.point(solution.built)
    budgets = []
    for i, budget in enumerate(solution.problem.budgets):
        prices = []
        for side in (-1.0, 1.0):
            moved = replace(budget, limit=budget.limit * (1.0 + side * step))
            budgets_now = tuple(moved if i == j else b for j, b in enumerate(solution.problem.budgets))
            problem = replace(solution.problem, budgets=budgets_now)
            found = search(problem, lattice_of(problem), designs=[point])
            better = solution.objective - (math.exp(found.value) if found.point is not None else math.inf)
            prices.append(max(0.0, side * better) / (budget.limit * step))
        budgets.append(replace(solution.budgets[i], one_sided=(prices[0], prices[1])))
    return replace(solution, budgets=budgets)


def leaf(problem: Problem, lattice: DesignLattice, point: np.ndarray) -> tuple[Programme, Answers]:
    """The programme of one whole-number design, solved sharply."""
    box = Boxes(point[None], point[None])
    programme, answers, _ = bounded(problem, lattice, box, tolerance=SHARP)
    return programme, answers


def _show(bar: tqdm, found: Found) -> None:
    gap = f"gap {100 * found.gap:.2g} %" if math.isfinite(found.gap) else "no design yet"
    bar.set_postfix_str(f"{found.boxes:,} boxes bounded, {found.open_boxes:,} open, {gap}")


@dataclass(frozen=True)
class _Best:
    """The best design of a lattice point, by its programme and by the exact model."""

    y: np.ndarray
    checked: Exact
    multipliers: np.ndarray  # of the budgets
    kkt_residual: float
    objective: float  # by the programme, logarithmic


def _best(question: _Question, problem: Problem, point: np.ndarray) -> _Best:
    """The design at a point of the lattice. **Arguments:** `problem`: the question, or one with other limits."""
    programme, answers = leaf(problem, question.lattice, point)
    values = question.lattice.design(point)
    values |= {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name}
    y = np.array([math.log(values.get(each.name, each.lower)) for each in problem.variables])
    residual = certificate.kkt_residual(programme.structure, programme.numbers, answers.y, answers.multipliers)
    return _Best(
        y=y,
        checked=question.exact(y),
        multipliers=np.array([sum(answers.multipliers[0, programme.group(b.name)]) for b in problem.budgets]),
        kkt_residual=float(residual[0]),
        objective=float(answers.objective[0] + programme.constant[0]),
    )


def _solution(question: _Question, best: _Best, proof: Certificate, outcome: Outcome, clash: str = "") -> Solution:
    return build_solution(
        question.problem,
        best.y,
        best.multipliers,
        None,
        best.checked.design,
        best.checked.report,
        proof,
        outcome,
        clash,
    )


def _covered(lattice: DesignLattice) -> str:
    return f"{lattice.count():,.0f} whole-number designs ({lattice.says()})"


def _optimal(question: _Question, found: Found) -> Solution:
    """The design that was found, and what is proved of it."""
    assert found.point is not None
    best = _best(question, question.problem, found.point)
    violation, objective = float(max(0.0, best.checked.violation)), float(best.checked.objective)
    agrees = abs(objective - best.objective) <= AGREES
    proved = violation <= FEASIBLE and agrees and math.isfinite(found.bound)
    bound = min(found.bound, objective)
    whole = _covered(question.lattice)
    if not proved:
        scope = f"not proved: the exact model and its convex reading differ at the answer; searched {whole}"
    elif found.open_boxes:
        scope = f"best found when the search was stopped, {found.open_boxes:,} boxes left; bounded over {whole}"
    else:
        scope = f"global over {whole}; {found.boxes:,} convex programmes bounded"
    proof = Certificate(
        kkt_residual=best.kkt_residual,
        max_violation=violation,
        scope=scope,
        lower_bound=math.exp(bound) if proved else None,
        gap=math.expm1(objective - bound) if proved else None,
    )
    return _solution(question, best, proof, Outcome.optimal)


def _infeasible(question: _Question, found: Found, mending: bool) -> Solution:
    """No design holds the budgets: the smallest relaxations that would mend it, and the design of the common one."""
    problem, lattice = question.problem, question.lattice
    everything = list(range(len(problem.budgets)))
    proved = not found.open_boxes and math.isinf(found.bound)
    together = _mended(problem, lattice, everything) if mending else Found()
    text = f"{PROVED}no design of the lattice holds all budgets. " if proved else "No design was found (unproved). "
    names = ", ".join(budget.name for budget in problem.budgets)
    if together.point is None:
        if mending:
            text += "No stretch of the budgets up to a hundredfold mends it: nothing in the box fits "
            text += "(memory, heads, layers, racks; requests that arrive)."
        some = lattice.samples()
        return _unfit(question, some.low[0] if len(some) else None, text, proved)
    text += f"These budgets clash: {names}. All of them relaxed by {_percent(together)} mend it"
    mends = []
    for i in everything if len(everything) > 1 else ():
        alone = _mended(problem, lattice, [i])
        if alone.point is not None:
            budget = problem.budgets[i]
            mends.append(
                f"{budget.name} from {budget.limit:.6g} to {budget.limit * math.exp(alone.value):.6g} {budget.metric.unit} "
                f"({_percent(alone)})"
            )
    text += (
        f"; so does one alone: {'; or '.join(mends)}."
        if mends
        else "; none alone does."
        if len(everything) > 1
        else "."
    )
    # The best design under budgets relaxed by that much, and a little more, which an interior point needs.
    factor = math.exp(together.value) * (1.0 + MEND_TOLERANCE)
    relaxed = replace(problem, budgets=tuple(replace(b, limit=b.limit * factor) for b in problem.budgets))
    best = _best(question, relaxed, together.point)
    said = "infeasible over" if proved else "no design found, unproved, over"
    scope = f"{said} {_covered(lattice)}; {found.boxes:,} convex programmes bounded; shown: the best with all budgets relaxed"
    proof = Certificate(best.kkt_residual, float(max(0.0, best.checked.violation)), scope)
    return _solution(question, best, proof, Outcome.infeasible, text)


def _mended(problem: Problem, lattice: DesignLattice, indices: list[int]) -> Found:
    """The least factor by which some budgets must be exceeded."""

    def stretch(algebra: Algebra) -> tuple[Signomial, dict[int, Signomial]]:
        factor = algebra.variable("stretch", 1.0, MOST_STRETCH)
        return factor, dict.fromkeys(indices, factor)

    return search(problem, lattice, tolerance=MEND_TOLERANCE, most_boxes=MEND_BOXES, stretch=stretch)


def _percent(found: Found) -> str:
    """A stretch, with what is proved of it."""
    least = max(0.0, math.expm1(found.bound))
    most = math.expm1(found.value)
    exactly = most - least <= 2 * MEND_TOLERANCE
    return f"{100 * most:+.3g} %" + ("" if exactly else f", at least {100 * least:.3g} %")


def _unfit(question: _Question, point: np.ndarray | None, text: str, proved: bool) -> Solution:
    """An answer that shows some design of the box, with what it violates."""
    problem, lattice = question.problem, question.lattice
    middle = 0.5 * (np.asarray(problem.lower) + np.asarray(problem.upper))
    if point is not None:
        values = lattice.design(point)
        middle = np.array(
            [
                math.log(values[v.name]) if v.name in values else y
                for v, y in zip(problem.variables, middle, strict=True)
            ]
        )
    checked = question.exact(middle)
    said = "infeasible over" if proved else "no design found, unproved, over"
    proof = Certificate(math.nan, float(checked.violation), f"{said} {_covered(lattice)}")
    none = np.zeros(len(problem.budgets))
    return build_solution(problem, middle, none, None, checked.design, checked.report, proof, Outcome.infeasible, text)
