"""Help that answers: what a command is for, its budgets with units, examples that run as they stand."""

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hwopt
from hwopt import registry
from hwopt.cli import main
from hwopt.cli.examples import ANSWERS
from hwopt.cli.flags import COMMON
from hwopt.cli.parser import COMMANDS, build_parser, objective_of
from hwopt.cli.question import field_flags
from objectives.fields import NOT_LIMITED

ASK = ("optimize", "sensitivity", "sweep", "sources")
HELPS = [
    [],
    *([command] for command in ANSWERS),
    *([command, question] for command in ASK for question in registry.names()),
]

CHEAP = ("hwopt catalog", "hwopt catalog chips", "hwopt sources", "hwopt estimate", "hwopt validate")


_parser = functools.cache(build_parser)


@pytest.fixture(autouse=True)
def one_parser_of_each_command(monkeypatch):
    monkeypatch.setattr("hwopt.cli.parser.build_parser", _parser)


def help_text(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def shown_examples(text):
    """Lines below `Example`."""
    lines = text.split("\nExample", 1)[1].split("\n")[1:]
    return [line.strip() for line in lines[: lines.index("")]] if "" in lines else [x.strip() for x in lines if x]


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_every_help_says_what_it_answers_and_its_examples_parse(arguments, capsys):
    text = help_text(capsys, arguments)
    examples = shown_examples(text)
    assert examples and "Exit codes: 0" in text
    for line in examples:
        program, *words = shlex.split(line)
        assert program == "hwopt"
        options = _parser(*objective_of(words)).parse_args(words)
        assert options.command == words[0]
        if arguments:
            assert words[0] == arguments[0]
        if getattr(options, "objective", None) in registry.names():
            assert options.objective == options.asked


@pytest.mark.parametrize("question", registry.names())
def test_every_field_of_a_question_says_what_it_is_and_budgets_have_units(question, capsys):
    text = " ".join(help_text(capsys, ["optimize", question]).split())
    for name in (field for field in registry.load(question).__dataclass_fields__ if "budget" in field):
        said = text.split(f"--{name.replace('_', '-')} X")[-1].split("; default")[0]
        assert said.strip() == NOT_LIMITED or ("(" in said and said.rstrip().endswith(")")), f"{name}: {said}"


@pytest.mark.parametrize(
    "arguments", [["optimize"], ["optimize", "serve_cost"], ["plan"], ["estimate"], ["sweep"]], ids=" ".join
)
def test_help_lists_every_flag_once_and_the_common_ones_on_its_first_screen(arguments, capsys):
    text = help_text(capsys, arguments)
    command, kind = COMMANDS[arguments[0]], objective_of(arguments)[1]
    flags = [*command.flags, *(field_flags(kind) if command.asks and kind else ())]
    for flag in flags:
        assert len(re.findall(rf"^  {flag.name}\b(?!-)", text, re.M)) == 1, flag.name
    common = [flag.name for flag in flags if flag.name in COMMON]
    first = text.split("\n\n")[: 4 if command.asks else 3]  # usage, description, positional arguments, common flags
    assert len(common) <= 10 and "\n\n".join(first).count("\n") < 55
    assert re.findall(r"^  (--[\w-]+)", first[-1], re.M) == [each for each in COMMON if each in (*common, "--json")]


def test_a_budget_that_a_question_does_not_have_is_refused_not_ignored(capsys):
    assert main(["sources", "train_and_serve", "--wafers-budget", "100"]) == 2
    error = capsys.readouterr().err
    assert "wafers_budget" in error and "time_budget_s" in error and error.count("\n") == 1


def cheap_examples():
    from hwopt.cli.examples import examples

    lines = [line for command in ANSWERS for line in examples(command, "train_cost")]
    return [line for line in lines if line.startswith(CHEAP)]


@pytest.mark.parametrize("line", cheap_examples())
def test_cheap_examples_run(line, tmp_path, monkeypatch, capsys):
    rows = (Path(hwopt.__file__).parent / "data/runs/train.csv").read_text().splitlines(keepends=True)
    (tmp_path / "my_runs.csv").write_text("".join(rows[:12]))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


def test_no_command_loads_jax_before_it_runs():
    """It would take a second of every help and refusal, and log pages of processor features, which are silenced before it loads."""
    code = "import sys, hwopt.cli.app; print([each for each in ('jax', 'numpy', 'scipy') if each in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
