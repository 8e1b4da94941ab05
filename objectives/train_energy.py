from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainEnergy(TrainingQuestion):
    """The training run that draws least energy, in time and for a capital budget.

    minimise    energy at the meter over the run
    over        as `train_cost`
    subject to  run time     <= time_budget_s
                capital cost <= capex_budget_usd
                and whatever else of `TrainingQuestion` is limited; plan, rack and chip as in `train_cost`

    Defaults: Llama-3.1-405B on its 15.6 T tokens in 100 days with 1.5 B$.
    """

    time_budget_s: float = 100 * 86400.0
    capex_budget_usd: float = 1.5e9

    name: ClassVar[str] = "train_energy"
    minimised: ClassVar[str] = "run_energy_j"
    aim: ClassVar[str] = "Training run of least energy"
