"""Memory footprint of a chip: sharded states, activations by the published per-layer formula, logits, reserve."""

from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.model.layers import work
from hwopt.model.layers.kinds import each_kind, largest
from hwopt.model.layers.parameters import Weights, larger_layer, table_parameters
from hwopt.model.numerics.maximum import Maximum, above_zero, hard_maximum, several
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.layer_work import stated, total
from hwopt.workload.mechanisms.latent_experts import expert_width
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer


class Footprint(NamedTuple):
    """Bytes needed in the fullest chip's own memory. The fields add up to the total."""

    weights_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    activations_bytes: Array
    logits_bytes: Array  # extra bytes of the last stage over the first (logits, but fewer layers and micro-batches)
    working_bytes: Array
    reserve_bytes: Array

    @property
    def total_bytes(self) -> Array:
        return sum(self[1:], start=self[0])


class Offloaded(NamedTuple):
    """Bytes in the fullest chip's share of the memory pool, and quantities that set the traffic between chip and pool."""

    weights_bytes: Array  # streamed for each pass; their gradients leave the chip as they are computed
    gradients_bytes: Array  # gradients of the streamed weights, for one pass
    optimizer_bytes: Array
    activations_bytes: Array
    micro_batch_activations_bytes: Array  # offloaded by one micro-batch
    updated_parameters: Array  # parameters whose optimizer states are in the pool
    updated_here: Array  # parameters whose optimizer states are on the chip

    @property
    def total_bytes(self) -> Array:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


def attention_activation_bytes(flow: work.Flow, run: TrainingRun, plan: Plan, stack: Stack) -> Scalar:
    """Return the bytes of one layer's attention core that selective recomputation avoids keeping.

    With stored scores, bytes per score are: softmax output 2, and with dropout its mask 1 and its output 2. A fused kernel
    keeps 4 bytes a row (log-sum-exp) instead.

    **Source:** the term `5 a s / h` of arXiv 2205.05198, eq. 2.
    """
    per_score = 2.0 + 3.0 * stack.dropout_masks
    rows = flow.tokens * flow.work.heads / plan.tp
    stored = work.attention_score_elements(run, plan, flow.work.heads) * per_score
    return stack.attention_scores_stored * stored + (1.0 - stack.attention_scores_stored) * 4.0 * rows


def layer_activation_bytes(flow: work.Flow, run: TrainingRun, plan: Plan, stack: Stack, moe: Scalar | float) -> Scalar:
    """Return the bytes of one layer and micro-batch kept for the backward pass, without the attention core.

    - Around the tensor-parallel region: `residual_tensors` tensors of 2 h a token and dropout masks of h each. The tensors are
      the inputs of two norms and, where they are kept instead of recomputed, the outputs, which are GEMM inputs. With sequence
      parallelism these are divided by t, except GEMM inputs that stay whole once gathered.
    - Inside the region: queries, keys, values, the input of the output projection, and the MLP's inner tensors. The MLP has one
      tensor per matrix; the last one is kept or recomputed. If the gate's product is not fused, the activation function's
      output is kept as well.

    h is the hidden size, t the degree of tensor parallelism. For GPT (MLP width 4 h, no gate, dropout, four tensors) the total
    is `34 s b h / t` with b sequences of length s. Where the stack keeps the cast copy, GEMM inputs take the bytes of the
    GEMM's format, and the attention core's output is kept twice.

    A frozen linear layer keeps its input only for an adapter. Where adapters are in attention alone, MLPs and experts keep what
    the backward pass of their activation function needs.

    **Arguments:** `moe`: layer type (1: MoE, 0: dense).

    **Source:** arXiv 2205.05198, eq. 4; adapters: arXiv 2106.09685.
    """
    w, layer, kept, adapted = flow.model, flow.work, run.stated("kept_bytes"), run.stated("adapted_mlp")
    a = run.activation_bytes if kept is None else kept
    tokens = flow.tokens
    element = work.gemm_bytes_per_element(run)
    kept_cast = jnp.where(element < 2.0, stack.cast_inputs_kept, 0.0)  # only formats below 16 bit are casts
    twice = kept_cast * element
    narrow = twice + (1.0 - kept_cast) * a
    around = work.residual_share(plan)
    inputs = around + stack.gathered_inputs_kept * (1.0 - around)  # GEMM inputs, which are outputs of norms
    outputs, products, routed = stack.residual_tensors - 2.0, stack.product_kept, narrow
    if adapted is not None:  # half of the norms precede attention
        outputs, products, routed = 0.5 * (1.0 + adapted) * outputs, adapted * products, adapted * routed
    norms = 2.0 * a * around + outputs * narrow * inputs
    product = products * narrow + stack.activation_kept * a * (w.mlp_matrices - 2.0)
    outer = (norms + 2.0 * stack.dropout_masks * around) * w.hidden * tokens
    if stated(layer.halves):  # half of the norms are in an MLP
        outer = 0.5 * layer.halves * outer
    kv_parts = hard_maximum(layer.kv_parts, layer.kv_least * plan.tp)
    heads = layer.heads * (a * layer.qk_dim + (a + twice) * layer.v_dim) + a * kv_parts * (layer.qk_dim + layer.v_dim)
    more = a * layer.kept if stated(layer.kept) else 0.0
    inner = total(heads, more) * tokens / plan.tp + a * (layer.latent * tokens)
    mlp = a * (w.mlp_matrices - 1.0) + product
    dense = mlp * w.ffn * tokens / plan.tp
    copies = work.expert_rank_tokens(flow, plan)
    experts = copies * (mlp * w.expert_ffn / plan.expert_tp + routed * expert_width(w))
    shared = mlp * w.shared_experts * w.expert_ffn * tokens / plan.tp
    return outer + inner + (1.0 - moe) * dense + moe * (experts + shared)


def layer_gradient_bytes(flow: work.Flow, run: TrainingRun, plan: Plan, stack: Stack, moe: Scalar | float) -> Scalar:
    """Return the bytes of activation gradients while one layer runs backward.

    Every tensor of the layer has a gradient, also those that the forward pass does not keep. Routed experts weigh their outputs in
    fp32: `_ROUTED_BYTES` for each copy of a token and element.
    """
    every = replace(stack, residual_tensors=4.0, product_kept=1.0)
    copies = work.expert_rank_tokens(flow, plan)
    routed = moe * copies * expert_width(flow.model) * _ROUTED_BYTES
    return layer_activation_bytes(flow, replace(run, formats=None), plan, every, moe) + routed


_ROUTED_BYTES = 18.0
"""Bytes an element of a routed copy: 16-bit output, its fp32 copy, the weighted fp32 product, and the gradients of both.

**Source:** torchtitan, models/moe.py (recalled); derived, 10 to 20, in view of prime-rl's peaks at 16K and 64K tokens (17 to 19).
"""


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    return jnp.where(b < a, b, a)


def micro_batches(run: TrainingRun, plan: Plan) -> Scalar:
    """Return the micro-batches per replica and step: `B / (d b)`, for B sequences, d replicas and b sequences a micro-batch."""
    return run.global_batch_sequences / (plan.dp * plan.micro_batch)


@singledispatch
def stage_activations(
    model: Any, run: TrainingRun, plan: Plan, stack: Stack, weights: Weights
) -> tuple[Scalar, Scalar]:
    """Return the activation bytes that a stage keeps and its working set, dispatched on the type of the model.

    **Raises:** `TypeError` for a model type without a rule.
    """
    raise TypeError(f"no memory of a {type(model).__name__}")


@singledispatch
def spread_tables_bytes(model: Any, plan: Plan) -> Scalar | None:
    """Return the bytes of a chip's look-up tables that are sharded without replication; None for models without such tables."""
    return None


@stage_activations.register
def stage_activation_bytes(
    w: Transformer, run: TrainingRun, plan: Plan, stack: Stack, weights: Weights
) -> tuple[Scalar, Scalar]:
    """Return the activations of the stage that keeps most, and the working set of a transformer stage.

    Kept activations are the layers of a stage times the micro-batches in flight, see `layers_in_flight`. With full
    recomputation only a layer's input is kept, `2 s b h`. The working set adds:

    - the activations of one layer while it is recomputed;
    - with sequence parallelism, the gathered input of a tensor-parallel region and its gradient;
    - the gradients of `layers_whole` layers in the weights' format before accumulation (grouped products of routed experts
      accumulate directly), and those of an embedding table;
    - sharded weights while they are gathered (`gathered_bytes`), and weights streamed from the memory pool.

    FSDP2 holds a few layers and the embedding tables whole. It also holds the gradients of the tables, and those of one layer with
    their reduction buffer. With a chunked loss the peak is in the backward pass of a layer: its activation gradients are added.

    With p stages, the micro-batches in flight on the first stage are p under 1F1B, and `p + (p - 1)/v` in an interleaved
    schedule with v chunks per stage. On the second stage they are fewer by 1, or by 2/v. They are never more than the step has
    (a kink).

    If p does not divide the number of layers, some stages have one layer fewer: first the last stage, then the first one. In
    the latter case the second stage may keep more than the first. Software that balances stages by cost leaves the first stage
    full.

    **Returns:** (kept bytes, working bytes).

    **Source:** arXiv 2205.05198, section 4.2.3 and table 2; warm-up counts of the interleaved schedule: Narayanan et al. 2021
    (arXiv 2104.04473).
    """
    tokens = work.tokens_per_chip(run, plan)
    around = work.residual_share(plan)
    checkpoint = run.activation_bytes * w.hidden * tokens * around
    chunk = run.stated("chunk_tokens")

    def layer(shape: Transformer, moe: Scalar) -> tuple[Scalar, Scalar]:
        flow = work.flow(run if shape is w else replace(run, model=shape), plan)
        core = attention_activation_bytes(flow, run, plan, stack)
        body = layer_activation_bytes(flow, run, plan, stack, moe)
        kept = plan.recompute_full * checkpoint
        kept = kept + (1.0 - plan.recompute_full) * (body + (1.0 - plan.recompute_attention) * core)
        again = plan.recompute_full * (body + core)
        return kept, again if chunk is None else again + layer_gradient_bytes(flow, run, plan, stack, moe)

    count, (each_kept, each_working) = each_kind(w, layer)
    kept = jnp.sum(count * each_kept) / w.layers * layers_in_flight(run, plan, stack, w.layers)
    working = largest(count, each_working)
    whole_layer = larger_layer(w, weights.dense_layer, weights.moe_layer + weights.experts_layer)
    summed = larger_layer(w, weights.dense_layer, weights.moe_layer)
    whole = 2.0 * run.activation_bytes * w.hidden * tokens * (1.0 - around)
    pending = stack.layers_whole * summed * run.weight_bytes * run.trainable_fraction
    pending += stack.table_gradient_bytes * w.vocab * w.hidden / plan.tp * run.trainable_fraction
    layers_bytes = stack.layers_whole * whole_layer * run.weight_bytes  # the current layer and the prefetched next one
    if (layers := run.stated("layers_gathered")) is not None:
        tables, width = table_parameters(w, plan), run.gathered_weight_bytes
        layers_bytes = layers * whole_layer * width + tables * run.activation_bytes
        pending = run.activation_bytes * tables + (run.activation_bytes + stack.gradient_bytes) * whole_layer
        pending *= plan.weights_sharded * run.trainable_fraction
    streamed = plan.weights_offloaded * layers_bytes
    if layers is not None:  # layers from the pool are those that are gathered
        streamed *= 1.0 - plan.weights_sharded
    return kept, working + whole + pending + streamed + gathered_bytes(run, plan, stack, weights, layers_bytes)


def layers_in_flight(run: TrainingRun, plan: Plan, stack: Stack, layers: Scalar) -> Scalar:
    """Return the largest product of a stage's layers and its micro-batches in flight; see `stage_activation_bytes`."""
    fullest = plan.fullest_stage * layers / plan.pp
    short = (plan.fullest_stage - 1.0) * layers  # layers missing, over all stages, relative to full stages
    first = fullest - (1.0 - stack.first_stage_full) * _smaller(above_zero(short - 1.0), jnp.ones_like(short))
    has_chunks = several(plan.virtual_stages)
    flying = plan.pp + has_chunks * (plan.pp - 1.0) / plan.virtual_stages
    fewer = 1.0 + has_chunks * (2.0 / plan.virtual_stages - 1.0)
    of_step = micro_batches(run, plan)
    return hard_maximum(first * _smaller(flying, of_step), fullest * _smaller(flying - fewer, of_step))


def stored_weights_bytes(run: TrainingRun, plan: Plan, weights: Weights) -> Scalar:
    """Return the bytes of a chip's weights: those of the model, and of adapters where it is frozen.

    Formats below 16 bits apply to linear layers. Embedding tables keep the format of the trained weights.
    """
    number, frozen = weights.sharded(plan.weights_sharded), run.stated("frozen_bytes")
    if frozen is None:
        return run.weight_bytes * number
    tables = table_parameters(run.model, plan) / (1.0 + plan.weights_sharded * (weights.ranks - 1.0))
    wider = hard_maximum(frozen, run.weight_bytes) - frozen
    return frozen * number + wider * tables + run.trainable_fraction * run.weight_bytes * number


def gathered_bytes(run: TrainingRun, plan: Plan, stack: Stack, weights: Weights, layers_bytes: Scalar) -> Scalar:
    """Return the bytes of sharded weights that a chip keeps gathered.

    Without a pipeline these are `layers_whole` layers. In a pipeline they are the whole stage and its gradients. Many
    micro-batches run through the same stage, and resharding after each one would require gathering the stage every time. So
    weights stay gathered and gradients unreduced until the last micro-batch.

    **Source:** torchtitan, fsdp `reshard_after_forward` policy "default": not with pipeline parallelism (recalled).
    """
    pipelined = several(plan.pp)
    gradients = stack.gradient_bytes * run.trainable_fraction * plan.gradients_sharded
    stage_bytes = (weights.stage + weights.stage_experts) * (run.gathered_weight_bytes + gradients)
    return plan.weights_sharded * (pipelined * stage_bytes + (1.0 - pipelined) * layers_bytes)


class _States(NamedTuple):
    """Bytes of a stage's weights, gradients and optimizer states on one chip, and the number of parameters that it updates."""

    weights_bytes: Scalar
    gradients_bytes: Scalar
    optimizer_bytes: Scalar
    updated: Scalar

    @property
    def total_bytes(self) -> Scalar:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def _states(run: TrainingRun, plan: Plan, stack: Stack, weights: Weights) -> tuple[_States, _States]:
    """Return the states of a stage in the chip's own memory, and the total including the chip's share of the memory pool.

    Where replicas exchange gradients in separate buckets, a second unsharded set of gradients is added.
    """
    trained, exchanging = run.trainable_fraction, several(plan.dp * plan.cp)
    copies = stack.gradient_copy_bytes * exchanging
    each_gradient = run.stated("gradient_bytes")
    each_gradient = stack.gradient_bytes if each_gradient is None else each_gradient
    gradients = each_gradient * weights.sharded(plan.gradients_sharded)
    if (unreduced := run.stated("gradients_unreduced")) is not None:
        whole = stack.gradient_bytes * weights.sharded(jnp.zeros_like(plan.gradients_sharded))
        several_batches = several(micro_batches(run, plan)) * above_zero(
            2.0 - plan.pp
        )  # in a pipeline: `gathered_bytes`
        gradients += unreduced * exchanging * several_batches * (whole - gradients)
    gradients += copies * weights.sharded(jnp.zeros_like(plan.gradients_sharded))
    updated = trained * weights.sharded(plan.optimizer_sharded)
    each = stack.master_kept * run.master_bytes + run.moment_bytes + stack.share_gradient_bytes
    optimizer = each * updated
    if (wide := run.stated("table_moment_bytes")) is not None:
        shards = 1.0 + plan.optimizer_sharded * (weights.ranks - 1.0)
        optimizer += trained * (wide - run.moment_bytes) * table_parameters(run.model, plan) / shards
    held = _States(stored_weights_bytes(run, plan, weights), trained * gradients, optimizer, updated)
    here, stay = 1.0 - plan.weights_offloaded, run.stated("gradients_kept")
    inside = _States(
        here * held.weights_bytes,
        here * (held.gradients_bytes if stay is None else stay * held.gradients_bytes),
        (1.0 - plan.optimizer_offloaded) * held.optimizer_bytes,
        updated,
    )
    return inside, held


def footprint(
    run: TrainingRun, plan: Plan, stack: Stack, weights: Weights, maximum: Maximum
) -> tuple[Footprint, Offloaded]:
    """Return the peak bytes of the fullest chip, in its own memory and in its share of the memory pool.

    States are weights, gradients, master copy and moments, each divided by its own number of shards. Logits take `logit_bytes`
    each (output, fp32 copy, gradient) and are on the last stage. That stage has an embedding table like the first, may have
    fewer layers, and keeps the activations of one micro-batch. The larger of first and last stage counts.

    A chunked loss holds the logits of a chunk, and the last layer's output with its gradient. That memory is free again in the
    backward pass of the layers, and the larger of both counts. A step of one micro-batch has all gradients only once the
    activations are freed.
    """
    kept, working = stage_activations(run.model, run, plan, stack, weights)
    tables = spread_tables_bytes(run.model, plan)
    in_flight = _smaller(plan.pp, micro_batches(run, plan))
    activations = (1.0 - plan.activations_offloaded) * kept
    tokens, chunk = work.tokens_per_chip(run, plan), run.stated("chunk_tokens")
    logits = (tokens if chunk is None else _smaller(tokens, chunk)) * run.model.vocab / plan.tp * stack.logit_bytes
    states, held = _states(run, plan, stack, weights)
    gradients, reserve = states.gradients_bytes, run.stated("reserve_bytes")
    if chunk is not None:
        logits = maximum(logits + 2.0 * run.activation_bytes * run.model.hidden * tokens, working) - working
        single = above_zero(2.0 - micro_batches(run, plan))
        gradients = maximum((1.0 - single) * gradients + activations, gradients) - activations
    last_states, _ = _states(run, plan, stack, weights.of_last_stage)
    first_stage = states.total_bytes + activations
    last_stage = last_states.total_bytes + activations / in_flight * plan.last_stage / plan.fullest_stage + logits
    inside = Footprint(
        weights_bytes=states.weights_bytes if tables is None else states.weights_bytes + tables,
        gradients_bytes=gradients,
        optimizer_bytes=states.optimizer_bytes,
        activations_bytes=activations,
        logits_bytes=maximum(first_stage, last_stage) - first_stage,
        working_bytes=working,
        reserve_bytes=stack.memory_reserve_bytes + stack.fragmentation * (activations + working)
        if reserve is None
        else reserve,
    )
    outside = Offloaded(
        weights_bytes=plan.weights_offloaded * held.weights_bytes,
        gradients_bytes=plan.weights_offloaded * held.gradients_bytes,
        optimizer_bytes=plan.optimizer_offloaded * held.optimizer_bytes,
        activations_bytes=plan.activations_offloaded * kept,
        micro_batch_activations_bytes=plan.activations_offloaded * kept / in_flight,
        updated_parameters=plan.optimizer_offloaded * held.updated,
        updated_here=(1.0 - plan.optimizer_offloaded) * held.updated,
    )
    if (hosted := run.stated("gradients_offloaded")) is not None:
        left = (1.0 - plan.weights_offloaded) * held.gradients_bytes - states.gradients_bytes
        outside = outside._replace(gradients_bytes=outside.gradients_bytes + hosted * left)
    return inside, outside
