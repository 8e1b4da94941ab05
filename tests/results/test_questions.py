"""What is committed comes out again, and differences are seen but for mends that are named."""

from __future__ import annotations

import json

import pytest

from hwopt.cli import main
from results.benchmarks.questions import NOW, QUESTIONS, Mend, answer, differences, lines
from tests.rotation import picked

QUICK = ("estimate_405b", "estimate_too_big", "serve_70b", "sources")
OTHERS = [name for name in QUESTIONS if name not in QUICK]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", QUICK)
def test_it_comes_out_again(name, capsys):
    code = main([*QUESTIONS[name].split(), "--json"])
    assert_same(name, {"exit": code} | json.loads(capsys.readouterr().out))


@pytest.mark.search
@pytest.mark.parametrize("name", picked(OTHERS, 4))
def test_others_come_out_again(name):
    assert_same(name, answer(QUESTIONS[name]))


def assert_same(name, found):
    assert [str(each) for each in differences(name, read(NOW)[name], found, ())] == []


def test_a_mend_excuses_no_more_than_it_says():
    mends = (Mend("plan_moe", "", "why", 0.01),)
    before = {"exit": 0, "objective": {"value": 1.0}, "plan": 8}
    assert not list(differences("plan_moe", before, {"exit": 0, "objective": {"value": 1.009}, "plan": 4}, mends))
    assert [
        each.path
        for each in differences("plan_moe", before, {"exit": 2, "objective": {"value": 1.02}, "plan": 4}, mends)
    ] == [
        ".exit",
        ".objective.value",
    ]


def test_differences_are_seen():
    before = {"a": 1.0, "b": [1, {"c": "x"}], "d": None}
    seen = list(differences("train_cost", before, {"a": 1.01, "b": [1, {"c": "y"}], "e": 0}, ()))
    assert [each.path for each in seen] == [".a", ".b[1].c", ".d", ".e"]
    assert not list(differences("train_cost", {"a": 1.0}, {"a": 1.0 + 1e-6}, ()))
    assert list(differences("estimate_405b", {"a": 1.0}, {"a": 1.0 + 1e-6}, ()))
    assert json.loads(lines({"x": before, "y": {}})) == {"x": before, "y": {}}
