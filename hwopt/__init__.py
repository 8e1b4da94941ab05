"""hwopt: differentiable design of AI clusters. Names are the public API; rooms load when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names, not import statements: nothing is imported before it is used, and no room can reach another through this one.
_WHERE = {
    "best_plan": ("hwopt.optim.plan_search", "best_plan"),
    "calibrate": ("hwopt.evidence.calibration", "calibrate"),
    "catalog": ("hwopt.catalog", None),
    "elasticities": ("hwopt.study.sensitivity", "elasticities"),
    "estimate": ("hwopt.model.estimate", "estimate"),
    "frontier": ("hwopt.study.frontier", "frontier"),
    "objective": ("hwopt.registry", "objective"),
    "optimize": ("hwopt.optim.optimize", "optimize"),
    "sensitivity": ("hwopt.study.sensitivity", "sensitivity"),
    "sweep": ("hwopt.study.sweep", "sweep"),
    "validate": ("hwopt.evidence.validation", "validate"),
    "Report": ("hwopt.model.report", "Report"),
    "UserError": ("hwopt.errors", "UserError"),
}

__all__ = ["__version__", *_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hwopt' has no attribute '{name}'; it has {', '.join(sorted(_WHERE))}")
    module, attribute = _WHERE[name]
    loaded = import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
