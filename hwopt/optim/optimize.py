"""Optimise a design question: certified over its lattice; or relaxed from many starts, then whole numbers re-optimised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import qmc
from tqdm.auto import tqdm

from hwopt.convex.reader import Unreadable
from hwopt.design.problem import Objective, Problem, evaluate
from hwopt.errors import UserError, suggest
from hwopt.optim.augmented_lagrangian import Optimum, Settings, minimise_all
from hwopt.optim.certified import certified
from hwopt.optim.exact import FEASIBLE, best_exact, exact
from hwopt.optim.lattices import lattice_of, without_lattice
from hwopt.optim.quick_jit import quick_jit
from hwopt.optim.serving_lattice import ServingLattice
from hwopt.optim.solution import Certificate, Outcome, Solution, build_solution
from hwopt.optim.whole_plans import whole_designs

REGIMES = ("certified", "relaxed")

BATCH = 32
"""Problems solved at a time. One batch size means one compiled solver for the relaxed and the whole-number stage."""

RELAXED = (12, 160)
SHORT = (8, 120)
WHOLE = (16, 200)
"""Multiplier updates and descent steps before each: of the relaxed stage, of a first look at whole-number designs, and of
the designs it leaves. On the default study the last ends within 4e-5 of (40, 400)."""

LOOK = 2 * BATCH
"""Whole-number designs that get a first look."""

STIFFNESS = 3.0
"""Price of a violation (% of objective per %) in the order of designs that are not solved to the end; elasticities of
budgets that can be met were 0 to 2 in the default study."""

SAFETY = 2e-5
"""Budgets are tightened by this (relative), so that the answer holds the stated ones exactly."""

MOST_STRETCH = math.log(100.0)
"""Budgets are stretched by a factor of a hundred at most when asking what would mend an infeasible question."""


@partial(quick_jit, static=("form", "transformation", "count"), loops=True)
def _solve(
    form, transformation, count, template, starts, lowers, uppers, weights, elastic, limits, settings
) -> Optimum:
    """Solve a batch of problems of one form; `count` of constraints."""

    def values(y, temperature, problem):
        weight, is_elastic = problem
        at = evaluate(form, template, y[:-1], limits, temperature)
        stretched = at.constraints.at[: weight.size].add(-weight * y[-1])
        return jnp.where(is_elastic, y[-1], at.objective), stretched

    return minimise_all(values, starts, lowers, uppers, (weights, elastic), settings, transformation, count)


@dataclass(frozen=True)
class _Solver:
    """A problem and how to solve batches of it, which also answers how far budgets must give way.

    The solver carries one variable more: s >= 0, by which budget i is stretched, `G_i <= w_i s`. Ordinary problems pin it
    to zero; elastic ones minimise it instead of the objective.
    """

    problem: Problem
    transformation: optax.GradientTransformation | None = None

    def run(self, boxes: Boxes, counts: tuple[int, int], weights: np.ndarray | None = None) -> Optimum:
        """Solve up to `BATCH` problems; fewer are padded with copies of the last.

        **Arguments:** `boxes`: starts, lower and upper bounds in log space, (problem, variable) each; `counts` of outer and
        inner steps; `weights` of an elastic problem, (problem, budget), or None.

        **Returns:** optima; elastic ones have s as last variable.
        """
        starts, lowers, uppers = boxes
        size = len(starts)
        elastic = weights is not None
        weights = np.zeros((size, len(self.problem.budgets))) if weights is None else weights
        stretch = np.full((size, 1), MOST_STRETCH if elastic else 0.0)
        columns = [
            np.hstack([starts, stretch]),
            np.hstack([lowers, 0.0 * stretch]),
            np.hstack([uppers, stretch]),
            weights,
            np.full(size, elastic),
        ]
        padded = [np.concatenate([x, np.repeat(x[-1:], BATCH - size, axis=0)]) for x in columns]
        limits = self.problem.limits * (1.0 - SAFETY)
        settings = Settings(outer=jnp.asarray(counts[0]), inner=jnp.asarray(counts[1]))
        problem = self.problem
        form, count = problem.form, len(problem.constraints)
        columns = map(jnp.asarray, padded)
        optimum = _solve(form, self.transformation, count, problem.template, *columns, limits, settings)
        optimum = jax.tree.map(lambda leaf: np.asarray(leaf)[:size], optimum)
        return optimum if elastic else optimum._replace(y=optimum.y[:, :-1])


Box = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Start, lower and upper bounds of one problem, logarithms."""

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The same of several problems, stacked."""


def _same_box(starts: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Boxes:
    return starts, np.broadcast_to(lower, starts.shape), np.broadcast_to(upper, starts.shape)


def _stacked(boxes: list[Box]) -> Boxes:
    starts, lowers, uppers = (np.stack(column) for column in zip(*boxes, strict=True))
    return starts, lowers, uppers


def sobol_starts(problem: Problem, count: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points in the box, logarithmic."""
    points = qmc.Sobol(len(problem.variables), rng=seed).random_base2(math.ceil(math.log2(count)))[:count]
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    return lower + points * (upper - lower)


def optimize(
    objective: Objective | Problem,
    *,
    seed: int = 0,
    progress: bool = False,
    transformation: optax.GradientTransformation | None = None,
    regime: str = "certified",
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    designs: Sequence[np.ndarray] = (),
    mending: bool = True,
) -> Solution:
    """The best design a question has, buildable in whole numbers.

    **Certified** (default): the model is read as convex programmes over boxes of whole-number designs, which are bounded,
    split and discarded until the best design is proved (`hwopt.optim.certified`). Questions that cannot be read so, because
    they branch on other whole numbers or hold terms without a reading, are solved relaxed, and say so.

    **Relaxed:** hardware and parallel degrees continuous together, smooth maxima, `BATCH` Sobol starts. Then the valid
    whole-number designs around the best start, ordered by objective and a stiff price on violations: `LOOK` of them get a
    first look, the `BATCH` cheapest are re-optimised in what stays continuous, and the exact model has the last word.

    **Arguments:** `objective`: from `hwopt.objective(...)`, or a `Problem`; `progress` shows a bar on standard error;
    `regime`: "certified" or "relaxed"; `seconds` after which the certified search stops with its best and an honest gap;
    `freeze`: variables or categories of them held at what the machine has now; `bounds`: boxes of one's own by variable, SI;
    `designs`: whole numbers (`point` of its lattice) that the certified search starts from, such as answers of like questions;
    `mending`: where it proves that no design holds the budgets, say also by how much they would have to give way;
    `seed` of the starts and `transformation`, an optax transformation in place of Adam, of the relaxed regime.

    **Returns:** a `Solution`; its outcome says whether it is feasible.

    **Raises:** `UserError` for a question that cannot be stated.
    """
    if seed < 0:
        raise UserError(f"seed = {seed} must not be negative")
    if regime not in REGIMES:
        raise UserError(f"unknown regime '{regime}': {suggest(regime, REGIMES)}")
    with jax.enable_x64(True):
        problem = objective if isinstance(objective, Problem) else objective.problem()
        problem = problem.frozen(freeze).narrowed(bounds or {})
        if not problem.variables:
            raise UserError(f"problem '{problem.name}' has no variables: name at least one")
        if regime == "relaxed":
            return _relaxed(problem, seed, progress, transformation, "")
        why = without_lattice(problem)
        if not why:
            try:
                return certified(problem, seconds=seconds, progress=progress, designs=designs, mending=mending)
            except Unreadable as unread:
                why = str(unread)
        return _relaxed(problem, seed, progress, transformation, f"; not certified: {why}")


def _relaxed(problem: Problem, seed: int, progress: bool, transformation, why: str) -> Solution:
    solver = _Solver(problem, transformation)
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    # The exact model compiles while the solver runs.
    with ThreadPoolExecutor(1) as pool, tqdm(total=4, desc="optimize", disable=not progress, leave=False) as bar:
        bar.set_postfix_str(f"compiling, then {BATCH} relaxed starts")
        starts = sobol_starts(problem, BATCH, seed)
        relaxed = solver.run(_same_box(starts, lower, upper), RELAXED)
        best = _best(relaxed, 1e-3)
        compiled = pool.submit(exact, problem, relaxed.y, BATCH)
        bar.update()
        bar.set_postfix_str("whole numbers around the relaxed optimum")
        candidates = list(_boxes(problem, relaxed.y[best]))
        chosen = _cheapest(solver, candidates, (1, 1), LOOK)
        bar.update()
        bar.set_postfix_str(f"re-optimising the best {len(chosen)} of {len(candidates)}")
        chosen = _cheapest(solver, chosen, SHORT, BATCH)
        whole = solver.run(_stacked(chosen), WHOLE) if chosen else relaxed
        bar.update()
        bar.set_postfix_str("exact model")
        compiled.result()
        answers = exact(problem, whole.y, BATCH)
        pick = best_exact(answers.objective, answers.violation)
        feasible = bool(chosen) and answers.violation[pick] <= FEASIBLE
        clash = "" if feasible else _clash(solver, relaxed.y[best])
        bar.update()
    agreeing = (np.abs(relaxed.objective - relaxed.objective[best]) < 1e-2) & (relaxed.constraints.max(1) < 1e-3)
    certificate = Certificate(
        kkt_residual=float(whole.residual[pick]),
        max_violation=float(max(0.0, answers.violation[pick])),
        scope=(
            f"local: best of {min(LOOK, len(candidates))} whole-number designs re-optimised, of {len(candidates)} around the "
            f"best of {BATCH} relaxed starts ({int(agreeing.sum())} of them agree within 1 %){why}"
        ),
    )
    built, report = (jax.tree.map(lambda leaf: leaf[pick], part) for part in answers[:2])
    return build_solution(
        problem,
        whole.y[pick],
        whole.multipliers[pick],
        relaxed.multipliers[best],
        built,
        report,
        certificate,
        Outcome.optimal if feasible else Outcome.infeasible,
        clash,
    )


def _clash(solver: _Solver, start: np.ndarray) -> str:
    """The smallest relaxations that would mend an infeasible question: each budget alone, and all together.

    Minimises the stretch s in `log(used / limit) <= w s`, from the least violated point, in the relaxed model.
    """
    budgets = solver.problem.budgets
    weights = np.vstack([np.eye(len(budgets)), np.ones((1, len(budgets)))])
    lower, upper = np.asarray(solver.problem.lower), np.asarray(solver.problem.upper)
    starts = np.broadcast_to(start, (len(weights), len(start)))
    elastic = solver.run(_same_box(starts, lower, upper), WHOLE, weights)
    held = elastic.constraints.max(axis=1) < 1e-3
    mends = [
        f"{budget.name} from {budget.limit:.6g} to {budget.limit * math.exp(stretch):.6g} {budget.metric.unit} "
        f"({100 * math.expm1(stretch):+.3g} %)"
        for budget, stretch, holds in zip(budgets, elastic.y[:-1, -1], held[:-1], strict=True)
        if holds and stretch < 0.99 * MOST_STRETCH
    ]
    names = ", ".join(budget.name for budget in budgets)
    if held[-1] and elastic.y[-1, -1] < 1e-3:
        return (
            "The relaxed model holds every budget; whole numbers of chips, stages and replicas do not. Budgets relaxed by "
            "what the design above exceeds them mend it; so may a wider box for the global batch."
        )
    text = f"These budgets clash: {names}. "
    if held[-1]:
        text += f"All of them relaxed by {100 * math.expm1(elastic.y[-1, -1]):.3g} % would do"
        text += f"; so would one alone: {'; or '.join(mends)}." if mends else "; none alone would."
        return text + " (Relaxed model: whole numbers may need a little more.)"
    return text + "No stretch of budgets mends it: the plan itself does not fit (memory, heads, layers or batch)."


def _best(optimum: Optimum, tolerance: float) -> int:
    """Lowest objective among feasible points, else the least violated."""
    violation = optimum.constraints.max(axis=1)
    violation = np.where(np.isfinite(violation), violation, np.inf)
    if (violation <= tolerance).any():
        return int(np.argmin(np.where(violation <= tolerance, optimum.objective, np.inf)))
    return int(np.argmin(violation))


def _boxes(problem: Problem, relaxed: np.ndarray) -> Iterator[Box]:
    """Start and box of each whole-number design: what is whole has no room."""
    names = [each.name for each in problem.variables]
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    values = dict(zip(names, np.exp(relaxed), strict=True))
    for design in _whole(problem, values):
        fixed = np.array([math.log(design[name]) if name in design else np.nan for name in names])
        free = np.isnan(fixed)
        yield np.where(free, relaxed, fixed), np.where(free, lower, fixed), np.where(free, upper, fixed)


def _whole(problem: Problem, relaxed: dict[str, float]) -> list[dict[str, float]]:
    """Valid whole-number settings near a relaxed design."""
    lattice = lattice_of(problem)
    return lattice.near(relaxed) if isinstance(lattice, ServingLattice) else whole_designs(problem, relaxed)


def _cheapest(solver: _Solver, candidates: list[Box], counts: tuple[int, int], keep: int) -> list[Box]:
    """The best of some designs after a number of steps (one: as they stand), each starting where those steps ended.

    Best by objective and violations at a stiff price.
    """
    merits, moved = [], []
    for first in range(0, len(candidates), BATCH):
        part = candidates[first : first + BATCH]
        at = solver.run(_stacked(part), counts)
        merits.append(at.objective + STIFFNESS * np.maximum(at.constraints, 0.0).sum(axis=1))
        moved += [(y, lower, upper) for y, (_, lower, upper) in zip(at.y, part, strict=True)]
    order = np.argsort(np.concatenate(merits), kind="stable") if merits else []
    return [moved[i] for i in order[:keep]]
