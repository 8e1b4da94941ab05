"""The default design question end to end: contract, feasibility, bounds, independent solver, infeasible questions."""

import json
import math
from functools import lru_cache

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

import hwopt
from hwopt.analysis.integrality_gap import integrality_gap
from hwopt.calibration.intervals import question_interval
from hwopt.cli import main
from hwopt.design.exact import ExactModel, logarithms
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.answers.optimum import solution_answer, solution_document
from hwopt.solver.deadline import Deadline
from hwopt.solver.search.heuristics.rounding import rounding_candidates
from results.benchmarks.reference import RESULTS
from tests.results.test_reference import assert_comes_out_again


@pytest.fixture(scope="module")
def solution():
    """The answer in the part of the default question's lattice that contains its recorded answer."""
    recorded = json.loads((RESULTS / "reference" / "questions.json").read_text(encoding="utf-8"))["train_cost"][
        "design"
    ]
    fixed = ("tp", "cp", "pp", "virtual_stages", "micro_batch", "zero")
    around = {name: (recorded[name]["value"],) * 2 for name in fixed}
    return hwopt.optimize(hwopt.objective("train_cost"), bounds=around)


@pytest.fixture(scope="module")
def whole():
    return hwopt.optimize(hwopt.objective("train_cost"))


def test_the_default_question_has_a_feasible_answer_within_its_budgets(solution):
    assert solution.feasible
    assert solution.certificate.max_violation <= FEASIBILITY_TOLERANCE
    shares = {budget.name: budget.used / budget.limit for budget in solution.budgets}
    assert set(shares) == {"time_budget_s", "power_budget_w", "capex_budget_usd"}
    assert all(0.8 < share <= 1 + FEASIBILITY_TOLERANCE for share in shares.values()), shares


def test_the_answer_is_proved(solution):
    proof = solution.certificate
    assert proof.scope.startswith("global over")
    assert 0 <= proof.gap <= 1e-4 and proof.lower_bound <= solution.objective
    assert proof.kkt_residual <= 1e-6


def test_json_has_the_contract(solution):
    document = json.loads(json.dumps(solution_document(solution), allow_nan=False))
    (bought,) = document["systems"]
    assert (
        bought["name"] == "dgx-h100" and bought["count"] * bought["chips_each"] == document["design"]["chips"]["value"]
    )
    assert bought["racks"] == document["report"]["racks"]
    assert set(document["objective"]) == {"name", "value", "unit"}
    for variable in document["design"].values():
        assert set(variable) - {"word"} == {"value", "unit", "lower", "upper", "at_bound"}
        assert variable["lower"] <= variable["value"] * (1 + 1e-9) and variable["value"] <= variable["upper"] * (
            1 + 1e-9
        )
    for budget in document["budgets"]:
        assert {"name", "used", "limit", "unit", "shadow_price", "shadow_price_unit"} <= set(budget)
        assert budget["shadow_price"] >= 0
    assert {"kkt_residual", "max_violation", "lower_bound", "gap", "scope"} <= set(document["certificate"])
    assert document["report"]["feasible"] is True
    assert math.isclose(sum(document["report"]["breakdown"].values()), document["report"]["step_time_s"], rel_tol=1e-12)


def test_integers_are_integers_and_divide(solution):
    plan, run, cluster = solution.inputs.plan, solution.inputs.workload, solution.inputs.cluster
    for name in ("tp", "pp", "dp", "virtual_stages", "micro_batch"):
        assert float(getattr(plan, name)) == round(float(getattr(plan, name))), name
    assert float(plan.tp * plan.pp * plan.dp * plan.cp) == float(cluster.chips)
    assert float(run.global_batch_sequences) % float(plan.dp * plan.micro_batch) == 0
    assert float(run.model.heads) % float(plan.tp) == 0


def test_estimating_the_answer_again_returns_the_same(solution):
    with jax.enable_x64(True):
        again = hwopt.estimate(*solution.inputs)
    assert math.isclose(float(again.step_time_s), float(solution.report.step_time_s), rel_tol=1e-12)
    assert math.isclose(float(again.run_cost_usd), solution.objective, rel_tol=1e-12)


def test_an_independent_solver_finds_nothing_better_with_the_same_plan(solution):
    """SciPy's SLSQP on the exact model with differences for slopes, integers fixed, from the answer and from points around it."""
    problem, plan, step = solution.problem, solution.plan, 1e-6
    model = ExactModel(problem).prepare()
    fixed = {each.name: solution.design[each.name].value for each in problem.variables if each.integer}
    fixed |= {"fullest_stage": float(plan.fullest_stage), "last_stage": float(plan.last_stage)}
    fixed |= {each.name: float(getattr(plan, each.name)) for each in problem.variables if "_offloaded" in each.name}
    free = [i for i, each in enumerate(problem.variables) if each.name not in fixed]
    held = logarithms([fixed.get(each.name, 1.0) for each in problem.variables])
    beside = step * np.concatenate([np.zeros((1, len(free))), np.eye(len(free)), -np.eye(len(free))])

    @lru_cache  # SciPy asks twice
    def at(*x):
        """Objective and constraints, and their slopes."""
        rows = np.tile(held, (len(beside), 1))
        rows[:, free] = np.array(x) + beside
        exact = model.at(rows)
        values = np.column_stack([exact.objective, np.maximum(exact.constraints, -100.0)])  # what nothing is used of
        slopes = (values[1 : len(free) + 1] - values[len(free) + 1 :]) / (2.0 * step)
        return values[0, 0], values[0, 1:], slopes[:, 0], slopes[:, 1:].T

    answer = np.array([math.log(solution.design[problem.variables[i].name].value) for i in free])
    bounds = [(math.log(problem.variables[i].lower), math.log(problem.variables[i].upper)) for i in free]
    rng, best = np.random.default_rng(0), math.inf
    for start in (answer, *(answer + rng.normal(0, 0.2, len(free)) for _ in range(4))):
        found = minimize(
            lambda x: at(*x)[0],
            np.clip(start, *np.array(bounds).T),
            jac=lambda x: at(*x)[2],
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda x: -at(*x)[1], "jac": lambda x: -at(*x)[3]},
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-10},
        )
        if at(*found.x)[1].max() < 1e-6:
            best = min(best, found.fun)
    assert math.isfinite(best)
    assert math.log(solution.objective) <= best + 5e-4


def test_screen_names_design_budgets_and_sources(solution):
    screen = solution_answer(solution).screen()
    assert all(name in screen for name in (*solution.design, *(budget.name for budget in solution.budgets)))
    assert "Sources behind these numbers" in screen


@pytest.mark.search
def test_the_committed_screen_comes_out_again(whole):
    """`results/reference/train_cost.txt`, printed by `hwopt optimize`."""
    price = integrality_gap(whole, Deadline(math.inf))
    screen = solution_answer(whole, question_interval(whole), whole.problem.provenance.mode, price).screen()
    assert_comes_out_again(screen, RESULTS / "reference" / "train_cost.txt")


SMALL = {"tp": (8, 16), "pp": (8, 8), "virtual_stages": (16, 16), "micro_batch": (1, 1), "scale_up_domain": (16, 16)}
"""A part of the default question's lattice over continuous hardware."""


@pytest.mark.search
def test_a_part_of_the_lattice_has_the_same_answer(whole, solution):
    """And frozen variables stay; the same question asked twice is answered alike."""
    fixed = {name: (whole.design[name].value,) * 2 for name in ("pp", "virtual_stages", "micro_batch")}
    bounds = fixed | {"tp": (whole.design["tp"].value / 2, whole.design["tp"].value)}
    first, again = (hwopt.optimize(hwopt.objective("train_cost"), bounds=bounds) for _ in range(2))
    assert whole.certificate.gap <= 1e-4
    for part in (first, solution):
        assert math.isclose(part.objective, whole.objective, rel_tol=1e-7)
    assert first.certificate.gap <= 1e-4
    assert again.objective == first.objective
    assert {n: v.value for n, v in again.design.items()} == {n: v.value for n, v in first.design.items()}
    frozen = hwopt.optimize(hwopt.objective("train_cost"), bounds=bounds, freeze=["nics_per_server", "chips_per_rack"])
    assert frozen.design["nics_per_server"].value == 8
    assert frozen.design["chips_per_rack"].value == 16
    assert frozen.objective >= first.objective


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--bounds", "tp=8:4"], "tp"),
        (["--bounds", "chps=8:16"], "chips"),
        (["--bounds", "tp"], "--bounds"),
        (["--bounds", "tp=1:4096"], "reach beyond"),
        (["--freeze", "netwrk"], "network"),
        (["--regime", "certifed"], "certified"),
        (["--seconds", "-1"], "--seconds"),
    ],
)
def test_bad_levers_are_refused_in_one_line(arguments, named, capsys):
    assert main(["optimize", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.strip().splitlines()) == 1


@pytest.mark.search
def test_infeasible_question_exits_1_and_says_what_would_mend_it(capsys):
    boxes = ",".join(f"{name}={low}:{high}" for name, (low, high) in SMALL.items())
    assert (
        main(
            ["optimize", "train_cost", "--regime", "relaxed", "--capex-budget-usd", "3e8", "--bounds", boxes, "--json"]
        )
        == 1
    )
    document = json.loads(capsys.readouterr().out)
    assert document["feasible"] is False
    assert document["message"].startswith("Infeasible: ")
    assert "Feasible if" in document["infeasibility"] and "relaxed by" in document["infeasibility"]
    assert document["certificate"]["max_violation"] > 1e-3
    # What is shown breaks the budgets by what would mend them, and nothing else.
    over = max(each["used"] / each["limit"] for each in document["budgets"])
    assert document["certificate"]["max_violation"] == pytest.approx(math.log(over), rel=1e-6)


def test_rounding_candidates_are_valid():
    with jax.enable_x64(True):
        problem = hwopt.objective("train_cost").problem().continuous
    relaxed = {each.name: math.sqrt(each.lower * each.upper) for each in problem.variables}
    relaxed |= {
        "chips": 20000.0,
        "tp": 9.3,
        "pp": 5.5,
        "micro_batch": 1.4,
        "virtual_stages": 3.3,
        "scale_up_domain": 70.0,
    }
    designs = rounding_candidates(problem, relaxed)
    assert len(designs) > 100
    box = {each.name: each for each in problem.variables}
    for design in designs:
        assert 128 % design["tp"] == 0
        assert design["pp"] * design["virtual_stages"] <= 128
        replicas, rest = divmod(design["chips"], design["tp"] * design["pp"] * design["cp"])
        assert rest == 0
        assert design["global_batch_sequences"] % (replicas * design["micro_batch"]) == 0
        assert design["scale_up_domain"] % design["tp"] == 0
        for name in ("chips", "scale_up_domain", "global_batch_sequences", "tp", "pp"):
            assert box[name].lower * (1 - 1e-9) <= design[name] <= box[name].upper * (1 + 1e-9), name


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"power_budgt_w": 1e6}, "power_budget_w"),
        ({"power_budget_w": -1.0}, "power_budget_w"),
        ({"tokens": float("nan")}, "tokens"),
        ({"capex_budget_usd": "much"}, "capex_budget_usd"),
    ],
)
def test_bad_fields_are_refused(fields, named):
    with pytest.raises(UserError, match=named):
        hwopt.objective("train_cost", **fields)
