from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class LossUnderBudget(TrainingQuestion):
    """The best loss for a budget: model shape, tokens, batch and hardware together.

    minimise    loss after the run, by a published scaling law with a critical batch
    over        as `train_cost`, and width, depth, tokens, batch
    subject to  cost of the run     <= cost_budget_usd
                run time            <= time_budget_s
                peak facility power <= power_budget_w
                and whatever else of `TrainingQuestion` is limited; plan, rack and chip as in `train_cost`

    Defaults: a dense transformer in the proportions of Llama-3.1-405B, 20 M$, 60 days, 20 MW at the meter.
    """

    cost_budget_usd: float = 20e6
    time_budget_s: float = 60 * 86400.0
    power_budget_w: float = 20e6

    name: ClassVar[str] = "loss_under_budget"
    minimised: ClassVar[str] = "loss"
    aim: ClassVar[str] = "Best loss"
    shape_is_free: ClassVar[bool] = True
