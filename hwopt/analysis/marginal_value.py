"""Marginal value of each input of an optimal design, with and without re-optimization."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hwopt.analysis.sensitivity import parameters_of
from hwopt.analysis.sensitivity.improvement import TENTH, ImprovementValue, improvement_value, part_of
from hwopt.declared import Result, derived, shown
from hwopt.design.choices import combinations
from hwopt.design.lattices import lattice_of
from hwopt.design.portfolio import portfolio_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.errors import UserError, collected, suggest
from hwopt.options import options_of
from hwopt.progress import counted
from hwopt.solver.budget_prices import with_one_sided_prices
from hwopt.solver.deadline import Deadline
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.optimize import optimize
from hwopt.solver.options import SearchOptions
from hwopt.solver.search.categorical import MOST_BRANCHES
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution
from hwopt.validation import boxes_of, check_question, check_seconds, names_of

REPLANNED = 3
"""Default number of inputs to re-optimize: the most valuable of as many parts. Each takes two searches of some 20 s."""

MOST_REPLANNED = 64
"""Maximum number of inputs that are re-optimized."""

ASKED = "what is asked"
"""Part that holds the inputs which describe the task itself (model and tokens); money cannot improve them."""


@dataclass(frozen=True)
class PerturbedAnswer:
    """Result of solving the question again with one input multiplied by a factor.

    **Arguments:**

    - `factor`: multiplier of the input.
    - `objective`: objective of the best design; infinite where no design is feasible.
    - `bound`: proved lower bound of the objective.
    - `same`: whether the integers of machine and plan equal those of the unperturbed answer.
    - `proved`: whether the search ended with a proof (optimal within the gap, or infeasible).
    """

    factor: float = shown()
    objective: float = shown()
    bound: float = shown(key="lower_bound")
    same: bool = shown(key="same_plan")
    proved: bool = shown()


@dataclass(frozen=True)
class ReoptimizedValue:
    """Objectives after one input improves by a tenth and after it worsens by a tenth.

    **Arguments:**

    - `today`: objective of the unperturbed answer.
    - `bound`: its proved lower bound.
    - `better`, `worse`: the two re-optimized answers.
    """

    today: float
    bound: float
    better: PerturbedAnswer = shown()
    worse: PerturbedAnswer = shown()

    @derived(key="saves")
    def gain(self) -> tuple[float, float]:
        """Return the share of the objective that the improvement saves, as an interval (low, high) that both proofs allow."""
        return (self.bound - self.better.objective) / self.today, (self.today - self.better.bound) / self.today

    @derived(key="costs")
    def loss(self) -> tuple[float, float]:
        """Return the share that the worsening adds to the objective, as an interval.

        It is infinite where no design is feasible.
        """
        return (self.worse.bound - self.today) / self.today, (self.worse.objective - self.bound) / self.today

    @derived()
    def between(self) -> tuple[float, float]:
        """Return the marginal value of a tenth as an interval that covers gain, loss and the optimality gaps.

        It is at least 0.
        """
        ends = (*self.gain, *self.loss)
        return max(0.0, min(ends)), max(0.0, *ends)


@dataclass(frozen=True)
class MarginalValue:
    """An input of the machine and its marginal value.

    **Arguments:**

    - `part`: part of the machine that the input belongs to.
    - `worth`: marginal value with integers and plan fixed.
    - `replanned`: value with everything re-optimized; None where this was not computed.
    """

    part: str
    worth: ImprovementValue
    replanned: ReoptimizedValue | None = None

    @property
    def input(self) -> Input:
        return self.worth.parameter.input

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def elasticity(self) -> float:
        return self.worth.parameter.elasticity


@dataclass(frozen=True)
class MarginalValues(Result):
    """Marginal values of all inputs of an answer, the most valuable first.

    **Arguments:**

    - `start`: the answer. Its budgets have shadow prices for both a tighter and a looser limit.
    - `numbers`: the inputs with their marginal values.
    - `unknown`: reason why no input has a marginal value; empty otherwise.
    - `over`: whether time ran out before all requested inputs were re-optimized.
    """

    rows = "numbers"

    start: Solution
    numbers: tuple[MarginalValue, ...]
    unknown: str
    over: bool

    @property
    def replanned(self) -> list[MarginalValue]:
        return [each for each in self.numbers if each.replanned is not None]


def invest(
    objective: Any,
    *,
    top: int = REPLANNED,
    of: Iterable[str] = (),
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    progress: bool = False,
    options: SearchOptions | None = None,
) -> MarginalValues:
    """Compute the marginal value of every input of a design question at its optimum.

    Each input has an elasticity, `d log F / d log x`, with the answer's integers and plan fixed (envelope theorem). The most
    valuable inputs of each part are also moved a tenth up and down, temperatures by 5 K. The whole question is solved again at
    both ends, warm-started from the designs found so far. The re-optimized value is therefore an interval, which covers the
    savings on both sides and the optimality gaps. Budgets become a tenth tighter and looser (`with_one_sided_prices`).

    **Arguments:**

    - `objective`: a design question.
    - `top`: number of inputs to re-optimize. Where it is not 0, all budgets are re-optimized as well.
    - `of`: names of the inputs to re-optimize instead, or the ends of their names, such as `hbm_bandwidth_bytes_per_s`.
    - `seconds`: time limit of the whole computation.
    - `freeze`, `bounds`, `choices`, `progress`, `options`: as in `optimize`. Of several choices, those of the optimum are kept.

    **Returns:** the answer with the marginal values of its inputs.

    **Raises:** `UserError` for a list of questions, for a `top` that is not a count, and for an unknown input.
    """
    check_question(objective, "invest")
    if portfolio_of(objective) is not None:
        raise UserError("invest: a list of questions has numbers of each; ask about one of them")
    if not isinstance(top, int) or not 0 <= top <= MOST_REPLANNED:
        raise UserError(f"invest: top = {top} must be a count from 0 to {MOST_REPLANNED}")
    search = options_of("invest", options, SearchOptions)
    deadline, wanted = Deadline(check_seconds(seconds, "invest")), names_of("of", of)
    problems: list[Problem] = []
    for each in combinations(objective, choices or {}, MOST_BRANCHES) if wanted else ():
        with collected([]):  # the search rejects invalid combinations with its own message
            problems.append(each.objective.problem())
    _known_names(problems, wanted)
    start = optimize(
        objective, seconds=max(deadline.left, 1e-3), freeze=names_of("freeze", freeze), bounds=boxes_of(bounds or {}),
        choices=choices, progress=progress, options=search,
    )  # fmt: skip
    if not start.feasible:
        return MarginalValues(start, (), "", False)
    _known_names([start.problem], wanted)  # choices can differ in their inputs
    parameters, unknown = parameters_of(start, deadline, search)
    known = [each for each in parameters if math.isfinite(each.elasticity)]
    rows = [MarginalValue(part_of(each.input), improvement_value(each, start.objective)) for each in known]
    rows = sorted((each for each in rows if each.part != ASKED), key=lambda each: -each.worth.share)
    chosen = _named(rows, wanted) if wanted else _leading(rows, top)
    done = _replanned(start, chosen, deadline, progress, search)
    if top:
        start = with_one_sided_prices(start, TENTH, deadline, search.tree.gap, search)
    numbers = tuple(MarginalValue(each.part, each.worth, done.get(each.name)) for each in rows)
    return MarginalValues(start, numbers, unknown, deadline.over and len(done) < len(chosen))


def _known_names(problems: Sequence[Problem], wanted: Sequence[str]) -> None:
    """Raise `UserError` for a name that matches no number of any problem; without problems, do nothing."""
    names = [each.name for problem in problems for each in template_inputs(problem)] if wanted else []
    for name in wanted if names else ():
        if not any(_is_named(each, name) for each in names):
            raise UserError(
                f"invest: '{name}' is no number of this question: {suggest(name, dict.fromkeys(map(_last, names)))}"
            )


def _last(name: str) -> str:
    return name.rpartition(".")[2].partition("[")[0]


def _is_named(name: str, wanted: str) -> bool:
    """Return whether `wanted` names an input: by its full name, by the end of it, or without its index in a list."""
    plain = name.partition("[")[0]
    return wanted in (name, plain) or name.endswith(f".{wanted}") or plain.endswith(f".{wanted}")


def _leading(rows: Sequence[MarginalValue], top: int) -> list[MarginalValue]:
    """Return the most valuable input of each part, then the next ones, up to `top`."""
    seen: set[str] = set()
    first = [each for each in rows if not (each.part in seen or seen.add(each.part))]
    return [*first, *(each for each in rows if each not in first)][:top]


def _named(rows: Sequence[MarginalValue], wanted: Sequence[str]) -> list[MarginalValue]:
    """Return the rows whose inputs are named, at most `MOST_REPLANNED`. Inputs without effect on the answer have no row."""
    return [each for each in rows if any(_is_named(each.name, name) for name in wanted)][:MOST_REPLANNED]


def _replanned(
    start: Solution, chosen: Sequence[MarginalValue], deadline: Deadline, progress: bool, options: SearchOptions
) -> dict[str, ReoptimizedValue]:
    """Re-optimize the chosen inputs on both sides, by name. Inputs for which no time was left are missing."""
    if not chosen or start.certificate.lower_bound is None:
        return {}
    done: dict[str, ReoptimizedValue] = {}
    with jax.enable_x64(True):
        lattice = lattice_of(start.problem)
        points = [lattice.point(design_values(start))]
        for each in counted(chosen, "input"):
            factor = each.worth.factor
            ends = []
            for side in (factor, 2.0 - factor):
                if deadline.over:
                    return done
                end = _end(start, each, side, points, deadline, progress, options)
                if end is None:
                    break
                ends.append(end)
            if len(ends) == 2:
                done[each.name] = ReoptimizedValue(start.objective, start.certificate.lower_bound, *ends)
    return done


def _end(
    start: Solution,
    number: MarginalValue,
    factor: float,
    points: list[np.ndarray],
    deadline: Deadline,
    progress: bool,
    options: SearchOptions,
) -> PerturbedAnswer | None:
    """Solve the question with one input multiplied by a factor, warm-started from `points`.

    Return None where time ran out before a lower bound was known, or where the moved question has no convex relaxation. A new
    design is appended to `points`.
    """
    moved = start.problem.with_numbers({number.input.place: factor})
    try:
        found = solve_global(
            moved, deadline=deadline, progress=progress, designs=points, explain=False, options=options
        )
    except NotDGP:
        return None
    if not found.feasible:
        proved = found.outcome is Outcome.infeasible
        return PerturbedAnswer(factor, math.inf, math.inf, False, True) if proved else None
    if found.certificate.lower_bound is None:
        return None
    point = lattice_of(start.problem).point(design_values(found))
    same = bool(np.array_equal(point, points[0]))
    if not any(np.array_equal(point, other) for other in points):
        points.append(point)
    return PerturbedAnswer(
        factor, found.objective, found.certificate.lower_bound, same, found.outcome is Outcome.proved
    )
