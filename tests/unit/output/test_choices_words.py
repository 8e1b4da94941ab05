"""What became of each choice: on the screen, the page and in JSON."""

import dataclasses
import json

import numpy as np
import pytest

import hwopt
from hwopt.analysis.comparison import candidates_of
from hwopt.calibration.intervals import question_interval
from hwopt.output.answer import Table
from hwopt.output.answers.optimum import solution_answer, solution_document
from hwopt.output.text.choices import (
    MOST_SHOWN,
    choice_section,
    choices_document,
    outcome_words,
    tie_words,
    winner_words,
)
from hwopt.solver.solution import Branch, BranchOutcome
from tests.unit.solver.test_choices import BOXES, QUESTION


@pytest.fixture(scope="module")
def answer():
    boxes = BOXES | {"tp": (2.0, 2.0), "pp": (1.0, 1.0), "micro_batch": (1.0, 1.0)}
    return hwopt.optimize(QUESTION, choices={"chip": ("h100-sxm", "h200")}, bounds=boxes)


def test_screen_page_and_document_name_every_combination(answer):
    screen, document = solution_answer(answer).screen(), choices_document(answer.choices)
    page = solution_answer(answer).page("hwopt optimize --choices 'chip=h100-sxm|h200'")
    assert "chip h100-sxm" in screen and "the best" in screen and "above best" in screen
    assert "chip h200" in page and "ruled out" in page
    assert [each["choice"] for each in document] == [{"chip": "h100-sxm"}, {"chip": "h200"}]
    assert document[0]["outcome"] == "best" and document[1]["outcome"] == "beaten"
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert solution_document(answer)["choices"] == document


def test_every_candidate_has_systems_money_days_power_and_a_range(answer):
    best, other = choices_document(answer.choices)
    table = choice_section(answer.choices, "USD", "run cost").parts[0]
    assert isinstance(table, Table) and len(table.rows) == 2
    for row, cells in zip((best, other), table.rows, strict=True):
        report = next(each.solution for each in answer.choices if each.choice == row["choice"]).report
        assert row["capex_usd"] == float(report.capex_usd) and row["peak_power_w"] == float(report.peak_power_w)
        np.testing.assert_allclose(np.prod(row["run_time_interval_s"]), float(report.run_time_s) ** 2, rtol=1e-9)
        (system,) = row["systems"]
        assert system["count"] * system["chips_each"] == row["chips"] and system["name"] in " ".join(cells)
    assert other["objective"] >= other["lower_bound"] and other["gap"] >= 0.0 and not other["exceeded"]
    np.testing.assert_allclose(other["share_above_best"], other["objective"] / best["objective"] - 1.0, rtol=1e-9)
    assert "bounded search" in "\n".join(choice_section(answer.choices, "USD").lines())


def test_differences_within_both_ranges_are_ties(answer):
    """The rule is that of `compare`."""
    best, other = candidates_of(answer.choices)
    widths = [around.time for each in answer.choices if (around := question_interval(each.solution))]
    assert other.share and other.tied == (np.log1p(other.share) <= np.hypot(*widths)) and not best.tied
    words = f"Tie, within each other's range (80 %): {best.name} and {other.name}."
    assert (words in solution_answer(answer).verdict) == other.tied
    first, second = answer.choices
    dearer = dataclasses.replace(first.solution, objective=1.001 * first.solution.objective)
    for name, tied in (("slice", False), ("cooling", True)):  # slices have one chip, and one error of the model
        pair = [
            dataclasses.replace(each, solution=solution, chosen=((name, value),))
            for each, solution, value in ((first, first.solution, "a"), (second, dearer, "b"))
        ]
        assert [each.tied for each in candidates_of(pair)] == [False, tied]
    assert tie_words([best, dataclasses.replace(other, tied=True)]) == words
    assert tie_words([best, dataclasses.replace(other, tied=False)]) == tie_words([]) == ""


def test_a_candidate_without_a_design_names_the_budgets_that_its_nearest_exceeds():
    tight = dataclasses.replace(QUESTION, time_budget_s=0.8 * 86400.0)
    answer = hwopt.optimize(tight, choices={"chip": ("h100-sxm", "a100-80")}, bounds=BOXES)
    rows = choices_document(answer.choices)
    for each, row in zip(answer.choices, rows, strict=True):
        if each.objective is None:
            assert row["exceeded"] and not each.solution.feasible
            for name, over in row["exceeded"].items():
                used = next(budget for budget in each.solution.budgets if budget.name == name)
                assert over == used.used / used.limit - 1.0 > 0.0
            words = outcome_words(each, "USD", answer.choices[0])
            assert "the nearest design found exceeds" in words
            assert words in solution_answer(answer).screen()
    assert any(each.objective is None for each in answer.choices)


def test_equal_combinations_are_called_equal():
    best = Branch((("cooling", "air"),), BranchOutcome.best, 7.2102281, 7.2102281, achieved="the run takes 3 days")
    equal = dataclasses.replace(best, chosen=(("cooling", "water"),), fate=BranchOutcome.beaten, objective=7.2102288)
    slower = dataclasses.replace(equal, objective=7.3, lower_bound=7.3)
    assert outcome_words(equal, "s", best) == "7.2102 s: equal to the best; the run takes 3 days"
    assert outcome_words(slower, "s", best) == "7.3 s: 1.25 % above the best; the run takes 3 days"
    assert winner_words([best, equal]) == "with cooling air (equal: cooling water)"
    assert winner_words([best, slower]) == "with cooling air" and winner_words([slower]) == winner_words([]) == ""


def test_a_long_list_is_cut_on_the_screen_alone(answer):
    many = answer.choices + tuple(
        dataclasses.replace(answer.choices[1], chosen=(("chip", f"x{i}"),)) for i in range(MOST_SHOWN)
    )
    lines = choice_section(many, "USD").lines()
    assert any("and 2 more" in line for line in lines) and len(choices_document(many)) == len(many)
    assert choice_section((), "USD").lines() == []
