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
    from hwopt.planning.plan_search import best_plan as best_plan
    from hwopt.planning.plan_search import every_split as every_split
    from hwopt.planning.plan_table import PlanSearch as PlanSearch
    from hwopt.registry import objective as objective
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
    "AcceleratorOptions": "hwopt.solver.options",
    "BindingOptions": "hwopt.solver.options",
    "Check": "hwopt.study.blueprint",
    "ConfidenceOptions": "hwopt.solver.options",
    "ElasticOptions": "hwopt.solver.options",
    "FitOptions": "hwopt.evidence.calibration.options",
    "FleetOptions": "hwopt.solver.options",
    "HeuristicOptions": "hwopt.solver.options",
    "InteriorPointOptions": "hwopt.solver.options",
    "LocalOptions": "hwopt.solver.options",
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
    "Sensitivity": "hwopt.study.sensitivity",
    "SensitivityOptions": "hwopt.solver.options",
    "ServingReport": "hwopt.model.report",
    "Solution": "hwopt.solver.solution",
    "SweepOptions": "hwopt.solver.options",
    "TrainServeReport": "hwopt.model.report",
    "TrainingReport": "hwopt.model.report",
    "TreeOptions": "hwopt.solver.options",
    "UserError": "hwopt.errors",
    "best_plan": "hwopt.planning.plan_search",
    "calibrate": "hwopt.evidence.calibration",
    "catalog": "hwopt",
    "check": "hwopt.study.blueprint",
    "compare": "hwopt.study.comparison",
    "confident": "hwopt.study.confidence",
    "deploy": "hwopt.study.deploy",
    "elasticities": "hwopt.study.sensitivity",
    "estimate": "hwopt.model.estimate",
    "every_split": "hwopt.planning.plan_search",
    "fabrics": "hwopt.study.fabrics",
    "fleet": "hwopt.study.fleet",
    "frontier": "hwopt.study.frontier",
    "invest": "hwopt.study.invest",
    "objective": "hwopt.registry",
    "optimize": "hwopt.solver.optimize",
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
