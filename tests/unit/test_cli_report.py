"""`--report`: the page beside the answer, refused up front where it cannot be written, whole or not at all."""

import contextlib
import io
import json
import os
import shlex

import pytest

from hwopt.cli import main
from tests.budgets import LARGE_RUN
from tests.plans import remember_sensitivities
from tests.rotation import one_in

SMALL = (
    "tp=16:16,pp=8:8,virtual_stages=16:16,micro_batch=1:1,scale_up_domain=16:16,cp=1:1,zero=1:1,chips_per_rack=28:30"
)
OPTIMIZE = ["optimize", "train_cost", "--regime", "relaxed", "--bounds", SMALL]
OPTIMIZE += [f"--{name.replace('_', '-')}={limit:g}" for name, limit in LARGE_RUN.items()]
SWEEP = ["sweep", "train_time", "--capex-budget-usd", "1e10", "--power-budget-w", "3e8", "--samples", "2,000"]
SWEEP += ["--sampling", "plain"]


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return code, out.getvalue(), err.getvalue()


def test_optimize_writes_a_page_and_json_stays_alone_on_standard_output(tmp_path, monkeypatch):
    remember_sensitivities(monkeypatch)
    path = tmp_path / "out.html"
    code, out, err = run(*OPTIMIZE, "--json", "--report", path)
    document, page = json.loads(out), path.read_text()
    assert code == 0 and err == ""
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert f"{document['design']['chips']['value']:,.0f}" in page
    assert "shadow price" in page and "proved" in page and "--within 1.1 --report front.html" in page
    assert "Sensitivities" in page and "prices.chip_base_usd" in page
    assert "hwopt optimize train_cost --regime" in page and all(
        source.split("'")[0] in page for source in ["Llama Team"]
    )
    assert os.listdir(tmp_path) == ["out.html"]  # nothing half-written stays


@pytest.mark.search
def test_an_infeasible_question_has_its_page_with_what_would_mend_it(tmp_path):
    path = tmp_path / "none.html"
    asked = [each for each in OPTIMIZE if not each.startswith("--capex")]
    code, out, _ = run(*asked, "--capex-budget-usd", "6e8", "--json", "--report", path)
    page = path.read_text()
    assert code == 1 and json.loads(out)["feasible"] is False
    assert (
        "Infeasible: no design in the search space satisfies every budget" in page
        and "Smallest relaxation" in page
        and "over by" in page
    )
    assert json.loads(out)["infeasibility"] in page


@one_in(2, 0)
def test_a_sweep_and_the_same_sweep_resumed_write_the_same_page(tmp_path):
    path = tmp_path / "front.html"
    command = [*SWEEP, "--out", tmp_path / "store", "--no-figures", "--report", path]
    code, _, err = run(*command)
    first = path.read_bytes()
    path.unlink()
    assert code == 0 and err == ""
    assert run(*command)[0] == 0
    assert path.read_bytes() == first
    page = first.decode()
    assert "Pareto front" in page and 'class="point"' in page and "best design" in page
    assert shlex.join(map(str, ["hwopt", *command])) in page


@one_in(2, 1)
def test_a_sweep_without_a_feasible_variant_has_its_page(tmp_path):
    path = tmp_path / "none.html"
    assert run("sweep", "train_cost", "--samples", "2,000", "--sampling", "plain", "--report", path)[0] == 1
    page = path.read_text()
    assert "No feasible design" in page and "Looser budgets" in page and "over by" in page


@pytest.mark.parametrize("command", [["optimize"], ["sweep"], ["sweep", "--frontier", "power_budget_w=30e6:60e6:4"]])
def test_a_path_that_cannot_be_written_is_refused_before_computing(command, tmp_path, monkeypatch):
    def never(*_, **__):
        pytest.fail("computed before the path was looked at")

    for name in ("hwopt.solver.optimize.optimize", "hwopt.sweeps.sweep", "hwopt.analysis.frontier.frontier"):
        monkeypatch.setattr(name, never)
    (tmp_path / "file").write_text("kept")
    for path in (
        tmp_path,
        tmp_path / "no" / "folder.html",
        tmp_path / "file" / "below.html",
        "",
        "/dev/null",
        "/proc/x.html",
    ):
        code, out, err = run(*command, "--report", path)
        assert code == 2 and out == "", path
        assert err.startswith("hwopt: --report") and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "kept" and os.listdir(tmp_path) == ["file"]


def test_a_page_that_is_there_is_replaced_and_a_link_followed(tmp_path):
    from hwopt.output.html import files

    target, link = tmp_path / "target.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    files.write(files.writable("--report", str(link)), "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["link.html", "target.html"]
