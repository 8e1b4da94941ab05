"""Memory beyond HBM: what its link and its own bandwidth cost a step."""

from __future__ import annotations

from hwopt.hardware.cluster import Cluster
from hwopt.model.footprint import Offloaded, micro_batches
from hwopt.model.maximum import hard_maximum
from hwopt.plan import Plan
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun


def stream_s(run: TrainingRun, cluster: Cluster, plan: Plan, outside: Offloaded) -> Scalar:
    """Time of the link to the pool in one step: the slower of its two directions.

    In: weights for the forward and again for the backward pass of every micro-batch, activations, the weights that the pool
    has updated, and the gradients of streamed weights that the chip updates. Out: the gradients of streamed weights,
    activations, the gradients that the pool needs to update, and streamed weights that the chip has updated.

    **Source:** weight streaming: Cerebras, Hot Chips 2022; ZeRO-Offload: Ren et al., arXiv 2101.06840 (recalled).
    """
    batches = micro_batches(run, plan)
    stays = 1.0 - plan.weights_offloaded  # streamed weights and gradients have crossed already
    there, back = stays * outside.updated_parameters, plan.weights_offloaded * outside.updated_here
    weight, gradient = run.weight_bytes, cluster.stack.gradient_bytes
    into = batches * (2.0 * outside.weights_bytes + outside.micro_batch_activations_bytes)
    into = into + there * weight + back * gradient
    out = batches * (outside.gradients_bytes + outside.micro_batch_activations_bytes)
    out = out + there * gradient + back * weight
    return hard_maximum(into, out) * (1.0 / cluster.pool.bandwidth_bytes_per_s)


def update_s(run: TrainingRun, cluster: Cluster, outside: Offloaded) -> Scalar:
    """Optimizer update in the pool: `(g + 2 (m + v) + w) P / its memory's bandwidth`, as on the chip."""
    states = run.master_bytes + run.moment_bytes
    each = cluster.stack.gradient_bytes + 2.0 * states + run.weight_bytes
    return outside.updated_parameters * each * (1.0 / cluster.pool.update_bandwidth_bytes_per_s)
