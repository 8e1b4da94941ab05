from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class Carbon(TrainingQuestion):
    """The training run that emits least, operation and manufacture together.

    minimise    kgCO2e of electricity, and of making what the run uses up of chips, servers and building
    over        as `train_cost`
    subject to  run time     <= time_budget_s
                capital cost <= capex_budget_usd
                and whatever else of `TrainingQuestion` is limited; plan, rack and chip as in `train_cost`

    Defaults: Llama-3.1-405B on its 15.6 T tokens in 100 days with 1.5 B$, on the average US grid.
    """

    time_budget_s: float = 100 * 86400.0
    capex_budget_usd: float = 1.5e9

    name: ClassVar[str] = "carbon"
    minimised: ClassVar[str] = "run_carbon_kg"
    aim: ClassVar[str] = "Training run of least carbon"
