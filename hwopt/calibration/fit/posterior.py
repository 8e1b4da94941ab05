"""Robust maximum-a-posteriori fit by Gauss-Newton steps, each a convex problem solved with the L-BFGS of optax.

The evaluation avoids optimistic bias: whole sources, software families or chip generations are held out, never single rows.
"""

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from hwopt.calibration.fit.observations import Observations
from hwopt.calibration.fit.options import FIT, FitOptions

SCALE = 0.08
"""Log error of a cell at which the loss turns from quadratic to linear: the residual error of good models."""


@dataclass(frozen=True)
class Posterior:
    """Mode of the shifts (adjustments of model constants, in log or log-odds units), and their covariance by Laplace's
    approximation.
    """

    shifts: np.ndarray
    covariance: np.ndarray
    log_predicted_s: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Posterior standard deviation of each shift."""
        return np.sqrt(np.diag(self.covariance))


def _soft(ratio: Any, xp: ModuleType) -> Any:
    """Return the soft L1 loss, `2 (sqrt(1 + x^2) - 1)`: quadratic near zero, linear far from it."""
    return 2.0 * (xp.sqrt(1.0 + ratio**2) - 1.0)


def _loss(residual: Any, weights: Any, xp: ModuleType) -> Any:
    return xp.sum(weights * _soft(residual / SCALE, xp))


def _prior(deviation: Any, heavy: Any, xp: ModuleType) -> Any:
    """Return the negative log prior: squares of whitened shifts, but soft L1 for the shifts of sources.

    Step-time factors of sources have heavy tails: one source that is twice as slow as all others should have little influence.
    """
    return xp.sum(xp.where(heavy, _soft(deviation, xp), deviation**2))


@partial(jax.jit, static_argnames="length")
def _step(
    residual: Float[Array, " run"], slopes: Float[Array, "run shift"], weights: Float[Array, " run"],
    deviation: Float[Array, " shift"], heavy: Bool[Array, " shift"], damping: Float[Array, ""], length: int,
) -> Array:  # fmt: skip
    """Minimize the linearized objective over the change of the whitened shifts: convex, by L-BFGS with line search."""

    def objective(change: Array) -> Array:
        prior = _prior(deviation + change, heavy, jnp) + damping * jnp.sum(change**2)
        return _loss(residual + slopes @ change, weights, jnp) + prior

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def iterate(carry: tuple, _: None) -> tuple[tuple, None]:
        change, state = carry
        value, grad = value_and_grad(change, state=state)
        updates, state = solver.update(grad, state, change, value=value, grad=grad, value_fn=objective)
        return (optax.apply_updates(change, updates), state), None

    start = jnp.zeros_like(deviation)
    (change, _), _ = jax.lax.scan(iterate, (start, solver.init(start)), None, length=length)
    return change


def fit(
    observations: Observations, weights: np.ndarray | None = None, start: np.ndarray | None = None,
    prior_mean: np.ndarray | None = None, prior_sd: np.ndarray | None = None, options: FitOptions = FIT,
) -> Posterior:  # fmt: skip
    """Fit the shifts of the constants to measured step times, with priors from the literature.

    Minimizes `sum_i w_i rho((log t_predicted - log t_measured) / s) + sum_j ((x_j - m_j) / sd_j)^2` with the soft L1 loss rho.
    For the shifts of sources, rho also replaces the square in the prior.

    **Arguments:**

    - `observations`: measured runs.
    - `weights`: weights of the runs, by default those of `observations` (0 excludes a run).
    - `start`: initial shifts.
    - `prior_mean`, `prior_sd`: prior of the shifts, by default 0 and the values of `hwopt.hardware.calibration`.
    - `options`: steps and tolerances.

    **Returns:** the mode and its covariance.
    """
    weights = observations.weights if weights is None else weights
    sd = observations.scopes.prior_sd if prior_sd is None else prior_sd
    mean = np.zeros_like(sd) if prior_mean is None else prior_mean
    shifts = mean.copy() if start is None else start.copy()
    heavy = observations.scopes.of_sources

    def cost(shifts: np.ndarray, predicted: np.ndarray) -> float:
        robust = _loss(predicted - observations.log_measured_s, weights, np)
        return float(robust + _prior((shifts - mean) / sd, heavy, np))

    predicted = observations.log_predicted_s(shifts)
    best, damping = cost(shifts, predicted), 0.0
    for _ in range(options.steps):
        slopes, residual = observations.slopes(shifts) * sd, predicted - observations.log_measured_s
        for _ in range(options.tries):
            with jax.enable_x64(True):
                deviation = (shifts - mean) / sd
                change = _step(residual, slopes, weights, deviation, heavy, np.float64(damping), options.inner_steps)
                change = np.asarray(change)
            tried = shifts + sd * change
            answer = observations.log_predicted_s(tried)
            value = cost(tried, answer)
            if value <= best:
                break
            damping = max(4.0 * damping, 0.25)
        else:
            break
        gained = best - value
        shifts, predicted, best, damping = tried, answer, value, 0.25 * damping
        if gained <= options.least_gain * best:
            break
    slopes, residual = observations.slopes(shifts) * sd, predicted - observations.log_measured_s
    curvature = weights / SCALE**2 / np.sqrt(1.0 + (residual / SCALE) ** 2)
    of_prior = np.where(heavy, 1.0 / np.sqrt(1.0 + ((shifts - mean) / sd) ** 2), 1.0)
    precision = (slopes.T * curvature) @ slopes + np.diag(of_prior)
    covariance = np.linalg.inv(precision) * np.outer(sd, sd)
    return Posterior(shifts, covariance, predicted)


def leave_out(
    observations: Observations, groups: np.ndarray, start: Posterior, weights: np.ndarray | None = None, **prior: Any
) -> tuple[np.ndarray, dict[str, Posterior]]:
    """Predict each group's runs with constants fitted to all other groups.

    **Arguments:**

    - `groups`: name of each run's group.
    - `start`: the fit to all runs, from which each fit starts.
    - `weights`, `prior`: as in `fit`.

    **Returns:** logarithms of the step times; the fits, by the held-out group.
    """
    predicted, fits = start.log_predicted_s.copy(), {}
    weights = observations.weights if weights is None else weights
    for group in sorted(set(groups)):
        out = groups == group
        others = fit(observations, np.where(out, 0.0, weights), start=start.shifts, **prior)
        predicted[out] = others.log_predicted_s[out]
        fits[str(group)] = others
    return predicted, fits
