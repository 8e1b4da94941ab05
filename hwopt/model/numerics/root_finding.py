"""Differentiable roots of equations: a root is found without derivatives and then given those of its equation.

The iteration is not differentiated. Instead the root becomes a second-order Taylor series in the change of the equation. That
change has the value zero but carries derivatives with respect to the inputs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

held = jax.lax.stop_gradient


def moved(value: Array) -> Array:
    """Return zero with the derivatives of `value`."""
    return value - held(value)


def root(near: Array, value: Array, slope: Array, bend: Array) -> Array:
    """Return the root x of `g(x, inputs) = 0` with its first and second derivatives with respect to the inputs.

    The value is `x - t - g_xx / (2 g_x) t^2`, where t is g over its slope g_x at fixed x: zero, with derivatives by the inputs.

    **Arguments:**
    - `near`: x, found from inputs without derivatives;
    - `value`, `slope`: g and g_x at `near`, from inputs with derivatives;
    - `bend`: g_xx at `near`.
    """
    step = moved(value) / slope
    return near - step * (1.0 + 0.5 * held(bend / slope) * step)


def lambert_above_branch(distance: Array) -> Array:
    """Return `1 + W_0(z)` of Lambert's function, by `p = sqrt(2 (1 + e z))` from its branch point: 0 there, 1 at z = 0.

    A rational function interpolates it at Chebyshev points. Its error is within 2e-14 for p from 0 to sqrt 2. No derivatives.

    **Arguments:** `distance` p.

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
