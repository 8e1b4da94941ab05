"""Evaluation that cannot flatter: whole sources, software families or generations of chips are left out, never rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hwopt.evidence.calibration.fit import Posterior, fit
from hwopt.evidence.calibration.observations import Observations, complete
from hwopt.evidence.validation.score import CellErrors, cell_errors

GENERATIONS = (
    ("A100 from Hopper", ("hopper",), ("ampere",)),
    ("Hopper from A100", ("ampere",), ("hopper",)),
    ("Blackwell from both", ("ampere", "hopper"), ("blackwell",)),
    ("TPU from GPUs", ("volta", "ampere", "hopper", "blackwell", "cdna"), ("tpu",)),
)
"""Name, families of chips fitted, families of chips predicted."""


def leave_out(
    observations: Observations, groups: np.ndarray, start: Posterior, **prior: Any
) -> tuple[np.ndarray, dict[str, Posterior]]:
    """Predictions of each group's runs by constants fitted to all other groups.

    **Arguments:** `groups`: name of each run's group; `start`: the fit to all, from which each fit begins; `prior` of `fit`.

    **Returns:** logarithms of the step times; the fits by the group that each has not seen.
    """
    predicted, fits = start.log_predicted_s.copy(), {}
    for group in sorted(set(groups)):
        out = groups == group
        others = fit(observations, np.where(out, 0.0, observations.weights), start=start.shifts, **prior)
        predicted[out] = others.log_predicted_s[out]
        fits[str(group)] = others
    return predicted, fits


def across(observations: Observations, fitted: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
    """Predictions by constants fitted to some families of chips only; runs of other families than `predicted` are NaN."""
    families = np.array(observations.families)
    others = fit(observations, np.where(np.isin(families, list(fitted)), observations.weights, 0.0))
    return np.where(np.isin(families, list(predicted)), others.log_predicted_s, np.nan)


def errors_over_cells(
    observations: Observations,
    log_predicted_s: np.ndarray,
    keep: Callable[[int], bool] = lambda i: True,
    *,
    every: bool = False,
) -> CellErrors:
    """Errors over the cells of complete rows (or of `every` row), of runs that `keep` accepts and that were predicted."""
    chosen = [
        [i for i in members if (every or complete(observations.rows[i])) and keep(i)]
        for members in observations.cells.values()
    ]
    return cell_errors(chosen, observations.errors(log_predicted_s), log_predicted_s - observations.log_measured_s)
