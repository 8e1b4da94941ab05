"""Model shape of a measured row: from the row's columns, then from the catalog."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRow, entry
from hwopt.calibration.validation.skip import Skip, SkipReason
from hwopt.quantity import quantities
from hwopt.workload.transformer import Transformer, misaligned, total_parameters

_FIELDS = quantities(Transformer)


class _Family(NamedTuple):
    """Common properties of a family of models."""

    mlp_matrices: float = 3.0  # 3: gated, 2: plain
    vocab: float = 32000.0
    parallel_layers: float = 0.0  # 1: attention and MLP in parallel
    head_dim: float = 0.0  # 0: hidden / heads


_FAMILIES = {
    "llama": _Family(),
    "gpt": _Family(mlp_matrices=2.0, vocab=51200.0),
    "gpt-neox": _Family(mlp_matrices=2.0, vocab=51200.0, parallel_layers=1.0),
    "palm": _Family(parallel_layers=1.0),
    "qwen3": _Family(head_dim=128.0),
}
"""Defaults of the families named in column `model_family`."""


_published = cache(catalog.transformer)
_table = cache(catalog.model_of)


def shape(row: MeasuredRow, assumed: list[str]) -> Any:
    """Return the model of a row: a transformer, or the operator table of its catalog entry.

    Sources, in order:

    - the row's own columns;
    - the catalog entry, for head sizes, gating, tied embeddings, and the layout of experts and latent attention;
    - the variant (head size, gated or plain MLP, gated with tied embeddings) whose parameter count is nearest to the row's
      `params_B`;
    - the default of the model family.

    Depth is always the row's, so that a proxy with 4 layers has 4 layers.

    **Arguments:** `row`; `assumed`: names of fields filled by assumption are added.

    **Raises:** `Skip` for hybrid models that are not in the catalog and for unknown shapes.
    """
    slug = row.workload or entry("workloads", row.model_name)
    held = None if slug is None else catalog.record("workloads", slug)
    if (held is not None and "unsupported" in held.text) or (row.model_kind == "hybrid" and held is None):
        raise Skip(SkipReason.HYBRID, row.model_name)
    if held is not None and held.operators:
        return _table(slug)
    if slug is not None and _same(row, _published(slug)):
        return _overlaid(row, _published(slug))
    if missing := [name for name in ("layers", "hidden", "ffn", "heads") if getattr(row, name) is None]:
        raise Skip(SkipReason.UNKNOWN_SHAPE, f"'{row.model_name}' has no {', '.join(missing)}")
    return _inferred(row, assumed)


def _same(row: MeasuredRow, known: Transformer) -> bool:
    """Return whether the row's width agrees with the catalog entry; names such as GPT-22B are used for several shapes."""
    pairs = ((row.hidden, known.hidden), (row.heads, known.heads), (row.moe_experts, known.experts))
    return all(not own or own == float(other) for own, other in pairs)


def _overlaid(row: MeasuredRow, known: Transformer) -> Transformer:
    """Return the catalog's model with the depth, vocabulary, FFN width and KV heads of a measured row, where it states them.

    A shortened MoE model keeps the ratio of dense layers to all layers, with at least one dense layer if there are any. The FFN
    width of MoE models and the KV heads of models with latent attention stay as in the catalog.
    """
    depth, moe = float(known.layers), float(known.moe_layers)
    layers = float(row.layers or depth)
    dense = float(np.ceil((depth - moe) * layers / depth))
    changes = {"layers": layers, "moe_layers": layers - dense if moe else 0.0}
    if row.vocab:
        changes["vocab"] = float(row.vocab)
    if row.ffn and not moe:
        changes["ffn"] = float(row.ffn)
    if row.kv_heads and not float(known.kv_rank):
        changes["kv_heads"] = float(row.kv_heads)
    stated = {name: float(value) for name in _FIELDS if (value := getattr(known, name)) is not None}
    return replace(_transformer(**stated | changes), kinds=known.kinds)  # shares of layers stay at another depth


def _inferred(row: MeasuredRow, assumed: list[str]) -> Transformer:
    """Infer a model from the row's columns alone; head size and gating follow from the parameter count."""
    layers, hidden, ffn, heads = (float(getattr(row, name)) for name in ("layers", "hidden", "ffn", "heads"))
    family = _FAMILIES[row.model_family or "llama"]
    assumed += [name for name in ("vocab", "kv_heads") if getattr(row, name) is None]
    experts = float(row.moe_experts or 0)

    def build(head: float, matrices: float, tied: float | None = None) -> dict[str, float]:
        return dict(
            layers=layers, hidden=hidden, ffn=ffn, mlp_matrices=matrices, heads=heads,
            kv_heads=float(row.kv_heads or heads), qk_dim=head, v_dim=head, vocab=float(row.vocab or family.vocab),
            tied_embeddings=float(matrices == 2.0) if tied is None else tied, experts=experts,
            moe_layers=layers - float(row.dense_layers or 0) if experts else 0.0,
            experts_per_token=float(row.moe_topk or 1) if experts else 0.0, expert_ffn=ffn if experts else 0.0,
            parallel_layers=family.parallel_layers,
        )  # fmt: skip

    native = float(row.head_dim or family.head_dim or hidden / heads)
    usual = [hidden / heads, 128.0] + ([256.0] if heads * 256 == hidden else [])
    head_sizes = [native] if row.head_dim else [native, *(size for size in sorted(usual) if size != native)]
    both = (family.mlp_matrices, 5.0 - family.mlp_matrices)
    choices = [build(head, m) for head in head_sizes for m in both]
    if family.mlp_matrices == 3.0:  # small models of gated families often tie the embeddings
        choices.append(build(native, 3.0, tied=1.0))
    if not row.params_B or row.reduced_depth:
        assumed.append("mlp_matrices")
        return _transformer(**choices[0])
    off = [abs(np.log(_parameters(**choice) / (row.params_B * 1e9))) for choice in choices]
    best = int(np.argmin(off))
    # The family's default is used unless the parameter count clearly contradicts it.
    return _transformer(**choices[best if off[best] < 0.08 and off[0] - off[best] > 0.04 else 0])


@cache
def _transformer(**values: float) -> Transformer:
    values["misaligned_heads"] = misaligned(values["qk_dim"], values["v_dim"])
    own = [name for name, each in _FIELDS.items() if name in values or not each.absent]
    return Transformer(**{name: catalog.leaf(values.get(name, 0.0)) for name in own})


@cache
def _parameters(**values: float) -> float:
    return float(total_parameters(_transformer(**values)))
