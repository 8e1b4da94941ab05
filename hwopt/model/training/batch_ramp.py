"""Batch-size ramp: step time of each stage of the run and its average over the run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwopt.model.chip.sustained_clock import ClockModel
from hwopt.model.training.schedule import StepTime
from hwopt.quantity import computed
from hwopt.types import Scalar
from hwopt.workload.ramp import BatchRamp
from hwopt.workload.training import TrainingRun

PerStage = Float[Array, " stage"]


class RampStages(eqx.Module):
    """Results for each stage of a batch ramp, including the last stage. Failures lengthen all stages by the same factor."""

    batch_sequences: PerStage = computed("sequence", "global batch")
    tokens: PerStage = computed("token", "processed in the stage")
    step_time_s: PerStage = computed("s", "the time of one of its steps")
    time_share: PerStage = computed("", "share of the run's time")
    mfu: PerStage = computed("", "model FLOPs over what the peaks of their formats allow")
    bubble_share: PerStage = computed("", "share of its steps in which the pipeline fills and drains")
    exposed_share: PerStage = computed("", "share of its steps in which chips wait for communication")


class RampRun(NamedTuple):
    """Memory and step times of a run. Without a ramp all steps are the same."""

    held: Any  # memory footprint of a chip in the last stage, whose batch is the largest
    last: StepTime  # step time of the last stage
    mean: StepTime  # average time, over the run, of as many tokens as the last stage's batch; its breakdown is that of `last`
    each: StepTime | None  # step times of every stage; None without a ramp


def fractions(ramp: BatchRamp) -> PerStage:
    """Return each stage's batch size over that of the last stage, including 1 for the last stage."""
    return jnp.concatenate([ramp.batch_fractions, jnp.ones_like(ramp.batch_fractions[:1])])


def shares(ramp: BatchRamp) -> PerStage:
    """Return each stage's share of the run's tokens. The last stage's share is the remainder."""
    return jnp.concatenate([ramp.token_shares, 1.0 - jnp.sum(ramp.token_shares, keepdims=True)])


def over_run(run: TrainingRun, step: Callable[[TrainingRun], tuple[Any, StepTime]]) -> RampRun:
    """Return memory and step times of a run, averaged over the stages of its batch ramp.

    Stage i processes a share w_i of the T tokens with batch `f_i B`, where B is the batch of the last stage. It does
    `w_i T / (f_i B)` steps of time `t_i`. So B tokens take `sum_i (w_i / f_i) t_i` on average. This is log-log convex where the
    step times are.

    **Arguments:** `step`: function from a run with the batch of one stage to its memory footprint and step time. It is traced
    once for all stages. Results that do not depend on the batch are computed once.
    """
    ramp = run.ramp
    if ramp is None:
        held, time = step(run)
        return RampRun(held, time, time, None)
    batches, tokens = fractions(ramp), shares(ramp)
    of_batch = lambda part: eqx.tree_at(lambda r: r.global_batch_sequences, run, part * run.global_batch_sequences)
    held, each = jax.vmap(lambda part: step(of_batch(part)))(batches)
    held, last = jax.tree.map(lambda leaf: leaf[-1], (held, each))
    weights = tokens / batches
    mean = last._replace(
        step_s=jnp.sum(weights * each.step_s),
        busy_s=jnp.sum(weights * each.busy_s),
        hbm_s=jnp.sum(weights * each.hbm_s),
        keeps=ClockModel(*(jnp.sum(tokens * pace) for pace in each.keeps)),
    )
    return RampRun(held, last, mean, each)


def stages(run: TrainingRun, steps: RampRun, mfu: Scalar) -> RampStages | None:
    """Return the results for each stage of a run, or None without a ramp.

    **Arguments:**

    - `steps`: step times, see `over_run`.
    - `mfu`: mean model FLOPs utilization over the run.
    """
    ramp, each = run.ramp, steps.each
    if ramp is None or each is None:
        return None
    batches, tokens = fractions(ramp), shares(ramp)
    parts = each.breakdown
    waits = (parts.tp_comm_s, parts.cp_comm_s, parts.ep_comm_s, parts.pp_comm_s, parts.dp_comm_s, parts.sites_comm_s)
    return RampStages(
        batch_sequences=batches * run.global_batch_sequences,
        tokens=tokens * run.tokens,
        step_time_s=each.step_s,
        time_share=tokens / batches * each.step_s / steps.mean.step_s,
        mfu=mfu * steps.mean.step_s * batches / each.step_s,
        bubble_share=parts.pp_bubble_s / each.step_s,
        exposed_share=sum(waits) / each.step_s,
    )
