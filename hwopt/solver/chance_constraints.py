"""Chance constraints of a solution: the probability that its budgets hold under uncertain input values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BudgetProbability:
    """One budget under uncertain inputs.

    **Arguments:**

    - `probability`: probability that the budget holds.
    - `tightened`: limit that the search used, as a fraction of the requested one.
    - `deviation`: standard deviation of the logarithm of the budget's use, to first order.
    - `causes`: causes of the variance as (name, share), the largest first.
    """

    name: str
    probability: float
    tightened: float
    deviation: float
    causes: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class DeterministicAnswer:
    """Optimum of the same problem without a chance constraint.

    **Arguments:**

    - `objective`: its objective, SI units.
    - `probability`: probability that all its budgets hold.
    """

    objective: float
    probability: float


@dataclass(frozen=True)
class ChanceConstraint:
    """Probability with which all budgets of a design hold together.

    **Arguments:**

    - `confidence`: requested probability.
    - `probability`: share of `draws` of the uncertain inputs in which all budgets hold. Nothing was fitted to these draws.
    - `others`: limits of the design itself that do not hold in every draw, such as a rack's power feed, as (name, probability).
      The search does not tighten them.
    - `draws`, `seed`: number of draws, and their random seed.
    - `multiple`: z-score of the tightening: each tightened limit alone holds with this score's normal probability.
    - `budgets`: the same for each budget.
    - `causes`: uncertainty factors as (name, meaning, log deviation down, log deviation up).
    - `solves`: number of searches.
    - `plain`: optimum without the chance constraint.
    - `together`: probability that the budgets and `others` all hold.
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
        """Whether the draws confirm the requested confidence, within `RESOLVED`."""
        return self.probability >= self.confidence - RESOLVED


RESOLVED = 0.01
"""Smallest difference of probabilities that counts."""
