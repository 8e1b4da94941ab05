"""Augmented Lagrangian on optax: constrained minimisation in a box, many problems at a time.

Minimise F(y) subject to G(y) <= 0 and l <= y <= u. For penalty rho and multipliers lambda >= 0 the inner loop descends

    A(y) = F(y) + sum_i (max(0, lambda_i + rho G_i(y))^2 - lambda_i^2) / (2 rho)

projected onto the box; the outer loop sets `lambda = max(0, lambda + rho G)` and raises rho.

**Source:** Bertsekas 1982, Constrained Optimization and Lagrange Multiplier Methods, section 3.1; Nocedal and Wright
2006, section 17.4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

Vector = Float[Array, " variable"]


class LagrangianSettings(NamedTuple):
    """Counts and schedules; arrays, so that other settings are no new trace."""

    outer: Array  # multiplier updates
    inner: Array  # descent steps before each
    penalty: tuple[float, float] = (5.0, 200.0)  # rho, first and last
    rate: tuple[float, float] = (5e-2, 2e-5)  # step in log space, first and last
    temperature: tuple[float, float] = (0.05, 1e-4)  # of the smooth maximum, first and last


class LagrangianState(NamedTuple):
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


def minimise_all(
    values: Callable[[Vector, Array, Any], tuple[Array, Array]],
    starts: Float[Array, "problem variable"],
    lowers: Float[Array, "problem variable"],
    uppers: Float[Array, "problem variable"],
    problems: Any,
    settings: LagrangianSettings,
    transformation: optax.GradientTransformation | None = None,
    constraints: int | None = None,
) -> LagrangianState:
    """Minimise several problems at once.

    The loop is around the map, not the map around the loop, whose body would be traced twice.

    **Arguments:** `values(y, temperature, problem) -> (F, G)`, with `problem` an entry of `problems` along its first axis;
    starts and boxes; `settings`; any optax transformation whose updates are steps of unit rate (default: Adam with short
    memory, scaled by the schedule); `constraints`: how many there are, which spares a trace of `values` to find out.

    **Returns:** the last points seen (the outer loop ends on a tight penalty, so they are the best ones too), their
    multipliers, and the KKT residuals of the smooth problems there. One step returns the starts evaluated.
    """
    transformation = transformation or optax.scale_by_adam(b1=0.9, b2=0.99)

    def augmented(y: Vector, multipliers: Array, rho: Array, temperature: Array, problem: Any):
        objective, constraints = values(y, temperature, problem)
        pressed = jnp.maximum(0.0, multipliers + rho * constraints)
        return objective + jnp.sum(pressed**2 - multipliers**2) / (2.0 * rho), (objective, constraints, pressed)

    # One loop over all steps holds the only copy of the gradient: the model is compiled once, not once a use.
    def step(index: Array, carry: tuple) -> tuple:
        round_, inner = index // settings.inner, index % settings.inner
        share = round_ / jnp.maximum(settings.outer - 1, 1)
        rho, temperature = _between(settings.penalty, share), _between(settings.temperature, share)
        rate = _between(settings.rate, share) * (1.0 - 0.9 * inner / settings.inner)
        ends = inner == settings.inner - 1

        def one(carry: tuple, lower: Vector, upper: Vector, problem: Any) -> tuple:
            y, state, multipliers, _ = carry
            slope = jax.grad(augmented, has_aux=True)
            gradient, (objective, constraints, pressed) = slope(y, multipliers, rho, temperature, problem)
            # The gradient of the augmented function is the Lagrangian's at the multipliers it presses with.
            residual = jnp.max(jnp.abs(projected_gradient(gradient, y, lower, upper)))
            seen = LagrangianState(y, pressed, objective, constraints, residual)
            updates, state = transformation.update(gradient, state, y)
            moved = optax.apply_updates(y, jax.tree.map(lambda u: -rate * u, updates))
            y = optax.projections.projection_box(moved, lower, upper)
            fresh = transformation.init(y)
            state = jax.tree.map(lambda new, old: jnp.where(ends, new, old), fresh, state)
            return y, state, jnp.where(ends, pressed, multipliers), seen

        return jax.vmap(one)(carry, lowers, uppers, problems)

    if constraints is None:
        one_problem = jax.tree.map(lambda leaf: leaf[0], problems)
        constraints = jax.eval_shape(values, starts[0], jnp.asarray(settings.temperature[1]), one_problem)[1].size

    def begin(start: Vector) -> tuple:
        none, scalar = jnp.zeros(constraints, start.dtype), jnp.zeros((), start.dtype)
        return start, transformation.init(start), none, LagrangianState(start, none, scalar, none, scalar)

    return jax.lax.fori_loop(0, settings.outer * settings.inner, step, jax.vmap(begin)(starts))[3]
