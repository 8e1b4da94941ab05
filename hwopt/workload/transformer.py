"""The shape of a transformer, and its parameter counts in closed form."""

from functools import singledispatch

import equinox as eqx
from jaxtyping import Array

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar, numpy_or_jax

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
    compressed_tokens: Scalar | None = ratio("tokens that one compressed key stands for", absent=True)
    output_groups: Scalar | None = ratio("groups of heads with an output projection of low rank", absent=True)
    output_rank: Scalar | None = ratio("rank of that projection, of each group", absent=True)
    residual_streams: Scalar | None = ratio("residual streams of hyper-connections", absent=True)
    kinds: LayerKinds | None = None  # None: dense layers, then `moe_layers` alike

    @property
    def unit_of_work(self) -> str:
        """Return the unit of rates and costs."""
        return TOKEN

    @property
    def dense_layers(self) -> Scalar:
        return self.layers - self.moe_layers


MATRIX_TILE = 8
"""Tile size in elements (16 B): tensor cores reach full speed only if 16-bit matrix dimensions are multiples of this size.

**Source:** NVIDIA, Matrix Multiplication Background, User's Guide, requirements for tensor cores (recalled).
"""


def misaligned(qk_dim: float, v_dim: float) -> float:
    """Return 1 where a head's width is not a multiple of `MATRIX_TILE`, else 0, as in `Transformer.misaligned_heads`."""
    return float(bool(qk_dim % MATRIX_TILE or v_dim % MATRIX_TILE))


def splits_heads(shape: Transformer, tp: int) -> bool:
    """Return whether a tensor-parallel degree gives each rank whole heads.

    Query heads must divide evenly. Key-value heads must divide evenly too or, where there are more ranks than heads,
    each be copied to the same number of ranks.

    **Source:** Megatron-Core, where `num_query_groups` is a multiple or a divisor of the tensor-parallel size; vLLM
    does the same.
    """
    heads, groups = round(float(shape.heads)), round(float(shape.kv_heads))
    latent = float(shape.kv_rank) > 0.0  # every rank has the latent, and computes keys and values of its own heads
    return heads % tp == 0 and (latent or groups % tp == 0 or tp % groups == 0)


def cache_copies(shape: Transformer, tp: int) -> int:
    """Return the tensor-parallel ranks with the same keys and values: all for latent attention, else `max(t // k, 1)`."""
    groups = round(float(shape.kv_heads))
    return tp if float(shape.kv_rank) > 0.0 else max(tp // groups, 1)


def splits_tiles(shape: Transformer, tp: int) -> bool:
    """Return whether each rank's share of the MLP consists of whole tiles of `MATRIX_TILE`; also true if the whole MLP
    does not.
    """
    inner = round(float(shape.ffn))
    return inner % MATRIX_TILE != 0 or inner % (tp * MATRIX_TILE) == 0


@singledispatch
def tensor_degrees(shape: Transformer) -> list[int]:
    """Return the tensor-parallel degrees that a model's heads and tiles allow, ascending."""
    heads = round(float(shape.heads))
    degrees = (t for t in range(1, heads + 1) if heads % t == 0)
    return [t for t in degrees if splits_heads(shape, t) and splits_tiles(shape, t)]


def attention_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one layer's attention.

    Grouped query: `h a d + h k (d + d_v) + a d_v h`. Latent (DeepSeek-V2, arXiv 2405.04434, section 2.1): `h r_q + r_q
    a d + h (r_kv + d_rope) + r_kv a (d - d_rope + d_v) + a d_v h`.
    """
    s = shape
    where = numpy_or_jax(s.query_rank).where
    query_inputs = where(s.query_rank > 0, s.query_rank, s.hidden)
    latent = s.hidden * (s.query_rank + s.kv_rank + s.rope_dim)
    query = query_inputs * s.heads * s.qk_dim
    grouped = s.hidden * s.kv_heads * (s.qk_dim + s.v_dim)
    uncompressed = s.kv_rank * s.heads * (s.qk_dim - s.rope_dim + s.v_dim)
    key_value = where(s.kv_rank > 0, uncompressed, grouped)
    return latent + query + key_value + s.heads * s.v_dim * s.hidden


def dense_mlp_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one dense layer's MLP: `matrices h f`."""
    return shape.mlp_matrices * shape.hidden * shape.ffn


def expert_parameters(shape: Transformer) -> Scalar:
    """Return the weights of one expert: `matrices h f_e`."""
    return shape.mlp_matrices * shape.hidden * shape.expert_ffn


def embedding_parameters(shape: Transformer) -> Scalar:
    """Return the weights of token and position tables: `(V + positions) h`."""
    return (shape.vocab + shape.learned_positions) * shape.hidden


def head_parameters(shape: Transformer) -> Scalar:
    """Return the weights of the output head that are not shared with the embedding: `V h`, or 0 when tied."""
    return (1.0 - shape.tied_embeddings) * shape.vocab * shape.hidden


@singledispatch
def total_parameters(shape: Transformer) -> Scalar:
    """Return all parameters in closed form, with two norms per layer and one at the end, without biases (below 0.1 %)."""
    s = shape
    norms = (2.0 * s.layers + 1.0) * s.hidden
    routed = s.moe_layers * (s.experts * expert_parameters(s) + s.hidden * s.experts)
    shared = s.moe_layers * s.shared_experts * expert_parameters(s)
    dense = s.dense_layers * dense_mlp_parameters(s)
    attention = s.layers * attention_parameters(s)
    return embedding_parameters(s) + head_parameters(s) + attention + dense + routed + shared + norms


@singledispatch
def active_parameters(shape: Transformer) -> Scalar:
    """Return the parameters that one token uses: routed experts count as `experts_per_token` of `experts`."""
    s = shape
    idle = s.moe_layers * (s.experts - s.experts_per_token) * expert_parameters(s)
    return total_parameters(s) - idle
