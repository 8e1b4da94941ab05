"""Sensitivity analysis: elasticities of metrics at a design, and of an optimum to all of its inputs."""

from hwopt.analysis.sensitivity.elasticities import Elasticities, elasticities, gradient
from hwopt.analysis.sensitivity.optimum import Sensitivity, parameters_of, sensitivity
from hwopt.solver.optimum_sensitivity import NoOptimum

__all__ = ["Elasticities", "NoOptimum", "Sensitivity", "elasticities", "gradient", "parameters_of", "sensitivity"]
