"""Parallel plans, the division of work among chips: degrees of parallelism, schedule, sharding and recomputation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar, numpy_or_jax

OFFLOADED = ("weights_offloaded", "optimizer_offloaded", "activations_offloaded")
"""Fields of a training plan for the shares of its state that are offloaded to the memory pool."""


class ServingLayout(eqx.Module):
    """Serving features that few plans use: redundant experts, two-batch overlap, and a KV cache split over ranks by token."""

    expert_slots: Scalar = switch(
        "experts per rank of an expert parallel group, including copies; more than experts / ep"
    )
    two_batches: Scalar = switch(
        "1: two-batch overlap: communication of one half-batch overlaps computation of the other"
    )
    cache_split: Scalar = switch(
        "tensor parallel ranks over which the KV cache of a head is split by token (decode context parallelism)"
    )


class Plan(eqx.Module):
    """A parallel plan. Degrees are floats, so that the relaxed model is differentiable in them.

    N = tp pp dp cp chips. Expert parallelism uses the same chips: tp cp dp = expert_tp ep (expert replicas).
    Build validated integer plans with `hwopt.plan`; this class validates nothing.
    """

    tp: Scalar = ratio("tensor parallel degree")
    pp: Scalar = ratio("pipeline stages")
    dp: Scalar = switch("data parallel replicas")
    cp: Scalar = switch("context parallel degree")
    ep: Scalar = switch("expert parallel degree")
    expert_tp: Scalar = switch("tensor parallel degree inside an expert")
    virtual_stages: Scalar = ratio("model chunks per stage (interleaving)")
    micro_batch: Scalar = quantity("sequence", "sequences per replica and micro-batch")
    fullest_stage: Scalar = ratio("layers of the fullest stage relative to the mean, >= 1; 1 in the relaxed model")
    last_stage: Scalar = ratio("layers of the last stage (with the output head) relative to the mean")
    sequence_parallel: Scalar = switch("1: norms and residuals are sharded over tp")
    optimizer_sharded: Scalar = switch("1: optimizer states sharded over data parallel ranks (ZeRO-1)")
    gradients_sharded: Scalar = switch("1: gradients also sharded (ZeRO-2)")
    weights_sharded: Scalar = switch("1: weights also sharded (ZeRO-3, FSDP)")
    shard_groups: Scalar = switch(
        "replicas of the sharded state (hybrid sharding); 1: shard over all data parallel ranks"
    )
    recompute_full: Scalar = switch("share of layers that are fully recomputed in the backward pass")
    recompute_attention: Scalar = switch("share of layers whose attention core is recomputed")
    bubble_fraction: Scalar = ratio("share of the 1F1B pipeline bubble that remains (1: 1F1B, 0: zero bubble)")
    weights_offloaded: Scalar = switch(
        "share of weights and gradients that is streamed from the memory pool for each pass"
    )
    optimizer_offloaded: Scalar = switch(
        "share of master weights and optimizer moments that is kept and updated in the pool"
    )
    activations_offloaded: Scalar = switch("share of the stored activations that is kept in the pool")
    local_steps: Scalar = switch("steps between synchronizations of the sites; 1: synchronous training")
    layout: ServingLayout | None = None  # only for serving plans with such features

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on separate groups of chips: false here."""
        return False

    @property
    def chips(self) -> Scalar:
        """Number of chips that the plan uses."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def groups(self) -> dict[str, Plan]:
        """Plan of each group of chips, by the prefix of its variables' names."""
        return {"": self}


class Disaggregated(eqx.Module):
    """Plans of disaggregated serving: one group of chips for prefill, one for decode. The KV cache moves between them."""

    prefill: Plan
    decode: Plan

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on separate groups of chips: true here."""
        return True

    @property
    def chips(self) -> Scalar:
        """Number of chips that both plans use."""
        return self.prefill.chips + self.decode.chips

    @property
    def groups(self) -> dict[str, Plan]:
        """Plan of each group of chips, by the prefix of its variables' names."""
        return {"": self.decode, "prefill_": self.prefill}


class FleetPlan(eqx.Module):
    """A plan for each group of chips in a fleet, and the number of sequences per step that each group processes."""

    groups: tuple[Plan, ...]
    sequences: tuple[Scalar, ...]

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on separate groups of chips: false here."""
        return False


class FleetPipeline(eqx.Module):
    """One pipeline across several groups of chips, in order: the plan of each group (`pp`: its own stages) and its layers.

    All groups have the same number of replicas and the same micro-batches. Tensor parallelism and recomputation may differ by
    group.
    """

    groups: tuple[Plan, ...]
    layers: tuple[Scalar, ...]

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on separate groups of chips: false here."""
        return False


def laid_out_as(plan: Plan, other: Plan, experts: Scalar) -> Plan:
    """Return a plan with a neutral layout if only `other` has a layout, so that both have the same tree structure.

    **Arguments:** `plan`, `other`; `experts`: number of experts of the model.
    """
    if plan.layout is not None or other.layout is None:
        return plan
    zero = numpy_or_jax(plan.tp).zeros_like(plan.tp)
    plain = ServingLayout(expert_slots=experts / plan.ep, two_batches=zero, cache_split=zero + 1.0)
    return replace(plan, layout=plain)


def undivided(plan: Plan, share: Scalar) -> Plan:
    """Return a plan without two-batch overlap.

    **Arguments:** `share`: 1 to switch it off, 0 to leave it as it is.
    """
    if plan.layout is None:
        return plan
    return replace(plan, layout=replace(plan.layout, two_batches=(1.0 - share) * plan.layout.two_batches))


class TrainServePlan(eqx.Module):
    """Plans of two clusters of the same chips: one for training, one for serving."""

    training: Plan
    serving: Plan | Disaggregated


def stage_layers(layers: Any, pp: Any, virtual_stages: Any) -> tuple[Any, Any]:
    """Return the layers of the fullest and of the last pipeline stage over the mean, for integers or arrays.

    Each of the `p v` chunks takes `ceil(L / (p v))` layers. If that exceeds the total, some stages have one layer less, the
    last stage (which also has the head) first. 126 layers on 16 stages: 8 and 7, over 7.875.

    **Arguments:** `layers` L; `pp` p; `virtual_stages` v.

    **Returns:** (fullest, last) ratios.
    """
    xp = numpy_or_jax(layers, pp, virtual_stages)
    per_chunk = layers / (pp * virtual_stages)
    fullest = xp.ceil(per_chunk * (1.0 - _ROUNDING)) * virtual_stages
    short = fullest * pp - layers
    mean = layers / pp
    return fullest / mean, (fullest - xp.minimum(short, 1.0)) / mean


def stage_layers_by_cost(layers: int, pp: int, head: float) -> tuple[float, float, int]:
    """Return the ratios of `stage_layers` for software that assigns blocks to stages by cost.

    Blocks are assigned in order: layers, the head, then two without cost, a cast and the loss. The next stage begins once the
    assigned blocks exceed a stage's share of the total cost.

    **Arguments:** `layers`; `pp`: stages; `head`: cost of the head over that of a layer.

    **Returns:** (fullest, last) ratios, and the number of stages with at least one block; the first stage is as full as any.

    **Source:** huggingface/nanotron, models/base.py (`build_model`), and `get_block_compute_costs` of models/llama.py.
    """
    counts, stage, done = [0] * pp, 0, 0.0
    share = (layers + head) / pp * (1.0 + _ROUNDING)
    for block in range(layers + 3):
        used = stage
        counts[stage] += block < layers
        done += 1.0 if block < layers else head if block == layers else 0.0
        stage += stage < pp - 1 and done > share * (stage + 1)
    return max(counts) * pp / layers, counts[-1] * pp / layers, used + 1


_ROUNDING = 1e-6
"""Relative tolerance for quotients of integers computed in float32."""
