from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainCost(TrainingQuestion):
    """The cheapest cluster that trains a model in time, within a power and a capital budget.

    minimise    cost of the cluster while the run lasts, failures included
    over        chips, HBM bandwidth and capacity, clock, scale-up domain and bandwidth, scale-out bandwidth, chips in a rack,
                tensor and pipeline parallel degrees, virtual stages, micro-batch
    subject to  run time            <= time_budget_s
                peak facility power <= power_budget_w
                capital cost        <= capex_budget_usd
                and whatever else of `TrainingQuestion` is limited; the plan fits (memory, heads, layers, batch), the
                rack carries and cools its chips, the chip sustains its clock

    Defaults: Llama-3.1-405B on its 15.6 T tokens in 54 days (as long as it took), 40 MW at the meter, 1.45 B$.
    """

    time_budget_s: float = 54 * 86400.0
    power_budget_w: float = 40e6
    capex_budget_usd: float = 1.45e9

    name: ClassVar[str] = "train_cost"
    minimised: ClassVar[str] = "run_cost_usd"
    aim: ClassVar[str] = "Cheapest cluster"
