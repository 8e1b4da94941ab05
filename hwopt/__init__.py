"""hwopt: differentiable design of AI clusters. Names are the public API; rooms load when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwopt import renamed

# What type checkers and editors see; `_WHERE` is the same at run time, and a test compares the two.
if TYPE_CHECKING:
    from hwopt import catalog as catalog
    from hwopt.design.problem import Problem as Problem
    from hwopt.errors import UserError as UserError
    from hwopt.evidence.calibration import calibrate as calibrate
    from hwopt.evidence.calibration.options import FitOptions as FitOptions
    from hwopt.evidence.validation import validate as validate
    from hwopt.model.estimate import estimate as estimate
    from hwopt.model.report import Report as Report
    from hwopt.model.report import ServingReport as ServingReport
    from hwopt.model.report import TrainingReport as TrainingReport
    from hwopt.model.report import TrainServeReport as TrainServeReport
    from hwopt.optim.optimize import optimize as optimize
    from hwopt.optim.options import AcceleratorOptions as AcceleratorOptions
    from hwopt.optim.options import BindingOptions as BindingOptions
    from hwopt.optim.options import ConfidenceOptions as ConfidenceOptions
    from hwopt.optim.options import ElasticOptions as ElasticOptions
    from hwopt.optim.options import FleetOptions as FleetOptions
    from hwopt.optim.options import HeuristicOptions as HeuristicOptions
    from hwopt.optim.options import InteriorPointOptions as InteriorPointOptions
    from hwopt.optim.options import LocalOptions as LocalOptions
    from hwopt.optim.options import PortfolioOptions as PortfolioOptions
    from hwopt.optim.options import PriceOptions as PriceOptions
    from hwopt.optim.options import RefinementOptions as RefinementOptions
    from hwopt.optim.options import ReformulationOptions as ReformulationOptions
    from hwopt.optim.options import RepairOptions as RepairOptions
    from hwopt.optim.options import ReplayOptions as ReplayOptions
    from hwopt.optim.options import SearchOptions as SearchOptions
    from hwopt.optim.options import SensitivityOptions as SensitivityOptions
    from hwopt.optim.options import SweepOptions as SweepOptions
    from hwopt.optim.options import TreeOptions as TreeOptions
    from hwopt.optim.plan_search import best_plan as best_plan
    from hwopt.optim.plan_search import every_split as every_split
    from hwopt.optim.plan_table import PlanSearch as PlanSearch
    from hwopt.optim.solution import Outcome as Outcome
    from hwopt.optim.solution import Solution as Solution
    from hwopt.registry import objective as objective
    from hwopt.study.blueprint import Check as Check
    from hwopt.study.blueprint import check as check
    from hwopt.study.comparison import compare as compare
    from hwopt.study.confidence import confident as confident
    from hwopt.study.confidence import regret as regret
    from hwopt.study.deploy import deploy as deploy
    from hwopt.study.fabrics import fabrics as fabrics
    from hwopt.study.fleet import fleet as fleet
    from hwopt.study.frontier import frontier as frontier
    from hwopt.study.invest import invest as invest
    from hwopt.study.scaling import scale as scale
    from hwopt.study.sensitivity import Sensitivity as Sensitivity
    from hwopt.study.sensitivity import elasticities as elasticities
    from hwopt.study.sensitivity import sensitivity as sensitivity
    from hwopt.study.sweep import sweep as sweep
    from hwopt.study.walls import walls as walls

__version__ = "0.2.0"

# Names, not import statements: nothing is imported before it is used, and no room can reach another through this one.
_WHERE = {
    "AcceleratorOptions": "hwopt.optim.options",
    "BindingOptions": "hwopt.optim.options",
    "Check": "hwopt.study.blueprint",
    "ConfidenceOptions": "hwopt.optim.options",
    "ElasticOptions": "hwopt.optim.options",
    "FitOptions": "hwopt.evidence.calibration.options",
    "FleetOptions": "hwopt.optim.options",
    "HeuristicOptions": "hwopt.optim.options",
    "InteriorPointOptions": "hwopt.optim.options",
    "LocalOptions": "hwopt.optim.options",
    "Outcome": "hwopt.optim.solution",
    "PlanSearch": "hwopt.optim.plan_table",
    "PortfolioOptions": "hwopt.optim.options",
    "PriceOptions": "hwopt.optim.options",
    "Problem": "hwopt.design.problem",
    "RefinementOptions": "hwopt.optim.options",
    "ReformulationOptions": "hwopt.optim.options",
    "RepairOptions": "hwopt.optim.options",
    "ReplayOptions": "hwopt.optim.options",
    "Report": "hwopt.model.report",
    "SearchOptions": "hwopt.optim.options",
    "Sensitivity": "hwopt.study.sensitivity",
    "SensitivityOptions": "hwopt.optim.options",
    "ServingReport": "hwopt.model.report",
    "Solution": "hwopt.optim.solution",
    "SweepOptions": "hwopt.optim.options",
    "TrainServeReport": "hwopt.model.report",
    "TrainingReport": "hwopt.model.report",
    "TreeOptions": "hwopt.optim.options",
    "UserError": "hwopt.errors",
    "best_plan": "hwopt.optim.plan_search",
    "calibrate": "hwopt.evidence.calibration",
    "catalog": "hwopt",
    "check": "hwopt.study.blueprint",
    "compare": "hwopt.study.comparison",
    "confident": "hwopt.study.confidence",
    "deploy": "hwopt.study.deploy",
    "elasticities": "hwopt.study.sensitivity",
    "estimate": "hwopt.model.estimate",
    "every_split": "hwopt.optim.plan_search",
    "fabrics": "hwopt.study.fabrics",
    "fleet": "hwopt.study.fleet",
    "frontier": "hwopt.study.frontier",
    "invest": "hwopt.study.invest",
    "objective": "hwopt.registry",
    "optimize": "hwopt.optim.optimize",
    "regret": "hwopt.study.confidence",
    "scale": "hwopt.study.scaling",
    "sensitivity": "hwopt.study.sensitivity",
    "sweep": "hwopt.study.sweep",
    "validate": "hwopt.evidence.validation",
    "walls": "hwopt.study.walls",
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
