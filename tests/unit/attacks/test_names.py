"""Injection by names of files, titles and cells: into exported files, pages, screens, errors, figures and stores."""

import csv
import html
import json
import subprocess
import tomllib
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import yaml

import hwopt
from hwopt import catalog, registry
from hwopt.analysis.comparison import ChipResult
from hwopt.calibration.fit.files import write
from hwopt.calibration.measured.table import load
from hwopt.catalog.names import data_root
from hwopt.cli import app, main, output
from hwopt.cli.commands import completion
from hwopt.design.choices import Combination
from hwopt.output.answers.comparison import comparison_answer
from hwopt.output.answers.sweep import file_parts
from hwopt.output.answers.sweep_document import names_of
from hwopt.output.export.settings import launch_settings, launch_text
from hwopt.output.export.trainer import file_text, training_file
from hwopt.output.export.trainers import TRAINERS
from hwopt.output.figures.style import figure, plain, save
from hwopt.output.text.layout import fact, heading
from hwopt.sweeps.attributes import flags
from hwopt.sweeps.specification import SweepCase
from tests.names import PIECES, names
from tests.tiers import turn
from tests.unit.output.launches import launch
from tests.unit.output.test_launch import CASES
from tests.unit.test_escape import TagReader

SOME = names(60)
HOSTILE = "e\nFORGED;touch pwned\x1b[31m\u202e$(touch pwned)`touch pwned`\"'<b>#: $x$ \udcff\u2028"
"""Hostile text that is a valid file name: without slash and NUL."""
RUN = catalog.training_run("llama3.1-8b", global_batch=64)
PLAN = catalog.plan(RUN, 8, tp=1)


def noted(settings, name):
    """Return settings with a note that contains a hostile name."""
    return settings._replace(notes=[*settings.notes, name])


def trained(framework, name, plan=None):
    """Return the file of a trainer; the name is also in its config, title and command line."""
    config = {"model_type": "llama", "rms_norm_eps": name} if framework == "megatron" and name != "plain" else {}
    plan = catalog.plan(RUN, 8, tp=1, zero=3) if plan is None else plan
    asked = launch(RUN, plan, title=name, reproduce=name, passed=name)
    settings = training_file(framework, TRAINERS[framework], replace(asked, config=config))
    return file_text(TRAINERS[framework], noted(settings, name), asked)


@pytest.mark.parametrize(("framework", "read"), [("torchtitan", tomllib.loads), ("nemo", yaml.safe_load)])
def test_files_of_trainers_are_those_of_a_plain_name(framework, read):
    plainly = read(trained(framework, "plain"))
    assert all(read(trained(framework, name)) == plainly for name in SOME)


def scripts(name):
    """Exported scripts of bash."""
    asked = launch(RUN, PLAN, title=name, reproduce=name, passed=name)
    settings = training_file("megatron", TRAINERS["megatron"], asked)
    yield file_text(TRAINERS["megatron"], noted(settings, name), asked)
    for framework in ("vllm", "tensorrt-llm"):
        asked = launch(*CASES["two groups"], servers=1.0, title=name, reproduce=name, passed=name)
        yield launch_text(noted(launch_settings(framework, asked), name), asked)


def test_a_hostile_config_is_a_quoted_word(tmp_path):
    for name in SOME:
        text = trained("megatron", name)
        ran = subprocess.run(
            ["/bin/bash", "-c", f'torchrun() {{ :; }}; MASTER_ADDR=m; PATH=\n{text}\nprintf "%s" "${{MEGATRON_ARGS[@]: -1}}"'],
            cwd=tmp_path, capture_output=True, check=True,
        )  # fmt: skip
        assert b"--norm-epsilon" in text.encode("utf-8", "surrogateescape") and not ran.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names", [SOME[turn() % 6 :: 6], pytest.param(SOME, marks=pytest.mark.search)], ids=["a sixth by turn", "all"]
)
def test_scripts_run_nothing_and_say_the_same(names, tmp_path):
    """No command is executed; a script sets the same variables as with a plain name."""

    def ran(name):
        shown = "\ndeclare -p MEGATRON_ARGS PREFILL_ARGS DECODE_ARGS CUDA_DEVICE_MAX_CONNECTIONS 2>/dev/null; true"
        stub = 'cat() { command_not="$(<&0)"; }; command_not_found_handle() { echo "RAN $*"; }; PATH=\nMODEL=m\nMASTER_ADDR=m\n'
        stub += "set -- prefill\ntorchrun() { :; }\nvllm() { :; }\ntrtllm-serve() { :; }\n"
        text = "".join(f"(\n{script}{shown}\n)\n" for script in scripts(name))
        subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)
        done = subprocess.run(
            ["/bin/bash", "-c", stub + text], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "RAN" not in done.stdout and not done.stderr
        return done.stdout

    plainly = ran("plain")
    assert plainly.count("declare -a") == 5
    for name in names:
        assert ran(name) == plainly, name
    assert sorted(each.name for each in tmp_path.iterdir()) == ["decode.yaml", "prefill.yaml"]


def hostile(kind, base, folder):
    """Write a user's file with a hostile name, title and note."""
    path = folder / f"{HOSTILE}{kind}.toml"
    text = f'base = "{base}"\ntitle = "t\\nFORGED"\nnote = "n\\nFORGED \\u001b\\u202e"\n[sources]\ns = "x\\nFORGED\\u001b"\n'
    path.write_text(text, encoding="utf-8")
    return path.name


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = {"workload": "llama3.1-8b", "chip": "h100-sxm", "site": "us-average"}
    return {f"--{kind}": hostile(kind, base, tmp_path) for kind, base in kinds.items()}


def assert_plain(capsys, code, wanted=0):
    """Check that every line is printable and none is forged."""
    out, err = capsys.readouterr()
    assert code == wanted, err
    lines = [*out.split("\n"), *err.split("\n")]
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.strip(" #-").startswith("FORGED")]
    return out


@pytest.mark.parametrize(
    "command",
    [
        ["estimate", "--chips", "64", "--plan", "tp=8"],
        *(["plan", "--chips", "8", "--export", name] for name in ("megatron", "nemo", "torchtitan")),
        ["plan", "--chips", "8", "--mode", "serve", "--export", "tensorrt-llm"],
        ["fabrics", "--chips", "64", "--plan", "tp=8", "--fabrics", "ndr-fat-tree", "--report", "r.html", "--figure", "f.svg"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)  # fmt: skip
def test_screens_and_exports(command, files, tmp_path, capsys):
    given = [part for pair in files.items() for part in pair]
    out = assert_plain(capsys, main([*command, *given]))
    assert r"e\nFORGED" in out and r"\u202e" in out
    assert not (tmp_path / "pwned").exists()
    if "--report" in command:
        reader = TagReader()
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        reader.feed(page)
        assert "b" not in {tag for tag, _ in reader.tags} and page.count("<script") == 1
        again = page.split('aria-label="command"><code>')[1].split("</code>")[0]
        written = subprocess.run(
            ["bash", "-c", f"hwopt() {{ printf '%s\\0' \"$@\"; }}\n{html.unescape(again)}"],
            capture_output=True,
            check=True,
        ).stdout
        assert written.split(b"\0")[:-1] == [each.encode("utf-8", "surrogateescape") for each in (*command, *given)]


def test_listings_and_json(files, tmp_path, capsys):
    for kind in ("workload", "chip", "site"):
        assert_plain(capsys, main(["catalog", f"{kind}s", files[f"--{kind}"]]))
    assert main(["estimate", "--json", "--chips", "8", *(part for pair in files.items() for part in pair)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["workload"] == files["--workload"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--workload", HOSTILE, "--chip", "h100-sxm", "--chips", "8"],
        ["estimate", "--workload", "llama3.1-8b", "--chip", f"{HOSTILE}.toml", "--chips", "8"],
        ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", HOSTILE],
        ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8", "--plan", HOSTILE],
        [HOSTILE], ["optimize", HOSTILE], ["docs", HOSTILE], ["schema", HOSTILE], ["optimize", f"--{HOSTILE}"],
        ["check", f"{HOSTILE}.toml"], ["validate", f"{HOSTILE}.csv"], ["catalog", HOSTILE], ["optimize", "--vary", HOSTILE],
    ],
)  # fmt: skip
def test_errors_are_one_line(arguments, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err[:-1].isprintable()


def test_questions_tables_and_cases(files):
    """Screens and pages name a question, compared chips and the folder of a store."""
    question: Any = hwopt.objective("train_cost", workload=files["--workload"], chip=files["--chip"])
    problem = question.problem()
    assert problem.question.count("FORGED") == 2
    said = [
        problem.question, replace(problem.provenance, constants=HOSTILE).mode, *heading(HOSTILE),
        *file_parts(HOSTILE, ())[0].lines(), fact(HOSTILE, HOSTILE), Combination((("chip", HOSTILE),), None).name,
        SweepCase((("chip", HOSTILE),), problem).name,
        comparison_answer([ChipResult(HOSTILE, None, "refused")]).title,
    ]  # fmt: skip
    assert all(each.isprintable() for each in said)


def test_completion_offers_no_word_that_a_shell_expands(monkeypatch, capsys):
    """`compgen -W` expands its words, and names of questions come from other packages."""
    known = [*registry.names(), "$(touch pwned)", "`touch pwned`", "a b", "a;b"]
    monkeypatch.setattr(registry, "names", lambda: known)
    for shell in completion.SHELLS:
        assert main(["completion", shell]) == 0
        assert "pwned" not in capsys.readouterr().out
    assert completion._plain("it's \\\x1b[m [x]: y\nz") == "it's //x1b[m [x]: y/nz"


def test_what_a_signal_says_prints(monkeypatch):
    """Also for a store name with invalid Unicode, which once ended the printing thread."""
    said, codes = [], []
    monkeypatch.setattr(output, "behind", f": kept in {HOSTILE}")
    monkeypatch.setattr(app.os, "write", lambda number, words: said.append(words.decode()))
    monkeypatch.setattr(app.os, "isatty", lambda number: False)
    monkeypatch.setattr(app.cleanup, "remove_all", lambda: None)

    def ended(code):
        codes.append(code)
        raise SystemExit

    monkeypatch.setattr(app.os, "_exit", ended)
    monkeypatch.setattr(app, "_STOPPING", app.threading.Lock())
    with pytest.raises(SystemExit):
        app._stop(app.signal.SIGTERM)
    assert said[0].startswith("hwopt: terminated: kept in e") and said[0][:-1].isprintable() and codes == [143]


def test_a_calibration_is_read_as_it_was_written(tmp_path):
    """Titles, notes and machines; an emoji once made a file that is not TOML."""
    usual = catalog.calibration("calibrated")
    assert usual is not None
    for name in ("\U0001f600 'x' \"y\" \\ # é", HOSTILE, "a\nb"):
        path = tmp_path / "own.toml"
        machine = name.replace("\udcff", "")
        write(path, replace(usual, title=name, note=name, own={machine: {"base": 0.25}}))
        read = catalog.calibration(path)
        assert read is not None and read.title.isprintable() and read.note.isprintable() and list(read.own) == [machine]
        assert "\n" in name or read.title == name


def test_cells_of_a_table_are_one_line(tmp_path):
    with (data_root() / "runs" / "train.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row | {"source": "a\nb\x1b"})
    [(_, cells)] = load(path).lines
    assert cells[list(row).index("source")] == r"a b\x1b"


def test_names_of_cases_are_read_back():
    """In a store they stand side by side, between spaces."""

    class Coded:
        attrs = flags([f"chip={name}" for name in SOME], "choice")
        values = np.arange(len(SOME))

    read = names_of(Coded)
    assert len(read) == len(SOME) and all(each.isprintable() and each.encode() for each in read.values())


def test_figures_draw_every_name(tmp_path):
    """A dollar opens no formula, and what has no glyph is its escape."""
    with warnings.catch_warnings(), figure() as (drawn, (axes,)):
        warnings.filterwarnings("error", "Glyph")
        for place, piece in enumerate(PIECES):
            if piece.isascii() or not piece.isprintable():
                axes.text(0.0, place / len(PIECES), plain(f"a{piece}$b"), fontsize=4)
        save(drawn, tmp_path / "f.svg")
    text = (tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "<script>alert" not in text and "\x1b" not in text
    HTMLParser().feed(text)
