"""Ways to solve one study, all on the same exact model in float64: `hwopt.design.problem.evaluate`, compiled and vmapped.

Every method is told the box, and may ask for the objective and all constraints of any point, and for exact gradients. What
counts is the best point it evaluated that satisfies every constraint to `FEASIBILITY_TOLERANCE`. Optuna and pymoo are no
dependencies of this project: `pip install optuna pymoo`.
"""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from scipy.optimize import minimize

from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import Boxes
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.gp import certificate
from hwopt.solver.jit_options import quick_jit
from hwopt.solver.local.augmented_lagrangian import minimise_all
from hwopt.solver.local.multistart import sobol_starts
from hwopt.solver.options import SEARCH
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from results.benchmarks.studies import UNLIMITED, Model, Question, batch_values, hardware_of, values

SAMPLES = 1_000_000
"""Of random search, in batches of 15,625."""
TRIALS = 1_000
"""Of Optuna's sampler, one at a time, as it learns from each."""
GENERATIONS, POPULATION = 200, 100
"""Of differential evolution."""
PENALTIES = (10.0, 100.0, 1e3, 1e4)
"""Weights of the quadratic penalty under plain Adam."""
PENALTY_STARTS = 8
"""Starts for each weight."""
STEPS = 3_000
"""Of plain Adam."""
RATE = 2e-2
"""Of plain Adam, falling to 0 as a cosine: a share of a variable."""
SLSQP_STARTS = 5

SEED = 0


@dataclass
class Best:
    """The best feasible point among all that a method evaluated. The objective is a logarithm."""

    value: float = math.inf
    evaluations: int = 0
    feasible: int = 0  # points among those that `see` was shown
    ends: list[float] = field(default_factory=list)  # what each start of several came to
    y: np.ndarray | None = field(default=None, repr=False)

    def see(self, points: np.ndarray, objective: np.ndarray, violation: np.ndarray) -> None:
        held = np.where((violation <= FEASIBILITY_TOLERANCE) & np.isfinite(objective), objective, np.inf)
        self.feasible += int(np.isfinite(held).sum())
        at = int(np.argmin(held))
        if held[at] < self.value:
            self.value, self.y = float(held[at]), np.array(points[at])


@dataclass(frozen=True)
class Task:
    """A study to solve; `trial` asks for the least work that compiles all that the method needs."""

    model: Model
    question: Question
    trial: bool = False

    def batch(self, points: np.ndarray, best: Best) -> tuple[np.ndarray, np.ndarray]:
        """Objective and largest constraint of points, counted and remembered."""
        objective, violation = (np.asarray(x) for x in batch_values(self.model, self.question.numbers, points))
        best.evaluations += len(points)
        best.see(points, objective, violation)
        return objective, violation


def needed(name: str) -> ModuleType:
    """A package of a rival.

    **Raises:** `SystemExit` where it isn't installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SystemExit(f"{name.split('.')[0]} is not installed: pip install optuna pymoo") from error


def random_search(task: Task) -> Best:
    """Uniform in the logarithms of the box."""
    question, best, size = task.question, Best(), 15_625
    rng = np.random.default_rng(SEED)
    for _ in range(1 if task.trial else SAMPLES // size):
        task.batch(rng.uniform(question.lower, question.upper, (size, len(question.lower))), best)
    return best


def optuna_tpe(task: Task) -> Best:
    """Tree-structured Parzen estimators that know the constraints; the suggested point is evaluated alone."""
    optuna = needed("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    question, best = task.question, Best()
    names = [each.name for each in question.problem.variables]

    def objective(trial) -> float:
        y = np.array(
            [trial.suggest_float(n, a, b) for n, a, b in zip(names, question.lower, question.upper, strict=True)]
        )
        value, violation = task.batch(y[None], best)
        trial.set_user_attr("violation", float(violation[0]))
        return float(value[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constraints_func is marked experimental
        sampler = optuna.samplers.TPESampler(
            seed=SEED, multivariate=True, constraints_func=lambda trial: (trial.user_attrs["violation"],)
        )
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=20 if task.trial else TRIALS)
    return best


def pymoo_de(task: Task) -> Best:
    """Differential evolution of pymoo (rand/1/bin, feasible points first), a generation at a time."""
    core = needed("pymoo.core.problem")
    algorithm = needed("pymoo.algorithms.soo.nonconvex.de").DE
    run = needed("pymoo.optimize").minimize
    question, best = task.question, Best()

    class Batched(core.Problem):
        def __init__(self):
            super().__init__(n_var=len(question.lower), n_obj=1, n_ieq_constr=1, xl=question.lower, xu=question.upper)

        def _evaluate(self, x, out, *_, **__):
            objective, violation = task.batch(x, best)
            out["F"], out["G"] = objective[:, None], violation[:, None]

    rounds = 2 if task.trial else GENERATIONS
    run(Batched(), algorithm(pop_size=POPULATION), ("n_gen", rounds), seed=SEED, verbose=False)
    return best


@partial(quick_jit, static=("model",))
def _penalised(model: Model, numbers: tuple, starts: Array, lower: Array, upper: Array, weights: Array, steps: Array):
    """Plain Adam on objective + weight/2 * sum of squared violations, in shares of the box; the best feasible iterate."""
    adam, width = optax.scale_by_adam(), upper - lower

    def step(index: Array, carry: tuple) -> tuple:
        rate = RATE * 0.5 * (1.0 + jnp.cos(jnp.pi * index / steps))

        def one(x, state, best_x, best, weight):
            def penalised(x):
                objective, constraints = values(model, numbers, lower + x * width)
                penalty = 0.5 * weight * jnp.sum(jnp.maximum(constraints, 0.0) ** 2)
                return objective + penalty, (objective, constraints.max())

            gradient, (objective, violation) = jax.grad(penalised, has_aux=True)(x)
            better = (violation <= FEASIBILITY_TOLERANCE) & (objective < best)
            best_x, best = jnp.where(better, x, best_x), jnp.where(better, objective, best)
            updates, state = adam.update(gradient, state)
            return jnp.clip(x - rate * updates, 0.0, 1.0), state, best_x, best

        return jax.vmap(one)(*carry, weights)

    begin = starts, jax.vmap(adam.init)(starts), starts, jnp.full(len(starts), jnp.inf)
    _, _, best_x, best = jax.lax.fori_loop(0, steps, step, begin)
    return lower + best_x * width, best


def adam_on_a_penalty(task: Task) -> Best:
    """Several weights from the same Sobol starts, at once."""
    question, best = task.question, Best()
    lower, upper = question.lower, question.upper
    starts = np.tile(
        (sobol_starts(question.problem, PENALTY_STARTS, SEED) - lower) / (upper - lower), (len(PENALTIES), 1)
    )
    weights = np.repeat(PENALTIES, PENALTY_STARTS)
    steps = 1 if task.trial else STEPS
    points, found = _penalised(task.model, question.numbers, starts, lower, upper, weights, jnp.asarray(steps))
    best.evaluations = steps * len(starts)
    best.see(np.asarray(points), np.asarray(found), np.where(np.isfinite(found), 0.0, np.inf))
    return best


@partial(quick_jit, static=("model",))
def values_and_slopes(model: Model, numbers: tuple, y: Array):
    """Objective and constraints of one point with exact gradients: what a solver from SciPy is given."""
    both = lambda y: values(model, numbers, y)
    return both(y), jax.jacfwd(both)(y)


def slsqp(
    model: Model, question: Question, start: np.ndarray, best: Best, tolerance: float = 1e-12, iterations: int = 300
) -> None:
    """SciPy's SLSQP from one start."""
    seen: dict[bytes, tuple] = {}
    others = len(question.problem.constraints) - len(question.problem.budgets)
    used = np.concatenate([question.limits < UNLIMITED, np.ones(others, bool)])

    def at(y: np.ndarray) -> tuple:
        key = y.tobytes()
        if key not in seen:
            answer = values_and_slopes(model, question.numbers, y)
            (objective, constraints), (slope, slopes) = jax.tree.map(np.asarray, answer)
            best.evaluations += 1
            best.see(y[None], objective[None], constraints.max()[None])
            seen[key] = float(objective), slope, -constraints[used], -slopes[used]
        return seen[key]

    limits = {"type": "ineq", "fun": lambda y: at(y)[2], "jac": lambda y: at(y)[3]}
    minimize(
        lambda y: at(y)[0], start, jac=lambda y: at(y)[1], method="SLSQP", constraints=limits,
        bounds=list(zip(question.lower, question.upper, strict=True)), options={"maxiter": iterations, "ftol": tolerance},
    )  # fmt: skip


def scipy_slsqp(task: Task) -> Best:
    """Five Sobol starts, one after the other."""
    best = Best()
    if task.trial:
        values_and_slopes(task.model, task.question.numbers, task.question.lower)
        return best
    for start in sobol_starts(task.question.problem, SLSQP_STARTS, SEED):
        one = Best()
        slsqp(task.model, task.question, start, one)
        best.evaluations += one.evaluations
        best.ends.append(one.value)
        if one.value < best.value:
            best.value, best.y = one.value, one.y
    return best


@partial(quick_jit, static=("model",))
def _augmented(model: Model, numbers: tuple, starts: Array, lowers: Array, uppers: Array, counts: tuple):
    return minimise_all(lambda y, _: values(model, numbers, y), starts, lowers, uppers, jnp.zeros(len(starts)), counts)


def augmented_lagrangian(task: Task) -> Best:
    """Our relaxed regime on what stays continuous, with its own settings: budgets tightened a little."""
    question, best = task.question, Best()
    starts = sobol_starts(question.problem, SEARCH.local.starts, SEED)
    flat, objective, limits = question.numbers
    counts = (1, 1) if task.trial else (SEARCH.local.integer_updates, SEARCH.local.integer_steps)
    found = _augmented(
        task.model, (flat, objective, limits + math.log1p(-SEARCH.local.safety)), starts,
        np.broadcast_to(question.lower, starts.shape), np.broadcast_to(question.upper, starts.shape),
        (jnp.asarray(counts[0]), jnp.asarray(counts[1])),
    )  # fmt: skip
    best.evaluations = math.prod(counts) * SEARCH.local.starts
    task.batch(np.asarray(found.y), best)
    return best


def certified(task: Task) -> Best:
    """Ours: the model read as a convex programme, solved, bounded by the certificate, checked by the exact model."""
    problem, best = task.question.problem, Best()
    point = task.question.point[None]
    known = bound_nodes(NodeRelaxations(problem, lattice_of(problem)), Boxes.of_points(point))
    programme, answers = known.programme, known.answers
    certificate.lower_bound(programme.structure, programme.numbers, answers.y, answers.multipliers)
    task.batch(hardware_of(programme.names, answers.y[0], problem)[None], best)
    best.evaluations = int(answers.iterations[0])
    return best


METHODS: dict[str, Callable[[Task], Best]] = {
    "random search": random_search,
    "Optuna TPE": optuna_tpe,
    "pymoo DE": pymoo_de,
    "Adam, quadratic penalty": adam_on_a_penalty,
    "SciPy SLSQP": scipy_slsqp,
    "hwopt augmented Lagrangian": augmented_lagrangian,
    "hwopt certified": certified,
}


def timed(method: Callable[[Task], Best], task: Task) -> tuple[Best, float]:
    """What a method finds, and its seconds."""
    begun = time.perf_counter()
    best = method(task)
    return best, time.perf_counter() - begun
