"""Reliability of large jobs: interruption rates, hot spares, checkpoints and goodput. Any failed chip stops a job.

Rates, save times and `multiplier_at` are log-log convex: sums, products, positive powers and exponentials of monomials.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import Reliability
from hwopt.model.facility.rack import chips_in_racks
from hwopt.model.network.switch_counts import ports_per_chip, switches_per_chip
from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.numerics.root_finding import held, lambert_above_branch, moved
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun

LARGEST_LOST = 0.95
"""Largest share of time lost to failures in `goodput`, which is clamped above it; the failure margin is negative there."""


class Interruptions(NamedTuple):
    """Interruption rates of a job by cause, 1/s."""

    dies: Scalar
    stacks: Scalar
    hosts: Scalar
    links: Scalar
    switches: Scalar
    racks: Scalar
    cooling: Scalar
    software: Scalar


def interruptions(cluster: Cluster, chips: Scalar, junction_k: Scalar) -> Interruptions:
    """Return the interruption rates of a job by type of part: `N` times the parts per chip times the failure rate of a part.

    Silicon counts by area, memory by stacks, hosts by servers, links by ports. A switch, a rack or a cooling loop counts once
    for all chips that depend on it. Rates of dies and stacks grow with temperature by `exp(g (T - T_ref))`. This is Arrhenius'
    `exp(E_a/k (1/T_ref - 1/T))` with an exponent linearized in T, which keeps it log-log convex. The line is tangent at T_ref
    and lies above elsewhere: for 0.7 eV and 70 degC, by 9 % at 50 and 8 % at 90 degC.

    Parts are assumed to fail independently. Measured small jobs fail more often: at 1,024 GPUs of Meta's RSC-1 jobs ran 7.9 h,
    where the failure rate of their nodes predicts 28.8 h (3.7 times longer). A few nodes cause many failures, and jobs also die
    of causes that are attributed to no node.

    **Arguments:** `chips`: N of the job; `junction_k`: junction temperature T of the chips.

    **Returns:** 1/s.

    **Source:** JEDEC JEP122 for the activation energy; Kokolis et al., arXiv 2410.21680, for the comparison.
    """
    own, chip = cluster.reliability, cluster.chip
    heat = jnp.exp(own.failure_growth_per_k * (junction_k - own.reference_junction_k))
    racks = chips / cluster.rack.chips
    return Interruptions(
        dies=chips * chip.heat_area_m2 * own.die_failures_per_m2_s * heat,
        stacks=chips * chip.hbm_stacks * own.stack_failures_per_s * heat,
        hosts=chips / cluster.rack.server_chips * own.host_failures_per_s,
        links=chips * ports_per_chip(cluster) * own.link_failures_per_s,
        switches=chips * switches_per_chip(cluster) * own.switch_failures_per_s,
        racks=racks * own.rack_failures_per_s,
        cooling=racks / cluster.cooling.loop_racks * own.loop_failures_per_s,
        software=chips * own.software_failures_per_chip_s,
    )


def job_mtbf_s(stops: Interruptions) -> Scalar:
    """Return the MTBF of a job that a failure of any part stops: `M = 1 / sum of rates`, s."""
    return 1.0 / sum(stops[1:], start=stops[0])


def hot_spares(cluster: Cluster, chips: Scalar, stops: Interruptions) -> Scalar:
    """Return the hot spare chips of a job: `n_server (m + z sqrt(m)) + c`.

    m is the mean number of servers under repair, z the configured number of standard deviations, c chips lost with racks, loops
    and switches. `m = rate x repair` is both mean and variance of a Poisson distribution.
    `c = repair (n_rack rate_racks + n_loop rate_loops + N rate_switch)`: a rack or a loop takes down its servers. A
    lowest-level switch takes down the chips below it, which for all such switches together are all chips; higher switches are
    routed around. c contains only means, since spares for the largest failure domain would be a large share of the cluster.

    **Arguments:** `chips`: N of the job; `stops`: interruption rates of the job, 1/s.

    **Returns:** chips; 0 where the cluster uses no hot spares.

    **Source:** warm standbys sized by a quantile of simultaneous failures, arXiv 2509.16293.
    """
    own, rack = cluster.recovery, cluster.rack
    servers = (stops.dies + stops.stacks + stops.hosts + stops.links) * own.repair_s
    spares = servers + own.spare_deviations * jnp.sqrt(servers + _NO_SERVER)
    with_racks = rack.chips * (stops.racks + cluster.cooling.loop_racks * stops.cooling)
    with_switches = jnp.where(stops.switches > 0.0, chips * cluster.reliability.switch_failures_per_s, 0.0)
    return own.hot_spares * (rack.server_chips * spares + (with_racks + with_switches) * own.repair_s)


def powered_chips(cluster: Cluster, stops: Interruptions) -> Scalar:
    """Return the working chips of a cluster and its hot spares: `max(N + spares, N s / n)`.

    The chips of whole racks that a job does not use are hot spares, `N (s / n - 1)`; more are added only where repairs need
    more (`hot_spares`). Log-log convex.
    """
    needed = cluster.chips + hot_spares(cluster, cluster.chips, stops)
    return jnp.where(cluster.rack.sold_chips > 0.0, hard_maximum(needed, chips_in_racks(cluster)), needed)


_NO_SERVER = 1e-24
"""Number added under a square root, so that its slope stays finite at a failure rate of 0."""


def recovery_s(cluster: Cluster) -> Scalar:
    """Return the time from an interruption until state can be read back, s: swap to a hot spare, or a full restart."""
    return jnp.where(cluster.recovery.hot_spares > 0.0, cluster.recovery.swap_s, cluster.reliability.restart_s)


def saved_bytes_per_s_per_chip(cluster: Cluster) -> Scalar:
    """Return the rate of saving checkpoints off a host, or of reading them back, B/s per chip: to peer hosts or to storage."""
    peers = cluster.recovery.peer_bytes_per_s_per_chip
    return jnp.where(peers > 0.0, peers, cluster.storage.checkpoint_bytes_per_s_per_chip)


def checkpoint_bytes(parameters: Scalar, run: TrainingRun) -> Scalar:
    """Return the size of a checkpoint: `P (weight + trained (master + moments))`; 14 B per parameter for Adam in bf16.

    Published: BLOOM 2.3 TB for 176 B parameters (13.05 B each, 14.3 if those are TiB), OPT 9.1 (fp16 states).

    **Arguments:** `parameters`: all P parameters of the model, counted once, since data parallel replicas save nothing.

    **Returns:** B.
    """
    return parameters * (run.weight_bytes + run.trainable_fraction * (run.master_bytes + run.moment_bytes))


def save_s(checkpoint: Scalar, chips: Scalar, reliability: Reliability) -> Scalar:
    """Return the time delta that the job waits for a save, s: `overhead + bytes / (N snapshot bandwidth)`.

    Each chip saves its own part.
    """
    return reliability.snapshot_overhead_s + checkpoint / (chips * reliability.snapshot_bandwidth_bytes_per_s)


def drain_s(checkpoint: Scalar, chips: Scalar, bytes_per_s_per_chip: Scalar) -> Scalar:
    """Return the time to write a checkpoint to where it survives a host failure, or to read it back, s: `bytes / (N rate)`.

    The job continues while a checkpoint is written.
    """
    return checkpoint / (chips * bytes_per_s_per_chip)


_TERMS = 9
"""Terms of the series of `sinh(y) / y` in y^2.

The next term is below 1e-9 for y < 2.3, the range in which a run makes progress.
"""


def checkpoint_interval_s(save: Scalar, mtbf: Scalar, drain: Scalar, maximum: Maximum) -> Scalar:
    """Return the optimal working time tau between two saves, but at least the time in which storage completes a save, s.

    The optimum of the renewal process satisfies `tau / M = 1 - e^(-(tau + delta) / M)`. Thus tau / M is
    `1 + W_0(-e^(-1 - delta / M))`. It tends to Young's `sqrt(2 delta M)` for saves that are short compared with the MTBF M, and
    to M for long ones.

    **Arguments:** `save` delta, `mtbf` M, `drain`, s; `maximum`: exact or smooth maximum.

    **Source:** Young, CACM 1974; Daly, FGCS 2006.
    """
    delta = save / mtbf
    share = lambert_above_branch(jnp.sqrt(-2.0 * jnp.expm1(-delta)))
    step, lost = moved(delta), held(jnp.exp(-(share + delta)))  # the form avoids rounding of `1 - tau / M`
    share = share + step * (lost / share) * (1.0 - 0.5 * step / (share * share))
    return maximum(share * mtbf, drain)


def log_multiplier_at(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Return the log of run time over useful time when saving every tau: `(drain + R) / M + log((e^x - 1) M / tau)`.

    `x = (tau + delta) / M`. In the renewal process, work of length tau and a save must complete without a failure. A failure
    loses all work since the last stored save and costs the recovery R, in which further failures may occur. The formula also
    holds where the MTBF M is shorter than a save.

    **Arguments:** `interval` tau, `save` delta, `mtbf` M, `drain`, `restart` R, s, from the functions above.

    **Source:** Daly, FGCS 2006, equation 13.
    """
    x = (interval + save) / mtbf
    return (drain + restart) / mtbf + 0.5 * x + _log_sinh_over(0.5 * x) + jnp.log1p(save / interval)


def _log_sinh_over(y: Scalar) -> Scalar:
    """Return `log(sinh(y) / y)` for y of zero or more, without overflow or cancellation; a series for small y."""
    small = y < _SERIES_UP_TO
    square = jnp.where(small, y, 0.0) ** 2
    series = jnp.zeros_like(square)
    for coefficient in reversed(_LOG_SINH_OVER):
        series = square * (coefficient + series)
    large = jnp.where(small, 1.0, y)
    return jnp.where(small, series, large + jnp.log(-jnp.expm1(-2.0 * large) / (2.0 * large)))


_SERIES_UP_TO = 0.3
"""Largest y for which the log above is computed by its series; y is half of tau + delta over the MTBF."""

_LOG_SINH_OVER = (1 / 6, -1 / 180, 1 / 2835, -1 / 37800, 1 / 467775, -691 / 3831077250, 2 / 127702575)
"""Series coefficients of `log(sinh(y) / y)` for y^2, y^4, ...; the next term is below 1e-14 at `_SERIES_UP_TO`."""


def multiplier_at(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Return run time over useful time as a product of positive series, which node relaxations can represent directly.

    `e^((drain + R) / M + x / 2) (1 + delta / tau) sum_k (x / 2)^2k / (2k + 1)!`, the exponential of `log_multiplier_at` with a
    truncated series. Log-log convex.

    **Arguments:** as in `log_multiplier_at`.
    """
    x = (interval + save) / mtbf
    square, term, series = 0.25 * x * x, 1.0, 1.0
    for k in range(1, _TERMS):
        term = term * square * (1.0 / (2 * k * (2 * k + 1)))
        series = series + term
    return jnp.exp((drain + restart) / mtbf + 0.5 * x) * series * (1.0 + save / interval)


def lost_at_interval(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Return the share of time lost to failures and saves when saving every tau: `1 - 1 / multiplier`."""
    return -jnp.expm1(-log_multiplier_at(interval, save, mtbf, drain, restart))


def lost_fraction(save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar, maximum: Maximum) -> Scalar:
    """Return the share of time lost to failures and saves with the optimal interval.

    **Arguments:** `save`, `mtbf`, `drain`, `restart`: s, from the functions above; `maximum`: exact or smooth maximum.
    """
    return lost_at_interval(checkpoint_interval_s(save, mtbf, drain, maximum), save, mtbf, drain, restart)


def goodput(lost: Scalar) -> Scalar:
    """Return the goodput, the useful share of time: `1 - lost`, clamped to 0.05 from `LARGEST_LOST` on.

    The gradient is zero where it is clamped.
    """
    return 1.0 - jnp.where(lost < LARGEST_LOST, lost, LARGEST_LOST)


def time_multiplier(lost: Scalar) -> Scalar:
    """Return run time over useful time: `1 / (1 - lost)`. Log-log convex below `LARGEST_LOST`, 20 from there on."""
    return 1.0 / goodput(lost)


MOST_MULTIPLIER = 1.0 / (1.0 - LARGEST_LOST)
"""Run time over useful time from which a job counts as making no progress."""


class Failures(NamedTuple):
    """Effect of failures and checkpoints on a job: MTBF, interval between saves, drain time, goodput, and margins."""

    mtbf_s: Array
    interval_s: Array
    drain_s: Array
    goodput: Array
    margin: Array
    saves: Array  # log of a stated interval over the drain time; infinite where no interval is stated

    @property
    def margins(self) -> dict[str, Array]:
        """Margins of a training run by name: failures and checkpoint interval. Negative: infeasible."""
        return {"failures": self.margin, "saves": self.saves}


def failures(
    run: TrainingRun,
    cluster: Cluster,
    stops: Interruptions,
    parameters: Scalar,
    maximum: Maximum,
    interval_s: Scalar | None = None,
) -> Failures:
    """Return the effect of failures and checkpoints on a job that trains `parameters` on all chips of a cluster.

    **Arguments:**
    - `stops`: interruption rates of the job;
    - `interval_s`: time between saves where the run states none; by default the optimal one. If given, the multiplier is a
      product of positive series and is not clamped: for a caller that bounds the margin.
    """
    own, chips = cluster.reliability, cluster.chips
    mtbf, checkpoint = job_mtbf_s(stops), checkpoint_bytes(parameters, run)
    save, drain = save_s(checkpoint, chips, own), drain_s(checkpoint, chips, saved_bytes_per_s_per_chip(cluster))
    restart = recovery_s(cluster) + drain
    return _failures(run, mtbf, save, drain, restart, maximum, interval_s)


def joint_failures(
    run: TrainingRun, clusters: Sequence[Cluster], stops: Interruptions, parameters: Scalar, maximum: Maximum
) -> Failures:
    """Return the effect of failures and checkpoints on a job on several clusters; a failure in any cluster stops it.

    All clusters save at the same time, and the job waits for the slowest to recover.
    """
    chips = sum((each.chips for each in clusters[1:]), start=clusters[0].chips)
    mean = lambda of: (
        sum((each.chips * of(each) for each in clusters[1:]), start=clusters[0].chips * of(clusters[0])) / chips
    )
    checkpoint = checkpoint_bytes(parameters, run)
    most = lambda of: reduce(hard_maximum, [of(each) for each in clusters])
    snapshot = mean(lambda each: each.reliability.snapshot_bandwidth_bytes_per_s)
    save = most(lambda each: each.reliability.snapshot_overhead_s) + drain_s(checkpoint, chips, snapshot)
    drain = drain_s(checkpoint, chips, mean(saved_bytes_per_s_per_chip))
    return _failures(run, job_mtbf_s(stops), save, drain, most(recovery_s) + drain, maximum)


def _failures(
    run: TrainingRun,
    mtbf: Scalar,
    save: Scalar,
    drain: Scalar,
    restart: Scalar,
    maximum: Maximum,
    interval_s: Scalar | None = None,
) -> Failures:
    free = checkpoint_interval_s(save, mtbf, drain, maximum) if interval_s is None else interval_s
    stated = run.checkpoint_interval_s > 0.0
    interval = jnp.where(stated, run.checkpoint_interval_s, free)
    keeps_up = jnp.where(stated, jnp.log(jnp.where(stated, run.checkpoint_interval_s, 1.0) / drain), jnp.inf)
    if interval_s is None:
        logarithm = log_multiplier_at(interval, save, mtbf, drain, restart)
        useful = goodput(-jnp.expm1(-logarithm))
        margin = math.log(MOST_MULTIPLIER) - logarithm
    else:
        multiplier = multiplier_at(interval, save, mtbf, drain, restart)
        useful, margin = 1.0 / multiplier, jnp.log(MOST_MULTIPLIER / multiplier)
    return Failures(mtbf, interval, drain, useful, margin, keeps_up)
