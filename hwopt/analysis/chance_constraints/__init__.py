"""Chance-constrained designs: budgets that hold with a stated probability under uncertain inputs; value of information."""

from hwopt.analysis.chance_constraints.answer import confident
from hwopt.analysis.chance_constraints.value_of_information import Regret, regret

__all__ = ["Regret", "confident", "regret"]
