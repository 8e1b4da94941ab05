"""Roots of equations: found without derivatives, and then given those of the equation.

The way to a root is held, so that no derivative is taken step by step. What follows from it is a Taylor series in what the equation
moved by: of two orders, by as much as zero.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

held = jax.lax.stop_gradient


def moved(value: Array) -> Array:
    """Zero that carries the derivatives of `value`."""
    return value - held(value)


def root(near: Array, value: Array, slope: Array, bend: Array) -> Array:
    """The x of `g(x, inputs) = 0` with its derivatives of the first two orders by the inputs: `x - t - g_xx / (2 g_x) t^2`.

    t is what g moved by over its slope; both move with the inputs and not with x.

    **Arguments:** `near` x, found from held inputs; at it `value` g and `slope` g_x, from inputs that are not, and `bend` g_xx.
    """
    step = moved(value) / slope
    return near - step * (1.0 + 0.5 * held(bend / slope) * step)


def lambert_above_branch(distance: Array) -> Array:
    """`1 + W_0(z)` of Lambert's function, by `p = sqrt(2 (1 + e z))` from its branch point: 0 there, 1 at z = 0.

    A rational function that meets it at Chebyshev's points, within 2e-14 of itself for p from 0 to sqrt 2. Without derivatives.

    **Source:** interpolated here, with 40 digits. The series about the branch point: Corless et al. 1996.
    """
    p = held(distance)
    above, below = jnp.zeros_like(p), jnp.zeros_like(p)
    for up, down in zip(reversed(_ABOVE), reversed(_BELOW), strict=True):
        above, below = above * p + up, below * p + down
    return p * above / below


_ABOVE = (
    1.0,
    1.3979713903571847,
    0.64669927820777691,
    0.11202009201291366,
    0.0057870768070083933,
    2.1370368020266537e-5,
)
_BELOW = (1.0, 1.7313047236870409, 1.0710230750967333, 0.2841525237163695, 0.030236907033980104, 0.00091093019332548579)
