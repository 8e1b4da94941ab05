"""Evaluation of a number for each kind of layers of a model."""

from collections.abc import Callable
from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwopt.model.numerics.maximum import hard_maximum
from hwopt.types import Scalar
from hwopt.workload.transformer import Transformer

Tree = TypeVar("Tree")

PerKind = Float[Array, "kind"]


def each_kind(model: Transformer, one: Callable[[Transformer, Scalar], Tree]) -> tuple[PerKind, Tree]:
    """Return the number of layers of each kind of a model, and what `one` returns for a layer of each.

    Without `kinds` there are two: dense layers and layers with a mixture of experts.

    **Arguments:** `one`: function of a shape in which all layers are of one kind, and of its type (1: MoE, 0: dense).

    **Shapes:** (kind,), and a leading axis (kind,) for every array of `one`.
    """
    if (kinds := model.kinds) is None:
        count = jnp.stack([model.dense_layers, model.moe_layers])
        return count, jax.vmap(lambda moe: one(model, moe))(jnp.asarray(np.array([0.0, 1.0]), count.dtype))
    each = jax.vmap(lambda moe, values: one(model.alike(moe, values), moe))(kinds.moe, kinds.values)
    return model.layers * kinds.share, each


def largest(count: PerKind, each: PerKind) -> Scalar:
    """Return the largest number of those of the kinds that a model has."""
    return reduce(hard_maximum, [jnp.where(count[i] > 0, each[i], 0.0) for i in range(count.shape[0])])
