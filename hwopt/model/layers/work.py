"""Work of one micro-batch on one chip: a table of GEMMs, the attention core, and memory-bound passes."""

from functools import singledispatch
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwopt.model.layers.parameters import expert_copies
from hwopt.model.numerics.maximum import above_zero, hard_maximum
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
    """1 for these GEMMs, 0 for the others: exact in float32, which does not turn float32 models into float64 ones."""
    return np.array([name in names for name in GEMMS], np.float32)


IN_EVERY_LAYER = _among("latent_down", "query", "key_value", "attention_output")
IN_DENSE_LAYER = _among("mlp_up", "mlp_down")
IN_MOE_LAYER = _among("router", "shared_up", "shared_down")
IN_EXPERTS = _among("expert_up", "expert_down")
IN_LAST = _among("mlp_down", "expert_down", "shared_down")  # of a layer
IN_HEAD = _among("head")

PerGemm = Float[Array, "gemm"]


class Gemms(NamedTuple):
    """Shapes of the GEMMs of one micro-batch on one chip, forward; shape (gemm,) each."""

    m: PerGemm  # rows: tokens
    n: PerGemm  # columns: outputs
    k: PerGemm  # inner dimension
    n_launched: PerGemm  # columns of the kernel it runs in (query, key and value run as one)
    count: PerGemm  # how many of them run grouped
    low_precision: PerGemm  # 1: runs in the run's GEMM format, 0: stays wide, 16 bit or more

    @property
    def flops(self) -> PerGemm:
        """2 m n k each."""
        return 2.0 * self.m * self.n * self.k * self.count


class Flow(NamedTuple):
    """What passes through the layers in one go, of a micro-batch in training, of a batch in serving."""

    model: Transformer
    tokens: Scalar  # that a tensor-parallel group passes
    activation_bytes: Scalar
    routing_imbalance: Scalar


def flow(run: TrainingRun, plan: Plan) -> Flow:
    """A micro-batch of a training run."""
    return Flow(run.model, tokens_per_chip(run, plan), run.activation_bytes, run.routing_imbalance)


def batch_tokens(run: TrainingRun) -> Scalar:
    """Tokens of a step: `B s`."""
    return run.global_batch_sequences * run.sequence_length


def tokens_per_chip(run: TrainingRun, plan: Plan) -> Scalar:
    """Tokens of one micro-batch that pass a tensor-parallel group: `b s / c`."""
    return plan.micro_batch * run.sequence_length / plan.cp


def expert_rank_tokens(flow: Flow, plan: Plan) -> Scalar:
    """Token copies that the busiest expert rank computes: `expert_tp tokens k_experts / t imbalance`."""
    return plan.expert_tp * routed_tokens(flow, plan) * imbalance(flow, plan)


def imbalance(flow: Flow, plan: Plan) -> Scalar:
    """Tokens of the busiest expert rank over the mean: I, and `1 + (I - 1) / (1 + s - E / e)` where each of e ranks has s slots.

    What makes a rank the busiest are its experts that are asked for most; a further copy a rank takes half of the worst one's
    tokens elsewhere. An assumption, on the safe side: copied and placed greedily by a popularity that is known, one copy a rank
    leaves next to nothing above the mean (`tests/unit/model/test_serving_layouts.py`); popularity that moves leaves more.
    """
    if plan.layout is None:
        return flow.routing_imbalance
    copies = 1.0 + plan.layout.expert_slots - flow.model.experts / plan.ep
    return 1.0 + (flow.routing_imbalance - 1.0) / copies


def routed_tokens(flow: Flow, plan: Plan) -> Scalar:
    """Token copies one chip sends to experts: `tokens k_experts / t`."""
    return flow.tokens / plan.tp * flow.model.experts_per_token


def kv_heads_per_chip(shape: Transformer, plan: Plan) -> Scalar:
    """Key-value heads on one chip: at least one, since more ranks than heads means copies. Kink where they are as many."""
    return hard_maximum(shape.kv_heads / plan.tp, jnp.ones_like(plan.tp))


def gemms(flow: Flow, plan: Plan) -> Gemms:
    """The GEMM table, in the order of `GEMMS`.

    **Returns:** shapes after sharding; a GEMM that the model lacks has n = 0.
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
    """Keys that a query meets on average.

    Full layers: `s x causal_fraction`; windowed ones: `w (1 - w / 2s)` when causal (the first w tokens meet fewer).

    **Arguments:** `causal_fraction` of the score matrix that is computed. **Returns:** tokens.
    """
    s = run.sequence_length
    window = s - above_zero(s - run.model.window_tokens)
    local = window * (1.0 - window / (2.0 * s)) * 2.0 * causal_fraction
    return (1.0 - run.model.local_layers_fraction) * s * causal_fraction + run.model.local_layers_fraction * local


def attention_flops(run: TrainingRun, plan: Plan, span: Scalar) -> Scalar:
    """Attention core of one layer, forward, one micro-batch on one chip: `2 (b s / c) span (a / t) (d + d_v)`."""
    w = run.model
    return 2.0 * tokens_per_chip(run, plan) * span * w.heads / plan.tp * (w.qk_dim + w.v_dim)


SCORE_BYTES_FORWARD = 13.0
"""HBM bytes a stored 16-bit score costs forward: product written (2), softmax read and written (4), dropout read,
written and its mask (5), values' product read (2). Counted from the unfused graph of arXiv 2205.05198, figure 3."""

SCORE_BYTES_BACKWARD = 19.0
"""The same backward: dropout (2 + 1 + 2), softmax (2 + 2 + 2), four products (8)."""


def attention_score_elements(run: TrainingRun, plan: Plan) -> Scalar:
    """Scores of one layer that unfused attention stores on one chip: `b (s / c) s a / t`."""
    return tokens_per_chip(run, plan) * run.sequence_length * run.model.heads / plan.tp


def attention_stream_bytes(run: TrainingRun, plan: Plan) -> Scalar:
    """HBM bytes of queries, keys, values and outputs of one layer's attention core, 16 bit."""
    w = run.model
    kv_heads = jnp.where(w.kv_rank > 0, w.heads / plan.tp, kv_heads_per_chip(w, plan))
    return 2.0 * tokens_per_chip(run, plan) * (w.heads / plan.tp + kv_heads) * (w.qk_dim + w.v_dim)


def residual_share(plan: Plan) -> Scalar:
    """Share of a tensor-parallel group's tokens whose norms and residuals a chip keeps: `1 / t` with sequence parallelism."""
    return 1.0 / (1.0 + plan.sequence_parallel * (plan.tp - 1.0))


def elementwise_bytes(flow: Flow, plan: Plan, moe: Scalar) -> Scalar:
    """HBM bytes of one layer's norms, residuals, rotary embedding and activations, forward, each kernel fused once.

    Norms and residual adds: 20 h a token (two norms read and write 4 h each, two adds read 4 h and write 2 h), over t
    with sequence parallelism. Activation: 2 bytes a matrix and channel read, 2 written. Rotary: 4 bytes a channel.
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
    """HBM bytes of permuting one MoE layer's tokens to experts and back, forward: `8 h` for each token copy."""
    return 4.0 * flow.activation_bytes * flow.model.hidden * expert_rank_tokens(flow, plan)


def head_bytes(run: TrainingRun, plan: Plan) -> Scalar:
    """HBM bytes of embedding look-up, softmax and loss, forward: 10 bytes a logit (fp32 copy) and 4 h a token."""
    tokens = tokens_per_chip(run, plan)
    return tokens * (10.0 * run.model.vocab / plan.tp + 2.0 * run.activation_bytes * run.model.hidden)


def gemm_bytes_per_element(run: TrainingRun | Service) -> Scalar:
    """Bytes of a GEMM operand in the run's mix of formats."""
    return jnp.sum(run.gemm_precision * np.array(PRECISION_BYTES, np.float32))


def _step_attention_flops(run: TrainingRun, causal_fraction: Scalar) -> Scalar:
    """Attention cores of all layers forward, a token: `2 span a (d + d_v) L`."""
    w = run.model
    return 2.0 * attention_span(run, causal_fraction) * w.heads * (w.qk_dim + w.v_dim) * w.layers


def step_model_flops(run: TrainingRun) -> Scalar:
    """FLOPs a step needs by mathematics: 6 a matrix weight and token, plus causal attention; no recomputation.

    `tokens (2 (1 + 1 + trainable) P_matrix + 3 x 2 x span a (d + d_v) L)`. The embedding look-up does not multiply, a
    tied head does. Attention counts the causal half (`causal_fraction`) once forward and twice backward.
    """
    return model_flops(run.model, run)


@singledispatch
def model_flops(model: Any, run: TrainingRun) -> Scalar:
    """FLOPs that a step of a kind of model needs."""
    raise TypeError(f"no FLOPs of a {type(model).__name__}")


@model_flops.register
def _(model: Transformer, run: TrainingRun) -> Scalar:
    attention = 3.0 * _step_attention_flops(run, run.causal_fraction)
    return batch_tokens(run) * (2.0 * (2.0 + run.trainable_fraction) * matrix_parameters(model) + attention)


def matrix_parameters(w: Transformer) -> Scalar:
    """Active weights that multiply a token: all but tables and norms, plus the head."""
    tables = (w.vocab + w.learned_positions) * w.hidden + (2.0 * w.layers + 1.0) * w.hidden
    return active_parameters(w) - head_parameters(w) - tables + w.vocab * w.hidden


def recompute_flops(run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """FLOPs a step repeats, over all chips: layers (but for the last product, if so), or attention cores, forward."""
    return repeated_flops(run.model, run, plan, stack)


@singledispatch
def repeated_flops(model: Any, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """FLOPs that a step of a kind of model repeats."""
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
    """Share of the score matrix that the stack computes: all of it without a fused kernel."""
    return run.causal_fraction + stack.attention_scores_stored * (1.0 - run.causal_fraction)
