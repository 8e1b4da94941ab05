"""Layouts that plans which serve may have beyond the plain ones, as switches of the software."""

from collections.abc import Collection
from functools import reduce

import equinox as eqx
import jax.numpy as jnp

from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster

LAYOUTS = ("redundant_experts", "two_batches", "cache_split")
"""Switches of a stack that open them to the search."""


def with_layouts(cluster: Cluster, names: Collection[str]) -> Cluster:
    """A cluster whose software has these layouts and no others. **Raises:** `UserError` for an unknown name."""
    for name in names:
        if name not in LAYOUTS:
            raise UserError(f"'{name}' is no layout of plans that serve: {suggest(name, LAYOUTS)}")
    put = lambda c, name: eqx.tree_at(lambda x: getattr(x.stack, name), c, jnp.asarray(float(name in names)))
    return reduce(put, LAYOUTS, cluster)
