"""Models of free shape: proved beside one plan, never beaten by designs drawn at random or by the local answer."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np

import hwopt
from hwopt.design.exact import ExactModel, logarithms
from hwopt.design.model_shape import ASPECTS
from hwopt.plan import stage_layers
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import Outcome
from tests.rotation import one_in

PLAN = {
    "tp": (8, 8), "pp": (16, 16), "cp": (1, 1), "zero": (1, 1), "micro_batch": (1, 1), "virtual_stages": (7, 7),
    "chips_per_rack": (32, 32), "nics_per_server": (2, 2),
}  # fmt: skip
SHAPES = {"hidden": (16384, 20480), "layers": (96, 112)}


@cache
def answer():
    question = hwopt.objective("loss_under_budget", recompute="none", offload="none", free="nics")
    return hwopt.optimize(question, bounds=PLAN | SHAPES, explain=False)


@one_in(4, 3)
def test_a_free_shape_is_proved_beside_one_plan():
    solution, values = answer(), design_values(answer())
    assert solution.outcome is Outcome.proved and solution.certificate.gap <= 1e-4
    assert solution.certificate.max_violation <= 1e-6
    assert values["layers"] == round(values["layers"]) and values["hidden"] % 2048 == 0
    assert solution.objective <= 1.9116  # 16,384 wide, 111 deep


@one_in(4, 3)
def test_no_shape_at_random_is_below_the_bound():
    solution, rng, count = answer(), np.random.default_rng(5), 40000
    problem, values = solution.problem, design_values(solution)
    rows = np.tile(logarithms([values[each.name] for each in problem.variables]), (count, 1))
    places = {each.name: i for i, each in enumerate(problem.variables)}
    layers, width = rng.integers(96, 113, count), 2048 * rng.integers(8, 11, count)
    rows[:, places["layers"]], rows[:, places["hidden"]] = np.log(layers), np.log(width)
    for name, ratio in zip(("fullest_stage", "last_stage"), stage_layers(layers, 16, 7), strict=True):
        rows[:, places[name]] = np.log(ratio)
    replicas, rounds = rng.integers(52, 59, count), rng.integers(1, 3, count)  # chips of whole racks: 128 a replica
    rows[:, places["chips"]] = np.log(128 * replicas)
    rows[:, places["global_batch_sequences"]] = np.log(replicas * 16 * rounds)
    rows[:, places["tokens"]] += rng.uniform(-0.4, 0.1, count)
    rows[:, places["clock_ratio"]] = np.log(rng.uniform(0.8, 1.0, count))
    with jax.enable_x64(True):
        found = ExactModel(problem).at(rows)
    holds = (found.violation <= 1e-6) & (width / layers <= ASPECTS[1])
    assert holds.sum() > 100
    best = np.exp(found.objective[holds].min())
    assert solution.certificate.lower_bound <= best <= 1.002 * solution.objective  # near, not below
