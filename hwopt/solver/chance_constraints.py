"""What an answer promises: with what probability its budgets hold when the numbers behind them are off."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BudgetProbability:
    """One budget under uncertain numbers.

    **Arguments:** `probability` that it holds; `tightened`: limit that the search was given, of the one asked for; `deviation`:
    standard deviation of the logarithm of what is used, to first order; `causes` of it, (name, share of its variance), largest
    first.
    """

    name: str
    probability: float
    tightened: float
    deviation: float
    causes: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class DeterministicAnswer:
    """The answer to the same question without a promise. **Arguments:** `probability` that all its budgets hold."""

    objective: float
    probability: float


@dataclass(frozen=True)
class ChanceConstraint:
    """All budgets of a design hold together with a probability.

    **Arguments:** `confidence` that was asked for; `probability` that all budgets hold, counted over `draws` of the uncertain
    numbers that nothing was fitted to; `others`: the design's own limits, such as a rack's feed, which no search tightens: (name,
    probability) over the same draws, where they do not always hold; `together`: probability that budgets and these all hold;
    `multiple`: of a normal draw, at whose probability each tightened limit is kept alone; `causes`: (name, in
    words, deviations of the logarithm down and up) of what was drawn; `solves`: searches that it took; `plain`: the answer
    without it.
    """

    confidence: float
    probability: float
    others: tuple[tuple[str, float], ...]
    draws: int
    seed: int
    multiple: float
    budgets: tuple[BudgetProbability, ...]
    causes: tuple[tuple[str, str, float, float], ...]
    solves: int
    plain: DeterministicAnswer
    together: float

    @property
    def kept(self) -> bool:
        """Whether draws bear it out, to the point that they resolve."""
        return self.probability >= self.confidence - RESOLVED


RESOLVED = 0.01
"""Difference of probabilities that is told apart."""
