"""Elasticities of the report with respect to every input: by differentiation, and by differences."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.model.estimate import estimate
from tests.cases import from_vector, input_names, random_cases, to_vectors

INPUTS = input_names(random_cases(np.random.default_rng(0), 2))
MAIN = (
    "step_time_s",
    "tokens_per_s",
    "memory_per_chip_bytes",
    "power_w",
    "capex_usd",
    "cost_per_token_usd",
    "energy_per_token_j",
    "mfu",
)
"""The outputs that designs are optimised for."""

STRUCTURAL = ("query_rank", "kv_rank", "rope_dim", "learned_positions", "moe_layers", "experts", "experts_per_token",
              "shared_experts", "expert_ffn")  # fmt: skip
"""Inputs whose 0 means absent: the model jumps or kinks there by definition."""

_ZERO_SCALES = {"kernel_launch_s": 1e-6, "collective_launch_s": 1e-6, "host_layer_s": 1e-3, "step_overhead_s": 1e-2}


def is_structural_zero(x: np.ndarray) -> np.ndarray:
    """Entries that say a part is absent."""
    structural = np.array([name.removeprefix("model.") in STRUCTURAL for name in INPUTS])
    return structural & (x == 0)


def input_scale(x: np.ndarray) -> np.ndarray:
    """What one unit of elasticity moves: the value itself, or a natural unit where that is zero."""
    natural = np.array([_ZERO_SCALES.get(name.split(".")[-1], 1.0) for name in INPUTS])
    return np.where(x != 0, np.abs(x), natural)


def main_outputs(vector):
    """The `MAIN` outputs of one case, shape (output,)."""
    report = estimate(*from_vector(vector))
    return jnp.stack([getattr(report, name) for name in MAIN])


def all_outputs(vector):
    """Every differentiable leaf of the report, shape (output,)."""
    return jnp.stack([leaf for _, leaf in _differentiable(vector)])


def output_names() -> list[str]:
    """Names of `all_outputs`."""
    paths = []
    example = to_vectors(random_cases(np.random.default_rng(0), 1))[0]
    with jax.enable_x64(True):
        jax.make_jaxpr(lambda vector: paths.extend(path for path, _ in _differentiable(vector)))(example)
    return [".".join(str(part.name) for part in path) for path in paths]


def _differentiable(vector):
    report = estimate(*from_vector(vector))
    leaves = jax.tree_util.tree_leaves_with_path(report)
    return [(path, leaf) for path, leaf in leaves if path[-1].name not in ("bottleneck", "feasible")]


def output_scale(y: np.ndarray, names: list[str]) -> np.ndarray:
    """What an output's elasticity is relative to: itself, a thousandth of its whole for a part, 1 for a logarithm."""
    scale = np.abs(y)
    for i, name in enumerate(names):
        if name.startswith(("breakdown.", "hidden_s")):
            scale[..., i] = np.maximum(scale[..., i], 1e-3 * np.abs(y[..., names.index("step_time_s")]))
        elif name.startswith("memory."):
            scale[..., i] = np.maximum(scale[..., i], 1e-3 * np.abs(y[..., names.index("memory_per_chip_bytes")]))
        elif name.startswith("margins."):
            scale[..., i] = 1.0
    return scale


@functools.partial(jax.jit, static_argnums=0)
def _values_and_pulls(function, vectors, cotangents):
    def one(vector, cotangent):
        y, pull = jax.vjp(function, vector)
        return y, pull(cotangent)[0]

    return jax.vmap(one)(vectors, cotangents)


def jacobian(function, outputs: int, x: np.ndarray, dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Values (case, output) and Jacobian (case, output, input) in `dtype` by reverse mode.

    A row a case and output: mapping the pull-back over outputs inside takes XLA minutes to compile.
    """
    n = len(x)
    with jax.enable_x64(dtype == np.float64):
        rows, units = np.repeat(x, outputs, 0).astype(dtype), np.tile(np.eye(outputs), (n, 1)).astype(dtype)
        values, pulled = _values_and_pulls(function, rows, units)
    return np.asarray(values)[::outputs], np.asarray(pulled).reshape(n, outputs, -1)


def elasticities(y, dy_dx, x, names) -> np.ndarray:
    """`dy/dx x/y` with the scales above, shape (case, output, input); float64 arithmetic throughout."""
    y, dy_dx, x = (np.asarray(a, np.float64) for a in (y, dy_dx, x))
    return dy_dx * input_scale(x)[:, None, :] / output_scale(y, names)[:, :, None]
