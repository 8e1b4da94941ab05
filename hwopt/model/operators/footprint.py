"""Training memory of a model given as a table of operators."""

import jax.numpy as jnp

from hwopt.model.layers.parameters import Weights
from hwopt.model.operators.work import rows, shares
from hwopt.model.training.footprint import gathered_bytes, layers_in_flight, spread_tables_bytes, stage_activations
from hwopt.plan import Plan
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun


@stage_activations.register
def _(model: Operators, run: TrainingRun, plan: Plan, stack: Stack, weights: Weights) -> tuple[Scalar, Scalar]:
    """Return the activations of the pipeline stage that keeps most, and the working set, analogous to a transformer's stage.

    Each row of an operator keeps its stored elements for the backward pass, and attention its scores. Under full recomputation
    only the inputs of blocks are kept, and one block's activations while it is recomputed.

    **Returns:** (kept bytes, working bytes).
    """
    part = shares(model, plan)
    number = model.count * rows(model, run, plan.micro_batch) * part.channels
    scores = (
        stack.attention_scores_stored * run.sequence_length * model.attention_heads * (2.0 + 3.0 * stack.dropout_masks)
    )
    fused = (1.0 - stack.attention_scores_stored) * 4.0 * model.attention_heads
    core = jnp.sum(number * (scores + fused))
    body = jnp.sum(number * model.stored) * run.activation_bytes
    inputs = plan.micro_batch * run.sequence_length * model.kept_inputs * run.activation_bytes
    whole = body + (1.0 - plan.recompute_attention) * core
    kept = (plan.recompute_full * inputs + (1.0 - plan.recompute_full) * whole) / model.layers
    working = plan.recompute_full * (body + core) / model.layers
    held = layers_in_flight(run, plan, stack, model.layers) * kept
    layers_bytes = stack.layers_whole * weights.dense_layer * run.weight_bytes
    most = weights.stage * run.weight_bytes
    layers_bytes = jnp.where(most < layers_bytes, most, layers_bytes)
    pending = layers_bytes * run.trainable_fraction + plan.weights_offloaded * layers_bytes
    return held, working + pending + gathered_bytes(run, plan, stack, weights, layers_bytes)


@spread_tables_bytes.register
def _(model: Operators, plan: Plan) -> Scalar:
    """Return the bytes of look-up tables on one chip, including optimizer states: `bytes weights / e`, sharded over e chips."""
    return jnp.sum(model.count * model.table_weights) * model.table_bytes / plan.ep
