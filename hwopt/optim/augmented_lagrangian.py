"""Augmented Lagrangian on optax: constrained minimisation in a box, many problems at a time.

Minimise F(y) subject to G(y) <= 0 and l <= y <= u. For penalty rho and multipliers lambda >= 0 the inner loop descends

    A(y) = F(y) + sum_i (max(0, lambda_i + rho G_i(y))^2 - lambda_i^2) / (2 rho)

projected onto the box; the outer loop sets `lambda = max(0, lambda + rho G)` and raises rho.

**Source:** Bertsekas 1982, Constrained Optimization and Lagrange Multiplier Methods, section 3.1; Nocedal and Wright
2006, section 17.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

Vector = Float[Array, " variable"]


class Settings(NamedTuple):
    """Counts and schedules; arrays, so that other settings are no new trace."""

    outer: Array  # multiplier updates
    inner: Array  # descent steps before each
    penalty: tuple[float, float] = (5.0, 200.0)  # rho, first and last
    rate: tuple[float, float] = (5e-2, 2e-5)  # step in log space, first and last
    temperature: tuple[float, float] = (0.05, 1e-4)  # of the smooth maximum, first and last


class Optimum(NamedTuple):
    """A point and its multipliers; JAX arrays inside a trace, NumPy ones outside."""

    y: Any  # (variable,)
    multipliers: Any  # (constraint,)
    objective: Any
    constraints: Any  # (constraint,)
    residual: Any  # largest entry of the projected gradient of the Lagrangian


def _between(ends: tuple[float, float], share: Array) -> Array:
    """Geometric schedule."""
    return ends[0] * (ends[1] / ends[0]) ** share


def projected_gradient(gradient: Vector, y: Vector, lower: Vector, upper: Vector, near: float = 1e-9) -> Vector:
    """Gradient without the components that push against the box: zero at a minimum."""
    at_lower, at_upper = y <= lower + near, y >= upper - near
    inward = jnp.where(at_lower, jnp.minimum(gradient, 0.0), gradient)
    return jnp.where(at_upper, jnp.maximum(inward, 0.0), inward)


def minimise(
    values: Callable[[Vector, Array], tuple[Array, Array]],
    start: Vector,
    lower: Vector,
    upper: Vector,
    settings: Settings,
    transformation: optax.GradientTransformation | None = None,
    constraints: int | None = None,
) -> Optimum:
    """Minimise one problem; map it with `jax.vmap` for many.

    **Arguments:** `values(y, temperature) -> (F, G)`; start and box; `settings`; any optax transformation whose updates
    are steps of unit rate (default: Adam with short memory, scaled by the schedule); `constraints`: how many there are,
    which spares a trace of `values` to find out.

    **Returns:** the last point seen (the outer loop ends on a tight penalty, so it is the best one too), its multipliers,
    and the KKT residual of the smooth problem there. One step returns the start evaluated.
    """
    transformation = transformation or optax.scale_by_adam(b1=0.9, b2=0.99)

    def augmented(y: Vector, multipliers: Array, rho: Array, temperature: Array) -> tuple[Array, tuple[Array, Array]]:
        objective, constraints = values(y, temperature)
        pressed = jnp.maximum(0.0, multipliers + rho * constraints)
        return objective + jnp.sum(pressed**2 - multipliers**2) / (2.0 * rho), (objective, constraints)

    # One loop over all steps holds the only copy of the gradient: the model is compiled once, not once a use.
    def step(index: Array, carry: tuple) -> tuple:
        y, state, multipliers, _ = carry
        round_, inner = index // settings.inner, index % settings.inner
        share = round_ / jnp.maximum(settings.outer - 1, 1)
        rho, temperature = _between(settings.penalty, share), _between(settings.temperature, share)
        gradient, (objective, constraints) = jax.grad(augmented, has_aux=True)(y, multipliers, rho, temperature)
        pressed = jnp.maximum(0.0, multipliers + rho * constraints)
        # The gradient of the augmented function is the Lagrangian's at the multipliers it presses with.
        residual = jnp.max(jnp.abs(projected_gradient(gradient, y, lower, upper)))
        seen = Optimum(y, pressed, objective, constraints, residual)

        updates, state = transformation.update(gradient, state, y)
        rate = _between(settings.rate, share) * (1.0 - 0.9 * inner / settings.inner)
        moved = optax.apply_updates(y, jax.tree.map(lambda u: -rate * u, updates))
        y = optax.projections.projection_box(moved, lower, upper)
        ends = inner == settings.inner - 1
        fresh = transformation.init(y)
        state = jax.tree.map(lambda new, old: jnp.where(ends, new, old), fresh, state)
        return y, state, jnp.where(ends, pressed, multipliers), seen

    if constraints is None:
        constraints = jax.eval_shape(values, start, jnp.asarray(settings.temperature[1]))[1].size
    none = jnp.zeros(constraints, start.dtype)
    scalar = jnp.zeros((), start.dtype)
    carry = (start, transformation.init(start), none, Optimum(start, none, scalar, none, scalar))
    return jax.lax.fori_loop(0, settings.outer * settings.inner, step, carry)[3]
