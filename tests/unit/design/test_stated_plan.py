"""Questions about "my cluster, my plan": fixed parts, free parts, and contradictions refused before a search."""

from __future__ import annotations

import json

import pytest

import hwopt
from hwopt.cli import main
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.integers.counting import count
from tests.tiers import turn

MINE = {"chips": 16384.0, "plan": "tp=8,cp=1,pp=16"}
SMALL = {"workload": "llama3.1-8b", "chips": 64.0, "time_budget_s": 1e9}


def fixed(**fields):
    problem = hwopt.objective("train_cost", **fields).problem()
    return problem, {each.name: each.lower for each in problem.variables if each.lower == each.upper}


def test_a_plan_fixes_its_parts_and_leaves_the_rest_free():
    problem, values = fixed(**MINE)
    assert {name: values[name] for name in ("chips", "tp", "cp", "pp")} == {"chips": 16384, "tp": 8, "cp": 1, "pp": 16}
    assert not {"virtual_stages", "micro_batch", "zero", "recompute", "clock_ratio"} & values.keys()
    assert problem.question.endswith("; fixed: chips=16384, tp=8, cp=1, pp=16")
    assert problem.continuous.question.endswith("; fixed: chips=16384, tp=8, cp=1, pp=16")


def test_replicas_are_fixed_although_they_are_no_variable():
    """Of 16,384 chips with tp=8 and dp=128, context and pipeline share the remaining factor of 16."""
    problem, _ = fixed(chips=16384.0, plan="tp=8,dp=128,vpp=1")
    system = lattice_of(problem).without_pieces()
    point = system.point({"chips": 16384, "tp": 8, "pp": 16, "dp": 128, "micro_batches": 16, "chips_per_rack": 16})
    assert system.valid(point[None])[0]
    at = system.at
    other = point.copy()
    other[at["pp"]], other[at["dp"]] = 32, 64
    assert not system.valid(other[None])[0] and count(system, 1e6).points > 0


def test_a_plan_as_answers_print_it_is_accepted():
    plan = "tp=8, pp=8, dp=51, cp=4, virtual_stages=16, micro_batch=1, zero=1, recompute=none"
    _, values = fixed(plan=plan)
    assert {name: values[name] for name in ("tp", "pp", "cp", "zero", "recompute")} == {
        "tp": 8, "pp": 8, "cp": 4, "zero": 1, "recompute": 1,
    }  # fmt: skip
    experts = hwopt.objective("train_time", workload="deepseek-v3", precision="fp8", plan="tp=1,ep=64,expert_tp=1")
    assert experts.problem().question.endswith("; fixed: tp=1, ep=64")


def test_values_beyond_the_usual_range_are_accepted():
    assert fixed(workload="llama3.1-8b", chips=8.0)[1]["chips"] == 8
    assert fixed(plan="mbs=16")[1]["micro_batch"] == 16


WRONG = {
    "not dividing": ({"chips": 16384.0, "plan": "tp=8,pp=12"}, "possible: pp=8 or pp=16"),
    "replicas": ({"chips": 16384.0, "plan": "tp=8,dp=100"}, "possible: dp=64 or dp=128"),
    "not on the lattice": ({"plan": "tp=7"}, "no design has tp=7; possible: tp=4 or tp=8"),
    "too many chunks": ({"plan": "pp=16,vpp=16"}, "possible: virtual_stages=8"),
    "no whole servers": ({"chips": 100.0}, "no design has chips=100; possible: chips=96 or chips=104"),
    "no experts": ({"plan": "ep=8"}, "no design has ep=8; possible: ep=1"),
    "undocumented": ({"plan": "zero=3,pp=8"}, "does not document ZeRO in pipeline"),
    "not offloaded": ({"plan": "weights_offloaded=1"}, "does not document weight streaming"),
    "no choice": ({"plan": "shard_groups=2"}, "shard_groups=2 is not a choice of a design question"),
    "no value": ({"plan": "recompute=half"}, "none, selective"),
    "no name": ({"plan": "tq=8"}, "unknown name 'tq'"),
    "no integer": ({"chips": 16384.5}, "chips = 16384.5 must be an integer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions_are_refused_with_the_likely_intent(name):
    fields, words = WRONG[name]
    with pytest.raises(UserError) as refused:
        hwopt.objective("train_cost", **fields).problem()
    assert words in str(refused.value)


def test_any_software_admits_what_is_not_documented():
    assert fixed(plan="weights_offloaded=1,pp=8", any_software=True)[1]["weights_tier"] == 2


def test_a_service_has_chips_replicas_and_batch():
    problem, values = (
        asked := hwopt.objective("serve_cost", chips=64.0, plan="tp=8,dp=8,batch=16").problem(),
        {each.name: each.lower for each in asked.variables if each.lower == each.upper},
    )
    assert (values["tp"], values["replicas"], values["batch"]) == (8, 8, 16)
    system = lattice_of(problem).without_pieces()
    assert set(system.by_name["pp"].ends) and count(system, 1e6).points > 0
    with pytest.raises(UserError, match="possible: dp=8"):
        hwopt.objective("serve_cost", chips=64.0, plan="tp=8,dp=9").problem()
    with pytest.raises(UserError, match="two groups of chips"):
        hwopt.objective("serve_cost", chips=64.0, split="disaggregated").problem()


def test_training_and_serving_fix_the_training_machine():
    problem = hwopt.objective("train_and_serve", chips=4096.0, plan="tp=8,dp=128").problem()
    assert problem.question.endswith("; fixed: chips=4096, tp=8, dp=128") and len(problem.relations) == 1


COMMANDS = ("optimize", "sensitivity", "invest", "walls", "sweep", "sources")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_question_command_takes_the_same_flags(command, capsys):
    assert main([command, "train_cost", "--chips", "16384", "--plan", "tp=8,pp=12"]) == 2
    assert "possible: pp=8 or pp=16" in capsys.readouterr().err


def test_compare_counts_chips_where_chip_names_them(capsys):
    assert main(["compare", "--chip", "h100-sxm,h200", "--chips", "512", "--plan", "tp=7"]) == 2
    assert "no design has chips=512, tp=7" in capsys.readouterr().err
    assert main(["compare", "--chips", "512"]) == 2
    assert "name the chips as well" in capsys.readouterr().err
    assert main(["compare", "--chips", "h100-sxm", "--chip", "h200"]) == 2
    assert "leave --chip out" in capsys.readouterr().err


def test_a_search_for_plans_takes_the_same_words(capsys):
    asked = ["plan", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8", "--global-batch", "32"]
    assert main([*asked, "--plan", "tp=4,recompute=full,weights_offloaded=0", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["plan"]
    assert (best["tp"], best["recompute_full"], best["weights_offloaded"]) == (4, 1, 0)
    assert main([*asked, "--plan", "tp=4,pp=3"]) == 2
    assert "pp=3: no plan of this cluster has it; possible: pp=1 or pp=2" in capsys.readouterr().err
    served = ["--mode", "serve", "--precision", "fp8", "--plan", "tp=2,batch=8"]
    assert main([*asked[:7], *served, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["plan"]
    assert (best["tp"], best["batch"]) == (2, 8)


@pytest.mark.search
def test_the_answer_has_the_stated_plan_and_the_prediction_of_estimate():
    """A question about a stated machine and a plan search on it, with the same goal, end with the same step."""
    plan = ("tp=2", "tp=1,pp=2", "dp=16,mbs=1")[turn() % 3]
    solution = hwopt.optimize(hwopt.objective("train_time", **SMALL, plan=plan))
    _, cluster, best = solution.inputs
    assert float(cluster.chips) == 64.0
    for part in plan.split(","):
        name, _, value = part.replace("mbs", "micro_batch").partition("=")
        assert float(getattr(best, name)) == float(value)
    assert solution.certificate.gap is not None and solution.certificate.gap < 1e-3
