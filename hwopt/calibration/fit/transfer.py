"""Transfer to a user's few runs: their weights, the prior of the fit, and the interval widths after it.

The prior is the posterior of the published runs; constants with the scope `own` add the variation between sources. Half widths
after n runs of a machine are learned from published sources (`results/benchmarks/own_runs.py`). For this, a few runs of a
source are fitted and its other runs predicted.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hwopt.calibration.fit.observations import complete
from hwopt.calibration.intervals import MEMORY
from hwopt.calibration.validation.score import Scored
from hwopt.catalog import Calibration, machine_key
from hwopt.catalog.calibrations import calibration_table
from hwopt.hardware.calibration import Scopes

ALIKE = 0.9
"""Correlation of the model errors of two runs of one configuration (repeats of published configurations: 0.8 to 0.95)."""

LEAST_SD = 0.2
"""Minimum prior standard deviation for user runs, relative to the literature's: other sources' runs never fix a constant
(assumption)."""

MOST_RUNS = 20
"""Number of runs above which more runs do not narrow the intervals; more were not tested."""

RESIDUAL_FLOOR = 0.05
"""Minimum residual of a fit to a handful of runs, in log units. It is added in quadrature to the root mean square residual
(published: repeated runs differ by 2 to 5 %)."""


def own_weights(rows: Sequence[Scored]) -> np.ndarray:
    """Return weights of user runs: `1 / (1 + ALIKE (m - 1))` for m runs of one configuration, which tell little more than one.

    Duplicate rows have weight 0, and so have rows of low quality in a file that states qualities.
    """
    judged = any(complete(row) for row in rows)
    counting = [not row.left_out and (complete(row) or not judged) for row in rows]
    each = [(row.cell, row.row.configuration) for row in rows]
    alike = Counter(key for key, on in zip(each, counting, strict=True) if on)
    weights = [on / (1.0 + ALIKE * (alike[key] - 1.0)) if on else 0.0 for key, on in zip(each, counting, strict=True)]
    return np.array(weights)


def own_prior(base: Calibration, scopes: Scopes) -> tuple[np.ndarray, np.ndarray]:
    """Return prior mean and standard deviation of the shifts before the user's runs.

    They are the posterior of a calibration, or the literature's prior for shifts that it lacks.

    **Arguments:** `base` calibration; `scopes` of the fit, which include those of `base`.
    """
    known = {entry: (shift, sd) for entry, shift, sd in zip(base.scopes.entries, base.shifts, base.sd, strict=True)}
    literature = scopes.prior_sd
    each = [known.get(entry, (0.0, sd)) for entry, sd in zip(scopes.entries, literature, strict=True)]
    mean, sd = np.array(each).reshape(-1, 2).T
    return mean, np.maximum(sd, LEAST_SD * literature)


def residual_rms(log_ratios: np.ndarray, weights: np.ndarray) -> float:
    """Return the residual of a fit on its own runs: root mean square of log(predicted / measured), with a floor."""
    return math.hypot(float(np.sqrt(np.average(log_ratios**2, weights=weights))), RESIDUAL_FLOOR)


def own_features(runs: float, configurations: int, residual: float) -> dict[str, float]:
    """Return the terms of a half width that are common to all plans of a machine.

    **Arguments:**

    - `runs`: number of runs, by weight.
    - `configurations`: number of different configurations.
    - `residual`: result of `residual_rms`, ignored for a single configuration, which does not reveal it.
    """
    several = configurations > 1
    return {
        "log_runs": math.log(min(max(runs, 1.0), MOST_RUNS)),
        "single": float(not several),
        "log_residual": math.log(residual) if several else 0.0,
    }


def own_widths(
    base: Calibration, rows: Sequence[Scored], weights: np.ndarray, log_ratios: np.ndarray
) -> dict[str, Mapping[str, float]]:
    """Return the interval coefficients for each machine of the user's runs.

    Half widths are `exp(b + a log n + c log(residual) + p log(published half width))` with n runs by weight. The published
    terms still widen an interval, but less. Runs of a machine add to earlier user runs in the base calibration.

    **Arguments:** `base` calibration; `rows`, their `weights` in the fit, and `log_ratios`: log(predicted / measured) after it.

    **Returns:** machine -> term -> coefficient, including machines of earlier runs; empty if the base has no intervals.
    """
    if "base" not in base.intervals:
        return {}
    table, own = calibration_table("own_runs")["half_widths"], dict(base.own)
    members: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if weights[i] > 0.0 and row.case is not None:
            members.setdefault(machine_key(row.case.architecture, row.case.stack), []).append(i)
    for machine, each in members.items():
        runs, configurations = float(weights[each].sum()), {(rows[i].cell, rows[i].row.configuration) for i in each}
        earlier = base.own.get(machine, {}).get("runs", 0.0)
        residual = residual_rms(log_ratios[each], weights[each])
        features = own_features(runs + earlier, len(configurations) + (earlier > 0.0), residual)
        published = {name: table["published"] * x for name, x in base.intervals.items() if name != MEMORY}
        published["base"] += table["base"] + sum(table[name] * x for name, x in features.items())
        own[machine] = published | {MEMORY: base.intervals.get(MEMORY, 0.1), "runs": runs + earlier}
    return own
