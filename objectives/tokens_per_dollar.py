from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TokensPerDollar(TrainingQuestion):
    """The most tokens for a dollar: the cheapest token at a pace that still finishes.

    minimise    cost of a token (its reciprocal is tokens a dollar)
    over        as `train_cost`
    subject to  run time            <= time_budget_s
                peak facility power <= power_budget_w
                and whatever else of `TrainingQuestion` is limited; plan, rack and chip as in `train_cost`

    Defaults: Llama-3.1-405B on its 15.6 T tokens within 120 days and 25 MW at the meter.
    """

    time_budget_s: float = 120 * 86400.0
    power_budget_w: float = 25e6

    name: ClassVar[str] = "tokens_per_dollar"
    minimised: ClassVar[str] = "cost_per_token_usd"
    aim: ClassVar[str] = "Most tokens a dollar"
