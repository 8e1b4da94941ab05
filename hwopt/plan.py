"""How the work is split: degrees of parallelism, schedule, sharding and recomputation."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Plan(eqx.Module):
    """A parallel plan. Degrees are floats, so that the relaxed model is differentiable in them.

    N = tp pp dp cp chips; expert parallelism lies inside: tp cp dp = expert_tp ep (expert replicas).
    Build checked whole-number plans with `hwopt.plan`; this class checks nothing.
    """

    tp: Scalar  # tensor parallel degree
    pp: Scalar  # pipeline stages
    dp: Scalar  # data parallel replicas
    cp: Scalar  # context parallel degree
    ep: Scalar  # expert parallel degree
    expert_tp: Scalar  # tensor parallel degree inside an expert
    virtual_stages: Scalar  # model chunks a stage (interleaving)
    micro_batch: Scalar  # sequences a replica and micro-batch
    fullest_stage: Scalar  # layers of the fullest stage over the mean, >= 1; from whole numbers, 1 in the relaxed model
    last_stage: Scalar  # layers of the last stage (the one with the head) over the mean
    sequence_parallel: Scalar  # 1: norms and residuals are sharded over tp
    optimizer_sharded: Scalar  # 1: optimizer states sharded over data parallel ranks (ZeRO-1)
    gradients_sharded: Scalar  # 1: gradients too (ZeRO-2)
    weights_sharded: Scalar  # 1: weights too (ZeRO-3, FSDP)
    shard_groups: Scalar  # replicas of the sharded state (hybrid sharding); 1: shard over all data parallel ranks
    recompute_full: Scalar  # share of layers recomputed whole in the backward pass
    recompute_attention: Scalar  # share of layers whose attention core is recomputed
    bubble_fraction: Scalar  # share of the 1F1B bubble the schedule leaves (1: 1F1B, 0: zero bubble)
    weights_offloaded: Scalar  # share of weights and gradients that are streamed from the memory pool for each pass
    optimizer_offloaded: Scalar  # share of master weights and moments held, and updated, in the pool
    activations_offloaded: Scalar  # share of the kept activations that wait in the pool
    local_steps: Scalar  # steps between exchanges of several sites; 1: synchronous


class Disaggregated(eqx.Module):
    """Two groups of chips that serve together: one takes prompts, one generates answers; keys and values move between."""

    prefill: Plan
    decode: Plan


class TrainingAndServing(eqx.Module):
    """Plans of two machines of the same chips: one trains, one serves."""

    training: Plan
    serving: Plan | Disaggregated


def stage_layers(layers: int, pp: int, virtual_stages: int) -> tuple[float, float]:
    """Layers of the fullest and of the last stage over the mean, for whole numbers.

    Each of the `p v` chunks takes `ceil(L / (p v))` layers; where that is more than there are, some stages go short by
    one, the last one (which also has the head) first. 126 layers on 16 stages: 8 and 7, over 7.875.

    **Returns:** (fullest, last) ratios.
    """
    chunk = -(-layers // (pp * virtual_stages))
    fullest = chunk * virtual_stages
    short = fullest * pp - layers
    last = fullest - min(short, 1)
    mean = layers / pp
    return fullest / mean, last / mean
