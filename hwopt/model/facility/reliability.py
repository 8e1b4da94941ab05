"""What many chips lose that one would not: any of N can stop the job.

Rates, times of saves and `multiplier_at` are log-log convex: sums, products, positive powers and exponentials of monomials.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.peripherals import Reliability
from hwopt.model.network.switch_counts import ports_per_chip, switches_per_chip
from hwopt.model.numerics.maximum import Maximum, hard_maximum
from hwopt.model.numerics.root_finding import held, lambert_above_branch, moved
from hwopt.types import Scalar
from hwopt.workload.training import TrainingRun

LARGEST_LOST = 0.95
"""Share of time that may be lost before the formulas stop: beyond it `goodput` is held, and `goodput_margin` negative."""


class Interruptions(NamedTuple):
    """Interruptions of a job by cause, 1/s."""

    dies: Scalar
    stacks: Scalar
    hosts: Scalar
    links: Scalar
    switches: Scalar
    racks: Scalar
    cooling: Scalar
    software: Scalar


def interruptions(cluster: Cluster, chips: Scalar, junction_k: Scalar) -> Interruptions:
    """Interruptions of a job a second by the parts of its machine: `N` times the parts a chip times their rates.

    Silicon by its area, memory by its stacks, hosts by the server, links by the port; and once for all that hangs on it a switch, a
    rack, a cooling loop. Dies and stacks grow with heat by `exp(g (T - T_ref))`: Arrhenius' `exp(E_a/k (1/T_ref - 1/T))` with its
    exponent linear in T so that it stays log-log convex. The line touches at T_ref and lies above elsewhere: with 0.7 eV, 70 degC
    by 9 % at 50 and 8 % at 90 degC.

    Parts fail independently here. Measured small jobs do worse: at 1,024 GPUs of Meta's RSC-1 jobs lived 7.9 h where
    the rate of their nodes promises 28.8 h (3.7 times longer), since few nodes cause many failures and jobs also die of
    causes no node is charged with.

    **Arguments:** `chips` N of the job; `junction_k` their temperature T.

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
    """Mean time between interruptions of a job that any part stops: `M = 1 / sum of rates`."""
    return 1.0 / sum(stops[1:], start=stops[0])


def hot_spares(cluster: Cluster, chips: Scalar, stops: Interruptions) -> Scalar:
    """Chips that stand started beside a job: `n_server (m + z sqrt(m)) + c`, m servers under repair and c chips in domains.

    `m = rate x repair` is Poisson's mean and variance; `c = repair (n_rack rate_racks + n_loop rate_loops + N rate_switch)`: a rack
    or a loop takes its servers along, a switch of the lowest level those below it, which are all chips over all such switches;
    those above are passed by. Means alone, since spares for the largest domain would be a share of the machine.

    **Arguments:** `chips` N of the job; its `stops`, 1/s.

    **Source:** warm standbys sized by a quantile of simultaneous failures, arXiv 2509.16293.
    """
    own, rack = cluster.recovery, cluster.rack
    servers = (stops.dies + stops.stacks + stops.hosts + stops.links) * own.repair_s
    spares = servers + own.spare_deviations * jnp.sqrt(servers + _NO_SERVER)
    with_racks = rack.chips * (stops.racks + cluster.cooling.loop_racks * stops.cooling)
    with_switches = jnp.where(stops.switches > 0.0, chips * cluster.reliability.switch_failures_per_s, 0.0)
    return own.hot_spares * (rack.server_chips * spares + (with_racks + with_switches) * own.repair_s)


_NO_SERVER = 1e-24
"""Keeps the slope of a square root finite where nothing fails."""


def recovery_s(cluster: Cluster) -> Scalar:
    """Time from an interruption until state can be read: of a spare that stands ready, or of the fleet's way."""
    return jnp.where(cluster.recovery.hot_spares > 0.0, cluster.recovery.swap_s, cluster.reliability.restart_s)


def saved_bytes_per_s_per_chip(cluster: Cluster) -> Scalar:
    """Rate at which a save leaves the host, and comes back: to the memory of others, or to storage."""
    peers = cluster.recovery.peer_bytes_per_s_per_chip
    return jnp.where(peers > 0.0, peers, cluster.storage.checkpoint_bytes_per_s_per_chip)


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


def drain_s(checkpoint: Scalar, chips: Scalar, bytes_per_s_per_chip: Scalar) -> Scalar:
    """Time until a save is where no failed host takes it along, while the job goes on; of reading it back: `bytes / (N rate)`."""
    return checkpoint / (chips * bytes_per_s_per_chip)


_TERMS = 9
"""Terms of `sinh(y) / y` in y^2: the next is below 1e-9 where a run gets ahead at all, `y < 2.3`."""


def checkpoint_interval_s(save: Scalar, mtbf: Scalar, drain: Scalar, maximum: Maximum) -> Scalar:
    """Time of work between two saves: the least time lost, and not before storage has the last save.

    `tau / M = 1 - e^(-(tau + delta) / M)`, where the renewal process has its least: `1 + W_0(-e^(-1 - delta / M))`. Young's
    `sqrt(2 delta M)` where a save is short against the time between failures, M where it is long.

    **Source:** Young, CACM 1974; Daly, FGCS 2006.
    """
    delta = save / mtbf
    share = lambert_above_branch(jnp.sqrt(-2.0 * jnp.expm1(-delta)))
    step, lost = moved(delta), held(jnp.exp(-(share + delta)))  # in which `1 - tau / M` has no rounding
    share = share + step * (lost / share) * (1.0 - 0.5 * step / (share * share))
    return maximum(share * mtbf, drain)


def log_multiplier_at(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Logarithm of run time over useful time when saving every tau: `(drain + R) / M + log((e^x - 1) M / tau)`.

    `x = (tau + delta) / M`.

    A renewal process: tau of work and a save must pass without a failure; one costs all since the last save that storage has, and
    the way back, in which more may strike. Holds where M is shorter than a save.

    **Arguments:** s, as the functions above give them. **Source:** Daly, FGCS 2006, equation 13.
    """
    x = (interval + save) / mtbf
    return (drain + restart) / mtbf + 0.5 * x + _log_sinh_over(0.5 * x) + jnp.log1p(save / interval)


def _log_sinh_over(y: Scalar) -> Scalar:
    """`log(sinh(y) / y)` for y of zero or more, that neither overflows nor cancels: a series up to 0.3."""
    small = y < _SERIES_UP_TO
    square = jnp.where(small, y, 0.0) ** 2
    series = jnp.zeros_like(square)
    for coefficient in reversed(_LOG_SINH_OVER):
        series = square * (coefficient + series)
    large = jnp.where(small, 1.0, y)
    return jnp.where(small, series, large + jnp.log(-jnp.expm1(-2.0 * large) / (2.0 * large)))


_SERIES_UP_TO = 0.3
"""Half of the time between saves over that between failures, up to which the logarithm above is a series."""

_LOG_SINH_OVER = (1 / 6, -1 / 180, 1 / 2835, -1 / 37800, 1 / 467775, -691 / 3831077250, 2 / 127702575)
"""Of y^2, y^4, ...: the next term is below 1e-14 at `_SERIES_UP_TO`."""


def multiplier_at(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """The same as a product of positive series, which readers of sums of monomials take as it is.

    `e^((drain + R) / M + x / 2) (1 + delta / tau) sum_k (x / 2)^2k / (2k + 1)!`. Log-log convex.
    """
    x = (interval + save) / mtbf
    square, term, series = 0.25 * x * x, 1.0, 1.0
    for k in range(1, _TERMS):
        term = term * square * (1.0 / (2 * k * (2 * k + 1)))
        series = series + term
    return jnp.exp((drain + restart) / mtbf + 0.5 * x) * series * (1.0 + save / interval)


def lost_at_interval(interval: Scalar, save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar) -> Scalar:
    """Share of time lost when saving every tau: `1 - 1 / multiplier`."""
    return -jnp.expm1(-log_multiplier_at(interval, save, mtbf, drain, restart))


def lost_fraction(save: Scalar, mtbf: Scalar, drain: Scalar, restart: Scalar, maximum: Maximum) -> Scalar:
    """Share of time lost with the best interval. **Arguments:** s, as the functions above give them."""
    return lost_at_interval(checkpoint_interval_s(save, mtbf, drain, maximum), save, mtbf, drain, restart)


def goodput(lost: Scalar) -> Scalar:
    """Share of time that is useful: `1 - lost`, held at 0.05 from `LARGEST_LOST` on, where its gradient is 0."""
    return 1.0 - jnp.where(lost < LARGEST_LOST, lost, LARGEST_LOST)


def time_multiplier(lost: Scalar) -> Scalar:
    """Run time over useful time: `1 / (1 - lost)`. Log-log convex below `LARGEST_LOST`, 20 from there on."""
    return 1.0 / goodput(lost)


MOST_MULTIPLIER = 1.0 / (1.0 - LARGEST_LOST)
"""Run time over useful time from which a job does not get ahead."""


_KEPT = 2.0
"""Checkpoints that storage holds at once: the last that is whole, and the one being written."""


class Failures(NamedTuple):
    """What failures and checkpoints cost a job."""

    mtbf_s: Array
    interval_s: Array
    drain_s: Array
    goodput: Array
    margin: Array
    stored: Array  # logarithm of storage's capacity over the checkpoints that it holds
    saves: Array  # logarithm of a stated interval over what storage takes; infinite where none is stated

    @property
    def margins(self) -> dict[str, Array]:
        """Those of a training run, by name."""
        return {"failures": self.margin, "saves": self.saves, "stored": self.stored}


def failures(
    run: TrainingRun,
    cluster: Cluster,
    stops: Interruptions,
    parameters: Scalar,
    maximum: Maximum,
    interval_s: Scalar | None = None,
) -> Failures:
    """The functions above in a row: a job that trains `parameters` on all chips of a cluster.

    **Arguments:** `stops` of the job; `interval_s` between saves, where it is neither to be the best one nor stated by the run.
    The multiplier is then not held, as a product of positive series: for a caller that bounds the margin.
    """
    own, chips = cluster.reliability, cluster.chips
    mtbf, checkpoint = job_mtbf_s(stops), checkpoint_bytes(parameters, run)
    save, drain = save_s(checkpoint, chips, own), drain_s(checkpoint, chips, saved_bytes_per_s_per_chip(cluster))
    restart = recovery_s(cluster) + drain
    stored = jnp.log(chips * cluster.storage.capacity_bytes / (_KEPT * checkpoint))
    return _failures(run, mtbf, save, drain, restart, stored, maximum, interval_s)


def joint_failures(
    run: TrainingRun, clusters: Sequence[Cluster], stops: Interruptions, parameters: Scalar, maximum: Maximum
) -> Failures:
    """The same of a job on several clusters, any of which stops it: all save at once, and wait for the slowest to come back."""
    chips = sum((each.chips for each in clusters[1:]), start=clusters[0].chips)
    mean = lambda of: (
        sum((each.chips * of(each) for each in clusters[1:]), start=clusters[0].chips * of(clusters[0])) / chips
    )
    checkpoint = checkpoint_bytes(parameters, run)
    most = lambda of: reduce(hard_maximum, [of(each) for each in clusters])
    snapshot = mean(lambda each: each.reliability.snapshot_bandwidth_bytes_per_s)
    save = most(lambda each: each.reliability.snapshot_overhead_s) + drain_s(checkpoint, chips, snapshot)
    drain = drain_s(checkpoint, chips, mean(saved_bytes_per_s_per_chip))
    stored = jnp.log(chips * mean(lambda each: each.storage.capacity_bytes) / (_KEPT * checkpoint))
    return _failures(run, job_mtbf_s(stops), save, drain, most(recovery_s) + drain, stored, maximum)


def _failures(
    run: TrainingRun,
    mtbf: Scalar,
    save: Scalar,
    drain: Scalar,
    restart: Scalar,
    stored: Scalar,
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
    return Failures(mtbf, interval, drain, useful, margin, stored, keeps_up)
