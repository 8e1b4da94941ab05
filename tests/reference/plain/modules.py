"""Layers as their published modules list them: every weight matrix by its shape, and every matrix product of an algorithm.

Nothing here is read from the model under test: a layer is a list of tensors, an algorithm a list of products `(m, k, n, times)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True)
class Layer:
    """One layer, or one half of it: mixer, or MLP."""

    matrices: dict[str, tuple[float, ...]] = field(default_factory=dict)  # (inputs, outputs), each used once by a token
    experts: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of one routed expert
    vectors: dict[str, tuple[float, ...]] = field(default_factory=dict)  # other than biases
    expert_count: float = 0.0
    experts_used: float = 0.0
    span_flops: float = 0.0  # of a token, for each key that it attends to
    score_flops: float = 0.0  # of a token, for each key before it
    token_flops: float = 0.0  # of a token, whatever is before it
    decode_span_flops: float = 0.0  # as `span_flops`, of a generated token
    decode_token_flops: float = 0.0
    most_keys: float = float("inf")  # that a token attends to
    most_kept: float = float("inf")  # tokens of which it keeps keys and values
    cache: float = 0.0  # elements that a token leaves
    state: float = 0.0  # elements of 32 bit that a sequence keeps
    inputs_kept: float = 0.0  # elements of 16 bit that it keeps beside

    def __add__(self, other: Layer) -> Layer:
        both = {}
        for name in self.__dataclass_fields__:
            a, b = getattr(self, name), getattr(other, name)
            both[name] = a | b if isinstance(a, dict) else min(a, b) if name.startswith("most") else a + b
        return Layer(**both)

    @property
    def product_weights(self) -> float:
        """Weights of all products but the routed experts'."""
        return sum(map(prod, self.matrices.values()))

    @property
    def expert_weights(self) -> float:
        """Weights of one routed expert."""
        return sum(map(prod, self.experts.values()))

    @property
    def weights(self) -> float:
        small = sum(map(prod, self.vectors.values()))
        return self.product_weights + small + self.expert_count * self.expert_weights

    @property
    def used_weights(self) -> float:
        return self.weights - (self.expert_count - self.experts_used) * self.expert_weights

    @property
    def product_flops(self) -> float:
        """FLOPs of a token in all matrix products with weights, forward."""
        used = [*self.matrices.values(), *(self.experts.values() if self.experts else ())]
        times = [1.0] * len(self.matrices) + [self.experts_used] * len(self.experts)
        return sum(2.0 * prod(shape) * n for shape, n in zip(used, times, strict=True))

    def core_flops(self, keys: float) -> float:
        """FLOPs of a token between those products, with so many keys before it that it may attend to.

        A token with a choice of its own multiplies what a cache holds, as a generated token does.
        """
        pair = self.span_flops if self.most_keys == float("inf") else self.decode_span_flops
        return min(keys, self.most_keys) * pair + keys * self.score_flops + self.token_flops

    def decode_flops(self, keys: float) -> float:
        """The same of a generated token."""
        attended = min(keys, self.most_keys) * self.decode_span_flops
        return attended + keys * self.score_flops + self.decode_token_flops

    def mean_core_flops(self, tokens: float) -> float:
        """The mean of `core_flops` over the tokens of a sequence: the area below a line with one bend, by trapezes.

        A kernel may compute all keys and mask those that are not chosen, if that is less.
        """
        bend = min(tokens, self.most_keys)
        at = [self.core_flops(each) for each in (0.0, bend, tokens)]
        own = (0.5 * (at[0] + at[1]) * bend + 0.5 * (at[1] + at[2]) * (tokens - bend)) / tokens
        return min(own, 0.5 * tokens * (self.span_flops + self.score_flops) + self.token_flops)

    def sequence_bytes(self, tokens: float, element_bytes: float) -> float:
        """Bytes of the cache and of the state of a sequence: states of 32 bit, inputs of a convolution of 16."""
        cached = min(tokens, self.most_kept) * self.cache * element_bytes
        return cached + 4.0 * self.state + 2.0 * self.inputs_kept


def flops(*products: tuple[float, float, float, float]) -> float:
    """FLOPs of products of (m, k) by (k, n) matrices, each so many times."""
    return sum(2.0 * m * k * n * times for m, k, n, times in products)


# Attention -----------------------------------------------------------------------------------------------------------


def grouped(hidden, heads, kv_heads, dim, v_dim=None, gate=None, shared=False) -> Layer:
    """Grouped-query attention: `q_proj`, `k_proj`, `v_proj`, `o_proj`; `gate` columns a head in `g_proj`.

    A token multiplies its query by each key and its scores by each value.
    """
    v = dim if v_dim is None else v_dim
    matrices = {
        "q_proj": (hidden, heads * dim),
        "k_proj": (hidden, kv_heads * dim),
        "o_proj": (heads * v, hidden),
    }
    if not shared:
        matrices["v_proj"] = (hidden, kv_heads * v)
    if gate is not None:
        matrices["g_proj"] = (hidden, heads * gate)
    pair = flops((1, dim, 1, heads), (1, 1, v, heads))
    return Layer(matrices, span_flops=pair, decode_span_flops=pair, cache=kv_heads * dim + kv_heads * v)


def latent(hidden, heads, q_rank, kv_rank, nope, rope, v) -> Layer:
    """Multi-head latent attention of DeepSeek-V2: `q_a_proj`, `q_b_proj`, `kv_a_proj_with_mqa`, `kv_b_proj`, `o_proj`.

    A prompt expands keys and values of each head. A generated token multiplies the latent and the rotary key, which are
    what a cache holds, by its absorbed query, and its scores by the latent.
    """
    query = {"q_a_proj": (hidden, q_rank), "q_b_proj": (q_rank, heads * (nope + rope))}
    matrices = query if q_rank else {"q_proj": (hidden, heads * (nope + rope))}
    matrices |= {
        "kv_a_proj_with_mqa": (hidden, kv_rank + rope),
        "kv_b_proj": (kv_rank, heads * (nope + v)),
        "o_proj": (heads * v, hidden),
    }
    return Layer(
        matrices,
        span_flops=flops((1, nope + rope, 1, heads), (1, 1, v, heads)),
        decode_span_flops=flops((1, kv_rank + rope, 1, heads), (1, 1, kv_rank, heads)),
        cache=kv_rank + rope,
    )


def indexer(hidden, q_rank, heads, dim, keys) -> Layer:
    """The indexer of DeepSeek-V3.2 (`wq_b`, `wk`, `weights_proj`), or of MiniMax-M3 where no latent is there."""
    matrices = {"index_q": (q_rank or hidden, heads * dim), "index_k": (hidden, dim)}
    if q_rank:
        matrices["weights_proj"] = (hidden, heads)
    return Layer(matrices, score_flops=flops((1, dim, 1, heads)), most_keys=keys, cache=dim)


# Scans ---------------------------------------------------------------------------------------------------------------

DELTA_CHUNK, SUM_CHUNK = 64, 128


def delta_rule(heads, n, p, c=DELTA_CHUNK) -> float:
    """FLOPs of one chunk of c tokens of the gated delta rule in its WY form, by matrix product.

    A triangular system of c rows a head, which no product solves, is left out: below 3 % of these FLOPs.
    """
    return flops(
        (c, n, c, heads),  # K K^T, of which T is the inverse of a triangle
        (c, c, n, heads),  # W = T K
        (c, c, p, heads),  # U = T V
        (c, n, p, heads),  # V' = U - W S
        (c, n, c, heads),  # Q K^T
        (c, c, p, heads),  # (Q K^T) V'
        (c, n, p, heads),  # Q S
        (n, c, p, heads),  # S + K^T V'
    )


def delta_step(heads, n, p) -> float:
    """One generated token: what the state says of the key, the correction, what it says of the query."""
    return flops((1, n, p, heads), (n, 1, p, heads), (1, n, p, heads))


def gated_delta(hidden, key_heads, heads, n, p, conv) -> Layer:
    """Gated delta net of Qwen3-Next and Qwen3.5."""
    k, v = key_heads * n, heads * p
    return Layer(
        {
            "in_proj_qkvz": (hidden, k + k + v + v),
            "in_proj_ba": (hidden, heads + heads),
            "out_proj": (v, hidden),
        },
        vectors={"conv1d": (k + k + v, conv), "A_log": (heads,), "dt_bias": (heads,), "norm": (p,)},
        token_flops=delta_rule(heads, n, p) / DELTA_CHUNK,
        decode_token_flops=delta_step(heads, n, p),
        state=heads * n * p,
        inputs_kept=(conv - 1) * (k + k + v),
    )


def kimi_delta(hidden, heads, dim, conv, rank) -> Layer:
    """Kimi delta attention, with decays and output gate of low rank."""
    wide = heads * dim
    return Layer(
        {
            "q_proj": (hidden, wide),
            "k_proj": (hidden, wide),
            "v_proj": (hidden, wide),
            "b_proj": (hidden, heads),
            "f_a_proj": (hidden, rank),
            "f_b_proj": (rank, wide),
            "g_a_proj": (hidden, rank),
            "g_b_proj": (rank, wide),
            "o_proj": (wide, hidden),
        },
        vectors={
            "q_conv1d": (wide, conv),
            "k_conv1d": (wide, conv),
            "v_conv1d": (wide, conv),
            "A_log": (heads,),
            "dt_bias": (wide,),
            "o_norm": (dim,),
        },
        token_flops=delta_rule(heads, dim, dim) / DELTA_CHUNK,
        decode_token_flops=delta_step(heads, dim, dim),
        state=heads * dim * dim,
        inputs_kept=(conv - 1) * 3 * wide,
    )


def mamba2(hidden, heads, p, groups, n, conv, c=SUM_CHUNK) -> Layer:
    """Mamba-2: queries are C, keys B, of each group; values x of each head."""
    inner, both = heads * p, 2 * groups * n
    chunk = flops(
        (c, n, c, groups),  # C B^T
        (c, c, p, heads),  # (L * C B^T) x
        (n, c, p, heads),  # B^T x: the chunk's state
        (c, n, p, heads),  # C times the state before it
    )
    return Layer(
        {"in_proj": (hidden, 2 * inner + both + heads), "out_proj": (inner, hidden)},
        vectors={
            "conv1d": (inner + both, conv),
            "A_log": (heads,),
            "D": (heads,),
            "dt_bias": (heads,),
            "norm": (inner,),
        },
        token_flops=chunk / c,
        decode_token_flops=flops((n, 1, p, heads), (1, n, p, heads)),
        state=heads * n * p,
        inputs_kept=(conv - 1) * (inner + both),
    )


# Second halves -------------------------------------------------------------------------------------------------------


def mlp(hidden, ffn, matrices=3) -> Layer:
    names = ("up_proj", "gate_proj")[: matrices - 1]
    return Layer({name: (hidden, ffn) for name in names} | {"down_proj": (ffn, hidden)})


def mixture(hidden, experts, used, width, shared_width=0, matrices=3, narrow=None) -> Layer:
    """A mixture of experts: `gate` (router), shared expert at the model's width, experts at a narrower one where stated."""
    own = narrow or hidden
    beside = {f"shared_{name}": shape for name, shape in mlp(hidden, shared_width, matrices).matrices.items()}
    beside = beside if shared_width else {}
    if narrow:
        beside |= {"fc1_latent_proj": (hidden, narrow), "fc2_latent_proj": (narrow, hidden)}
    return Layer(
        {"router": (hidden, experts), **beside},
        experts=mlp(own, width, matrices).matrices,
        expert_count=experts,
        experts_used=used,
    )


def normed(hidden, *halves: Layer) -> Layer:
    """A layer of one or two halves, each with its norm."""
    whole = Layer(vectors={f"norm_{i}": (hidden,) for i in range(len(halves))})
    for half in halves:
        whole += half
    return whole


def model(vocab, hidden, layers: list[Layer], tied=False) -> tuple[float, float]:
    """All weights of a model, and those that a token uses."""
    tables = vocab * hidden * (1 if tied else 2) + hidden
    return tables + sum(each.weights for each in layers), tables + sum(each.used_weights for each in layers)
