"""Sensitivity: elasticities of metrics at a design, and of an optimum to everything it stands on."""

from hwopt.solver.optimum_sensitivity import NoOptimum
from hwopt.study.sensitivity.elasticities import Elasticities, elasticities
from hwopt.study.sensitivity.study import Sensitivity, parameters_of, sensitivity

__all__ = ["Elasticities", "NoOptimum", "Sensitivity", "elasticities", "parameters_of", "sensitivity"]
