"""How large a cluster is worth it when every day of waiting costs money?

minimise    cost of the run + day_usd x days that the run takes
over        chips, tensor and pipeline parallel degrees, virtual stages, micro-batch, and the batch within 5 % of the one asked for
subject to  peak facility power <= power_budget_w
            the plan fits (memory, heads, layers, batch), racks carry and cool their chips
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from hwopt import catalog
from hwopt.design.design import Design
from hwopt.design.metrics import Metric, metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.provenance import Provenance
from hwopt.design.variables import KNOWN, variable

DAY_S = 86400.0


@cache  # the same price is the same metric: compiled once
def run_and_wait_usd(day_usd: float) -> Metric:
    """What the run costs and what waiting for it costs: a metric of our own is a name, a unit and a function of the report."""
    return Metric(
        "run_and_wait_usd",
        "USD",
        lambda report: report.run_cost_usd + day_usd / DAY_S * report.run_time_s,
        "the cost of the run and of waiting for it",
    )


@dataclass(frozen=True)
class TimeIsMoney:
    """Least cost of a training run and of waiting for it.

    Defaults: Llama-3-70B on 15 T tokens, 17 M tokens a step, a team of fifty that waits at 50,000 USD a day, 30 MW at the meter.
    """

    workload: str = "llama3-70b"
    chip: str = "h100-sxm"
    stack: str = "nemo-2024"
    site: str = "us-average"
    constants: str = "calibrated"
    precision: str = "bf16"
    tokens: float = 15e12
    global_batch: float = 2048.0
    day_usd: float = 5e4
    power_budget_w: float = 30e6

    meanings: ClassVar[Mapping[str, str]] = {  # what --help says of each field
        "workload": "a name of the catalogue, a .toml or a config.json",
        "chip": "a name of the catalogue or a .toml",
        "day_usd": "what a day of waiting costs",
        "power_budget_w": "at most, power at the meter with every chip at full load (W)",
    }

    def problem(self) -> Problem:
        """The question in mathematics, with numbers from the catalogue."""
        run = catalog.training_run(
            self.workload, tokens=self.tokens, global_batch=self.global_batch, precision=self.precision
        )
        catalog.check_precision(self.chip, self.precision)
        cluster = catalog.cluster(self.chip, 16384, stack=self.stack, site=self.site, constants=self.constants)
        plan = catalog.plan(run, 1, sequence_parallel="yes")
        names = ("chips", "tp", "pp", "virtual_stages", "micro_batch", "fullest_stage", "last_stage")
        batch = variable("global_batch_sequences", 0.95 * self.global_batch, 1.05 * self.global_batch)
        records = {
            "workload": catalog.record("workloads", self.workload),
            "chip": catalog.record("chips", self.chip),
            "stack": catalog.record("stacks", self.stack),
            "site": catalog.record("sites", self.site),
            "prices": catalog.record("prices", "default"),
        }
        return Problem(
            name="time_is_money",
            question=f"Run and wait: {self.workload}, {self.tokens:.3g} tokens, {self.chip}, {self.day_usd:,.0f} USD a day",
            objective=run_and_wait_usd(self.day_usd),
            variables=(*(KNOWN[name] for name in names), batch),
            budgets=(Budget("power_budget_w", metric("peak_power_w"), self.power_budget_w),),
            template=Design(run, cluster, plan),
            provenance=Provenance(records, self.constants),
        )
