"""Local convex approximation of a model at one of its points: a program with the same values, gradients and multipliers there.

`hwopt.solver.gp.canonical` replaces non-convex expressions by bounds over a range. Here a monomial M with the same value
and gradient at the point replaces them (condensation):

    t + N <= P       (t + N) / M <= 1, M the monomial that touches P
    P - N <= t       P / M <= 1, M that of t + N
    exp(P - N) <= t  exp(P) M <= t, M that of exp(-N)
    all else         the monomial that touches it

The weighted geometric mean of a sum's terms never exceeds the sum. The first three approximations are therefore inner:
every point that they allow is feasible. Re-solving at each solution descends to a point that satisfies the optimality
conditions of the model.

**Source:** Marks and Wright, A General Inner Approximation Algorithm for Nonconvex Mathematical Programs (1978); for
geometric programs Boyd et al., A Tutorial on Geometric Programming (2007), 9.1.
"""

from __future__ import annotations

import numpy as np

from hwopt.solver.gp.canonical import ConstraintRow, ProgramBuilder
from hwopt.solver.gp.signomial import Algebra, AtomKind, Key, Signomial, multiplied, raised, signs

NO_SLOPE = 1e-12
"""Magnitude of an exponent below which a monomial does not depend on an atom."""


class Condensation(ProgramBuilder):
    """Builder of constraint rows that touch the model at a point: the geometric center of the variables' ranges at the
    first node.

    Expressions known only by their range are still recorded as relaxed.
    """

    def __init__(self, algebra: Algebra):
        super().__init__(algebra)
        self._values: dict[int, float] = {}

    def _value(self, index: int) -> float:
        """Return the value of a variable or of the expression that an auxiliary variable represents, at the touching point."""
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
            else:  # a variable, or an expression known only by its range
                value = float(np.sqrt(atom.low[0] * atom.high[0]))
            self._values[index] = value
        return self._values[index]

    def _monomial(self, key: Key) -> float:
        return float(np.prod([self._value(atom) ** power for atom, power in key]))

    def _sum(self, e: Signomial) -> np.ndarray:
        """Return the value of a sum at the touching point, with the coefficients of each search-tree node, (node,)."""
        return sum((c * self._monomial(key) for key, c in e.terms.items()), start=np.zeros(1))

    def _slopes(self, e: Signomial) -> dict[int, float]:
        """Return `d e / d log t` for each variable t at the touching point, with the coefficients of the first node."""
        slopes: dict[int, float] = {}
        for key, c in e.terms.items():
            size = float(c[0]) * self._monomial(key)
            for atom, power in key:
                slopes[atom] = slopes.get(atom, 0.0) + power * size
        return slopes

    def _touching(self, e: Signomial) -> Signomial:
        """Return the monomial with the value and gradient of a sum at the touching point, where the sum must be positive."""
        if len(e.terms) == 1:
            return e
        value = self._sum(e)
        return self._with(value, {atom: slope / float(value[0]) for atom, slope in self._slopes(e).items()})

    def _with(self, value: np.ndarray, exponents: dict[int, float]) -> Signomial:
        """Return the monomial with given exponents and a given value (node,) at the touching point."""
        key = tuple(sorted((atom, power) for atom, power in exponents.items() if abs(power) > NO_SLOPE))
        return Signomial({key: value / self._monomial(key)})

    def below(self, e: Signomial, bound: Key, label: str, defines: int | None = None) -> None:
        """Add rows for `e <= bound`, where differences are replaced by touching monomials."""
        positive, negative = map(Signomial, signs(e.terms))
        other = Signomial({bound: np.ones(1)})
        if negative.terms:
            other = self.algebra.plus(other, negative)
        self._divided(positive, self._touching(other), label, defines)

    def _above(self, e: Signomial, index: int) -> None:
        """Add rows for `t <= e`, where the positive terms of e are replaced by a touching monomial. **Arguments:**
        `index`: of t.
        """
        positive, negative = map(Signomial, signs(e.terms))
        own = Signomial({((index, 1.0),): np.ones(1)})
        self._divided(self.algebra.plus(own, negative), self._touching(positive), "", index)

    def _divided(self, e: Signomial, by: Signomial, label: str, defines: int | None) -> None:
        ((key, c),) = by.terms.items()
        terms = {multiplied(own, raised(key, -1.0)): value / c for own, value in e.terms.items() if value.any()}
        if terms:
            self.add(ConstraintRow(terms, label, defines))

    def _exponential(self, e: Signomial, index: int) -> None:
        """Add rows for `t >= exp(P - N)` as `t >= exp(P) M`, where M is the monomial that touches `exp(-N)`."""
        if not any((c < 0).any() for key, c in e.terms.items() if key):
            super()._exponential(e, index)
            return
        constant = Signomial({key: c for key, c in e.terms.items() if not key})
        positive, negative = map(Signomial, signs(self.algebra.minus(e, constant).terms))
        taken = self._exp(self.algebra.minus(constant, negative))
        self.below(self.algebra.times(self.algebra.exponential(positive), taken), ((index, 1.0),), "", index)

    def _exp(self, e: Signomial) -> Signomial:
        """Return the monomial with the value and gradient of `exp e` at the touching point."""
        return self._with(np.exp(self._sum(e)), self._slopes(e))

    def other_side(self, index: int, upper: bool) -> bool:
        """Bound an auxiliary variable on a side that is not convex in log space, by an expression that touches it at the point.

        **Returns:** whether there is such an expression.
        """
        atom = self.algebra.atoms[index]
        parts = sorted(atom.parts, key=lambda part: float(self._sum(part)[0]))
        if atom.kind in (AtomKind.maximum, AtomKind.minimum):  # the argument that is the extreme one at the point
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
