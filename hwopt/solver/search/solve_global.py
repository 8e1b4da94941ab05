"""Global optimization of one problem: the best integer design, with a certificate of optimality."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import jax
import numpy as np
from tqdm.auto import tqdm

from hwopt.design.exact import ExactModel, ExactValues, logarithms
from hwopt.design.lattices import lattice_of, scope_of
from hwopt.design.plan_lattice import DIVIDED
from hwopt.design.problem import Problem
from hwopt.integers.boxes import Boxes
from hwopt.integers.counting import count
from hwopt.integers.system import System
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.model.serving.tails import PERCENTILES
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.gp import certificate
from hwopt.solver.gp.canonical import ConvexProgram
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.branch_and_bound import final_heuristic, search, stopped_early
from hwopt.solver.search.heuristics.rounding import sampled_start
from hwopt.solver.search.node_relaxations import ElasticProblem, NodeRelaxations
from hwopt.solver.search.search_tree import MachineState, SearchResult
from hwopt.solver.solution import Certificate, Outcome, Solution, build_solution

AGREES = 1e-5
"""Relative difference between the objectives of convex program and exact model above which they are taken to disagree."""

NEAR = 0.01
"""Slack of a limit on a percentile, log units, below which the limit is reported as binding. Integers leave some slack."""


def solve_global(
    problem: Problem,
    *,
    deadline: Deadline | None = None,
    progress: bool = False,
    designs: Sequence[np.ndarray] = (),
    explain: bool = True,
    most_boxes: int | None = None,
    like: NodeRelaxations | None = None,
    options: SearchOptions = SEARCH,
) -> Solution:
    """Solve a problem globally, over its whole lattice of integer designs.

    **Arguments:**

    - `deadline`: time at which the incumbent is returned with its proved gap, wherever the search is.
    - `progress`: whether to show a progress bar.
    - `designs`: points of the lattice to start from.
    - `explain`: whether to search for the smallest relaxation of the budgets if the problem is infeasible. It takes longer than
      the proof of infeasibility.
    - `most_boxes`: number of bounded nodes at which the search stops. With 0, only `designs` are solved.
    - `like`: node relaxations of the same problem with other budget limits, whose traces and options are reused.
    - `options`: options of the search.

    **Returns:** a `Solution`, whose certificate states what is proved.
    """
    deadline, options = deadline or Deadline(), options if like is None else like.options
    question = SearchProblem(
        problem, lattice_of(problem), ExactModel(problem).prepare(), deadline, like=like, options=options
    )

    def work() -> Solution | None:
        with jax.enable_x64(True), search_bar(progress) as bar:
            if not deadline.endless:
                _ = question.covered  # counted now: it takes a second or two, which is not left after the deadline
            search(
                question.programmes, deadline=deadline, progress=lambda now: _show(bar, now), designs=designs,
                result=question.result, most_boxes=most_boxes, exact=[question.model],
            )  # fmt: skip
            if deadline.over and stopped_early(question.result, question.programmes.options.heuristic):
                return None
            point = question.result.point
            return (
                infeasible_solution(question, explain)
                if point is None
                else certified_solution(question, best_design(question, problem, point))
            )

    return by_deadline(deadline, work, lambda: None) or stopped_solution(question)


@dataclass(frozen=True)
class SearchProblem:
    """A problem under search.

    **Arguments:**

    - `problem`, `lattice`, `model`: the problem, its integer designs and its exact model.
    - `deadline`: time at which the search stops.
    - `result`: incumbent and bounds, updated in place.
    - `among`: text that names the combinations of choices that the answer was selected from.
    - `like`: node relaxations of a problem that differs in budget limits only.
    - `options`: options of the search.
    """

    problem: Problem
    lattice: System
    model: ExactModel
    deadline: Deadline
    result: SearchResult = field(default_factory=SearchResult)
    among: str = ""
    like: NodeRelaxations | None = None
    options: SearchOptions = SEARCH

    def exact(self, y: np.ndarray) -> ExactValues:
        return self.model.at(y[None]).one(0)

    @cached_property
    def programmes(self) -> NodeRelaxations:
        """Node relaxations of the problem."""
        if self.like is not None:
            return self.like.with_limits(self.problem)
        return NodeRelaxations(self.problem, self.lattice, options=self.options)

    @cached_property
    def covered(self) -> str:
        """Size and scope of the search space, in words."""
        effort = self.options.tree.counting_effort
        return f"{self.among}{count(self.lattice.without_pieces(), effort)} integer designs ({scope_of(self.problem)})"


def design_values(solution: Solution) -> dict[str, float]:
    """Return the variables of a solution by name, SI units."""
    return {each.name: float(each.place.get(solution.built)) for each in solution.problem.variables}


def solve_leaf(programmes: NodeRelaxations, point: np.ndarray) -> tuple[ConvexProgram, BatchResult]:
    """Solve the convex program of one integer design to high accuracy."""
    for tolerance in programmes.options.tree.answer_gaps:
        known = bound_nodes(programmes, Boxes.of_points(point[None]), tolerance=tolerance)
        if known.answers.status[0] == SolveStatus.solved:
            break
    return known.programme, known.answers


def search_bar(progress: bool) -> tqdm:
    """Return the progress line of a search: the time since its start, and what its postfix states."""
    return tqdm(desc="optimize", bar_format="{desc}: {elapsed}{postfix}", disable=not progress, leave=False)


def _show(bar: tqdm, now: SearchResult) -> None:
    gap = f"gap {100 * now.gap:.2g} %" if math.isfinite(now.gap) else "no design yet"
    bar.set_postfix_str(f"{now.boxes:,} nodes bounded, {now.open_boxes:,} open, {gap}")


@dataclass(frozen=True)
class BestDesign:
    """Best design of a lattice point, according to its convex program and to the exact model."""

    y: np.ndarray
    exact: ExactValues
    multipliers: np.ndarray  # of the budgets
    kkt_residual: float
    objective: float  # log objective of the convex program

    @property
    def violation(self) -> float:
        return float(max(0.0, self.exact.violation))

    def solution(
        self, question: SearchProblem, proof: Certificate, outcome: Outcome, infeasibility: str = ""
    ) -> Solution:
        problem = question.problem
        return build_solution(problem, self.y, self.multipliers, None, self.exact, proof, outcome, infeasibility)


def log_values(problem: Problem, values: dict[str, float]) -> np.ndarray:
    """Return the logarithms of the problem's variables; a variable without a value gets its lower bound."""
    return logarithms([values.get(each.name, each.lower) for each in problem.variables])


def best_design(question: SearchProblem, problem: Problem, point: np.ndarray) -> BestDesign:
    """Return the best design of a lattice point: from its convex program, or, if that is relaxed, as the search recorded it.

    **Arguments:** `problem`: the problem, or the same with other budget limits.
    """
    programme, answers = solve_leaf(question.programmes.with_limits(problem), point)
    objective = float(answers.objective[0] + programme.constant[0])
    solved = {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name}
    result = question.result
    if programme.inexact().any() and problem is question.problem and result.design:  # which the exact model accepts
        objective, solved = result.value, result.design
    y = log_values(problem, solved | question.lattice.design(point))
    residual = certificate.kkt_residual(programme.structure, programme.numbers, answers.y, answers.multipliers)
    exact = question.exact(y)
    return BestDesign(
        y=y,
        exact=exact,
        multipliers=_multipliers(problem, programme, answers, exact),
        kkt_residual=float(residual[0]),
        objective=objective,
    )


def _multipliers(problem: Problem, programme: ConvexProgram, answers: BatchResult, exact: ExactValues) -> np.ndarray:
    """Return the multipliers of the budgets, with the plan fixed.

    A limit on a percentile that nearly binds gets NaN: the convex program knows only the percentile's range, not its slope.
    """
    known = np.array([sum(answers.multipliers[0, programme.group(b.name)]) for b in problem.budgets], float)
    near = [b.metric.name in PERCENTILES and exact.constraints[i] > -NEAR for i, b in enumerate(problem.budgets)]
    return np.where(near, np.nan, known)


_SHARES = np.linspace(0.0, 1.0, 101)
"""Shares of a part that the reported design may offload."""


def least_offloaded(question: SearchProblem, best: BestDesign) -> BestDesign:
    """Return a design with as little offloaded as still fits, at no higher objective.

    The lattice offloads all of a part or nothing. Where the search chose to offload a part, the exact model selects the
    smallest share, in whole percents where the software documents shares, else all or nothing.
    """
    problem = question.problem
    at = {each.name: i for i, each in enumerate(problem.variables)}
    level = round(float(problem.template.cluster.groups[0].stack.capabilities.partial_offload))
    for part in DIVIDED:
        tier, share = at.get(f"{part}_tier"), at.get(f"{part}_offloaded")
        if (
            tier is None
            or share is None
            or problem.lower[tier] == problem.upper[tier]
            or round(math.exp(best.y[tier])) < 2
        ):
            continue
        shares = _SHARES if part in DIVIDED[:level] else _SHARES[[0, -1]]
        y = np.tile(best.y, (len(shares), 1))
        y[:, share], y[0, tier] = logarithms(shares), 0.0
        tried = question.model.at(y)
        fits = (tried.objective <= best.exact.objective) & (tried.violation <= best.violation)
        first = int(fits.argmax())
        best = replace(best, y=y[first], exact=tried.one(first)) if fits[first] else best
    return best


def certified_solution(question: SearchProblem, best: BestDesign) -> Solution:
    """Return a design as a solution with its certificate.

    A bound is certified only if the exact model satisfies every constraint and agrees with the convex program that was bounded.
    """
    result, agrees = question.result, abs(float(best.exact.objective) - best.objective) <= AGREES
    found, best = best, least_offloaded(question, best) if best.violation <= FEASIBILITY_TOLERANCE else best
    objective = float(best.exact.objective)
    bound = min(result.proved_bound, objective)
    proved = best.violation <= FEASIBILITY_TOLERANCE and agrees and math.isfinite(bound)
    covered = question.covered
    if best.violation > FEASIBILITY_TOLERANCE or not agrees:
        scope = f"not proved: the exact model and its convex form differ at the answer; searched {covered}"
    elif result.complete:
        scope = f"global over {covered}; {result.boxes:,} node relaxations solved"
    else:
        left = f"{result.open_boxes:,} open nodes left" if result.rounds else "before the first bounds"
        scope = f"best found when the search was stopped, {left}; bounded over {covered}"
    proof = Certificate(
        kkt_residual=best.kkt_residual,
        max_violation=best.violation,
        scope=scope if best is found else f"{scope}; afterwards, only as much is offloaded as does not fit",
        lower_bound=math.exp(bound) if proved else None,
        gap=math.expm1(objective - bound) if proved else None,
        stopped=None if result.complete else question.deadline.stop,
    )
    if best.violation > FEASIBILITY_TOLERANCE:
        return best.solution(question, proof, Outcome.not_found)
    return best.solution(question, proof, Outcome.proved if result.complete and proved else Outcome.best_found)


def stopped_solution(question: SearchProblem) -> Solution:
    """Return what the search had found at its deadline. No further convex program is solved."""
    result = question.result
    if result.point is None and result.complete:  # no time was left to search for a relaxation
        return infeasible_solution(question, explain=False)
    best = heuristic_solution(question)
    if best.violation > FEASIBILITY_TOLERANCE:
        return _unmet(question, best, False, "Time ran out before a design was found that satisfies all budgets.")
    return _unpriced(question, best)


def heuristic_solution(question: SearchProblem) -> BestDesign:
    """Return the incumbent after a final heuristic run, if the search stopped early; without one, the least violated sample."""
    found = final_heuristic(question.programmes, question.result)
    return _nearest(question) if found.point is None else heuristic_design(question, found)


def heuristic_design(question: SearchProblem, found: SearchResult | MachineState) -> BestDesign:
    """Return the design of a search result by the exact model, without shadow prices: its own program is not solved."""
    assert found.point is not None
    y = log_values(question.problem, found.design | question.lattice.design(found.point))
    return BestDesign(y, question.exact(y), np.full(len(question.problem.budgets), math.nan), math.nan, found.value)


def _unpriced(question: SearchProblem, best: BestDesign) -> Solution:
    """Return a design as a solution without shadow prices, because its own convex program was not solved."""
    return certified_solution(question, replace(best, multipliers=np.full(len(question.problem.budgets), math.nan)))


def _nearest(question: SearchProblem) -> BestDesign:
    """Return the least violated of some sampled designs."""
    y, exact = sampled_start(question.problem, question.model, question.options.local)
    return BestDesign(y, exact, np.zeros(len(question.problem.budgets)), math.nan, float(exact.objective))


def _unmet(question: SearchProblem, best: BestDesign, proved: bool, text: str, shown: str = "") -> Solution:
    """Return a solution that reports infeasibility.

    **Arguments:**

    - `best`: the design to show, with its violations.
    - `proved`: whether infeasibility is proved.
    - `text`: explanation for the user.
    - `shown`: addition to the certificate's scope, which says which design is shown.
    """
    verdict = "infeasible, proved, over" if proved else "no design found, unproved, over"
    scope = f"{verdict} {question.covered}{shown}"
    stopped = None if question.result.complete else question.deadline.stop
    proof = Certificate(best.kkt_residual, best.violation, scope, stopped=stopped)
    return best.solution(question, proof, Outcome.infeasible if proved else Outcome.not_found, text)


def infeasible_solution(question: SearchProblem, explain: bool) -> Solution:
    """Return the solution of an infeasible problem, with the smallest relaxations of the budgets that would make it feasible.

    It shows the best design with all budgets relaxed by the same factor. If the search did not end and its last heuristic run
    finds a feasible design, that one is returned instead.

    **Arguments:** `explain`: whether to search for these relaxations.
    """
    problem, result = question.problem, question.result
    names = [budget.name for budget in problem.budgets]
    if not result.complete and (best := heuristic_solution(question)).violation <= FEASIBILITY_TOLERANCE:
        return _unpriced(question, best)
    proved = result.complete and math.isinf(result.bound)
    if not explain or question.deadline.over:
        return _unmet(question, _nearest(question), proved, "How far the budgets must be relaxed was not computed.")
    common = _minimal_relaxation(question, names)
    if common.point is None:
        nearest = _nearest(question)
        text = "No design was found with budgets relaxed up to a hundredfold: "
        text += (
            f"nothing fits ({_misfits(problem, nearest)})." if common.complete else "the search stopped before its end."
        )
        return _unmet(question, nearest, proved, text)
    every = f"all {len(names)} budgets are" if len(names) > 1 else f"{names[0]} is"
    text = f"Feasible if {every} relaxed by {_percent(common, question).removeprefix('+')}"
    alone = _alone(question, names)
    text += f", or if one alone is: {'; or '.join(alone)}." if alone else "."
    if len(names) > 1 and not alone:
        text += " No design was found with one budget alone relaxed."
    # Budgets are relaxed by a little more than that, because an interior-point method needs an interior.
    factor = math.exp(common.value) * (1.0 + question.options.elastic.gap)
    best = best_design(question, problem.relaxed([factor] * len(names)), common.point)
    shown = f"; {result.boxes:,} node relaxations solved; shown: the best design with all budgets relaxed by "
    shown += f"{100 * (factor - 1.0):,.4g} %, a little more than is necessary"
    return _unmet(question, best, proved, text, shown)


def _alone(question: SearchProblem, names: list[str]) -> list[str]:
    """Return, in words, the relaxation of each budget that alone would make the problem feasible."""
    budgets = question.problem.budgets if len(names) > 1 else ()
    relaxations = [(budget, _minimal_relaxation(question, [budget.name])) for budget in budgets]
    return [
        each.relaxed_words(more.value, _percent(more, question)) for each, more in relaxations if more.point is not None
    ]


def _minimal_relaxation(question: SearchProblem, names: list[str]) -> SearchResult:
    """Search for the smallest common factor by which some budgets must be exceeded."""
    options = question.options.elastic
    elastic = ElasticProblem(tuple(names), options.most_factor)
    return search(
        NodeRelaxations(question.problem, question.lattice, elastic, options=question.options), tolerance=options.gap,
        most_boxes=options.nodes, deadline=question.deadline,
    )  # fmt: skip


def _percent(relaxation: SearchResult, question: SearchProblem) -> str:
    """Return a relaxation in percent, with its proved lower bound if that is clearly smaller."""
    least = max(0.0, math.expm1(relaxation.proved_bound)) if math.isfinite(relaxation.proved_bound) else 0.0
    most = math.expm1(relaxation.value)
    said, bound = (f"{100 * share:,.0f} %" if share >= 10.0 else f"{100 * share:.3g} %" for share in (most, least))
    exactly = said == bound or most - least <= 2 * question.options.elastic.gap
    return f"+{said}" if exactly else f"+{said}, of which {bound} are proved necessary"


def _misfits(problem: Problem, nearest: BestDesign) -> str:
    """Return the names of constraints, other than budgets, that a design violates."""
    own = slice(len(problem.budgets), None)
    broken = [
        name
        for name, used in zip(problem.constraints[own], nearest.exact.constraints[own], strict=True)
        if used > FEASIBILITY_TOLERANCE
    ]
    return ", ".join(broken) or "memory, heads, layers, racks, requests that arrive"
