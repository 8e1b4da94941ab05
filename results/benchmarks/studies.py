"""Ten studies whose global optimum is known: integers at one design of the lattice, the hardware continuous.

With the integers fixed the model reads exactly as one convex programme in the logarithms of five variables (HBM
bandwidth and capacity, clock, bandwidth inside and outside the domain). Its optimum is known to `REFERENCE_GAP` by the bound
of `hwopt.solver.gp.certificate`, which shares no code with any solver. Budgets are such that two or more constraints bind.

The integers come from a few seconds of `hwopt.solver.search.branch_and_bound.search` on each question; any valid ones would do.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.design import Design
from hwopt.design.lattices import lattice_of
from hwopt.design.metrics import metric
from hwopt.design.problem import Problem, ProblemForm, evaluate
from hwopt.solver.gp import certificate
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.jit_options import quick_jit
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import solve_leaf
from objectives.carbon import Carbon
from objectives.tokens_per_dollar import TokensPerDollar
from objectives.train_cost import TrainCost
from objectives.train_energy import TrainEnergy
from objectives.train_time import TrainTime
from objectives.training import TrainingQuestion
from tests.budgets import LARGE_RUN

DAY_S = 86400.0

REFERENCE_GAP = 1e-8
"""Relative distance at most between the known optimum and its bound."""

AGREES = 1e-7
"""Relative difference at most between the programme's optimum and the exact model at its point."""

ABSENT = -100.0
"""A limit that does not apply, as solvers take it that calculate with every constraint."""

COORDINATES = (
    "tp", "ep", "pp", "virtual_stages", "micro_batch", "dp", "micro_batches", "groups", "chips_per_rack", "hbm_stacks", "dies",
)  # fmt: skip
"""Order of a study's integers."""


@dataclass(frozen=True)
class Study:
    """A question and the design of its lattice (`COORDINATES`) at which its integers stay."""

    question: TrainingQuestion
    point: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.question.name} {self.question.workload} {self.question.chip}"

    def numbers(self) -> Question:
        """The study for the shared model."""
        problem = self.question.problem().continuous
        point = lattice_of(problem).point(dict(zip(COORDINATES, self.point, strict=True)))
        return question_of(self.name, problem, point)


STUDIES = (
    Study(TrainCost(**LARGE_RUN), (16, 1, 8, 16, 1, 128, 16, 2, 26, 1, 1)),
    Study(
        TrainCost(
            workload="gpt3-175b", chip="a100-80", stack="megatron-2021", site="singapore", tokens=3e12, global_batch=1536,
            sequence_length=2048, time_budget_s=60 * DAY_S, power_budget_w=1.38e7, capex_budget_usd=4e8,
        ),
        (8, 1, 16, 6, 1, 32, 48, 2, 37, 1, 1),
    ),
    Study(
        TrainTime(
            workload="llama3.1-70b", chip="h200", cooling="direct-liquid", site="iowa", global_batch=1024,
            capex_budget_usd=4.8e8, power_budget_w=1.65e7,
        ),
        (8, 1, 8, 10, 1, 128, 8, 2, 87, 1, 1),
    ),
    Study(
        TrainTime(
            workload="mixtral-8x22b", chip="mi300x", stack="rocm-primus-2025", tokens=10e12, global_batch=1024,
            capex_budget_usd=3e8, power_budget_w=1.15e7,
        ),
        (8, 1, 1, 1, 2, 487, 1, 2, 26, 1, 1),
    ),
    Study(
        TrainEnergy(
            chip="b200", stack="nemo-2025", site="norway", time_budget_s=50 * DAY_S, capex_budget_usd=1.2e9,
        ),
        (8, 1, 8, 16, 1, 128, 16, 13, 32, 1, 1),
    ),
    Study(
        TrainEnergy(
            workload="palm-540b", chip="tpu-v5p", stack="jax-maxtext-tpu", tokens=8e12, sequence_length=2048,
            time_budget_s=60 * DAY_S, capex_budget_usd=1.5e9,
        ),
        (16, 1, 1, 1, 2, 1040, 1, 9, 87, 1, 1),
    ),
    Study(
        Carbon(
            workload="llama3.1-70b", site="poland", cooling="immersion-1p", global_batch=1024, time_budget_s=40 * DAY_S,
            capex_budget_usd=4e8,
        ),
        (4, 1, 1, 1, 1, 1075, 1, 21, 87, 1, 1),
    ),
    Study(
        Carbon(
            workload="nemotron4-340b", chip="gb200", stack="nemo-2025", site="france", tokens=9e12, global_batch=2304,
            sequence_length=4096, time_budget_s=45 * DAY_S, capex_budget_usd=9e8,
        ),
        (8, 1, 2, 16, 2, 288, 4, 9, 87, 1, 1),
    ),
    Study(TokensPerDollar(chip="h200", site="quebec"), (8, 1, 16, 8, 1, 64, 32, 2, 27, 1, 1)),
    Study(
        TokensPerDollar(
            workload="qwen2-72b", chip="mi355x", stack="rocm-primus-2025", site="hyperscale-air", prices="on-premise", tokens=7e12,
            global_batch=1024, time_budget_s=60 * DAY_S, power_budget_w=9.2e6,
        ),
        (2, 1, 2, 5, 1, 256, 4, 26, 87, 1, 1),
    ),
)  # fmt: skip


def hardware(problem: Problem, point: np.ndarray) -> Problem:
    """The question with its integers fixed: continuous hardware alone.

    **Raises:** `SystemExit` where the point isn't one of the lattice.
    """
    lattice = lattice_of(problem)
    if not lattice.valid(point[None])[0]:
        raise SystemExit(f"{problem.question}: {point} is no design of its lattice any more; search for another")
    values = lattice.design(point)
    design = problem.template
    for each in problem.variables:
        if each.name in values:
            design = each.place.put(design, np.float64(values[each.name]))
    free = tuple(each for each in problem.variables if each.name not in values)
    template = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), design)
    return dataclasses.replace(problem, variables=free, template=template)


USED = (
    "run_cost_usd", "run_time_s", "run_energy_j", "run_carbon_kg", "cost_per_token_usd", "capex_usd", "peak_power_w",
)  # fmt: skip
"""Metrics that the studies minimise or limit: one form for all of them, so that each solver is compiled once."""

UNLIMITED = 300.0
"""Logarithm of the limit on a metric that a study doesn't limit."""


@dataclass(frozen=True)
class Question:
    """A study as numbers of the shared model: a rival solver needs nothing else."""

    name: str
    problem: Problem  # of the hardware alone
    point: np.ndarray
    flat: np.ndarray  # fixed inputs
    objective: np.ndarray  # one-hot over `USED`
    limits: np.ndarray  # logarithms, over `USED`
    lower: np.ndarray
    upper: np.ndarray

    @property
    def numbers(self) -> tuple:
        """Arguments of `values` besides the point."""
        return self.flat, self.objective, self.limits


def question_of(name: str, problem: Problem, point: np.ndarray) -> Question:
    """A problem at one integer design, for the shared model."""
    problem = hardware(problem, point)
    limits = np.full(len(USED), UNLIMITED)
    for budget in problem.budgets:
        limits[USED.index(budget.metric.name)] = math.log(budget.limit)
    objective = np.array([name == problem.objective.name for name in USED], float)
    return Question(
        name,
        problem,
        point,
        flattened(problem.template),
        objective,
        limits,
        np.asarray(problem.lower),
        np.asarray(problem.upper),
    )


@dataclass(frozen=True)
class Model:
    """What all studies share, and no numbers: each solver is compiled once for it."""

    form: ProblemForm
    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    def template(self, flat: Array) -> Design:
        """The fixed inputs, from one vector: 170 arguments a call would cost a solver more than the model does."""
        leaves, at = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            leaves.append(flat[at : at + size].reshape(shape))
            at += size
        return jax.tree.unflatten(self.tree, leaves)


def model_of(problem: Problem) -> Model:
    """All used metrics as budgets of one form."""
    leaves, tree = jax.tree.flatten(problem.template)
    form = dataclasses.replace(
        problem.form, objective=metric(USED[0]), budgets=tuple((name, metric(name)) for name in USED)
    )
    return Model(form, tree, tuple(np.shape(leaf) for leaf in leaves))


def flattened(template: Design) -> np.ndarray:
    """The fixed inputs as one vector."""
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(template)])


def values(model: Model, numbers: tuple, y: Array) -> tuple[Array, Array]:
    """Logarithm of the objective, and constraints (not above 0) of one point: `hwopt.design.problem.evaluate`."""
    flat, objective, limits = numbers
    held = evaluate(model.form, model.template(flat), y, jnp.ones(len(USED)), None).constraints
    used = held[: len(USED)]
    limited = held.at[: len(USED)].set(used - limits)
    return used @ objective, jnp.where(jnp.isneginf(limited), ABSENT, limited)


@partial(quick_jit, static=("model",))
def batch_values(model: Model, numbers: tuple, points: Array) -> tuple[Array, Array]:
    """Objective and largest constraint of many points."""

    def one(y):
        objective, constraints = values(model, numbers, y)
        return objective, constraints.max()

    return jax.vmap(one)(points)


@dataclass(frozen=True)
class Known:
    """The optimum of a study. Logarithms."""

    y: np.ndarray
    value: float
    bound: float
    multipliers: dict[str, float]


def known(question: Question) -> Known:
    """The optimum by the interior point, its bound by the certificate, both in the units of the exact model.

    **Raises:** `SystemExit` where the programme isn't solved, isn't exact or isn't proved.
    """
    problem = question.problem
    programme, answers = solve_leaf(NodeRelaxations(problem, lattice_of(problem)), question.point)
    constant = float(programme.constant[0])
    bound = float(certificate.lower_bound(programme.structure, programme.numbers, answers.y, answers.multipliers)[0])
    value = float(answers.objective[0])
    if programme.relaxed or answers.status[0] != SolveStatus.solved or value - bound > REFERENCE_GAP:
        raise SystemExit(f"{question.name}: its optimum isn't known (gap {value - bound:.1e}, status {answers.status})")
    y = hardware_of(programme.names, answers.y[0], problem)
    multipliers = {
        label: float(answers.multipliers[0, programme.group(label)].sum())
        for label in dict.fromkeys(programme.labels)
        if label
    }
    return Known(y, value + constant, bound + constant, multipliers)


def hardware_of(names: tuple[str, ...], y: np.ndarray, problem: Problem) -> np.ndarray:
    """The problem's variables of a programme's point; those it doesn't mind at their lower bounds."""
    held = dict(zip(names, y, strict=True))
    return np.array([held.get(each.name, math.log(each.lower)) for each in problem.variables])
