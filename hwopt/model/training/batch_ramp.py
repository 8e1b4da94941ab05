"""A run whose batch grows: a step of each stage, and what they come to over the run."""

from __future__ import annotations

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
    """The stages of a run by their number, the last too. Failures lengthen all of them alike."""

    batch_sequences: PerStage = computed("sequence", "global batch")
    tokens: PerStage = computed("token", "processed in the stage")
    step_time_s: PerStage = computed("s", "the time of one of its steps")
    time_share: PerStage = computed("", "share of the run's time")
    mfu: PerStage = computed("", "model FLOPs over what the peaks of their formats allow")
    bubble_share: PerStage = computed("", "share of its steps in which the pipeline fills and drains")
    exposed_share: PerStage = computed("", "share of its steps in which chips wait for communication")


class RampRun(NamedTuple):
    """Steps of a run. Without a ramp all of them are the same."""

    held: Any  # what a chip holds in the last stage, whose batch is the largest
    last: StepTime  # of the last stage
    mean: StepTime  # what as many tokens as its batch holds take on average over the run; parts are those of `last`
    each: StepTime | None  # of every stage; None without a ramp


def fractions(ramp: BatchRamp) -> PerStage:
    """Batches over the last one, the last too."""
    return jnp.concatenate([ramp.batch_fractions, jnp.ones_like(ramp.batch_fractions[:1])])


def shares(ramp: BatchRamp) -> PerStage:
    """Tokens over the run's, the last stage's too: what the others leave."""
    return jnp.concatenate([ramp.token_shares, 1.0 - jnp.sum(ramp.token_shares, keepdims=True)])


def over_run(run: TrainingRun, step: Callable[[TrainingRun], tuple[Any, StepTime]]) -> RampRun:
    """The last stage of a run, and the time of its tokens on average.

    Stage i does `w_i T / (f_i B)` steps of `t_i`, so that as many tokens as a batch B of the last stage holds take
    `sum_i (w_i / f_i) t_i` on average: log-log convex where steps are.

    **Arguments:** `step`: what a chip holds, and the time of a step, of a run whose batch is that of one stage. It is traced
    once for all stages, and what does not follow from the batch is worked out once.
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
    """The stages of a run; None without a ramp. **Arguments:** `mfu`, mean over the run."""
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
