"""Goodput against a simulation of events, which shares no formula with the model."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.peripherals import reliability, storage
from hwopt.model import reliability as model
from hwopt.model.maximum import hard_maximum

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


@pytest.mark.parametrize("chips", CHIPS)
def test_goodput_is_that_of_a_simulation(chips):
    held, store = reliability("fleet-mean"), storage("shared-flash", "fleet-mean")
    with jax.enable_x64(True):
        n = float(chips)
        cluster = catalog.cluster("h100-sxm", n)
        mtbf = float(model.job_mtbf_s(model.interruptions(cluster, n, held.reference_junction_k)))
        save, drain = float(model.save_s(PARAMETERS_BYTES, n, held)), float(model.drain_s(PARAMETERS_BYTES, n, store))
        restart = float(model.restart_s(PARAMETERS_BYTES, n, held, store))
        interval = float(model.checkpoint_interval_s(save, mtbf, drain, hard_maximum))
        said = float(model.goodput(model.lost_at_interval(interval, save, mtbf, drain, restart)))
    rng = np.random.default_rng(chips)
    seen = np.mean(
        [simulated(rng, 3000.0 * min(mtbf, 20 * interval), interval, save, drain, restart, mtbf) for _ in range(8)]
    )
    print(f"{chips} chips: MTBF {mtbf:.0f} s, a save every {interval:.0f} s, goodput {said:.4f}, simulated {seen:.4f}")
    assert said == pytest.approx(seen, rel=0.01)
