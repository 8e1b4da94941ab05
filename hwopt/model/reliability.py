"""What many chips lose that one would not: any of N can stop the job.

Every formula from `failure_rate_per_s` to `time_multiplier` is log-log convex: sums, products, positive powers and maxima
of monomials, the exponential of one, and 1/(1-x).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import Reliability, Storage
from hwopt.model.maximum import Maximum
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun

LARGEST_LOST = 0.95
"""Share of time that may be lost before the formulas stop: beyond it `goodput` is held, and `goodput_margin` negative."""


def failure_rate_per_s(reliability: Reliability, chips: Scalar, junction_k: Scalar) -> Scalar:
    """Interruptions of a job a second: `N lambda (1 - h + h exp(g (T - T_ref)))`.

    Arrhenius, `exp(E_a/k (1/T_ref - 1/T))`, with its exponent linear in T so that it stays log-log convex; the line
    touches at T_ref and lies above elsewhere: with 0.7 eV and 70 degC by 9 % at 50 degC and 8 % at 90 degC.

    Chips fail independently here. Measured small jobs do worse: at 1,024 GPUs of Meta's RSC-1 jobs lived 7.9 h where
    the rate of their nodes promises 28.8 h (3.7 times longer), since few nodes cause many failures and jobs also die of
    causes no node is charged with.

    **Arguments:** `chips` N; `junction_k` the temperature T of the chips.

    **Returns:** 1/s.

    **Source:** JEDEC JEP122 for the activation energy; Kokolis et al., arXiv 2410.21680, for the comparison.
    """
    r = reliability
    grown = jnp.exp(r.failure_growth_per_k * (junction_k - r.reference_junction_k))
    return chips * r.failures_per_chip_s * ((1.0 - r.hardware_share) + r.hardware_share * grown)


def job_mtbf_s(reliability: Reliability, chips: Scalar, junction_k: Scalar) -> Scalar:
    """Mean time between interruptions of a job that any of its chips stops: `M = 1 / rate`."""
    return 1.0 / failure_rate_per_s(reliability, chips, junction_k)


def checkpoint_bytes(parameters: Scalar, run: TrainingRun) -> Scalar:
    """What a checkpoint holds: `P (weight + trained (master + moments))`; 14 B a parameter for Adam in bf16.

    Published: BLOOM 2.3 TB for 176 B parameters (13.05 B each, 14.3 if those are TiB), OPT 9.1 (fp16 states).

    **Arguments:** all `parameters` of the model, once: replicas save nothing.

    **Returns:** B.
    """
    return parameters * (run.weight_bytes + run.trainable_fraction * (run.master_bytes + run.moment_bytes))


def save_s(checkpoint: Scalar, chips: Scalar, reliability: Reliability) -> Scalar:
    """Time the job waits for a save, delta: `overhead + bytes / (N snapshot bandwidth)`, every chip its own part."""
    return reliability.snapshot_overhead_s + checkpoint / (chips * reliability.snapshot_bandwidth_bytes_per_s)


def drain_s(checkpoint: Scalar, chips: Scalar, storage: Storage) -> Scalar:
    """Time until storage has what host memory holds, while the job goes on: `bytes / (N storage bandwidth)`."""
    return checkpoint / (chips * storage.checkpoint_bytes_per_s_per_chip)


def restart_s(checkpoint: Scalar, chips: Scalar, reliability: Reliability, storage: Storage) -> Scalar:
    """Time from an interruption to the first step, R: `restart + bytes / (N storage bandwidth)`."""
    return reliability.restart_s + drain_s(checkpoint, chips, storage)


def checkpoint_interval_s(save: Scalar, mtbf: Scalar, drain: Scalar, maximum: Maximum) -> Scalar:
    """Time between the starts of two saves: `tau = max(sqrt(2 delta M), drain)`.

    Young's optimum, and not before storage has the last one. `lost_fraction` has its least there.

    **Source:** Young, CACM 1974; Daly, FGCS 2006, to first order.
    """
    return maximum(jnp.sqrt(2.0 * save * mtbf), drain)


def lost_at_interval(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Share of time lost when saving every tau: `delta / tau + (tau / 2 + drain + R) / M`. A posynomial.

    Half an interval is done again after an interruption, and the drain, since what storage lacks is lost.

    **Returns:** a fraction; the first order of a renewal process, meaningful well below 1.
    """
    return save / interval + (0.5 * interval + drain + restart) / mtbf


def lost_fraction(save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar, maximum: Maximum) -> Scalar:
    """Share of time lost with the best interval: `delta / tau + (tau / 2 + drain + R) / M`, tau as above.

    `sqrt(2 delta / M) + (drain + R) / M` where storage keeps up. Log-log convex, as the least over tau of a posynomial
    under tau >= drain; the smooth maximum keeps it so. Against the least of Daly's renewal formula,
    `M e^(R/M) (e^((tau + delta)/M) - 1) / tau - 1` of time added, this interval costs less than 0.02 % of run time where
    delta < M/100 (0.5 % to M/10), and `1 / (1 - lost) - 1` is more by at most 6 % of itself up to 10 % lost, 13 % up to
    20 %, 32 % up to 40 %.

    **Arguments:** s, as the functions above give them.

    **Returns:** a fraction; may exceed 1 where the job never gets ahead.
    """
    return lost_at_interval(checkpoint_interval_s(save, mtbf, drain, maximum), save, mtbf, drain, restart)


def goodput(lost: Scalar) -> Scalar:
    """Share of time that is useful: `1 - lost`, held at 0.05 from `LARGEST_LOST` on, where its gradient is 0."""
    return 1.0 - jnp.where(lost < LARGEST_LOST, lost, LARGEST_LOST)


def time_multiplier(lost: Scalar) -> Scalar:
    """Run time over useful time: `1 / (1 - lost)`. Log-log convex below `LARGEST_LOST`, 20 from there on."""
    return 1.0 / goodput(lost)


def goodput_margin(lost: Scalar) -> Scalar:
    """`log(LARGEST_LOST / lost)`: negative where the job does not get ahead and `goodput` must not be believed."""
    return jnp.log(LARGEST_LOST / lost)


class Failures(NamedTuple):
    """What failures and checkpoints cost a job."""

    mtbf_s: Array
    interval_s: Array
    drain_s: Array
    goodput: Array
    margin: Array


def failures(
    run: TrainingRun,
    cluster: Cluster,
    junction_k: Scalar,
    parameters: Scalar,
    maximum: Maximum,
    interval_s: Scalar | None = None,
) -> Failures:
    """The functions above in a row: a job that trains `parameters` on all chips of a cluster at a junction temperature.

    **Arguments:** `interval_s` between saves, where it is not to be the best one. What is lost is a posynomial of the interval,
    least at the best one among those of at least `drain_s`, that storage keeps up with. Goodput is then `1 - lost`, not held
    above 0: for a caller that bounds the margin.
    """
    own, chips = cluster.reliability, cluster.chips
    mtbf, checkpoint = job_mtbf_s(own, chips, junction_k), checkpoint_bytes(parameters, run)
    save, drain = save_s(checkpoint, chips, own), drain_s(checkpoint, chips, cluster.storage)
    interval = checkpoint_interval_s(save, mtbf, drain, maximum) if interval_s is None else interval_s
    lost = lost_at_interval(interval, save, mtbf, drain, restart_s(checkpoint, chips, own, cluster.storage))
    return Failures(mtbf, interval, drain, goodput(lost) if interval_s is None else 1.0 - lost, goodput_margin(lost))
