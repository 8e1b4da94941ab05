from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainCost(TrainingQuestion):
    """The cheapest cluster that trains a model by a deadline, within a power and a capital budget.

    minimize    cost of owning the cluster for the duration of the run, including time lost to failures
    over        hardware: chips, clock, NICs per server, chips per rack; if listed in `free`, also HBM stacks, link lanes,
                scale-up domain and storage
                plan: parallel degrees, virtual stages, micro-batch, ZeRO stage, recomputation, offloading, global batch
    subject to  run time            <= time_budget_s
                peak facility power <= power_budget_w
                capital cost        <= capex_budget_usd
                any other budget of `TrainingQuestion`; the plan fits memory, heads, layers and batch; the rack powers,
                carries and cools its chips; the chip sustains its clock

    Defaults: Llama-3.1-405B on 15.6 T tokens within 90 days, a peak facility power of 30 MW and $900M of capital, on stock
    H100 chips.
    """

    time_budget_s: float = 90 * 86400.0
    power_budget_w: float = 30e6
    capex_budget_usd: float = 0.9e9

    name: ClassVar[str] = "train_cost"
    minimised: ClassVar[str] = "run_cost_usd"
    aim: ClassVar[str] = "Cheapest cluster"
