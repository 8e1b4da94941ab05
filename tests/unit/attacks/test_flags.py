"""Flags that were taken in silence, or refused in words that lead astray: twice, empty, reversed, misspelt, of other work."""

from __future__ import annotations

import functools
import json

import pytest

from hwopt.cli import main
from hwopt.cli.flags import Flag
from hwopt.cli.output import JSON
from hwopt.cli.parser import COMMANDS, build_parser
from hwopt.cli.value_types import SWITCH
from hwopt.errors import UserError

ESTIMATE = ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "64"]
PLAN = ["plan", *ESTIMATE[1:]]


_parser = functools.cache(build_parser)


@pytest.fixture(autouse=True)
def one_parser_of_each_command(monkeypatch):
    monkeypatch.setattr("hwopt.cli.parser.build_parser", _parser)


def error(capsys, *arguments: str) -> str:
    """What a refusal says: exit 2, one line, nothing on standard output."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("hwopt: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*ESTIMATE, "--chips", "128"], "--chips 128: --chips 64 stands there already"),
        ([*ESTIMATE, "--plan", "tp=8", "--plan", "tp=4"], "--plan tp=4: --plan tp=8 stands there already"),
        ([*ESTIMATE, "--plan", "tp=8,tp=4"], "'tp' stands twice"),
        ([*ESTIMATE, "--seq-len", "4096", "--sequence-length", "8192"], "--seq-len 4096 stands there already"),
        (["sources", "train_cost", "--seq-len", "4096", "--sequence-length", "8192"], "--seq-len 4096 stands there"),
        (["optimize", "--bounds", "tp=8:8,tp=4:4"], "--bounds: 'tp' stands twice"),
        (["optimize", "--freeze", "chip,chip"], "'chip' stands twice"),
        (["optimize", "--seed", "1", "--seed", "1"], "--seed 1 stands there already"),
        (["sweep", "--rows", "--no-rows"], "--no-rows: --rows stands there already"),
        (["sweep", "--metrics", "mfu,mfu"], "'mfu' stands twice"),
        (["sweep", "--choices", "chip=b200", "--choices", "chip=h200"], "--choices: 'chip' stands twice"),
        (["sensitivity", "--metrics", "mfu", "--metrics", "hfu"], "--metrics mfu stands there already"),
    ],
)
def test_what_stands_twice_is_refused(arguments, said, capsys):
    assert said in error(capsys, *arguments)


def test_a_switch_may_stand_twice_since_it_says_the_same(capsys):
    assert main(["catalog", "--json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


TEXTS = [
    (name, flag)
    for name, command in COMMANDS.items()
    for flag in command.flags
    if flag.kind is not SWITCH and flag.name.startswith("--")
]


@pytest.mark.parametrize(("command", "flag"), TEXTS, ids=lambda each: each.name if isinstance(each, Flag) else each)
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_text_is_refused_wherever_a_flag_takes_one(command, flag, text, capsys):
    assert f"{flag.name} '{text}': is empty" in error(capsys, command, flag.name, text)


@pytest.mark.parametrize("arguments", [["catalog", ""], ["catalog", "chips", ""], ["validate", ""], ["calibrate", " "]])
def test_an_empty_word_is_refused(arguments, capsys):
    assert "is empty" in error(capsys, *arguments)


@pytest.mark.parametrize("field", ["--cooling", "--workload", "--power-budget-w"])
def test_an_empty_field_of_a_question_is_refused(field, capsys):
    assert f"{field} '': is empty" in error(capsys, "sources", "train_cost", field, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "--bounds", "tp=16:8"], "--bounds tp=16:8: reversed, write tp=8:16"),
        (["sweep", "--grid", "chips=100:10:3"], "'100:10:3' is reversed: write 10:100:3"),
        (["sweep", "--frontier", "power_budget_w=60e6:30e6:3"], "power_budget_w: '60e6:30e6:3' is reversed: write 30e6:60e6:3"),
        (["sweep", "--frontier", "power_budget_w=60e6:30e6"], "neither low:high:count"),
        (["optimize", "--bounds", "tp=8:16,"], "--bounds tp=8:16,: write name=low:high"),
        (["optimize", "--bounds", "=8:16"], "write name=low:high"),
        (["optimize", "--freeze", "chip,,network"], "an item before or after ',' is empty"),
    ],
)  # fmt: skip
def test_ranges_and_lists_say_what_to_write(arguments, said, capsys):
    assert said in error(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["estimate", "--worklod", "x"],
            "unknown argument '--worklod': did you mean '--workload'? (see hwopt estimate",
        ),
        (["plan", "--worklod", "x", "--chip", "h100-sxm"], "'--worklod': did you mean '--workload'?"),
        (["validate", "--figur", "x.png"], "'--figur': did you mean '--figure'?"),
        (["optimize", "serve_cost", "--tokens", "5"], "'--tokens': a field of other questions ("),
        (["optimize", "serve_cost", "--tokens", "5"], "train_time), not of serve_cost; did you mean '--input-tokens'"),
        (
            ["optimize", "train_cost", "--ttft-budget-s", "5"],
            "(serve_cost, serve_latency, train_and_serve), not of train",
        ),
        (
            ["sources", "--freeze", "chip"],
            "'--freeze': a flag of optimize, compare, walls, sensitivity, invest and sweep, not of sources",
        ),
        (
            ["optimize", "--chips", "5"],
            "a flag of compare, estimate, plan, scale, fabrics and deploy, not of optimize; did you mean '--chip'?",
        ),
        (["--json", "catalog"], "write it behind the command it belongs to"),
        (["validate", "runs.csv", "\n"], "' ' is one argument too many"),
        (["estimate"], "the following arguments are required: --workload, --chip, --chips"),
    ],
)
def test_unknown_flags_say_what_was_meant_or_whose_they_are(arguments, said, capsys):
    assert said in error(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "--power-budget-w", "20mw"], "--power-budget-w 20mw: 'mw' is no unit of this: did you mean 'MW'"),
        (["optimize", "--power-budget-w", "20 days"], "'days' is no unit of this: known: GW, MW, W, kW, watts"),
        (["optimize", "--time-budget-s", "60MW"], "'MW' is no unit of this"),
        (["optimize", "--capex-budget-usd", "1.45BW"], "'BW' is no unit of this"),
        (["optimize", "--seconds", "none"], "--seconds none: must be a positive, finite number"),
        (["optimize", "--seconds", "nan"], "--seconds nan: 'nan' is not a number"),
        (["optimize", "--seed", "1.5"], "--seed 1.5: must be an integer"),
        ([*ESTIMATE[:-1], "1e400"], "--chips 1e400: '1e400' is outside the range of numbers"),
        ([*ESTIMATE[:-1], "0x40"], "--chips 0x40: 'x40' is no unit of this"),
        ([*ESTIMATE, "--mode", "serve", "--cached-fraction", "2"], "--cached-fraction 2: at most 1"),
        ([*PLAN, "--top", "1001"], "--top 1001: at most 1000"),
    ],
)
def test_numbers_say_what_to_write(arguments, said, capsys):
    assert said in error(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*ESTIMATE, "--mode", "serve", "--sequence-length", "64"], "--sequence-length is a flag of training, not of mode serve"),
        ([*ESTIMATE, "--input-tokens", "64"], "leave it out, or use --mode serve, prefill or decode"),
        ([*ESTIMATE, "--mode", "decode", "--prefill-plan", "tp=2"], "a flag of disaggregated serving, not of mode decode"),
        ([*PLAN, "--mode", "decode", "--ttft-limit-s", "1"], "of prefill, not of mode decode: leave it out, or use --mode"),
        (["sweep", "--frontier", "power_budget_w=30e6:60e6:3", "--no-rows"], "--no-rows: has no meaning beside --frontier"),
        (["sweep", "--frontier", "power_budget_w=30e6:60e6:3", "--gradients"], "--gradients: has no meaning beside"),
    ],
)  # fmt: skip
def test_flags_of_other_modes_are_named_as_they_were_written(arguments, said, capsys):
    assert said in error(capsys, *arguments)


def test_both_spellings_of_a_sequence_length(capsys):
    answers = []
    for flag in ("--seq-len", "--sequence-length"):
        assert main([*ESTIMATE, "--plan", "tp=2", flag, "4096", "--json"]) == 0
        assert main(["sources", "train_cost", flag, "4096"]) == 0
        answers.append(capsys.readouterr().out.replace(flag, "--seq-len"))
    assert answers[0] == answers[1]


def test_a_field_takes_the_zero_that_its_help_speaks_of(capsys):
    """0 requests a second: as many as it answers; they once had to be positive."""
    assert main(["sources", "serve_cost", "--cached-fraction", "0", "--requests-per-s", "0"]) == 0
    assert capsys.readouterr().out


def test_choices_add_up(monkeypatch):
    def swept(*_, choices, **__):
        assert choices == {"chip": ["h100-sxm", "h200"], "cooling": ["direct-liquid"]}
        raise UserError("enough")

    monkeypatch.setattr("hwopt.sweeps.sweep", swept)
    assert main(["sweep", "--choices", "chip=h100-sxm|h200", "--choices", "cooling=direct-liquid"]) == 2


def test_every_flag_is_declared_once_a_command():
    for name, command in COMMANDS.items():
        spellings = [each for flag in (JSON, *command.flags) for each in (flag.name, *flag.also)]
        assert len(set(spellings)) == len(spellings), name


LONG = "a" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "--samples", "64", "--out", LONG],
        ["sweep", "--samples", "64", "--out", "a" * 250],  # no room for what stands beside it
        ["sweep", "--samples", "64", "--out", "a\0b"],
        ["sweep", "--samples", "64", "--out", "/dev/null/x"],
        ["sweep", "--frontier", "power_budget_w=30e6:60e6:3", "--out", LONG],
        ["sweep", "--table", f"{LONG}.csv"],
        ["sweep", "--table", "."],
        ["optimize", "--report", LONG],
        ["optimize", "--report", "a\0b.html"],
        ["sensitivity", "--figure", "nowhere/t.png"],
        ["sensitivity", "--figure", "t.xyz"],
        ["sensitivity", "--figure", "."],
        ["validate", "runs.csv", "--figure", f"{LONG}.png"],
        ["validate", f"{LONG}.csv"],
        ["catalog", "chips", f"{LONG}.toml"],
        [*ESTIMATE, "--constants", f"{LONG}.toml"],
        [*ESTIMATE[:2], f"{LONG}.json", *ESTIMATE[3:]],
    ],
    ids=lambda arguments: " ".join(arguments)[:60].replace("\0", "NUL"),
)
def test_names_that_no_file_can_have_are_refused_before_computing(arguments, capsys, monkeypatch, tmp_path):
    def never(*_, **__):
        pytest.fail("computed before the path was looked at")

    monkeypatch.chdir(tmp_path)
    for name in ("solver.optimize.optimize", "analysis.sensitivity.sensitivity", "analysis.frontier.frontier"):
        monkeypatch.setattr(f"hwopt.{name}", never)
    error(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "--choices", "chip"], "write field=a|b"),
        (["optimize", "--choices", "chip=h100-sxm|h1000"], "h1000"),
        (["optimize", "--choices", "chip=h100-sxm|b200", "--chip", "h200"], "name it once"),
        (["optimize", "--choices", "chip=h100-sxm", "--choices", "chip=b200"], "stands twice"),
        (["optimize", "--choices", "chip=h100-sxm|b200", "--regime", "local"], "leave out --regime local"),
        (["optimize", "--choices", "tokens=1|2"], "is a number"),
    ],
)
def test_choices_that_cannot_be_meant_are_refused_in_a_line(arguments, said, capsys):
    assert said in error(capsys, *arguments)
