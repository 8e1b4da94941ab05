"""A model beside one of its points as a convex programme that touches it there: values and slopes alike, and so are multipliers.

Where `hwopt.solver.gp.canonical` bounds over a range what is not convex in log space, a monomial of the same value and slopes at
the point stands here:

    t + N <= P       (t + N) / M <= 1, M the monomial that touches P
    P - N <= t       P / M <= 1, M that of t + N
    exp(P - N) <= t  exp(P) M <= t, M that of exp(-N)
    all else         the monomial that touches it

The weighted geometric mean of a sum's terms is nowhere above the sum, so that the first three hold less than the model does:
what they allow is allowed, and solving again beside what was found descends to a point where the model's own conditions hold.

**Source:** Marks and Wright, A General Inner Approximation Algorithm for Nonconvex Mathematical Programs (1978); for geometric
programmes Boyd et al., A Tutorial on Geometric Programming (2007), 9.1.
"""

from __future__ import annotations

import numpy as np

from hwopt.solver.gp.canonical import ConstraintRow, ProgramBuilder
from hwopt.solver.gp.signomial import Algebra, AtomKind, Key, Signomial, multiplied, raised

NO_SLOPE = 1e-12
"""Exponent below which a monomial does not depend on an atom."""


class Condensation(ProgramBuilder):
    """Rows that touch the model where variables are at the middles of their ranges, of the first node; what is known by its range
    alone is noted as relaxed, as ever.
    """

    def __init__(self, algebra: Algebra):
        super().__init__(algebra)
        self._values: dict[int, float] = {}

    # Where they touch.

    def _value(self, index: int) -> float:
        """An atom there."""
        if index not in self._values:
            atom = self.algebra.atoms[index]
            parts = [float(self._sum(part)[0]) for part in atom.parts]
            if atom.kind is AtomKind.sum:
                value = parts[0]
            elif atom.kind in (AtomKind.maximum, AtomKind.minimum):
                value = (max if atom.kind is AtomKind.maximum else min)(parts)
            elif atom.kind is AtomKind.exponential:
                value = float(np.exp(parts[0]))
            elif atom.kind is AtomKind.logarithm:
                value = float(np.log(parts[0]))
            else:  # a variable, or what is known by its range alone
                value = float(np.sqrt(atom.low[0] * atom.high[0]))
            self._values[index] = value
        return self._values[index]

    def _monomial(self, key: Key) -> float:
        return float(np.prod([self._value(atom) ** power for atom, power in key]))

    def _sum(self, e: Signomial) -> np.ndarray:
        """A sum there, with the coefficients of each node."""
        return sum((c * self._monomial(key) for key, c in e.terms.items()), start=np.zeros(1))

    def _slopes(self, e: Signomial) -> dict[int, float]:
        """`d e / d log atom` of the first node."""
        slopes: dict[int, float] = {}
        for key, c in e.terms.items():
            size = float(c[0]) * self._monomial(key)
            for atom, power in key:
                slopes[atom] = slopes.get(atom, 0.0) + power * size
        return slopes

    def _touching(self, e: Signomial) -> Signomial:
        """The monomial that touches a sum which is positive there."""
        if len(e.terms) == 1:
            return e
        value = self._sum(e)
        return self._with(value, {atom: slope / float(value[0]) for atom, slope in self._slopes(e).items()})

    def _with(self, value: np.ndarray, exponents: dict[int, float]) -> Signomial:
        """The monomial of a value there, (node,), and exponents."""
        key = tuple(sorted((atom, power) for atom, power in exponents.items() if abs(power) > NO_SLOPE))
        return Signomial({key: value / self._monomial(key)})

    # Rows.

    def below(self, e: Signomial, bound: Key, label: str, defines: int | None = None) -> None:
        """`e <= bound`."""
        positive, negative = _signs(e)
        other = Signomial({bound: np.ones(1)})
        if negative.terms:
            other = self.algebra.plus(other, negative)
        self._divided(positive, self._touching(other), label, defines)

    def _above(self, e: Signomial, index: int) -> None:
        """`t <= e`."""
        positive, negative = _signs(e)
        own = Signomial({((index, 1.0),): np.ones(1)})
        self._divided(self.algebra.plus(own, negative), self._touching(positive), "", index)

    def _divided(self, e: Signomial, by: Signomial, label: str, defines: int | None) -> None:
        ((key, c),) = by.terms.items()
        terms = {multiplied(own, raised(key, -1.0)): value / c for own, value in e.terms.items() if value.any()}
        if terms:
            self.add(ConstraintRow(terms, label, defines))

    def _exponential(self, e: Signomial, index: int) -> None:
        """`t >= exp(P - N)` as `t >= exp(P) M`, M the monomial that touches `exp(-N)`."""
        if not any((c < 0).any() for key, c in e.terms.items() if key):
            super()._exponential(e, index)
            return
        constant = Signomial({key: c for key, c in e.terms.items() if not key})
        positive, negative = _signs(self.algebra.minus(e, constant))
        taken = self._exp(self.algebra.minus(constant, negative))
        self.below(self.algebra.times(self.algebra.exponential(positive), taken), ((index, 1.0),), "", index)

    def _exp(self, e: Signomial) -> Signomial:
        """The monomial that touches `exp e`."""
        return self._with(np.exp(self._sum(e)), self._slopes(e))

    def other_side(self, index: int, upper: bool) -> bool:
        """A side that is convex for no atom of its kind, by what touches it. **Returns:** whether there is such a thing."""
        atom = self.algebra.atoms[index]
        parts = sorted(atom.parts, key=lambda part: float(self._sum(part)[0]))
        if atom.kind in (AtomKind.maximum, AtomKind.minimum):  # the part that is the extreme one there
            touching = parts[-1] if atom.kind is AtomKind.maximum else parts[0]
        elif atom.kind is AtomKind.exponential:
            touching = self._exp(parts[0])
        elif atom.kind is AtomKind.logarithm:
            (part,), log = parts, np.log(self._sum(parts[0]))
            scale = float(self._sum(part)[0]) * float(log[0])
            touching = self._with(log, {of: slope / scale for of, slope in self._slopes(part).items()})
        else:
            return False
        if upper:
            self.below(touching, ((index, 1.0),), "", index)
        else:
            self._above(touching, index)
        return True


def _signs(e: Signomial) -> tuple[Signomial, Signomial]:
    """What is added and what is taken away."""
    split = lambda of: Signomial({k: m for k, c in e.terms.items() if (m := np.maximum(of * c, 0.0)).any()})
    return split(1.0), split(-1.0)
