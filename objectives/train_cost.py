"""The cheapest cluster that trains a model in time, within a power and a capital budget.

minimise    cost of owning the cluster while the run lasts
over        chips, HBM bandwidth and capacity, clock, scale-up domain and bandwidth, scale-out bandwidth,
tensor and pipeline parallel degrees, virtual stages, micro-batch
subject to  run time            <= time_budget_s
peak facility power <= power_budget_w
capital cost        <= capex_budget_usd
the plan fits: memory, heads, layers, batch
"""

from __future__ import annotations

from dataclasses import dataclass

from hwopt import catalog
from hwopt.design.metrics import metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.variables import KNOWN, Inputs, variable

BATCH_ROOM = 0.05
"""How far the global batch may move from the one asked for, so that it divides among the replicas (assumption: the
critical batch is known no better than that)."""


@dataclass(frozen=True)
class TrainCost:
    """Cheapest training run under budgets of time, power and capital.

    Defaults: Llama-3.1-405B on its 15.6 T tokens in 30 days, 50 MW at the meter, 1.5 B$.
    """

    workload: str = "llama3.1-405b"
    chip: str = "h100-sxm"
    stack: str = "nemo-2024"
    site: str = "us-average"
    prices: str = "default"
    precision: str = "bf16"
    recompute: str = "none"
    tokens: float = 15.6e12
    global_batch: float = 2048.0
    sequence_length: float = 8192.0
    time_budget_s: float = 30 * 86400.0
    power_budget_w: float = 50e6
    capex_budget_usd: float = 1.5e9

    def problem(self) -> Problem:
        """The question in mathematics, with numbers from the catalogue."""
        run = catalog.training_run(
            self.workload,
            sequence_length=self.sequence_length,
            global_batch=self.global_batch,
            precision=self.precision,
            tokens=self.tokens,
        )
        catalog.check_precision(self.chip, self.precision)
        cluster = catalog.cluster(self.chip, 16384, stack=self.stack, site=self.site, prices=self.prices)
        batch = variable(
            "global_batch_sequences", (1 - BATCH_ROOM) * self.global_batch, (1 + BATCH_ROOM) * self.global_batch
        )
        plan = catalog.plan(run, 1, recompute=self.recompute, sequence_parallel="yes")
        links = (catalog.record("chips", self.chip).text[role] for role in ("scale_up", "scale_out"))
        return Problem(
            name="train_cost",
            question=(
                f"Cheapest cluster of {self.chip}-class chips that trains {self.workload} on {self.tokens:.3g} tokens in "
                f"{self.time_budget_s / 86400:.3g} days within {self.power_budget_w / 1e6:.4g} MW and "
                f"{self.capex_budget_usd / 1e9:.4g} B$"
            ),
            objective=metric("run_cost_usd"),
            variables=(*(each for name, each in KNOWN.items() if name != batch.name), batch),
            budgets=(
                Budget("time_budget_s", metric("run_time_s"), self.time_budget_s),
                Budget("power_budget_w", metric("peak_power_w"), self.power_budget_w),
                Budget("capex_budget_usd", metric("capex_usd"), self.capex_budget_usd),
            ),
            template=Inputs(run, cluster, plan),
            sources=tuple(
                catalog.sources_of(
                    catalog.record("workloads", self.workload),
                    catalog.record("chips", self.chip),
                    *(catalog.record("links", str(name)) for name in links),
                    catalog.record("stacks", self.stack),
                    catalog.record("sites", self.site),
                    catalog.record("prices", self.prices),
                )
            ),
        )
