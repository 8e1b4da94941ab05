"""Algebra of signomials: sums of monomials over positive variables, in which a model is expressed.

A signomial is `sum_i c_i prod_j t_j^(a_ij)` with coefficients of either sign. Each `t_j`, called an atom, is a variable
or represents an expression that is not a signomial. Such expressions are a sum that is divided by or raised to a power, a
maximum, a minimum, an exponential and a logarithm. Sums and products of signomials are signomials, so that terms that are
added and later subtracted cancel, as on paper.

Coefficients and ranges have a leading axis of search-tree nodes: many problems with one structure are formulated at once.
Atoms are never negative, because a program uses their logarithms. A quantity that may be negative is an atom minus a
shift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np

from hwopt.solver.gp.options import REFORMULATION, ReformulationOptions
from hwopt.solver.gp.tape import as_nodes, somewhere
from hwopt.trace.monotone_primitives import LowerEnvelope

Key = tuple[tuple[int, float], ...]
"""Monomial: pairs (atom, exponent) in ascending order of atoms. The empty tuple is 1."""

ROUNDING = 1e-12
"""Relative size below which a remainder of two cancelling terms is rounding error."""

SMALLEST = 1e-12
"""Lower end of the range of a positive quantity, as a fraction of its upper end."""


class AtomKind(Enum):
    """Type of the expression that a variable of a signomial (atom) represents."""

    variable = "variable"
    sum = "sum"
    maximum = "maximum"
    minimum = "minimum"
    exponential = "exponential"
    logarithm = "logarithm"
    hull = "hull"  # known only by its range


@dataclass(frozen=True, eq=False)
class Atom:
    """Variable of a signomial: an original variable, or an auxiliary one that represents an expression. It is never negative.

    `low` and `high` bound it at each search-tree node.
    """

    kind: AtomKind
    parts: tuple[Signomial, ...]
    low: np.ndarray
    high: np.ndarray
    origin: Any = None  # its equation in the jaxpr and the enclosing calls
    name: str = ""
    positive: bool = True  # known to be above 0; otherwise this is assumed, or it may be 0


class Signomial:
    """Sum of monomials; immutable."""

    __slots__ = ("_range", "difference", "terms")

    def __init__(self, terms: dict[Key, np.ndarray], difference: Any = None):
        self.terms = terms
        self.difference = difference  # origin of the last subtraction in the sum
        self._range: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def constant(self) -> np.ndarray | None:
        """Value of a signomial without atoms; None for any other."""
        if not self.terms:
            return np.zeros(1)
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def same(self, other: Signomial) -> bool:
        """Return whether two signomials have equal terms, up to rounding."""
        return self.terms.keys() == other.terms.keys() and all(
            (np.abs(c - other.terms[key]) <= ROUNDING * np.abs(c)).all() for key, c in self.terms.items()
        )


ZERO = Signomial({})
ONE = Signomial({(): np.ones(1)})


def number(value: Any) -> Signomial:
    """Return a constant signomial, from one value per node or one value for all."""
    value = as_nodes(value)
    return Signomial({(): value}) if somewhere(value) else ZERO


def _exact(exponent: float) -> float:
    """Return an exponent without rounding error, so that equal monomials have equal keys: (x^(1/3))^3 is x."""
    nearest = round(exponent * 5040.0) / 5040.0  # all fractions with denominators up to 10
    return nearest if abs(nearest - exponent) < ROUNDING else round(exponent, 14)


def multiplied(a: Key, b: Key) -> Key:
    """Return the product of two monomials."""
    if not a:
        return b
    if not b:
        return a
    exponents = dict(a)
    for atom, power in b:
        old = exponents.get(atom)
        if old is None:
            exponents[atom] = power
        elif abs(old + power) < ROUNDING:
            del exponents[atom]
        else:
            exponents[atom] = _exact(old + power)
    return tuple(sorted(exponents.items()))


def raised(key: Key, power: float) -> Key:
    """Return a power of a monomial."""
    return tuple((atom, _exact(exponent * power)) for atom, exponent in key)


def _added(old: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the sum of two coefficients; 0 where they cancel up to rounding."""
    total = old + c
    rounding = np.abs(total) <= ROUNDING * (np.abs(old) + np.abs(c))
    return np.where(rounding, 0.0, total) if rounding.any() else total


def _common(keys: Iterable[Key]) -> Key:
    """Return the greatest common monomial: it divides all monomials without changing the sign of any exponent."""
    first, *rest = (dict(key) for key in keys)
    for key in rest:
        for atom, power in list(first.items()):
            other = key.get(atom, 0.0)
            if other * power <= 0:
                del first[atom]
            elif abs(other) < abs(power):
                first[atom] = other
    return tuple(sorted(first.items()))


def signs(terms: Mapping[Key, np.ndarray]) -> tuple[dict[Key, np.ndarray], dict[Key, np.ndarray]]:
    """Return the positive parts of terms, and the negative parts with their sign changed."""
    positive = {key: np.maximum(c, 0.0) for key, c in terms.items() if (c > 0).any()}
    return positive, {key: np.maximum(-c, 0.0) for key, c in terms.items() if (c < 0).any()}


def _cut(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a range restricted to positive numbers; its lower end is 0 where it has no upper end."""
    low = np.where(low > 0, low, SMALLEST * np.where((high > 0) & np.isfinite(high), high, 1.0))
    return np.where(np.isfinite(high), low, 0.0), np.maximum(high, low)


@dataclass
class Algebra:
    """Registry of the variables (atoms) of one model, with arithmetic that adds auxiliary variables as needed.

    **Arguments:** `granting`: whether a maximum or minimum is assumed to be positive even if its range reaches below 0.
    Quantities of a model are times and counts, and the same is assumed of every sum that is raised to a power. If False,
    the maximum or minimum is represented as an atom minus a shift.
    """

    granting: bool = True
    options: ReformulationOptions = REFORMULATION
    atoms: list[Atom] = field(default_factory=list)
    origin: Any = None  # equation being read and the enclosing calls
    narrow: set[int] = field(default_factory=set)  # variables whose ranges branching is expected to reduce to points
    floors: dict[int, tuple[LowerEnvelope, tuple[Signomial, ...]]] = field(
        default_factory=dict
    )  # of variables, with the arguments of their functions
    _lifted: dict = field(default_factory=dict, repr=False)
    _monomials: dict = field(default_factory=dict, repr=False)  # ranges of monomials

    def atom(self, kind: AtomKind, parts: Iterable[Signomial], low, high, name: str = "") -> Signomial:
        """Return a new variable as a signomial, or the existing one with the same definition."""
        parts = tuple(parts)
        mark = (kind, frozenset(frozenset((k, c.tobytes()) for k, c in part.terms.items()) for part in parts))
        if parts and mark in self._lifted:
            return self._lifted[mark]
        low, high = np.atleast_1d(low), np.atleast_1d(high)
        positive = self._surely_positive(kind, parts, low)
        self.atoms.append(Atom(kind, parts, low, high, self.origin, name, positive))
        result = Signomial({((len(self.atoms) - 1, 1.0),): np.ones(1)})
        if parts:
            self._lifted[mark] = result
            if all(self.is_narrow(part) for part in parts):
                self.narrow.add(len(self.atoms) - 1)
        return result

    def _surely_positive(self, kind: AtomKind, parts: tuple[Signomial, ...], low: np.ndarray) -> bool:
        if kind is AtomKind.maximum:
            return any(self.positive(part) for part in parts)
        if kind in (AtomKind.sum, AtomKind.minimum):
            return all(self.positive(part) for part in parts)
        return kind is not AtomKind.hull or bool((low > 0).all())

    def variable(self, name: str, low, high) -> Signomial:
        """Return a new variable with bounds, either one value per node or one for all."""
        return self.atom(AtomKind.variable, (), as_nodes(low), as_nodes(high), name)

    def gathered(self, a: Signomial) -> Signomial:
        """Replace an expression with differences that depends only on narrow variables by its range.

        Branching reduces narrow variables to points, where the range is exact. Differences of variables and exponentials
        are kept, and so are terms without differences in a longer sum: they keep their slope.
        """
        if not self.is_narrow(a):
            return a
        inside = {atom for key in a.terms for atom, _ in key}
        differs = len(a.terms) > 1 and any((c < 0).any() for c in a.terms.values())
        if not differs and all(self._is_plain(atom) for atom in inside):
            return a
        if all(self.atoms[atom].kind in (AtomKind.variable, AtomKind.exponential) for atom in inside):
            return a
        if len(a.terms) == 1 and all(self._is_short(atom) for atom in inside):
            return a
        low, high = self.range(a)
        if (low < 0).any() or not np.isfinite(high).all():
            return a
        if (low == high).all():
            return number(low)
        if not differs and len(a.terms) > 1:
            plain = {key: c for key, c in a.terms.items() if all(self._is_plain(atom) for atom, _ in key)}
            if plain:
                rest = Signomial({key: c for key, c in a.terms.items() if key not in plain}, a.difference)
                return self.plus(Signomial(plain, a.difference), self.gathered(rest))
        mark = ("gathered", frozenset((key, c.tobytes()) for key, c in a.terms.items()))
        if mark not in self._lifted:
            self._lifted[mark] = self.hull(low, high, (a,))
        return self._lifted[mark]

    def _is_short(self, index: int) -> bool:
        """Return whether an atom is a variable, or a maximum or minimum of differences of two monomials of variables."""
        atom = self.atoms[index]
        return atom.kind is AtomKind.variable or all(
            len(part.terms) <= 2
            and all(self.atoms[each].kind is AtomKind.variable for key in part.terms for each, _ in key)
            for part in atom.parts
        )

    def _is_plain(self, index: int) -> bool:
        """Return whether an atom is a variable, is known only by its range, or is a sum or extreme of such atoms without
        differences.
        """
        atom = self.atoms[index]
        if atom.kind in (AtomKind.variable, AtomKind.hull):
            return True
        if atom.kind not in (AtomKind.sum, AtomKind.maximum, AtomKind.minimum):
            return False
        return all(
            (c >= 0).all() and all(self._is_plain(each) for each, _ in key)
            for part in atom.parts
            for key, c in part.terms.items()
        )

    def lifted(self, a: Signomial) -> Signomial:
        """Return a positive signomial as a single term, with a new auxiliary variable if necessary.

        The variable is normalized, so that multiples of a sum share it. The signomial is assumed to be positive: its
        range is cut where it is not.
        """
        if len(a.terms) <= 1:
            return a
        unit, key, scale = self._unit(a)
        low, high = self.range(unit)
        by_own = self._over(self.range(a), key, scale)
        low, high = np.maximum(low, by_own[0]), np.minimum(high, by_own[1])
        low, high = (np.maximum(low, 0.0), high) if self.positive(a) else _cut(low, high)
        return self.times(self.atom(AtomKind.sum, (unit,), low, high), Signomial({key: scale}))

    def _unit(self, a: Signomial) -> tuple[Signomial, Key, np.ndarray]:
        """Split a sum into a normalized sum, a common monomial and a coefficient.

        All multiples of a sum have the same normalized sum.
        """
        key = _common(a.terms)
        scale = next((c for c in a.terms.values() if (c > 0).all()), np.ones(1))
        return self.times(a, Signomial({raised(key, -1.0): 1.0 / scale})), key, scale

    def positive(self, a: Signomial) -> bool:
        """Return whether a signomial is known to be above 0 at all nodes, by its signs or by its range."""
        total = np.zeros(1)
        for key, c in a.terms.items():
            if not (c >= 0).all():
                break
            if all(self.atoms[index].positive for index, _ in key):
                total = total + c
        else:
            if (total > 0).all():
                return True
        return bool((self.range(a)[0] > 0).all())

    def _over(self, interval, key: Key, scale) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of the quotient of a positive interval by a positive monomial."""
        low, high = self.monomial_range(key)
        with np.errstate(all="ignore"):
            ends = interval[0] / (high * scale), interval[1] / (low * scale)
        return np.where(np.isfinite(ends[0]), ends[0], -np.inf), np.where(np.isnan(ends[1]), np.inf, ends[1])

    def monomial_range(self, key: Key) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds of a monomial at each node."""
        if key in self._monomials:
            return self._monomials[key]
        low, high = np.ones(1), np.ones(1)
        with np.errstate(all="ignore"):
            for index, power in key:
                atom = self.atoms[index]
                a, b = (atom.low, atom.high) if power > 0 else (atom.high, atom.low)
                low, high = low * a**power, high * b**power
        result = np.where(np.isfinite(low), low, 0.0), np.where(np.isnan(high), np.inf, high)
        self._monomials[key] = result
        return result

    def range(self, a: Signomial) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds of a signomial at each node, with atoms treated as independent."""
        if a._range is None:
            low, high = np.zeros(1), np.zeros(1)
            with np.errstate(all="ignore"):
                for key, c in a.terms.items():
                    least, most = self.monomial_range(key)
                    at_least = np.where(c == 0, 0.0, np.where(c > 0, c * least, c * most))
                    at_most = np.where(c == 0, 0.0, np.where(c > 0, c * most, c * least))
                    low, high = low + at_least, high + at_most
            a._range = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
        return a._range

    def plus(self, a: Signomial, b: Signomial, sign: float = 1.0) -> Signomial:
        """Return `a + sign b`. Terms that cancel are removed."""
        if not b.terms:
            return a
        terms = dict(a.terms)
        for key, c in b.terms.items():
            c = c if sign == 1.0 else sign * c
            old = terms.get(key)
            total = c if old is None else _added(old, c)
            if old is None or total.any():
                terms[key] = total
            else:
                del terms[key]
        return Signomial(terms, self.origin if sign < 0 else a.difference or b.difference)

    def minus(self, a: Signomial, b: Signomial) -> Signomial:
        return self.plus(a, b, -1.0)

    def times(self, a: Signomial, b: Signomial) -> Signomial:
        """Return `a b`, expanded if the result is short, else with each factor as an auxiliary variable."""
        if not a.terms or not b.terms:
            return ZERO
        if len(a.terms) > 1 and len(b.terms) > 1 and len(a.terms) * len(b.terms) > self.options.expanded_terms:
            a, b = self._short(a), self._short(b)
        if len(a.terms) > len(b.terms):
            a, b = b, a
        terms: dict[Key, np.ndarray] = {}
        merged: set[Key] = set()
        with np.errstate(invalid="ignore", over="ignore"):
            for key, c in a.terms.items():
                for other, d in b.terms.items():
                    both, product = multiplied(key, other), c * d
                    if both in terms:
                        product = _added(terms[both], product)
                        merged.add(both)
                    terms[both] = product
        kept = {key: c for key, c in terms.items() if (c.any() if key in merged else somewhere(c))}
        return Signomial(kept, a.difference or b.difference)

    def where(self, mask: np.ndarray, yes: Signomial, no: Signomial) -> Signomial:
        """Return `yes` at the nodes of `mask` and `no` elsewhere, even where the value not chosen is infinite or NaN."""
        this, that = (
            Signomial({k: m for k, c in a.terms.items() if somewhere(m := np.where(at, c, 0.0))}, a.difference)
            for at, a in ((mask, yes), (~mask, no))
        )
        return self.plus(this, that)

    def _short(self, a: Signomial) -> Signomial:
        """Return a sum that is positive everywhere as one auxiliary variable; return any other signomial unchanged."""
        return self.lifted(a) if len(a.terms) > 1 and self.positive(a) else a

    def power(self, a: Signomial, exponent: float) -> Signomial:
        """Return `a ** exponent`. If the power requires a positive base, `a` is assumed to be positive."""
        if exponent == 1.0:
            return a
        if exponent == 0.0:
            return ONE
        if not a.terms:
            return ZERO if exponent > 0 else number(np.inf)
        if len(a.terms) > 1 and exponent == round(exponent):
            if exponent > 0 and (
                not self.positive(a) or exponent * np.log(len(a.terms)) <= np.log(self.options.expanded_terms // 2)
            ):
                result = a
                for _ in range(int(exponent) - 1):
                    result = self.times(result, a)
                return result
            opposite = self.minus(ZERO, a)
            if self.positive(opposite):
                return self.times(number((-1.0) ** exponent), self.power(opposite, exponent))
        ((key, c),) = self.lifted(a).terms.items()
        with np.errstate(all="ignore"):
            return Signomial({raised(key, exponent): c**exponent}, a.difference)

    def over(self, a: Signomial, b: Signomial) -> Signomial:
        """Return `a / b`."""
        if 1 < len(a.terms) == len(b.terms):
            (over, key, scale), (under, other, by) = self._unit(a), self._unit(b)
            if over.same(under):
                return Signomial({multiplied(key, raised(other, -1.0)): scale / by})
        return self.times(a, self.power(b, -1.0))

    def extreme(self, parts: Iterable[Signomial], kind: AtomKind) -> Signomial:
        """Return a maximum or minimum.

        Arguments that are never the extreme one are left out, and nested extremes are merged.
        """
        largest = kind is AtomKind.maximum
        flat: list[Signomial] = []
        for part in parts:
            flat += self._opened(part, kind)
        kept: list[Signomial] = []
        for index, part in enumerate(flat):
            others = [*kept, *flat[index + 1 :]]
            if not any(self._never_beyond(part, other, largest) for other in others):
                kept.append(part)
        if len(kept) == 1:
            return kept[0]
        low, high = self._extreme_range(kept, largest)
        # Atoms are not negative. Where positivity is not assumed, a shift makes all arguments positive and is subtracted
        # again.
        wanting = (low < 0) & (high <= 0) if self.granting else np.ones(1, bool)
        shift = self._lift(kept, low, wanting)
        if shift.terms:
            kept = [self.plus(part, shift) for part in kept]
            low, high = self._extreme_range(kept, largest)
            low = np.where(wanting, np.maximum(low, 0.0), low)
        if (low < 0).any():
            cut = _cut(low, high)
            low, high = np.where(wanting, low, cut[0]), np.where(wanting, high, cut[1])
        return self.minus(self.atom(kind, kept, low, high), shift)

    def _lift(self, parts: list[Signomial], low: np.ndarray, wanting: np.ndarray) -> Signomial:
        """Return a shift that makes the arguments of a maximum or minimum positive.

        **Arguments:** `parts`: the arguments; `low`: lower end of their extreme; `wanting`: mask (node,), the shift is 0
        elsewhere.
        """
        if not wanting.any():
            return ZERO
        ending = np.isfinite(low) & self.granting
        shift = number(np.where(wanting & ending, -low, 0.0))
        endless = wanting & ~ending
        if endless.any():
            shift = self.where(endless, reduce(self.plus, (Signomial(signs(part.terms)[1]) for part in parts)), shift)
        return shift

    def _extreme_range(self, parts: list[Signomial], largest: bool) -> tuple[np.ndarray, np.ndarray]:
        pick = np.maximum if largest else np.minimum
        low, high = self.range(parts[0])
        for part in parts[1:]:
            a, b = self.range(part)
            low, high = pick(low, a), pick(high, b)
        return low, high

    def _never_beyond(self, a: Signomial, b: Signomial, largest: bool) -> bool:
        """Return whether `a` never exceeds `b` at any node (for a minimum: is never below `b`)."""
        low, high = self.range(self.minus(a, b))
        return bool((high <= 0).all() if largest else (low >= 0).all())

    def _opened(self, a: Signomial, kind: AtomKind) -> list[Signomial]:
        """Return the arguments of `monomial x maximum` as products, so that maxima are not nested."""
        if len(a.terms) != 1:
            return [a]
        ((key, c),) = a.terms.items()
        for atom, power in key:
            if self.atoms[atom].kind is kind and power == 1.0 and (c >= 0).all():
                rest = Signomial({tuple(each for each in key if each[0] != atom): c})
                return [self.times(rest, part) for part in self.atoms[atom].parts]
        return [a]

    def exponential(self, a: Signomial) -> Signomial:
        """Return `exp a`. For an exponent that is not positive, it is the inverse of `exp(-a)`."""
        with np.errstate(all="ignore"):
            if a.constant is not None:
                return number(np.exp(a.constant))
            if all((c <= 0).all() for key, c in a.terms.items() if key):
                return self.power(self.exponential(self.minus(ZERO, a)), -1.0)
            low, high = self.range(a)
            return self.atom(AtomKind.exponential, (a,), np.exp(low), np.exp(high))

    def logarithm(self, a: Signomial) -> Signomial | None:
        """Return `log a` as an atom if `a` is above 1 everywhere.

        If `a` may be 1, only the range is kept; if it may be less, None.
        """
        low, high = self.range(a)
        if not (low >= 1.0).all():
            return None
        if not (low > 1.0).all():
            return self.hull(np.log(low), np.log(high), (a,))
        return self.atom(AtomKind.logarithm, (a,), np.log(low), np.log(high))

    def hull(self, low: np.ndarray, high: np.ndarray, of: Iterable[Signomial] = ()) -> Signomial:
        """Return a quantity of which only the range is known. **Arguments:** `of`: expressions that it depends on."""
        shift = np.maximum(-low, 0.0)
        result, of = self.atom(AtomKind.hull, (), low + shift, high + shift), tuple(of)
        if of and all(self.is_narrow(each) for each in of):
            self.narrow.add(len(self.atoms) - 1)
        return self.minus(result, number(shift)) if shift.any() else result

    def is_narrow(self, a: Signomial) -> bool:
        """Return whether a signomial depends only on narrow variables: those whose ranges branching reduces to points."""
        return bool(self.narrow) and all(atom in self.narrow for key in a.terms for atom, _ in key)
