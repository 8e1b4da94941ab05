"""hwopt: differentiable design of AI clusters. Names are the public API; rooms load when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwopt import catalog as catalog
    from hwopt.catalog import chip as chip
    from hwopt.catalog import cluster as cluster
    from hwopt.catalog import plan as plan
    from hwopt.catalog import training_run as workload
    from hwopt.errors import InfeasibleError as InfeasibleError
    from hwopt.errors import UserError as UserError
    from hwopt.model.estimate import estimate as estimate
    from hwopt.model.report import Report as Report
    from hwopt.optim.optimize import optimize as optimize
    from hwopt.registry import objective as objective
    from hwopt.study.validation import validate as validate

__version__ = "0.1.0"

_WHERE = {
    "catalog": ("hwopt.catalog", None),
    "chip": ("hwopt.catalog", "chip"),
    "cluster": ("hwopt.catalog", "cluster"),
    "plan": ("hwopt.catalog", "plan"),
    "workload": ("hwopt.catalog", "training_run"),
    "estimate": ("hwopt.model.estimate", "estimate"),
    "Report": ("hwopt.model.report", "Report"),
    "objective": ("hwopt.registry", "objective"),
    "optimize": ("hwopt.optim.optimize", "optimize"),
    "validate": ("hwopt.study.validation", "validate"),
    "UserError": ("hwopt.errors", "UserError"),
    "InfeasibleError": ("hwopt.errors", "InfeasibleError"),
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hwopt' has no attribute '{name}'; it has {', '.join(sorted(_WHERE))}")
    module, attribute = _WHERE[name]
    loaded = import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
