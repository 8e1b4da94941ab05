"""The questions that ship: each states itself, with budgets, sources and finite numbers; the slow tests answer them."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.problem import evaluate
from hwopt.errors import UserError
from hwopt.optim.optimize import sobol_starts
from hwopt.registry import load
from hwopt.report.documents import chip_document, solution_document
from hwopt.report.screens import solution_screen
from objectives.training import _BUDGETS, TrainingQuestion

NAMES = ("carbon", "loss_under_budget", "tokens_per_dollar", "train_cost", "train_energy", "train_time")
DESIGNED = {"design": "h100-sxm"}


def test_all_ship():
    assert set(NAMES) <= set(hwopt.registry.names())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fields", [{}, DESIGNED], ids=["sold", "designed"])
def test_a_question_states_itself(name, fields):
    question = hwopt.objective(name, **fields)
    with jax.enable_x64(True):
        problem = question.problem()
    assert problem.name == name and problem.objective.name == question.minimised
    assert all(math.isfinite(budget.limit) for budget in problem.budgets) and problem.budgets
    assert len(problem.sources) > 15 and len(set(problem.sources)) == len(problem.sources)
    text = "\n".join(problem.sources)
    assert ("chiplet" in text.lower() or "wafer" in text.lower()) == bool(fields)
    assert "budget" in (type(question).__doc__ or "").lower()
    names = [each.name for each in problem.variables]
    assert ("compute_area_m2" in names) == bool(fields) and ("hbm_bandwidth_bytes_per_s" in names) != bool(fields)
    assert ("tokens" in names) == (name == "loss_under_budget")


@pytest.mark.parametrize("field", _BUDGETS)
def test_every_budget_can_be_asked_for(field):
    problem = hwopt.objective("train_cost", **{field: 345.0}).problem()
    found = {budget.name: budget.limit for budget in problem.budgets}
    assert found[field] == 345.0 and problem.constraints[: len(found)] == tuple(found)


@pytest.mark.parametrize("fields", [{}, DESIGNED], ids=["sold", "designed"])
def test_values_and_slopes_are_finite_over_the_whole_box(fields):
    with jax.enable_x64(True):
        problem = hwopt.objective("train_cost", loss_budget=2.0, **fields).problem()
        points = sobol_starts(problem, 64, 0)
        form, template = problem.form, problem.template

        def one(y):
            at = evaluate(form, template, y, problem.limits, 0.05)
            return jax.numpy.concatenate([at.objective[None], at.constraints])

        found, slopes = jax.jit(jax.vmap(lambda y: (one(y), jax.jacfwd(one)(y))))(points)
    assert found.shape[1] == 1 + len(problem.constraints)
    assert np.isfinite(found).all() and np.isfinite(slopes).all()


def test_a_loss_budget_frees_tokens_and_batch():
    fixed, free = hwopt.objective("train_cost").problem(), hwopt.objective("train_cost", loss_budget=1.95).problem()
    assert {each.name for each in free.variables} - {each.name for each in fixed.variables} == {"tokens"}
    box = {each.name: each.upper / each.lower for each in free.variables}
    assert box["global_batch_sequences"] > 100
    assert "as many tokens as it takes" in free.question and "1.56e+13 tokens" in fixed.question


@pytest.mark.parametrize(
    "wrong", [{"design": "h1000"}, {"technology": "3nm"}, {"memory": "hbm4"}, {"cooling": "ice"}, {"law": "murphy"},
              {"reliability": "perfect"}, {"design": "h100-sxm", "technology": "1nm"}],
)  # fmt: skip
def test_wrong_choices_are_refused_in_one_line(wrong):
    with pytest.raises(UserError) as caught:
        hwopt.objective("train_cost", **wrong).problem()
    assert "\n" not in str(caught.value)


def test_defaults_of_a_question_are_its_own():
    shared = {field.name: field.default for field in dataclasses.fields(TrainingQuestion)}
    for name in NAMES:
        own = {field.name: field.default for field in dataclasses.fields(load(name))}
        assert own.keys() == shared.keys()
        assert any(own[field] != shared[field] for field in _BUDGETS), name


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fields", [{}, DESIGNED | {"prices": "at-cost"}], ids=["sold", "designed"])
def test_every_question_has_an_answer(name, fields):
    """Feasible by the exact model, estimated again the same, whole numbers whole; a looser budget is never worse."""
    question = hwopt.objective(name, **fields)
    answer = hwopt.optimize(question)
    assert answer.feasible and answer.certificate.max_violation <= 1e-6
    with jax.enable_x64(True):
        again = hwopt.estimate(*answer.inputs)
    assert float(answer.problem.objective.value(again)) == pytest.approx(answer.objective, rel=1e-9)
    for each in answer.problem.variables:
        if each.whole:
            assert answer.design[each.name].value == pytest.approx(round(answer.design[each.name].value))
    first = answer.problem.budgets[0].name
    loose = hwopt.optimize(dataclasses.replace(question, **{first: 1.5 * getattr(question, first)}))
    assert loose.objective <= answer.objective * 1.01


@pytest.mark.slow
def test_a_drawn_chip_is_shown_with_its_bill():
    answer = hwopt.optimize(hwopt.objective("train_cost", **DESIGNED))
    chip, screen = chip_document(answer), solution_screen(answer)
    assert chip is not None and "The chip" in screen and "to make" in screen
    parts = sum(value for name, value in chip["bill_usd"].items() if name != "total")
    assert parts == pytest.approx(chip["bill_usd"]["total"], rel=1e-9)
    assert chip["price_usd"] == pytest.approx(8.3 * chip["bill_usd"]["total"], rel=1e-9)
    assert chip["areas"]["one_die"] <= 858e-6 * (1 + 1e-6)
    assert chip["areas"]["shoreline_needed"] <= chip["areas"]["shoreline_available"] * (1 + 1e-6)
    assert solution_document(answer)["chip"] == chip
