"""One's own few runs: what they weigh, where the fit to them starts, and how far predictions with it may lie off.

The prior is the posterior of the published runs, and, by constants with a scope `own`, how far sources lie apart. Half widths
after n runs of a machine come from the same done with published sources (`results/benchmarks/own_runs.py`): a few of their runs
given, the others predicted.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.calibration.fit.observations import complete
from hwopt.calibration.intervals import MEMORY, PredictionContext, terms
from hwopt.calibration.validation.score import Scored
from hwopt.catalog import Calibration, machine_key
from hwopt.catalog.load import read_toml
from hwopt.catalog.names import data_root
from hwopt.hardware.calibration import Scopes

ALIKE = 0.9
"""Correlation of what the model misses in two runs of one configuration (repeats of published configurations: 0.8 to 0.95)."""

LEAST_SD = 0.2
"""Of a published posterior, over the literature's deviation: no runs of others leave less room for one's own (assumption)."""

MOST_RUNS = 20
"""From which on more runs narrow nothing: with more none was tried."""

RESIDUAL_FLOOR = 0.05
"""In quadrature, beside what a fit to a handful of runs leaves (published: runs that are repeated differ by 2 to 5 %)."""


def own_weights(rows: Sequence[Scored]) -> np.ndarray:
    """Weights of one's own runs: `1 / (1 + ALIKE (m - 1))` for each of m of one configuration, which tell little more than one.

    Rows that a file which states qualities calls doubtful, and those told twice, weigh 0.
    """
    judged = any(complete(row) for row in rows)
    counting = [not row.left_out and (complete(row) or not judged) for row in rows]
    each = [(row.cell, row.row.configuration) for row in rows]
    alike = Counter(key for key, on in zip(each, counting, strict=True) if on)
    weights = [on / (1.0 + ALIKE * (alike[key] - 1.0)) if on else 0.0 for key, on in zip(each, counting, strict=True)]
    return np.array(weights)


def own_prior(base: Calibration, scopes: Scopes) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the shifts before one's own runs: the posterior of a calibration, the literature's where
    that has no such shift.

    **Arguments:** `base` calibration; `scopes` of the fit, those of `base` among them.
    """
    known = {entry: (shift, sd) for entry, shift, sd in zip(base.scopes.entries, base.shifts, base.sd, strict=True)}
    literature = scopes.prior_sd
    each = [known.get(entry, (0.0, sd)) for entry, sd in zip(scopes.entries, literature, strict=True)]
    mean, sd = np.array(each).reshape(-1, 2).T
    return mean, np.maximum(sd, LEAST_SD * literature)


@cache
def _table() -> Mapping[str, float]:
    table: Any = read_toml(Path(str(data_root() / "calibrations" / "own_runs.toml")))
    return table["half_widths"]


def residual_rms(log_ratios: np.ndarray, weights: np.ndarray) -> float:
    """What a fit leaves of the runs it was given: root mean square of log(predicted / measured), floored."""
    return math.hypot(float(np.sqrt(np.average(log_ratios**2, weights=weights))), RESIDUAL_FLOOR)


def own_features(runs: float, configurations: int, residual: float) -> dict[str, float]:
    """Terms of a half width that are the same for all plans of a machine.

    **Arguments:** `runs`, by weight, of so many `configurations`; `residual` as `residual_rms` says, which one configuration does
    not tell.
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
    """Coefficients of the intervals on each machine of one's own runs.

    Half widths `exp(b + a log n + c log(residual) + p log(published half width))`, n runs by weight: what makes a prediction
    uncertain before still does, less so. A machine that the base has own runs of already adds the new ones to them.

    **Arguments:** `base` calibration; `rows`, their `weights` in the fit, and log(predicted / measured) after it.

    **Returns:** machine -> term -> coefficient, those of earlier runs among them; nothing where the base has no intervals.
    """
    if "base" not in base.intervals:
        return {}
    table, own = _table(), dict(base.own)
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


def published_log_width(row: Scored, base: Calibration, of: PredictionContext, without: str = "") -> float:
    """Logarithm of the half width of a run's step time by the published errors alone; `of` and `without` as `terms` takes them."""
    case, widths = row.case, base.intervals
    assert case is not None
    on = terms(case.workload, case.architecture, case.stack, base, without, of)
    return widths["base"] + sum(widths.get(name, 0.0) * x for name, x in on.items())
