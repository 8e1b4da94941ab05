"""Chance constraints of a solution: the probability that its budgets hold under uncertain input values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hwopt.declared import shown


@dataclass(frozen=True)
class BudgetProbability:
    """One budget under uncertain inputs.

    **Arguments:**

    - `probability`: probability that the budget holds.
    - `tightened`: limit that the search used, as a fraction of the requested one.
    - `deviation`: standard deviation of the logarithm of the budget's use, to first order.
    - `causes`: share of each cause of the variance by name, the largest first.
    """

    name: str = shown()
    probability: float = shown()
    tightened: float = shown()
    deviation: float = shown()
    causes: Mapping[str, float] = shown()


@dataclass(frozen=True)
class DeterministicAnswer:
    """Optimum of the same problem without a chance constraint.

    **Arguments:**

    - `objective`: its objective, SI units.
    - `probability`: probability that all its budgets hold.
    """

    objective: float = shown()
    probability: float = shown()


class InputDeviation(NamedTuple):
    """Uncertainty factor of a chance constraint, with its log standard deviations down and up."""

    name: str
    meaning: str
    deviation_down: float
    deviation_up: float


@dataclass(frozen=True)
class ChanceConstraint:
    """Probability with which all budgets of a design hold together.

    **Arguments:**

    - `confidence`: requested probability.
    - `probability`: share of `draws` of the uncertain inputs in which all budgets hold. Nothing was fitted to these draws.
    - `others`: limits of the design itself that do not hold in every draw, such as a rack's power feed, with their
      probabilities. The search does not tighten them.
    - `draws`, `seed`: number of draws, and their random seed.
    - `multiple`: z-score of the tightening: each tightened limit alone holds with this score's normal probability.
    - `budgets`: the same for each budget.
    - `causes`: uncertainty factors.
    - `solves`: number of searches.
    - `plain`: optimum without the chance constraint.
    - `together`: probability that the budgets and `others` all hold.
    """

    confidence: float = shown()
    probability: float = shown()
    others: Mapping[str, float] = shown()
    draws: int = shown()
    seed: int = shown()
    multiple: float = shown()
    budgets: tuple[BudgetProbability, ...] = shown()
    causes: tuple[InputDeviation, ...] = shown()
    solves: int = shown()
    plain: DeterministicAnswer = shown(key="without")
    together: float = shown(
        meaning="that the design's own limits (others) hold too, which no search tightens",
        key="probability_with_others",
    )

    @property
    def kept(self) -> bool:
        """Whether the draws confirm the requested confidence, within `RESOLVED`."""
        return self.probability >= self.confidence - RESOLVED


RESOLVED = 0.01
"""Smallest difference of probabilities that counts."""
