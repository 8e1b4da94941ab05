"""Answers that once claimed more than was proved, or were not there in time: each question in a box small enough for a test."""

from __future__ import annotations

import itertools
import json

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.cli import main
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of, scope_of
from hwopt.design.problem import Problem
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.answers.optimum import solution_answer
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.search import solve_global
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.solution import Outcome, Solution
from tests.rotation import one_in, rotated

OPEN = {"power_budget_w": 1e12, "capex_budget_usd": 1e14, "time_budget_s": 1e12}
"""Budgets that nothing exceeds."""


def problem(objective: str, boxes: dict[str, tuple[float, float]], **fields) -> Problem:
    with jax.enable_x64(True):
        return hwopt.objective(objective, **fields).problem().continuous.narrowed(boxes)


def answered(asked: Problem) -> Solution:
    """What a search of some hundred boxes comes to: no time, which depends on the machine."""
    with jax.enable_x64(True):
        return solve_global.solve_global(asked, explain=False, most_boxes=600)


@one_in(3, 1)
def test_a_feasible_answer_is_feasible_by_its_own_report():
    """The proof's constraints lacked cables of a rack: an optimum whose report said `feasible: false`."""
    asked = problem(
        "train_time", {"chips_per_rack": (1, 72), "pp": (1, 4)}, chip="b100", workload="internlm-7b", site="best-case",
        cooling="immersion-1p", fabric="ndr-rail", precision="fp4", constants="speed-of-light",
        capex_budget_usd=916609996.17, sequence_length=4096.0, global_batch=2048.0,
        time_budget_s=528668.0,
    )  # fmt: skip
    answer = answered(asked)
    assert answer.feasible == bool(answer.report.feasible)
    assert not answer.feasible or not answer.report.violations()


@pytest.mark.parametrize(
    ("chip", "precision", "constants"),
    [
        ("h100-sxm", "fp32", "speed-of-light"), ("gaudi2", "tf32", "literature"), ("b300", "int8", "speed-of-light"),
        ("gb300", "int8", "calibrated"), ("h100-sxm", "fp32", "calibrated"),
    ],
)  # fmt: skip
def test_no_utilisation_is_above_1_and_no_average_above_the_peak(chip, precision, constants):
    run = catalog.training_run("llama2-7b", global_batch=1024, precision=precision)
    plan = catalog.plan(run, 256, zero=3)
    report = hwopt.estimate(run, catalog.cluster(chip, 256, constants=constants), plan)
    assert 0.0 < report.mfu <= report.hfu <= 1.0
    assert report.power_w <= report.peak_power_w * (1 + 1e-6)


@one_in(3, 2)
def test_designs_read_beside_others_are_as_good_as_alone():
    """A leaf relaxed for the sake of its neighbours was dropped: a "global" optimum of experts that a feasible design beat."""
    fields = {"workload": "deepseek-v3", "chip": "b200", "global_batch": 2048.0, "sequence_length": 8192.0}
    boxes = {"tp": (1, 1), "ep": (16, 16), "pp": (7, 7), "virtual_stages": (9, 9), "micro_batch": (1, 1)}
    asked = problem("tokens_per_dollar", {name: tuple(map(float, box)) for name, box in boxes.items()}, **fields)
    with jax.enable_x64(True):
        lattice = lattice_of(asked)
        at = {"dp": (96, 112), "micro_batches": (18, 21, 22), "groups": (16, 17), "chips_per_rack": (16, 17)}
        points = []
        for values in itertools.product(*at.values()):
            row = lattice.initial_boxes().low[0].copy()
            row[[lattice.at[name] for name in at]] = values
            points += [row] if lattice.valid(row[None])[0] else []
        assert len(points) >= 4
        together = search(NodeRelaxations(asked, lattice), designs=points, most_boxes=0)
        alone = [search(NodeRelaxations(asked, lattice), designs=[point], most_boxes=0).value for point in points]
    assert np.isfinite(alone).any()
    np.testing.assert_allclose(together.value, min(alone), rtol=1e-6)


@pytest.mark.search
def test_a_loss_budget_has_designs():
    """Tokens repeat beyond a number of them inside the box: every question with a budget of loss was called infeasible."""
    boxes = {"tp": (8.0, 8.0), "pp": (1.0, 2.0), "virtual_stages": (1.0, 1.0), "micro_batch": (1.0, 1.0)}
    asked = problem("train_cost", boxes, workload="llama3.1-70b", loss_budget=1.95, **OPEN)
    answer = answered(asked)
    assert answer.feasible and answer.certificate.max_violation <= FEASIBILITY_TOLERANCE


@pytest.mark.parametrize("asked", rotated([("mi355x", {}), ("gb300", {"cooling": "air"})], 4), ids=lambda each: each[0])
def test_a_chip_that_throttles_has_designs(asked):
    """A frozen clock is an upper bound: these were proved to have none."""
    chip, fields = asked
    boxes = {"tp": (8.0, 8.0), "pp": (1.0, 8.0), "virtual_stages": (1.0, 2.0), "micro_batch": (1.0, 1.0)}
    with jax.enable_x64(True):
        asked = problem("train_cost", boxes, chip=chip, **fields, **OPEN).frozen(["chip"])
    answer = answered(asked)
    assert answer.outcome is not Outcome.infeasible
    assert answer.feasible


def test_the_scope_names_what_is_fixed():
    """Context parallelism, sharding and recomputation were left out in silence."""
    chosen, fixed = scope_of(problem("train_cost", {}, recompute="best", offload="best")).split("; fixed: ")
    for name in ("context parallel", "ZeRO", "recomputation", "weights", "optimizer", "activations"):
        assert name in chosen and name not in fixed
    assert "sequence parallelism" in fixed
    words = scope_of(problem("train_cost", {"cp": (1.0, 1.0), "zero": (1.0, 1.0)}))
    for name in ("no recomputation", "nothing offloaded"):
        assert name in words.split("; fixed: ")[1], words
    assert "undivided experts" in scope_of(problem("train_cost", {}, workload="deepseek-v3"))


def test_designs_that_divide_nothing_are_left_out():
    """tp = 15 of 128 heads came back as global."""
    asked = problem("train_cost", {})
    with jax.enable_x64(True):
        lattice = lattice_of(asked)
        row = lattice.initial_boxes().low[0].copy()
        row[lattice.at["tp"]] = 15
        assert not lattice.valid(row[None])[0]
        assert search(NodeRelaxations(asked, lattice), designs=[row], most_boxes=0).point is None


@one_in(3, 0)
def test_a_box_without_stages_is_an_answer(capsys):
    """127 stages of 126 layers: the logarithm of an empty stage, exit 3."""
    bounds = "pp=127:128,tp=8:8,cp=1:1,zero=1:1,micro_batch=1:1,nics_per_server=8:8,chips_per_rack=8:8"
    code = main(["optimize", "--bounds", bounds, "--seconds", "5", "--json"])
    out, err = capsys.readouterr()
    assert code == (1 if out else 2)
    assert json.loads(out)["feasible"] is False if out else err.count("\n") == 1


ASKED = {
    "default": ("train_cost", {}),
    "a budget of loss": ("train_cost", {"workload": "llama3.1-70b", "loss_budget": 1.95}),
    "two machines": ("train_and_serve", {}),
}


@pytest.mark.parametrize("name", rotated(ASKED, 3))
def test_an_answer_is_there_when_the_time_is_over(name):
    """Looking at the designs of two machines was once begun behind the deadline."""
    objective, fields = ASKED[name]
    asked = problem(objective, {}, **fields)
    answer = hwopt.optimize(asked, seconds=1e-3)
    assert answer.outcome is Outcome.best_found and "before the first bounds" in answer.certificate.scope
    lines = solution_answer(answer).screen().splitlines()
    assert not any("nan" in line.split() or line.endswith("nan") for line in lines)
    for budget in answer.budgets:  # one that is exceeded was once "not binding"
        (line,) = (each for each in lines if each.startswith(f"  {budget.name} "))
        assert line.endswith("exceeded") == (budget.used > budget.limit * (1 + 1e-6))


def test_no_work_is_begun_when_the_time_is_over():
    assert by_deadline(Deadline(0.0), lambda: pytest.fail("begun"), lambda: "the fallback") == "the fallback"


def test_a_proof_stays_where_there_is_no_time_to_explain_it():
    """Proved infeasible, but time ran out before it was known what would mend it: the proof was lost."""
    with jax.enable_x64(True):
        asked = problem("train_cost", {"pp": (1.0, 1.0)}, power_budget_w=1e3)
        question = solve_global.SearchProblem(asked, lattice_of(asked), ExactModel(asked).prepare(), Deadline(0.0))
        question.result.complete = True
        answer = solve_global.stopped_solution(question)
    assert answer.outcome is Outcome.infeasible and "was not computed" in answer.infeasibility
