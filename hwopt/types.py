"""Array type aliases, and the fixed order of named axes."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")
"""Order of every axis named "precision". fp16 and bf16 share an entry: their dense peaks are equal on all known chips."""

PRECISION_BYTES = (4.0, 4.0, 2.0, 1.0, 1.0, 0.5)
"""Bytes per element in memory, for each of `PRECISIONS` (tf32 is stored as fp32)."""

PRECISION_BITS = tuple(8.0 * each for each in PRECISION_BYTES)
"""Bits of a multiplication's inputs, for each of `PRECISIONS`.

tf32 counts with its storage size. Its peak is half the 16-bit peak on all known chips, so this choice does not change a chip's
largest product of bits and rate.
"""

TIERS = ("scale_up", "scale_out", "core")
"""Order of every axis named "tier", from the inside out."""

Scalar: TypeAlias = Float[Array, ""]
"""One floating-point number. Leaves of the model's inputs and outputs are scalars or short vectors.

The catalog stores them as NumPy arrays, created by `hwopt.catalog.load.leaf`.
"""
PerPrecision: TypeAlias = Float[Array, "precision"]
PerTier: TypeAlias = Float[Array, "tier"]
PerInnerTier: TypeAlias = Float[Array, "inner_tier"]
Elementwise: TypeAlias = Float[Array, "..."]
"""Array of any shape, for elementwise functions."""


def numpy_or_jax(*columns: Any) -> Any:
    """Return the module, `numpy` or `jax.numpy`, whose functions apply to these arrays."""
    return jnp if any(isinstance(each, jax.Array) for each in columns) else np
