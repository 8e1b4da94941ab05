"""Elasticities of the report with respect to every input: by differentiation, and by differences."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.model.estimate import estimate
from hwopt.trace.derivatives import value_and_gradient
from hwopt.trace.scalar_program import ScalarProgram, scalar_program
from tests.cases import from_vector, input_names, random_cases, to_vectors
from tests.compiling import THOROUGH

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
    "run_time_s",
    "run_carbon_kg",
    "junction_temperature_k",
    "loss",
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


class _OnceAsked(Sequence):
    """A list that is made when it is first read."""

    def __init__(self, make):
        self._make = make

    @functools.cached_property
    def _all(self):
        return self._make()

    def __getitem__(self, place):
        return self._all[place]

    def __len__(self):
        return len(self._all)


def _differentiable(vector):
    report = estimate(*from_vector(vector))
    leaves = jax.tree_util.tree_leaves_with_path(report)
    # A margin without a limit has no slope: 0 stands for it.
    known = [(path, jnp.where(jnp.isinf(leaf), 0.0, leaf)) for path, leaf in leaves]
    return [(path, leaf) for path, leaf in known if path[-1].name not in ("bottleneck", "feasible")]


def output_scale(y: np.ndarray, names: list[str]) -> np.ndarray:
    """What an output's elasticity is relative to: itself, a thousandth of its whole for a part, 1 for a logarithm or 0."""
    scale = np.abs(y)
    for i, name in enumerate(names):
        if name.startswith(("breakdown.", "hidden_s")):
            scale[..., i] = np.maximum(scale[..., i], 1e-3 * np.abs(y[..., names.index("step_time_s")]))
        elif name.startswith("memory."):
            scale[..., i] = np.maximum(scale[..., i], 1e-3 * np.abs(y[..., names.index("memory_per_chip_bytes")]))
        elif name.startswith("margins.") or name == "clock_margin":
            scale[..., i] = 1.0
    return np.where(scale == 0, 1.0, scale)  # capital of rented clusters, HBM stacks of SRAM machines


def _pull_back(vector, cotangent):
    y, pull = jax.vjp(all_outputs, vector)
    return y, pull(cotangent)[0]


def _push_forward(vector, tangent):
    return jax.jvp(all_outputs, (vector,), (tangent,))


@functools.cache
def _compiled(function, widths: tuple[int, ...], dtype):
    """`function` over rows. Without XLA's fusion pass, which takes minutes on the mapped pull-back and saves nothing."""
    jax.clear_caches()  # traces of NumPy constants cached under the other precision do not fit this one
    with jax.enable_x64(dtype == np.float64):
        rows = [jax.ShapeDtypeStruct((ROWS, width), dtype) for width in widths]
        return jax.jit(jax.vmap(function)).lower(*rows).compile(THOROUGH | {"xla_disable_hlo_passes": "fusion"})


ROWS = 4096


def _over_rows(function, *columns: np.ndarray, dtype=np.float64):
    """`function` mapped over any number of rows, in chunks of `ROWS`."""
    run = _compiled(function, tuple(column.shape[1] for column in columns), dtype)
    n, chunks = len(columns[0]), []
    with jax.enable_x64(dtype == np.float64):
        for start in range(0, n, ROWS):
            index = np.minimum(np.arange(start, start + ROWS), n - 1)
            chunks.append(jax.tree.map(np.asarray, run(*(column[index].astype(dtype) for column in columns))))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n], *chunks)


@functools.cache
def _line() -> ScalarProgram:
    return scalar_program(all_outputs, len(INPUTS))


def values(x: np.ndarray) -> np.ndarray:
    """`all_outputs` of rows in float64, compiled by nobody."""
    chunks = []
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        chunks.append(np.stack([np.broadcast_to(y, len(rows)) for y in _line().on_numbers(*rows.T)], axis=1))
    return np.concatenate(chunks)


def slopes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (case, output) and Jacobian (case, output, input) in float64, by scalar operations in reverse."""
    y, dy_dx = zip(*(value_and_gradient(_line(), row, range(len(OUTPUTS))) for row in x), strict=True)
    return np.stack(y), np.stack(dy_dx)


def reverse(x: np.ndarray, dtype=np.float64, outputs=None) -> tuple[np.ndarray, np.ndarray]:
    """Values (case, output) and Jacobian (case, output, input) by JAX's reverse mode, a row a case and output."""
    units = np.eye(len(OUTPUTS))[[OUTPUTS.index(name) for name in outputs or OUTPUTS]]
    y, pulled = _over_rows(_pull_back, np.repeat(x, len(units), 0), np.tile(units, (len(x), 1)), dtype=dtype)
    y = y[:: len(units)]
    return y[:, units.argmax(1)], pulled.reshape(len(x), len(units), -1)


def forward(x: np.ndarray) -> np.ndarray:
    """The Jacobian by forward mode in float64, a row a case and input."""
    units = np.eye(x.shape[1])
    _, pushed = _over_rows(_push_forward, np.repeat(x, len(units), 0), np.tile(units, (len(x), 1)))
    return pushed.reshape(len(x), len(units), -1).transpose(0, 2, 1)


def elasticities(y, dy_dx, x, names) -> np.ndarray:
    """`dy/dx x/y` with the scales above, shape (case, output, input); float64 arithmetic throughout."""
    y, dy_dx, x = (np.asarray(a, np.float64) for a in (y, dy_dx, x))
    return dy_dx * input_scale(x)[:, None, :] / output_scale(y, names)[:, :, None]


OUTPUTS = _OnceAsked(output_names)
"""Names of `all_outputs`. They take a trace of the model, which collecting tests does without."""
