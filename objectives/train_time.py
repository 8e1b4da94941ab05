from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainTime(TrainingQuestion):
    """The shortest training run within a capital and a power budget.

    minimize    run time, including time lost to failures
    over        variables of `train_cost`
    subject to  capital cost        <= capex_budget_usd
                peak facility power <= power_budget_w
                any other budget of `TrainingQuestion`; plan, rack and chip feasible as in `train_cost`

    Defaults: Llama-3.1-405B on 15.6 T tokens with $1.5B of capital and a peak facility power of 50 MW.
    """

    capex_budget_usd: float = 1.5e9
    power_budget_w: float = 50e6

    name: ClassVar[str] = "train_time"
    minimised: ClassVar[str] = "run_time_s"
    aim: ClassVar[str] = "Soonest training run"
