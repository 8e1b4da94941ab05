"""Regret of an answer when numbers turn out otherwise, and the value of knowing them."""

import json

import numpy as np
import pytest

import hwopt
from hwopt.analysis.chance_constraints import regret
from hwopt.analysis.chance_constraints.value_of_information import NODES
from hwopt.cli.app import main
from hwopt.declared import plain
from hwopt.errors import UserError
from hwopt.output.text.regret import regret_section

FIELDS = {
    "workload": "llama3.1-70b",
    "tokens": 2e12,
    "power_budget_w": 8e6,
    "capex_budget_usd": 2e8,
    "time_budget_s": 40 * 86400.0,
    "recompute": "none",
    "offload": "none",
    "free": "nics",
}
BOXES = {
    "tp": (8.0, 8.0), "pp": (4.0, 4.0), "virtual_stages": (1.0, 1.0), "micro_batch": (1.0, 1.0), "chips_per_rack": (8.0, 8.0),
    "nics_per_server": (4.0, 8.0), "chips": (700.0, 780.0), "cp": (1.0, 1.0), "zero": (1.0, 1.0),
}  # fmt: skip
VARIED = {"network": 2.0}


@pytest.fixture(scope="module")
def today():
    return hwopt.optimize(hwopt.objective("train_cost", **FIELDS), bounds=BOXES, explain=False)


@pytest.fixture(scope="module")
def known(today):
    return regret(today, VARIED)


def test_nodes_are_those_of_a_normal_draw():
    z, weights = np.array(NODES).T
    moments = [float((z**k) @ weights) for k in range(6)]
    np.testing.assert_allclose(moments, [1, 0, 1, 0, 3, 0], atol=1e-12)


def test_regret_is_at_least_nothing_and_knowing_what_it_saves(known, today):
    assert known.today.objective == pytest.approx(today.objective, rel=1e-9)
    assert 0.0 <= known.today.expected <= known.today.worst
    assert known.least.worst <= known.today.worst
    (each,) = known.knowing
    assert each.name == "network" and each.proved
    assert each.saving == pytest.approx(known.today.expected, rel=1e-6)  # one number alone: its nodes are the scenarios
    assert known.tried > 1 and each.saving > 0.0


def test_an_answer_that_breaks_its_budgets_has_no_regret():
    tight = FIELDS | {"capex_budget_usd": 2e6}
    answer = hwopt.optimize(hwopt.objective("train_cost", **tight), bounds=BOXES, explain=False)
    with pytest.raises(UserError, match="breaks its budgets"):
        regret(answer, VARIED)


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({}, "name numbers"),
        ({"hmb": 0.3}, "did you mean 'hbm'"),
        ({"hbm": -0.1}, "share"),
        (dict.fromkeys(("hbm", "network", "racks", "hosts", "storage"), 0.3), "at most 4"),
    ],
)
def test_what_cannot_vary_is_refused(today, vary, words):
    with pytest.raises(UserError, match=words):
        regret(today, vary)


def test_words_and_document_say_the_same(known):
    document = plain(known)
    text = "\n".join(regret_section(known, "USD").lines())
    assert json.loads(json.dumps(document, allow_nan=False))["knowing"][0]["proved"]
    for words in ("network", "within 200 %", "this answer", "regret", "stated"):
        assert words in text


def test_the_command_asks_for_regret_and_prints_it(known, capsys, monkeypatch):
    asked = []

    def at_once(answer, varied, **_):
        asked.append((answer.objective, dict(varied)))
        return known

    monkeypatch.setattr("hwopt.analysis.chance_constraints.regret", at_once)
    flags = [x for name, value in FIELDS.items() for x in (f"--{name.replace('_', '-')}", str(value))]
    boxes = ",".join(f"{name}={low:g}:{high:g}" for name, (low, high) in BOXES.items())
    assert main(["optimize", "train_cost", *flags, "--bounds", boxes, "--vary", "network=200%", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["regret"]
    assert asked == [(pytest.approx(known.today.objective, rel=1e-9), VARIED)]
    assert document["today"]["expected_regret"] == pytest.approx(known.today.expected, rel=1e-9)
