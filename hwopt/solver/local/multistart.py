"""Local optimization: hardware and parallel degrees continuous together from many starts, then integer designs around the best.

For problems that have no certified solution yet, and for quick estimates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import qmc
from tqdm.auto import tqdm

from hwopt.design.exact import ExactModel, ExactValues, logarithms
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.loss import Loss
from hwopt.design.problem import Problem
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.jit_options import quick_jit
from hwopt.solver.local.augmented_lagrangian import LagrangianState, minimise_all
from hwopt.solver.options import SEARCH, LocalOptions, SearchOptions
from hwopt.solver.search.heuristics.rounding import best_candidate, rounding_candidates, sampled_start
from hwopt.solver.search.solve_global import SearchProblem, heuristic_solution
from hwopt.solver.solution import Certificate, Outcome, Solution, build_solution


@partial(quick_jit, static=("loss", "transformation", "options"), loops=True)
def _solve(loss, transformation, starts, lowers, uppers, weights, elastic, counts, options) -> LagrangianState:
    """Solve a batch of problems of one question."""

    def values(y, problem):
        weight, is_elastic = problem
        objective, constraints = loss.both(y[:-1])
        eased = constraints.at[: weight.size].add(-math.log1p(-options.safety) - weight * y[-1])
        return jnp.where(is_elastic, y[-1], objective), eased

    return minimise_all(values, starts, lowers, uppers, (weights, elastic), counts, options, transformation)


Boxes = Sequence[np.ndarray]
"""Start, lower and upper bounds, logarithms, of one problem, or of several along a first axis."""


def sobol_starts(problem: Problem, count: int, seed: int) -> np.ndarray:
    """Return scrambled Sobol points within the variables' bounds, logarithms."""
    points = qmc.Sobol(len(problem.variables), rng=seed).random_base2(math.ceil(math.log2(count)))[:count]
    return problem.lower + points * (problem.upper - problem.lower)


def optimize_relaxed(
    problem: Problem,
    seed: int = 0,
    progress: bool = False,
    transformation: optax.GradientTransformation | None = None,
    why: str = "",
    deadline: Deadline | None = None,
    options: SearchOptions = SEARCH,
) -> Solution:
    """Return the best of the integer designs around the best of many relaxed starts.

    Valid integer designs around the best start are ordered by objective plus a stiff penalty on violations. Some are optimized
    for a few steps, the cheapest fully, in the variables that stay continuous. The exact model selects the best.

    **Arguments:**

    - `seed`: seed of the Sobol starts.
    - `progress`: whether to show a progress bar.
    - `transformation`: optax transformation in place of Adam.
    - `why`: reason why there is no certificate, appended to its scope.
    - `deadline`: time at which the best design so far is returned.
    - `options`: iteration counts and schedules.
    """
    work = _Relaxed(problem, transformation, seed, why, ExactModel(problem).prepare(), deadline or Deadline(), options)

    def run() -> Solution:
        with jax.enable_x64(True):
            return work.run(progress)

    return by_deadline(work.deadline, run, work.cut_short)


@dataclass
class _Relaxed:
    """A local optimization in progress."""

    problem: Problem
    transformation: optax.GradientTransformation | None
    seed: int
    why: str
    model: ExactModel
    deadline: Deadline
    options: SearchOptions = SEARCH

    @property
    def own(self) -> LocalOptions:
        return self.options.local

    @cached_property
    def loss(self) -> Loss:
        """Objective and constraints as a small compiled loop."""
        return Loss(self.problem, {}, (), 1.0)

    @property
    def integer_counts(self) -> tuple[int, int]:
        """Number of multiplier updates of the integer stage, and of descent steps before each."""
        return self.own.integer_updates, self.own.integer_steps

    def solve(self, boxes: Boxes, counts: tuple[int, int], weights: np.ndarray | None = None) -> LagrangianState:
        """Solve a batch of problems; a smaller one is padded with copies of its last problem.

        The solver has one more variable s >= 0, by which budget i may be exceeded: `G_i <= w_i s`. Ordinary problems fix it at
        zero; elastic problems minimize it instead of the objective.

        **Arguments:**

        - `boxes`: starts and bounds.
        - `counts`: number of multiplier updates, and of descent steps before each.
        - `weights`: weights w of an elastic problem (problem, budget), or None.

        **Returns:** optima. Those of elastic problems have s as last variable.
        """
        problem, size, elastic, own = self.problem, len(boxes[0]), weights is not None, self.own
        excess = np.full((size, 1), math.log(own.most_factor) if elastic else 0.0)
        columns = [np.hstack([side, room]) for side, room in zip(boxes, (excess, 0.0 * excess, excess), strict=True)]
        columns += [np.zeros((size, len(problem.budgets))) if weights is None else weights, np.full(size, elastic)]
        padded = [jnp.asarray(column[np.minimum(np.arange(max(own.starts, size)), size - 1)]) for column in columns]
        steps = jnp.asarray(counts[0]), jnp.asarray(counts[1])
        optimum = _solve(self.loss, self.transformation, *padded, steps, options=own)
        optimum = jax.tree.map(lambda leaf: np.asarray(leaf)[:size], optimum)
        return optimum if elastic else optimum._replace(y=optimum.y[:, :-1])

    def around(self, starts: np.ndarray) -> Boxes:
        """Return starts with the bounds of the whole problem."""
        return np.broadcast_arrays(starts, self.problem.lower, self.problem.upper)

    def run(self, progress: bool) -> Solution:
        own, batch = self.own, self.own.starts
        with tqdm(total=3, desc="optimize", disable=not progress, leave=False) as bar:
            bar.set_postfix_str(f"compiling, then {batch} relaxed starts")
            relaxed = self.solve(
                self.around(sobol_starts(self.problem, batch, self.seed)), (own.relaxed_updates, own.relaxed_steps)
            )
            best = best_candidate(relaxed.objective, relaxed.constraints.max(axis=1), 1e-3)
            bar.update()
            bar.set_postfix_str("integers around the relaxed optimum")
            candidates = self.integer_boxes(relaxed.y[best])
            chosen = self.cheapest(candidates, (1, 1), own.looks)
            bar.update()
            bar.set_postfix_str(f"re-optimizing the best {len(chosen)} of {len(candidates)}")
            chosen = self.cheapest(chosen, (own.short_updates, own.short_steps), batch)
            final = self.solve(_stacked(chosen), self.integer_counts) if chosen else relaxed
            bar.update()
        exact = self.model.at(final.y)
        pick = best_candidate(exact.objective, exact.violation)
        feasible = bool(chosen) and exact.violation[pick] <= FEASIBILITY_TOLERANCE
        infeasibility = "" if feasible or self.deadline.over else self.minimal_relaxations(relaxed.y[best])
        agreeing = (np.abs(relaxed.objective - relaxed.objective[best]) < 1e-2) & (relaxed.constraints.max(1) < 1e-3)
        scope = (
            f"best of {min(own.looks, len(candidates))} integer designs re-optimized, of {len(candidates)} around the "
            f"best of {batch} relaxed starts ({int(agreeing.sum())} of them agree within 1 %)"
        )
        return self.solution(
            final.y[pick], final.multipliers[pick], relaxed.multipliers[best], exact.one(pick), scope,
            float(final.residual[pick]), feasible, infeasibility,
        )  # fmt: skip

    def cut_short(self) -> Solution:
        """Return the best of some sampled designs, for a deadline that passed before a relaxed optimum was known."""
        y, exact = sampled_start(self.problem, self.model, self.own)
        if exact.violation > FEASIBILITY_TOLERANCE and not reason_without_lattice(self.problem):
            lattice = lattice_of(self.problem)
            best = heuristic_solution(
                SearchProblem(self.problem, lattice, self.model, self.deadline, options=self.options)
            )
            y, exact = best.y, best.exact
        feasible = bool(exact.violation <= FEASIBILITY_TOLERANCE)
        none = np.full(len(self.problem.budgets), math.nan)
        text = "" if feasible else "Time ran out before a design was found that satisfies all budgets."
        scope = "best of a first look, stopped before a relaxed optimum was known"
        return self.solution(y, none, None, exact, scope, math.nan, feasible, text)

    def solution(
        self, y: np.ndarray, multipliers: np.ndarray, relaxed_multipliers: np.ndarray | None, exact: ExactValues, scope: str,
        residual: float, feasible: bool, infeasibility: str,
    ) -> Solution:  # fmt: skip
        proof = Certificate(residual, float(max(0.0, exact.violation)), f"local: {scope}{self.why}")
        outcome = Outcome.local if feasible else Outcome.not_found
        return build_solution(self.problem, y, multipliers, relaxed_multipliers, exact, proof, outcome, infeasibility)

    def integer_boxes(self, relaxed: np.ndarray) -> list[Boxes]:
        """Return start and bounds of each integer design around a relaxed one. The bounds of integers coincide."""
        problem, names = self.problem, [each.name for each in self.problem.variables]
        boxes = []
        for design in rounding_candidates(problem, dict(zip(names, np.exp(relaxed), strict=True)), self.own):
            fixed = logarithms([design.get(name, np.nan) for name in names])
            boxes.append([np.where(np.isnan(fixed), end, fixed) for end in (relaxed, problem.lower, problem.upper)])
        return boxes

    def cheapest(self, candidates: list[Boxes], counts: tuple[int, int], keep: int) -> list[Boxes]:
        """Return the best of some designs after a number of steps, each with its end point as next start.

        One step evaluates the designs without moving them. The order is by objective plus a stiff penalty on violations.

        **Arguments:**

        - `candidates`: start and bounds of each design.
        - `counts`: number of outer and of inner steps.
        - `keep`: maximum number of designs returned.
        """
        merits, moved = [], []
        for first in range(0, len(candidates), self.own.starts):
            part = candidates[first : first + self.own.starts]
            at = self.solve(_stacked(part), counts)
            merits.append(at.objective + self.own.stiffness * np.maximum(at.constraints, 0.0).sum(axis=1))
            moved += [(y, lower, upper) for y, (_, lower, upper) in zip(at.y, part, strict=True)]
        order = np.argsort(np.concatenate(merits), kind="stable") if merits else []
        return [moved[i] for i in order[:keep]]

    def minimal_relaxations(self, start: np.ndarray) -> str:
        """Describe the smallest relaxations that would make a problem feasible: of each budget alone, and of all together.

        Minimizes s in `log(used / limit) <= w s`, from the least violated point, in the relaxed model.
        """
        budgets = self.problem.budgets
        weights = np.vstack([np.eye(len(budgets)), np.ones((1, len(budgets)))])
        elastic = self.solve(
            self.around(np.broadcast_to(start, (len(weights), len(start)))), self.integer_counts, weights
        )
        solved, more = elastic.constraints.max(axis=1) < 1e-3, elastic.y[:, -1]
        if solved[-1] and more[-1] < 1e-3:
            return (
                "The continuous relaxation satisfies every budget; integer counts of chips, stages and replicas do not. Feasible "
                "if the budgets are relaxed by what the design below exceeds them; a wider range of the global batch may help, too."
            )
        if not solved[-1]:
            return "No relaxation of the budgets was found to help: the plan itself does not fit (memory, heads, layers or batch)."
        alone = [
            budget.relaxed_words(each, f"{100 * math.expm1(each):+.3g} %")
            for budget, each, holds in zip(budgets, more[:-1], solved[:-1], strict=True)
            if holds and each < 0.99 * math.log(self.own.most_factor)
        ]
        text = f"Feasible if all budgets are relaxed by {100 * math.expm1(more[-1]):.3g} %"
        text += f", or if one alone is: {'; or '.join(alone)}." if alone else "."
        return text + " (Continuous relaxation: integer counts may need a little more.)"


def _stacked(boxes: list[Boxes]) -> Boxes:
    return [np.stack(column) for column in zip(*boxes, strict=True)]
