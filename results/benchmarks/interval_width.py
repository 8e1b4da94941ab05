"""Widths of prediction intervals: a quantile regression of held-out errors on the sources of uncertainty."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from hwopt.calibration.fit.observations import Observations
from hwopt.calibration.intervals import COVERAGE, DEVIATIONS, FLOORS, TERMS

_RIDGE = 60.0
"""Penalty on each coefficient above its floor, in units of a row's loss over its width: a term needs evidence from several
studies. Of 2, 60 and 300 this value has the least pinball loss on held-out studies."""

_STEPS = 1500


def fit_widths(
    absolute_errors: np.ndarray,
    features: np.ndarray,
    weights: np.ndarray,
    least: Mapping[str, float] = FLOORS,
    ridge: float = _RIDGE,
) -> dict[str, float]:
    """Fit half widths `exp(base + b . x)` that contain `COVERAGE` of the errors: quantile regression, then exact scaling.

    Minimizes the pinball loss, in units of the width, with each b at or above its floor, so that no term narrows an interval.
    The solver is Adam on softplus coordinates. The final scale is the weighted quantile of error over width. This is split
    conformal prediction over sources, because every error comes from constants fitted without the row's source.

    **Arguments:**

    - `absolute_errors`: |log predicted - log measured| without the part explained by unstated settings (`beyond`), shape
      (run,).
    - `features`: terms of `intervals.terms`, shape (run, term).
    - `weights`: weights of the rows.
    - `least`: minimum coefficient of each term, in the order of the features.
    - `ridge`: penalty on coefficients above their minimum (`_RIDGE`).

    **Returns:** `{"base": ..., term: ...}`, as in a calibration file.
    """
    with jax.enable_x64(True):
        share = jnp.asarray(weights / weights.sum())
        errors, x = jnp.asarray(absolute_errors), jnp.asarray(features)
        floors = jnp.array(list(least.values()))

        def loss(parameters: tuple[Array, Array]) -> Array:
            base, raw = parameters
            extra = floors + jax.nn.softplus(raw)
            width = jnp.exp(base + x @ extra)
            over = errors - width
            pinball = jnp.where(over > 0.0, COVERAGE * over, (COVERAGE - 1.0) * over)
            return jnp.sum(share * pinball) / 0.1 + ridge / len(weights) * jnp.sum(extra - floors)

        solver = optax.adam(optax.cosine_decay_schedule(0.02, _STEPS))
        start = (jnp.log(jnp.asarray(weighted_quantile(absolute_errors, weights))), jnp.full(x.shape[1], -2.0))

        def iterate(carry: tuple, _: None) -> tuple[tuple, None]:
            parameters, state = carry
            updates, state = solver.update(jax.grad(loss)(parameters), state)
            return (optax.apply_updates(parameters, updates), state), None

        (parameters, _), _ = jax.lax.scan(iterate, (start, solver.init(start)), None, length=_STEPS)
        base, extra = float(parameters[0]), np.asarray(floors + jax.nn.softplus(parameters[1]))
    scale = weighted_quantile(absolute_errors / np.exp(base + features @ extra), weights)
    coefficients = {name: round(float(value), 4) for name, value in zip(least, extra, strict=True)}
    return {"base": round(base + float(np.log(scale)), 4)} | coefficients


def open_half_widths(observations: Observations) -> np.ndarray:
    """Return the half width of each run's interval that results from unstated settings alone."""
    return DEVIATIONS * np.array([row.prediction.spread for row in observations.rows])


def beyond(errors: np.ndarray, open_: np.ndarray) -> np.ndarray:
    """Return the part of errors that a half width `w` must cover, if unstated settings have the half width `open_`.

    `hypot(w, open) >= |error|` if and only if `w >= sqrt(error^2 - open^2)`.
    """
    return np.sqrt(np.maximum(errors**2 - open_**2, 0.0))


def weighted_quantile(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted quantile at `COVERAGE`."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, COVERAGE)])


def conformal_quantile(values: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> float:
    """Return an upper bound that holds with probability `COVERAGE` for values of a new group, if groups are exchangeable.

    It is the weighted quantile with one more group at infinity, as in split conformal prediction. The weight of that group is
    the expected weight of a group drawn in proportion to weight, `sum w^2 / sum w` over groups.

    **Source:** Barber, Candes, Ramdas, Tibshirani 2021 (arXiv 1905.02928), with groups instead of points.
    """
    of_groups = np.array([weights[groups == each].sum() for each in np.unique(groups)])
    another = float(np.sum(of_groups**2) / of_groups.sum())
    return weighted_quantile(np.append(values, np.inf), np.append(weights, another))


def half_widths(coefficients: dict[str, float], features: np.ndarray) -> np.ndarray:
    """Return the half widths of prediction intervals of the log step time, `exp(base + b . x)`, shape (run,).

    **Arguments:** `coefficients`: result of `fit_widths`; `features`: terms x of each run, shape (run, term).
    """
    return np.exp(coefficients["base"] + features @ np.array([coefficients[name] for name in TERMS]))
