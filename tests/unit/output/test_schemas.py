"""The schemas of `--json`: true of what commands print (`tests/conftest.py` checks every answer), with the keys of the contract."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

import hwopt
from hwopt.cli import main
from hwopt.cli.commands.schema import NO_ANSWER
from hwopt.cli.parser import COMMANDS as KNOWN
from hwopt.model.report import ServingReport, TrainingReport, outputs
from hwopt.output.schema.commands import COMMANDS, schema_of
from hwopt.output.schema.elements import closed, references
from hwopt.output.schema.identity import VERSION, identity
from tests.rotation import rotated, shared_out
from tests.schemas import KEYS, check, keys_text


def test_every_command_that_answers_has_a_schema():
    assert set(COMMANDS) == set(KNOWN) - set(NO_ANSWER)


def test_keys_are_those_of_the_contract():
    assert keys_text().splitlines() == KEYS.read_text(encoding="utf-8").splitlines(), (
        "python -m tests.schemas writes the new keys; a key that went or changed needs a new VERSION (CONTRIBUTING.md)"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_schemas_are_schemas_and_refer_to_what_they_have(command):
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert references(schema) == set(schema["$defs"])
    assert schema["$id"] == identity(command) and schema["$id"].startswith("urn:hwopt:")


@pytest.mark.parametrize(("kind", "name"), [(TrainingReport, "training_report"), (ServingReport, "serving_report")])
def test_numbers_of_a_report_are_described_as_they_are_declared(kind, name):
    described = schema_of("optimize")["$defs"][name]["properties"]
    for key, each in outputs(kind).items():
        assert described[key]["description"] == each.meaning and described[key].get("x-unit", "") == each.unit


def test_a_closed_schema_refuses_what_the_open_one_takes():
    answer = {
        "schema": identity("sources"),
        "schema_version": VERSION,
        "command": "hwopt sources",
        "question": "which",
        "sources": [],
        "more": 1,
    }
    schema = schema_of("sources")
    jsonschema.validate(answer, schema)
    with pytest.raises(jsonschema.ValidationError, match="more"):
        jsonschema.validate(answer, closed(schema))
    for missing in ("question", "schema", "schema_version"):
        with pytest.raises(jsonschema.ValidationError, match=missing):
            jsonschema.validate({key: x for key, x in answer.items() if key != missing}, schema)
    with pytest.raises(AssertionError, match="sources/0"):
        check("sources", {"schema": identity("sources"), "question": "", "sources": [1]})


SMALL = "--workload llama3.1-8b --chip h100-sxm --chips 8"
CHEAP = {
    "catalog": 0,
    "catalog chips": 0,
    "catalog chips h100-sxm": 0,
    "catalog workloads resnet-50": 0,
    "sources": 0,
    f"estimate {SMALL} --plan tp=2,dp=4": 0,
    f"estimate {SMALL} --plan tp=2,dp=4 --spot every=1d,return=30min,discount=60%": 0,
    f"estimate {SMALL} --mode serve --plan tp=8,batch=32": 0,
    "estimate --workload llama3.1-405b --chip h100-sxm --chips 8 --plan tp=8": 1,
    "deploy --chip gb200 --chips 1152 --ordered 2027-01-15": 0,
    "check too-good": 1,
    "validate RUNS": 0,
    "validate --columns": 0,
    f"plan {SMALL}": 0,
    f"plan {SMALL} --export torchtitan": 0,
}
LONG = {
    f"plan {SMALL} --mode serve --splits": 0,
    f"plan {SMALL} --mode serve --export vllm": 0,
    f"plan {SMALL} --choices 'chip=h100-sxm|b200'".replace(" --chip h100-sxm", ""): 0,
    "scale --workload llama3.1-8b --chip h100-sxm --chips 64:256": 0,
    "fleet --workload llama3.1-8b --groups h100-sxm:64,a100-80:64": 0,
    "calibrate RUNS --out OUT": 0,
    "compare --workload llama3.1-8b --tokens 1e12 --chips h100-sxm,b200 --seconds 20": 0,
    "optimize --workload llama3.1-8b --tokens 1e12 --seconds 20": 0,
    "optimize --workload llama3.1-8b --tokens 1e12 --seconds 20 --choices 'chip=h100-sxm|b200' --alternatives": 0,
    "optimize --power-budget-w 1e5 --seconds 20": 1,
    "walls --workload llama3.1-8b --tokens 1e12 --seconds 20": 0,
    "invest --workload llama3.1-8b --tokens 1e12 --seconds 20 --replan 1": 0,
    "sensitivity --workload llama3.1-8b --tokens 1e12 --seconds 20": 0,
    "sweep --workload llama3.1-8b --tokens 1e12 --samples 65536": 0,
    "sweep --workload llama3.1-8b --tokens 1e12 --frontier power_budget_w=1e6:2e6:2": 0,
}
"""Commands and their exit codes. RUNS: measured runs; OUT: a file."""


def _answers(command, code, tmp_path, capsys):
    lines = (Path(hwopt.__file__).parent / "data/runs/train.csv").read_text().splitlines(keepends=True)
    (tmp_path / "runs.csv").write_text("".join(lines[:13]))
    known = {"RUNS": str(tmp_path / "runs.csv"), "OUT": str(tmp_path / "mine.toml")}
    words = [known.get(word, word) for word in shlex.split(command)]
    assert main([*words, "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == identity(words[0])
    check(words[0], answer)


@pytest.mark.parametrize("command", rotated(CHEAP, 3))
def test_answers_follow_their_schemas(command, tmp_path, capsys):
    _answers(command, CHEAP[command], tmp_path, capsys)


@pytest.mark.search
@pytest.mark.parametrize("command", shared_out(LONG, 2))
def test_answers_that_take_longer_follow_their_schemas(command, tmp_path, capsys):
    _answers(command, LONG[command], tmp_path, capsys)


def test_a_schema_is_printed_as_it_is_declared(capsys):
    assert main(["schema", "estimate"]) == 0
    assert capsys.readouterr().out == json.dumps(schema_of("estimate"), indent=1) + "\n"
    assert main(["schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {command: identity(command) for command in sorted(COMMANDS)}
    assert main(["schema", "optimise"]) == 2
    assert "did you mean 'optimize'?" in capsys.readouterr().err
