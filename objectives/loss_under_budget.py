from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class LossUnderBudget(TrainingQuestion):
    """The lowest loss for a budget: model shape, tokens, batch and hardware are chosen together.

    minimize    loss after the run, by a published scaling law with a critical batch size
    over        variables of `train_cost`, and width, depth, tokens and global batch
    subject to  cost of the run     <= cost_budget_usd
                run time            <= time_budget_s
                peak facility power <= power_budget_w
                any other budget of `TrainingQuestion`; plan, rack and chip feasible as in `train_cost`

    Defaults: a dense transformer with the proportions of Llama-3.1-405B, $20M, 60 days, a peak facility power of 20 MW.
    """

    cost_budget_usd: float = 20e6
    time_budget_s: float = 60 * 86400.0
    power_budget_w: float = 20e6

    name: ClassVar[str] = "loss_under_budget"
    minimised: ClassVar[str] = "loss"
    aim: ClassVar[str] = "Best loss"
    shape_is_free: ClassVar[bool] = True
