"""Answers that hold when the numbers behind them are off: with a stated probability, and what it is worth to know them."""

from hwopt.study.confidence.answer import confident
from hwopt.study.confidence.knowing import Regret, regret

__all__ = ["Regret", "confident", "regret"]
