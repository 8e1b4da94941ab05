"""Array aliases and the fixed orders of the axes that name things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from jaxtyping import Array, Float

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")
"""Order of every axis named "precision". fp16 and bf16 share an entry: their dense peaks are equal on all known chips."""

PRECISION_BYTES = (4.0, 4.0, 2.0, 1.0, 1.0, 0.5)
"""Bytes an element of each of `PRECISIONS` takes in memory (tf32 is stored as fp32)."""

TIERS = ("scale_up", "scale_out", "core")
"""Order of every axis named "tier", from the inside out."""

if TYPE_CHECKING:
    # A leaf is a NumPy array in the catalogue and a traced one in the model: no static type says both.
    Scalar: TypeAlias = Any
    PerPrecision: TypeAlias = Any
    PerTier: TypeAlias = Any
    PerInnerTier: TypeAlias = Any
else:
    Scalar: TypeAlias = Float[Array, ""]
    """One floating number; leaves of the model's inputs and outputs are these or short vectors."""
    PerPrecision: TypeAlias = Float[Array, "precision"]
    PerTier: TypeAlias = Float[Array, "tier"]
    PerInnerTier: TypeAlias = Float[Array, "inner_tier"]
