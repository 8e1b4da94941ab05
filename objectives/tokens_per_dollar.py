from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TokensPerDollar(TrainingQuestion):
    """The most training tokens per dollar, within a deadline.

    minimize    cost per token, the reciprocal of tokens per dollar
    over        variables of `train_cost`
    subject to  run time            <= time_budget_s
                peak facility power <= power_budget_w
                any other budget of `TrainingQuestion`; plan, rack and chip feasible as in `train_cost`

    Defaults: Llama-3.1-405B on 15.6 T tokens within 120 days and a peak facility power of 25 MW.
    """

    time_budget_s: float = 120 * 86400.0
    power_budget_w: float = 25e6

    name: ClassVar[str] = "tokens_per_dollar"
    minimised: ClassVar[str] = "cost_per_token_usd"
    aim: ClassVar[str] = "Most tokens a dollar"
