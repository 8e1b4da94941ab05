"""Optional layouts of serving plans, as switches of the software stack."""

from collections.abc import Collection
from functools import reduce

import equinox as eqx
import jax.numpy as jnp

from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster

LAYOUTS = ("redundant_experts", "two_batches", "cache_split")
"""Names of the switches that allow the search to use a layout."""


def with_layouts(cluster: Cluster, names: Collection[str]) -> Cluster:
    """Return a cluster whose software supports exactly these layouts. **Raises:** `UserError` for an unknown name."""
    for name in names:
        if name not in LAYOUTS:
            raise UserError(f"'{name}' is not a layout of serving plans: {suggest(name, LAYOUTS)}")
    put = lambda c, name: eqx.tree_at(lambda x: getattr(x.stack, name), c, jnp.asarray(float(name in names)))
    return reduce(put, LAYOUTS, cluster)
