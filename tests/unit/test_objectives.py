"""The questions that ship: each states itself, with budgets, sources and finite numbers; the slow tests answer them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cache

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import _NOTHING_USED, _log_share, evaluate
from hwopt.errors import UserError
from hwopt.output.answers.documents import chip_document
from hwopt.output.answers.optimum import solution_answer, solution_document
from hwopt.registry import load
from hwopt.solver.local.multistart import sobol_starts
from hwopt.solver.search.solve_global import design_values
from objectives.training import _BUDGETS, TrainingQuestion
from tests.budgets import LARGE_RUN
from tests.in_numpy import in_numpy, one_row
from tests.rotation import one_in, shared_out

NAMES = ("carbon", "loss_under_budget", "tokens_per_dollar", "train_cost", "train_energy", "train_time")
DESIGNED = {"design": "h100-sxm"}
UNSTATED = {"hbm_stacks_budget": "memory_stacks", "package_area_budget_m2": "package_area", "wafers_budget": "wafers"}
WITHOUT_HBM = ("a40", "gc200", "groq-3-lpu", "groq-lpu", "l40s", "rtx-pro-6000", "wse-2", "wse-3")


@cache
def of_form(form):
    """What `values_and_slopes` of all questions of a form share: a trace."""

    def one(y, template, limits):
        at = evaluate(form, template, y, limits, 0.05)
        found = jax.numpy.concatenate([at.objective[None], at.constraints])
        return found, found

    return in_numpy(jax.jacfwd(one, has_aux=True))


def values_and_slopes(problem, points):
    """The objective and all constraints at points, and their gradients."""
    slopes, found = of_form(problem.form)(points, *one_row((problem.template, problem.limits)))
    return found, slopes


def limited(problem, found) -> bool:
    """Whether all values are finite but those of the memory pool, of which nothing is used, of an interval that none states,
    and of the NICs of a drawn chip, which states no link to its host.
    """
    unstated = ("pool", "saves") if problem.template.project is None else ("pool", "saves", "nic")
    none = [1 + problem.constraints.index(name) for name in unstated]
    return bool(np.isneginf(found[:, none]).all() and np.isfinite(np.delete(found, none, axis=1)).all())


def test_all_ship():
    assert set(NAMES) <= set(hwopt.registry.names())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fields", [{}, pytest.param(DESIGNED, marks=pytest.mark.search)], ids=["sold", "designed"])
def test_a_question_states_itself(name, fields):
    question = hwopt.objective(name, **fields)
    with jax.enable_x64(True):
        problem = question.problem().continuous
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
    problem = hwopt.objective("train_cost", **{field: 345.0}).problem().continuous
    found = {budget.name: budget.limit for budget in problem.budgets}
    assert found[field] == 345.0 and problem.constraints[: len(found)] == tuple(found)


@pytest.mark.parametrize(
    "fields", [pytest.param({}, id="sold"), pytest.param(DESIGNED, id="designed", marks=pytest.mark.search)]
)
@one_in(4, 3)
def test_values_and_slopes_are_finite_over_the_whole_box(fields):
    with jax.enable_x64(True):
        problem = hwopt.objective("train_cost", loss_budget=2.0, **fields).problem().continuous
    found, slopes = values_and_slopes(problem, sobol_starts(problem, 64, 0))
    assert found.shape[1] == 1 + len(problem.constraints)
    assert limited(problem, found) and np.isfinite(slopes).all()


@pytest.mark.parametrize(
    "prices",
    [n if n == "rented" else pytest.param(n, marks=pytest.mark.search) for n in catalog.names("prices")],
)
@one_in(4, 3)
def test_values_and_slopes_are_finite_for_every_price_list(prices):
    """Capital is 0 where the cluster is rented: its budget holds, and nothing pulls at it."""
    with jax.enable_x64(True):
        problem = hwopt.objective("train_cost", loss_budget=2.0, prices=prices).problem().continuous
        lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    point = np.random.default_rng(0).uniform(lower, upper)
    found, slopes = values_and_slopes(problem, point[None])
    assert limited(problem, found) and np.isfinite(slopes).all()
    capital = 1 + problem.constraints.index("capex_budget_usd")
    rented = catalog.record("prices", prices).si("owned") == 0.0
    assert (float(found[0, capital]) == math.log(_NOTHING_USED)) == rented
    assert (not np.asarray(slopes[0, capital]).any()) == rented


@one_in(4, 2)
def test_a_rented_cluster_is_optimised():
    boxes = {
        "tp": (16, 16),
        "pp": (8, 8),
        "virtual_stages": (16, 16),
        "scale_up_domain": (32, 32),
        "chips_per_rack": (25, 25),
    }
    answer = hwopt.optimize(hwopt.objective("train_cost", **LARGE_RUN, prices="rented"), bounds=boxes, regime="relaxed")
    assert answer.feasible
    (capital,) = (each for each in answer.budgets if each.name == "capex_budget_usd")
    assert capital.used == 0.0 and capital.elasticity == 0.0


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_the_share_of_a_budget_is_exact_and_nothing_holds_trivially(derivative):
    with jax.enable_x64(True):
        for share in (1e-300, 1e-12, 0.3, 1.0, 7.0):
            assert float(_log_share(jax.numpy.asarray(share))) == float(jax.numpy.log(share))
            assert float(derivative(_log_share)(share)) == pytest.approx(1.0 / share)
        assert float(_log_share(jax.numpy.asarray(0.0))) == math.log(_NOTHING_USED)
        assert float(derivative(_log_share)(0.0)) == 0.0
        assert math.isnan(_log_share(jax.numpy.asarray(math.nan)))


def test_a_loss_budget_frees_tokens_and_batch():
    fixed, free = (
        hwopt.objective("train_cost").problem().continuous,
        hwopt.objective("train_cost", loss_budget=1.95).problem().continuous,
    )
    assert {each.name for each in free.variables} - {each.name for each in fixed.variables} == {"tokens"}
    box = {each.name: each.upper / each.lower for each in free.variables}
    assert box["global_batch_sequences"] > 100
    assert "as many tokens as it takes" in free.question and "1.56e+13 tokens" in fixed.question


@pytest.mark.parametrize(
    "wrong", [{"design": "h1000"}, {"technology": "3nm"}, {"memory": "hbm4"}, {"cooling": "ice"}, {"law": "murphy"},
              {"reliability": "perfect"}, {"recovery": "swift"}, {"storage": "tape"},
              {"free": "hbm", "memory": "hbm9"}, {"design": "h100-sxm", "technology": "1nm"}],
)  # fmt: skip
def test_wrong_choices_are_refused_in_one_line(wrong):
    with pytest.raises(UserError) as caught:
        hwopt.objective("train_cost", **wrong).problem()
    assert "\n" not in str(caught.value)


def test_budgets_on_what_a_chip_does_not_state_are_refused(tmp_path):
    shipped = (data_root() / "chips" / "h100-sxm.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    mine = tmp_path / "mine.toml"
    for field, key in UNSTATED.items():
        mine.write_text("".join(line for line in shipped if not line.startswith(f"{key} =")))
        with pytest.raises(
            UserError, match=f"{field}: chip 'mine' does not state '{key}': add it .* remove the budget"
        ):
            hwopt.objective("train_cost", chip=mine, **{field: 345.0}).problem()
        hwopt.objective("train_cost", chip=mine).problem()
        hwopt.objective("train_cost", chip=mine, **DESIGNED, **{field: 345.0}).problem()


@pytest.mark.parametrize("chip", catalog.names("chips"))
def test_chips_that_ship_state_what_budgets_limit(chip):
    """Stacks of 0 are stated where there is no HBM, and only there."""
    budgets = dict.fromkeys(UNSTATED, 345.0)
    problem = hwopt.objective("train_cost", chip=chip, precision="fp32", **budgets).problem().continuous
    assert set(UNSTATED) <= set(problem.constraints)
    assert (float(problem.template.cluster.chip.hbm_stacks) == 0.0) == (chip in WITHOUT_HBM)


def test_a_technology_file_of_ones_own_names_its_process(tmp_path):
    shipped = (data_root() / "technologies" / "5nm.toml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.toml"
    mine.write_text('process = "3nm"\n' + shipped)
    own, known = catalog.chip_project("h100-sxm", technology=mine), catalog.chip_project("h100-sxm", technology="5nm")
    assert own.technology == known.technology
    assert own.process == catalog.chip_project("h100-sxm", technology="3nm").process != known.process
    for path in (mine, str(mine)):
        problem = hwopt.objective("train_cost", **DESIGNED, technology=path).problem().continuous
        assert problem.template.project is not None and problem.template.project.process == own.process
        assert str(mine) in problem.question
    mine.write_text(shipped)
    with pytest.raises(UserError, match=r"technology 'mine' does not state the process .* add process = .* 5nm, 7nm"):
        hwopt.objective("train_cost", **DESIGNED, technology=mine).problem()
    mine.write_text('process = "4nm"\n' + shipped)
    with pytest.raises(UserError, match="'4nm' in the catalog's processes"):
        catalog.chip_project("h100-sxm", technology=mine)
    (tmp_path / "5nm.toml").write_text(shipped)  # a process of the same name
    assert catalog.chip_project("h100-sxm", technology=tmp_path / "5nm.toml").process == known.process


def test_defaults_of_a_question_are_its_own():
    shared = {field.name: field.default for field in dataclasses.fields(TrainingQuestion)}
    for name in NAMES:
        own = {field.name: field.default for field in dataclasses.fields(load(name))}
        assert own.keys() == shared.keys()
        assert any(own[field] != shared[field] for field in _BUDGETS), name


@pytest.mark.search
@pytest.mark.parametrize("asked", shared_out(itertools.product(NAMES, ("sold", "designed")), 3), ids=" ".join)
def test_every_question_has_an_answer(asked):
    """Feasible by the exact model, estimated again the same, integers integer; a looser budget is never worse. A minute each.

    The looser search starts from the answer: from nothing, two searches that stop after a minute may end 3 % apart.
    """
    name, chip = asked
    question = hwopt.objective(name, **{} if chip == "sold" else DESIGNED | {"prices": "at-cost"})
    answer = hwopt.optimize(question, seconds=60.0)
    assert answer.feasible and answer.certificate.max_violation <= 1e-6
    with jax.enable_x64(True):
        again = hwopt.estimate(*answer.inputs)
    assert float(answer.problem.objective.value(again)) == pytest.approx(answer.objective, rel=1e-9)
    for each in answer.problem.variables:
        if each.integer:
            assert answer.design[each.name].value == pytest.approx(round(answer.design[each.name].value))
    first = answer.problem.budgets[0].name
    start = lattice_of(answer.problem).point(design_values(answer))
    looser = dataclasses.replace(question, **{first: 1.5 * getattr(question, first)})
    loose = hwopt.optimize(looser, seconds=60.0, designs=[start])
    assert loose.certificate.lower_bound <= answer.objective * (1.0 + 1e-6)
    assert loose.objective <= answer.objective * (1.0 + 1e-4)


@pytest.mark.search
def test_a_drawn_chip_is_shown_with_its_bill():
    answer = hwopt.optimize(hwopt.objective("train_cost", **DESIGNED))
    chip, screen = chip_document(answer), solution_answer(answer).screen()
    assert chip is not None and "The chip" in screen and "to make" in screen
    parts = sum(value for name, value in chip["bill_usd"].items() if name != "total")
    assert parts == pytest.approx(chip["bill_usd"]["total"], rel=1e-9)
    assert chip["price_usd"] == pytest.approx(8.3 * chip["bill_usd"]["total"], rel=1e-9)
    assert chip["areas"]["one_die"] <= 858e-6 * (1 + 1e-6)
    assert chip["areas"]["shoreline_needed"] <= chip["areas"]["shoreline_available"] * (1 + 1e-6)
    assert solution_document(answer)["chip"] == chip


def test_ttft_holds_at_a_percentile_unless_the_load_is_the_capacity():
    def limited(continuous=False, **how):
        problem = hwopt.objective("serve_cost", **how).problem()
        budgets = (problem.relaxation if continuous else problem).budgets
        return next(each.metric.name for each in budgets if each.name == "ttft_budget_s")

    assert limited() == "time_to_first_token_p95_s"
    assert limited(ttft_percentile="99") == "time_to_first_token_p99_s"
    assert limited(ttft_percentile="mean") == limited(requests_per_s=0.0) == "time_to_first_token_full_batch_s"
    assert (
        limited(continuous=True) == "time_to_first_token_full_batch_s"
    )  # which no branching on hardware can prove for a percentile
    assert limited(continuous=True, ttft_percentile="50") == "time_to_first_token_p50_s"
    assert (
        "ttft_budget_s 1 s at p95, tpot_budget_s 30 ms at full batch"
        in hwopt.objective("serve_cost").problem().question
    )
    with pytest.raises(UserError, match="ttft_percentile = '90'"):
        hwopt.objective("serve_cost", ttft_percentile="90")
