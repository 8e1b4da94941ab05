"""Array aliases and the fixed orders of the axes that name things."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")
"""Order of every axis named "precision". fp16 and bf16 share an entry: their dense peaks are equal on all known chips."""

PRECISION_BYTES = (4.0, 4.0, 2.0, 1.0, 1.0, 0.5)
"""Bytes an element of each of `PRECISIONS` takes in memory (tf32 is stored as fp32)."""

PRECISION_BITS = tuple(8.0 * each for each in PRECISION_BYTES)
"""Bits of a multiplication's inputs. tf32 counts as what it is stored as; its peak is half of that in 16 bit on all known chips, so
that a chip's largest product of bits and rate does not tell."""

TIERS = ("scale_up", "scale_out", "core")
"""Order of every axis named "tier", from the inside out."""

Scalar: TypeAlias = Float[Array, ""]
"""One floating number; leaves of the model's inputs and outputs are these or short vectors. The catalogue holds them as NumPy
arrays, which `hwopt.catalog.load.leaf` makes."""
PerPrecision: TypeAlias = Float[Array, "precision"]
PerTier: TypeAlias = Float[Array, "tier"]
PerInnerTier: TypeAlias = Float[Array, "inner_tier"]
Elementwise: TypeAlias = Float[Array, "..."]
"""Numbers of any one shape, taken one by one."""


def numpy_or_jax(*columns: Any) -> Any:
    """The module whose functions take these arrays."""
    return jnp if any(isinstance(each, jax.Array) for each in columns) else np
