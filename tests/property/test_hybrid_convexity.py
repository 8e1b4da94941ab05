"""Steps and memory of hybrids are log-log convex in hardware and micro-batches: between two points below the line through them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.plan import Plan
from hwopt.trace.cache import cached_trace
from tests.hybrids import KNOWN, changed, training

HARDWARE = ("cluster__chip__peak_flops_per_s", "cluster__chip__clock_ratio", "cluster__chip__hbm_bandwidth_bytes_per_s",
            "cluster__chip__sram_bytes", "cluster__network__bandwidth_bytes_per_s", "cluster__network__latency_s",
            "plan__micro_batch")  # fmt: skip
VARIABLES = (*HARDWARE, "plan__dp")
SEGMENTS, WIDTH = 400, 1.2
CLOSE = 1e-9


@dataclasses.dataclass(frozen=True)
class Machine:
    cluster: Cluster
    plan: Plan


def moved(moves, run, cluster, plan):
    """Logarithms of step time and memory with variables times the exponentials of `moves`; chips follow the replicas."""
    machine = Machine(cluster, plan)
    for i, path in enumerate(VARIABLES):
        old = machine
        for name in path.split("__"):
            old = getattr(old, name)
        machine = changed(machine, **{path: old * jnp.exp(moves[i])})
    report = estimate(run, changed(machine.cluster, chips=cluster.chips * jnp.exp(moves[-1])), machine.plan)
    return jnp.log(jnp.stack([report.step_time_s, report.memory_per_chip_bytes]))


def excesses(name: str, free: int) -> np.ndarray:
    """Logarithm of the middle over the mean of the ends' logarithms: (segment, output); at most 0 where convex.

    Chips run at the requested clock. Gradients are exchanged after the step: hidden behind the last micro-batch they leave the
    number of micro-batches less one, which is not convex in any model.
    """
    run, cluster, plan = training(KNOWN[name].shape, tp=2)
    cool = {"sink_resistance_k_per_w": 1e-5, "area_resistance_k_m2_per_w": 1e-9, "heat_flux_limit_w_per_m2": 1e12}
    chip = changed(cluster.chip, power_cap_w=np.float64(1e9))
    cooling = changed(cluster.cooling, **{field: np.float64(value) for field, value in cool.items()})
    cluster = changed(cluster, chip=chip, cooling=cooling, stack__dp_overlap=np.float64(0.0))
    case = changed(run, global_batch_sequences=np.float64(4096.0)), cluster, plan
    forms = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float64), case)
    report = cached_trace(moved, jax.ShapeDtypeStruct((len(VARIABLES),), np.float64), *forms)
    same = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(case)]).astype(np.float64)
    ends = np.random.default_rng(91).uniform(-WIDTH, WIDTH, (2, SEGMENTS, len(VARIABLES)))
    ends[:, :, free:] = 0.0

    def at(moves):
        return np.asarray(report([*moves.T, *same[:, None]], SEGMENTS)).reshape(SEGMENTS, 2)

    return at(ends.mean(0)) - 0.5 * (at(ends[0]) + at(ends[1]))


@pytest.mark.parametrize(
    "name",
    ["nemotron-3-super", *(pytest.param(name, marks=pytest.mark.slow) for name in KNOWN if name != "nemotron-3-super")],
)
def test_steps_and_memory_are_convex(name):
    """Memory by replicas too. A step is not: a ring among d of them moves `(d - 1) / d` of its bytes."""
    hardware, every = excesses(name, len(HARDWARE)), excesses(name, len(VARIABLES))
    assert (hardware <= CLOSE).all(), hardware.max(0)
    assert (every[:, 1] <= CLOSE).all()
    assert (hardware.min(0) < -1e-3).all()
    assert (every[:, 0] <= 1e-3).all()
