"""Summary of a fit to user runs: how much narrower predictions become, and which constants changed."""

import numpy as np

from hwopt.calibration.fit.observations import Observations
from hwopt.calibration.fit.posterior import Posterior
from hwopt.calibration.intervals import interval
from hwopt.catalog import Calibration, line_of, software_family
from hwopt.hardware.calibration import CONSTANTS, family_of

MOVED = 0.5
"""Change in prior standard deviations from which a constant is reported as moved."""


def posterior_summary(
    observations: Observations, base: Calibration, fitted: Calibration, mean: np.ndarray, sd: np.ndarray,
    posterior: Posterior,
) -> dict:  # fmt: skip
    """Summarize the result of a fit for the machine of the first row.

    **Arguments:**

    - `observations`: the user's runs.
    - `base`: calibration from which the fit started; `fitted`: resulting calibration.
    - `mean`, `sd`: prior of the shifts; `posterior`: result of the fit.

    **Returns:** plain numbers:

    - `half_width_before`, `half_width_after`: half widths of a typical prediction (median over the rows) as fractions; None
      without intervals.
    - `level`: change of the global step-time factor, with prior and posterior standard deviations in log units.
    - `constants`: constants that changed by more than `MOVED` prior standard deviations, summed over all scopes.
    """
    case, scopes = observations.rows[0].case, observations.scopes
    assert case is not None
    on = scopes.membership(family_of(case.architecture), line_of(case.stack), software_family(case.stack))
    change, room = on @ (posterior.shifts - mean), np.sqrt(on**2 @ sd**2)
    left = np.sqrt(np.diag(on @ posterior.covariance @ on.T))
    level = [each.name for each in CONSTANTS].index("level")
    order = sorted(range(len(CONSTANTS)), key=lambda i: -abs(change[i]) / max(room[i], 1e-12))
    return {
        "half_width_before": _typical(observations, base, observations.log_predicted_s(mean)),
        "half_width_after": _typical(observations, fitted, posterior.log_predicted_s),
        "level": {"factor": float(np.exp(change[level])), "sd": float(left[level]), "prior_sd": float(room[level])},
        "constants": [
            {"constant": CONSTANTS[i].name, "meaning": CONSTANTS[i].meaning, "change": float(change[i]),
             "prior_sd": float(room[i]), "sd": float(left[i])}
            for i in order
            if abs(change[i]) > MOVED * room[i] and abs(change[i]) > 1e-3
        ],
    }  # fmt: skip


def _typical(observations: Observations, calibration: Calibration, log_predicted_s: np.ndarray) -> float | None:
    """Return the half width of a prediction as a fraction, the median over the rows' plans."""
    halves = []
    for row, of in zip(observations.rows, observations.circumstances(log_predicted_s), strict=True):
        if row.case is not None:
            around = interval(row.case.workload, row.case.architecture, row.case.stack, calibration, of=of)
            halves += [] if around is None else [around.time]
    return float(np.expm1(np.median(halves))) if halves else None
