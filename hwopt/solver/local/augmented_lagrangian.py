"""Augmented Lagrangian method with optax: constrained minimization within bounds, many problems at a time.

Minimize F(y) subject to G(y) <= 0 and l <= y <= u. With penalty rho and multipliers lambda >= 0, the inner loop descends

    A(y) = F(y) + sum_i (max(0, lambda_i + rho G_i(y))^2 - lambda_i^2) / (2 rho)

projected onto the bounds. The outer loop sets `lambda = max(0, lambda + rho G)` and raises rho.

**Source:** Bertsekas 1982, Constrained Optimization and Lagrange Multiplier Methods, section 3.1; Nocedal and Wright 2006,
section 17.4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

Vector = Float[Array, " variable"]


class LagrangianSettings(NamedTuple):
    """Iteration counts and schedules. Counts are arrays, so that other counts need no new trace."""

    outer: Array  # number of multiplier updates
    inner: Array  # number of descent steps before each update
    penalty: tuple[float, float] = (5.0, 200.0)  # rho, first and last
    rate: tuple[float, float] = (5e-2, 2e-5)  # step in log space, first and last
    temperature: tuple[float, float] = (0.05, 1e-4)  # of the smooth maximum, first and last


class LagrangianState(NamedTuple):
    """A point and its multipliers: JAX arrays inside a trace, NumPy arrays outside."""

    y: Any  # (variable,)
    multipliers: Any  # (constraint,)
    objective: Any
    constraints: Any  # (constraint,)
    residual: Any  # largest entry of the projected gradient of the Lagrangian


def _between(ends: tuple[float, float], share: Array) -> Array:
    """Return a value between two ends on a geometric schedule."""
    return ends[0] * (ends[1] / ends[0]) ** share


def projected_gradient(gradient: Vector, y: Vector, lower: Vector, upper: Vector, near: float = 1e-9) -> Vector:
    """Return the gradient without components that point out of the bounds. It is zero at a minimum."""
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
    """Minimize several problems at once.

    One loop runs over a batch of all problems. A batch of loops would trace the loop's body twice.

    **Arguments:**

    - `values`: `values(y, temperature, problem) -> (F, G)`, with `problem` an entry of `problems` along its first axis.
    - `starts`, `lowers`, `uppers`: starts and bounds (problem, variable).
    - `problems`: data of the problems, a pytree of arrays (problem, ...).
    - `settings`: iteration counts and schedules.
    - `transformation`: any optax transformation whose updates are steps of unit rate; by default Adam with short memory. The
      schedule scales it.
    - `constraints`: number of constraints, which saves a trace of `values` that would count them.

    **Returns:** the last points evaluated, which are the best because the outer loop ends with a high penalty; their
    multipliers; and the KKT residuals of the smooth problems there. With a single step, these points are the starts.
    """
    transformation = transformation or optax.scale_by_adam(b1=0.9, b2=0.99)

    def augmented(y: Vector, multipliers: Array, rho: Array, temperature: Array, problem: Any):
        objective, constraints = values(y, temperature, problem)
        pressed = jnp.maximum(0.0, multipliers + rho * constraints)
        return objective + jnp.sum(pressed**2 - multipliers**2) / (2.0 * rho), (objective, constraints, pressed)

    # One loop over all steps contains the only copy of the gradient, so that the model is compiled only once.
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
            # The gradient of A is that of the Lagrangian at the updated multipliers.
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
