"""Compatibility with newer JAX releases: their new primitives and calls expanded into operations that all releases have.

jax 0.12 made `log2` a primitive. It also calls `exp(-x^2)` (the derivative of erf) by a name of its own, with bit
arithmetic inside that only floating-point numbers support.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.extend import core

_FORMS: dict[str, Callable[[Any], Any]] = {
    "log2": lambda x: jax.lax.log(x) * (1.0 / math.log(2.0)),
    "exp_neg_sq": lambda x: jax.lax.exp(-(x * x)),
}
"""Name of a primitive, or of a function with a custom derivative -> equivalent in older operations."""


def expanded_primitive(equation: Any) -> core.ClosedJaxpr | None:
    """Return the expansion of an equation into older primitives; None if it needs none."""
    name = equation.primitive.name
    if name == "custom_jvp_call":
        name = getattr(equation.params["call_jaxpr"].jaxpr.debug_info, "func_name", name)
    if name not in _FORMS:
        return None
    (given,) = equation.invars
    return _form(name, given.aval.shape, given.aval.dtype)


@cache
def _form(name: str, shape: tuple[int, ...], dtype: Any) -> core.ClosedJaxpr:
    with jax.enable_x64(dtype.itemsize == 8):
        return jax.make_jaxpr(_FORMS[name])(jax.ShapeDtypeStruct(shape, dtype))
