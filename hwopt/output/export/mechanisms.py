"""Mechanisms of layers beyond the plain transformer, and what each software that launches a plan does with them.

Serving engines load a model by name and need no flags for them. torchtitan has models of its own, all without them.
Megatron-LM and Megatron-Bridge describe a model by flags and keys: `MECHANISMS` states those of each mechanism, and names
the mechanisms that have none. Flags are those of `TransformerConfig` in NVIDIA/Megatron-LM at core_v0.19.0.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt.errors import UserError
from hwopt.output.text.plans import integral
from hwopt.workload.transformer import Transformer

Flags = dict[str, Any]


def dimensions(model: Transformer) -> SimpleNamespace:
    """Return a model's dimensions, 0 for those of absent mechanisms; of those that differ by layer the largest.

    `differing` has the names of fields that differ by layer. `scanning` is the number of layers with a scan, `halves` that of
    layers without attention and scan or without MLP, and `doubles` that of layers with both attention and scan.
    """
    kinds, usual = model.kinds, {name: value for name, value in vars(model).items() if name != "kinds"}
    values = {name: 0.0 if value is None else float(value) for name, value in usual.items()}
    values["attends"] = 1.0 if model.attends is None else values["attends"]
    rows = {} if kinds is None else {name: np.asarray(value, np.float64) for name, value in kinds.values.items()}
    counts = values["layers"] * np.asarray([1.0] if kinds is None else kinds.share, np.float64)
    attends, scans = (rows.get(name, values[name]) * np.ones(counts.shape) > 0.0 for name in ("attends", "scan_heads"))
    bare = False if kinds is None else (np.asarray(kinds.moe) == 0.0) & (rows.get("ffn", values["ffn"]) == 0.0)
    each = {"scanning": scans & ~attends, "halves": (~attends & ~scans) | bare, "doubles": attends & scans}
    return SimpleNamespace(
        **integral(values | {name: value.max() for name, value in rows.items()}),
        **{name: round(float(counts[of].sum())) for name, of in each.items()},
        differing=tuple(name for name, value in rows.items() if np.unique(value).size > 1),
    )


class Mechanism(NamedTuple):
    """Mechanism of a model's layers.

    - `present`: function of `dimensions` that returns whether a model has it.
    - `fields`: fields of `Transformer` by which it may make layers differ.
    - `flags`: returns its flags of Megatron-LM, from `dimensions`, the model's config and the context-parallel degree; None where
      Megatron-LM has no flag for it.
    - `holds`: function of `dimensions` that returns whether the flags mean the same mechanism.
    """

    words: str
    present: Callable[[Any], Any]
    fields: tuple[str, ...] = ()
    flags: Callable[[Any, Mapping[str, Any], int], Flags] | None = None
    holds: Callable[[Any], Any] = lambda w: True


_SCAN = (
    "attends",
    "scan_heads",
    "scan_key_heads",
    "scan_key_dim",
    "scan_value_dim",
    "scan_conv",
    "scan_gates",
    "scan_delta",
)


def _scans(w: Any, config: Mapping[str, Any], cp: int) -> Flags:
    """Return the flags of gated delta-rule scans.

    **Raises:** `UserError` where the config does not state which layers have them.
    """
    every, types = config.get("full_attention_interval"), config.get("layer_types")
    order = [int(each == "linear_attention") for each in types] if isinstance(types, list) else []
    if not order and isinstance(every, int) and every > 0:
        order = [int((layer + 1) % every > 0) for layer in range(w.layers)]
    if sum(order) != w.scanning or len(order) != w.layers:
        raise UserError(
            f"which {w.scanning} of the {w.layers} layers have scans is not known: the model's config needs layer_types or "
            "full_attention_interval"
        )
    return {
        "--experimental-attention-variant": "gated_delta_net", "--linear-attention-freq": str(order).replace(" ", ""),
        "--linear-num-value-heads": w.scan_heads, "--linear-value-head-dim": w.scan_value_dim,
        "--linear-num-key-heads": w.scan_key_heads, "--linear-key-head-dim": w.scan_key_dim,
        "--linear-conv-kernel-dim": w.scan_conv,
    }  # fmt: skip


def _indexer(w: Any, config: Mapping[str, Any], cp: int) -> Flags:
    exchange = {"--cp-comm-type": "allgather"} if cp > 1 else {}  # which it requires
    return exchange | {
        "--experimental-attention-variant": "dsa", "--dsa-indexer-n-heads": w.index_heads,
        "--dsa-indexer-head-dim": w.index_dim, "--dsa-indexer-topk": w.index_tokens,
    }  # fmt: skip


MECHANISMS = (
    Mechanism("an output gate of each value channel of attention", lambda w: w.gate_dim > 1, ("gate_dim",),
              lambda w, config, cp: {"--attention-output-gate": True}, lambda w: w.gate_dim == w.v_dim and not w.kv_rank),
    Mechanism("one output gate for each head of attention", lambda w: w.gate_dim == 1),
    Mechanism("keys that are also values", lambda w: w.shared_projection),
    Mechanism("an indexer of sparse latent attention", lambda w: w.index_heads and w.kv_rank, (), _indexer),
    Mechanism("block-sparse attention", lambda w: w.index_heads and not w.kv_rank),
    Mechanism("layers with both attention and scan", lambda w: w.doubles),
    Mechanism("gated delta-rule scans", lambda w: w.scan_heads and w.scan_delta and not w.scan_decay_rank, _SCAN, _scans,
              lambda w: not w.scan_gate_rank),
    Mechanism("delta-rule scans with decays by channel (KDA)", lambda w: w.scan_delta and w.scan_decay_rank, _SCAN),
    Mechanism("Mamba-2 scans, which need pretrain_hybrid.py and the order of layers (--hybrid-layer-pattern)",
              lambda w: w.scan_heads and not w.scan_delta, _SCAN),
    Mechanism("routed experts of another width than the model", lambda w: w.expert_hidden, ("expert_hidden",),
              lambda w, config, cp: {"--moe-latent-size": w.expert_hidden}),
    Mechanism("layers without attention or without MLP", lambda w: w.halves),
)  # fmt: skip
"""Mechanisms, and the flags of Megatron-LM for them."""


def unexpressed(model: Any, flags: bool) -> str:
    """Return the first mechanism of a model that a trainer cannot express, in words; empty where it can express all.

    **Arguments:** `flags`: whether the trainer takes the flags of `MECHANISMS`.
    """
    w = dimensions(model)
    found = [each for each in MECHANISMS if each.present(w)]
    for each in found:
        if not flags or each.flags is None or not each.holds(w):
            return each.words
    left = sorted(set(w.differing).difference(*(each.fields for each in found)))
    return f"layers that differ in {', '.join(left)}" if left else ""


def mechanism_flags(model: Any, config: Mapping[str, Any], cp: int) -> Flags:
    """Return the flags of Megatron-LM for a model's mechanisms.

    **Raises:** `UserError` where a flag needs what the config does not state.
    """
    w = dimensions(model)
    each = [mechanism.flags(w, config, cp) for mechanism in MECHANISMS if mechanism.present(w) and mechanism.flags]
    return {flag: value for flags in each for flag, value in flags.items()}
