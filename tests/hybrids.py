"""Transformers with mechanisms and layers of several kinds: shapes of published models, and the same layers as their modules.

Numbers are those of the published configurations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from hwopt import catalog
from hwopt.catalog.layer_kinds import absent_parts, layer_kinds
from hwopt.quantity import quantities
from hwopt.workload.transformer import Transformer
from tests.reference.plain import modules as m


def shape_of(rows: Sequence[dict] = (), **fields: float) -> Transformer:
    """A shape with its layer kinds, as a workload entry that states these fields and rows."""
    declared = quantities(Transformer)
    stated = {name: each.default or 0.0 for name, each in declared.items() if not each.absent} | fields
    stated = absent_parts({*fields, *(name for row in rows for name in row)}) | stated
    kinds = layer_kinds(stated, rows, "test")
    return Transformer(**{name: np.float64(value) for name, value in stated.items()}, kinds=kinds)


def changed(tree, **fields):
    """A copy with other fields; `model__layers=...` for nested ones."""
    for path, value in fields.items():
        first, _, rest = path.partition("__")
        value = changed(getattr(tree, first), **{rest: value}) if rest else value
        tree = dataclasses.replace(tree, **{first: value})
    return tree


class Known(NamedTuple):
    """A published model: its shape, and its layers as their modules, in the order of the shape's kinds."""

    shape: Transformer
    layers: list[tuple[int, m.Layer]]  # how many there are of each

    @property
    def modules(self) -> list[m.Layer]:
        return [layer for count, layer in self.layers for _ in range(count)]


def _qwen35() -> Known:
    """Qwen3.5-122B-A10B: three gated delta nets to one layer of gated attention."""
    experts = m.mixture(3072, 256, 8, 1024, 1024)
    scan = dict(scan_heads=64, scan_key_heads=16, scan_key_dim=128, scan_value_dim=128, scan_conv=4, scan_gates=2,
                scan_delta=1, scan_decay_rank=0, scan_gate_rank=0)  # fmt: skip
    shape = shape_of(
        [
            {"layers": 36, "moe": 1, "attends": 0, "gate_dim": 0, **scan},
            {"layers": 12, "moe": 1, "attends": 1, "gate_dim": 256},
        ],
        layers=48, hidden=3072, mlp_matrices=3, heads=32, kv_heads=2, qk_dim=256, v_dim=256, vocab=248320,
        moe_layers=48, experts=256, experts_per_token=8, shared_experts=1, expert_ffn=1024,
    )  # fmt: skip
    delta = m.gated_delta(3072, 16, 64, 128, 128, 4)
    attention = m.grouped(3072, 32, 2, 256, gate=256)
    both = [(36, m.normed(3072, delta, experts)), (12, m.normed(3072, attention, experts))]
    return Known(shape, both)


def _kimi_linear() -> Known:
    """Kimi-Linear-48B-A3B: three layers of Kimi delta attention to one of latent attention without query rank."""
    experts, dense = m.mixture(2304, 256, 8, 1024, 1024), m.mlp(2304, 9216)
    scan = dict(scan_heads=32, scan_key_heads=32, scan_key_dim=128, scan_value_dim=128, scan_conv=4, scan_gates=1,
                scan_delta=1, scan_decay_rank=128, scan_gate_rank=128)  # fmt: skip
    shape = shape_of(
        [
            {"layers": 1, "moe": 0, "attends": 0, **scan},
            {"layers": 19, "moe": 1, "attends": 0, **scan},
            {"layers": 7, "moe": 1, "attends": 1},
        ],
        layers=27, hidden=2304, ffn=9216, mlp_matrices=3, heads=32, kv_heads=32, qk_dim=192, v_dim=128, kv_rank=512,
        rope_dim=64, vocab=163840, moe_layers=26, experts=256, experts_per_token=8, shared_experts=1, expert_ffn=1024,
    )  # fmt: skip
    delta, attention = m.kimi_delta(2304, 32, 128, 4, 128), m.latent(2304, 32, 0, 512, 128, 64, 128)
    layers = [
        (1, m.normed(2304, delta, dense)),
        (19, m.normed(2304, delta, experts)),
        (7, m.normed(2304, attention, experts)),
    ]
    return Known(shape, layers)


_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_SUPER = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"


def _nemotron(pattern, hidden, mamba_heads, experts, used, width, shared_width, narrow=None) -> Known:
    """Nemotron-3: layers are halves: Mamba-2, experts, or attention."""
    scan = dict(scan_heads=mamba_heads, scan_key_heads=8, scan_key_dim=128, scan_value_dim=64, scan_conv=4, scan_gates=1,
                scan_delta=0, scan_decay_rank=0, scan_gate_rank=0)  # fmt: skip
    count = {each: pattern.count(each) for each in "ME*"}
    own = {} if narrow is None else {"expert_hidden": narrow}
    shape = shape_of(
        [
            {"layers": count["M"], "moe": 0, "ffn": 0, "attends": 0, **scan},
            {"layers": count["E"], "moe": 1, "attends": 0},
            {"layers": count["*"], "moe": 0, "ffn": 0, "attends": 1},
        ],
        layers=len(pattern), hidden=hidden, ffn=width, mlp_matrices=2, heads=32, kv_heads=2, qk_dim=128, v_dim=128,
        vocab=131072, moe_layers=count["E"], experts=experts, experts_per_token=used, shared_experts=shared_width / width,
        expert_ffn=width, **own,
    )  # fmt: skip
    halves = {
        "M": m.mamba2(hidden, mamba_heads, 64, 8, 128, 4),
        "E": m.mixture(hidden, experts, used, width, shared_width, matrices=2, narrow=narrow),
        "*": m.grouped(hidden, 32, 2, 128),
    }
    return Known(shape, [(count[each], m.normed(hidden, half)) for each, half in halves.items()])


def _deepseek(layers, hidden, ffn, heads, q_rank, nope, v, vocab, index_heads) -> Known:
    """DeepSeek-V3.2 and GLM-5.1: latent attention with an indexer, three dense layers."""
    mla = m.latent(hidden, heads, q_rank, 512, nope, 64, v) + m.indexer(hidden, q_rank, index_heads, 128, 2048)
    experts, dense = m.mixture(hidden, 256, 8, 2048, 2048), m.mlp(hidden, ffn)
    shape = shape_of(
        layers=layers, hidden=hidden, ffn=ffn, mlp_matrices=3, heads=heads, kv_heads=heads, qk_dim=nope + 64, v_dim=v,
        query_rank=q_rank, kv_rank=512, rope_dim=64, vocab=vocab, moe_layers=layers - 3, experts=256,
        experts_per_token=8, shared_experts=1, expert_ffn=2048, routed_groups=4, index_heads=index_heads, index_dim=128,
        index_tokens=2048,
    )  # fmt: skip
    return Known(shape, [(3, m.normed(hidden, mla, dense)), (layers - 3, m.normed(hidden, mla, experts))])


def _minimax() -> Known:
    """MiniMax-M3: blocks of keys chosen by an indexer without latent, in all but the three dense layers."""
    attention = m.grouped(6144, 64, 4, 128)
    chosen = attention + m.indexer(6144, 0, 4, 128, 16 * 128)
    experts, dense = m.mixture(6144, 128, 4, 3072, 3072), m.mlp(6144, 12288)
    shape = shape_of(
        [
            {"layers": 3, "moe": 0, "index_heads": 0, "index_dim": 0, "index_tokens": 0},
            {"layers": 57, "moe": 1, "index_heads": 4, "index_dim": 128, "index_tokens": 2048},
        ],
        layers=60, hidden=6144, ffn=12288, mlp_matrices=3, heads=64, kv_heads=4, qk_dim=128, v_dim=128, vocab=200064,
        moe_layers=57, experts=128, experts_per_token=4, shared_experts=1, expert_ffn=3072,
    )  # fmt: skip
    return Known(shape, [(3, m.normed(6144, attention, dense)), (57, m.normed(6144, chosen, experts))])


def _alternating() -> Known:
    """Gemma-4-26B-A4B's attention with a plain MLP: five sliding layers to one whose keys are its values; one gate a head."""
    sliding, whole = m.grouped(2816, 16, 8, 256, gate=1), m.grouped(2816, 16, 2, 512, gate=1, shared=True)
    sliding = dataclasses.replace(sliding, most_keys=1024, most_kept=1024)
    dense = m.mlp(2816, 2112)
    shape = shape_of(
        [
            {"layers": 25, "moe": 0, "local_layers_fraction": 1, "window_tokens": 1024},
            {"layers": 5, "moe": 0, "kv_heads": 2, "qk_dim": 512, "v_dim": 512, "shared_projection": 1},
        ],
        layers=30, hidden=2816, ffn=2112, mlp_matrices=3, heads=16, kv_heads=8, qk_dim=256, v_dim=256, vocab=262144,
        tied_embeddings=1, gate_dim=1, window_tokens=1e9,
    )  # fmt: skip
    return Known(shape, [(25, m.normed(2816, sliding, dense)), (5, m.normed(2816, whole, dense))])


def _plain() -> Known:
    """Llama-3.1-8B."""
    shape = shape_of(
        layers=32, hidden=4096, ffn=14336, mlp_matrices=3, heads=32, kv_heads=8, qk_dim=128, v_dim=128, vocab=128256,
    )  # fmt: skip
    return Known(shape, [(32, m.normed(4096, m.grouped(4096, 32, 8, 128), m.mlp(4096, 14336)))])


KNOWN = {
    "llama-3.1-8b": _plain(),
    "qwen3.5-122b": _qwen35(),
    "kimi-linear-48b": _kimi_linear(),
    "nemotron-3-nano": _nemotron(_NANO, 2688, 64, 128, 6, 1856, 3712),
    "nemotron-3-super": _nemotron(_SUPER, 4096, 128, 512, 22, 2688, 5376, narrow=1024),
    "deepseek-v3.2": _deepseek(61, 7168, 18432, 128, 1536, 128, 128, 129280, 64),
    "glm-5.1": _deepseek(78, 6144, 12288, 64, 2048, 192, 256, 154880, 32),
    "minimax-m3": _minimax(),
    "alternating": _alternating(),
}
"""Models by name. Together they have every mechanism."""

HYBRIDS = tuple(name for name, known in KNOWN.items() if known.shape.kinds is not None)
"""Those whose layers are of several kinds."""


def training(model: Transformer, chips: int = 64, **plan: object):
    """A training run of a shape on H100s with the plan's settings: run, cluster, plan."""
    run = dataclasses.replace(catalog.training_run("llama3.1-8b", sequence_length=8192, global_batch=256), model=model)
    return run, catalog.cluster("h100-sxm", chips), catalog.plan(run, chips, **plan)


def serving(model: Transformer, chips: int = 8, **plan: object):
    """A service of a shape on H200s with the plan's settings: service, cluster, plan."""
    asked = catalog.service("llama3.1-8b", input_tokens=6000, output_tokens=500)
    asked = dataclasses.replace(asked, model=model)
    return asked, catalog.cluster("h200", chips), catalog.serving_plan(asked, chips, **plan)


def numbers(report) -> dict[str, np.ndarray]:
    """All numbers of a report by path."""
    leaves = jax.tree_util.tree_leaves_with_path(report)
    return {jax.tree_util.keystr(path): np.asarray(leaf, np.float64) for path, leaf in leaves}
