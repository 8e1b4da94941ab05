"""Sweeps, sensitivities, frontiers and intervals of questions about serving: the same doors as for training."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt.calibration.intervals import question_interval
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import set_variables
from hwopt.errors import UserError
from hwopt.sweeps.space import Space
from objectives.serve_cost import ServeCost

SMALL = {"tp": (2.0, 4.0), "pp": (1.0, 1.0), "batch": (38.0, 42.0), "chips_per_rack": (22.0, 24.0)}
QUESTIONS = {
    "dense": ServeCost(),
    "experts": ServeCost(workload="deepseek-v3", chip="h200"),
    "disaggregated": ServeCost(split="disaggregated"),
}


@pytest.mark.search
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_sweep_says_what_the_model_says(name):
    """Rows of a sweep in single precision: the exact model's to 1e-4, and integer designs."""
    question = QUESTIONS[name]
    dataset = hwopt.sweep(question, samples=512, seed=3)
    problem = question.problem().continuous
    names = [each.name for each in problem.variables]
    rng = np.random.default_rng(0)
    for row in rng.choice(512, 12, replace=False):
        held = {n: float(dataset[n].values[row]) for n in names if n in dataset}
        stages = Space(problem).as_listed({n: np.float64(x) for n, x in held.items()})
        with jax.enable_x64(True):
            design = set_variables(problem.form, problem.template, [np.float64(stages[n]) for n in names])
            report = hwopt.estimate(*design.inputs)
        for metric in ("cost_per_token_usd", "time_to_first_token_s", "time_per_output_token_s", "peak_power_w"):
            assert math.isclose(float(dataset[metric].values[row]), float(getattr(report, metric)), rel_tol=1e-4)
        if dataset["possible"].values[row] > 0:
            lattice = lattice_of(problem)
            values = {each.name: float(each.place.get(design)) for each in problem.variables}
            assert lattice.valid(lattice.point(values)[None]).all()


def test_points_outside_are_marked():
    """Replicas that do not hold whole sets of experts, degrees that do not divide, domains of broken groups."""
    problem = QUESTIONS["experts"].problem().continuous
    space = Space(problem)
    good = space.completed({"tp": 4.0, "ep": 32.0, "replicas": 16.0, "scale_up_domain": 8.0, "batch": 8.0, "pp": 1.0})
    made = space.as_listed({name: np.float64(value) for name, value in good.items()})
    assert float(space.outside(made)) < 1.0
    for name, value in (("replicas", 12.0), ("ep", 24.0), ("tp", 3.0), ("scale_up_domain", 10.0), ("batch", 8.5)):
        broken = space.as_listed({n: np.float64(x) for n, x in (good | {name: value}).items()})
        assert float(space.outside(broken)) >= 1.0, name


@pytest.mark.search
def test_sensitivities_are_those_of_the_optimum():
    """Elasticity of the least price of a token to the price of a chip: what solving again gives."""
    problem = ServeCost().problem().continuous.narrowed(SMALL | {"replicas": (35.0, 40.0)})
    found = hwopt.sensitivity(problem)
    assert found.optimum is not None, found.unknown
    by = {each.input.name: each for each in found.parameters}
    each = by["cluster.prices.chip_base_usd"]
    integers = {each.name: float(each.place.get(found.built)) for each in problem.variables if each.integer}
    same = problem.narrowed({name: (value, value) for name, value in integers.items()})
    answers = []
    for factor in (0.99, 1.01):
        leaves, tree = jax.tree.flatten(same.template)
        leaves[each.input.leaf] = np.float64(each.input.value * factor)
        answers.append(hwopt.optimize(dataclasses.replace(same, template=jax.tree.unflatten(tree, leaves))).objective)
    slope = math.log(answers[1] / answers[0]) / math.log(1.01 / 0.99)
    assert math.isclose(each.elasticity, slope, rel_tol=1e-2)


@pytest.mark.search
def test_a_frontier_of_latency():
    """The least price of a token falls as tokens may take longer, every point certified."""
    question = dataclasses.replace(ServeCost(), chip="h200")
    made = hwopt.frontier(
        question,
        {"tpot_budget_s": [0.02, 0.03, 0.05]},
        freeze=("chip", "network", "facility"),
        bounds={"pp": (1.0, 1.0)},
    )
    price = made["cost_per_token_usd"].values.ravel()
    assert (np.diff(price) < 0.0).all()
    assert (made["certified"].values > 0).all()


@pytest.mark.search
def test_intervals_of_an_answer():
    """An answer has the interval of measured services; two groups, which nobody measured, have none."""
    boxes = {"tp": (4.0, 4.0), "pp": (1.0, 1.0), "batch": (60.0, 60.0), "replicas": (40.0, 40.0)}
    problem = (
        ServeCost(requests_per_s=10.0).problem().continuous.frozen(("chip", "network", "facility")).narrowed(boxes)
    )
    solution = hwopt.optimize(problem)
    around = question_interval(solution)
    assert around is not None and 0.02 < around.time < 1.0


def test_metrics_of_the_other_kind_are_refused():
    with pytest.raises(UserError, match="metric 'run_cost_usd'"):
        hwopt.sweep(ServeCost(), samples=16, metrics=["run_cost_usd"])
    problem = ServeCost().problem().continuous
    with pytest.raises(UserError, match="has no 'run_cost_usd'"):
        dataclasses.replace(problem, objective=hwopt.objective("train_cost").problem().continuous.objective)
