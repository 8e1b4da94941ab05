"""Symbolic evaluation of a jaxpr over signomials: converts a model to sums of monomials without running it.

Each array element is a `Signomial`, `Logarithm` or `Comparison`, for a batch of search-tree nodes. An unsupported
operation raises `NotDGP` with the file and line of the model code that created it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod, reduce
from typing import Any

import numpy as np
from jax.extend import core

from hwopt.solver.gp import outer_linearization
from hwopt.solver.gp.signomial import ONE, ZERO, Algebra, AtomKind, Signomial, number
from hwopt.solver.gp.tape import is_number
from hwopt.trace.constant_folding import NUMBERS, on_numbers
from hwopt.trace.interpreter import Interpreter
from hwopt.trace.monotone_primitives import MONOTONE
from hwopt.trace.scalar_program import ScalarProgram
from hwopt.trace.source_info import source_location
from hwopt.trace.symbols import Symbol


class NotDGP(ValueError):
    """Operation that has no equivalent in terms of signomials. The message names the operation and its source line."""

    def __init__(self, origin: Any, what: str):
        super().__init__(f"{source_location(origin)}: {what}")
        self.origin, self.what = origin, what


@dataclass(frozen=True)
class Logarithm:
    """Value of the form `sign log(of) + shift`. It appears at the end of a model, as the margin of a constraint."""

    of: Signomial
    sign: float
    shift: np.ndarray

    def argument(self, algebra: Algebra) -> Signomial:
        """Return the argument of the same logarithm with the sign moved inside."""
        return self.of if self.sign > 0 else algebra.power(self.of, -1.0)


@dataclass(frozen=True)
class Comparison:
    """Condition `a > b` that is undecided at some nodes.

    `known` is 1 or 0 at nodes where the ranges of `a` and `b` decide the condition, and NaN elsewhere. `a` and `b` are
    both 0 if the condition is not a comparison of two signomials; nothing is then known about it.
    """

    a: Signomial
    b: Signomial
    known: np.ndarray


def _condition(a: Signomial, b: Signomial, known: np.ndarray) -> Signomial | Comparison:
    """Return `a > b` as a number if it is decided at all nodes, else as a comparison."""
    return Comparison(a, b, known) if np.isnan(known).any() else number(known)


def read(
    jaxpr: core.ClosedJaxpr, arguments: Sequence[np.ndarray], algebra: Algebra, wanted: Sequence[bool] | None = None
) -> list[Any]:
    """Evaluate a jaxpr symbolically.

    **Arguments:**

    - `jaxpr`: the traced model.
    - `arguments`: its inputs, in order: arrays of known numbers (node, *shape) or object arrays of signomials.
    - `algebra`: the algebra in which sums and products are formed; its list of atoms grows.
    - `wanted`: which outputs to evaluate; all by default.

    **Returns:** for each output an array of known numbers, or an object array of signomials and logarithms; None if not
    wanted.

    **Raises:** `NotDGP` for an operation that cannot be expressed.
    """
    wanted = [True] * len(jaxpr.jaxpr.outvars) if wanted is None else list(wanted)
    with np.errstate(all="ignore"):
        return _Reader(algebra).run(jaxpr, arguments, wanted)


def read_line(line: ScalarProgram, arguments: Sequence[np.ndarray | Signomial], algebra: Algebra) -> list[Any]:
    """Evaluate a scalar program symbolically, in a quarter of the time that `read` takes for the equivalent jaxpr.

    **Arguments:** `line`: the program; `arguments`: its inputs, in order: known numbers (node,) or signomials; `algebra`:
    as in `read`.

    **Returns:** for each output known numbers (node,), a signomial or a logarithm; None for an output that the program
    omits.

    **Raises:** `NotDGP` for an operation that cannot be expressed.
    """
    reader = _Reader(algebra)
    values: dict[int, Any] = dict(zip(map(id, line.inputs), arguments, strict=True))

    def value(element: Any) -> Any:
        if isinstance(element, Symbol):
            return values[id(element)]
        return None if element is None else np.asarray(element)[None]

    with np.errstate(all="ignore"):
        for symbol in line.operations:
            parts = [value(each) for each in symbol.arguments]
            values[id(symbol)] = reader.symbol(symbol, parts)
    return [value(each) for each in line.outputs]


class _Reader(Interpreter):
    def __init__(self, algebra: Algebra):
        super().__init__()
        self.algebra = algebra
        self.name = ""  # of the operation being read

    def lifted(self, value: np.ndarray) -> Signomial:
        return number(value)

    def symbol(self, symbol: Symbol, arguments: Sequence[Any]) -> Any:
        """Evaluate one operation of a scalar program."""
        self.origin, self.name = symbol.origin, symbol.name
        if all(is_number(each) for each in arguments):
            if symbol.name not in NUMBERS:
                raise self.unreadable()
            return on_numbers(symbol.name, list(arguments), dict(symbol.params))
        elements = tuple(number(each) if is_number(each) else each for each in arguments)
        if symbol.name == "mul" and elements[0] is elements[1]:
            return self.element("square", elements[:1], {})
        return self.element(symbol.name, elements, dict(symbol.params))

    def element(self, name: str, arguments: tuple, params: dict) -> Any:
        self.algebra.origin, self.name = self.origin, name
        if name == "convert_element_type" and not np.issubdtype(params["new_dtype"], np.floating):
            source = params["source"] if "source" in params else self.origin[0].invars[0].aval.dtype
            source, target = np.dtype(source).kind, np.dtype(params["new_dtype"]).kind
            if source not in "biu" or (target == "b" and source != "b"):
                raise self.unreadable("an integer of what varies")
            return arguments[0]
        if name in MONOTONE:
            return outer_linearization.monotone(self.algebra, MONOTONE[name], list(map(self._plain, arguments)))
        rule = getattr(self, "_" + name, None)
        if rule is None:
            raise self.unreadable()
        result = rule(*arguments, **({"y": params["y"]} if "y" in params else {}))
        return self.algebra.gathered(result) if isinstance(result, Signomial) else result

    def folded(self, name: str, row: list) -> Any:
        self.algebra.origin, self.name = self.origin, name
        if name in ("reduce_max", "reduce_min"):
            return (self._max if name == "reduce_max" else self._min)(*row)
        steps = {"reduce_sum": self._add, "reduce_prod": self._mul, "reduce_and": self._and, "reduce_or": self._or}
        if name not in steps:
            raise self.unreadable()
        return reduce(steps[name], row)

    def unreadable(self, why: str = "") -> NotDGP:
        name = self.name if isinstance(self.origin, str) else self.origin[0].primitive.name
        return NotDGP(self.origin, why or f"operation '{name}' cannot be read as part of a geometric program")

    # Elementwise rules: each returns one element.

    def _add(self, a, b):
        if isinstance(a, Logarithm) or isinstance(b, Logarithm):
            return self._log_sum(a, b)
        return self.algebra.plus(self._plain(a), self._plain(b))

    _add_any = _add

    def _sub(self, a, b):
        if isinstance(a, Logarithm) or isinstance(b, Logarithm):
            return self._log_sum(a, self._neg(b))
        return self.algebra.minus(self._plain(a), self._plain(b))

    def _log_sum(self, a, b):
        if isinstance(a, Logarithm) and isinstance(b, Logarithm):
            return Logarithm(
                self.algebra.times(a.argument(self.algebra), b.argument(self.algebra)), 1.0, a.shift + b.shift
            )
        log, other = (a, b) if isinstance(a, Logarithm) else (b, a)
        constant = self._plain(other).constant
        if constant is None:
            return self.algebra.plus(self._plain(log), self._plain(other))
        return Logarithm(log.of, log.sign, log.shift + constant)

    def _mul(self, a, b):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Comparison):
                return self._chosen(x, y, ZERO)
        return self.algebra.times(self._plain(a), self._plain(b))

    def _div(self, a, b):
        return self.algebra.over(self._plain(a), self._plain(b))

    def _neg(self, a):
        if isinstance(a, Logarithm):
            return Logarithm(a.of, -a.sign, -a.shift)
        return self.algebra.minus(ZERO, self._plain(a))

    def _max(self, *parts):
        return self.algebra.extreme([self._plain(x) for x in parts], AtomKind.maximum)

    def _min(self, *parts):
        return self.algebra.extreme([self._plain(x) for x in parts], AtomKind.minimum)

    def _integer_pow(self, a, y):
        return self._powered(a, float(y))

    _square = partialmethod(_integer_pow, y=2.0)
    _sqrt = partialmethod(_integer_pow, y=0.5)
    _rsqrt = partialmethod(_integer_pow, y=-0.5)
    _cbrt = partialmethod(_integer_pow, y=1.0 / 3.0)

    def _pow(self, a, b):
        exponent = self._plain(b).constant
        base = self._plain(a).constant
        if exponent is not None and np.ptp(exponent) == 0:
            return self._powered(a, float(exponent[0]))
        if base is not None and (base > 0).all():
            return self._exp(self.algebra.times(number(np.log(base)), self._plain(b)))
        raise self.unreadable("a power whose exponent is no fixed number")

    def _powered(self, base: Any, exponent: float) -> Signomial:
        a = self._plain(base)
        negative = self.algebra.range(a)[1] < 0 if len(a.terms) > 1 else next(iter(a.terms.values()), np.zeros(1)) < 0
        if exponent != round(exponent) and negative.any():
            raise self.unreadable("a power of what is negative")
        return self.algebra.power(a, exponent)

    def _dies_made(self, fixed, open_to_repair, spares, clustering):
        alpha = self._plain(clustering).constant
        if alpha is None or np.ptp(alpha) != 0:
            raise self.unreadable("a yield whose clustering is no fixed number")
        areas = map(self._plain, (fixed, open_to_repair, spares))
        return outer_linearization.dies_made(self.algebra, *areas, clustering=float(alpha[0]))

    def _exp(self, a):
        if not isinstance(a, Logarithm):
            return self.algebra.exponential(self._plain(a))
        of = a.of if self.algebra.positive(a.of) else self.algebra.lifted(a.of)
        return self.algebra.times(self.algebra.power(of, a.sign), number(np.exp(a.shift)))

    def _exp2(self, a):
        return self._exp(self.algebra.times(number(math.log(2.0)), self._plain(a)))

    def _expm1(self, a):
        return self.algebra.minus(self._exp(a), ONE)

    def _log(self, a):
        return Logarithm(self._plain(a), 1.0, np.zeros(1))

    def _log1p(self, a):
        return Logarithm(self.algebra.plus(self._plain(a), ONE), 1.0, np.zeros(1))

    def _abs(self, a):
        plain = self._plain(a)
        return self.algebra.extreme((plain, self.algebra.minus(ZERO, plain), ZERO), AtomKind.maximum)

    def _clamp(self, low, a, high):
        return self._min(self._max(a, low), high)

    def _copy(self, a, **_):
        return a

    _convert_element_type = _stop_gradient = _copy_p = _optimization_barrier = _reduce_precision = _copy

    def _lt(self, a, b):
        return self._gt(b, a)

    def _le(self, a, b):
        return self._ge(b, a)

    def _compared(self, a, b, holds) -> Signomial | Comparison:
        """Compare `a > b` or `a >= b`. The two differ only where a equals b, a set of volume zero, unless the ranges decide.

        Two logarithms are compared by their arguments.
        """
        if isinstance(a, Logarithm) and isinstance(b, Logarithm):
            a, b = self._exp(a), self._exp(b)
        if isinstance(a, Logarithm) or isinstance(b, Logarithm):
            return Comparison(ZERO, ZERO, np.full(1, np.nan))
        a, b = self._plain(a), self._plain(b)
        gap = self.algebra.minus(a, b)
        if self.algebra.positive(gap):
            return ONE
        low, high = self.algebra.range(gap)
        return _condition(a, b, np.where(holds(low, 0.0), 1.0, np.where(holds(high, 0.0), np.nan, 0.0)))

    _gt = partialmethod(_compared, holds=np.greater)
    _ge = partialmethod(_compared, holds=np.greater_equal)

    def _eq(self, a, b):
        above, below = _truth(self._gt(a, b)), _truth(self._gt(b, a))
        known = np.where((above == 1.0) | (below == 1.0), 0.0, np.where((above == 0.0) & (below == 0.0), 1.0, np.nan))
        return _condition(ZERO, ZERO, known)

    def _ne(self, a, b):
        return self._not(self._eq(a, b))

    def _not(self, a):
        return _condition(a.b, a.a, 1.0 - a.known) if isinstance(a, Comparison) else number(1.0 - self._dense(a))

    def _and(self, a, b):
        this, that = _truth(a), _truth(b)
        known = np.where((this == 0.0) | (that == 0.0), 0.0, this * that)
        for x, other in ((a, that), (b, this)):
            if isinstance(x, Comparison) and (~np.isnan(known) | (other == 1.0)).all():
                return _condition(x.a, x.b, known)
        return _condition(ZERO, ZERO, known)

    def _or(self, a, b):
        return self._not(self._and(self._not(a), self._not(b)))

    def _select_n(self, condition, *cases):
        if len(cases) != 2:
            raise self.unreadable("a choice among more than two")
        return self._chosen(condition, cases[1], cases[0])

    def _chosen(self, condition, yes, no) -> Any:
        """Return `yes` where the condition is true, else `no`.

        The result is exact where the condition is known, and a maximum or minimum where the choice is equivalent to one.
        Elsewhere only its range is kept.
        """
        algebra = self.algebra
        if isinstance(yes, Comparison) or isinstance(no, Comparison):
            return self._or(self._and(condition, yes), self._and(self._not(condition), no))
        if not isinstance(condition, Comparison):
            holds = self._dense(condition) != 0
            if holds.all():
                return yes
            if not holds.any():
                return no
            return algebra.where(holds, self._plain(yes), self._plain(no))
        if isinstance(yes, Logarithm) and isinstance(no, Logarithm):
            return Logarithm(self._chosen(condition, self._exp(yes), self._exp(no)), 1.0, np.zeros(1))
        yes, no = self._plain(yes), self._plain(no)
        if yes.same(no):
            return yes
        steps, gap = algebra.minus(yes, no), algebra.minus(condition.a, condition.b)
        if steps.same(gap):
            return algebra.extreme((yes, no), AtomKind.maximum)
        if algebra.minus(ZERO, steps).same(gap):
            return algebra.extreme((yes, no), AtomKind.minimum)
        (a, b), (c, d) = algebra.range(yes), algebra.range(no)
        unknown = np.isnan(condition.known)
        low, high = np.where(unknown, np.minimum(a, c), 1.0), np.where(unknown, np.maximum(b, d), 1.0)
        if np.isneginf(low).any():
            raise self.unreadable("a choice between values without bounds")
        return algebra.where(
            unknown,
            algebra.hull(low, high, (condition.a, condition.b, yes, no)),
            algebra.where(condition.known == 1.0, yes, no),
        )

    def _dense(self, value) -> np.ndarray:
        """Return a condition that is known at all nodes, as an array; raise `NotDGP` for any other."""
        constant = value.constant if isinstance(value, Signomial) else None
        if constant is None:
            raise self.unreadable("a condition that is no comparison")
        return constant

    def _plain(self, a) -> Signomial:
        """Convert an element to a signomial. Logarithms and conditions become auxiliary variables with bounds."""
        if isinstance(a, Signomial):
            return a
        if isinstance(a, Logarithm):
            of = a.argument(self.algebra)
            positive = self.algebra.logarithm(of)
            if positive is None:
                inverse = self.algebra.logarithm(self.algebra.power(of, -1.0))
                if inverse is None:
                    raise self.unreadable("a logarithm of what may lie on either side of 1")
                positive = self.algebra.minus(ZERO, inverse)
            return self.algebra.plus(positive, number(a.shift))
        if isinstance(a, Comparison):
            return self._chosen(a, ONE, ZERO)
        raise self.unreadable()


def _truth(value: Any) -> np.ndarray:
    """Return a condition as an array: 1 where it is true, 0 where it is false, NaN where it is undecided."""
    if isinstance(value, Comparison):
        return value.known
    constant = value.constant if isinstance(value, Signomial) else None
    return np.full(1, np.nan) if constant is None else (constant != 0).astype(float)
