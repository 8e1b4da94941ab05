"""Work of one layer of one kind, before any split over chips: the only description of a layer that the model reads.

`layer_work` starts from attention and an MLP or a mixture of experts. Each further mechanism (`hwopt.workload.mechanisms`) adds
its part where the shape states it, and nothing where it does not.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from hwopt.types import Scalar, numpy_or_jax

if TYPE_CHECKING:
    from hwopt.workload.transformer import Transformer

MIXER, DENSE, MOE, EXPERTS = "mixer", "dense", "moe", "experts"
"""Places of a product: attention or scan, a dense MLP, a MoE layer without its routed experts, the routed experts."""

COLUMNS, INNER, PARTS, WHOLE, TOKENS = "columns", "inner", "parts", "whole", "tokens"
"""Dimensions that tensor parallelism divides: columns, inner dimension, groups of columns (at least one a chip), none, rows."""


def stated(part: Scalar | float) -> bool:
    """Return whether a part of a layer's work is stated: all numbers of a shape are arrays, and only an absent part is a `float`.

    NumPy's scalars are subclasses of `float`, and stated.
    """
    return type(part) is not float


def where_of(shape: Transformer) -> Any:
    """Return `where` of `jax.numpy` if any number of a shape is a JAX array, else of NumPy."""
    return numpy_or_jax(*jax.tree.leaves(shape)).where


def total(*parts: Scalar | float) -> Scalar:
    """Return the sum of the parts that are not the constant 0.0, so that an absent mechanism leaves no trace."""
    present: list[Any] = [each for each in parts if stated(each) or each != 0.0]
    return reduce(add, present) if present else np.float64(0.0)  # pyright: ignore[reportReturnType]


class Product(NamedTuple):
    """A matrix product that each token of a layer passes once: `outputs = inputs W`."""

    name: str
    inputs: Scalar  # inner dimension
    outputs: Scalar  # columns; of one part, where the product has parts
    place: str
    split: str
    parts: Scalar | float = 1.0
    low_precision: float = 1.0  # 1: runs in the run's GEMM format, 0: stays wide, 16 bit or more

    @property
    def weights(self) -> Scalar:
        """Return the number of weights: `inputs outputs parts`."""
        return self.inputs * self.outputs * self.parts


class Core(NamedTuple):
    """Work of a layer besides products and elementwise passes: attention, the scores of an indexer, a scan.

    A token attends to a span of keys: all before it, or the last `window` ones in a share `local` of the layers.
    """

    key_flops: Scalar  # for a token and a key of its span
    decode_flops: Scalar  # the same for a generated token
    token_flops: Scalar | float  # for a token, independent of its span
    decode_token_flops: Scalar | float  # the same for a generated token
    streamed: Scalar | float  # elements that pass through HBM for a token
    score_bytes: Scalar | float  # bytes that pass through HBM for a token and a key of its span
    local: Scalar | float
    window: Scalar | float
    whole: Scalar | float = 0.0  # 1: each tensor-parallel rank does all of it
    masked_flops: Scalar | float = (
        0.0  # for a token and any key before it, in a kernel that computes all and masks most
    )
    kernels: Scalar | float = 1.0  # launched forward
    state_bytes: Scalar | float = 0.0  # that a generated token reads and writes


class Cache(NamedTuple):
    """Elements that one token leaves in the cache of a layer, in parts that tensor parallelism divides, at least one a chip."""

    parts: Scalar | float
    elements: Scalar  # of one part
    local: Scalar | float  # share of the layers that keep only the last `window` tokens
    window: Scalar | float
    read_local: Scalar | float | None = None  # as `local`, of the tokens that a pass reads, where they are fewer
    read_window: Scalar | float | None = None


class LayerWork(NamedTuple):
    """What one layer costs per token and per sequence.

    The FLOPs of a product are `2 inputs outputs parts` a token; a routed product counts once for each of the token's experts.
    """

    products: tuple[Product, ...]
    heads: Scalar  # query heads; 0 without attention
    kv_parts: Scalar  # heads of keys and values; for latent attention each head has its own once they are expanded
    kv_least: Scalar  # parts that each chip has at least: 1, or 0 with a latent or without attention
    qk_dim: Scalar
    v_dim: Scalar
    cores: tuple[Core, ...]  # attention first
    caches: tuple[Cache, ...]  # that of attention first
    latent: Scalar  # elements of latent projections of a token, which every tensor-parallel rank has
    state_bytes: Scalar | float = 0.0  # of one sequence, independent of its length; tensor parallelism divides it
    halves: Scalar | float = 2.0  # 2: a mixer and an MLP, each with a norm and a residual sum; 1: one of them
    mixers: Scalar | float = 1.0  # 1: has a mixer, whose output tensor-parallel ranks add up
    channels: Scalar | float = 0.0  # elements of further elementwise passes for a token, each read or written once
    kept: Scalar | float = (
        0.0  # elements of a token kept for the backward pass, in addition to those of attention and MLP
    )
    ring: Scalar | float = 0.0  # elements of a token that context parallelism gathers, in addition to keys and values
    vectors: Scalar | float = 0.0  # weights outside products and norms

    def placed(self, place: str, *, replicated: bool | None = None) -> Scalar:
        """Return the weights of all products at a place.

        **Arguments:** `replicated`: True for those that each tensor-parallel rank has (of products that divide tokens), False
        for the others, None for both.
        """
        own = (each for each in self.products if each.place == place)
        return total(*(each.weights for each in own if replicated in (None, each.split == TOKENS)))


def layer_work(shape: Transformer) -> LayerWork:
    """Return the work of one layer of a shape whose layers are alike but for dense MLPs and mixtures of experts.

    Products of both are in the table; the caller counts those at the places that the layer has. Attention has the products
    of DeepSeek-V2 (arXiv 2405.04434, section 2.1) where the shape has a latent, else those of grouped queries.
    """
    s, where = shape, where_of(shape)
    own = (lambda number: number) if s.attends is None else (lambda number: s.attends * number)  # of attention, if any
    latent, has_latent = s.query_rank + s.kv_rank + s.rope_dim, s.kv_rank > 0
    up, shared = s.mlp_matrices - 1.0, s.shared_experts * s.expert_ffn
    some = lambda width: s.hidden * where(width > 0, 1.0, 0.0)
    kv_parts, heads = own(where(has_latent, s.heads, s.kv_heads)), own(s.heads)
    kv_width = where(has_latent, s.qk_dim - s.rope_dim + s.v_dim, s.qk_dim + s.v_dim)
    if s.shared_projection is not None:
        kv_width = kv_width - s.shared_projection * s.v_dim
    products = (
        Product("latent_down", s.hidden, own(latent), MIXER, WHOLE),
        Product("query", where(s.query_rank > 0, s.query_rank, s.hidden), heads * s.qk_dim, MIXER, COLUMNS),
        Product("key_value", where(has_latent, s.kv_rank, s.hidden), kv_width, MIXER, PARTS, kv_parts),
        Product("attention_output", s.heads * s.v_dim, own(s.hidden), MIXER, INNER),
        Product("mlp_up", s.hidden, up * s.ffn, DENSE, COLUMNS),
        Product("mlp_down", s.ffn, some(s.ffn), DENSE, INNER),
        Product("router", s.hidden, s.experts, MOE, TOKENS, low_precision=0.0),
        Product("expert_up", s.hidden, up * s.expert_ffn, EXPERTS, COLUMNS),
        Product("expert_down", s.expert_ffn, s.hidden, EXPERTS, INNER),
        Product("shared_up", s.hidden, up * shared, MOE, COLUMNS),
        Product("shared_down", shared, some(shared), MOE, INNER),
    )
    width = s.qk_dim + s.v_dim
    absorbed = where(has_latent, 2.0 * s.kv_rank + s.rope_dim, width)  # the latent itself is multiplied
    pairs = 2.0 * heads
    core = Core(
        pairs * width, pairs * absorbed, 0.0, 0.0, 0.0, 0.0, s.local_layers_fraction, s.window_tokens, kernels=own(1.0)
    )
    element = own(where(has_latent, s.kv_rank + s.rope_dim, width))
    cache = Cache(where(has_latent, 1.0, s.kv_heads), element, s.local_layers_fraction, s.window_tokens)
    work = LayerWork(
        products,
        heads,
        kv_parts,
        own(where(has_latent, 0.0, 1.0)),
        s.qk_dim,
        s.v_dim,
        (core,),
        (cache,),
        latent=own(latent),
    )
    for field, mechanism in mechanisms():
        if getattr(s, field) is not None:
            work = mechanism(s, work)
    return work if s.attends is None else work._replace(**_halves(s, where))


def products_of(shape: Transformer) -> tuple[Product, ...]:
    """Return the products of a shape's table, with their names, places and splits; their numbers are those of no model.

    Which products there are follows from the mechanisms that a shape states. Their names enter no trace.
    """
    return _products(jax.tree.structure(shape))


@cache
def _products(structure: Any) -> tuple[Product, ...]:
    shape = jax.tree.unflatten(structure, [np.float64(1.0)] * structure.num_leaves)
    return layer_work(shape).products


def _halves(s: Transformer, where: Any) -> dict[str, Scalar]:
    """Return the halves of a layer that may lack a mixer or an MLP."""
    scans = 0.0 if s.scan_heads is None else where(s.scan_heads > 0, 1.0, 0.0)
    mixers = where((1.0 if s.attends is None else s.attends) + scans > 0, 1.0, 0.0)
    mlps = where(s.ffn + s.moe_layers > 0, 1.0, 0.0)
    return {"mixers": mixers, "halves": mixers + mlps}


def mechanisms() -> tuple[tuple[str, Any], ...]:
    """Return the field that states each mechanism, and the function that adds its work."""
    from hwopt.workload.mechanisms import indexer, latent_experts, output_gate, scan

    return (
        ("gate_dim", output_gate.add),
        ("index_heads", indexer.add),
        ("scan_heads", scan.add),
        ("expert_hidden", latent_experts.add),
    )
