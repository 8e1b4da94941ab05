"""`hwopt sweep` as scripts see it: screen, JSON, figures, resuming, exit codes, one line for bad input."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import xarray

from hwopt.cli import main
from hwopt.cli.parser import objective_of
from tests import toy

QUESTION = ["toy_cost", "--capex-budget-usd", "1e10", "--power-budget-w", "3e8"]
SAMPLES = ["--samples", "2,000"]
CLOSED = {"--time-budget-s": "1.2e6", "--capex-budget-usd": "4e8"}
"""Budgets of the toy that none of `SAMPLES` holds."""


@pytest.fixture(scope="module", autouse=True)
def offered(tmp_path_factory):
    """`toy_cost` among the questions that commands know, as a distribution would install it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(toy.offered(tmp_path_factory.mktemp("site") / "toy"))
        yield


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["sweep", *map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A finished sweep: its folder, and what its first run said."""
    folder = tmp_path_factory.mktemp("sweeps") / "first"
    return folder, run(*QUESTION, *SAMPLES, "--out", folder)


def test_a_sweep_prints_a_screen_and_draws_beside_its_store(store):
    folder, (code, out, err) = store
    assert code == 0
    assert err == ""  # no progress where no terminal is
    assert "Best design: variant" in out and f'xarray.open_zarr("{folder}")' in out
    assert max(map(len, (line for line in out.splitlines() if str(folder) not in line))) <= 120
    figures = folder.with_name("first.figures")
    assert {each.name for each in figures.iterdir()} >= {"pareto.png", "budgets.png", "breakdown.png"}
    dataset = xarray.open_zarr(folder, consolidated=False)
    assert dataset.sizes["variant"] == 2000 and dataset["run_time_s"].attrs["units"] == "s"


def test_the_same_command_again_reads_the_store(store):
    folder, first = store
    before = sorted((each, each.stat().st_mtime_ns) for each in folder.rglob("*") if each.is_file())
    assert run(*QUESTION, *SAMPLES, "--out", folder) == first
    assert sorted((each, each.stat().st_mtime_ns) for each in folder.rglob("*") if each.is_file()) == before


def test_json_is_one_object_and_nothing_else(store):
    folder, _ = store
    code, out, err = run(*QUESTION, "--samples", "2e3", "--out", folder, "--json", "--no-figures")
    document = json.loads(out, parse_constant=lambda word: pytest.fail(word))
    assert code == 0 and err == ""
    assert document["out"] == str(folder) and document["figures"] == []
    assert document["feasible"] is True and document["best"][0]["feasible"] is True
    _, out, _ = run(*QUESTION, *SAMPLES, "--out", folder, "--json")
    assert all(Path(each).is_file() for each in json.loads(out)["figures"])


def test_another_sweep_is_not_written_over(store):
    folder, _ = store
    code, out, err = run(*QUESTION, "--samples", "1999", "--out", folder)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "samples" in err and "--out" in err


def test_none_feasible_is_exit_1_and_the_looser_budgets_named_are_enough():
    budgets = lambda by_flag: [word for pair in by_flag.items() for word in pair]
    code, out, err = run("toy_cost", *budgets(CLOSED), *SAMPLES)
    assert code == 1 and err == ""
    assert "No feasible design" in out and "Nothing is saved" in out
    nearest = re.search(r"Closest to feasible: variant ([\d,]+)", out)
    named = re.search(r"feasible with((?:\s+--[\w-]+\s+\S+)+)", out)
    assert nearest is not None and named is not None
    words = named[1].split()
    looser = dict(zip(words[::2], words[1::2], strict=True))
    code, out, _ = run("toy_cost", *budgets(CLOSED | looser), *SAMPLES, "--json")
    assert code == 0
    assert int(nearest[1].replace(",", "")) in [each["variant"] for each in json.loads(out)["best"]]


@pytest.mark.parametrize(
    ("question", "most"),
    [
        (["toy_cost", "--time-budget-s", "2.2e6", "--capex-budget-usd", "1.1e9"], 0.1),
        pytest.param(["train_cost", "--bounds", "tp=4:4,cp=8:8,pp=8:8,zero=1:1,recompute=1:1"], 1e-4, marks=pytest.mark.search),
    ],
    ids=["toy", "the default question"],
)  # fmt: skip
def test_a_question_of_few_feasible_designs_has_some(question, most):
    """Nearly none of the space is feasible: a sweep of it finds some all the same, and says both."""
    code, out, err = run(*question, "--samples", "65536", "--no-rows")
    assert code == 0 and err == ""
    share = re.search(r"feasible (\S+) % \(standard error", " ".join(out.split()))
    assert "Best design: variant" in out and share is not None and 0.0 < float(share[1]) < most


def test_grid_table_and_choices(tmp_path):
    table = tmp_path / "variants.csv"
    table.write_text("chips,tp\n65536,8\n81920,8\n")
    code, out, _ = run("toy_cost", "--table", table, "--choices", "cooling=air|direct-liquid", "--json")
    document = json.loads(out)
    assert code == 1 and document["evaluated"] == 4 and document["cases"] == ["cooling=air", "cooling=direct-liquid"]
    code, out, _ = run("toy_cost", "--grid", "chips=1024:4096:3,tp=4|8", "--json", "--metrics", "mfu")
    document = json.loads(out)
    assert document["method"] == "grid" and document["evaluated"] == document["samples"] == 6
    assert "mfu" in document["best"][0]["metrics"] and "goodput" not in document["best"][0]["metrics"]


def test_an_interrupt_says_that_blocks_are_kept(monkeypatch, tmp_path):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hwopt.sweeps.sweep", stopped)
    code, out, err = run(*SAMPLES, "--out", tmp_path / "a")
    assert code == 130 and out == "" and err.count("\n") == 1
    assert "finished blocks are saved" in err and "same command" in err
    code, _, err = run(*SAMPLES)
    assert code == 130 and "nothing is saved" in err and err.count("\n") == 1


def test_a_terminal_sees_progress_and_json_never_does(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for more, seen in ((["--json"], False), ([], True)):
        err, out = Terminal(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(["sweep", *QUESTION, *SAMPLES, *more])
        assert ("sweep" in err.getvalue()) == seen
        assert "variants" not in out.getvalue() or not more


def test_no_question_is_the_default_one(monkeypatch):
    asked = []

    def stopped(question, *_, **__):
        asked.append(question)
        raise KeyboardInterrupt

    monkeypatch.setattr("hwopt.sweeps.sweep", stopped)
    assert run(*SAMPLES)[0] == 130 and [each.name for each in asked] == ["train_cost"]


@pytest.mark.parametrize(
    "before", [["--no-figures"], ["--rows"], ["--json"], ["--distributed"], ["--samples", "5"], ["--out=a"]]
)
def test_the_question_may_stand_behind_a_flag(before):
    assert objective_of(["sweep", *before, "train_time"])[0] == "train_time"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trane_cost"], "train_cost"),
        (["--sampels", "5"], "--samples"),
        (["--samples", "0"], "--samples 0"),
        (["--samples", "1.5"], "integer"),
        (["--samples", "nan"], "--samples nan"),
        (["--samples", "-3"], "--samples -3"),
        (["--samples", "many"], "--samples many"),
        (["--samples", "1e12"], "Sobol"),
        (["--samples"], "--samples"),
        ([*SAMPLES, "--metrics", "mfuu"], "'mfu'"),
        ([*SAMPLES, "--pareto", "run_cost_usd"], "two or more"),
        ([*SAMPLES, "--pareto", "run_cost_usd,run_tim_s"], "'run_time_s'"),
        ([*SAMPLES, "--map", "chips"], "two"),
        ([*SAMPLES, "--map", "chips,chps"], "'chips'"),
        ([*SAMPLES, "--gradients", "chps"], "'chips'"),
        ([*SAMPLES, "--gradients", "--no-rows"], "--no-rows"),
        ([*SAMPLES, "--bounds", "chps=1:2"], "'chips'"),
        ([*SAMPLES, "--bounds", "tp"], "--bounds tp"),
        ([*SAMPLES, "--bounds", "tp=1:1e9"], "beyond"),
        ([*SAMPLES, "--freeze", "chp"], "'chip'"),
        ([*SAMPLES, "--choices", "chp=a|b"], "'chip'"),
        ([*SAMPLES, "--choices", "chip=h100-sxm|b2000"], "'b200'"),
        ([*SAMPLES, "--choices", "chip"], "--choices chip"),
        ([*SAMPLES, "--choices", "chip=b200,chip=h200"], "twice"),
        ([*SAMPLES, "--choices", "chip=b200|h200", "--chip", "h200"], "--chip"),
        ([*SAMPLES, "--choices", "power_budget_w=lots"], "frontier"),
        (["--grid", "chips"], "--grid chips"),
        (["--grid", "chips=1:2"], "low:high:count"),
        (["--grid", "chips=a|b"], "a|b"),
        (["--grid", "chips=0|1"], "positive"),
        (["--grid", "chps=1|2"], "'chips'"),
        (["--grid", "chips=64,chips=128"], "twice"),
        (["--grid", "chips=64|128", "--samples", "5"], "remove samples"),
        (["--grid", "chips=64", "--method", "sobol"], "grid"),
        ([*SAMPLES, "--method", "sobl"], "'sobol'"),
        ([*SAMPLES, "--dtype", "float16"], "float32"),
        ([*SAMPLES, "--block", "0"], "--block"),
        ([*SAMPLES, "--seed", "-1"], "seed"),
        ([*SAMPLES, "--power-budget-w", "-3"], "--power-budget-w"),
        ([*SAMPLES, "--out", ""], "--out"),
        ([*SAMPLES, "--out", "/"], "--out"),
        ([*SAMPLES, "--process", "2", "--processes", "2"], "--process 2"),
        ([*SAMPLES, "--process", "-1"], "--process -1"),
        ([*SAMPLES, "--processes", "0"], "--processes 0"),
        ([*SAMPLES, "--coordinator", "here"], "host:port"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, named):
    check_refused(arguments, named)


def check_refused(arguments, named):
    code, out, err = run(*arguments)
    assert code == 2, (out, err)
    assert out == "" and err.startswith("hwopt: ") and err.count("\n") == 1, err
    assert named in err


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot read"),
        ("", "at least one"),
        ("chips\n", "at least one"),
        ("chips,tp\n1024,8\n2048\n", "line 3"),
        ("chips\nmany\n", "'many'"),
        ("chips\n-5\n", "positive"),
        ("chips,chips\n1,2\n", "twice"),
        ("chps\n1024\n", "'chips'"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, content, named):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_text(content)
    check_refused(["--table", path], named)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("text")
    (tmp_path / "new.figures").write_text("text")
    check_refused([*SAMPLES, "--out", tmp_path / "file"], "is a file")
    check_refused([*SAMPLES, "--out", tmp_path / "folder"], "something else")
    check_refused([*SAMPLES, "--out", tmp_path / "new"], "--no-figures")
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "text" and not (tmp_path / "new").exists()
