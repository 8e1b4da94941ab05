"""Common building blocks of models as operators: attention, MLPs, experts, state-space layers, embeddings."""

from collections.abc import Sequence

from hwopt.workload.operator_kinds import (
    CHANNELS,
    COLUMNS,
    INNER,
    RESIDUAL,
    Attention,
    Elementwise,
    Experts,
    Gemm,
    Lookup,
    Operator,
    Scan,
)

Block = Sequence[Operator]


def _norm(count: float, hidden: float) -> Operator:
    return Elementwise(count=count, channels=hidden, kept=1.0, weights=1.0, split=RESIDUAL)


def _added(count: float, hidden: float) -> Operator:
    return Elementwise(count=count, channels=hidden, reads=2.0, split=RESIDUAL)


def attention_block(
    count: float, hidden: float, heads: float, kv_heads: float, width: float, *, causal: bool, rotary: bool = False
) -> list[Operator]:
    """Return an attention block: norm, one product for queries, keys and values, attention, output product, residual sum."""
    queries, keys = heads * width, kv_heads * width
    rotation = Elementwise(count=count, channels=queries + keys, split=CHANNELS)
    return [
        _norm(count, hidden),
        Gemm(count=count, inputs=hidden, outputs=queries + 2.0 * keys, split=COLUMNS),
        *([rotation] if rotary else []),
        Attention(count=count, heads=heads, kv_heads=kv_heads, width=width, causal=float(causal), split=CHANNELS),
        Gemm(count=count, inputs=queries, outputs=hidden, split=INNER),
        _added(count, hidden),
    ]


def mlp_block(count: float, hidden: float, ffn: float, *, gated: bool = False) -> list[Operator]:
    """Return an MLP block: norm, the MLP (gated: three matrices, plain: two) with its activation, residual sum."""
    up = 2.0 if gated else 1.0
    return [
        _norm(count, hidden),
        Gemm(count=count, inputs=hidden, outputs=up * ffn, split=COLUMNS),
        Elementwise(count=count, channels=ffn, reads=up, kept=up, split=CHANNELS),
        Gemm(count=count, inputs=ffn, outputs=hidden, split=INNER),
        _added(count, hidden),
    ]


def experts_block(count: float, hidden: float, ffn: float, experts: float, chosen: float) -> list[Operator]:
    """Return an expert block: norm, router, gated MLPs of each token's `chosen` experts, residual sum. All replicas have
    all experts.
    """
    each = {"count": count, "experts": experts, "chosen": chosen}
    return [
        _norm(count, hidden),
        Gemm(count=count, inputs=hidden, outputs=experts, wide=1.0, kept=0.0),
        Elementwise(count=count, channels=chosen * hidden, reads=2.0, writes=2.0),  # dispatch to the experts and back
        Experts(inputs=hidden, outputs=2.0 * ffn, **each),
        Elementwise(count=count, channels=chosen * ffn, reads=2.0, kept=2.0),
        Experts(inputs=ffn, outputs=hidden, **each),
        _added(count, hidden),
    ]


def mamba_block(count: float, hidden: float, inner: float, state: float, rank: float, window: float) -> list[Operator]:
    """Return a Mamba block.

    Its operators are a norm, the input product (values and gate), a causal convolution, and the products for B, C and
    the time step. The selective scan, the gate, the output product and the residual sum follow.

    **Source:** Gu and Dao, arXiv 2312.00752, figure 3.
    """
    return [
        _norm(count, hidden),
        Gemm(count=count, inputs=hidden, outputs=2.0 * inner),
        Elementwise(count=count, channels=inner, kept=1.0, weights=window + 1.0),
        Gemm(count=count, inputs=inner, outputs=rank + 2.0 * state, kept=0.0),
        Gemm(count=count, inputs=rank, outputs=inner),
        Scan(count=count, channels=inner, state=state),
        # The state matrix A and the weights of D and of the step's bias belong to the scan.
        Elementwise(count=count, channels=inner, reads=2.0, kept=1.0, weights=state + 2.0),
        Gemm(count=count, inputs=inner, outputs=hidden),
        _added(count, hidden),
    ]


def words(vocab: float, hidden: float, *, tied: bool = False) -> list[Operator]:
    """Return the token embedding, the last norm, and the output head; a tied head shares the embedding's weights."""
    table: list[Operator] = [] if tied else [Lookup(entries=vocab, width=hidden, split=CHANNELS)]
    return [*table, _norm(1.0, hidden), Gemm(inputs=hidden, outputs=vocab, wide=1.0, split=COLUMNS)]
