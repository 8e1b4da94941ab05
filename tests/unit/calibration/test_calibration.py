"""The fit on small sets of runs: recovers what made them, ignores what it is told to leave out, is not fooled by outliers."""

from __future__ import annotations

import csv
import importlib
from dataclasses import replace
from importlib.resources import files

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.calibration.fit import calibrate, screen
from hwopt.calibration.fit.files import check_writable, write
from hwopt.calibration.fit.observations import Observations
from hwopt.calibration.fit.posterior import fit, leave_out
from hwopt.calibration.intervals import FLOORS, TERMS
from hwopt.calibration.validation import validate
from hwopt.calibration.validation.score import mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.errors import UserError
from results.benchmarks.interval_width import beyond, conformal_quantile, fit_widths, half_widths, weighted_quantile
from results.benchmarks.published_fit import across, leave_one_study_out

TABLE = files("hwopt") / "data" / "runs" / "train.csv"


def _subset(tmp_path, keep, name="runs.csv"):
    with TABLE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if keep(row)]
    path = tmp_path / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    words = ("SimuMax", "Korthikanti", "Zero Bubble", "fms-fsdp")
    path = _subset(tmp_path_factory.mktemp("runs"), lambda row: any(word in row["source"] for word in words))
    rows = score(path, catalog.calibration(catalog.LITERATURE)).scored
    mark_repeats(rows)
    return Observations.of(rows)


def _made_by(observed, shifts, noise=0.0):
    """The same runs, measured as the model with these shifts says."""
    wobble = noise * np.random.default_rng(0).standard_normal(len(observed.rows))
    object.__setattr__(observed, "log_measured_s", observed.log_predicted_s(shifts) + wobble)
    return observed


@pytest.fixture
def synthetic(observed):
    kept = observed.log_measured_s
    yield observed
    object.__setattr__(observed, "log_measured_s", kept)


def test_shipped_constants_predict_each_study_by_shifts_without_it(observed):
    """A source's own level, which no file holds, is 0; a study that a file does not name is predicted by the shifts of all."""
    shipped = catalog.calibration()
    sources = sorted(set(observed.sources))
    kept = {name: shifts for name, shifts in shipped.left_out.items() if name == sources[0]}
    predicted, found = leave_one_study_out(observed, replace(shipped, left_out=kept))
    assert sorted(found) == sources
    for source, shifts in ((sources[0], kept.get(sources[0], shipped.shifts)), (sources[-1], shipped.shifts)):
        known = dict(zip(shipped.scopes.entries, shifts, strict=True))
        here = found[source].shifts
        for entry, value in zip(observed.scopes.entries, here, strict=True):
            assert value == known.get(entry, 0.0)
            assert value == 0.0 or not entry[1].startswith("source")
        own = observed.sources == source
        np.testing.assert_array_equal(predicted[own], observed.log_predicted_s(here)[own])


@pytest.mark.search
def test_slopes_are_central_differences(observed):
    start = 0.05 * np.ones(len(observed.scopes.entries))
    slopes = observed.slopes(start)
    for j in (0, 3, 10, len(start) - 1):
        nudge = np.zeros_like(start)
        nudge[j] = 1e-5
        central = (observed.log_predicted_s(start + nudge) - observed.log_predicted_s(start - nudge)) / 2e-5
        np.testing.assert_allclose(slopes[:, j], central, atol=1e-6)


@pytest.mark.search
def test_a_fit_finds_what_made_the_runs(synthetic):
    truth = np.zeros(len(synthetic.scopes.entries))
    names = synthetic.scopes.entries
    truth[names.index(("gemm_efficiency", "all"))] = -0.4
    truth[names.index(("stack_gemm_efficiency", "stack:zero-bubble"))] = 0.1
    made = _made_by(synthetic, truth)
    found = fit(made, weights=np.where(made.weights > 0.0, 1.0, 1.0) * 50.0)
    residual = found.log_predicted_s - made.log_measured_s
    assert np.abs(residual).max() < 0.03
    assert np.abs(made.log_predicted_s(0.0 * truth) - made.log_measured_s).max() > 0.08


def test_without_data_the_prior_stays(observed):
    found = fit(observed, weights=np.zeros(len(observed.rows)))
    np.testing.assert_allclose(found.shifts, 0.0, atol=1e-9)
    np.testing.assert_allclose(found.sd, observed.scopes.prior_sd, rtol=1e-9)


def test_an_outlier_moves_little(synthetic):
    made = _made_by(synthetic, np.zeros(len(synthetic.scopes.entries)))
    made.log_measured_s[:2] += 2.0
    found = fit(made, weights=np.ones(len(made.rows)))
    others = np.abs(found.log_predicted_s - made.log_measured_s)[2:]
    assert np.median(others) < 0.02


def test_what_is_left_out_is_not_seen(observed):
    """Measurements of a group change nothing in the predictions of that group."""
    everything = fit(observed)
    predicted, fits = leave_out(observed, observed.sources, everything)
    target = observed.sources == observed.sources[0]
    kept = observed.log_measured_s.copy()
    object.__setattr__(observed, "log_measured_s", np.where(target, kept + 0.7, kept))
    try:
        again, _ = leave_out(observed, observed.sources, everything)
    finally:
        object.__setattr__(observed, "log_measured_s", kept)
    np.testing.assert_allclose(again[target], predicted[target], rtol=1e-9)
    assert set(fits) == set(observed.sources)
    alone = observed.stacks[target][0]
    if not np.any(observed.stacks[~target] == alone):
        entry = observed.scopes.entries.index(("stack_gemm_efficiency", f"stack:{alone}"))
        assert abs(fits[str(observed.sources[0])].shifts[entry]) < 1e-6


@pytest.mark.search
def test_across_predicts_only_what_was_asked(observed):
    predicted = across(observed, ("ampere", "hopper"), ("blackwell",))
    blackwell = np.array(observed.families) == "blackwell"
    assert np.all(np.isfinite(predicted[blackwell])) and np.all(np.isnan(predicted[~blackwell]))
    assert observed.over_cells(predicted).cells == 2


def test_widths_hold_what_they_say_and_never_narrow():
    random = np.random.default_rng(1)
    features = (random.random((3000, len(TERMS))) < 0.2).astype(float)
    features[:, [TERMS.index(name) for name in ("kinds", "newer")]] = (
        0.0  # their floors would widen what has no effect here
    )
    spread = 0.1 * np.exp(0.9 * features[:, TERMS.index("moe")])
    errors = np.abs(spread * random.standard_normal(3000))
    widths = fit_widths(errors, features, np.ones(3000))
    assert np.mean(errors <= half_widths(widths, features)) == pytest.approx(0.8, abs=0.002)
    assert widths["moe"] == pytest.approx(0.9, abs=0.2)
    assert all(widths[name] >= floor for name, floor in FLOORS.items())


@pytest.mark.search
def test_ones_own_runs_become_a_file_that_helps(tmp_path):
    path = _subset(tmp_path, lambda row: "SimuMax" in row["source"])
    out = tmp_path / "mine.toml"
    result = calibrate(path, out)
    assert result["after"]["mean_abs_error"] < result["before"]["mean_abs_error"]
    assert result["held_out"] is not None and result["moved"] and out.exists()
    text = screen(result)
    assert "leave-one-out" in text and str(out) in text
    before = validate(path)["summary"]["mean_abs_error"]
    mine = validate(path, constants=out)
    assert mine["summary"]["mean_abs_error"] < 0.6 * before
    assert mine["summary"]["mean_abs_error"] == pytest.approx(result["after"]["mean_abs_error"], rel=0.02)
    assert all(row["low"] < row["predicted"] < row["high"] for row in mine["rows"])


@pytest.mark.search
def test_several_sources_are_left_out_whole(tmp_path, monkeypatch):
    words = ("SimuMax", "Korthikanti", "fms-fsdp")
    path = _subset(tmp_path, lambda row: any(word in row["source"] for word in words))
    left_out = []
    module = importlib.import_module("hwopt.calibration.fit.posterior")
    real = module.fit

    def watched(observed, weights=None, **given):
        if weights is not None:
            sources = observed.sources
            left_out.append([each for each in set(sources) if not np.any(weights[sources == each])])
        return real(observed, weights, **given)

    monkeypatch.setattr(module, "fit", watched)
    result = calibrate(path, constants="literature")
    assert len(left_out) == 3 and all(len(each) == 1 for each in left_out)
    assert result["after"]["mean_abs_error"] < result["held_out"]["mean_abs_error"]


@pytest.mark.search
def test_one_scale_moves_one_constant(tmp_path):
    path = _subset(tmp_path, lambda row: "SimuMax" in row["source"])
    result = calibrate(path, only=["stack_gemm_efficiency"])
    assert {entry["constant"] for entry in result["moved"]} == {
        "stack_gemm_efficiency"
    }  # of a release and those before it
    assert result["out"] is None


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("nowhere/mine.toml", "cannot write .*nowhere"),
        (".", "is a folder"),
        ("x" * 300 + ".toml", "cannot write"),
        ("file.toml/mine.toml", "cannot write"),
        ("a\0b.toml", "cannot write"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_fit(tmp_path, monkeypatch, out, words):
    module = importlib.import_module("hwopt.calibration.fit.calibrate")
    monkeypatch.setattr(module, "timed_runs", lambda path: pytest.fail("the runs were read first"))
    (tmp_path / "file.toml").write_text("kept")
    with pytest.raises(UserError, match=words) as raised:
        calibrate(TABLE, tmp_path / out)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file.toml"]


@pytest.mark.parametrize("out", ["", "  ", 3, True])
def test_what_is_no_path_is_refused_before_the_fit(out):
    with pytest.raises(UserError, match="named by its path"):
        calibrate(TABLE, out)


def test_a_path_that_can_be_written_is_left_as_it_was(tmp_path):
    check_writable(tmp_path / "new.toml")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.toml").write_text("kept")
    check_writable(str(tmp_path / "old.toml"))
    assert (tmp_path / "old.toml").read_text() == "kept" and len(list(tmp_path.iterdir())) == 1


def test_a_calibration_is_written_as_it_was_read(tmp_path):
    write(tmp_path / "again.toml", catalog.calibration())
    shipped = files("hwopt") / "data" / "calibrations" / "published.toml"
    assert (tmp_path / "again.toml").read_text() == shipped.read_text()


def test_slips_of_a_call_are_said_in_one_line():
    with pytest.raises(UserError, match="named by its path"):
        calibrate(None)
    with pytest.raises(UserError, match="did you mean 'gemm_efficiency'"):
        calibrate(TABLE, only="gemm_eficiency")


@pytest.mark.search
def test_what_cannot_be_fitted_is_refused(tmp_path):
    path = _subset(tmp_path, lambda row: row["id"] in ("simumax_b200-0001", "simumax_b200-0002"))
    with pytest.raises(UserError, match="did you mean 'gemm_efficiency'"):
        calibrate(path, only=["gemm_eficiency"])
    with pytest.raises(UserError, match="speed of light"):
        calibrate(path, constants="speed-of-light")
    enough = _subset(tmp_path, lambda row: "SimuMax" in row["source"], "enough.csv")
    with pytest.raises(UserError, match="cannot write"):
        calibrate(enough, tmp_path / "nowhere" / "mine.toml")
    with pytest.raises(UserError, match="table of services"):
        calibrate(TABLE.parent / "inference.csv")
    assert jax.config.jax_enable_x64 is False


def test_a_conformal_quantile_holds_what_it_promises_of_a_new_study():
    """Studies whose errors share a level: four in five of new ones lie below, which the plain quantile of few does not reach."""
    random, held, plain = np.random.default_rng(0), [], []
    groups, weights = np.repeat(np.arange(10), 5), np.ones(50)
    for _ in range(2000):
        levels = np.exp(random.standard_normal(11))
        values = levels[:10].repeat(5)
        held.append(levels[10] <= conformal_quantile(values, weights, groups))
        plain.append(levels[10] <= weighted_quantile(values, weights))
    assert 0.79 < np.mean(held) < 0.85  # nine of eleven
    assert np.mean(plain) < 0.76  # eight of eleven


def test_what_open_fields_explain_is_taken_off_in_squares():
    errors, open_ = np.array([0.5, -0.5, 0.1]), np.array([0.3, 0.0, 0.2])
    left = beyond(errors, open_)
    np.testing.assert_allclose(left, [0.4, 0.5, 0.0])
    np.testing.assert_allclose(np.hypot(left, open_)[:2], np.abs(errors[:2]))
