"""Conversion of signomials to convex programs in log space: disciplined geometric programming, relaxed where its rules fail.

Each auxiliary variable t, with definition e, is bounded from one side only. If the objective grows with t, the constraint
is `t >= e`; if the objective falls, it is `t <= e`. These sides are convex in log space:

    t >= sum of monomials       t >= max(...)      t >= exp(sum)
    t + sum <= monomial         t <= min(monomials)

Any other side is replaced by a convex superset over the current ranges, and is recorded as relaxed:

- a difference `P - N`: the part of P that N can never cancel;
- `t <= sum`: one term of the sum times the largest ratio of the sum to this term;
- anything else: the range of t.

The program is therefore always a relaxation: its optimum is a lower bound on the true optimum. The two are equal where
nothing was relaxed or where all ranges are points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.gp.reader import Logarithm
from hwopt.solver.gp.signomial import (
    ROUNDING,
    SMALLEST,
    Algebra,
    Atom,
    AtomKind,
    Key,
    Signomial,
    multiplied,
    raised,
    signs,
)
from hwopt.solver.gp.tape import guessed, somewhere
from hwopt.trace.source_info import source_location

SLACK = 1e-9
"""Relative widening of ranges, so that rounding does not exclude feasible points."""

LARGE = 1e12
"""Cap that replaces an infinite ratio of two terms."""

LARGEST = 1e300
"""Finite upper bound of a variable whose range has no upper end."""

POINT = 1e-7
"""Relative width below which a range counts as a single point."""


@dataclass
class ConstraintRow:
    """Constraint `sum of terms <= 1`, or `exp(sum of terms + offset) <= target` if there is a target."""

    terms: dict[Key, np.ndarray]
    label: str
    defines: int | None = None  # index of the auxiliary variable that it bounds
    target: int | None = None
    offset: np.ndarray = field(default_factory=lambda: np.zeros(1))


@dataclass(frozen=True)
class RelaxedTerm:
    """Expression that was relaxed because it is not convex in log space, and the search-tree nodes at which this matters."""

    what: str
    origin: Any
    nodes: np.ndarray  # mask: nodes at which its range is not a single point

    def __str__(self) -> str:
        return f"{source_location(self.origin)}: {self.what}"


@dataclass(frozen=True)
class ConvexProgram:
    """Batch of convex programs, one per search-tree node, with the mappings that interpret their solutions.

    Coefficients are columns: one value per node, or one value shared by all nodes.
    """

    structure: ProgramStructure
    coefficients: tuple[Any, ...]  # columns: constants of terms, offsets of groups, lower and upper bounds of variables
    constant: Any  # (node,), added to the log of the objective
    labels: tuple[str, ...]  # of groups
    columns: dict[int, int]  # atom -> variable
    names: tuple[str, ...]  # of variables; '' for auxiliary variables
    relaxed: list[RelaxedTerm]

    def programme(self, nodes: int) -> ConvexProgram:
        """Return the programs of `nodes` search-tree nodes."""
        return replace(self, constant=np.broadcast_to(self.constant, (nodes,)).copy())

    @cached_property
    def numbers(self) -> ProgramNumbers:
        """Tables of the coefficients, with one row per node of `constant`."""
        return ProgramNumbers(*(_table(columns, len(self.constant)) for columns in self.coefficients))

    def inexact(self) -> np.ndarray:
        """Return a mask (node,) of the programs in which some term was relaxed."""
        marked = np.zeros(len(self.constant), bool)
        for each in self.relaxed:
            marked |= np.broadcast_to(each.nodes, marked.shape)
        return marked

    def group(self, label: str) -> list[int]:
        """Return the indices of the groups that belong to a constraint."""
        return [i for i, each in enumerate(self.labels) if each == label]

    @property
    def nodes(self) -> list[Any]:
        """All columns with one value per node, in the order that `with_nodes` expects."""
        return [
            *(each for columns in self.coefficients for each in columns),
            self.constant,
            *(r.nodes for r in self.relaxed),
        ]

    def with_nodes(self, values: np.ndarray) -> ConvexProgram:
        """Return programs of the same structure with the coefficients of other search-tree nodes.

        **Arguments:** `values`: (column, node), in the order of the property `nodes`; truth values as 1 and 0.
        """
        ends = np.cumsum([0, *map(len, self.coefficients)])
        constant, *marks = values[ends[-1] :]
        return replace(
            self,
            coefficients=tuple(values[i:j] for i, j in pairwise(ends)),
            constant=constant,
            relaxed=[replace(each, nodes=mark != 0) for each, mark in zip(self.relaxed, marks, strict=True)],
        )


def _inverse(c: np.ndarray) -> np.ndarray:
    """Return the inverse of coefficients; 0 where a coefficient is not positive."""
    there = c > 0
    return 1.0 / c if there.all() else np.where(there, 1.0 / np.where(there, c, 1.0), 0.0)


def _table(columns: Sequence[Any], nodes: int) -> np.ndarray:
    table = np.empty((nodes, len(columns)))
    for i, column in enumerate(columns):
        table[:, i] = column
    return table


def ratio(output: Any, algebra: Algebra) -> Signomial:
    """Return `exp(output)`: the expression that must not exceed 1 in a constraint `output <= 0`, where output is a
    logarithm.
    """
    if isinstance(output, Logarithm):
        return algebra.times(output.argument(algebra), Signomial({(): np.exp(output.shift)}))
    return algebra.exponential(output)


class ProgramBuilder:
    """Builder of constraint rows. Each auxiliary variable that a row uses gets bounds on the sides that the row needs."""

    def __init__(self, algebra: Algebra):
        self.algebra = algebra
        self.rows: list[ConstraintRow] = []
        self.relaxed: list[RelaxedTerm] = []
        self._asked: set[tuple[int, bool]] = set()
        self._open: list[tuple[int, bool]] = []

    def ask(self, key: Key, skip: int | None = None) -> None:
        """Request bounds for the variables of a monomial that has to be small.

        Variables with positive exponents need bounds from below, those with negative exponents from above. `skip` is left
        out.
        """
        for atom, power in key:
            side = (atom, power > 0)
            if atom != skip and side not in self._asked:
                self._asked.add(side)
                self._open.append(side)

    def below(self, e: Signomial, bound: Key, label: str, defines: int | None = None) -> None:
        """Add rows for `e <= bound`, or for constraints that it implies.

        If e contains differences, more valid rows are added: one in which maxima are replaced by arguments that cancel
        subtracted terms, and sloped bounds.
        """
        self._row(e, bound, label, defines)
        cut = self._cancelled(e)
        if cut is not e:
            self._row(cut, bound, label, defines)
        for slope in self.algebra.options.slopes:
            self._slanted(e, slope, bound, label, defines)

    def _slanted(self, e: Signomial, slope: float, bound: Key, label: str, defines: int | None) -> None:
        """Add a sloped lower bound of a difference of two terms `P - N = P (1 - r)`, with `r = N / P`.

        It is `P (1 - r) >= P a r^-s`, where `a` is the smaller value of `(1 - r) r^s` at the two ends of the range of r.
        This function rises and then falls, so its minimum is at an end.
        """
        if len(e.terms) != 2:
            return
        (p, c), (n, d) = sorted(e.terms.items(), key=lambda term: -guessed(term[1]).min())
        if not ((c > 0).all() and (d <= 0).all()):
            return
        quotient = multiplied(n, raised(p, -1.0))
        share = -d / c
        low, high = self.algebra.monomial_range(quotient)
        with np.errstate(all="ignore"):
            low, high = (np.where(share == 0.0, 0.0, share * end) for end in (low, high))  # 0 times infinity is 0
            least = np.minimum((1.0 - low) * low**slope, (1.0 - high) * high**slope)
            scale = np.where((high < 1.0) & (share > 0), c * least / share**slope, 0.0)
        if somewhere(scale) and np.isfinite(scale).all():
            key = multiplied(multiplied(p, raised(quotient, -slope)), raised(bound, -1.0))
            self.add(ConstraintRow({key: scale}, label, defines))

    def _row(self, e: Signomial, bound: Key, label: str, defines: int | None) -> None:
        origin = None if defines is None else self.algebra.atoms[defines].origin
        terms = self.posynomial(e, label, origin)
        row = {multiplied(key, raised(bound, -1.0)): c for key, c in terms.items()}
        if row:
            self.add(ConstraintRow(row, label, defines))

    def _cancelled(self, e: Signomial) -> Signomial:
        """Return a lower bound of a sum that has fewer subtracted terms: a maximum is replaced by one of its arguments.

        An example is `m T + max(T + a, b) - T >= m T + a`. Without this step, `-T` alone could cancel all of `m T`.
        """
        given_up: set[Key] = set()
        for _ in range(self.algebra.options.cancellations):
            taken = {key: c for key, c in e.terms.items() if (c < 0).any() and key not in given_up}
            if not taken:
                return e
            largest = max(taken, key=lambda key: self._size(key, taken[key]))
            other = self._without(e, largest)
            if other is None:
                given_up.add(largest)
            else:
                e = other
        return e

    def _size(self, key: Key, c: np.ndarray) -> float:
        """Return the log of the largest magnitude of a subtracted term, averaged over the nodes of the batch."""
        high = np.minimum(-c, 1e300) * np.minimum(self.algebra.monomial_range(key)[1], 1e100)
        return float(np.log(np.maximum(guessed(high), 1e-300)).mean())

    def _without(self, e: Signomial, negative: Key) -> Signomial | None:
        """Return a sum with a maximum replaced by the argument that cancels a subtracted term; None if no argument does."""
        for key, c in e.terms.items():
            if not (c >= 0).all():
                continue
            for atom, power in key:
                if self.algebra.atoms[atom].kind is not AtomKind.maximum or power != 1.0:
                    continue
                rest = Signomial({multiplied(key, ((atom, -1.0),)): c})
                for part in self.algebra.atoms[atom].parts:
                    product = self.algebra.times(rest, part)
                    if negative in product.terms:
                        without = Signomial({k: v for k, v in e.terms.items() if k != key})
                        other = self.algebra.plus(without, product)
                        if (other.terms.get(negative, np.zeros(1)) >= 0).all():
                            return other
        return None

    def add(self, row: ConstraintRow) -> None:
        self.rows.append(row)
        for key in row.terms:
            self.ask(key, row.defines)

    def finish(self) -> None:
        """Add the rows of all requested bounds, and of the bounds that these rows request."""
        while self._open:
            index, upper = self._open.pop()
            atom = self.algebra.atoms[index]
            own: Key = ((index, 1.0),)
            if atom.kind is AtomKind.variable:
                continue
            if upper and atom.kind is AtomKind.sum:
                self.below(atom.parts[0], own, "", index)
            elif upper and atom.kind is AtomKind.maximum:
                for part in atom.parts:
                    self.below(part, own, "", index)
            elif upper and atom.kind is AtomKind.exponential:
                self._exponential(atom.parts[0], index)
            elif not upper and atom.kind is AtomKind.sum:
                self._above(atom.parts[0], index)
            elif not upper and atom.kind is AtomKind.minimum:
                for part in atom.parts:
                    self._above(part, index)
            elif not self.other_side(index, upper):
                what = f"a {atom.kind.value} that must be {'small' if upper else 'large'}"
                self._note(what, atom.origin, atom.low, atom.high)

    def other_side(self, index: int, upper: bool) -> bool:
        """Bound an auxiliary variable on a side that is not convex in log space.

        Subclasses override this; here nothing is added.

        **Returns:** whether a row was added. If not, only the variable's range bounds it.
        """
        return False

    def _exponential(self, e: Signomial, index: int) -> None:
        offset = e.terms.get((), np.zeros(1))
        positive, negative = signs({key: c for key, c in e.terms.items() if key})
        if negative:
            low, high = self.algebra.range(Signomial(negative))
            offset = offset - high
            self._note("an exponential of a difference", self.algebra.atoms[index].origin, low, high)
        self.add(ConstraintRow(positive, "", index, index, offset))

    def _above(self, e: Signomial, index: int) -> None:
        """Add rows for `t <= e`, with `e = P - N`: `t + N <= P` if P is a single term.

        Otherwise one term of P, times the largest ratio of P to this term, replaces P. The same term is used at all nodes
        if one is present everywhere. If not, each term gives a row for the nodes at which it is present.
        """
        origin = self.algebra.atoms[index].origin
        positive, negative = signs(e.terms)
        common = [k for k, c in positive.items() if (c > 0).all()]
        by_width = sorted(
            ((*self._stood_for(positive, key), key) for key in common or positive), key=lambda each: each[0]
        )
        if not by_width:
            atom = self.algebra.atoms[index]
            self._note("a lower side without a leading term", origin, atom.low, atom.high)
        for _, (low, high), leader in by_width[:1] if common else by_width:
            if len(positive) > 1:
                self._note("a sum that must be large", origin, low, high)
            over = Signomial({raised(leader, -1.0): _inverse(positive[leader]) / high})
            terms = self.algebra.times(Signomial({((index, 1.0),): np.ones(1), **negative}), over).terms
            self.add(ConstraintRow(terms, "", index))

    def _stood_for(self, positive: dict[Key, np.ndarray], leader: Key) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        """Return how much the ratio of a sum to one of its terms varies, and the range of this ratio.

        **Returns:** the log of the ratio's upper over lower end, summed over the nodes that have the term; both ends at
        each node.
        """
        inverse = Signomial({raised(leader, -1.0): _inverse(positive[leader])})
        low, high = self.algebra.range(self.algebra.times(Signomial(positive), inverse))
        low, high = np.maximum(low, 1.0), np.maximum(high, 1.0)  # the leading term itself gives a ratio of 1
        return float(np.log(guessed(high / low)).sum()), (low, high)

    def posynomial(self, e: Signomial, label: str, origin: Any) -> dict[Key, np.ndarray]:
        """Return a sum of positive terms that never exceeds `e`.

        Each positive term is reduced by the most that the negative terms can subtract from it.
        """
        positive, negative = signs(e.terms)
        for key, c in negative.items():
            self._absorb(key, c, positive, label, origin)
        return {k: c for k, c in positive.items() if c.any()}

    def _absorb(self, key: Key, c: np.ndarray, positive: dict[Key, np.ndarray], label: str, origin: Any) -> None:
        """Subtract a negative term from the positive ones, at each search-tree node by the largest amount that it can
        reach there.
        """
        what = f"a difference in {label}" if label else "a difference"
        left = np.where(c > 0, 1.0, 0.0)  # share of the negative term still to subtract, per node
        for other, quotient in self._partners(key, positive):
            if not left.any():
                return
            d = positive[other]
            low, high = self.algebra.monomial_range(quotient)
            with np.errstate(all="ignore"):
                least, most = (np.nan_to_num(c * end / d, nan=LARGE, posinf=LARGE) for end in (low, high))
            least, most = np.minimum(least, LARGE), np.minimum(most, LARGE)
            # Largest fraction of this positive term that the remainder of the negative term can reach.
            share = left * most
            inexact = (left > 0) & (d > 0) & ((most >= LARGE) | (most - least > POINT * most))
            if inexact.any():
                self.relaxed.append(RelaxedTerm(what, origin, inexact))
            left = np.where(share <= 1.0, 0.0, left - 1.0 / np.maximum(most, 1.0))
            left = np.where(left > ROUNDING, left, 0.0)
            positive[other] = d * (1.0 - np.minimum(share, 1.0))
        if left.any():
            self.relaxed.append(RelaxedTerm(f"{what} that may be negative", origin, left > 0))

    def _partners(self, key: Key, positive: dict[Key, np.ndarray]) -> list[tuple[Key, Key]]:
        """Return the positive terms in the order in which a negative term is subtracted from them, with its quotient by each.

        Terms whose quotient contains only narrow variables come first. Branching reduces the ranges of these variables to
        points, where the subtraction is exact.
        """
        order = []
        for other in positive:
            quotient = multiplied(key, raised(other, -1.0))
            wide = sum(atom not in self.algebra.narrow for atom, _ in quotient)
            order.append((wide, sum(abs(power) for _, power in quotient), len(order), other, quotient))
        return [(other, quotient) for *_, other, quotient in sorted(order)]

    def _note(self, what: str, origin: Any, low: np.ndarray, high: np.ndarray) -> None:
        with np.errstate(invalid="ignore"):
            point = np.isfinite(high) & (high - low <= POINT * np.abs(high))
        nodes = np.broadcast_to(~point, np.broadcast_shapes(low.shape, high.shape))
        if nodes.any():
            self.relaxed.append(RelaxedTerm(what, origin, nodes))


def draft(
    algebra: Algebra,
    objective: Signomial,
    constraints: Mapping[str, Signomial],
    rows_of: Callable[[Algebra], ProgramBuilder] = ProgramBuilder,
) -> ConvexProgram:
    """Formulate the convex program that minimizes `objective` subject to `constraints <= 1`.

    **Arguments:**

    - `algebra`: the algebra of all expressions.
    - `objective`: positive.
    - `constraints`: expressions by label.
    - `rows_of`: class of the builder of rows.
    """
    builder = rows_of(algebra)
    ((goal, scale),) = algebra.lifted(objective).terms.items()
    builder.ask(goal)
    for label, e in constraints.items():
        builder.below(e, (), label)
    builder.finish()
    kept = {atom for atom, _ in goal}
    rows = _inlined(_without_free_sides(builder.rows, algebra, kept), algebra, kept)
    return _drafted(rows, builder.relaxed, algebra, goal, scale)


def _above_zero(atom: Atom) -> np.ndarray:
    """Return a positive lower end of a variable's range.

    If the variable may vanish, it is a small share of the upper end; if the variable is always 0, a negligible number.
    """
    high = np.where(np.isfinite(atom.high), np.where(atom.high > 0, atom.high, SMALLEST), 1.0)
    return np.where(atom.low > 0, atom.low, SMALLEST * high)


def _without_free_sides(rows: list[ConstraintRow], algebra: Algebra, kept: set[int]) -> list[ConstraintRow]:
    """Return rows in which each auxiliary variable without a bound on the requested side is replaced by the end of its
    range.
    """
    bounded: set[tuple[int, bool]] = set()
    for row in rows:
        if row.defines is not None:
            upper = row.target is not None or any(
                atom == row.defines and power < 0 for key in row.terms for atom, power in key
            )
            bounded.add((row.defines, upper))
    free_ends: dict[tuple[int, bool], np.ndarray] = {}
    for index, atom in enumerate(algebra.atoms):
        if atom.kind is not AtomKind.variable and index not in kept:
            low = np.where(atom.high > 0, _above_zero(atom), 0.0)  # an atom that is always 0 needs no bound
            free_ends |= {
                (index, upper): end for upper, end in ((True, low), (False, atom.high)) if (index, upper) not in bounded
            }
    result = []
    for row in rows:
        terms: dict[Key, np.ndarray] = {}
        for key, c in row.terms.items():
            left = []
            for atom, power in key:
                end = free_ends.get((atom, power > 0)) if atom != row.defines else None
                if end is None:
                    left.append((atom, power))
                else:
                    c = c * end**power
            kept_key = tuple(left)
            terms[kept_key] = terms[kept_key] + c if kept_key in terms else c
        result.append(ConstraintRow(terms, row.label, row.defines, row.target, row.offset))
    return result


def _inlined(rows: list[ConstraintRow], algebra: Algebra, kept: set[int]) -> list[ConstraintRow]:
    """Return rows without the auxiliary variables that only one term uses, where their definition can be substituted."""
    changed = True
    while changed:
        changed = False
        uses: Counter[int] = Counter()
        powers: dict[int, set[float]] = {}
        for row in rows:
            for key in row.terms:
                for atom, power in key:
                    if atom != row.defines:
                        uses[atom] += 1
                        powers.setdefault(atom, set()).add(power)
        definitions: dict[int, list[ConstraintRow]] = {}
        for row in rows:
            if row.defines is not None:
                definitions.setdefault(row.defines, []).append(row)
        for atom, count in uses.items():
            own = definitions.get(atom)
            if count != 1 or atom in kept or powers[atom] != {1.0} or not own or own[0].target is not None:
                continue
            if any(((atom, -1.0) not in key) for row in own for key in row.terms):
                continue  # a lower side: t is on the left
            user, key = next(
                (row, key)
                for row in rows
                for key in row.terms
                if row.defines != atom and any(a == atom for a, _ in key)
            )
            parts = [{multiplied(k, ((atom, 1.0),)): c for k, c in row.terms.items()} for row in own]
            if len(parts) > 1 and (len(user.terms) > 1 or user.target is not None):
                continue
            c = user.terms[key]
            rest = multiplied(key, ((atom, -1.0),))
            rows = [row for row in rows if row is not user and not any(row is each for each in own)]
            for part in parts:
                terms = {k: v for k, v in user.terms.items() if k != key}
                for inner, d in part.items():
                    both = multiplied(inner, rest)
                    terms[both] = terms[both] + c * d if both in terms else c * d
                rows.append(ConstraintRow(terms, user.label, user.defines, user.target, user.offset))
            changed = True
            break
    return rows


def _drafted(
    rows: list[ConstraintRow], relaxed: list[RelaxedTerm], algebra: Algebra, goal: Key, scale: np.ndarray
) -> ConvexProgram:
    used = sorted({atom for row in rows for key in row.terms for atom, _ in key} | {atom for atom, _ in goal}
                  | {row.target for row in rows if row.target is not None})  # fmt: skip
    columns = {atom: column for column, atom in enumerate(used)}
    exponents = np.zeros((sum(len(row.terms) for row in rows), len(used)))
    group = np.repeat(np.arange(len(rows)), [len(row.terms) for row in rows])
    for term, key in enumerate(key for row in rows for key in row.terms):
        for atom, power in key:
            exponents[term, columns[atom]] += power
    objective = np.zeros(len(used))
    for atom, power in goal:
        objective[columns[atom]] = power
    with np.errstate(divide="ignore"):
        constants = [np.log(c) for row in rows for c in row.terms.values()]
        scale = np.log(scale)
    lower, upper = [], []
    for of in (algebra.atoms[atom] for atom in used):
        high = np.minimum(np.where(of.high > 0, of.high, 1.0), LARGEST)
        slack = 0.0 if of.kind is AtomKind.variable else SLACK
        lower.append(np.log(_above_zero(of)) - slack)
        upper.append(np.log(high) + slack)
    target = np.array([-1 if row.target is None else columns[row.target] for row in rows])
    return ConvexProgram(
        structure=ProgramStructure(exponents, group, target, objective),
        coefficients=(constants, [row.offset for row in rows], lower, upper),
        constant=scale,
        labels=tuple(row.label for row in rows),
        columns=columns,
        names=tuple(algebra.atoms[atom].name for atom in used),
        relaxed=relaxed,
    )
