"""FLOPs and HBM traffic of one micro-batch on one chip: a table of GEMMs, the attention core, and memory-bound passes."""

from functools import singledispatch
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwopt.model.layers.parameters import expert_copies
from hwopt.model.numerics.maximum import above_zero, hard_maximum, several
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import PRECISION_BYTES, Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, active_parameters, head_parameters

GEMMS = (
    "latent_down",
    "query",
    "key_value",
    "attention_output",
    "mlp_up",
    "mlp_down",
    "router",
    "expert_up",
    "expert_down",
    "shared_up",
    "shared_down",
    "head",
)
"""Order of every axis named "gemm"."""


def _among(*names: str) -> np.ndarray:
    """Return an indicator over `GEMMS`: 1 for the named ones, 0 for the others.

    The values are exact in float32. A float64 array would promote float32 models to float64.
    """
    return np.array([name in names for name in GEMMS], np.float32)


IN_EVERY_LAYER = _among("latent_down", "query", "key_value", "attention_output")
IN_DENSE_LAYER = _among("mlp_up", "mlp_down")
IN_MOE_LAYER = _among("router", "shared_up", "shared_down")
IN_EXPERTS = _among("expert_up", "expert_down")
IN_LAST = _among("mlp_down", "expert_down", "shared_down")  # last product of a layer
IN_HEAD = _among("head")

PerGemm = Float[Array, "gemm"]


class Gemms(NamedTuple):
    """Dimensions of the GEMMs of one micro-batch on one chip, forward.

    **Shapes:** (gemm,) for every field.
    """

    m: PerGemm  # rows: tokens
    n: PerGemm  # columns: outputs
    k: PerGemm  # inner dimension
    n_launched: PerGemm  # columns of the launched kernel (query, key and value share one kernel)
    count: PerGemm  # number of equal GEMMs in a grouped kernel
    low_precision: PerGemm  # 1: runs in the run's GEMM format, 0: stays wide, 16 bit or more

    @property
    def flops(self) -> PerGemm:
        """FLOPs of each entry: `2 m n k count`."""
        return 2.0 * self.m * self.n * self.k * self.count


class Flow(NamedTuple):
    """Activations of one pass through the layers: a micro-batch in training, a batch in serving."""

    model: Transformer
    tokens: Scalar  # processed by a tensor-parallel group in the pass
    activation_bytes: Scalar
    routing_imbalance: Scalar


def flow(run: TrainingRun, plan: Plan) -> Flow:
    """Return the activations that one micro-batch of a training run sends through the layers."""
    uneven = run.routing_imbalance
    if run.routing is not None:  # one rank has all tokens
        uneven *= 1.0 + (run.routing.imbalance - 1.0) * several(plan.ep)
    return Flow(run.model, tokens_per_chip(run, plan), run.activation_bytes, uneven)


def batch_tokens(run: TrainingRun) -> Scalar:
    """Return the tokens of a step: `B s`, global batch size times sequence length."""
    return run.global_batch_sequences * run.sequence_length


def tokens_per_chip(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the tokens of one micro-batch in a tensor-parallel group: `b s / c`.

    b is the number of sequences of a micro-batch, s their length, c the number of context-parallel ranks.
    """
    return plan.micro_batch * run.sequence_length / plan.cp


def expert_rank_tokens(flow: Flow, plan: Plan) -> Scalar:
    """Return the token copies that the busiest expert rank computes: `expert_tp tokens k_experts / t imbalance`.

    Each token goes to k_experts experts; the layer has t tensor-parallel ranks, an expert has expert_tp.
    """
    return plan.expert_tp * routed_tokens(flow, plan) * imbalance(flow, plan)


def imbalance(flow: Flow, plan: Plan) -> Scalar:
    """Return the load of the busiest expert rank: its tokens over the mean.

    Without redundant experts it is the routing imbalance I. With s slots on each of e ranks and E experts it is
    `1 + (I - 1) / (1 + s - E / e)`. A rank is the busiest because of its most popular experts; one extra copy per rank moves
    half of the most popular expert's tokens elsewhere. This assumption is conservative. With known popularity and greedy
    placement, one copy per rank leaves almost no imbalance (`tests/unit/model/test_serving_layouts.py`). Changing popularity
    leaves more.
    """
    if plan.layout is None:
        return flow.routing_imbalance
    copies = 1.0 + plan.layout.expert_slots - flow.model.experts / plan.ep
    return 1.0 + (flow.routing_imbalance - 1.0) / copies


def routed_tokens(flow: Flow, plan: Plan) -> Scalar:
    """Return the token copies that one chip sends to experts: `tokens k_experts / t`.

    Each token goes to k_experts experts; the tokens are divided among t tensor-parallel ranks.
    """
    return flow.tokens / plan.tp * flow.model.experts_per_token


def kv_heads_per_chip(shape: Transformer, plan: Plan) -> Scalar:
    """Return the key-value heads on one chip.

    It is at least one: with more tensor-parallel ranks than heads, heads are replicated. There is a kink where both are equal.
    """
    return hard_maximum(shape.kv_heads / plan.tp, jnp.ones_like(plan.tp))


def gemms(flow: Flow, plan: Plan) -> Gemms:
    """Return the table of all GEMMs of a layer and the head, in the order of `GEMMS`.

    **Returns:** dimensions after sharding; a GEMM that the model lacks has n = 0.
    """
    w, t = flow.model, plan.tp
    tokens = flow.tokens
    latent = w.query_rank + w.kv_rank + w.rope_dim
    query_n = w.heads * w.qk_dim / t
    grouped_n = kv_heads_per_chip(w, plan) * (w.qk_dim + w.v_dim)
    latent_n = w.heads * (w.qk_dim - w.rope_dim + w.v_dim) / t
    has_kv_latent, has_query_latent = w.kv_rank > 0, w.query_rank > 0
    key_value_n = jnp.where(has_kv_latent, latent_n, grouped_n)
    fused = jnp.where(has_kv_latent, 0.0, 1.0)
    up = w.mlp_matrices - 1.0
    has_experts = w.experts > 0
    local_experts = jnp.where(has_experts, expert_copies(w, plan), 1.0) / plan.ep
    expert_tokens = expert_rank_tokens(flow, plan) / local_experts
    is_moe = jnp.where(has_experts, 1.0, 0.0)
    expert_up = up * w.expert_ffn / plan.expert_tp
    shared_ffn = w.shared_experts * w.expert_ffn
    rows = (
        # m, n, k, n of the launched kernel, count, low precision
        (tokens, latent, w.hidden, latent, 1.0, 1.0),
        (tokens, query_n, jnp.where(has_query_latent, w.query_rank, w.hidden), query_n + fused * key_value_n, 1.0, 1.0),
        (tokens, key_value_n, jnp.where(has_kv_latent, w.kv_rank, w.hidden), key_value_n + fused * query_n, 1.0, 1.0),
        (tokens, w.hidden, w.heads * w.v_dim / t, w.hidden, 1.0, 1.0),
        (tokens, up * w.ffn / t, w.hidden, up * w.ffn / t, 1.0, 1.0),
        (tokens, w.hidden * jnp.where(w.ffn > 0, 1.0, 0.0), w.ffn / t, w.hidden, 1.0, 1.0),
        (tokens / t, w.experts * is_moe, w.hidden, w.experts * is_moe, 1.0, 0.0),
        (expert_tokens, is_moe * expert_up, w.hidden, expert_up, local_experts, 1.0),
        (expert_tokens, is_moe * w.hidden, w.expert_ffn / plan.expert_tp, w.hidden, local_experts, 1.0),
        (tokens, up * shared_ffn / t, w.hidden, up * shared_ffn / t, 1.0, 1.0),
        (tokens, w.hidden * jnp.where(shared_ffn > 0, 1.0, 0.0), shared_ffn / t, w.hidden, 1.0, 1.0),
        (tokens, w.vocab / t, w.hidden, w.vocab / t, 1.0, 0.0),
    )
    columns = (jnp.stack([jnp.asarray(row[i], jnp.result_type(float)) for row in rows]) for i in range(6))
    return Gemms(*columns)


def attention_span(run: TrainingRun, causal_fraction: Scalar) -> Scalar:
    """Return the average number of keys that a query attends to.

    It is `s x causal_fraction` in layers with full attention. In layers with a sliding window of w tokens and causal masking it
    is `w (1 - w / 2s)`, because the first w tokens attend to fewer keys. The result is the mean over both layer types.

    **Arguments:** `causal_fraction`: share of the score matrix that is computed.

    **Returns:** tokens.
    """
    s = run.sequence_length
    window = s - above_zero(s - run.model.window_tokens)
    local = window * (1.0 - window / (2.0 * s)) * 2.0 * causal_fraction
    return (1.0 - run.model.local_layers_fraction) * s * causal_fraction + run.model.local_layers_fraction * local


def attention_flops(run: TrainingRun, plan: Plan, span: Scalar) -> Scalar:
    """Return the FLOPs of one layer's attention core, forward, for one micro-batch on one chip.

    `2 (b s / c) span (a / t) (d + d_v)`, with `b s / c` tokens and a heads of query/key dimension d and value dimension d_v,
    over t tensor-parallel ranks.

    **Arguments:** `span`: average number of keys per query, see `attention_span`.
    """
    w = run.model
    return 2.0 * tokens_per_chip(run, plan) * span * w.heads / plan.tp * (w.qk_dim + w.v_dim)


SCORE_BYTES_FORWARD = 13.0
"""HBM bytes of unfused attention per 16-bit score, forward.

Score product written (2); softmax read and written (4); dropout read, written and its mask written (5); value product read (2).

**Source:** counted from the unfused graph of arXiv 2205.05198, figure 3.
"""

SCORE_BYTES_BACKWARD = 19.0
"""HBM bytes of unfused attention per 16-bit score, backward: dropout (2 + 1 + 2), softmax (2 + 2 + 2), four products (8)."""


def attention_score_elements(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the number of scores that unfused attention stores for one layer on one chip: `b (s / c) s a / t`.

    A micro-batch has b sequences of length s over c context-parallel ranks; a heads are divided among t tensor-parallel ranks.
    """
    return tokens_per_chip(run, plan) * run.sequence_length * run.model.heads / plan.tp


def attention_stream_bytes(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the HBM bytes of queries, keys, values and outputs of one layer's attention core, 16 bit each."""
    w = run.model
    kv_heads = jnp.where(w.kv_rank > 0, w.heads / plan.tp, kv_heads_per_chip(w, plan))
    return 2.0 * tokens_per_chip(run, plan) * (w.heads / plan.tp + kv_heads) * (w.qk_dim + w.v_dim)


def residual_share(plan: Plan) -> Scalar:
    """Return the share of a tensor-parallel group's tokens whose norms and residuals one chip computes and stores.

    It is `1 / t` with sequence parallelism, else 1.
    """
    return 1.0 / (1.0 + plan.sequence_parallel * (plan.tp - 1.0))


def elementwise_bytes(flow: Flow, plan: Plan, moe: Scalar) -> Scalar:
    """Return the HBM bytes of one layer's norms, residual adds, rotary embedding and activation functions, forward.

    Each operation is one fused kernel. Bytes with 16-bit activations, hidden size h and t tensor-parallel ranks:

    - norms and residual adds: 20 h a token, divided by t with sequence parallelism (two norms read and write 4 h each, two adds
      read 4 h and write 2 h each);
    - activation function: 2 bytes read per matrix and channel, 2 written;
    - rotary embedding: 4 bytes a channel.
    """
    w = flow.model
    tokens = flow.tokens
    residual = 10.0 * flow.activation_bytes * w.hidden * tokens * residual_share(plan)
    rotary = 2.0 * flow.activation_bytes * tokens * (w.heads / plan.tp) * w.qk_dim
    channels = flow.activation_bytes * w.mlp_matrices
    dense = channels * tokens * w.ffn / plan.tp
    experts = channels * expert_rank_tokens(flow, plan) * w.expert_ffn / plan.expert_tp
    shared = channels * tokens * w.shared_experts * w.expert_ffn / plan.tp
    return residual + rotary + (1.0 - moe) * dense + moe * (experts + shared)


def routing_bytes(flow: Flow, plan: Plan) -> Scalar:
    """Return the HBM bytes of permuting one MoE layer's tokens to experts and back, forward.

    It is `8 h` for each token copy, with 16-bit activations and hidden size h.
    """
    return 4.0 * flow.activation_bytes * flow.model.hidden * expert_rank_tokens(flow, plan)


def head_bytes(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the HBM bytes of embedding look-up, softmax and loss, forward.

    They are 10 bytes a logit (including an fp32 copy) and 4 h a token, with hidden size h.
    """
    tokens = tokens_per_chip(run, plan)
    return tokens * (10.0 * run.model.vocab / plan.tp + 2.0 * run.activation_bytes * run.model.hidden)


def gemm_bytes_per_element(run: TrainingRun | Service) -> Scalar:
    """Return the average bytes of a GEMM operand's element over the run's mix of number formats."""
    return jnp.sum(run.gemm_precision * np.array(PRECISION_BYTES, np.float32))


def _step_attention_flops(run: TrainingRun, causal_fraction: Scalar) -> Scalar:
    """Return the attention FLOPs of all L layers per token, forward: `2 span a (d + d_v) L`.

    A token attends to span keys on average, with a heads of query/key dimension d and value dimension d_v.
    """
    w = run.model
    return 2.0 * attention_span(run, causal_fraction) * w.heads * (w.qk_dim + w.v_dim) * w.layers


@singledispatch
def model_flops(model: Any, run: TrainingRun) -> Scalar:
    """Return the model FLOPs of a step: 6 per matrix weight and token, plus causal attention, without recomputation.

    For transformers: `tokens (2 (1 + 1 + trainable) P_matrix + 3 x 2 x span a (d + d_v) L)`, with P_matrix active matrix
    weights and `2 span a (d + d_v)` attention FLOPs per token in each of L layers. The embedding look-up does not multiply, a
    tied head does. Attention counts only the causal part (`causal_fraction`), once forward and twice backward.

    **Arguments:** `model`: that of `run`, whose type decides.

    **Raises:** `TypeError` for a model type without a rule.
    """
    raise TypeError(f"no FLOPs of a {type(model).__name__}")


@model_flops.register
def _(model: Transformer, run: TrainingRun) -> Scalar:
    attention = 3.0 * _step_attention_flops(run, run.causal_fraction)
    return batch_tokens(run) * (2.0 * (2.0 + run.trainable_fraction) * matrix_parameters(model) + attention)


def matrix_parameters(w: Transformer) -> Scalar:
    """Return the active weights that multiply a token: all except embedding tables and norms, plus the output head."""
    tables = (w.vocab + w.learned_positions) * w.hidden + (2.0 * w.layers + 1.0) * w.hidden
    return active_parameters(w) - head_parameters(w) - tables + w.vocab * w.hidden


@singledispatch
def repeated_flops(model: Any, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """Return the FLOPs of recomputation in a step, summed over all chips.

    For transformers they are a forward pass of the recomputed layers, or only of their attention cores. Where the stack stops
    recomputation early, the layer's last product is excluded.

    **Arguments:** `model`: that of `run`, whose type decides.

    **Raises:** `TypeError` for a model type without a rule.
    """
    raise TypeError(f"no FLOPs of a {type(model).__name__}")


@repeated_flops.register
def _(w: Transformer, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    layers = matrix_parameters(w) - w.vocab * w.hidden
    attention = _step_attention_flops(run, executed_causal_fraction(run, stack))
    last = w.hidden * (w.dense_layers * w.ffn + w.moe_layers * w.expert_ffn * (w.experts_per_token + w.shared_experts))
    again = plan.recompute_full * (2.0 * (layers - stack.recompute_stops_early * last) + attention)
    again = again + (1.0 - plan.recompute_full) * plan.recompute_attention * attention
    return batch_tokens(run) * again


def executed_causal_fraction(run: TrainingRun, stack: Stack) -> Scalar:
    """Return the share of the score matrix that the stack computes: the whole matrix without a fused kernel."""
    return run.causal_fraction + stack.attention_scores_stored * (1.0 - run.causal_fraction)
