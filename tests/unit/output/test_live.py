"""Live pages without a browser: the program in JavaScript, the settings of links, and what a page may contain."""

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import numpy as np
import pytest

from hwopt.cli import main
from hwopt.cli.reproduce import _MACHINES
from hwopt.design.live_model import live_program
from hwopt.output.answers.optimum import solution_answer
from hwopt.output.html.live import live, live_model
from hwopt.solver.solution import evaluate_design
from hwopt.trace.javascript import javascript, literal
from hwopt.trace.scalar_program import NotScalarArithmetic, ScalarProgram, scalar_program
from hwopt.trace.simplify import simplified
from tests.live_pages import page_of, reference, solution_of

NAME = "train_cost"
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028'\"&"


@pytest.fixture(scope="module")
def answered():
    return solution_of(NAME, tp=8.0, pp=4.0, chips=2048.0)


@pytest.fixture(scope="module")
def model(answered):
    return live_model(answered)


def settings_of(model, count, seed=0):
    """Random inputs of the program of one machine: coordinates and numbers between the ends of their controls."""
    draw, names, places = np.random.default_rng(seed), *live_program([model])[1:]
    controls = {each["name"]: each for each in model.controls}
    moved = {place: each for each in model.controls for place in each["places"]}
    rows = []
    for _ in range(count):
        between = lambda each: each["lower"] * (each["upper"] / each["lower"]) ** draw.random()
        first = [between(controls[x]) if x in controls else float(draw.integers(1, 64)) for x in names]
        last = [model.numbers[leaf][i] * draw.uniform(0.5, 2.0) for leaf, i in places]
        assert all(place in moved for place in places)
        rows.append([*first, *last])
    return rows


def in_python(source, rows):
    """Outputs of a JavaScript function, translated to Python: the arithmetic is the same, the notation is not."""
    lines = source.replace("return ", "result=").removeprefix("(x) => {\nconst ").split("\n")[:-1]
    parts = [each.rstrip(",;") for each in lines]
    results = []
    for row in rows:
        known = {"x": row, **FUNCTIONS}
        for part in parts:
            name, _, text = part.partition("=")
            known[name] = eval(translated(text), {"__builtins__": {}}, known)
        results.append(known["result"])
    return np.array(results, float)


def translated(text):
    """An expression with the conditional operator of JavaScript, each in parentheses of its own, in Python."""
    while "?" in text:
        at, start, depth = text.index("?"), text.index("?"), 0
        while depth >= 0:
            start -= 1
            depth += (text[start] == ")") - (text[start] == "(")
        middle, end = closing(text, at + 1, ":"), closing(text, at + 1, ")")
        condition, yes, no = text[start + 1 : at], text[at + 1 : middle], text[middle + 1 : end]
        text = f"{text[:start]}(({yes})if({condition})else({no})){text[end + 1 :]}"
    return text.replace("(!", "(not ").replace("Infinity", "inf")


def closing(text, start, mark):
    """Position of the first mark outside of inner parentheses."""
    depth = 0
    for at in range(start, len(text)):
        if depth == 0 and text[at] == mark:
            return at
        depth += (text[at] in "([") - (text[at] in ")]")
    raise AssertionError(text)


FUNCTIONS = {
    name: getattr(np, name) for name in ("exp", "log", "sqrt", "log1p", "expm1", "abs", "floor", "ceil", "sign", "tanh")
}
FUNCTIONS |= {
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "isFinite": np.isfinite,
    "inf": np.inf,
    "NaN": np.nan,
}
FUNCTIONS |= {"even": np.round}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_javascript_computes_what_the_exact_model_does(model):
    rows = settings_of(model, 3)
    source = javascript(simplified(live_program([model])[0]))
    assert len(source) < 60_000
    found, exact = in_python(source, [list(map(np.float64, row)) for row in rows]), reference([model], rows)
    assert found.shape == exact.shape == (3, len(model.outputs))
    assert np.allclose(found, exact, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize(
    "value", [0.0, -0.25, 1.5, 1e22, 1e-9, -3e-7, 123456789.125, float("inf"), float("-inf"), 0.1 + 0.2]
)
def test_a_literal_is_its_number(value):
    assert float(literal(value).strip("()").replace("Infinity", "inf")) == value


def test_an_operation_without_a_form_is_refused_by_name():
    import jax

    line = scalar_program(lambda x: jax.scipy.special.gammaln(x[0]), 1)
    with pytest.raises(NotScalarArithmetic, match="lgamma"):
        javascript(line)


def test_machines_of_one_trace_share_a_program_that_gives_each_its_own_numbers():
    import hwopt

    models = []
    for chip in ("h100-sxm", "b200"):
        problem = hwopt.objective("train_cost", workload="llama3.1-8b", chip=chip).problem()
        values = {each.name: each.lower if each.integer else each.upper for each in problem.variables}
        from hwopt.design.live_model import LiveModel

        models.append(LiveModel(problem, values | {"chips": 64.0}))
    assert models[0].key == models[1].key
    program, names, places = live_program(models)
    assert isinstance(program, ScalarProgram)
    for each in models:
        known = {**each.point, **{c["name"]: c["value"] for c in each.controls}}
        row = [*(known[name] for name in names), *(each.numbers[leaf][i] for leaf, i in places)]
        shared, alone = program.on_numbers(*np.array([row]).T), evaluate_design(*each.stated({}))
        assert float(np.ravel(shared[0])[0]) == pytest.approx(alone.objective, rel=1e-12)


def test_a_setting_is_the_question_with_its_assumptions_limits_and_integers(model, answered):
    price = next(each for each in model.controls if each["name"].endswith("electricity_usd_per_j"))
    moved = {"chips": 4096.0, price["name"]: 2.0 * price["value"], "power_budget_w": 1e6}
    problem, design = model.stated(moved)
    solution = evaluate_design(problem, design)
    assert solution.design["chips"].value == 4096.0 and solution.design["tp"].value == 8.0
    assert {each.name: each.limit for each in problem.budgets}["power_budget_w"] == 1e6
    assert not solution.feasible and "price of electricity" in problem.question and "1 MW" in problem.question
    again, same = model.stated({})
    assert again.question == answered.problem.question
    assert evaluate_design(again, same).objective == answered.objective


def test_a_page_asks_nobody_and_names_cannot_leave_their_text(answered, tmp_path):
    markup = str(live([(HOSTILE, answered, f"hwopt optimize {HOSTILE}", {"chip": HOSTILE})]))
    assert "<img" not in markup and markup.count("</script>") == 1 and "\u2028" not in markup
    assert not re.search(
        r"https?:|//[a-z]|fetch\(|XMLHttpRequest|import\(|eval\(|new Function|url\(", markup.split("const models")[1]
    )
    (stated,) = json.loads(_MACHINES.search(markup)[1])
    assert stated["name"] == HOSTILE and stated["command"].endswith(HOSTILE)


def test_relaxed_integers_have_no_live_part(answered):
    chips = replace(answered.design["chips"], value=1000.5)
    relaxed = replace(answered, design={**answered.design, "chips": chips})
    assert live_model(relaxed) is None and live([("", relaxed, "", {})]) is None


def test_an_answer_has_its_live_part_on_the_page_and_not_on_the_screen(answered):
    answer = solution_answer(answered, movable=[(NAME, answered, "hwopt optimize train_cost", {})])
    page = answer.page("hwopt optimize train_cost")
    assert "Try other settings" in page and 'id="live"' in page and "Try other settings" not in answer.screen()
    assert len(page) < 150_000


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), err.getvalue()


def test_estimate_evaluates_the_setting_of_a_link(tmp_path):
    path = tmp_path / "it's # 1.html"
    (model,) = page_of(path, NAME)
    code, out, _ = run("estimate", "--design", f"{path}#tp=8&chips=2048&pp=4&time_budget_s=1e9", "--json")
    document = json.loads(out)
    assert document["design"]["tp"]["value"] == 8 and document["design"]["chips"]["value"] == 2048
    assert code == (0 if document["feasible"] else 1)
    direct = evaluate_design(*model.stated({"tp": 8, "chips": 2048, "pp": 4, "time_budget_s": 1e9}))
    assert document["objective"]["value"] == pytest.approx(direct.objective, rel=1e-9)
    again = shlex.split(document["reproduce"])
    assert again[:3] == ["hwopt", "estimate", "--design"]
    assert json.loads(run(*again[1:], "--json")[1])["objective"] == document["objective"]
    code, out, _ = run("estimate", "--design", path, "--json")
    assert json.loads(out)["design"]["tp"]["value"] == 1


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("#tpp=8", "did you mean 'tp'"),
        ("#tp=x", "not a number"),
        ("#tp=-8", "from 1 to"),
        ("#time_budget_s=0", "setting time_budget_s = 0"),
        ("#tp=1e9", "from 1 to"),
        ("#tp=1.5", "a whole number"),
        ("#tp=", "setting tp: ''"),
        ("#tp=3", "tp=3 cannot be built"),
        ("#machine=b", "machine 'b'"),
    ],
)
def test_a_wrong_link_is_refused_in_a_line(tmp_path, link, words):
    path = tmp_path / "page.html"
    page_of(path, NAME)
    code, out, err = run("estimate", "--design", f"{path}{link}")
    assert code == 2 and out == "" and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"controls": None},
        {"controls": []},
        {"controls": [{"name": "tp", "value": "x"}]},
        {"controls": [{"name": "tp", "value": 10**400}]},
        {"controls": [{"name": "tp", "value": 1e300}]},
        {"chosen": [1]},
        {"chosen": {"no_field": "h200"}},
        {"chosen": {"power_budget_w": "x"}},
        {"command": "rm -rf ."},
        {"command": "hwopt fleet"},
        {"command": "hwopt sweep train_cost --out store"},
        {"command": "hwopt optimize train_cost --free all"},
        {"name": ["a"]},
    ],
)
def test_a_page_edited_by_hand_is_refused_in_a_line(tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    page_of(tmp_path / "page.html", NAME)
    text = (tmp_path / "page.html").read_text()
    (stated,) = json.loads(_MACHINES.search(text)[1])
    (tmp_path / "page.html").write_text(
        _MACHINES.sub(lambda _: f"const machines = {json.dumps([stated | change])};", text)
    )
    code, out, err = run("estimate", "--design", "page.html")
    assert code == 2 and out == "" and err.startswith("hwopt: ") and err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_page_cut_off_or_moved(tmp_path):
    path = tmp_path / "a page.html"
    page_of(path, NAME)
    text = path.read_text()
    assert run("estimate", "--design", f"file://{str(path).replace(' ', '%20')}#tp=1")[2] == ""
    path.write_text(text.replace("\n", "\r\n"), newline="")
    assert run("estimate", "--design", path)[2] == ""
    path.write_text(text[: text.index("const machines") + 500])
    code, _, err = run("estimate", "--design", path)
    assert code == 2 and "cut off" in err


@pytest.mark.parametrize("flags", [["--slice", "4x4x4"], ["--choices", "slice=4x4x4|8x8x8"]])
def test_a_sweep_over_free_hardware_refuses_a_slice(flags):
    code, out, err = run("sweep", "train_time", "--chip", "tpu-v5p", "--samples", "10", *flags)
    assert code == 2 and out == "" and "--as-sold" in err and err.count("\n") == 1


def test_explore_refuses_before_it_searches(tmp_path):
    for arguments, words in (
        (["portfolio"], "--only NAME"),
        (["train_cost", "--regime", "relaxed"], "--regime relaxed"),
        (["train_cost", "--report", tmp_path / "none" / "page.html"], "there is no folder"),
        (["train_cost", "--report", tmp_path], "is a folder"),
    ):
        code, out, err = run("explore", *arguments)
        assert code == 2 and out == "" and words in err


@pytest.mark.parametrize(("display", "opened"), [(":0", 1), ("", 0)])
def test_explore_writes_its_page_and_opens_it_where_there_is_a_display(
    tmp_path, monkeypatch, answered, display, opened
):
    from hwopt.cli.commands import optimize

    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", display) if display else monkeypatch.delenv("DISPLAY", raising=False)
    movable = [(NAME, answered, "hwopt explore train_cost", {})]
    monkeypatch.setattr(
        optimize, "answer", lambda options: replace(solution_answer(answered, movable=movable), verdict="Buy.")
    )
    monkeypatch.chdir(tmp_path)
    code, out, err = run("explore", "train_cost")
    path = tmp_path / "explore.html"
    assert (
        code == (0 if answered.feasible else 1) and err == "" and out.endswith("\n\nPage with sliders: explore.html\n")
    )
    assert _MACHINES.search(path.read_text()) and shown == [path.as_uri()] * opened
    path.write_text("old")
    assert run("explore", "train_cost", "--no-open")[0] == code and path.read_text() != "old" and len(shown) == opened
    out = run("explore", "train_cost", "--no-open", "--report", "a\x1b[2J\nb.html")[1]
    assert "\x1b" not in out and out.splitlines()[-1].startswith("Page with sliders: a")
    code, out, _ = run("explore", "train_cost", "--json")
    assert json.loads(out)["schema"].startswith("urn:hwopt:schema:explore:") and len(shown) == opened
