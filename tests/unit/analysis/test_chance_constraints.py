"""Answers that hold when the numbers are off: how far limits are tightened, draws, promises, and what they cost."""

import json
import math
from dataclasses import replace
from itertools import count
from statistics import NormalDist

import jax
import numpy as np
import pytest

import hwopt
from hwopt.analysis.chance_constraints import confident
from hwopt.analysis.chance_constraints.sampling import FixedDesign, normal_draws
from hwopt.analysis.chance_constraints.tightening import (
    joint_multiple,
    limit_factors,
    sampled_multiple,
    single_budget_multiple,
)
from hwopt.analysis.chance_constraints.uncertainty_factors import DECLARED, named_factors, uncertainty_factors
from hwopt.calibration.intervals import DEVIATIONS, Interval, question_interval
from hwopt.cli.app import main
from hwopt.declared import document as as_json
from hwopt.errors import UserError
from hwopt.output.text.chance_constraints import kept_words
from hwopt.solver.deadline import Deadline
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import BranchOutcome, Outcome

QUESTION = hwopt.objective(
    "train_time", workload="llama3.1-70b", tokens=2e12, global_batch=2048.0, power_budget_w=8e6, capex_budget_usd=1.3e8,
    recompute="none", offload="none", free="nics",
)  # fmt: skip
BOXES = {
    "tp": (8.0, 8.0), "pp": (4.0, 4.0), "virtual_stages": (2.0, 2.0), "micro_batch": (1.0, 1.0),
    "chips_per_rack": (8.0, 8.0), "nics_per_server": (4.0, 4.0), "cp": (1.0, 1.0), "zero": (1.0, 1.0),
}  # fmt: skip
CONFIDENCES = (0.5, 0.8, 0.95)
IN_TURN = [pytest.param(each, marks=() if each == 0.8 else pytest.mark.search) for each in CONFIDENCES]


@pytest.fixture(scope="module")
def plain():
    return hwopt.optimize(QUESTION, bounds=BOXES, explain=False)


class Promised(dict):
    """Answers by confidence, each searched for once, when it is asked for."""

    def __missing__(self, confidence):
        self[confidence] = confident(QUESTION, confidence, bounds=BOXES, explain=False)
        return self[confidence]


@pytest.fixture(scope="module")
def promised():
    return Promised()


@pytest.fixture(scope="module")
def fixed(plain):
    causes = uncertainty_factors(plain.problem, question_interval(plain))
    return FixedDesign(plain.problem, design_values(plain), causes)


# How far limits are tightened.


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.99])
def test_one_factor_on_one_budget_is_tightened_by_its_quantile(confidence):
    sigma = 0.17
    known = limit_factors(joint_multiple(np.array([[sigma]]), confidence), np.array([sigma]))
    np.testing.assert_allclose(known, math.exp(-NormalDist().inv_cdf(confidence) * sigma), rtol=1e-12)


def test_budgets_that_move_together_are_one_and_those_apart_more():
    assert joint_multiple(np.array([[0.1, 0.0], [0.3, 0.0]]), 0.9) == single_budget_multiple(0.9)
    apart = joint_multiple(np.diag([0.1, 0.3]), 0.9)
    assert apart == pytest.approx(NormalDist().inv_cdf(math.sqrt(0.9)), abs=0.01)
    against = joint_multiple(np.array([[0.1], [-0.1]]), 0.9)
    assert against == pytest.approx(NormalDist().inv_cdf(0.95), abs=0.01)  # Bonferroni is exact there
    assert joint_multiple(np.zeros((2, 3)), 0.9) == 0.0


def test_draws_ask_for_the_multiple_at_which_their_share_holds():
    rises = np.random.default_rng(0).normal(size=(50_000, 2)) * [0.1, 0.2]
    rises[:, 1] = np.expm1(3 * rises[:, 1])  # far from normal
    tight = np.full(2, -np.inf)
    room = limit_factors(sampled_multiple(rises, tight, 0.9), rises.std(axis=0), rises)
    assert np.mean((rises <= -np.log(room)).all(axis=1)) == pytest.approx(0.9, abs=2e-3)
    idle = sampled_multiple(rises, np.array([-np.inf, 100.0]), 0.9)
    assert idle == pytest.approx(single_budget_multiple(0.9), abs=0.03)
    assert sampled_multiple(rises, np.array([-np.inf, 0.0]), 0.9) == math.inf


def test_draws_of_one_lognormal_factor_change_nothing():
    rises = np.random.default_rng(0).normal(size=(50_000, 1)) * 0.1
    np.testing.assert_array_equal(limit_factors(1.2, np.array([0.1]), rises), np.exp([-1.2 * 0.1]))


# One design under numbers that are off.


def test_numbers_as_stated_are_the_answer(fixed, plain):
    np.testing.assert_allclose(math.exp(fixed.stated[0]), plain.objective, rtol=1e-9)
    used = [each.used / each.limit for each in plain.budgets]
    np.testing.assert_allclose(np.exp(fixed.budgets), used, rtol=1e-9)


def test_first_order_is_what_a_small_draw_does(fixed):
    for i, cause in enumerate(fixed.causes):
        sides = [(fixed.logs(np.eye(len(fixed.causes))[[i]] * z)[0, 1:3] - fixed.budgets) / z for z in (1e-4, -1e-4)]
        worse = np.where(sides[0] >= -sides[1], np.maximum(sides[0], 0.0), -np.maximum(-sides[1], 0.0))
        np.testing.assert_allclose(fixed.loadings[:, i], worse, atol=2e-4, err_msg=cause.name)


def test_a_range_holds_four_in_five(fixed):
    cause = next(each for each in fixed.causes if each.name == "building")
    low, high = (cause.inputs[0].value * math.exp(s * DEVIATIONS) for s in (-cause.down[0], cause.up[0]))
    record = fixed.problem.provenance.records["site"].quantities["construction"]
    np.testing.assert_allclose([low / high], [record.low / record.high], rtol=1e-9)


def test_the_step_takes_the_interval_of_its_prediction(plain):
    cause = uncertainty_factors(plain.problem, Interval(0.2))[0]
    assert (cause.name, cause.inputs[0].name) == ("step_time", "cluster.stack.level")
    assert cause.up[0] == pytest.approx(0.2 / DEVIATIONS)
    assert "step_time" not in [each.name for each in uncertainty_factors(plain.problem, None)]


def test_no_number_is_moved_by_two_causes(fixed):
    names = [each.name for each in fixed.inputs]
    assert len(set(names)) == len(names)
    assert {each.name for each in fixed.causes} <= DECLARED.keys()


def test_a_service_is_paced_by_its_step():
    problem = hwopt.objective("serve_cost").problem()
    cause = uncertainty_factors(problem, Interval(0.3))[0]
    assert (cause.inputs, cause.paced) == ((), pytest.approx(0.3 / DEVIATIONS))


def test_draws_are_the_same_for_a_seed_and_apart_for_streams():
    np.testing.assert_array_equal(normal_draws(3, 0, 50, 4), normal_draws(3, 0, 50, 4))
    assert not np.allclose(normal_draws(3, 0, 50, 4), normal_draws(3, 1, 50, 4))
    assert not np.allclose(normal_draws(3, 0, 50, 4), normal_draws(4, 0, 50, 4))


# Promises.


@pytest.mark.parametrize("confidence", IN_TURN)
def test_a_promise_is_kept_and_hardly_passed(promised, confidence):
    answer = promised[confidence]
    assert answer.outcome is Outcome.proved and answer.certificate.gap < 1e-3
    assert confidence - 0.01 <= answer.promise.probability <= confidence + 0.04
    assert answer.promise.kept and answer.promise.solves <= 5
    for used, each in zip(answer.budgets, answer.promise.budgets, strict=True):
        assert used.used <= used.limit * each.tightened * (1.0 + 1e-6)
        assert each.probability >= answer.promise.probability
        assert sum(each.causes.values()) <= 1.0 + 1e-9
    assert "tightened to" in answer.certificate.scope


@pytest.mark.parametrize("confidences", [(0.8,), pytest.param(CONFIDENCES, marks=pytest.mark.search)], ids=len)
def test_more_confidence_costs_more(plain, promised, confidences):
    values = [plain.objective, *(promised[each].objective for each in confidences)]
    assert values == sorted(values) and values[-1] > values[0]
    limits = [each.limit for each in plain.budgets]
    assert [each.limit for each in promised[confidences[-1]].budgets] == limits  # as asked


@pytest.mark.search
def test_the_same_seed_says_the_same(promised):
    again = confident(QUESTION, 0.95, bounds=BOXES, explain=False)
    assert again.promise == promised[0.95].promise


def test_what_holds_anyway_costs_nothing():
    loose = hwopt.objective(
        "train_time",
        workload="llama3.1-70b",
        tokens=2e12,
        power_budget_w=1e9,
        capex_budget_usd=1e12,
        recompute="none",
        offload="none",
        free="nics",
    )
    answer = confident(loose, 0.9, bounds=BOXES | {"chips": (64.0, 256.0)}, explain=False)
    assert (answer.promise.multiple, answer.promise.solves) == (0.0, 1)
    assert answer.objective == answer.promise.plain.objective


def test_where_nothing_holds_it_says_so(promised):
    tight = hwopt.objective(
        "train_cost", workload="llama3.1-70b", tokens=2e12, global_batch=2048.0, power_budget_w=8e6, capex_budget_usd=1.2e8,
        time_budget_s=promised[0.8].objective, recompute="none", offload="none", free="nics",
    )  # fmt: skip
    chips = promised[0.8].design["chips"].value
    answer = confident(tight, 0.99, bounds=BOXES | {"chips": (chips, chips)})
    assert answer.outcome is Outcome.infeasible and answer.promise is None
    for words in ("99 %", "limits are tightened", "relaxed by", "of draws"):
        assert words in answer.infeasibility


@pytest.mark.search
def test_of_choices_the_best_promise_is_answered(promised):
    """A branch that is asked alone answers the same; one that is left has a bound above the answer."""
    choices = {"chip": ["h100-sxm", "a100-80gb"]}
    answer = confident(QUESTION, 0.8, bounds=BOXES, choices=choices, explain=False)
    other = confident(replace(QUESTION, chip="a100-80gb"), 0.8, bounds=BOXES, explain=False)
    alone = {QUESTION.chip: promised[0.8], "a100-80gb": other}
    best = min(alone, key=lambda chip: alone[chip].objective)
    assert answer.chosen == {"chip": best} and answer.outcome is Outcome.proved
    assert answer.objective == pytest.approx(alone[best].objective, rel=1e-3)
    assert 0.79 <= answer.promise.probability <= 0.84
    for branch in answer.choices:
        known = alone[dict(branch.chosen)["chip"]].objective
        assert branch.lower_bound <= known * (1.0 + 1e-9)
        if branch.objective is None:
            assert branch.lower_bound >= answer.objective
        else:
            assert branch.objective == pytest.approx(known, rel=1e-3)


@pytest.mark.parametrize(("seconds", "looks"), [(0.01, 1), (1e4, 20), pytest.param(1e4, 40, marks=pytest.mark.search)])
def test_choices_that_are_out_of_time_promise_nothing(monkeypatch, seconds, looks):
    """By the clock before the first bounds, and over as soon as it was asked so often."""
    asked = count()
    if seconds > 1.0:
        monkeypatch.setattr(Deadline, "over", property(lambda _: next(asked) >= looks))
    choices = {"chip": ["h100-sxm", "a100-80gb", "h200"]}
    answer = confident(QUESTION, 0.8, bounds=BOXES, choices=choices, seconds=seconds, explain=False)
    assert answer.outcome in (Outcome.not_found, Outcome.best_found)
    assert answer.feasible == (answer.promise is not None)
    assert len(answer.choices) == 3 and any(each.fate is BranchOutcome.open for each in answer.choices)


def test_limits_of_the_design_that_no_search_tightens_stand_beside_the_probability(promised):
    """The text states both: 96.6 % for all budgets, and 80 % for a rack's own feed."""
    promise = replace(promised[0.8].promise, probability=0.966, others={}, together=0.966)
    kept = "All budgets hold together in 96.6 % of 100,000 draws of the uncertain inputs (requested: 80 %)."
    assert kept_words(promise) == kept
    said = kept_words(replace(promise, others={"rack_power": 0.801}, together=0.78))
    assert said.startswith(
        f"{kept} With the design's own limits, all hold together in 78.0 %: rack_power holds in 80.1 %."
    )


@pytest.mark.parametrize("confidence", IN_TURN)
def test_all_limits_hold_no_more_often_than_any(promised, confidence):
    promise = promised[confidence].promise
    assert promise.together <= min([promise.probability, *promise.others.values()])
    assert (promise.together == promise.probability) or promise.others
    assert as_json(promise)["probability_with_others"] == promise.together


# What cannot be meant.


@pytest.mark.parametrize("confidence", [0.3, 1.0, -1.0, math.nan, "0.9", None])
def test_no_probability_is_refused(confidence):
    with pytest.raises(UserError, match="confidence"):
        confident(QUESTION, confidence)


def test_names_of_causes_are_suggested(plain):
    with pytest.raises(UserError, match=r"'hmb'.*did you mean 'hbm'.*electricity"):
        named_factors({"hmb": 0.3}, plain.problem, None)
    with pytest.raises(UserError, match="share"):
        named_factors({"hbm": 0.0}, plain.problem, None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--confidence", "0.4"], "at least 0.5"),
        (["--confidence", "1"], "below 1"),
        (["--confidence", "0.9", "--regime", "local"], "local"),
        (["--vary", "hbm=30%", "--choices", "chip=h100-sxm|b200"], "--choices"),
        (["--confidence", "0.9", "--alternatives"], "--alternatives"),
        (["--confidence", "0.9", "--vary", "hbm=30%"], "--vary"),
        (["--vary", "hbm"], "name=share"),
        (["--vary", "hbm=x"], "not a number"),
    ],
)
def test_flags_that_do_not_go_together(flags, words, capsys):
    assert main(["optimize", "train_time", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


ASKED = [
    "optimize", "train_time", "--workload", "llama3.1-70b", "--tokens", "2e12", "--global-batch", "2048",
    "--power-budget-w", "8e6", "--capex-budget-usd",
    "1.3e8", "--recompute", "none", "--offload", "none", "--free", "nics",
    "--bounds", ",".join(f"{name}={low:g}:{high:g}" for name, (low, high) in BOXES.items()),
]  # fmt: skip


def test_the_command_asks_for_the_promise_and_prints_it(promised, capsys, monkeypatch):
    asked = []

    def known(question, confidence, **how):
        asked.append((vars(question), confidence, dict(how["bounds"])))
        return promised[0.8]

    monkeypatch.setattr("hwopt.analysis.chance_constraints.confident", known)
    assert main([*ASKED, "--confidence", "80%", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert asked == [(vars(QUESTION), 0.8, BOXES)]
    assert document["promise"]["probability"] == promised[0.8].promise.probability
    assert document["promise"]["without"]["objective"] < document["objective"]["value"]
    with jax.enable_x64(True):
        from hwopt.output.answers.optimum import solution_answer
        from hwopt.output.text.chance_constraints import promise_section

        text = "\n".join(promise_section(promised[0.8]).lines())
        page = solution_answer(promised[0.8]).page("hwopt optimize")
    for words in ("requested: 80 %", "tightened by", "costs", "capex_budget_usd", "variance", "100,000 draws"):
        assert words in text and words in page
    assert "budgets under uncertain inputs" in page
