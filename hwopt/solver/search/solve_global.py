"""The certified answer: the best integer design of a question, with its bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import jax
import numpy as np
from tqdm.auto import tqdm

from hwopt.design.exact import ExactModel, ExactValues, logarithms
from hwopt.design.lattices import lattice_of, scope_of
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
from hwopt.solver.search.search_tree import SearchResult
from hwopt.solver.solution import Certificate, Outcome, Solution, build_solution

AGREES = 1e-5
"""Relative difference between the programme's objective and the exact model's beyond which something was misread."""

NEAR = 0.01
"""Room below a limit on a percentile, as a logarithm, within which it is said to bind: integers leave some."""


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
    """Solve a question over its whole lattice of designs.

    **Arguments:** `deadline` by which the best so far is returned with an honest gap, whatever is under way; `designs`: points
    of the lattice to start from; `explain`: say what would make an infeasible question feasible, which takes longer than to
    prove it so; `most_boxes` bounded, at which the search stops: 0 for the best of `designs` alone; `like`: programmes of the
    same question with other limits of its budgets, whose readings and options are used again;
    `options` of the search.

    **Returns:** a `Solution`, whose certificate says what is proved.
    """
    deadline, options = deadline or Deadline(), options if like is None else like.options
    question = SearchProblem(
        problem, lattice_of(problem), ExactModel(problem).prepare(), deadline, like=like, options=options
    )

    def work() -> Solution | None:
        with jax.enable_x64(True), tqdm(total=1.0, desc="optimize", disable=not progress, leave=False) as bar:
            if not deadline.endless:
                _ = question.covered  # counting takes a second or two, which nobody has once the time is over
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
    """A question under search. **Arguments:** `among`: the choices that its designs were the best of, in words; `like`: programmes
    of one that differs in limits alone.
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
        """Those of its boxes."""
        if self.like is not None:
            return self.like.with_limits(self.problem)
        return NodeRelaxations(self.problem, self.lattice, options=self.options)

    @cached_property
    def covered(self) -> str:
        """What the lattice holds, in words."""
        effort = self.options.tree.counting_effort
        return f"{self.among}{count(self.lattice.without_pieces(), effort)} integer designs ({scope_of(self.problem)})"


def design_values(solution: Solution) -> dict[str, float]:
    """Variables of an answer, SI."""
    return {each.name: float(each.place.get(solution.built)) for each in solution.problem.variables}


def solve_leaf(programmes: NodeRelaxations, point: np.ndarray) -> tuple[ConvexProgram, BatchResult]:
    """The programme of one integer design, solved sharply."""
    for tolerance in programmes.options.tree.answer_gaps:
        known = bound_nodes(programmes, Boxes.of_points(point[None]), tolerance=tolerance)
        if known.answers.status[0] == SolveStatus.solved:
            break
    return known.programme, known.answers


def _show(bar: tqdm, now: SearchResult) -> None:
    gap = f"gap {100 * now.gap:.2g} %" if math.isfinite(now.gap) else "no design yet"
    bar.set_postfix_str(f"{now.boxes:,} boxes bounded, {now.open_boxes:,} open, {gap}")


@dataclass(frozen=True)
class BestDesign:
    """The best design of a lattice point, by its programme and by the exact model."""

    y: np.ndarray
    exact: ExactValues
    multipliers: np.ndarray  # of the budgets
    kkt_residual: float
    objective: float  # by the programme, logarithmic

    @property
    def violation(self) -> float:
        return float(max(0.0, self.exact.violation))

    def solution(
        self, question: SearchProblem, proof: Certificate, outcome: Outcome, infeasibility: str = ""
    ) -> Solution:
        problem = question.problem
        return build_solution(problem, self.y, self.multipliers, None, self.exact, proof, outcome, infeasibility)


def log_values(problem: Problem, values: dict[str, float]) -> np.ndarray:
    """Logarithms of the problem's variables, those that nothing depends on at their lower ends."""
    return logarithms([values.get(each.name, each.lower) for each in problem.variables])


def best_design(question: SearchProblem, problem: Problem, point: np.ndarray) -> BestDesign:
    """The design at a point of the lattice: where its programme is relaxed, as the search kept it.

    **Arguments:** `problem`: the question, or one with other limits.
    """
    programme, answers = solve_leaf(question.programmes.with_limits(problem), point)
    objective = float(answers.objective[0] + programme.constant[0])
    solved = {name: math.exp(y) for name, y in zip(programme.names, answers.y[0], strict=True) if name}
    result = question.result
    if programme.inexact().any() and problem is question.problem and result.design:  # the exact model held at that one
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
    """Of the budgets, with the plan of the design. Not a number of a percentile that is near its limit: programmes know it by its
    range, not by how it moves.
    """
    known = np.array([sum(answers.multipliers[0, programme.group(b.name)]) for b in problem.budgets], float)
    near = [b.metric.name in PERCENTILES and exact.constraints[i] > -NEAR for i, b in enumerate(problem.budgets)]
    return np.where(near, np.nan, known)


def certified_solution(question: SearchProblem, best: BestDesign) -> Solution:
    """The best design with its proof: the exact model satisfies every constraint, and agrees with what was bounded."""
    result, objective = question.result, float(best.exact.objective)
    agrees = abs(objective - best.objective) <= AGREES
    bound = min(result.proved_bound, objective)
    proved = best.violation <= FEASIBILITY_TOLERANCE and agrees and math.isfinite(bound)
    covered = question.covered
    if best.violation > FEASIBILITY_TOLERANCE or not agrees:
        scope = f"not proved: the exact model and its convex form differ at the answer; searched {covered}"
    elif result.complete:
        scope = f"global over {covered}; {result.boxes:,} convex programmes bounded"
    else:
        left = f"{result.open_boxes:,} boxes left" if result.rounds else "before the first bounds"
        scope = f"best found when the search was stopped, {left}; bounded over {covered}"
    proof = Certificate(
        kkt_residual=best.kkt_residual,
        max_violation=best.violation,
        scope=scope,
        lower_bound=math.exp(bound) if proved else None,
        gap=math.expm1(objective - bound) if proved else None,
    )
    if best.violation > FEASIBILITY_TOLERANCE:
        return best.solution(question, proof, Outcome.not_found)
    return best.solution(question, proof, Outcome.proved if result.complete and proved else Outcome.best_found)


def stopped_solution(question: SearchProblem) -> Solution:
    """What the search had when its time was over: no programme is solved any more."""
    result = question.result
    if result.point is None and result.complete:  # what would make one feasible was not known in time
        return infeasible_solution(question, explain=False)
    best = heuristic_solution(question)
    if best.violation > FEASIBILITY_TOLERANCE:
        return _unmet(question, best, False, "Time ran out before a design was found that satisfies all budgets.")
    return _unpriced(question, best)


def heuristic_solution(question: SearchProblem) -> BestDesign:
    """Return the incumbent of a stopped search or of a last look; without one, the least violated of some designs."""
    found = final_heuristic(question.programmes, question.result)
    if found.point is None:
        return _nearest(question)
    y = log_values(question.problem, found.design | question.lattice.design(found.point))
    return BestDesign(y, question.exact(y), np.zeros(0), math.nan, found.value)


def _unpriced(question: SearchProblem, best: BestDesign) -> Solution:
    """A design that no programme of its own was solved for."""
    return certified_solution(question, replace(best, multipliers=np.full(len(question.problem.budgets), math.nan)))


def _nearest(question: SearchProblem) -> BestDesign:
    """The least violated of some designs."""
    y, exact = sampled_start(question.problem, question.model, question.options.local)
    return BestDesign(y, exact, np.zeros(len(question.problem.budgets)), math.nan, float(exact.objective))


def _unmet(question: SearchProblem, best: BestDesign, proved: bool, text: str, shown: str = "") -> Solution:
    """The answer where no design satisfies the budgets. **Arguments:** `best`: the design `shown`, with what it violates."""
    verdict = "infeasible, proved, over" if proved else "no design found, unproved, over"
    proof = Certificate(best.kkt_residual, best.violation, f"{verdict} {question.covered}{shown}")
    return best.solution(question, proof, Outcome.infeasible if proved else Outcome.not_found, text)


def infeasible_solution(question: SearchProblem, explain: bool) -> Solution:
    """No design satisfies the budgets: the smallest relaxations that would make one do, and the design of the common one."""
    problem, result = question.problem, question.result
    names = [budget.name for budget in problem.budgets]
    if not result.complete and (best := heuristic_solution(question)).violation <= FEASIBILITY_TOLERANCE:
        return _unpriced(question, best)
    proved = result.complete and math.isinf(result.bound)
    text = (
        "No design of the lattice satisfies all budgets. "
        if proved
        else "No design was found that satisfies all budgets. "
    )
    if not explain or question.deadline.over:
        return _unmet(question, _nearest(question), proved, text.strip())
    common = _minimal_relaxation(question, names)
    if common.point is None:
        nearest = _nearest(question)
        text += "No relaxation of the budgets up to a hundredfold makes one do: "
        text += (
            f"nothing in the box fits ({_misfits(problem, nearest)})." if common.complete else "none was found in time."
        )
        return _unmet(question, nearest, proved, text)
    text += (
        f"These budgets conflict: {', '.join(names)}. All of them relaxed by {_percent(common, question)} make one do"
    )
    alone = _alone(question, names)
    text += f"; so does one alone: {'; or '.join(alone)}." if alone else "; none alone does." if len(names) > 1 else "."
    # The best design under budgets relaxed by that much, and a little more, which an interior point needs.
    factor = math.exp(common.value) * (1.0 + question.options.elastic.gap)
    best = best_design(question, problem.relaxed([factor] * len(names)), common.point)
    shown = f"; {result.boxes:,} convex programmes bounded; shown: the best with all budgets relaxed"
    return _unmet(question, best, proved, text, shown)


def _alone(question: SearchProblem, names: list[str]) -> list[str]:
    """What each budget alone would have to give, in words."""
    budgets = question.problem.budgets if len(names) > 1 else ()
    relaxations = [(budget, _minimal_relaxation(question, [budget.name])) for budget in budgets]
    return [
        each.relaxed_words(more.value, _percent(more, question)) for each, more in relaxations if more.point is not None
    ]


def _minimal_relaxation(question: SearchProblem, names: list[str]) -> SearchResult:
    """The least factor by which some budgets must be exceeded."""
    options = question.options.elastic
    elastic = ElasticProblem(tuple(names), options.most_factor)
    return search(
        NodeRelaxations(question.problem, question.lattice, elastic, options=question.options), tolerance=options.gap,
        most_boxes=options.nodes, deadline=question.deadline,
    )  # fmt: skip


def _percent(relaxation: SearchResult, question: SearchProblem) -> str:
    """A relaxation, with what is proved of it."""
    least = max(0.0, math.expm1(relaxation.proved_bound)) if math.isfinite(relaxation.proved_bound) else 0.0
    most = math.expm1(relaxation.value)
    exactly = most - least <= 2 * question.options.elastic.gap
    return f"{100 * most:+.3g} %" + ("" if exactly else f", at least {100 * least:.3g} %")


def _misfits(problem: Problem, nearest: BestDesign) -> str:
    """What a design breaks besides budgets, by name."""
    own = slice(len(problem.budgets), None)
    broken = [
        name
        for name, used in zip(problem.constraints[own], nearest.exact.constraints[own], strict=True)
        if used > FEASIBILITY_TOLERANCE
    ]
    return ", ".join(broken) or "memory, heads, layers, racks, requests that arrive"
