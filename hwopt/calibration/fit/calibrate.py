"""Calibration to a user's own runs (one or more): fits the constants, reports what they imply and what to measure next."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.checks import notes, refuse_nonsense, warnings
from hwopt.calibration.fit.files import check_writable, write
from hwopt.calibration.fit.next_measurement import next_measurements
from hwopt.calibration.fit.observations import Observations, timed_runs
from hwopt.calibration.fit.options import FIT, FitOptions
from hwopt.calibration.fit.posterior import Posterior, fit, leave_out
from hwopt.calibration.fit.posterior_summary import posterior_summary
from hwopt.calibration.fit.transfer import own_prior, own_weights, own_widths
from hwopt.calibration.validation.score import Scored
from hwopt.errors import UserError, suggest
from hwopt.hardware.calibration import CONSTANTS, Scopes
from hwopt.options import options_of

FEWEST = 1
"""Minimum number of runs for a fit."""

FEWEST_HELD_OUT = 3
"""Minimum number of runs for a held-out evaluation; one run predicted from another one shows nothing."""


def calibrate(
    path: str | Path,
    out: str | Path | None = None,
    *,
    only: Sequence[str] = (),
    constants: str | Path = catalog.CALIBRATED,
    facts: Mapping[str, str] | None = None,
    progress: bool = False,
    options: FitOptions | None = None,
) -> dict:
    """Fit the model's constants to one or more measured runs, and save them as a data file.

    The prior is the posterior of the calibration `constants`. Shifts for the user's source alone are added to it: of the global
    step-time factor (`level`), and of other constants that differ between sources (`hwopt.hardware.calibration`). All runs have
    the same weight, but several runs of one configuration together count little more than one.

    **Arguments:**

    - `path`: a CSV file or a log in a format of `validate`.
    - `out`: TOML file to write, which `--constants` accepts.
    - `only`: names of the constants to fit, such as `stack_gemm_efficiency` for a single factor; default: all.
    - `constants`: calibration to start from.
    - `facts`: cells by column, for columns that the file lacks or leaves blank.
    - `progress`: show a progress bar on standard error while runs are read.
    - `options`: options of the fit.

    **Returns:** plain numbers and strings: `{"runs", "before", "after", "held_out": {median_abs_error, mean_abs_error,
    time_bias}, "moved": [{constant, scope, shift, sd}], "learned", "next", "notes", "operation", "warnings", "out"}`.

    - `before`, `after`, `held_out`: errors averaged over cells, as in `validate`.
    - `held_out`: each source is held out in turn; with one source each cell; with one cell groups of configurations. None for
      fewer than `FEWEST_HELD_OUT` runs, or for a single configuration.
    - `learned`: result of `hwopt.calibration.fit.posterior_summary`; `next`: result of `next_measurement`.
    - `notes`: remarks on rows that were used nevertheless.
    - `operation`: operation of the runs, `benchmark` for rows without one; None for a mixture.
    - `warnings`: cases in which the calibration makes predictions worse.

    **Raises:** `UserError` for an invalid file, an unknown constant, fewer than `FEWEST` runs with a measured time, or a value
    that must be in another unit, judging by its size. Also, before the fit, for an `out` that cannot be written.
    """
    how = options_of("calibrate", options, FitOptions)
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
    rows = timed_runs(path, facts=facts, progress=progress)
    if len(rows) < FEWEST:
        raise UserError(
            f"{path}: no run with a measured time and a known plan; `hwopt validate` says why each row is skipped"
        )
    refuse_nonsense(path, rows)
    own_scopes = Observations.of(rows, by_cell=False).scopes
    scopes = Scopes(tuple(dict.fromkeys((*base.scopes.entries, *own_scopes.entries))))
    observations, weights = Observations.of(rows, by_cell=False, scopes=scopes), own_weights(rows)
    mean, sd = own_prior(base, scopes)
    prior = {"prior_mean": mean, "prior_sd": _only(scopes, only, how) if only else sd, "options": how}
    posterior = fit(observations, weights, start=mean, **prior)

    def errors(predicted: np.ndarray) -> dict[str, float]:
        of = observations.over_cells(predicted, every=True)
        return {name: getattr(of, name) for name in ("cells", "median_abs_error", "mean_abs_error", "time_bias")}

    log_ratios, before = (
        posterior.log_predicted_s - observations.log_measured_s,
        errors(observations.log_predicted_s(mean)),
    )
    held_out, groups = None, _groups(rows, how.folds)
    if groups is not None:
        held_out = errors(leave_out(observations, groups, posterior, weights=weights, **prior)[0])
    title, note = f"{len(rows)} runs of {Path(path).name}, from {constants}", "made by hwopt calibrate"
    own = own_widths(base, rows, weights, log_ratios)
    operation = _operation(base, rows)
    fitted = catalog.Calibration(
        title, scopes, posterior.shifts, posterior.sd, {}, base.intervals, note, len(rows), own, operation
    )  # fmt: skip
    if out is not None:
        write(out, fitted)
    return {
        "runs": len(rows),
        "before": before,
        "after": errors(posterior.log_predicted_s),
        "held_out": held_out,
        "moved": _moved(scopes, mean, posterior),
        "learned": posterior_summary(observations, base, fitted, mean, prior["prior_sd"], posterior),
        "next": next_measurements(rows, scopes, posterior.shifts, posterior.covariance, fitted),
        "notes": notes(rows, log_ratios),
        "operation": operation or None,
        "warnings": warnings(before, held_out, only),
        "constants": str(constants),
        "out": None if out is None else str(out),
    }


def _operation(base: catalog.Calibration, rows: Sequence[Scored]) -> str:
    """Return the operation shared by all runs, including the runs behind the base; "" for a mixture."""
    found = {row.row.operation or catalog.BENCHMARK for row in rows} | ({base.operation} - {""})
    return found.pop() if len(found) == 1 else ""


def _groups(rows: Sequence[Scored], folds: int = FIT.folds) -> np.ndarray | None:
    """Return the groups to hold out in turn; None if there are too few runs or only one configuration.

    Groups are sources; for one source its cells; for one cell its configurations, in at most `folds` groups.
    """
    if len(rows) < FEWEST_HELD_OUT:
        return None
    configurations = [repr(row.row.configuration) for row in rows]
    order = {name: i for i, name in enumerate(dict.fromkeys(configurations))}
    kinds = (
        [row.row.source for row in rows],
        [" ".join(row.cell) for row in rows],
        [str(order[name] % folds) for name in configurations],
    )
    return next((np.array(kind) for kind in kinds if len(set(kind)) > 1), None)


def _only(scopes: Scopes, names: Sequence[str], own: FitOptions) -> np.ndarray:
    """Return prior standard deviations that fix all constants except the named ones, and widen those."""
    return np.array([
        own.wide * sd if name in names else own.fixed_sd for (name, _), sd in zip(scopes.entries, scopes.prior_sd, strict=True)
    ])  # fmt: skip


def _moved(scopes: Scopes, mean: np.ndarray, posterior: Posterior) -> list[dict]:
    """List the shifts of constants that changed, the most significant first."""
    change = posterior.shifts - mean
    order = [int(i) for i in np.argsort(-np.abs(change) / posterior.sd) if abs(change[i]) > 1e-3]
    numbers = {"shift": posterior.shifts, "change": change, "sd": posterior.sd}
    return [
        dict(zip(("constant", "scope"), scopes.entries[i], strict=True)) | {k: float(x[i]) for k, x in numbers.items()}
        for i in order
    ]
