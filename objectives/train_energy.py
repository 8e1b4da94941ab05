from dataclasses import dataclass
from typing import ClassVar

from objectives.training import TrainingQuestion


@dataclass(frozen=True)
class TrainEnergy(TrainingQuestion):
    """The training run with the lowest energy, within a deadline and a capital budget.

    minimize    energy of the run at the meter
    over        variables of `train_cost`
    subject to  run time     <= time_budget_s
                capital cost <= capex_budget_usd
                any other budget of `TrainingQuestion`; plan, rack and chip feasible as in `train_cost`

    Defaults: Llama-3.1-405B on 15.6 T tokens within 100 days and $1.5B of capital.
    """

    time_budget_s: float = 100 * 86400.0
    capex_budget_usd: float = 1.5e9

    name: ClassVar[str] = "train_energy"
    minimised: ClassVar[str] = "run_energy_j"
    aim: ClassVar[str] = "Training run of least energy"
