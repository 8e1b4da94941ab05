"""What waits in the memory pool, and the seconds it takes to stream and update it."""

from __future__ import annotations

from tests.reference.plain.flops import micro_batches
from tests.reference.plain.memory import states
from tests.reference.plain.weights import sharded_weights


def held(run, plan, stack) -> float:
    """Bytes in a chip's share of the pool."""
    weights, gradients, optimizer, activations = states(run, plan, stack)
    total = plan.weights_offloaded * (weights + gradients) + plan.optimizer_offloaded * optimizer
    return total + plan.activations_offloaded * activations


def updated(run, plan) -> float:
    """Parameters that the pool updates, of one chip."""
    here = sharded_weights(run.model, plan, plan.optimizer_sharded)
    return plan.optimizer_offloaded * run.trainable_fraction * here


def for_plans(pool) -> float:
    """Bytes a chip that other software leaves."""
    return pool.capacity_bytes - pool.reserved * pool.capacity_bytes


def offloads(plan) -> float:
    """Offloaded parts of the state; all three count as one."""
    return min(plan.weights_offloaded + plan.optimizer_offloaded + plan.activations_offloaded, 1.0)


def stream(run, cluster, plan) -> tuple[float, float]:
    """Seconds of the busier direction between a chip and its pool, and of the pool's memory, in a step."""
    stack, batches = cluster.stack, micro_batches(run, plan)
    weights, gradients, _, activations = states(run, plan, stack)
    of_batch = plan.activations_offloaded * activations / min(plan.pp, batches)
    offloaded = plan.weights_offloaded
    moved = (1.0 - offloaded) * updated(run, plan)  # what is offloaded is in the pool before and after its update
    kept = (1.0 - plan.optimizer_offloaded) * sharded_weights(run.model, plan, plan.optimizer_sharded)
    fetched = offloaded * run.trainable_fraction * kept  # gradients for an update on the chip; its weights go back
    into = batches * (2.0 * offloaded * weights + of_batch) + moved * run.weight_bytes + fetched * stack.gradient_bytes
    out = batches * (offloaded * gradients + of_batch) + moved * stack.gradient_bytes + fetched * run.weight_bytes
    pool = cluster.pool
    return max(into, out) / pool.bandwidth_bytes_per_s, (into + out) / pool.update_bandwidth_bytes_per_s


def update(run, cluster, plan) -> float:
    """Seconds of the optimizer's passes over the pool's memory."""
    read = cluster.stack.gradient_bytes + run.master_bytes + run.moment_bytes
    written = run.master_bytes + run.moment_bytes + run.weight_bytes
    return updated(run, plan) * (read + written) / cluster.pool.update_bandwidth_bytes_per_s


def watts(pool) -> float:
    """Of one chip's share, whatever is done."""
    return pool.capacity_bytes * pool.power_w_per_byte + pool.bandwidth_bytes_per_s * pool.energy_j_per_byte


def price(pool) -> float:
    """Of one chip's share."""
    return pool.capacity_bytes * pool.usd_per_byte + pool.bandwidth_bytes_per_s * pool.usd_per_byte_per_s
