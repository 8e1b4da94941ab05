"""The shape of a transformer, and its parameter counts in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import singledispatch

import equinox as eqx
from jaxtyping import Array

from hwopt.quantity import quantities, quantity, ratio, switch
from hwopt.types import Scalar
from hwopt.workload.layer_work import DENSE, EXPERTS, MIXER, MOE, layer_work, total

TOKEN = "token"
"""Unit of work of text models; any other unit is one sample, with as many tokens as a sequence has."""


class LayerKinds(eqx.Module):
    """Layers of several kinds in one model: how many there are of each, and the fields in which they differ.

    **Shapes:** (kind,) for every array.
    """

    values: dict[str, Array]  # by field of `Transformer`
    share: Array = switch("share of the model's layers", key="")
    moe: Array = switch("1: a mixture of experts, 0: a dense MLP or none", key="")


class Transformer(eqx.Module):
    """A decoder-only transformer: dense or MoE, with multi-head, grouped-query or latent attention, or a recurrent scan.

    Latent attention (MLA) has `query_rank` and `kv_rank` above zero; `qk_dim` is then nope + rope. All fields are
    floating-point, so a shape is differentiable like the other inputs. A mechanism that no layer has is None in all its
    fields and absent from the model's trace. Where layers differ, `kinds` states the fields that do.
    """

    layers: Scalar = ratio("decoder layers")
    hidden: Scalar = ratio("model width")
    ffn: Scalar = ratio("inner width of a dense layer")
    mlp_matrices: Scalar = switch("3: gated (gate, up, down), 2: plain")
    heads: Scalar = ratio("query heads")
    kv_heads: Scalar = ratio("key and value heads")
    qk_dim: Scalar = ratio("width of one query or key head")
    v_dim: Scalar = ratio("width of one value head")
    query_rank: Scalar = ratio("MLA: rank of the query projection, 0: full", default=0.0)
    kv_rank: Scalar = ratio("MLA: rank of the shared key-value latent, 0: none", default=0.0)
    rope_dim: Scalar = ratio("MLA: width of the shared rotary key", default=0.0)
    vocab: Scalar = ratio("entries of the embedding")
    tied_embeddings: Scalar = switch("1: the output head is the embedding", most=1.0)
    learned_positions: Scalar = ratio("rows of a learned position table, 0: none", default=0.0)
    moe_layers: Scalar = ratio("how many of the layers are MoE", default=0.0)
    experts: Scalar = ratio("routed experts a MoE layer", default=0.0)
    experts_per_token: Scalar = switch("routed experts per token", default=0.0)
    shared_experts: Scalar = switch("experts that process every token", default=0.0)
    expert_ffn: Scalar = ratio("inner width of an expert", default=0.0)
    local_layers_fraction: Scalar = ratio(
        "share of layers with sliding-window or chunked attention", default=0.0, most=1.0
    )
    window_tokens: Scalar = quantity("token", "width of that window", default=1e9)
    parallel_layers: Scalar = switch(
        "1: attention and MLP read the same input and are added at once (PaLM, GPT-J, Falcon)", default=0.0, most=1.0
    )

    routed_groups: Scalar = switch(
        "groups of experts, one a scale-up domain, that a token's experts lie in at most (node-limited routing); 0: any",
        default=0.0,
    )
    misaligned_heads: Scalar = switch(
        "1: a head's width is no multiple of 8, so that products of scores leave the fast path of tensor cores",
        default=0.0,
        most=1.0,
    )
    attends: Scalar | None = switch("1: the layer has attention, 0: none", absent=True, most=1.0)
    gate_dim: Scalar | None = ratio(
        "width of a head's output gate: that of a value, or 1 for one gate a head", absent=True
    )
    shared_projection: Scalar | None = switch("1: keys are also values, from one projection", absent=True, most=1.0)
    index_heads: Scalar | None = ratio("indexer: heads that score all keys", absent=True)
    index_dim: Scalar | None = ratio("indexer: width of one head and of its shared key", absent=True)
    index_tokens: Scalar | None = quantity(
        "token", "keys with the highest scores, which alone are attended", absent=True
    )
    scan_heads: Scalar | None = ratio("scan: heads of values, each with a state", absent=True)
    scan_key_heads: Scalar | None = ratio("scan: heads (groups) of queries and keys", absent=True)
    scan_key_dim: Scalar | None = ratio("scan: width of a query or key, rows of a state", absent=True)
    scan_value_dim: Scalar | None = ratio("scan: width of a value, columns of a state", absent=True)
    scan_conv: Scalar | None = ratio("scan: tokens of its short convolution", absent=True)
    scan_gates: Scalar | None = ratio(
        "scan: columns of the input product for gates and decays of each head", absent=True
    )
    scan_delta: Scalar | None = switch("scan: 1: delta rule, 0: plain sum", absent=True, most=1.0)
    scan_decay_rank: Scalar | None = ratio("scan: rank of a decay by channel, 0: one decay a head", absent=True)
    scan_gate_rank: Scalar | None = ratio("scan: rank of the output gate, 0: full", absent=True)
    expert_hidden: Scalar | None = ratio(
        "width of the routed experts' inputs, where it is not the model's", absent=True
    )
    kinds: LayerKinds | None = None  # None: dense layers, then `moe_layers` alike

    @property
    def unit_of_work(self) -> str:
        """Return the unit of rates and costs."""
        return TOKEN

    @property
    def dense_layers(self) -> Scalar:
        return self.layers - self.moe_layers

    @property
    def mechanisms(self) -> list[str]:
        """Return the fields of the mechanisms that the shape states, and `kinds` where its layers are of several kinds."""
        stated = [
            name for name, each in quantities(Transformer).items() if each.absent and getattr(self, name) is not None
        ]
        return stated + ["kinds"] * (self.kinds is not None)

    @property
    def each_kind(self) -> Transformer:
        """Return a shape for each kind of layers, in which all layers are of that kind. **Shapes:** (kind,) where kinds differ."""
        assert self.kinds is not None
        return self.alike(self.kinds.moe, self.kinds.values)

    def alike(self, moe: Array, values: Mapping[str, Array]) -> Transformer:
        """Return a shape in which all layers are of one type: experts where `moe` is 1, with other `values` of some fields."""
        return replace(self, kinds=None, moe_layers=self.layers * moe, **values)


MATRIX_TILE = 8
"""Tile size in elements (16 B): tensor cores reach full speed only if 16-bit matrix dimensions are multiples of this size.

**Source:** NVIDIA, Matrix Multiplication Background, User's Guide, requirements for tensor cores (recalled).
"""


def misaligned(qk_dim: float, v_dim: float) -> float:
    """Return 1 where a head's width is not a multiple of `MATRIX_TILE`, else 0, as in `Transformer.misaligned_heads`."""
    return float(bool(qk_dim % MATRIX_TILE or v_dim % MATRIX_TILE))


def shapes_of_kinds(shape: Transformer) -> list[Transformer]:
    """Return a shape for each kind of layers; the shape itself where it has no kinds. The numbers must be concrete."""
    if (kinds := shape.kinds) is None:
        return [shape]
    values = ({name: each[i] for name, each in kinds.values.items()} for i in range(len(kinds.moe)))
    return [shape.alike(moe, own) for moe, own in zip(kinds.moe, values, strict=True)]


def splits_heads(shape: Transformer, tp: int) -> bool:
    """Return whether a tensor-parallel degree gives each rank whole heads, in layers of every kind.

    Query heads must divide evenly. Key-value heads must divide evenly too or, where there are more ranks than heads,
    each be copied to the same number of ranks. Heads and groups of a scan divide in the same way.

    **Source:** Megatron-Core, where `num_query_groups` is a multiple or a divisor of the tensor-parallel size; vLLM
    does the same.
    """
    return all(
        heads % tp == 0 and (groups % tp == 0 or tp % groups == 0)
        for each in shapes_of_kinds(shape)
        for heads, groups in _heads_and_groups(each)
    )


def _heads_and_groups(shape: Transformer) -> Iterator[tuple[int, int]]:
    """Yield the query heads and key-value heads of attention, and heads and groups of a scan, where a layer has them."""
    whole = lambda value: round(float(value))
    if shape.attends is None or float(shape.attends):
        latent = float(shape.kv_rank) > 0.0  # every rank has the latent, and computes keys and values of its own heads
        yield whole(shape.heads), whole(shape.heads) if latent else whole(shape.kv_heads)
    if shape.scan_heads is not None and float(shape.scan_heads) > 0.0:
        yield whole(shape.scan_heads), whole(shape.scan_key_heads)


def cache_copies(shape: Transformer, tp: int) -> int:
    """Return the tensor-parallel ranks with the same keys and values: all for latent attention, else `max(t // k, 1)`."""
    groups = round(float(shape.kv_heads))
    return tp if float(shape.kv_rank) > 0.0 else max(tp // groups, 1)


def splits_tiles(shape: Transformer, tp: int) -> bool:
    """Return whether each rank's share of the MLP consists of whole tiles of `MATRIX_TILE`; also true if the whole MLP
    does not.
    """
    widths = (round(float(each.ffn)) for each in shapes_of_kinds(shape))
    return all(inner % MATRIX_TILE != 0 or inner % (tp * MATRIX_TILE) == 0 for inner in widths)


@singledispatch
def tensor_degrees(shape: Transformer) -> list[int]:
    """Return the tensor-parallel degrees that a model's heads and tiles allow, ascending."""
    heads = round(float(shape.heads))
    degrees = (t for t in range(1, heads + 1) if heads % t == 0)
    return [t for t in degrees if splits_heads(shape, t) and splits_tiles(shape, t)]


def attention_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one layer's attention or scan, without norms: those of its products at `MIXER`."""
    return layer_work(shape).placed(MIXER)


def dense_mlp_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one dense layer's MLP: `matrices h f`."""
    return layer_work(shape).placed(DENSE)


def expert_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one expert: `matrices h_e f_e`, with the width h_e of its inputs."""
    return layer_work(shape).placed(EXPERTS)


def embedding_parameters(shape: Transformer) -> Scalar:
    """Return the weights of token and position tables: `(V + positions) h`."""
    return (shape.vocab + shape.learned_positions) * shape.hidden


def head_parameters(shape: Transformer) -> Scalar:
    """Return the weights of the output head that are not shared with the embedding: `V h`, or 0 when tied."""
    return (1.0 - shape.tied_embeddings) * shape.vocab * shape.hidden


def mean_layer(shape: Transformer, of: Callable[[Transformer], Scalar]) -> Scalar:
    """Return the mean of a number over a model's layers, or over a model with only such layers for each kind.

    **Arguments:** `of`: its closed form for a shape whose layers are of one kind, built from elementwise operations.
    """
    if shape.kinds is None:
        return of(shape)
    each = of(shape.each_kind)
    return (shape.kinds.share * each).sum()


def kind_least(shape: Transformer, field: str) -> Scalar:
    """Return the smallest value of a field over a model's kinds of layers."""
    values = {} if shape.kinds is None else shape.kinds.values
    return values[field].min() if field in values else getattr(shape, field)


def layers_parameters(shape: Transformer) -> tuple[Scalar, Scalar]:
    """Return the weights of all layers: those that every token meets with norms and small vectors, and routed experts."""

    def own(s: Transformer) -> Scalar:
        work = layer_work(s)
        every = total(work.placed(MIXER), work.halves * s.hidden, work.vectors)
        return s.layers * every + s.dense_layers * work.placed(DENSE) + s.moe_layers * work.placed(MOE)

    routed = mean_layer(shape, lambda s: s.moe_layers * s.experts * expert_parameters(s))
    return mean_layer(shape, own), routed


@singledispatch
def total_parameters(shape: Transformer) -> Scalar:
    """Return all parameters in closed form, with two norms per layer and one at the end, without biases (below 0.1 %).

    Multi-token layers and towers for images or sound are not counted.
    """
    own, routed = layers_parameters(shape)
    return embedding_parameters(shape) + head_parameters(shape) + shape.hidden + own + routed


@singledispatch
def active_parameters(shape: Transformer) -> Scalar:
    """Return the parameters that one token uses: routed experts count as `experts_per_token` of `experts`."""
    idle = mean_layer(shape, lambda s: s.moe_layers * (s.experts - s.experts_per_token) * expert_parameters(s))
    return total_parameters(shape) - idle
