"""`hwopt estimate --design` re-evaluates every form of answer from its file, and refuses other files."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

import hwopt
from hwopt.cli.app import main
from hwopt.cli.output import signed
from hwopt.design.portfolio import portfolio_of
from hwopt.design.variables import count_of
from hwopt.output.answers.optimum import solution_document
from hwopt.output.answers.portfolio import portfolio_document
from hwopt.solver.portfolio.solution import evaluate_portfolio
from hwopt.solver.solution import evaluate_design
from tests.rotation import rotated

SMALL = "--workload llama3.1-8b"
QUESTIONS = (
    f"train_cost {SMALL}",
    f"train_cost {SMALL} --free hbm+links+domain+clock",
    f"train_cost {SMALL} --design h100-sxm",
    f"train_cost {SMALL} --sites 2 --local-steps 10 --fabric ndr-fat-tree",
    "train_cost --workload resnet-50",
    "train_time --workload mixtral-8x7b --chip b200 --global-batch 768 --seq-len 2048",
    f"train_energy {SMALL} --chip tpu-v5p",
    f"carbon {SMALL} --site norway",
    f"tokens_per_dollar {SMALL}",
    f"loss_under_budget {SMALL}",
    f"serve_cost {SMALL}",
    "serve_cost --workload gpt-oss-120b --layouts redundant_experts",
    f"serve_cost {SMALL} --split disaggregated",
    f"serve_cost {SMALL} --split disaggregated --decode-chip h200",
    f"serve_latency {SMALL}",
    f"train_and_serve {SMALL}",
)


def values_of(problem):
    """Return a design: usual integers, else the lower end; middles of continuous ranges; look-ups as in the template."""
    usual = {
        "chips": 512.0,
        "tp": 4.0,
        "prefill_tp": 4.0,
        "serve_tp": 4.0,
        "replicas": 16.0,
        "global_batch_sequences": 512.0,
    }
    found = {}
    for each in problem.variables:
        value = usual.get(each.name, each.lower if each.integer else float(np.sqrt(each.lower * each.upper)))
        found[each.name] = float(each.place.get(problem.template)) if each.category == "lookup" else value
    return found


def asked(question):
    name, *words = shlex.split(question)
    fields = {flag[2:].replace("-", "_"): value for flag, value in zip(words[::2], words[1::2], strict=True)}
    fields = {"sequence_length" if name == "seq_len" else name: value for name, value in fields.items()}
    kind = type(hwopt.objective(name))
    typed = {key: type(getattr(kind, key))(value) for key, value in fields.items()}
    return hwopt.objective(name, **typed)


def written(path, question, document):
    """Write an answer as `hwopt optimize` prints it, and return its path."""
    path.write_text(json.dumps(signed("optimize", document, f"hwopt optimize {question} --json")))
    return str(path)


def estimated(capsys, path):
    code = main(["estimate", "--design", path, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("question", rotated(QUESTIONS, 5))
def test_an_answer_of_each_kind_is_evaluated_again_from_its_file(question, tmp_path, capsys):
    problem = asked(question).problem()
    solution = evaluate_design(problem, values_of(problem))
    path = written(tmp_path / "answer.json", question, solution_document(solution))
    code, found = estimated(capsys, path)
    assert code == (0 if solution.feasible else 1)
    assert found["reproduced"]["largest_difference"] <= 1e-9 and found["reproduced"]["numbers"] > 90
    assert found["objective"]["value"] == pytest.approx(solution.objective, rel=1e-9)


def test_the_same_over_continuous_hardware(tmp_path, capsys):
    question = f"train_cost {SMALL}"
    problem = asked(question).problem().continuous
    solution = evaluate_design(problem, values_of(problem))
    assert "hbm_bandwidth_bytes_per_s" in solution.design
    path = written(tmp_path / "answer.json", f"{question} --regime relaxed", solution_document(solution))
    assert estimated(capsys, path)[1]["reproduced"]["largest_difference"] <= 1e-9


def test_a_portfolio_and_the_choice_that_its_answer_made(tmp_path, capsys):
    portfolio = portfolio_of(replace(hwopt.objective("portfolio"), chip="h200"))
    whole = evaluate_portfolio(portfolio, {each.name: values_of(each.problem) for each in portfolio.members})
    document = portfolio_document(whole)
    chosen = {"choice": {"chip": "h200"}, "outcome": "best", "objective": 1.0, "lower_bound": None, "message": ""}
    path = written(
        tmp_path / "answer.json", "portfolio --choices 'chip=h100-sxm|h200'", document | {"choices": [chosen]}
    )
    _, found = estimated(capsys, path)
    assert found["reproduced"]["largest_difference"] <= 1e-9
    assert len(found["members"]) == len(portfolio.members) and "h200 as sold" in found["question"]


def test_members_of_a_portfolio_share_their_parts():
    portfolio = portfolio_of(hwopt.objective("portfolio"))
    designs = {each.name: values_of(each.problem) for each in portfolio.members}
    whole = evaluate_portfolio(portfolio, designs)
    part = whole.members[0].solution.design["chips_per_rack"]
    assert part.lower == part.upper == part.value and whole.parts["chips_per_rack"].upper > part.value
    designs[portfolio.members[1].name]["chips_per_rack"] += 8.0
    with pytest.raises(hwopt.UserError, match="members differ in chips_per_rack"):
        evaluate_portfolio(portfolio, designs)


@pytest.mark.parametrize("layout", rotated(["data", "pipeline"], 2))
def test_a_fleet(layout, tmp_path, capsys):
    flags = f"{SMALL} --groups h100-sxm:64,a100-80:64 --global-batch 256 --layout {layout} --json"
    assert main(["fleet", *shlex.split(flags)]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "fleet.json").write_text(printed)
    _, found = estimated(capsys, str(tmp_path / "fleet.json"))
    assert found["reproduced"]["largest_difference"] <= 1e-9 and found["layout"] == layout
    assert found["step_time_s"] == json.loads(printed)["step_time_s"]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    question = f"train_cost {SMALL}"
    problem = asked(question).problem()
    document = solution_document(evaluate_design(problem, values_of(problem)))
    path = tmp_path_factory.mktemp("answer") / "answer.json"
    return json.loads(open(written(path, question, document)).read())


def test_a_number_that_was_changed_is_found(answer, tmp_path, capsys):
    changed = json.loads(json.dumps(answer))
    changed["report"]["step_time_s"] *= 1.001
    (tmp_path / "answer.json").write_text(json.dumps(changed))
    main(["estimate", "--design", str(tmp_path / "answer.json")])
    assert "Differs from" in (said := capsys.readouterr().out) and "report.step_time_s" in said


def test_the_budgets_of_a_design_that_breaks_one_are_an_exit_of_1(answer, tmp_path, capsys):
    hurried = answer | {"command": f"hwopt optimize train_cost {SMALL} --time-budget-s 1s --json"}
    (tmp_path / "answer.json").write_text(json.dumps(hurried))
    code, found = estimated(capsys, str(tmp_path / "answer.json"))
    assert code == 1 and not found["feasible"] and found["outcome"] == "evaluated"


WRONG = {
    "empty": (lambda a: "", "is not JSON"),
    "no JSON": (lambda a: "{", "is not JSON"),
    "nested": (lambda a: "[" * 100_000, "is not JSON"),
    "a list": (lambda a: [a], "is not an answer"),
    "no command": (lambda a: {k: v for k, v in a.items() if k != "command"}, "names no command"),
    "another command": (lambda a: a | {"command": "hwopt sweep train_cost --samples 10"}, "names no command"),
    "another program": (lambda a: a | {"command": "rm -rf x"}, "names no command"),
    "help": (lambda a: a | {"command": "hwopt optimize --help"}, "names no command"),
    "open quotes": (lambda a: a | {"command": "hwopt optimize 'x"}, "names no command"),
    "bad flag": (lambda a: a | {"command": "hwopt optimize --chp b200"}, "unknown argument '--chp'"),
    "no choices": (lambda a: a | {"choices": 3}, "its design is not one"),
    "no design": (lambda a: a | {"design": None}, "its design is not one"),
    "another question": (lambda a: a | {"command": "hwopt optimize serve_cost"}, "differ from the question's"),
    "a number missing": (lambda a: a | {"lookups": {}}, "differ from the question's in fullest_stage"),
    "text": (lambda a: a | {"lookups": a["lookups"] | {"last_stage": "x"}}, "must be a number"),
    "negative": (lambda a: _with(a, "tp", -1.0), "tp = -1 is not a value"),
    "infinite": (lambda a: _with(a, "tp", float("inf")), "tp = inf is not a value"),
    "not a number": (lambda a: _with(a, "tp", float("nan")), "tp = nan is not a value"),
    "no such option": (lambda a: _with(a, "recompute", 9.0), "recompute = 9 is not a value"),
}  # fmt: skip


def _with(answer, name, value):
    return answer | {"design": answer["design"] | {name: answer["design"][name] | {"value": value}}}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_no_answer_is_refused_in_a_line(fault, answer, tmp_path):
    change, words = WRONG[fault]
    path = tmp_path / "answer.json"
    content = change(answer)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(hwopt.UserError, match=words):
        from hwopt.cli.parser import build_parser

        options = build_parser("train_cost", None).parse_args(["estimate", "--design", str(path)])
        options.command_line = ""
        options.run(options)


def test_flags_beside_a_design_are_refused(tmp_path, capsys):
    assert main(["estimate", "--design", "answer.json", "--chips", "8"]) == 2
    assert "leave out --chips 8" in capsys.readouterr().err


def test_an_answer_as_sold_is_the_same_by_flags(capsys):
    """Flags and fields agree for NICs, clock and racks; sequence length and batch are the workload's in both."""
    problem = asked(f"train_cost {SMALL} --tokens 15e12").problem()
    values = values_of(problem) | {"clock_ratio": 0.8, "nics_per_server": 3.0, "chips": 512.0, "tp": 2.0, "cp": 1.0, "pp": 1.0,
                                   "micro_batch": 1.0, "global_batch_sequences": 512.0}  # fmt: skip
    solution = evaluate_design(problem, values)
    run = problem.template.workload
    assert (count_of(run.sequence_length), count_of(run.global_batch_sequences)) == (8192, 512)
    racks = values["chips_per_rack"]
    flags = f"{SMALL} --chip h100-sxm --chips 512 --plan tp=2,dp=256,vpp=1,mbs=1 --nics-per-server 3 --clock 0.8"
    flags += f" --rack-chips {racks:g}"
    main(["estimate", *shlex.split(flags), "--json"])
    found = json.loads(capsys.readouterr().out)
    for name in ("step_time_s", "run_cost_usd", "capex_usd", "peak_power_w"):
        assert found[name] == pytest.approx(float(getattr(solution.report, name)), rel=1e-9), name
    assert found["global_batch"] == 512 and found["sequence_length"] == 8192


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e308, -1e308, 10**300])
def test_an_absurd_number_is_a_difference(value, answer, tmp_path, capsys):
    changed = json.loads(json.dumps(answer))
    changed["report"]["step_time_s"] = value
    (tmp_path / "answer.json").write_text(json.dumps(changed))
    _, found = estimated(capsys, str(tmp_path / "answer.json"))
    assert found["reproduced"]["largest_difference"] == 1.0 and found["reproduced"]["where"] == "report.step_time_s"


@pytest.mark.parametrize("name", ["chips", "global_batch_sequences", "clock_ratio"])
@pytest.mark.parametrize("factor", [1e300, 1e-300, 1e4, 900.0])
def test_an_absurd_design_is_evaluated_or_refused(name, factor, answer, tmp_path, capsys):
    value = answer["design"][name]["upper"] * factor
    (tmp_path / "answer.json").write_text(json.dumps(_with(answer, name, value)))
    code = main(["estimate", "--design", str(tmp_path / "answer.json"), "--json"])
    assert code in ((0, 1) if factor == 900.0 else (2,))
