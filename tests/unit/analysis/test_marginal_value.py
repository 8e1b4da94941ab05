"""What one more of everything is worth: marginal values and arcs of one real question in a small box, customary words, refusals."""

import dataclasses
import json
import math

import pytest

import hwopt
from hwopt.analysis import marginal_value as study
from hwopt.analysis.marginal_value import PerturbedAnswer, ReoptimizedValue, invest
from hwopt.analysis.sensitivity import NoOptimum
from hwopt.analysis.sensitivity import optimum as sensitivity_study
from hwopt.catalog import leaf
from hwopt.cli import main
from hwopt.design.template_inputs import Input
from hwopt.errors import UserError
from hwopt.output.answers.marginal_value import between, invest_answer
from hwopt.output.text.customary_units import one_more, shown, words
from hwopt.quantity import Quantity
from hwopt.solver.solution import Outcome
from tests.unit.analysis.test_binding_budgets import BOXES

QUESTION = hwopt.objective("train_cost", time_budget_s=math.inf, power_budget_w=30e6, capex_budget_usd=math.inf)
PRICE = "electricity_usd_per_j"


@pytest.fixture(scope="module")
def real():
    return invest(QUESTION, of=[PRICE], bounds=BOXES | {"chips": (8192, 12288)})


def test_a_tenth_of_a_price_is_worth_its_share_of_the_cost(real):
    """The bill is linear in the price of electricity where plan and size stay: both arcs and the slope are its share."""
    (row,) = real.replanned
    assert row.name == f"cluster.facility.{PRICE}" and row.part == "building and power" and not real.over
    found, power = row.replanned, float(real.start.report.power_w)
    share = power * float(real.start.built.cluster.facility.electricity_usd_per_j) * float(real.start.report.run_time_s)
    share /= real.start.objective
    assert row.elasticity == pytest.approx(share, rel=1e-3)
    assert found.better.proved and found.worse.proved and (found.better.factor, found.worse.factor) == (0.9, 1.1)
    low, high = found.between
    assert low <= 0.1 * share * 1.001 and high >= 0.1 * share * 0.999 and high - low < 4e-4
    assert found.better.objective < real.start.objective < found.worse.objective


def test_every_end_is_the_answer_of_the_moved_question(real):
    found = real.replanned[0].replanned
    place = real.replanned[0].worth.parameter.input.place
    moved = hwopt.optimize(real.start.problem.with_numbers({place: found.worse.factor}), explain=False)
    assert moved.outcome is Outcome.proved
    assert moved.objective == pytest.approx(
        found.worse.objective, rel=2e-4
    ) and moved.objective >= found.worse.bound * (1 - 1e-9)


def test_what_is_asked_for_is_no_investment_and_rows_are_ranked(real):
    shares = [each.worth.share for each in real.numbers]
    assert shares == sorted(shares, reverse=True) and len(shares) > 80
    assert not any(each.name.startswith("workload.model") or each.name == "workload.tokens" for each in real.numbers)


def test_budgets_have_prices_on_both_sides(real):
    (budget,) = real.start.budgets
    assert budget.one_sided_prices is not None
    assert [each.limit for each in budget.one_sided_prices] == pytest.approx([27e6, 33e6])


def test_screen_document_and_page_speak_customary_units(real):
    answer = invest_answer(real, None, 8)
    screen, page = answer.screen(), answer.page("hwopt invest")
    document = json.loads(json.dumps(answer.document(), allow_nan=False))
    for text in (screen, page):
        assert "0.0826 $/kWh" in text and "+1 ct/kWh" in text and "10 %/year" in text and "27 degC" in text
        assert "usd_per_j" not in text and " nan" not in text
    assert max(map(len, screen.split("\n")[1:])) <= 132
    rows = {each["name"]: each for each in document["numbers"]}
    electricity = rows[f"cluster.facility.{PRICE}"]
    ct = electricity["one_more"]
    assert ct["words"] == "1 ct/kWh" and ct["factor"] == pytest.approx(1 + 0.01 / 0.0826)
    law = ct["factor"] ** electricity["elasticity"] - 1.0
    assert ct["change"] == pytest.approx(document["objective"]["value"] * law)
    assert electricity["known"]["source"] and electricity["known"]["kind"] == "paper"
    low, high = electricity["replanned"]["between"]
    assert 0 < low < high


def test_arcs_hold_what_proofs_leave_open():
    here = dict(today=100.0, bound=99.0)
    end = lambda value, bound: PerturbedAnswer(1.1, value, bound, False, True)
    both = ReoptimizedValue(**here, better=end(95.0, 94.0), worse=end(108.0, 107.0))
    assert both.gain == pytest.approx((0.04, 0.06)) and both.loss == pytest.approx((0.07, 0.09))
    assert both.between == pytest.approx((0.04, 0.09)) and between(both.between) == "4 to 9 %"
    none = ReoptimizedValue(**here, better=end(95.0, 94.0), worse=end(math.inf, math.inf))
    assert between(none.loss) == "feasibility: no design is left" and between(none.between) == "4 % or more"
    assert between((-0.001, 0.002)) == "0 to 0.2 %" and between((0.02, 0.02)) == "2 %"


@pytest.mark.parametrize(
    ("value", "declared", "now", "more"),
    [
        (0.0826 / 3.6e6, Quantity("USD/J"), "0.0826 $/kWh", "1 ct/kWh"),
        (0.04 / (365.25 * 86400), Quantity("1/s"), "4 %/year", "1 point a year"),
        (300.15, Quantity("K"), "27 degC", "1 K"),
        (5 * 365.25 * 86400, Quantity("s"), "5 years", "1 year"),
        (0.95, Quantity("", most=1.0), "95 %", "1 point"),
        (11.7, Quantity("USD/W"), "11.7 $/W", "1 $/W"),
        (3.35e12, Quantity("B/s"), "3.35 TB/s", "10 %"),
        (600.0, Quantity("s"), "10 min", "10 %"),
        (6e-8, Quantity("USD/B"), "60 $/GB", "10 %"),
    ],
)
def test_numbers_have_the_units_of_those_who_decide(value, declared, now, more):
    number = Input("cluster.facility.some_thing", value, declared, 0, 0)
    factor, unit = one_more(number)
    assert shown(number) == now and unit == more and factor > 1.0
    if unit == "1 K":
        assert shown(number, factor) == "28 degC"
    assert words(number) == "some thing"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"top": -1}, "from 0 to 64"),
        ({"top": 2.5}, "must be a count"),
        ({"of": ["hbm_bandwith_bytes_per_s"]}, "did you mean 'hbm_bandwidth_bytes_per_s'"),
        ({"seconds": -3.0}, "seconds"),
        ({"freeze": ["chipz"]}, "chip"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_search(more, said, monkeypatch):
    monkeypatch.setattr("hwopt.solver.optimize.solve_global", lambda *_, **__: pytest.fail("it searched"))
    with pytest.raises(UserError, match=said):
        invest(QUESTION, **more)


def test_nothing_that_holds_the_budgets_is_told_with_exit_code_1(real, monkeypatch, capsys):
    none = dataclasses.replace(real.start, outcome=Outcome.infeasible, infeasibility="These budgets conflict.")
    monkeypatch.setattr(study, "optimize", lambda *_, **__: none)
    assert main(["invest", "train_cost", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["feasible"] is False and document["numbers"] == []
    assert main(["invest", "train_cost"]) == 1
    assert "These budgets conflict." in capsys.readouterr().out


def test_a_number_of_a_template_is_moved_and_the_question_stays(real):
    problem, place = real.start.problem, real.replanned[0].worth.parameter.input.place
    moved = problem.with_numbers({place: 2.0})
    before, after = (float(each.template.cluster.facility.electricity_usd_per_j) for each in (problem, moved))
    assert after == 2.0 * before and moved.form == problem.form and moved.relaxation is None
    assert leaf(before) == problem.template.cluster.facility.electricity_usd_per_j
    assert dataclasses.replace(moved, template=problem.template, relaxation=problem.relaxation) == problem


def test_sensitivity_takes_what_is_frozen(monkeypatch, capsys):
    seen = []

    def none(problem, *_, **__):
        seen.append(problem)
        raise NoOptimum("no design")

    monkeypatch.setattr(sensitivity_study, "optimum_of", none)
    assert main(["sensitivity", "train_cost", "--freeze", "chip,network"]) == 1
    kept = {each.name: (each.lower, each.upper) for each in seen[0].variables}
    assert kept["clock_ratio"][1] == 1.0 and kept["nics_per_server"] == (8, 8)
    assert main(["sensitivity", "train_cost", "--freeze", "nothing"]) == 2
    assert "neither a variable nor a category" in capsys.readouterr().err
