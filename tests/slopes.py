"""Elasticities of a time that several tests ask for: one trace for all machines."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hwopt.model.estimate import estimate
from tests.in_numpy import in_numpy


def _by_memory(asked, cluster, plan):
    def log_time(u):
        faster = eqx.tree_at(
            lambda c: c.chip.hbm_bandwidth_bytes_per_s, cluster, replace_fn=lambda rate: rate * jnp.exp(u)
        )
        return jnp.log(estimate(asked, faster, plan).step_time_s)

    return jax.jvp(log_time, (jnp.zeros(()),), (jnp.ones(()),))[1]


def memory_elasticity(cases: list[tuple]) -> np.ndarray:
    """Of the time of a step or pass to HBM bandwidth: workloads, clusters and plans of one structure."""
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), *cases)
    return in_numpy(_by_memory)(*stacked)
