"""What became of each choice: on the screen, the page and in JSON."""

import dataclasses
import json

import pytest

import hwopt
from hwopt.output.answers.screens import solution_screen
from hwopt.output.html.optimum import optimum_page
from hwopt.output.text.choices import MOST_SHOWN, choice_lines, choices_document
from tests.unit.solver.test_choices import BOXES, QUESTION


@pytest.fixture(scope="module")
def answer():
    boxes = BOXES | {"tp": (2.0, 2.0), "pp": (1.0, 1.0), "micro_batch": (1.0, 1.0)}
    return hwopt.optimize(QUESTION, choices={"chip": ("h100-sxm", "h200")}, bounds=boxes)


def test_screen_page_and_document_name_every_combination(answer):
    screen, document = solution_screen(answer), choices_document(answer.choices)
    page = str(optimum_page(answer, "hwopt optimize --choices 'chip=h100-sxm|h200'"))
    assert "chip h100-sxm" in screen and "the best" in screen and "none below" in screen
    assert "chip h200" in page and "not better, proved" in page
    assert [each["choice"] for each in document] == [{"chip": "h100-sxm"}, {"chip": "h200"}]
    assert document[0]["outcome"] == "best" and document[1]["outcome"] == "beaten"
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_long_list_is_cut_on_the_screen_alone(answer):
    many = answer.choices + tuple(
        dataclasses.replace(answer.choices[1], chosen=(("chip", f"x{i}"),)) for i in range(MOST_SHOWN)
    )
    lines = choice_lines(many, "USD")
    assert "and 2 more" in lines[-1] and len(choices_document(many)) == len(many)
    assert choice_lines((), "USD") == []
