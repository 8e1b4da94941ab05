"""hwopt: differentiable design of AI clusters. Names are the public API; rooms load when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwopt import renamed

# What type checkers and editors see; `_WHERE` is the same at run time, and a test compares the two.
if TYPE_CHECKING:
    from hwopt import catalog as catalog
    from hwopt.analysis.binding_budgets import walls as walls
    from hwopt.analysis.chance_constraints import confident as confident
    from hwopt.analysis.chance_constraints import regret as regret
    from hwopt.analysis.claim_check import Check as Check
    from hwopt.analysis.claim_check import check as check
    from hwopt.analysis.comparison import compare as compare
    from hwopt.analysis.deploy import deploy as deploy
    from hwopt.analysis.fabrics import fabrics as fabrics
    from hwopt.analysis.fleet.data_parallel import fleet as fleet
    from hwopt.analysis.frontier import frontier as frontier
    from hwopt.analysis.marginal_value import invest as invest
    from hwopt.analysis.scaling import scale as scale
    from hwopt.analysis.sensitivity import Sensitivity as Sensitivity
    from hwopt.analysis.sensitivity import elasticities as elasticities
    from hwopt.analysis.sensitivity import gradient as gradient
    from hwopt.analysis.sensitivity import sensitivity as sensitivity
    from hwopt.calibration.fit import calibrate as calibrate
    from hwopt.calibration.fit.options import FitOptions as FitOptions
    from hwopt.calibration.questions import objective as objective
    from hwopt.calibration.validation import validate as validate
    from hwopt.design.loss import Loss as Loss
    from hwopt.design.loss import loss as loss
    from hwopt.design.problem import Problem as Problem
    from hwopt.errors import UserError as UserError
    from hwopt.model.estimate import estimate as estimate
    from hwopt.model.report import Report as Report
    from hwopt.model.report import ServingReport as ServingReport
    from hwopt.model.report import TrainingReport as TrainingReport
    from hwopt.model.report import TrainServeReport as TrainServeReport
    from hwopt.planning.plan_search import best_plan as best_plan
    from hwopt.planning.plan_search import every_split as every_split
    from hwopt.planning.plan_table import PlanSearch as PlanSearch
    from hwopt.solver.optimize import optimize as optimize
    from hwopt.solver.options import AcceleratorOptions as AcceleratorOptions
    from hwopt.solver.options import BindingOptions as BindingOptions
    from hwopt.solver.options import ConfidenceOptions as ConfidenceOptions
    from hwopt.solver.options import ElasticOptions as ElasticOptions
    from hwopt.solver.options import FleetOptions as FleetOptions
    from hwopt.solver.options import HeuristicOptions as HeuristicOptions
    from hwopt.solver.options import InteriorPointOptions as InteriorPointOptions
    from hwopt.solver.options import LocalOptions as LocalOptions
    from hwopt.solver.options import PortfolioOptions as PortfolioOptions
    from hwopt.solver.options import PriceOptions as PriceOptions
    from hwopt.solver.options import RefinementOptions as RefinementOptions
    from hwopt.solver.options import ReformulationOptions as ReformulationOptions
    from hwopt.solver.options import RepairOptions as RepairOptions
    from hwopt.solver.options import ReplayOptions as ReplayOptions
    from hwopt.solver.options import SearchOptions as SearchOptions
    from hwopt.solver.options import SensitivityOptions as SensitivityOptions
    from hwopt.solver.options import SweepOptions as SweepOptions
    from hwopt.solver.options import TreeOptions as TreeOptions
    from hwopt.solver.solution import Outcome as Outcome
    from hwopt.solver.solution import Solution as Solution
    from hwopt.sweeps import sweep as sweep

from hwopt._version import __version__

# Names, not import statements: nothing is imported before it is used, and no room can reach another through this one.
_WHERE = {
    "AcceleratorOptions": "hwopt.solver.options",
    "BindingOptions": "hwopt.solver.options",
    "Check": "hwopt.analysis.claim_check",
    "ConfidenceOptions": "hwopt.solver.options",
    "ElasticOptions": "hwopt.solver.options",
    "FitOptions": "hwopt.calibration.fit.options",
    "FleetOptions": "hwopt.solver.options",
    "HeuristicOptions": "hwopt.solver.options",
    "InteriorPointOptions": "hwopt.solver.options",
    "LocalOptions": "hwopt.solver.options",
    "Loss": "hwopt.design.loss",
    "Outcome": "hwopt.solver.solution",
    "PlanSearch": "hwopt.planning.plan_table",
    "PortfolioOptions": "hwopt.solver.options",
    "PriceOptions": "hwopt.solver.options",
    "Problem": "hwopt.design.problem",
    "RefinementOptions": "hwopt.solver.options",
    "ReformulationOptions": "hwopt.solver.options",
    "RepairOptions": "hwopt.solver.options",
    "ReplayOptions": "hwopt.solver.options",
    "Report": "hwopt.model.report",
    "SearchOptions": "hwopt.solver.options",
    "Sensitivity": "hwopt.analysis.sensitivity",
    "SensitivityOptions": "hwopt.solver.options",
    "ServingReport": "hwopt.model.report",
    "Solution": "hwopt.solver.solution",
    "SweepOptions": "hwopt.solver.options",
    "TrainServeReport": "hwopt.model.report",
    "TrainingReport": "hwopt.model.report",
    "TreeOptions": "hwopt.solver.options",
    "UserError": "hwopt.errors",
    "best_plan": "hwopt.planning.plan_search",
    "calibrate": "hwopt.calibration.fit",
    "catalog": "hwopt",
    "check": "hwopt.analysis.claim_check",
    "compare": "hwopt.analysis.comparison",
    "confident": "hwopt.analysis.chance_constraints",
    "deploy": "hwopt.analysis.deploy",
    "elasticities": "hwopt.analysis.sensitivity",
    "estimate": "hwopt.model.estimate",
    "every_split": "hwopt.planning.plan_search",
    "fabrics": "hwopt.analysis.fabrics",
    "fleet": "hwopt.analysis.fleet.data_parallel",
    "frontier": "hwopt.analysis.frontier",
    "gradient": "hwopt.analysis.sensitivity",
    "invest": "hwopt.analysis.marginal_value",
    "loss": "hwopt.design.loss",
    "objective": "hwopt.calibration.questions",
    "optimize": "hwopt.solver.optimize",
    "regret": "hwopt.analysis.chance_constraints",
    "scale": "hwopt.analysis.scaling",
    "sensitivity": "hwopt.analysis.sensitivity",
    "sweep": "hwopt.sweeps",
    "validate": "hwopt.calibration.validation",
    "walls": "hwopt.analysis.binding_budgets",
}

__all__ = ["__version__", *_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if f"hwopt.{name}" in renamed.NAMES:
        return renamed.value("hwopt", name)
    if name not in _WHERE:
        raise AttributeError(f"module 'hwopt' has no attribute '{name}'; it has {', '.join(sorted(_WHERE))}")
    room = _WHERE[name]
    return import_module(f"{room}.{name}") if room == "hwopt" else getattr(import_module(room), name)


def __dir__() -> list[str]:
    return sorted(__all__)
