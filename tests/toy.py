"""A toy in place of the model: a question of three variables and a few operations, which sweeps take like any other.

Its workload class is registered with a report, integers and kernels, as the model registers its workloads. Questions, choices,
sweeps, searches, stores, screens and commands around it are the product's. No trace of it is kept on disk. Commands find `toy_cost`
where `offered` gives it the metadata of an installed distribution.

Of n chips in groups of t, at a clock ratio c:

    step time      = 1e5 s / (n c) + 0.2 s t
    memory a chip  = 600 GB / t                  <= 80 GB: `tp` of 8 and more
    peak power     = 1500 W n c^2
    capital        = 40 k$ n
    cost of a run  = run time (1e-3 $/s n + price of electricity x peak power)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp

from hwopt import registry
from hwopt.design import lattices
from hwopt.design.problem import Problem
from hwopt.design.variables import KNOWN, Ranges
from hwopt.integers.relations import ProductLimit
from hwopt.integers.system import Role, System, integer
from hwopt.model import estimate
from hwopt.model.chip.roofline import KernelTime
from hwopt.model.facility.cost import Spending
from hwopt.model.facility.reliability import Interruptions
from hwopt.model.kernels import kernels
from hwopt.model.layers import work
from hwopt.model.machine import LiftedMargins
from hwopt.model.report import TrainingMargins, TrainingReport
from hwopt.model.training.footprint import Footprint
from hwopt.model.training.schedule import Breakdown
from hwopt.workload.training import TrainingRun
from objectives.train_cost import TrainCost

VARIABLES = ("chips", "tp", "clock_ratio")
STEPS = 4e5
DEGREES = (1, 2, 4, 8, 16, 32, 64)


class ToyRun(TrainingRun):
    """A training run that the toy's formulas evaluate."""


def report(asked: ToyRun, cluster: Any, plan: Any, *_: Any) -> tuple[TrainingReport, LiftedMargins]:
    """Return the formulas above; every other output is 1."""
    n, t, c = cluster.chips, plan.tp, cluster.chip.clock_ratio
    one, none = jnp.ones_like(n), jnp.zeros_like(n)
    compute_s, sends_s = 1e5 / (n * c), 0.2 * t
    step_s = compute_s + sends_s
    run_s, power_w, held_bytes = STEPS * step_s, 1500.0 * n * c * c, 600e9 / t
    of = lambda kind, rest, **known: kind(**{name: known.get(name, rest) for name in kind._fields})
    margins = {each.name: one for each in fields(TrainingMargins)}
    margins |= {"chips": none, "memory": jnp.log(cluster.chip.hbm_capacity_bytes / held_bytes)}
    electricity = cluster.facility.electricity_usd_per_j * power_w
    usd_per_s = 1e-3 * n + electricity
    known = {
        "breakdown": of(Breakdown, none, compute_s=compute_s, tp_comm_s=sends_s),
        "memory": of(Footprint, none, weights_bytes=held_bytes),
        "spending": of(Spending, none, chips=1e-3 * n, electricity=electricity),
        "interruptions": of(Interruptions, none),
        "margins": TrainingMargins(**margins),
        "bottleneck": jnp.where(sends_s > compute_s, 1.0 * Breakdown._fields.index("tp_comm_s"), 0.0),
        "feasible": jnp.where(held_bytes <= cluster.chip.hbm_capacity_bytes, 1.0, 0.0),
        "step_time_s": step_s,
        "mfu": 0.5 * compute_s / step_s,
        "memory_per_chip_bytes": held_bytes,
        "memory_capacity_bytes": cluster.chip.hbm_capacity_bytes,
        "clock_ratio": c,
        "clock_margin": 0.1 - jnp.log(c),
        "peak_power_w": power_w,
        "capex_usd": 4e4 * n,
        "run_time_s": run_s,
        "run_cost_usd": run_s * usd_per_s,
        "unit_of_work": asked.model.unit_of_work,
        "stages": None,
    }
    return TrainingReport(**{each.name: known.get(each.name, one) for each in fields(TrainingReport)}), LiftedMargins(
        one, one, one
    )


def integers(ranges: Ranges) -> System:
    """Groups of `tp` chips, any number of them."""
    return System(
        (
            integer("tp", ranges.of("tp"), among=DEGREES, role=Role.root),
            integer("dp", (1, ranges.of("chips")[1]), fills=True),
        ),
        (ProductLimit(("tp", "dp"), (), *ranges.of("chips"), name="chips", follows="dp"),),
    )


def gemms(_: ToyRun, cluster: Any, plan: Any) -> tuple[work.Gemms, KernelTime]:
    """Two kernels: one that computes, one that reads."""
    row = lambda *numbers: jnp.asarray(numbers, float) * jnp.ones_like(plan.tp)
    table = work.Gemms(
        row(4096.0, 1.0), row(4096.0, 4096.0), row(4096.0, 4096.0), row(1.0, 1.0), row(1.0, 1.0), row(0.0, 0.0)
    )
    return table, KernelTime.as_asked(row(2e-4, 1e-6), row(0.0, 1e-5), row(0.0, 0.0), row(3e-5, 1e-5))


estimate.REPORTS[ToyRun] = TrainingReport
estimate._report.register(ToyRun, report)
kernels.register(ToyRun, gemms)
lattices._machines_of.register(
    ToyRun,
    lambda _, template, variables: [
        lattices._LatticeMachine(integers, {"tp": "groups of chips"}, lambda _: [], Ranges(variables, template))
    ],
)


@dataclass(frozen=True)
class ToyCost(TrainCost):
    """The cheapest toy within a time, a power and a capital budget."""

    time_budget_s: float = 100 * 86400.0
    power_budget_w: float = 40e6
    capex_budget_usd: float = 1.2e9

    name: ClassVar[str] = "toy_cost"
    aim: ClassVar[str] = "Cheapest toy"

    def problem(self) -> Problem:
        asked = self._stated(continuous=True)
        workload = asked.template.workload
        toy = ToyRun(**{each.name: getattr(workload, each.name) for each in fields(workload)})
        return Problem(
            name=self.name,
            question=asked.question,
            objective=asked.objective,
            variables=tuple(KNOWN[name] for name in VARIABLES),
            budgets=asked.budgets,
            template=asked.template._replace(workload=toy),
            provenance=asked.provenance,
        )


def offered(site: Path) -> Path:
    """A folder that offers `toy_cost` to whatever has it on its path."""
    info = site / "toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\ntoy_cost = {__name__}:ToyCost\n")
    return site
