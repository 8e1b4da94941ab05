"""The file of a portfolio: every word of it read or refused in one line before anything is searched, and one member alone."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import hwopt
from hwopt.cli import main
from hwopt.design.portfolio import Member, Portfolio, portfolio_of
from hwopt.errors import UserError

MEMBER = '[members.one]\nquestion = "train_cost"\nworkload = "llama3.1-8b"\n'
SERVED = '[members.two]\nquestion = "serve_cost"\nserved_tokens = 1e11\n'

REFUSED = [
    ("", "lists no members"),
    ("members = 3", "lists no members"),
    ("chip = ", "is not TOML"),
    (f"chp = 'b200'\n{MEMBER}", "unknown key 'chp': did you mean 'chip'"),
    (f"time_budget_s = 1e6\n{MEMBER}", "'time_budget_s' belongs to a single member"),
    (f"chip = 3\n{MEMBER}", "chip = 3 must be text"),
    (f"capex_budget_usd = -1\n{MEMBER}", "must be a positive, finite number"),
    (f"power_budget = 1e6\n{MEMBER}", "did you mean 'power_budget_w'"),
    (f"ttft_budget_s = 1\n{MEMBER}", "belongs to a single member"),
    (f"chip = 'b20'\n{MEMBER}", "did you mean"),
    (f"free = 'hbm'\n{MEMBER}", "members share a stock chip"),
    ("[members]\none = 3", "members.one = 3: write a table"),
    ("[members.one]\nworkload = 'llama3.1-8b'", "members.one: states no question: known: serve_cost, train_cost"),
    ("[members.one]\nquestion = 'train_costs'", "question = 'train_costs': did you mean 'train_cost'"),
    (MEMBER + "chip = 'b200'", "'chip' is shared by all members"),
    (MEMBER + "pool = 'none'", "'pool' is not supported in a portfolio"),
    (MEMBER + "time_budget = 3", "train_cost has no 'time_budget': did you mean"),
    (MEMBER + "ttft_budget_s = 3", "train_cost has no 'ttft_budget_s'"),
    (MEMBER + "runs = 0", "runs = 0 must be a positive, finite number"),
    (MEMBER + "runs = true", "must be a number"),
    (MEMBER + "tokens = '1e12'", "must be a number, without quotes"),
    (MEMBER + "tokens = -1", "must be a positive, finite number in SI units"),
    (MEMBER + "time_budget_s = inf", "must be a positive, finite number"),
    (MEMBER.replace("8b", "8c"), "did you mean 'llama3.1-8b'"),
    (MEMBER + "bounds = 3", "bounds = 3: write a table"),
    (MEMBER + "bounds = {tp = [4, 2]}", "reversed"),
    (MEMBER + "bounds = {tpp = 2}", "'tpp' is not a variable"),
    (MEMBER + "bounds = {chips_per_rack = 8}", "'chips_per_rack' is shared by all members"),
    ("[members.two]\nquestion = 'serve_cost'", "states no 'served_tokens'"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_list_is_refused_in_one_line(text, said, tmp_path, capsys):
    path = tmp_path / "list.toml"
    path.write_text(text, encoding="utf-8")
    assert main(["optimize", "portfolio", "--members", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and said in err and "list.toml" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "portfolio", "--confidence", "0.9"], "--confidence applies to one question"),
        (["optimize", "portfolio", "--regime", "relaxed"], "--regime applies to one question"),
        (["optimize", "portfolio", "--members", "nowhere.toml"], "nowhere.toml"),
        (["optimize", "portfolio", "--only", "assistent"], "did you mean 'assistant'"),
        (["optimize", "portfolio", "--bounds", "tp=8:8"], "'tp' is not a part that members share"),
        (["sweep", "portfolio", "--samples", "100"], "select one of them with --only NAME"),
    ],
)
def test_what_is_about_one_question_is_refused_of_a_list(arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_member_alone_is_its_own_question():
    with jax.enable_x64(True):
        alone = hwopt.objective("portfolio", only="assistant").problem()
        own = hwopt.objective("serve_cost", workload="llama3.1-70b", chip="h100-sxm").problem()
    assert alone.form == own.form and tuple(alone.limits) == tuple(own.limits)
    assert jax.tree.all(jax.tree.map(np.array_equal, alone.template, own.template))


def test_flags_go_before_the_file(tmp_path):
    path = tmp_path / "list.toml"
    path.write_text(f'chip = "h100-sxm"\n{MEMBER}{SERVED}', encoding="utf-8")
    chips = [
        {each.problem.provenance.records["chip"].slug for each in found.members}
        for found in (
            portfolio_of(hwopt.objective("portfolio", members=path, **flags)) for flags in ({}, {"chip": "b200"})
        )
    ]
    assert chips == [{"h100-sxm"}, {"b200"}]


def test_members_on_different_machines_are_refused():
    stated = [
        hwopt.objective(name, **fields).problem()
        for name, fields in (("train_cost", {"cooling": "air"}), ("serve_cost", {"cooling": "immersion-1p"}))
    ]
    members = tuple(Member(str(i), problem, 1.0, "runs") for i, problem in enumerate(stated))
    with pytest.raises(UserError, match="'0' and '1' differ in cooling"):
        Portfolio("portfolio", "?", "USD", members)
    with pytest.raises(UserError, match="two members have the same name"):
        Portfolio("portfolio", "?", "USD", (members[0], members[0]))
    drawn = hwopt.objective("train_cost", design="h100-sxm").problem()
    with pytest.raises(UserError, match="chooses compute_area_m2"):
        Portfolio("portfolio", "?", "USD", (Member("drawn", drawn, 1.0, "runs"),))


def test_sources_of_a_list_are_those_of_all_its_members(capsys):
    assert main(["sources", "portfolio", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "3 workloads" in document["question"] and len(set(document["sources"])) == len(document["sources"]) > 10
