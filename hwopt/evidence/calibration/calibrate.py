"""One's own runs: fits the constants to a file of them, and says how far that helps on runs it has not seen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.errors import UserError, suggest
from hwopt.evidence.calibration.files import check_writable, write
from hwopt.evidence.calibration.fit import Posterior, fit, leave_out
from hwopt.evidence.calibration.observations import Observations, timed_runs
from hwopt.evidence.intervals import COVERAGE
from hwopt.evidence.validation.score import Scored
from hwopt.hardware.calibration import CONSTANTS, Scopes

FEWEST = 3
"""Runs below which nothing is fitted."""

_FIXED = 1e-4  # prior deviation of a constant that is not to move
_WIDE = 3.0  # prior deviations, over the literature's, of the constants asked for by name


def calibrate(
    path: str | Path,
    out: str | Path | None = None,
    *,
    only: Sequence[str] = (),
    constants: str | Path = catalog.CALIBRATED,
    progress: bool = False,
) -> dict:
    """Fits the model's constants to measured runs and saves them as a data file.

    The fit starts at, and is pulled towards, the constants of `constants`. Runs of one source weigh the same; where a file
    holds several sources, cells (source, model, accelerator) do, as in the shipped fit.

    **Arguments:** `path` of a CSV as `validate` reads it; `out`: the TOML file to write, which `--constants` takes; `only`:
    names of constants that may move, such as `stack_gemm_efficiency` for one scale; all by default; `progress`: show a bar
    on standard error while runs are read.

    **Returns:** plain numbers and strings: `{"runs", "before", "after", "held_out": {median_abs_error, mean_abs_error,
    time_bias}, "moved": [{constant, scope, shift, sd}], "out"}`. Errors are over cells, as in `validate`; `held_out` leaves
    one source out after the other, or one cell where there is one source, and is None where there is one cell.

    **Raises:** `UserError` for a bad file, an unknown constant, fewer than `FEWEST` runs with a measured time, and, before
    anything is fitted, for an `out` that cannot be written.
    """
    known = [constant.name for constant in CONSTANTS]
    only = [only] if isinstance(only, str) else list(only)
    for name in only:
        if name not in known:
            raise UserError(f"unknown constant '{name}': {suggest(name, known)}; it is one of {', '.join(known)}")
    base = catalog.calibration(constants)
    if base is None:
        raise UserError("a calibration cannot start at the speed of light: start at 'literature' or 'calibrated'")
    if out is not None:
        check_writable(out)
    rows = timed_runs(path, progress=progress)
    if len(rows) < FEWEST:
        raise UserError(f"{path}: {len(rows)} runs with a measured time and a known plan; a fit needs {FEWEST}")
    by_cell = len({row.row.source for row in rows}) > 1
    own = Observations.of(rows, by_cell=by_cell)
    scopes = Scopes(tuple(dict.fromkeys((*base.scopes.entries, *own.scopes.entries))))
    observations = Observations.of(rows, by_cell=by_cell, scopes=scopes)
    shifts = dict(zip(base.scopes.entries, base.shifts, strict=True))
    mean = np.array([shifts.get(entry, 0.0) for entry in scopes.entries])
    prior = {"prior_mean": mean, "prior_sd": _only(scopes, only) if only else scopes.prior_sd}
    posterior = fit(observations, start=mean, **prior)

    def errors(predicted: np.ndarray) -> dict[str, float]:
        of = observations.over_cells(predicted, every=True)
        return {name: getattr(of, name) for name in ("cells", "median_abs_error", "mean_abs_error", "time_bias")}

    groups = observations.sources if by_cell else np.array([" ".join(row.cell) for row in rows])
    several = len(set(groups)) > 1
    if out is not None:
        residual = np.abs(posterior.log_predicted_s - observations.log_measured_s)
        title = f"{len(rows)} runs of {Path(path).name}, from {constants}"
        widths, note = _intervals(base, residual), "made by hwopt calibrate"
        write(out, catalog.Calibration(title, scopes, posterior.shifts, posterior.sd, {}, widths, note, len(rows)))
    return {
        "runs": len(rows),
        "before": errors(observations.log_predicted_s(mean)),
        "after": errors(posterior.log_predicted_s),
        "held_out": errors(leave_out(observations, groups, posterior, **prior)[0]) if several else None,
        "moved": _moved(scopes, mean, posterior),
        "constants": str(constants),
        "out": None if out is None else str(out),
    }


def one_scale(rows: Sequence[Scored], scopes: Scopes, start: np.ndarray) -> np.ndarray:
    """Errors of runs after one constant, their stack's GEMM efficiency, was fitted to them; all others stay at `start`."""
    observations = Observations.of(rows, by_cell=False, scopes=scopes)
    sd = _only(scopes, ["stack_gemm_efficiency"])
    return observations.errors(fit(observations, start=start, prior_mean=start, prior_sd=sd).log_predicted_s)


def _only(scopes: Scopes, names: Sequence[str]) -> np.ndarray:
    """Prior deviations that leave all but the named constants where they are."""
    return np.array([
        _WIDE * sd if name in names else _FIXED for (name, _), sd in zip(scopes.entries, scopes.prior_sd, strict=True)
    ])  # fmt: skip


def _intervals(base: catalog.Calibration, residual: np.ndarray) -> dict[str, float]:
    """The published widths around one's own runs: never narrower than what the fit leaves."""
    if "base" not in base.intervals:
        return {}
    own = float(np.log(max(np.quantile(residual, COVERAGE), 1e-3)))
    return {**base.intervals, "base": max(own, float(base.intervals["base"]) - np.log(2.0))}


def _moved(scopes: Scopes, mean: np.ndarray, posterior: Posterior) -> list[dict]:
    """Shifts that changed, the most certain first."""
    change = posterior.shifts - mean
    order = [int(i) for i in np.argsort(-np.abs(change) / posterior.sd) if abs(change[i]) > 1e-3]
    numbers = {"shift": posterior.shifts, "change": change, "sd": posterior.sd}
    return [
        dict(zip(("constant", "scope"), scopes.entries[i], strict=True)) | {k: float(x[i]) for k, x in numbers.items()}
        for i in order
    ]


def screen(result: dict) -> str:
    """What `hwopt calibrate` prints.

    **Arguments:** `result` of `calibrate`.
    """
    lines = [
        f"{result['runs']} runs in {result['before']['cells']} cells; started at {result['constants']} constants",
        "",
        f"{'error over cells':24}{'median':>9}{'mean':>9}{'bias':>9}",
    ]
    named = {"before": "before", "after": "after, the same runs", "held_out": "after, each left out"}
    for key, label in named.items():
        if of := result[key]:
            median, mean, bias = (100 * of[name] for name in ("median_abs_error", "mean_abs_error", "time_bias"))
            lines.append(f"{label:25}{median:7.1f}%{mean:8.1f}%{bias:+8.1f}%")
    lines += ["", "what moved most (shift in the logarithm, or of the odds of a fraction)"]
    for entry in result["moved"][:12]:
        lines.append(f"  {entry['constant']:24}{entry['scope']:28}{entry['change']:+7.3f}  (sd {entry['sd']:.3f})")
    if result["out"]:
        lines += ["", f"written to {result['out']}: use it with --constants {result['out']}"]
    return "\n".join(lines)
