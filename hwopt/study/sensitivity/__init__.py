"""Sensitivity: elasticities of metrics at a design, and of an optimum to everything it stands on."""

from hwopt.optim.optimum_sensitivity import NoOptimum
from hwopt.study.sensitivity.elasticities import Elasticities, check_metrics, elasticities
from hwopt.study.sensitivity.study import Sensitivity, design_at, owed, sensitivity

__all__ = [
    "Elasticities",
    "NoOptimum",
    "Sensitivity",
    "check_metrics",
    "design_at",
    "elasticities",
    "owed",
    "sensitivity",
]
