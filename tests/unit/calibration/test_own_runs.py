"""One's own few runs: what one row says, what more say, how wide predictions are after them, what to measure next."""

from __future__ import annotations

import csv
import importlib
import json
import math
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from hwopt import catalog
from hwopt.calibration.fit import calibrate, screen
from hwopt.calibration.fit.checks import notes, refuse_nonsense, warnings
from hwopt.calibration.fit.files import write
from hwopt.calibration.fit.next_measurement import (
    SUGGESTED,
    candidates,
    measured_words,
    most_informative,
    reductions,
    updated,
    usual_run,
)
from hwopt.calibration.fit.observations import Observations
from hwopt.calibration.fit.posterior import SCALE, Posterior, fit
from hwopt.calibration.fit.transfer import ALIKE, own_prior, own_weights, own_widths
from hwopt.calibration.intervals import interval
from hwopt.calibration.validation.score import mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.hardware.calibration import CONSTANTS, OWN, Scopes
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy

TABLE = files("hwopt") / "data" / "runs" / "train.csv"

HEAD = "id,model_name,gpu,num_gpus,tp,pp,micro_batch,global_batch_sequences,seq_len,metric,value"

ROWS = (
    "a,llama3.1-8b,H100-SXM-80GB,16,2,1,1,128,8192,step_time_s,7.9",
    "b,llama3.1-8b,H100-SXM-80GB,16,4,1,1,128,8192,step_time_s,8.4",
    "c,llama3.1-8b,H100-SXM-80GB,16,2,2,1,128,8192,step_time_s,8.2",
)


def _file(tmp_path, *rows, name="mine.csv"):
    path = tmp_path / name
    path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def zero_bubble(tmp_path_factory):
    """Runs of one source on one machine, with the shifts that a fit to one's own runs has."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if "Zero Bubble" in row["source"]]
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames)
        writer.writeheader()
        writer.writerows(rows)
    scored = score(path, catalog.calibration(catalog.LITERATURE)).scored
    mark_repeats(scored)
    base = catalog.calibration()
    own = [(constant.name, OWN) for constant in CONSTANTS if OWN in constant.prior]
    scopes = Scopes((*base.scopes.entries, *own))
    return Observations.of(scored, by_cell=False, scopes=scopes), base


@pytest.fixture
def synthetic(zero_bubble):
    """The same, measured as the model with the published constants says."""
    observed, base = zero_bubble
    mean, sd = own_prior(base, observed.scopes)
    kept = observed.log_measured_s
    object.__setattr__(observed, "log_measured_s", observed.log_predicted_s(mean).copy())
    yield observed, base, mean, sd
    object.__setattr__(observed, "log_measured_s", kept)


def _one(count, *chosen):
    weights = np.zeros(count)
    weights[list(chosen)] = 1.0
    return weights


def test_one_row_moves_the_level_as_the_closed_form_says(synthetic):
    observed, _, mean, _ = synthetic
    level, room, excess = observed.scopes.entries.index(("level", OWN)), 0.2, 0.004
    sd = np.full(len(mean), 1e-6)
    sd[level] = room
    observed.log_measured_s[0] += excess
    found = fit(observed, _one(len(observed.rows), 0), start=mean, prior_mean=mean, prior_sd=sd)
    slope = observed.slopes(mean)[0, level]  # 1 but for what the level does not scale
    assert slope == pytest.approx(1.0, abs=0.05)
    assert found.shifts[level] == pytest.approx(excess * slope * room**2 / ((slope * room) ** 2 + SCALE**2), rel=0.005)
    assert found.sd[level] == pytest.approx((1.0 / room**2 + (slope / SCALE) ** 2) ** -0.5, rel=0.005)


def test_more_rows_narrow_and_repeats_hardly(synthetic):
    observed, _, mean, sd = synthetic
    level = observed.scopes.entries.index(("level", OWN))
    others = next(
        i for i, row in enumerate(observed.rows) if row.row.configuration != observed.rows[0].row.configuration
    )

    def left(weights):
        return fit(observed, weights, start=mean, prior_mean=mean, prior_sd=sd).sd[level]

    count = len(observed.rows)
    one, two, ten = left(_one(count, 0)), left(_one(count, 0, others)), left(_one(count, *range(10)))
    assert sd[level] > one > two > ten
    repeats = own_weights([observed.rows[0]] * 10)
    assert repeats.sum() == pytest.approx(10.0 / (1.0 + 9.0 * ALIKE)) and repeats.sum() < 1.2


def test_the_prior_is_what_published_runs_left(zero_bubble):
    observed, base = zero_bubble
    mean, sd = own_prior(base, observed.scopes)
    known = len(base.scopes.entries)
    np.testing.assert_array_equal(mean[:known], base.shifts)
    assert np.all(sd[:known] >= base.sd) and np.all(mean[known:] == 0.0)
    np.testing.assert_array_equal(sd[known:], observed.scopes.prior_sd[known:])


def test_intervals_after_three_rows_hold_the_others(synthetic):
    """A source made by the model, 15 % slower than published, with noise of 5 %."""
    observed, base, mean, sd = synthetic
    random = np.random.default_rng(2)
    truth = mean.copy()
    truth[observed.scopes.entries.index(("level", OWN))] = 0.15
    noise = 0.05 * random.standard_normal(len(observed.rows))
    object.__setattr__(observed, "log_measured_s", observed.log_predicted_s(truth) + noise)
    distinct = list({row.row.configuration: i for i, row in enumerate(observed.rows)}.values())
    given = distinct[:: len(distinct) // 3][:3]
    weights = _one(len(observed.rows), *given)
    found = fit(observed, weights, start=mean, prior_mean=mean, prior_sd=sd)
    log_ratios = found.log_predicted_s - observed.log_measured_s
    own = own_widths(base, observed.rows, weights, log_ratios)
    fitted = catalog.Calibration("", observed.scopes, found.shifts, found.sd, {}, base.intervals, own=own)
    others = [i for i in range(len(observed.rows)) if i not in given]
    cases = [observed.rows[i].case for i in others]
    halves = [interval(case.workload, case.architecture, case.stack, fitted).time for case in cases]
    inside = np.mean(np.abs(log_ratios[others]) <= halves)
    before = np.mean(np.abs(observed.log_predicted_s(mean) - observed.log_measured_s)[others] <= halves)
    assert 0.75 <= inside <= 1.0 and before < inside - 0.2
    elsewhere = interval(cases[0].workload, "hopper", "nemo-2025", fitted).time
    assert elsewhere == interval(cases[0].workload, "hopper", "nemo-2025", base).time


def test_widths_narrow_with_runs_and_widen_with_what_a_fit_leaves(zero_bubble):
    observed, base = zero_bubble
    rows = list({row.row.configuration: row for row in observed.rows}.values())

    def half(count, left):
        return next(iter(own_widths(base, rows[:count], np.ones(count), np.full(count, left)).values()))["base"]

    assert half(10, 0.05) < half(3, 0.05) < half(2, 0.05) and half(3, 0.05) < half(3, 0.2)
    again = catalog.Calibration(
        "", intervals=base.intervals, own=own_widths(base, rows[:2], np.ones(2), np.full(2, 0.05))
    )
    more = own_widths(again, rows[2:4], np.ones(2), np.full(2, 0.05))
    assert next(iter(more.values())) == pytest.approx(
        next(iter(own_widths(base, rows[:4], np.ones(4), np.full(4, 0.05)).values()))
    )
    assert own_widths(catalog.calibration(catalog.LITERATURE), rows, np.ones(len(rows)), np.ones(len(rows))) == {}


def test_the_plan_that_shows_the_uncertain_constant_is_measured_next():
    covariance = np.diag([1e-4, 0.2**2])  # the first constant is known
    slopes = np.array([[1.0, 0.0], [0.2, 0.9], [0.9, 0.1]])
    chosen = most_informative(slopes, slopes, covariance, [0, 1, 2])
    assert chosen[0].index == 1 and len(chosen) == SUGGESTED
    assert all(each.after < each.before for each in chosen)
    assert [each.before for each in chosen[1:]] == [each.after for each in chosen[:-1]]


def test_reductions_are_those_of_linear_gaussian_updates():
    random = np.random.default_rng(3)
    root, slopes, targets = (
        random.standard_normal((4, 4)),
        random.standard_normal((5, 4)),
        random.standard_normal((3, 4)),
    )
    covariance = root @ root.T
    before = np.mean(np.sum((targets @ covariance) * targets, axis=1))
    for slope, gain in zip(slopes, reductions(slopes, targets, covariance, 0.3), strict=True):
        after = np.linalg.inv(np.linalg.inv(covariance) + np.outer(slope, slope) / 0.3**2)
        np.testing.assert_allclose(updated(covariance, slope, 0.3), after, rtol=1e-8, atol=1e-10)
        assert gain == pytest.approx(before - np.mean(np.sum((targets @ after) * targets, axis=1)))


def test_candidates_are_valid_plans_that_fit_with_the_slopes_of_the_model(tmp_path):
    rows = score(_file(tmp_path, *ROWS), catalog.calibration(catalog.LITERATURE)).scored
    run = usual_run(rows)
    totals = dict.fromkeys([each.name for each in CONSTANTS], 0.0)
    found = candidates(run, totals)
    assert len(found) > 10 and [each.step_s for each in found] == sorted(each.step_s for each in found)
    level = [each.name for each in CONSTANTS].index("level")
    assert all(each.slopes[level] == pytest.approx(1.0, abs=0.05) for each in found)
    for each in found:
        plan = catalog.plan(each.case.workload, 16, **catalog.parse_plan(each.words))
        assert float(plan.tp * plan.pp * plan.dp) == 16.0
    # chunks are open in the rows: the likeliest number of them stands for a pipeline
    assert {words.replace("vpp=8,", "") for words in measured_words(rows, run)} == {
        "tp=2,pp=1,dp=8,mbs=1,recompute=none", "tp=4,pp=1,dp=4,mbs=1,recompute=none", "tp=2,pp=2,dp=4,mbs=1,recompute=none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("8400", "is it in ms?"),
        ("0.14", "is it in minutes?"),
        ("0.066", "time of a sequence"),
        ("300", "is it of many steps?"),
    ],
)
def test_a_value_in_another_unit_is_refused_with_its_line(tmp_path, capsys, value, says):
    path = _file(tmp_path, ROWS[0], ROWS[1].replace("8.4", value))
    assert main(["calibrate", str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert says in error and "line 3" in error and "\n" not in error


@pytest.mark.parametrize("value", ["-3", "nan", "inf", "0"])
def test_what_is_no_measurement_is_refused(tmp_path, capsys, value):
    assert main(["calibrate", str(_file(tmp_path, ROWS[0].replace("7.9", value)))]) == 2
    error = capsys.readouterr().err.strip()
    assert "line 2" in error and "\n" not in error


def test_rates_in_another_unit_are_refused(tmp_path):
    rows = score(
        _file(tmp_path, ROWS[0].replace(",16,", ",64,").replace("step_time_s,7.9", "tokens_per_s_per_gpu,1024000")),
        None,
    ).scored
    with pytest.raises(UserError, match="of all chips together"):
        refuse_nonsense("mine.csv", rows)
    refuse_nonsense("mine.csv", [replace(rows[0], row=replace(rows[0].row, measured_value=rows[0].predicted * 20.0))])


def test_odd_rows_are_named_and_used():
    class Row:
        def __init__(self, line, memory):
            self.row, self.assumed = type("row", (), {"line": line}), ("stack",) * (line == 4)
            self.prediction = type("answer", (), {"memory_bytes": memory, "memory_capacity_bytes": 80.0})

    said = notes([Row(2, 60.0), Row(3, 90.0)], np.array([math.log(1.7), 0.0]))
    assert said[0].startswith("line 3: by the model the plan does not fit") and said[1].startswith(
        "line 2: off by more than"
    )
    assert notes([Row(2, 60.0)], np.array([0.1])) == []
    assert notes([Row(4, 60.0)], np.array([0.1]))[0].startswith("line 4: the software is not stated")


STATED = {
    "model_name": "llama3.1-8b", "gpu": "H100-SXM-80GB", "num_gpus": 16, "gpus_per_node": 8, "cp": 1, "ep": 1, "vpp": 1,
    "micro_batch": 1, "global_batch_sequences": 128, "seq_len": 8192, "number_format": "bf16", "zero": 1, "seq_parallel": "yes",
    "recompute_layers": 0, "stack": "nemo-2024", "measured_metric": "step_time_s",
}  # fmt: skip
DEGREES = ({"tp": 2, "pp": 1, "dp": 8}, {"tp": 4, "pp": 1, "dp": 4}, {"tp": 2, "pp": 2, "dp": 4})


def _step_s(degrees, **machine):
    """Return the step time that `hwopt estimate` predicts for a row of `STATED`."""
    run = catalog.training_run("llama3.1-8b", global_batch=128, sequence_length=8192)
    plan = catalog.plan(run, 16, **degrees, micro_batch=1)
    return float(
        evaluate_in_numpy(
            estimate, run, catalog.cluster("h100-sxm", 16, stack="nemo-2024", **machine), plan
        ).step_time_s
    )


def _measured(tmp_path, operations):
    """Return a table of runs that are 10 % slower than the published constants predict, one run per operation."""
    base = catalog.calibration()
    scopes = Scopes((*base.scopes.entries, ("level", OWN)))
    slower = replace(base, scopes=scopes, shifts=np.append(base.shifts, 0.1), sd=np.append(base.sd, 0.1), left_out={})
    write(tmp_path / "slower.toml", slower)
    rows = [
        STATED | degrees | {"operation": operation, "measured_value": repr(_step_s(
            degrees, constants=tmp_path / "slower.toml", operation=operation or "benchmark"))}
        for degrees, operation in zip(DEGREES, operations, strict=True)
    ]  # fmt: skip
    with (tmp_path / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path / "runs.csv"


@pytest.fixture
def quick(monkeypatch):
    """Calibrate only the level of own runs, in closed form, without held-out fits and next measurements."""
    module = importlib.import_module("hwopt.calibration.fit.calibrate")

    def level(observed, weights, *, start, prior_sd, **_):
        own = np.array([entry == ("level", OWN) for entry in observed.scopes.entries])
        shifts = start + own * np.mean(observed.log_measured_s - observed.log_predicted_s(start))
        return Posterior(shifts, np.diag(prior_sd**2), observed.log_predicted_s(shifts))

    monkeypatch.setattr(module, "fit", level)
    monkeypatch.setattr(module, "next_measurements", lambda *_: [])
    monkeypatch.setattr(module, "_groups", lambda rows, folds: None)


@pytest.mark.parametrize(
    ("operations", "recorded"),
    [(("", "benchmark", ""), "benchmark"), (("production",) * 3, "production"), (("", "production", ""), "")],
    ids=["benchmark", "production", "mixed"],
)
def test_an_estimate_of_a_calibrated_run_is_what_the_fit_predicts(tmp_path, quick, operations, recorded):
    path, out = _measured(tmp_path, operations), tmp_path / "mine.toml"
    result = calibrate(path, out)
    fitted = catalog.calibration(out)
    assert (fitted.operation, result["operation"]) == (recorded, recorded or None)
    assert ("mixed" if not recorded else f"of {recorded} operation") in screen(result)
    rows = score(path, fitted).scored
    for degrees, operation, row in zip(DEGREES, operations, rows, strict=True):
        assert _step_s(degrees, constants=out, operation=operation or "benchmark") == pytest.approx(
            row.predicted, rel=1e-9
        )
        usual = _step_s(degrees, constants=out)  # the operation of the file, production where it states none
        same = (operation or "benchmark") == (recorded or "production")
        assert usual == pytest.approx(row.predicted, rel=1e-9) if same else usual > 1.02 * row.predicted
        assert row.predicted == pytest.approx(row.row.measured_value, rel=1e-3)
    # the fit runs chips at their nominal clock, an estimate at the one that their power settles at
    errors = np.mean([abs(row.error) for row in rows])
    assert result["after"]["mean_abs_error"] == pytest.approx(errors, abs=1e-4)


def test_a_calibration_that_worsens_says_so():
    before, worse, better = ({"mean_abs_error": x} for x in (0.16, 0.26, 0.12))
    (said,) = warnings(before, worse, ())
    assert "16.0 % before" in said and "26.0 %" in said
    assert "--only" in warnings(before, worse, ["level"])[0]
    assert warnings(before, better, ()) == warnings(before, None, ()) == []


def test_widths_of_own_runs_are_written_and_read(tmp_path):
    own = {"hopper nemo-2025": {"base": -2.5, "runs": 3.0}}
    path = tmp_path / "mine.toml"
    write(path, replace(catalog.calibration(), own=own))
    read = catalog.calibration(path)
    assert read.own == own and read.widths("hopper", "nemo-2025") == own["hopper nemo-2025"]
    assert read.widths("ampere", "nemo-2025") == read.intervals
    path.write_text(path.read_text().replace("base = -2.5000", "base = nan"))
    with pytest.raises(UserError, match="'own' must hold"):
        catalog.calibration(path)


@pytest.mark.search
def test_one_row_is_enough_and_its_file_serves_every_command(tmp_path, capsys):
    path, out = _file(tmp_path, ROWS[0]), tmp_path / "mine.toml"
    assert main(["calibrate", str(path), "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["runs"] == 1 and result["held_out"] is None and len(result["next"]) == SUGGESTED
    assert result["after"]["mean_abs_error"] < 0.5 * result["before"]["mean_abs_error"]
    level = result["learned"]["level"]
    assert level["sd"] < level["prior_sd"] and level["factor"] > 1.0
    text = screen(result)
    assert "too few runs" in text and "Recommended next measurements" in text and "80 % interval" in text
    for each in result["next"]:
        assert each["half_width_after"] < each["half_width_before"] and each["low"] < each["step_time_s"] < each["high"]
    machine = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "16", "--stack", "nemo-2024"]
    constants = ["--constants", str(out), "--json"]
    measured_next = result["next"][0]["plan"]
    asked = ["validate", str(path)], ["estimate", *machine, "--plan", measured_next], ["plan", *machine]
    for command in asked:
        assert main([*command, *constants]) == 0, command
        assert json.loads(capsys.readouterr().out)


@pytest.mark.search
def test_three_rows_and_literature(tmp_path):
    path = _file(tmp_path, *ROWS)
    result = calibrate(path)
    assert (
        result["held_out"]["cells"] == 1
        and result["learned"]["half_width_after"] < result["learned"]["half_width_before"]
    )
    bare = calibrate(path, constants="literature")
    assert bare["learned"]["half_width_after"] is None and bare["next"][0]["half_width_after"] is None
    assert "of the variance" in screen(bare)
