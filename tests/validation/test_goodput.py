"""Goodput against a simulation of events, which shares no formula with the model."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.facility import reliability as model
from hwopt.model.numerics.maximum import hard_maximum

CHIPS = (1024, 4096, 16384, 65536, 131072, 262144, 524288)
PARAMETERS_BYTES = 14.0 * 405.85e9


def simulated(rng, work_s, interval, save, drain, restart, mtbf) -> float:
    """Useful time over run time of a job that goes through saves, failures and restarts event by event.

    A save is safe when storage has it; a failure during a restart starts that again.
    """
    done, clock, next_failure = 0.0, 0.0, rng.exponential(mtbf)
    while done < work_s:
        finish = clock + interval + save
        if finish <= next_failure:
            clock, done = finish, done + interval
            continue
        clock = next_failure
        while True:  # what storage lacked is done again: as long as it took to drain
            back = clock + restart + drain
            next_failure = clock + rng.exponential(mtbf)
            if back <= next_failure:
                clock = back
                break
            clock = next_failure
    return done / clock


def simulated_with_spares(rng, work_s, interval, save, away_s, rates, repair, spares, swap, queue) -> float:
    """The same with servers that fail, are repaired and come back, and a pool of those that stand ready.

    A failure of hardware takes a server out; software takes none. Where no spare stands ready, the job waits for the queue.
    """
    hardware, software = rates
    done, clock, ready = 0.0, 0.0, spares
    back_at: list[float] = []  # when servers under repair are spares again
    next_failure = rng.exponential(1.0 / (hardware + software))

    def way_back(now: float) -> float:
        nonlocal ready
        while back_at and back_at[0] <= now:
            back_at.pop(0)
            ready += 1
        if rng.random() > hardware / (hardware + software):
            return swap
        back_at.append(now + repair)
        ready -= 1
        return swap if ready >= 0 else queue

    while done < work_s:
        finish = clock + interval + save
        if finish <= next_failure:
            clock, done = finish, done + interval
            continue
        clock = next_failure
        while True:
            back = clock + way_back(clock) + away_s
            next_failure = clock + rng.exponential(1.0 / (hardware + software))
            if back <= next_failure:
                clock = back
                break
            clock = next_failure
    return done / clock


def of_a_job(chips: int, recovery: str) -> dict[str, float]:
    """What the model says of a job of Llama 3 405B."""
    n = float(chips)
    cluster = catalog.cluster("h100-sxm", n, recovery=recovery)
    with jax.enable_x64(True):
        fleet = cluster.reliability
        stops = model.interruptions(cluster, n, fleet.reference_junction_k)
        mtbf = float(model.job_mtbf_s(stops))
        save = float(model.save_s(PARAMETERS_BYTES, n, fleet))
        drain = float(model.drain_s(PARAMETERS_BYTES, n, model.saved_bytes_per_s_per_chip(cluster)))
        restart = float(model.recovery_s(cluster)) + drain
        interval = float(model.checkpoint_interval_s(save, mtbf, drain, hard_maximum))
        goodput = float(model.goodput(model.lost_at_interval(interval, save, mtbf, drain, restart)))
        spares = float(model.hot_spares(cluster, n, stops)) / float(cluster.rack.server_chips)
    return dict(mtbf=mtbf, save=save, drain=drain, restart=restart, interval=interval, goodput=goodput, spares=spares,
                software=float(stops.software))  # fmt: skip


@pytest.mark.parametrize("chips", CHIPS)
def test_goodput_is_that_of_a_simulation(chips):
    job = of_a_job(chips, "from-storage")
    assert job["spares"] == 0.0
    times = [job[name] for name in ("interval", "save", "drain", "restart", "mtbf")]
    rng = np.random.default_rng(chips)
    seen = np.mean([simulated(rng, 3000.0 * min(job["mtbf"], 20 * job["interval"]), *times) for _ in range(8)])
    print(f"{chips} chips: MTBF {job['mtbf']:.0f} s, goodput {job['goodput']:.4f}, simulated {seen:.4f}")
    assert job["goodput"] == pytest.approx(seen, rel=0.01)


@pytest.mark.parametrize("recovery", ["hot-spares", "in-memory"])
@pytest.mark.parametrize("chips", CHIPS)
def test_goodput_with_spares_is_that_of_a_simulation(chips, recovery):
    job, own = of_a_job(chips, recovery), catalog.recovery(recovery)
    rates = (1.0 / job["mtbf"] - job["software"], job["software"])
    away = 2.0 * job["drain"]  # not yet stored, and read back
    pool = (float(own.repair_s), round(job["spares"]), float(own.swap_s), 600.0)
    rng = np.random.default_rng(chips)
    work = 3000.0 * min(job["mtbf"], 20 * job["interval"])
    seen = np.mean(
        [simulated_with_spares(rng, work, job["interval"], job["save"], away, rates, *pool) for _ in range(8)]
    )
    print(f"{chips} chips, {recovery}: {job['spares']:.1f} spares, goodput {job['goodput']:.4f}, simulated {seen:.4f}")
    assert job["goodput"] == pytest.approx(seen, rel=0.01)
    assert job["goodput"] > of_a_job(chips, "from-storage")["goodput"]
