"""Chips side by side: each row the chip's own proved answer, and what would make a loser win does."""

import dataclasses
import json

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.analysis.comparison import _ranked, with_faster_steps
from hwopt.cli import main
from hwopt.design.design import Design
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.output.answers.comparison import comparison_answer, to_win
from hwopt.trace.cache import evaluate_in_numpy
from tests.tiers import turn
from tests.unit.solver.test_choices import BOXES as WIDER
from tests.unit.solver.test_choices import QUESTION

HELD = ("tp", "pp", "micro_batch", "recompute", "weights_tier", "optimizer_tier")
BOXES = WIDER | dict.fromkeys(HELD, (1.0, 1.0))
CHIPS = ("h100-sxm", "h200", "a100-80")


@pytest.fixture(scope="module")
def rows():
    return hwopt.compare(QUESTION, CHIPS, bounds=BOXES)


@pytest.mark.parametrize(
    "chip", [pytest.param(x, marks=() if place == turn() % 3 else pytest.mark.search) for place, x in enumerate(CHIPS)]
)
def test_each_row_is_the_answer_of_that_chip_alone(rows, chip):
    row = next(each for each in rows if each.chip == chip)
    answer = hwopt.optimize(dataclasses.replace(QUESTION, chip=chip), bounds=BOXES, explain=False)
    assert answer.feasible == row.feasible
    if row.feasible:
        np.testing.assert_allclose(row.solution.objective, answer.objective, rtol=1e-9)


def test_rows_are_ranked(rows):
    assert next(row.chip for row in rows if row.feasible) == "h200"
    shares = [row.share for row in rows if row.feasible]
    assert shares == sorted(shares) and shares[0] == 0.0


def test_differences_within_the_intervals_are_ties(rows):
    best, *others = [row for row in rows if row.feasible]
    assert not best.tied and best.around is not None
    for row in others:
        assert row.tied == (np.log1p(row.share) <= np.hypot(row.around.time, best.around.time))
    answer = comparison_answer(rows)
    assert answer.screen().startswith(f"Best: {best.chip}") and answer.document()["verdict"] == answer.verdict
    assert ("Tie, within each other's range" in answer.verdict) == any(row.tied for row in others)
    entries = {each["chip"]: each for each in answer.document()["chips"]}
    for row in (best, *others):
        ends = entries[row.chip]["run_time_interval_s"]
        np.testing.assert_allclose(np.prod(ends), float(row.solution.report.run_time_s) ** 2, rtol=1e-9)


def test_equal_objectives_are_ranked_by_capital_then_chips(rows):
    first = rows[0]
    solution = dataclasses.replace(
        first.solution, report=eqx.tree_at(lambda r: r.capex_usd, first.solution.report, np.float64(9e9))
    )
    dear = dataclasses.replace(first, name="dear", solution=solution, share=None)
    ranked = _ranked([dear, dataclasses.replace(first, share=None)])
    assert [row.chip for row in ranked] == [first.chip, "dear"] and ranked[1].share == 0.0


def test_a_loser_wins_at_the_price_and_at_the_speed_that_it_is_told(rows):
    best = rows[0].solution.objective
    losers = [row for row in rows if row.feasible and row.share]
    assert losers
    assert any(row.winning_price_usd for row in losers) and any(row.winning_level for row in losers)
    for row in losers:
        design, goal = row.solution.built, row.solution.problem.objective
        value = lambda changed, goal=goal: float(goal.value(evaluate_in_numpy(estimate, *changed.inputs)))
        if row.winning_price_usd is not None:
            base = lambda d: d.cluster.prices.chip_base_usd
            less = row.price.si - row.winning_price_usd
            cheaper = eqx.tree_at(base, design, np.float64(float(base(design)) - less))
            np.testing.assert_allclose(value(cheaper), best, rtol=1e-6)
        if row.winning_level is not None:
            steps = [
                float(evaluate_in_numpy(estimate, *each.inputs).step_time_s)
                for each in (design, with_faster_steps(design, row.winning_level))
            ]
            np.testing.assert_allclose(steps[1], row.winning_level * steps[0], rtol=1e-9)
            np.testing.assert_allclose(value(with_faster_steps(design, row.winning_level)), best, rtol=1e-6)
            assert value(with_faster_steps(design, 1.01 * row.winning_level)) > best


PLANS = {
    "memory pool": (
        {},
        {"tp": 4, "dp": 16, "weights_offloaded": 1, "optimizer_offloaded": 1, "activations_offloaded": 1},
        {},
    ),
    "pipeline": ({}, {"tp": 2, "pp": 4, "dp": 8, "virtual_stages": 2}, {}),
    "sites": ({"sites": 2}, {"tp": 2, "dp": 32}, {}),
    "input data": ({}, {"tp": 2, "dp": 32}, {"input_bytes_per_token": 1e7}),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_shorter_step_is_shorter_in_every_part(name):
    """Power and cost of the machine do not change."""
    machine, degrees, data = PLANS[name]
    run = catalog.training_run("llama3.1-8b", global_batch=256)
    run = dataclasses.replace(run, **{key: np.float64(value) for key, value in data.items()})
    plan = catalog.plan(run, 64, sites=machine.get("sites", 1), **degrees)
    design = Design(run, catalog.cluster("h100-sxm", 64, **machine), plan)
    was, now = (evaluate_in_numpy(estimate, *each.inputs) for each in (design, with_faster_steps(design, 0.4)))
    for part in was.breakdown._fields:
        np.testing.assert_allclose(
            getattr(now.breakdown, part), 0.4 * getattr(was.breakdown, part), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(now.step_time_s, 0.4 * was.step_time_s, rtol=1e-12)
    assert (now.capex_usd, now.peak_power_w) == (was.capex_usd, was.peak_power_w)
    busiest = {"memory pool": "offload_s", "pipeline": "pp_bubble_s", "sites": "sites_comm_s", "input data": "input_s"}[
        name
    ]
    assert getattr(was.breakdown, busiest) > 0.0


@pytest.mark.search
def test_a_winning_price_is_in_the_terms_of_the_file_whatever_the_list_pays(tmp_path):
    """Lists of prices pay a share of what a chip's file states."""
    held = dataclasses.replace(QUESTION, prices="hyperscale")
    rows = hwopt.compare(held, ("h100-sxm", "h200"), bounds=BOXES)
    loser = rows[1]
    factor = hwopt.catalog.record("prices", "hyperscale").si("price_factor")
    base = lambda d: d.cluster.prices.chip_base_usd
    less = factor * (loser.price.si - loser.winning_price_usd)
    cheaper = eqx.tree_at(base, loser.solution.built, np.float64(float(base(loser.solution.built)) - less))
    value = float(loser.solution.problem.objective.value(evaluate_in_numpy(estimate, *cheaper.inputs)))
    np.testing.assert_allclose(value, rows[0].solution.objective, rtol=1e-6)
    assert factor != 1.0
    # the same, priced from a chip's file that states it
    path = tmp_path / "cheap.toml"
    path.write_text(f'base = "{loser.chip}"\nprice = {{ value = {loser.winning_price_usd!r}, unit = "USD", kind = "assumption", '
                    'source = "hwopt-assumption" }\n')  # fmt: skip
    parts = lambda p: (p.chip_base_usd, p.hbm_usd_per_byte, p.hbm_usd_per_byte_per_s)
    priced = catalog.prices("hyperscale", path, chips=16384)
    stated = eqx.tree_at(lambda d: parts(d.cluster.prices), loser.solution.built, parts(priced))
    value = float(loser.solution.problem.objective.value(evaluate_in_numpy(estimate, *stated.inputs)))
    np.testing.assert_allclose(value, rows[0].solution.objective, rtol=1e-6)


def test_what_would_not_do_is_said_of_what_was_tried(rows):
    """Services have no steps that could be shorter."""
    loser = next(row for row in rows if row.share)
    served = loser.solution.built._replace(workload=catalog.service("llama3.1-8b"))
    hopeless = dataclasses.replace(loser, winning_price_usd=None, winning_level=None)
    of_service = dataclasses.replace(hopeless, solution=dataclasses.replace(loser.solution, built=served))
    assert "or speed alone" in to_win(hopeless) and to_win(of_service) == "no break-even by price alone"


def test_screen_and_document_say_the_same(rows):
    answer = comparison_answer(rows)
    document, screen = answer.document(), answer.screen()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [each["chip"] for each in document["chips"]] == [row.chip for row in rows]
    assert all(row.chip in screen for row in rows) and "list" in screen and "the best" in screen
    assert "each chip as sold; within" in screen
    assert document["chips"][0]["price_kind"] == "list" and document["chips"][0]["share_above_best"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--chips", "h100-sxm,h1000"], "h1000"),
        (["--chips", "h100-sxm", "--chip", "h200"], "leave --chip out"),
        ([], "--chips"),
    ],
)
def test_bad_input_is_one_line(arguments, words, capsys):
    assert main(["compare", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.strip().splitlines()) == 1


def test_a_question_without_a_chip_is_refused():
    with pytest.raises(UserError, match="names no chip"):
        hwopt.compare(QUESTION.problem(), CHIPS)
