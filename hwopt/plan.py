"""How the work is split: degrees of parallelism, schedule, sharding and recomputation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar, numpy_or_jax

OFFLOADED = ("weights_offloaded", "optimizer_offloaded", "activations_offloaded")
"""Shares of a training plan that may wait in the memory pool."""


class ServingLayout(eqx.Module):
    """What few plans that serve have: experts held twice, batches in two halves, keys and values of a head on several ranks."""

    expert_slots: Scalar = switch(
        "experts that a rank of an expert parallel group holds, copies counted; more than E / ep"
    )
    two_batches: Scalar = switch(
        "1: a batch passes in two halves, exchanges with experts of one beside the work of the other"
    )
    cache_split: Scalar = switch(
        "tensor parallel ranks that hold keys and values of a head together, by token (decode context parallelism)"
    )


class Plan(eqx.Module):
    """A parallel plan. Degrees are floats, so that the relaxed model is differentiable in them.

    N = tp pp dp cp chips; expert parallelism lies inside: tp cp dp = expert_tp ep (expert replicas).
    Build checked integer plans with `hwopt.plan`; this class checks nothing.
    """

    tp: Scalar = ratio("tensor parallel degree")
    pp: Scalar = ratio("pipeline stages")
    dp: Scalar = switch("data parallel replicas")
    cp: Scalar = switch("context parallel degree")
    ep: Scalar = switch("expert parallel degree")
    expert_tp: Scalar = switch("tensor parallel degree inside an expert")
    virtual_stages: Scalar = ratio("model chunks a stage (interleaving)")
    micro_batch: Scalar = quantity("sequence", "sequences a replica and micro-batch")
    fullest_stage: Scalar = ratio(
        "layers of the fullest stage over the mean, >= 1; from integers, 1 in the relaxed model"
    )
    last_stage: Scalar = ratio("layers of the last stage (the one with the head) over the mean")
    sequence_parallel: Scalar = switch("1: norms and residuals are sharded over tp")
    optimizer_sharded: Scalar = switch("1: optimizer states sharded over data parallel ranks (ZeRO-1)")
    gradients_sharded: Scalar = switch("1: gradients too (ZeRO-2)")
    weights_sharded: Scalar = switch("1: weights too (ZeRO-3, FSDP)")
    shard_groups: Scalar = switch(
        "replicas of the sharded state (hybrid sharding); 1: shard over all data parallel ranks"
    )
    recompute_full: Scalar = switch("share of layers recomputed whole in the backward pass")
    recompute_attention: Scalar = switch("share of layers whose attention core is recomputed")
    bubble_fraction: Scalar = ratio("share of the 1F1B bubble the schedule leaves (1: 1F1B, 0: zero bubble)")
    weights_offloaded: Scalar = switch(
        "share of weights and gradients that are streamed from the memory pool for each pass"
    )
    optimizer_offloaded: Scalar = switch("share of master weights and moments held, and updated, in the pool")
    activations_offloaded: Scalar = switch("share of the kept activations that wait in the pool")
    local_steps: Scalar = switch("steps between exchanges of several sites; 1: synchronous")
    layout: ServingLayout | None = None  # of a service that has any of it

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers have chips of their own."""
        return False

    @property
    def chips(self) -> Scalar:
        """Chips that the plan uses."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def groups(self) -> dict[str, Plan]:
        """The plan of each group of chips, by what stands before its variables' names."""
        return {"": self}


class Disaggregated(eqx.Module):
    """Two groups of chips that serve together: one takes prompts, one generates answers; keys and values move between."""

    prefill: Plan
    decode: Plan

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers have chips of their own."""
        return True

    @property
    def chips(self) -> Scalar:
        """Chips that both plans use."""
        return self.prefill.chips + self.decode.chips

    @property
    def groups(self) -> dict[str, Plan]:
        """The plan of each group of chips, by what stands before its variables' names."""
        return {"": self.decode, "prefill_": self.prefill}


class FleetPlan(eqx.Module):
    """A plan for each group of chips of a fleet, and the sequences of a step that it takes."""

    groups: tuple[Plan, ...]
    sequences: tuple[Scalar, ...]

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers have chips of their own."""
        return False


class FleetPipeline(eqx.Module):
    """Stages of one pipeline on groups of chips, in order: the plan of each, `pp` its own stages, and the layers that it takes.

    All groups have as many replicas and the same micro-batches; tensor parallelism and recomputation are a group's own.
    """

    groups: tuple[Plan, ...]
    layers: tuple[Scalar, ...]

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers have chips of their own."""
        return False


def laid_out_as(plan: Plan, other: Plan, experts: Scalar) -> Plan:
    """A plan with a layout, a plain one for so many `experts`, where the other one has any: both are of one form then."""
    if plan.layout is not None or other.layout is None:
        return plan
    zero = numpy_or_jax(plan.tp).zeros_like(plan.tp)
    plain = ServingLayout(expert_slots=experts / plan.ep, two_batches=zero, cache_split=zero + 1.0)
    return replace(plan, layout=plain)


def undivided(plan: Plan, share: Scalar) -> Plan:
    """A plan whose batches do not pass in halves, a `share` of them (0 or 1)."""
    if plan.layout is None:
        return plan
    return replace(plan, layout=replace(plan.layout, two_batches=(1.0 - share) * plan.layout.two_batches))


class TrainServePlan(eqx.Module):
    """Plans of two machines of the same chips: one trains, one serves."""

    training: Plan
    serving: Plan | Disaggregated


def stage_layers(layers: Any, pp: Any, virtual_stages: Any) -> tuple[Any, Any]:
    """Layers of the fullest and of the last stage over the mean, for integers or columns of them.

    Each of the `p v` chunks takes `ceil(L / (p v))` layers; where that is more than there are, some stages go short by
    one, the last one (which also has the head) first. 126 layers on 16 stages: 8 and 7, over 7.875.

    **Returns:** (fullest, last) ratios.
    """
    xp = numpy_or_jax(layers, pp, virtual_stages)
    per_chunk = layers / (pp * virtual_stages)
    fullest = xp.ceil(per_chunk * (1.0 - _ROUNDING)) * virtual_stages
    short = fullest * pp - layers
    mean = layers / pp
    return fullest / mean, (fullest - xp.minimum(short, 1.0)) / mean


def stage_layers_by_cost(layers: int, pp: int, head: float) -> tuple[float, float, int]:
    """As `stage_layers`, where software hands out blocks one after the other and goes on to the next stage once those handed
    out exceed its share of all cost: layers, the head, then two that cost nothing, a cast and the loss.

    **Arguments:** `head`: its cost over a layer's.

    **Returns:** (fullest, last) ratios, and the stages that have a block at all; the first stage is as full as any.

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
"""Relative slack of quotients of integers computed in float32."""
