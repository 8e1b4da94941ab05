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
from hwopt.workload.layer_work import (
    COLUMNS,
    DENSE,
    EXPERTS,
    INNER,
    MIXER,
    MOE,
    PARTS,
    TOKENS,
    Core,
    LayerWork,
    Product,
    layer_work,
    products_of,
    stated,
    total,
)
from hwopt.workload.mechanisms.latent_experts import expert_width
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, mean_layer

HEAD = "head"
"""Name of the output head, which follows the first products of the table of GEMMs."""

GEMMS = ("latent_down", "query", "key_value", "attention_output", "mlp_up", "mlp_down", "router", "expert_up", "expert_down",
         "shared_up", "shared_down", HEAD)  # fmt: skip
"""Order of every axis named "gemm" of a model without further mechanisms; those of other models follow (`gemm_names`)."""

_LAST = ("mlp_down", "expert_down", "shared_down")
"""Names of the last products of a layer."""


def gemm_names(model: Transformer) -> tuple[str, ...]:
    """Return the names along every axis named "gemm": `GEMMS`, then the products of the model's further mechanisms."""
    return (*GEMMS, *(each.name for each in products_of(model)[len(GEMMS) - 1 :]))


class Places(NamedTuple):
    """Indicators over the axis named "gemm": 1 for the products at a place, 0 for the others.

    The values are exact in float32. A float64 array would promote float32 models to float64.
    """

    mixer: np.ndarray
    dense: np.ndarray
    moe: np.ndarray
    experts: np.ndarray
    head: np.ndarray
    last: np.ndarray  # last product of a layer


def places(model: Transformer) -> Places:
    """Return the place of each GEMM of a model's table."""
    names, place = gemm_names(model), {each.name: each.place for each in products_of(model)}
    among = lambda chosen: np.array([chosen(name) for name in names], np.float32)
    at = {each: among(lambda name, each=each: place.get(name) == each) for each in (MIXER, DENSE, MOE, EXPERTS)}
    head, last = among(lambda name: name == HEAD), among(lambda name: name in _LAST)
    return Places(at[MIXER], at[DENSE], at[MOE], at[EXPERTS], head, last)


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
    in_experts: np.ndarray | float = 0.0  # 1: runs grouped by expert

    @property
    def flops(self) -> PerGemm:
        """FLOPs of each entry: `2 m n k count`."""
        return 2.0 * self.m * self.n * self.k * self.count


class Flow(NamedTuple):
    """Activations of one pass through layers of one kind: a micro-batch in training, a batch in serving."""

    model: Transformer  # whose layers are alike, but for dense MLPs and mixtures of experts
    work: LayerWork  # of one of its layers
    tokens: Scalar  # processed by a tensor-parallel group in the pass
    activation_bytes: Scalar
    routing_imbalance: Scalar


def flow(run: TrainingRun, plan: Plan) -> Flow:
    """Return the activations that one micro-batch of a training run sends through the layers."""
    uneven = run.routing_imbalance
    if run.routing is not None:  # one rank has all tokens
        uneven *= 1.0 + (run.routing.imbalance - 1.0) * several(plan.ep)
    return Flow(run.model, layer_work(run.model), tokens_per_chip(run, plan), run.activation_bytes, uneven)


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


def kv_parts_per_chip(work: LayerWork, plan: Plan) -> Scalar:
    """Return the key-value heads on one chip; each query head's own ones where a latent is expanded.

    Without a latent it is at least one: with more tensor-parallel ranks than heads, heads are replicated. There is a kink where
    both are equal.
    """
    return hard_maximum(work.kv_parts / plan.tp, work.kv_least * jnp.ones_like(plan.tp))


def gemms(flow: Flow, plan: Plan) -> Gemms:
    """Return the table of all GEMMs of a layer and the head, in the order of `gemm_names`.

    **Returns:** dimensions after sharding; a GEMM that the model lacks has n = 0.
    """
    w, t, tokens = flow.model, plan.tp, flow.tokens
    has_experts = w.experts > 0
    local_experts = jnp.where(has_experts, expert_copies(w, plan), 1.0) / plan.ep
    expert_tokens = expert_rank_tokens(flow, plan) / local_experts
    is_moe = jnp.where(has_experts, 1.0, 0.0)
    fused = jnp.where(w.kv_rank > 0, 0.0, 1.0)  # without latents queries, keys and values are one kernel

    def sizes(each: Product) -> tuple[Any, ...]:
        """Return m, n, k and the count of a product on one chip."""
        if each.place == EXPERTS:
            n, k = each.outputs, each.inputs
            n, k = (n / plan.expert_tp, k) if each.split == COLUMNS else (n, k / plan.expert_tp)
            return expert_tokens, is_moe * n, k, local_experts
        rows = tokens / t if each.split == TOKENS else tokens
        n = each.outputs / t if each.split == COLUMNS else each.outputs
        if each.split == PARTS:
            n = kv_parts_per_chip(flow.work, plan) * each.outputs
        return (
            rows,
            is_moe * n if each.name == "router" else n,
            each.inputs / t if each.split == INNER else each.inputs,
            1.0,
        )

    products = flow.work.products
    rows = {each.name: sizes(each) for each in products}
    low = {each.name: each.low_precision for each in products} | {HEAD: 0.0}
    rows[HEAD] = tokens, w.vocab / t, w.hidden, 1.0
    launched = {name: n for name, (_, n, _, _) in rows.items()}
    query, key_value = launched["query"], launched["key_value"]
    launched |= {"query": query + fused * key_value, "key_value": key_value + fused * query}
    table = [(*rows[name][:3], launched[name], rows[name][3], low[name]) for name in gemm_names(w)]
    m, n, k, n_launched, count, low_precision = (
        jnp.stack([jnp.asarray(row[i], jnp.result_type(float)) for row in table]) for i in range(6)
    )
    return Gemms(m, n, k, n_launched, count, low_precision, places(w).experts)


def attention_span(run: TrainingRun, core: Core, causal_fraction: Scalar) -> Scalar:
    """Return the average number of keys that a query attends to.

    It is `s x causal_fraction` in layers with full attention. In layers with a sliding window of w tokens and causal masking it
    is `w (1 - w / 2s)`, because the first w tokens attend to fewer keys. The same holds for the w best keys of an indexer. The
    result is the mean over both layer types.

    **Arguments:** `core`: work that depends on the span; `causal_fraction`: share of the score matrix that is computed.

    **Returns:** tokens.
    """
    s = run.sequence_length
    window = s - above_zero(s - core.window)
    local = window * (1.0 - window / (2.0 * s)) * 2.0 * causal_fraction
    return (1.0 - core.local) * s * causal_fraction + core.local * local


def core_flops(run: TrainingRun, core: Core, causal_fraction: Scalar) -> Scalar:
    """Return the FLOPs of one layer's core for a token, forward, on all ranks that divide it: `span key_flops + token_flops`.

    A kernel that computes all keys and masks most replaces one that computes the chosen keys where that takes fewer FLOPs.
    """
    keys = fewer(attention_span(run, core, causal_fraction), run.sequence_length * causal_fraction, core)
    return total(keys, core.token_flops)


def fewer(span: Scalar, every: Scalar, core: Core) -> Scalar:
    """Return the FLOPs of a token for `span` keys of its own choice, or for `every` key before it with a mask, if fewer."""
    chosen = span * core.key_flops
    if not stated(core.masked_flops):
        return chosen
    masked = every * core.masked_flops
    return jnp.where(masked < chosen, masked, chosen)


SCORE_BYTES_FORWARD = 13.0
"""HBM bytes of unfused attention per 16-bit score, forward.

Score product written (2); softmax read and written (4); dropout read, written and its mask written (5); value product read (2).

**Source:** counted from the unfused graph of arXiv 2205.05198, figure 3.
"""

SCORE_BYTES_BACKWARD = 19.0
"""HBM bytes of unfused attention per 16-bit score, backward: dropout (2 + 1 + 2), softmax (2 + 2 + 2), four products (8)."""


def attention_score_elements(run: TrainingRun, plan: Plan, heads: Scalar) -> Scalar:
    """Return the number of scores that unfused attention stores for one layer on one chip: `b (s / c) s a / t`.

    A micro-batch has b sequences of length s over c context-parallel ranks; a heads are divided among t tensor-parallel ranks.
    """
    return tokens_per_chip(run, plan) * run.sequence_length * heads / plan.tp


def attention_stream_bytes(flow: Flow, plan: Plan) -> Scalar:
    """Return the HBM bytes of queries, keys, values and outputs of one layer's attention core, 16 bit each."""
    w = flow.work
    return 2.0 * flow.tokens * (w.heads / plan.tp + kv_parts_per_chip(w, plan)) * (w.qk_dim + w.v_dim)


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
    w, work = flow.model, flow.work
    tokens = flow.tokens
    residual = 5.0 * work.halves * flow.activation_bytes * w.hidden * tokens * residual_share(plan)
    rotary = 2.0 * flow.activation_bytes * tokens * (work.heads / plan.tp) * work.qk_dim
    channels = flow.activation_bytes * w.mlp_matrices
    dense = channels * tokens * w.ffn / plan.tp
    experts = channels * expert_rank_tokens(flow, plan) * w.expert_ffn / plan.expert_tp
    shared = channels * tokens * w.shared_experts * w.expert_ffn / plan.tp
    more = flow.activation_bytes * tokens * work.channels / plan.tp if stated(work.channels) else 0.0
    return total(residual + rotary, more) + (1.0 - moe) * dense + moe * (experts + shared)


def routing_bytes(flow: Flow, plan: Plan) -> Scalar:
    """Return the HBM bytes of permuting one MoE layer's tokens to experts and back, forward.

    It is `8 h` for each token copy, with 16-bit activations and width h of an expert's inputs.
    """
    return 4.0 * flow.activation_bytes * expert_width(flow.model) * expert_rank_tokens(flow, plan)


def head_bytes(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the HBM bytes of embedding look-up, softmax and loss, forward.

    They are 10 bytes a logit (including an fp32 copy) and 4 h a token, with hidden size h.
    """
    tokens = tokens_per_chip(run, plan)
    return tokens * (10.0 * run.model.vocab / plan.tp + 2.0 * run.activation_bytes * run.model.hidden)


def gemm_bytes_per_element(run: TrainingRun | Service) -> Scalar:
    """Return the average bytes of a GEMM operand's element over the run's mix of number formats."""
    return jnp.sum(run.gemm_precision * np.array(PRECISION_BYTES, np.float32))


def layer_core_flops(run: TrainingRun, causal_fraction: Scalar) -> Scalar:
    """Return the FLOPs of attention, indexers and scans for a token, forward, mean over the model's layers."""
    return mean_layer(
        run.model, lambda s: total(*(core_flops(run, each, causal_fraction) for each in layer_work(s).cores))
    )


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
    attention = 3.0 * layer_core_flops(run, run.causal_fraction) * model.layers
    return batch_tokens(run) * (2.0 * (2.0 + run.trainable_fraction) * matrix_parameters(model) + attention)


def matrix_parameters(w: Transformer) -> Scalar:
    """Return the active weights that multiply a token: all except embedding tables, norms and vectors, plus the output head."""

    def layers(s: Transformer) -> Scalar:
        work = layer_work(s)
        routed = work.placed(MOE) + s.experts_per_token * work.placed(EXPERTS)
        return s.layers * work.placed(MIXER) + s.dense_layers * work.placed(DENSE) + s.moe_layers * routed

    return mean_layer(w, layers) + w.vocab * w.hidden


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
    attention = layer_core_flops(run, executed_causal_fraction(run, stack)) * w.layers
    last = mean_layer(w, lambda s: s.dense_layers * s.ffn * s.hidden + s.moe_layers * s.expert_ffn * (
        s.experts_per_token * expert_width(s) + s.shared_experts * s.hidden))  # fmt: skip
    again = plan.recompute_full * (2.0 * (layers - stack.recompute_stops_early * last) + attention)
    again = again + (1.0 - plan.recompute_full) * plan.recompute_attention * attention
    return batch_tokens(run) * again


def executed_causal_fraction(run: TrainingRun, stack: Stack) -> Scalar:
    """Return the share of the score matrix that the stack computes: the whole matrix without a fused kernel."""
    return run.causal_fraction + stack.attention_scores_stored * (1.0 - run.causal_fraction)
