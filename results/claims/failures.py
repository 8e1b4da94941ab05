"""Claims about failures, checkpoints and what they cost."""

from __future__ import annotations

import functools

import jax

from hwopt.model.facility import reliability
from hwopt.model.numerics.maximum import hard_maximum
from results.claims.claim import Finding, Verdict, at_least, by_factor, claim
from results.claims.runs import HOUR_S, Run, llama3_405b, opt_175b, run_of


@functools.cache
def _bloom() -> Run:
    plan = dict(tp=4, pp=12, micro_batch=2, recompute="full", sequence_parallel="no")
    return run_of("bloom-176b", "a100-80", 384, plan, stack="megatron-2021", reliability="bloom-2022")


def _lost_when_saving_every(run: Run, interval_s: float) -> float:
    """Share of the time that failures cost at another interval than the best: `lost_at_interval` of the run's own parts."""
    cluster, report = run.cluster, run.report
    with jax.enable_x64(True):
        size = reliability.checkpoint_bytes(float(report.parameters), run.workload)
        save = reliability.save_s(size, run.chips, cluster.reliability)
        drain = reliability.drain_s(size, run.chips, reliability.saved_bytes_per_s_per_chip(cluster))
        restart = reliability.recovery_s(cluster) + drain
        mtbf = float(report.mean_time_between_failures_s)
        return float(reliability.lost_at_interval(interval_s, save, mtbf, drain, restart))


@claim("A24", "001:56", "checkpoints are saved automatically every few hours")
def checkpoint_interval() -> Finding:
    opt, llama, bloom = opt_175b(), llama3_405b(), _bloom()
    claimed = 3 * HOUR_S
    bloom_mtbf, waited = float(bloom.report.mean_time_between_failures_s), 40.0  # s, as BLOOM did: until storage had it
    with jax.enable_x64(True):
        small = float(reliability.checkpoint_interval_s(waited, bloom_mtbf, waited, hard_maximum))
    best = float(opt.report.checkpoint_interval_s)
    return Finding(
        f"{best / 60:.0f} min for OPT-175B, {float(llama.report.checkpoint_interval_s) / 60:.1f} min for Llama 3",
        by_factor(best, claimed),
        f"Young's optimum sqrt(2 x save x time between failures) on 992 and 16,384 chips; every 3 h would cost "
        f"{_lost_when_saving_every(opt, claimed):.0%} and {_lost_when_saving_every(llama, claimed):.0%} of the time; hours are "
        f"right for 384 chips that wait {waited:.0f} s for storage, as BLOOM did: {small / HOUR_S:.1f} h",
    )


@claim("A25", "001:56,108", "fault tolerance costs 10 to 15 % of the compute")
def fault_tolerance_cost() -> Finding:
    opt, llama = (1.0 - float(run.report.goodput) for run in (opt_175b(), llama3_405b()))
    mean, small = (opt * llama) ** 0.5, 1.0 - float(_bloom().report.goodput)
    return Finding(
        f"{opt:.1%} for OPT-175B, {llama:.1%} for Llama 3",
        by_factor(mean, min(max(mean, 0.10), 0.15)),
        "saving, work done again and restarts at the best interval; Llama 3 reported below 10 %; the 12 to 18 spare nodes of "
        f"124 that OPT kept are another 10 to 15 % of the machine; the 384 chips of BLOOM lose {small:.1%}",
    )


@claim("A26", "001:56", "Azure computes gradients redundantly against failures")
def redundant_gradients() -> Finding:
    lost = 1.0 - float(llama3_405b().report.goodput)
    twice = 0.5
    verdict: Verdict = "cannot be decided"
    return Finding(
        f"{twice:.0%} of the throughput against {lost:.1%} lost to failures",
        verdict,
        "what a cloud runs is a record, not a result; every gradient twice would halve throughput, which pays only where "
        f"failures cost more than that, and on 16,384 H100 they cost {lost:.1%}",
    )


@claim("A28", "001:58", "coordinating a checkpoint limits throughput")
def checkpoint_stall() -> Finding:
    opt, llama = opt_175b(), llama3_405b()
    stalls = []
    for run in (opt, llama):
        with jax.enable_x64(True):
            size = reliability.checkpoint_bytes(float(run.report.parameters), run.workload)
            save = float(reliability.save_s(size, run.chips, run.cluster.reliability))
        stalls.append(save / float(run.report.checkpoint_interval_s))
    material = 0.05  # of the time: less limits nothing
    return Finding(
        f"{stalls[0]:.1%} of the time for OPT-175B, {stalls[1]:.1%} for Llama 3",
        at_least(max(stalls), material),
        f"the job waits for barrier and copy to host memory, {float(llama.cluster.reliability.snapshot_overhead_s):.0f} s and "
        "more, while storage takes the rest beside the next steps; less than the restarts, and far less than a twentieth",
    )
