"""Answers that hold when the numbers behind them are off: with a stated probability, and what it is worth to know them."""

from hwopt.analysis.chance_constraints.answer import confident
from hwopt.analysis.chance_constraints.value_of_information import Regret, regret

__all__ = ["Regret", "confident", "regret"]
