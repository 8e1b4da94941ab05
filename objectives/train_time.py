from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainTime(TrainingQuestion):
    """The soonest end of a training run for a capital and a power budget.

    minimise    run time, failures included
    over        as `train_cost`
    subject to  capital cost        <= capex_budget_usd
                peak facility power <= power_budget_w
                and whatever else of `TrainingQuestion` is limited; plan, rack and chip as in `train_cost`

    Defaults: Llama-3.1-405B on its 15.6 T tokens with 1.5 B$ and 50 MW at the meter.
    """

    capex_budget_usd: float = 1.5e9
    power_budget_w: float = 50e6

    name: ClassVar[str] = "train_time"
    minimised: ClassVar[str] = "run_time_s"
    aim: ClassVar[str] = "Soonest training run"
