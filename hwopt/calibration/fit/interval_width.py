"""Widths of intervals: the quantile of held-out errors, by what makes a prediction uncertain."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from hwopt.calibration.intervals import COVERAGE, FLOORS, TERMS

_RIDGE = 60.0
"""Pull of each term's coefficient to its floor, in units of a row's loss over its width: a term needs studies to speak for it.
Of 2, 60 and 300 the one with the least pinball loss on studies that the widths have not seen."""

_STEPS = 1500


def fit_widths(absolute_errors: np.ndarray, features: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Half widths `exp(base + b . x)` that hold `COVERAGE` of the errors: conditional quantiles, then scaled to hold exactly.

    Least pinball loss, in units of the width, with b at its floor or above: what is said to widen never narrows. Adam on softplus
    coordinates; the scale is the weighted quantile of error over width (split-conformal over sources: every error is of
    constants fitted without the row's source).

    **Arguments:** `absolute_errors` |log predicted - log measured|, what open fields explain taken off (`beyond`), shape
    (run,); `features` as `intervals.terms` says, shape (run, term); `weights` of rows.

    **Returns:** `{"base": ..., term: ...}` as a calibration's file holds them.
    """
    with jax.enable_x64(True):
        share = jnp.asarray(weights / weights.sum())
        errors, x = jnp.asarray(absolute_errors), jnp.asarray(features)
        floors = jnp.array([FLOORS[name] for name in TERMS])

        def loss(parameters: tuple[Array, Array]) -> Array:
            base, raw = parameters
            extra = floors + jax.nn.softplus(raw)
            width = jnp.exp(base + x @ extra)
            over = errors - width
            pinball = jnp.where(over > 0.0, COVERAGE * over, (COVERAGE - 1.0) * over)
            return jnp.sum(share * pinball) / 0.1 + _RIDGE / len(weights) * jnp.sum(extra - floors)

        solver = optax.adam(optax.cosine_decay_schedule(0.02, _STEPS))
        start = (jnp.log(jnp.asarray(weighted_quantile(absolute_errors, weights))), jnp.full(x.shape[1], -2.0))

        def iterate(carry: tuple, _: None) -> tuple[tuple, None]:
            parameters, state = carry
            updates, state = solver.update(jax.grad(loss)(parameters), state)
            return (optax.apply_updates(parameters, updates), state), None

        (parameters, _), _ = jax.lax.scan(iterate, (start, solver.init(start)), None, length=_STEPS)
        base, extra = float(parameters[0]), np.asarray(floors + jax.nn.softplus(parameters[1]))
    scale = weighted_quantile(absolute_errors / np.exp(base + features @ extra), weights)
    coefficients = {name: round(float(value), 4) for name, value in zip(TERMS, extra, strict=True)}
    return {"base": round(base + float(np.log(scale)), 4)} | coefficients


def beyond(errors: np.ndarray, open_: np.ndarray) -> np.ndarray:
    """The part of errors that a half width `w` must hold where open fields have one of their own: `hypot(w, open) >= |error|`
    where and only where `w >= sqrt(error^2 - open^2)`.
    """
    return np.sqrt(np.maximum(errors**2 - open_**2, 0.0))


def weighted_quantile(values: np.ndarray, weights: np.ndarray) -> float:
    """Weighted quantile at `COVERAGE`."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, COVERAGE)])


def conformal_quantile(values: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> float:
    """What `COVERAGE` of the values of a group that is not among these are not above, where groups are exchangeable.

    The weighted quantile with one more group at infinity, as split conformal prediction asks; the group weighs what a unit of
    weight drawn at random belongs to, `sum w^2 / sum w` over groups.

    **Source:** Barber, Candes, Ramdas, Tibshirani 2021 (arXiv 1905.02928), with groups for points.
    """
    of_groups = np.array([weights[groups == each].sum() for each in np.unique(groups)])
    another = float(np.sum(of_groups**2) / of_groups.sum())
    return weighted_quantile(np.append(values, np.inf), np.append(weights, another))


def half_widths(coefficients: dict[str, float], features: np.ndarray) -> np.ndarray:
    """Half widths of rows with these features."""
    return np.exp(coefficients["base"] + features @ np.array([coefficients[name] for name in TERMS]))
