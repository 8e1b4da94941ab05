"""Malformed values of every flag: each refused in one line with exit 2, before anything is computed.

Cases combine a table of malformed texts by value type with the flags that commands and design questions declare. A new flag is thus
covered as soon as it is declared. Each flag gets some texts of its type, in turn, so that every text is used.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections import Counter
from dataclasses import replace
from importlib import import_module

import pytest

from hwopt import registry
from hwopt.catalog.names import data_root
from hwopt.cli import app, main
from hwopt.cli.parser import COMMANDS, build_parser
from hwopt.cli.question import field_flags
from hwopt.cli.value_types import SWITCH, TEXT
from hwopt.units import unit_in_name
from objectives.fields import COUNTS
from tests.rotation import rotated

NUMBERS = (
    "1e400", "1e-400", "9" * 400, "nan", "inf", "-inf", "Infinity", "1_0", "1_000", "1 0", "٣", "１２", "½", "+-3", "--5", "0x10",
    "1e", "1.2.3", "1,00", "1,0000", ".", "5 bananas", "10%%", "k", "MWMW", "-3", "1e5e5",
)  # fmt: skip
NOT_INTEGERS = ("1.5", "50%", "1e-3")

MALFORMED = {
    "X": NUMBERS,
    "SHARE": (*NUMBERS, "1.5", "150%"),
    "N": (*NUMBERS, *NOT_INTEGERS),
    "P": (*NUMBERS, "1", "0.4", "100%"),
    "N|best": (*NOT_INTEGERS, "-1", "worst", "1_0", "1000000"),
    "NAME": ("no-such-name", "a\0b", "nowhere.toml", f"{'a' * 300}.toml"),
    "WORD": ("no-such-word",),
    "FILE": ("a\0b", "/dev/null/x", "a" * 300),
    "FILE.html": ("a\0b", "/dev/null/x.html", "/nowhere/x.html"),
    "FILE.csv": ("a\0b", "/dev/null/x.csv", "/nowhere/x.csv"),
    "A,B": ("a,,b", ",a", "a,", "a,a", "no-such-name", "1_0"),
    "NAME=VALUE": ("tp=8,,pp=2", "tp=8,", "tp=1_0", "tp=٨", "tp", "tp=8,tp=8", "no-such-name=1", "tp=1.5", "tp=1e400", "tp=nan"),
    "NAME=VALUE|FILE": ("step=1e400", "step=nan", "step=-3s", "step", "steps=3s", "step=3W", "step=1_0s", "nowhere.csv", "a\0b"),
    "COLUMN=VALUE": ("gpu", "no-such-column=1", "tp=1_0", "tp=1e400", "tp=1.5", "tp=8,tp=8", "tp=8,,pp=2"),
    "NAME=LOW:HIGH": ("tp=8,,pp=2", "tp=8:4", "tp=1e400", "tp=", "tp=1:2:3", "tp=8,tp=8", "tp=1_0", "tp=1.5", "no-such-name=1:2"),
    "FIELD=A|B": ("chip=a||b", "chip=a|", "chip", "chip=b200|b200", "chip=b200|dgx-b200", "no-such-name=a|b"),
    "NAME=SHARE": ("no-such-name=10%", "hbm", "hbm=10%,hbm=10%", "hbm=1e400", "hbm=-1", "hbm=10%%", "hbm=1_0%", "hbm=5000%"),
    "NAME=LEVELS": ("chips=1e400", "chips", "chips=8|8", "chips=8||9", "chips=2:1:2", "chips=1_0|2", "chips=1:2:1.5", "x=1|2"),
    "BUDGET=LEVELS": ("power_budget_w=1e400", "power_budget_w=3e7|3e7", "power_budget_w=1d|2d", "no_such_name=1|2", "mfu=0.1|0.2"),
    "LOW:HIGH": ("8:4", "256:1_024", "256:1000", "1.5,2", "٨,16", "8,,16", "8,8", "1e400,8", "50%,8", "8:16:32"),
    "every=10h,...": ("every=10h", "every=10W,return=1h,discount=60%", "every=1e400s,return=1h,discount=60%",
                      "every=10h,return=1h,discount=600%", "every=10h,return=1h,discount=60%,chips=7"),
    "BATCH@TOKENS": ("1_0@10%,2048", "1024@1e400,2048", "1024@10%%,2048", "٣@10%,2048", "1024@10%,,2048", "1024", "1.5@10%,2048"),
    "CHIP:CHIPS": ("h100-sxm:1.5", "h100-sxm:8,", "h100-sxm:8,h100-sxm:8", "h100-sxm", "no-such-name:8", "h100-sxm:1_0"),
    "ANSWER.json": ("no-such-answer.json", "a\0b"),
    "DAY": ("2027-13-01", "2027", "٢٠٢٧-01-01", "31.01.2027"),
}  # fmt: skip
"""Value type, as named in the help -> texts that every flag of the type rejects."""

WRONG_UNIT = {"W": "10d", "s": "40MW", "USD": "40MW", "kg": "40MW", "": "40MW"}
"""SI unit of a flag -> an amount in another dimension."""

EACH = 2
"""Minimum number of texts per flag; more where few flags share a value type."""

WORK = {"--workload": "llama3.1-8b", "--chip": "h100-sxm", "--chips": "64"}
MACHINE = {name: WORK[name] for name in ("--chip", "--chips")}
BASES = {
    "compare": {"--chips": "h100-sxm,b200"},
    "estimate": WORK,
    "plan": WORK,
    "scale": WORK | {"--chips": "256:1024"},
    "fabrics": WORK,
    "fleet": {"--workload": "llama3.1-8b", "--groups": "h100-sxm:8,b200:8"},
    "deploy": MACHINE,
}
"""Valid arguments that a command requires in addition to the malformed flag."""
RUNS = str(data_root() / "runs" / "train.csv")
WORDS = {"validate": RUNS, "calibrate": RUNS, "check": "llama3.1-405b", "catalog": "chips"}
"""The positional argument of a command."""

WORK_DONE = (
    "hwopt.solver.search.solve_global:solve_global", "hwopt.solver.search.categorical:certified_choice",
    "hwopt.solver.portfolio.solve:certified_portfolio", "hwopt.solver.local.multistart:optimize_relaxed",
    "hwopt.planning.plan_table:in_blocks", "hwopt.trace.cache:evaluate_rows_in_numpy", "hwopt.trace.cache:cached_trace",
    "hwopt.calibration.validation.join:join", "hwopt.analysis.deploy:_machine",
)  # fmt: skip
"""Where commands begin to compute."""


def _texts(flag, turns: dict[str, itertools.cycle], flags: Counter, seen: set[str]) -> list[str]:
    """Return malformed texts for a flag: enough of its value type that all flags together cover the table.

    A name that is new also gets texts of its own: another unit, a fractional count, a count in %.
    """
    kind = flag.kind.metavar if flag.kind.metavar in MALFORMED else "X"
    own, texts = (
        [],
        list(itertools.islice(turns[kind], max(EACH, math.ceil(len(MALFORMED[kind]) / max(flags[kind], 1))))),
    )
    if kind in ("X", "N") and flag.name not in seen:
        own = [WRONG_UNIT.get(unit_in_name(flag.name), "10 MW MW")]
        own += ["1.5"] if flag.attribute in COUNTS else []
        own += ["50%"] if kind == "X" and (flag.attribute in COUNTS or flag.name.endswith("s")) else []
    seen.add(flag.name)
    return [*texts, *own]


def _command_line(command: str, flag, text: str) -> list[str]:
    base = BASES.get(command, {})
    given = [part for name, value in base.items() if name != flag.name for part in (name, value)]
    mode = ["--mode", flag.modes.names[0]] if flag.modes and "--mode" in COMMANDS[command].spellings else []
    if not flag.name.startswith("-"):
        given = [] if command == "fleet" else given  # a file of groups stands instead of them
        return [command, *([WORDS[command]] if flag.name == "name" else []), text, *given]
    word = [WORDS[command]] if command in WORDS else []
    return [command, *word, *given, *(mode if flag.name != "--mode" else []), f"{flag.name}={text}"]


def _cases():
    turns = {kind: itertools.cycle(texts) for kind, texts in MALFORMED.items()}
    flags = Counter(flag.kind.metavar for command in COMMANDS.values() for flag in command.flags)
    seen: set[str] = set()
    for name, command in COMMANDS.items():
        for flag in command.flags:
            if flag.kind is not SWITCH:
                yield from (_command_line(name, flag, text) for text in _texts(flag, turns, flags, seen))
    seen = set()
    for question in registry.names():
        for flag in field_flags(registry.load(question)):
            if flag.name not in seen and question.startswith(("train_", "serve_", "portfolio")):
                named = replace(flag, kind=TEXT) if flag.kind.read is TEXT.read else flag  # help calls both X
                yield from (["optimize", question, f"{flag.name}={text}"] for text in _texts(named, turns, flags, seen))


CASES = list(dict.fromkeys(map(tuple, _cases())))


_parser = functools.cache(build_parser)


@pytest.fixture(autouse=True)
def nothing_is_computed(monkeypatch):
    """Fail the test when any computation starts, under every name by which it was imported."""
    for each in WORK_DONE:
        module, name = each.split(":")
        function = getattr(import_module(module), name)
        scope: dict = {}
        exec(f"def {name}(*_, **__): __import__('pytest').fail('computed before all was checked')", scope)
        monkeypatch.setattr(function, "__code__", scope[name].__code__)
    monkeypatch.setattr(app, "_use_compilation_cache", lambda: None)
    monkeypatch.setattr("hwopt.cli.parser.build_parser", _parser)


def refused(arguments, capsys) -> str:
    """Return the message of a refusal, after a check for exit code 2 and a single line."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("hwopt: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    "arguments", rotated(map(list, CASES), 2), ids=lambda each: " ".join(each)[-60:].replace("\0", "NUL")
)
def test_a_malformed_value_is_refused_in_one_line_before_anything_is_computed(arguments, capsys):
    err = refused(arguments, capsys)
    flag, equals, text = arguments[-1].partition("=")
    if not equals:
        flag, text = next((each, each) for each in arguments[1:] if each not in WORDS.values())
    name = flag.lstrip("-")
    value = text.replace(":", "=").partition("=")[0].replace("\0", r"\x00")[:50]
    assert any(each in err for each in (name, name.replace("-", "_"), name.replace("-", " "), value)), err


def test_the_table_is_large_and_knows_every_kind_of_value():
    declared = {flag.kind.metavar for command in COMMANDS.values() for flag in command.flags if flag.kind is not SWITCH}
    assert declared - {"HOST:PORT"} <= MALFORMED.keys()
    assert len(CASES) >= 400
    met = {case[-1].partition("=")[2] for case in CASES if case[-1].startswith("--")}
    assert {text for kind, texts in MALFORMED.items() for text in texts if not kind.startswith("FILE")} <= met


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("completion",)])
def test_the_same_without_the_malformed_value_is_no_refusal(command, capsys):
    """Otherwise the cases above would be refused for any value."""
    word = [WORDS[command]] if command in WORDS else []
    given = [part for pair in BASES.get(command, {}).items() for part in pair]
    try:
        assert main([command, *word, *given]) in (0, 1)
    except pytest.fail.Exception as begun:
        assert "computed before" in str(begun)
    capsys.readouterr()


FILES = {
    "folder": lambda path: path.mkdir(),
    "empty": lambda path: path.touch(),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "gigabyte": lambda path: os.truncate(path, 1 << 30) if not path.touch() else None,
    "UTF-16": lambda path: path.write_text("layers = 1", encoding="utf-16"),
    "words": lambda path: path.write_text("hello"),
    "range": lambda path: path.write_text("layers = 1e400"),
    "integer": lambda path: path.write_text(f"layers = {'9' * 400}"),
    "hexadecimal": lambda path: path.write_text(f"layers = 0x{'f' * 400}"),
    "cell": lambda path: path.write_text(f"hour,requests\n0,{'1' * 200_000}\n"),
}
"""Invalid content of a file, by name."""

TAKES = {
    "own.toml": (("check", "{}"), ("fleet", "{}"), ("catalog", "chips", "{}"), ("sources", "train_cost", "--chip={}"),
               ("optimize", "portfolio", "--members={}"), ("compare", "--chips=b200,{}"), ("deploy", "--chip={}", "--chips=8"),
               *(("estimate", *itertools.chain(*(WORK | {flag: "{}"}).items())) for flag in
                 ("--workload", "--chip", "--constants", "--site", "--stack", "--operation", "--pretrained")),
               ("estimate", *itertools.chain(*WORK.items()), "--mode", "serve", "--day-curve", "{}")),
    "own.json": (("optimize", "train_cost", "--workload={}"), ("catalog", "workloads", "{}"),
                 ("estimate", *itertools.chain(*(WORK | {"--workload": "{}"}).items()))),
    "own.csv": (("validate", "{}"), ("calibrate", "{}"), ("sweep", "--table={}"),
              ("estimate", *itertools.chain(*WORK.items()), "--mode", "serve", "--day-curve", "{}")),
}  # fmt: skip
"""Name of a file -> commands that read it."""


@pytest.mark.parametrize("content", FILES)
@pytest.mark.parametrize("name", TAKES)
def test_a_file_of_another_kind_is_refused_and_never_waited_for(name, content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FILES[content](tmp_path / name)
    for arguments in TAKES[name]:
        assert "own" in refused([each.format(name) for each in arguments], capsys)


@pytest.mark.parametrize("of", ["chips", "workloads", "sites", "fabrics", "designs", "stacks"])
@pytest.mark.parametrize("asked", ["check", "--chip", "--workload", "--site", "--prices"])
def test_an_entry_of_another_kind_says_what_it_looks_like(of, asked, capsys):
    """`hwopt check chip.toml` once printed 37 lines."""
    if asked.strip("-") + "s" == of:
        return
    path = str(next(each for each in sorted((data_root() / of).iterdir()) if each.name.endswith(".toml")))
    arguments = [asked, path] if asked == "check" else ["estimate", *itertools.chain(*(WORK | {asked: path}).items())]
    err = refused(arguments, capsys)
    assert "its keys resemble those of a " in err and {"chips": "chip", "workloads": "workload"}.get(of, of[:-1]) in err


@pytest.mark.parametrize("told", ["abc", "-2", "1e9", "1.5", "٣", " "])
def test_a_number_of_processes_that_is_none(told, monkeypatch, capsys):
    monkeypatch.setenv("HWOPT_PROCESSES", told)
    assert f"HWOPT_PROCESSES={told.strip()}" in refused(["catalog"], capsys)


@pytest.mark.parametrize(
    ("name", "value", "failure"),
    [
        ("JAX_PLATFORMS", "cuda", AssertionError()),  # raised by JAX without a GPU
        ("JAX_PLATFORMS", "cpu,foo", RuntimeError("Unable to initialize backend 'foo': ...")),
        ("JAX_ENABLE_X64", "foo", ValueError("invalid truth value 'foo' for environment 'JAX_ENABLE_X64'")),
    ],
)
def test_a_platform_that_is_not_there_is_no_internal_error(name, value, failure, monkeypatch, capsys):
    def fails(*_):
        raise failure

    monkeypatch.setattr("hwopt.output.text.catalog_cards.kinds", fails)
    monkeypatch.setenv(name, value)
    assert f"JAX cannot start with {name}={value}" in refused(["catalog"], capsys)
    monkeypatch.delenv(name)
    with pytest.raises(type(failure)):
        main(["catalog"])
