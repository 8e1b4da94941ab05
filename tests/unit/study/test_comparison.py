"""Chips side by side: each row the chip's own proved answer, and what would make a loser win does."""

import dataclasses
import json

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.jaxprs.kept import estimated
from hwopt.model.estimate import estimate
from hwopt.report.comparison import comparison_document, comparison_screen
from tests.unit.optim.test_choices import BOXES, QUESTION

CHIPS = ("h200", "h100-sxm", "a100-40")


@pytest.fixture(scope="module")
def rows():
    return hwopt.compare(QUESTION, CHIPS, bounds=BOXES)


def test_each_row_is_the_answer_of_that_chip_alone(rows):
    assert next(row.chip for row in rows if row.feasible) == "h100-sxm"
    for row in rows:
        answer = hwopt.optimize(dataclasses.replace(QUESTION, chip=row.chip), bounds=BOXES, explain=False)
        assert answer.feasible == row.feasible
        if row.feasible:
            np.testing.assert_allclose(row.solution.objective, answer.objective, rtol=1e-9)
    shares = [row.share for row in rows if row.feasible]
    assert shares == sorted(shares) and shares[0] == 0.0


def test_a_loser_wins_at_the_price_and_at_the_speed_that_it_is_told(rows):
    best = rows[0].solution.objective
    losers = [row for row in rows if row.feasible and row.share]
    assert losers
    assert any(row.winning_price_usd for row in losers) and any(row.winning_level for row in losers)
    for row in losers:
        design, goal = row.solution.built, row.solution.problem.objective
        value = lambda changed, goal=goal: float(goal.value(estimated(estimate, *changed.inputs)))
        if row.winning_price_usd is not None:
            base = lambda d: d.cluster.prices.chip_base_usd
            less = row.price.si - row.winning_price_usd
            cheaper = eqx.tree_at(base, design, np.float64(float(base(design)) - less))
            np.testing.assert_allclose(value(cheaper), best, rtol=1e-6)
        if row.winning_level is not None:
            level = lambda d: d.cluster.stack.level
            faster = eqx.tree_at(level, design, np.float64(row.winning_level * float(level(design))))
            np.testing.assert_allclose(value(faster), best, rtol=1e-6)


def test_a_winning_price_is_in_the_terms_of_the_file_whatever_the_list_pays():
    """Lists of prices pay a share of what a chip's file states."""
    held = dataclasses.replace(QUESTION, prices="hyperscale")
    rows = hwopt.compare(held, ("h100-sxm", "h200"), bounds=BOXES)
    loser = rows[1]
    factor = hwopt.catalog.record("prices", "hyperscale").si("price_factor")
    base = lambda d: d.cluster.prices.chip_base_usd
    less = factor * (loser.price.si - loser.winning_price_usd)
    cheaper = eqx.tree_at(base, loser.solution.built, np.float64(float(base(loser.solution.built)) - less))
    value = float(loser.solution.problem.objective.value(estimated(estimate, *cheaper.inputs)))
    np.testing.assert_allclose(value, rows[0].solution.objective, rtol=1e-6)
    assert factor != 1.0


def test_screen_and_document_say_the_same(rows):
    document, screen = comparison_document(rows), comparison_screen(rows)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [each["chip"] for each in document["chips"]] == [row.chip for row in rows]
    assert all(row.chip in screen for row in rows) and "list" in screen and "the best" in screen
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
