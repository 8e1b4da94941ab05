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

from hwopt.solver.options import SEARCH, LocalOptions

Vector = Float[Array, " variable"]

_NEAR = 1e-9
"""Distance from a bound, log units, within which a variable counts as being at it."""


class LagrangianState(NamedTuple):
    """A point and its multipliers: JAX arrays inside a trace, NumPy arrays outside."""

    y: Any  # (variable,)
    multipliers: Any  # (constraint,)
    objective: Any
    constraints: Any  # (constraint,)
    residual: Any  # largest entry of the projected gradient of the Lagrangian


def _between(first: float, last: float, share: Array) -> Array:
    """Return a value between two ends on a geometric schedule."""
    return first * (last / first) ** share


def projected_gradient(gradient: Vector, y: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return the gradient without components that point out of the bounds. It is zero at a minimum."""
    at_lower, at_upper = y <= lower + _NEAR, y >= upper - _NEAR
    inward = jnp.where(at_lower, jnp.minimum(gradient, 0.0), gradient)
    return jnp.where(at_upper, jnp.maximum(inward, 0.0), inward)


def minimise_all(
    values: Callable[[Vector, Any], tuple[Array, Array]],
    starts: Float[Array, "problem variable"],
    lowers: Float[Array, "problem variable"],
    uppers: Float[Array, "problem variable"],
    problems: Any,
    counts: tuple[Array, Array],
    options: LocalOptions = SEARCH.local,
    transformation: optax.GradientTransformation | None = None,
) -> LagrangianState:
    """Minimize several problems at once.

    One loop runs over a batch of all problems. A batch of loops would trace the loop's body twice.

    **Arguments:**

    - `values`: `values(y, problem) -> (F, G)`, with `problem` an entry of `problems` along its first axis.
    - `starts`, `lowers`, `uppers`: starts and bounds (problem, variable).
    - `problems`: data of the problems, a pytree of arrays (problem, ...).
    - `counts`: number of multiplier updates, and of descent steps before each. As arrays, other counts need no new trace.
    - `options`: first and last penalty and rate.
    - `transformation`: any optax transformation whose updates are steps of unit rate; by default Adam with short memory. The
      schedule scales it.

    **Returns:** the last points evaluated, which are the best because the outer loop ends with a high penalty; their
    multipliers; and the KKT residuals there. With a single step, these points are the starts.
    """
    transformation = transformation or optax.scale_by_adam(b1=0.9, b2=0.99)
    outer_steps, inner_steps = counts

    def augmented(y: Vector, multipliers: Array, rho: Array, problem: Any):
        objective, constraints = values(y, problem)
        pressed = jnp.maximum(0.0, multipliers + rho * constraints)
        return objective + jnp.sum(pressed**2 - multipliers**2) / (2.0 * rho), (objective, constraints, pressed)

    # One loop over all steps contains the only copy of the gradient, so that the model is compiled only once.
    def step(index: Array, carry: tuple) -> tuple:
        round_, inner = index // inner_steps, index % inner_steps
        share = round_ / jnp.maximum(outer_steps - 1, 1)
        rho = _between(options.first_penalty, options.last_penalty, share)
        rate = _between(options.first_rate, options.last_rate, share) * (1.0 - 0.9 * inner / inner_steps)
        ends = inner == inner_steps - 1

        def one(carry: tuple, lower: Vector, upper: Vector, problem: Any) -> tuple:
            y, state, multipliers, _ = carry
            slope = jax.grad(augmented, has_aux=True)
            gradient, (objective, constraints, pressed) = slope(y, multipliers, rho, problem)
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

    constraints = jax.eval_shape(values, starts[0], jax.tree.map(lambda leaf: leaf[0], problems))[1].size

    def begin(start: Vector) -> tuple:
        none, scalar = jnp.zeros(constraints, start.dtype), jnp.zeros((), start.dtype)
        return start, transformation.init(start), none, LagrangianState(start, none, scalar, none, scalar)

    return jax.lax.fori_loop(0, outer_steps * inner_steps, step, jax.vmap(begin)(starts))[3]
