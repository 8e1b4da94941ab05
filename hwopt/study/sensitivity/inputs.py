"""The numbers a question stands on, by name: every positive element of its template that no variable overwrites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hwopt.design.problem import Problem
from hwopt.design.variables import Design, completed
from hwopt.types import PRECISIONS, TIERS

_SWITCHES = frozenset({
    "tied_embeddings", "gemm_precision", "attention_scores_stored", "dropout_masks", "sequence_parallel",
    "optimizer_sharded", "gradients_sharded", "weights_sharded", "recompute_full", "recompute_attention", "shard_groups",
    "weights_offloaded", "optimizer_offloaded", "activations_offloaded", "local_steps", "logarithmic_passes", "dimensions",
    "crossings", "count", "owned", "stacked", "mlp_matrices", "experts_per_token", "shared_experts", "cp", "ep", "dp", "expert_tp",
    "parallel_layers", "cache_sharded", "prefills", "decodes", "drafted_tokens",
})  # fmt: skip
"""Inputs that are yes or no, or follow from the plan: a percent of them means nothing."""

EXPONENTS = frozenset({
    "parameter_exponent", "token_exponent", "critical_token_exponent", "critical_loss_exponent", "moe_exponent",
    "clustering", "interposer_clustering", "replica_exponent", "sharing",
})  # fmt: skip
"""Inputs that the model uses as powers of what a design decides."""

_AXES = {
    "peak_flops_per_s": PRECISIONS,
    "matmul_efficiency": PRECISIONS,
    "format_ratio": PRECISIONS,
    "gemm_precision": PRECISIONS,
}

_UNITS = (
    ("usd_per_byte_per_s", "USD/(B/s)"), ("kg_per_byte_per_s", "kg/(B/s)"), ("w_per_byte", "W/B"),
    ("bytes_per_parameter", "B"), ("bytes_per_token", "B"), ("m2_per_byte_per_s", "m2/(B/s)"), ("m_per_byte_per_s", "m/(B/s)"),
    ("bytes_per_s_per_chip", "B/s"), ("bytes_per_s", "B/s"), ("flops_per_s", "FLOP/s"), ("usd_per_byte", "USD/B"),
    ("usd_per_chip", "USD"), ("usd_per_w", "USD/W"), ("usd_per_j", "USD/J"), ("usd_per_m2", "USD/m2"),
    ("kg_per_j", "kg/J"), ("kg_per_w", "kg/W"), ("kg_per_m2", "kg/m2"), ("kg_per_byte", "kg/B"), ("j_per_byte", "J/B"),
    ("j_per_m2", "J/m2"), ("w_per_m2", "W/m2"), ("k_m2_per_w", "K.m2/W"), ("k_per_w", "K/W"), ("m2_per_byte", "m2/B"),
    ("j_per_flop", "J/FLOP"), ("per_chip_s", "1/s"), ("per_m2", "1/m2"), ("per_k", "1/K"), ("per_s", "1/s"),
    ("usd_per_part", "USD"), ("usd", "USD"), ("bytes", "B"), ("kg", "kg"), ("m2", "m2"), ("hz", "Hz"), ("w", "W"),
    ("k", "K"), ("s", "s"), ("m", "m"), ("tokens", "token"),
)  # fmt: skip
"""End of a field's name -> its SI unit; the first that fits counts."""


@dataclass(frozen=True)
class Input:
    """One number of a question."""

    name: str  # as its place in the inputs: cluster.network.efficiency[scale_up]
    value: float  # SI
    unit: str
    leaf: int  # of the flattened inputs
    element: int  # of the leaf

    @property
    def place(self) -> tuple[int, int]:
        return self.leaf, self.element

    @property
    def is_temperature(self) -> bool:
        """Whether it is an absolute temperature, not a difference of two."""
        return self.unit == "K" and self.value > 200.0

    @property
    def is_asked(self) -> bool:
        """Whether it says what is asked for, not what is assumed: the model, its tokens, its formats."""
        return self.name.startswith("workload.") and not self.name.startswith("workload.law.")

    @property
    def field(self) -> str:
        """The last part of the name, without the element."""
        return self.name.split("[")[0].rsplit(".", 1)[-1]


def unit_of(field: str) -> str:
    """SI unit that the name of a field ends in; empty for shares and counts."""
    return next((unit for end, unit in _UNITS if field == end or field.endswith("_" + end)), "")


def _element(field: str, index: int, size: int) -> str:
    """Name of one element of a leaf."""
    if size == 1:
        return ""
    return f"[{_AXES.get(field, TIERS)[index]}]"


def inputs_of(tree: Any) -> list[Input]:
    """Every positive number of a tree of the model's modules, that is no switch."""
    found = []
    for leaf, (path, value) in enumerate(jax.tree_util.tree_leaves_with_path(tree)):
        name = ".".join(str(getattr(part, "name", getattr(part, "idx", ""))) for part in path)
        field = name.rsplit(".", 1)[-1]
        flat = np.asarray(value, np.float64).ravel()
        if field in _SWITCHES:
            continue
        found += [
            Input(name + _element(field, i, len(flat)), float(x), unit_of(field), leaf, i)
            for i, x in enumerate(flat)
            if x > 0.0 and np.isfinite(x)
        ]
    return found


def overwritten(problem: Problem) -> set[tuple[int, int]]:
    """Elements of a template that its variables set, or that follow from what they set."""
    with jax.enable_x64(True):
        marked = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.template)
        for each in problem.variables:
            marked = each.put(marked, np.float64(np.nan))
        held = completed(marked)._replace(project=marked.project)
    return {
        (leaf, int(element))
        for leaf, value in enumerate(jax.tree.leaves(held))
        for element in np.flatnonzero(np.isnan(np.asarray(value).ravel()))
    }


def template_inputs(problem: Problem) -> list[Input]:
    """Inputs of a question: of its template, without what its variables set."""
    taken = overwritten(problem)
    return [each for each in inputs_of(problem.template) if each.place not in taken]


def design_inputs(design: Design) -> list[Input]:
    """Inputs of one design: of workload, cluster, plan and, where it is drawn, the chip's project."""
    return inputs_of(design)
