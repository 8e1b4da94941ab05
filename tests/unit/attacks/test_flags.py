"""Flags that were taken in silence, or refused in words that lead astray: twice, empty, reversed, misspelt, of other work."""

from __future__ import annotations

import functools
import json

import pytest

from hwopt import registry
from hwopt.cli import main
from hwopt.cli.flags import Flag
from hwopt.cli.meanings import _MEANINGS
from hwopt.cli.output import JSON
from hwopt.cli.parser import COMMANDS, build_parser, parse
from hwopt.cli.question import field_flags
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
        ([*ESTIMATE, "--chips", "128"], "--chips 128: --chips 64 is given too"),
        ([*ESTIMATE, "--plan", "tp=8", "--plan", "tp=4"], "--plan tp=4: --plan tp=8 is given too"),
        ([*ESTIMATE, "--plan", "tp=8,tp=4"], "'tp' is given twice"),
        ([*ESTIMATE, "--seq-len", "4096", "--sequence-length", "8192"], "--seq-len 4096 is given too"),
        (["sources", "train_cost", "--seq-len", "4096", "--sequence-length", "8192"], "--seq-len 4096 is given"),
        (["optimize", "--bounds", "tp=8:8,tp=4:4"], "--bounds: 'tp' is given twice"),
        (["optimize", "--freeze", "chip,chip"], "'chip' is given twice"),
        (["optimize", "--seed", "1", "--seed", "1"], "--seed 1 is given too"),
        (["sweep", "--rows", "--no-rows"], "--no-rows: --rows is given too"),
        (["sweep", "--metrics", "mfu,mfu"], "'mfu' is given twice"),
        (["sweep", "--choices", "chip=b200", "--choices", "chip=h200"], "--choices: 'chip' is given twice"),
        (["sensitivity", "--metrics", "mfu", "--metrics", "hfu"], "--metrics mfu is given too"),
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
        (["optimize", "--bounds", "tp=16:8"], "--bounds tp=16:8: reversed; write tp=8:16"),
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
            "'--freeze': a flag of optimize, explore, compare, walls, sensitivity, invest and sweep, not of sources",
        ),
        (["optimize", "--chips", "5"], "no design has chips=5; possible: chips=8"),
        (["--json", "catalog"], "write it after its command"),
        (["estimate", "--tp", "8"], "'--tp': did you mean '--plan tp=8'? (see hwopt estimate"),
        (["plan", "--tp=8"], "'--tp=8': did you mean '--plan tp=8'?"),
        (["optimize", "--tp"], "'--tp': did you mean '--plan tp=...'?"),
        (["plan", "--offload", "--top", "3"], "did you mean '--plan activations_offloaded=1'?"),
        (["estimate", "--nodes", "2"], "did you mean '--chips (servers times chips per server)'?"),
        (["optimize", "--budget", "1"], "did you mean '--capex-budget-usd (purchase) or --cost-budget-usd (the run)'?"),
        (["optimize", "--gpu", "b200"], "did you mean '--chip'?"),
        (["optimize", "--gpus", "5"], "no design has chips=5; possible: chips=8"),
        (["estimate", "--precis", "fp8"], "did you mean '--precision'?"),
        (["validate", "runs.csv", "\n"], "' ' is an unexpected argument"),
        (["estimate"], "the following arguments are required: --workload, --chip, --chips"),
    ],
)
def test_unknown_flags_say_what_was_meant_or_whose_they_are(arguments, said, capsys):
    assert said in error(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["optimize", "--power-budget-w", "20mw"],
            "--power-budget-w 20mw: 'mw' is not a unit of this quantity: did you mean 'MW'",
        ),
        (
            ["optimize", "--power-budget-w", "20 days"],
            "'days' is not a unit of this quantity: known: GW, MW, W, kW, watts",
        ),
        (["optimize", "--time-budget-s", "60MW"], "'MW' is not a unit of this quantity"),
        (["optimize", "--capex-budget-usd", "1.45BW"], "'BW' is not a unit of this quantity"),
        (["optimize", "--seconds", "none"], "--seconds none: must be a positive, finite number"),
        (["optimize", "--seconds", "nan"], "--seconds nan: 'nan' is not a number"),
        (["optimize", "--seed", "1.5"], "--seed 1.5: must be an integer"),
        ([*ESTIMATE[:-1], "1e400"], "--chips 1e400: '1e400' is outside the range of 64-bit"),
        ([*ESTIMATE[:-1], "0x40"], "--chips 0x40: 'x40' is not a unit of this quantity"),
        ([*ESTIMATE, "--mode", "serve", "--cached-fraction", "2"], "--cached-fraction 2: must be at most 1"),
        ([*PLAN, "--top", "1001"], "--top 1001: must be at most 1000"),
    ],
)
def test_numbers_say_what_to_write(arguments, said, capsys):
    assert said in error(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*ESTIMATE, "--mode", "serve", "--sequence-length", "64"], "--sequence-length applies to training, not to mode serve"),
        ([*ESTIMATE, "--input-tokens", "64"], "remove it, or use --mode serve, prefill or decode"),
        ([*ESTIMATE, "--mode", "decode", "--prefill-plan", "tp=2"], "applies to disaggregated serving, not to mode decode"),
        ([*PLAN, "--mode", "decode", "--ttft-limit-s", "1"], "to prefill, not to mode decode: remove it, or use --mode"),
        (["sweep", "--frontier", "power_budget_w=30e6:60e6:3", "--no-rows"], "--no-rows: has no meaning with --frontier"),
        (["sweep", "--frontier", "power_budget_w=30e6:60e6:3", "--gradients"], "--gradients: has no meaning with --frontier"),
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


def test_aliases_are_the_flags_that_they_stand_for(capsys):
    """Their values take the units of the flag; a flag together with its alias is given twice."""
    answers = []
    for model, gpus in (("--workload", "--chips"), ("--model", "--gpus")):
        assert (
            main(["estimate", model, "llama3.1-8b", "--chip", "h100-sxm", gpus, "8", "--plan", "tp=2", "--json"]) == 0
        )
        answers.append(json.loads(capsys.readouterr().out) | {"command": ""})
    assert answers[0] == answers[1]
    options = parse(["optimize", "--model", "llama3.1-8b", "--power", "40MW", "--time", "41d", "--capex", "1.45B$"])
    asked = (options.workload, options.power_budget_w, options.time_budget_s, options.capex_budget_usd)
    assert asked == ("llama3.1-8b", 40e6, 41 * 86_400.0, 1.45e9)
    assert "--power 1MW is given too" in error(capsys, "optimize", "--power", "1MW", "--power-budget-w", "2MW")
    assert "--power-budget-w 40km: 'km' is not a unit" in error(capsys, "optimize", "--power", "40km")


def test_every_meaning_is_a_flag_of_a_command():
    flags = {each for command in COMMANDS.values() for each in command.spellings} | {
        each for name in registry.names() for flag in field_flags(registry.load(name)) for each in flag.spellings
    }
    for word, meanings in _MEANINGS.items():
        assert all(each.split()[0] in flags for each in meanings), word


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
        spellings = [each for flag in (JSON, *command.flags) for each in flag.spellings]
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
        (["optimize", "--choices", "chip=h100-sxm|b200", "--chip", "h200"], "keep one of them"),
        (["optimize", "--choices", "chip=h100-sxm", "--choices", "chip=b200"], "is given twice"),
        (["optimize", "--choices", "chip=h100-sxm|b200", "--regime", "local"], "leave out --regime local"),
        (["optimize", "--choices", "tokens=1|2"], "is a number"),
    ],
)
def test_choices_that_cannot_be_meant_are_refused_in_a_line(arguments, said, capsys):
    assert said in error(capsys, *arguments)
