"""Evaluation that cannot flatter: whole sources, software families or generations of chips are left out, never rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hwopt.evidence.calibration.fit import Posterior, fit
from hwopt.evidence.calibration.observations import Observations, complete

GENERATIONS = (
    ("A100 from Hopper", ("hopper",), ("ampere",)),
    ("Hopper from A100", ("ampere",), ("hopper",)),
    ("Blackwell from both", ("ampere", "hopper"), ("blackwell",)),
    ("TPU from GPUs", ("volta", "ampere", "hopper", "blackwell", "cdna"), ("tpu",)),
)
"""Name, families of chips fitted, families of chips predicted."""


@dataclass(frozen=True)
class CellErrors:
    """Errors of some cells: mean absolute error in each cell, then over cells."""

    name: str
    cells: int
    rows: int
    median: float
    mean: float
    signed: float  # mean over cells of the mean error of what was measured
    time_bias: float  # mean over cells of predicted over measured time, less one; + is too slow
    worst: float


def leave_out(observed: Observations, groups: np.ndarray, start: Posterior) -> tuple[np.ndarray, dict[str, Posterior]]:
    """Predictions of each group's runs by constants fitted to all other groups.

    **Arguments:** `groups`: name of each run's group; `start`: the fit to all, from which each fit begins.

    **Returns:** logarithms of the step times; the fits by the group that each has not seen.
    """
    predicted, fits = start.log_predicted_s.copy(), {}
    for group in sorted(set(groups)):
        out = groups == group
        held = fit(observed, np.where(out, 0.0, observed.weights), start=start.shifts)
        predicted[out] = held.log_predicted_s[out]
        fits[str(group)] = held
    return predicted, fits


def across(observed: Observations, fitted: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
    """Predictions by constants fitted to some families of chips only; runs of other families than `predicted` are NaN."""
    families = np.array(observed.families)
    held = fit(observed, np.where(np.isin(families, list(fitted)), observed.weights, 0.0))
    return np.where(np.isin(families, list(predicted)), held.log_predicted_s, np.nan)


def cell_errors(
    name: str,
    observed: Observations,
    log_predicted_s: np.ndarray,
    keep: Callable[[int], bool] = lambda i: True,
    *,
    every: bool = False,
) -> CellErrors:
    """Errors over the cells of complete rows (or of `every` row), of runs that `keep` accepts and that were predicted."""
    errors = observed.errors(log_predicted_s)
    ratio = log_predicted_s - observed.log_measured_s
    found = []
    for members in observed.cells.values():
        chosen = [i for i in members if (every or complete(observed.rows[i])) and keep(i) and np.isfinite(errors[i])]
        if chosen:
            found.append(
                (np.mean(np.abs(errors[chosen])), np.mean(errors[chosen]), np.mean(ratio[chosen]), len(chosen))
            )
    if not found:
        return CellErrors(name, 0, 0, *(float("nan"),) * 5)
    absolute, signed, log_ratio, counts = map(np.array, zip(*found, strict=True))
    return CellErrors(
        name, len(found), int(counts.sum()), float(np.median(absolute)), float(np.mean(absolute)), float(np.mean(signed)),
        float(np.expm1(np.mean(log_ratio))), float(np.max(absolute)),
    )  # fmt: skip
