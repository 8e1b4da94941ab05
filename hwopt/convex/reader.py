"""Reads a jaxpr as signomials over atoms: arithmetic of a model, without running it.

Values that no variable reaches are plain arrays with a leading axis of nodes. The others are arrays of `Signomial`. What
cannot be read raises `Unreadable` with the file and line of the model that wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from jax._src import source_info_util
from jax.extend import core

from hwopt.convex.arrays import (
    MOVES,
    Unknown,
    as_objects,
    is_known,
    joined,
    known_constant,
    moved,
    objects,
    shape_of,
    stacked,
    taken,
)  # fmt: skip
from hwopt.convex.known_numbers import NUMBERS, on_numbers
from hwopt.convex.signomial import ONE, ZERO, Algebra, Kind, Signomial, number


class Unreadable(ValueError):
    """An operation that has no meaning for signomials; says which and where."""

    def __init__(self, origin: Any, what: str):
        super().__init__(f"{where_of(origin)}: {what}")
        self.origin, self.what = origin, what


@dataclass(frozen=True)
class Logarithm:
    """`sign log(of) + shift`, met at the end of a model: a margin."""

    of: Signomial
    sign: float
    shift: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """`a > b` at nodes where neither always holds; `known` where one does, as 1 or 0, NaN elsewhere.

    `a` and `b` are both 0 where it is some other condition that nothing is known of.
    """

    a: Signomial
    b: Signomial
    known: np.ndarray


def _condition(a: Signomial, b: Signomial, known: np.ndarray) -> Signomial | Comparison:
    """`a > b` as a number where it is known at all nodes."""
    return Comparison(a, b, known) if np.isnan(known).any() else number(known)


_PACKAGE = PurePath(__file__).parents[1]
"""Files in it are named from its top."""

_LIBRARIES = frozenset({"equinox", "jaxtyping", "optax", "numpy"})
"""Packages that write equations in an author's name; JAX leaves itself out."""


def frame_of(origin: Any) -> Any:
    """The innermost frame of the author of an equation, rather than of the libraries below; None where there is none.

    **Arguments:** `origin`: the equation and, innermost first, the calls it is in: what JAX itself calls has no author.
    """
    first = None
    for equation in origin or ():
        for frame in source_info_util.user_frames(equation.source_info.traceback):
            if not _LIBRARIES.intersection(PurePath(frame.file_name).parts):
                return frame
            first = first or frame
    return first


def where_of(origin: Any) -> str:
    """File, line and function of what an author wrote."""
    frame = frame_of(origin)
    if not frame:
        return "an unknown line"
    path = PurePath(frame.file_name)
    path = path.relative_to(_PACKAGE.parent) if path.is_relative_to(_PACKAGE) else path
    return f"{path}:{frame.start_line} ({frame.function_name})"


def read(
    jaxpr: core.ClosedJaxpr,
    arguments: Sequence[np.ndarray],
    algebra: Algebra,
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Outputs of a jaxpr whose arguments are known arrays (node, *shape) or arrays of signomials.

    **Arguments:** `arguments` in the order of the jaxpr's inputs; `wanted`: which outputs, all by default.

    **Returns:** for each output a known array, or an object array of signomials and logarithms; None where not wanted.

    **Raises:** `Unreadable`.
    """
    wanted = [True] * len(jaxpr.jaxpr.outvars) if wanted is None else list(wanted)
    with np.errstate(all="ignore"):
        return _Reader(algebra).run(jaxpr.jaxpr, [known_constant(c) for c in jaxpr.consts], arguments, wanted)


@cache
def needed(jaxpr: core.Jaxpr, wanted: tuple[bool, ...]) -> tuple[list[bool], list[list[bool] | None]]:
    """Which inputs, and which outputs of each equation (None: none), the wanted outputs need."""
    alive = {v for v, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(v, core.Literal)}
    uses: list[list[bool] | None] = []
    for equation in reversed(jaxpr.eqns):
        outs = [v in alive for v in equation.outvars]
        if not any(outs):
            uses.append(None)
            continue
        uses.append(outs)
        inner = _called(equation)
        reads = needed(inner.jaxpr, tuple(outs))[0] if inner is not None else [True] * len(equation.invars)
        alive |= {v for v, used in zip(equation.invars, reads, strict=True) if used and not isinstance(v, core.Literal)}
    return [v in alive for v in jaxpr.invars], uses[::-1]


def _called(equation: Any) -> core.ClosedJaxpr | None:
    """The function that an equation only calls, if that is what it does."""
    if equation.primitive.name in _CALLS:
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if name in equation.params:
                held = equation.params[name]
                return held if isinstance(held, core.ClosedJaxpr) else core.ClosedJaxpr(held, ())
    return None


_CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "remat2",
    "checkpoint",
)

_PLACED = ("gather", "dynamic_slice", "dynamic_update_slice", "scatter", "scatter-add", "scatter-mul")


class _Reader:
    def __init__(self, algebra: Algebra):
        self.algebra = algebra
        self.calls: tuple[Any, ...] = ()  # under way, innermost first

    def run(self, jaxpr: core.Jaxpr, consts: Sequence, arguments: Sequence, wanted: Sequence[bool]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))
        _, uses = needed(jaxpr, tuple(wanted))

        def value(v) -> Any:
            return known_constant(v.val) if isinstance(v, core.Literal) else values.get(v)

        for equation, outs in zip(jaxpr.eqns, uses, strict=True):
            if outs is None:
                continue
            inputs = [value(v) for v in equation.invars]
            self.algebra.origin = (equation, *self.calls)
            inner = _called(equation)
            if inner is not None:
                results = self.called(equation, inner, inputs, outs)
            else:
                results = self.equation(equation, inputs)
            values |= dict(zip(equation.outvars, results, strict=True))
        return [value(v) if want else None for v, want in zip(jaxpr.outvars, wanted, strict=True)]

    def called(self, equation: Any, inner: core.ClosedJaxpr, inputs: list[Any], wanted: Sequence[bool]) -> list[Any]:
        """Outputs of a function that an equation calls."""
        self.calls = (equation, *self.calls)
        results = self.run(inner.jaxpr, [known_constant(c) for c in inner.consts], inputs, wanted)
        self.calls = self.calls[1:]
        return results

    def equation(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return self.scan(equation, inputs)
        if name == "split":
            return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], params["axis"] + is_known(inputs[0]))
        if name in MOVES:
            return [moved(MOVES[name], inputs, params)]
        if name in _PLACED:
            return [self.indexed(equation, inputs)]
        if all(is_known(x) for x in inputs):
            if name in NUMBERS:
                return [on_numbers(name, inputs, params)]
            raise self.unreadable()
        if name in _REDUCTIONS:
            return [self.reduced(name, inputs[0], params)]
        if name == "dot_general":
            return [self.product(inputs, params)]
        if name in _CUMULATIVE:
            return [self.cumulative(name, inputs[0], params)]
        if name == "convert_element_type" and not np.issubdtype(params["new_dtype"], np.floating):
            source, made = (np.dtype(x).kind for x in (equation.invars[0].aval.dtype, params["new_dtype"]))
            if source not in "biu" or (made == "b" and source != "b"):
                raise self.unreadable("a whole number of what varies")
            return [inputs[0]]
        rule = getattr(self, "_" + name, None)
        if rule is None:
            raise self.unreadable()
        shape = np.broadcast_shapes(*(shape_of(x) for x in inputs))
        columns = [np.broadcast_to(as_objects(x), shape).ravel() for x in inputs]
        made = [rule(*each, **_scalar_params(params)) for each in zip(*columns, strict=True)]
        return [objects([self.algebra.gathered(x) if isinstance(x, Signomial) else x for x in made], shape)]

    def unreadable(self, why: str = "") -> Unreadable:
        origin: Any = self.algebra.origin
        name = origin[0].primitive.name
        return Unreadable(origin, why or f"operation '{name}' has no reading as a geometric programme")

    # Elementwise rules: one signomial each.

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
            product = self.algebra.times(*(x.of if x.sign > 0 else self.algebra.power(x.of, -1.0) for x in (a, b)))
            return Logarithm(product, 1.0, a.shift + b.shift)
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

    def _max(self, a, b):
        return self.algebra.extreme((self._plain(a), self._plain(b)), Kind.maximum)

    def _min(self, a, b):
        return self.algebra.extreme((self._plain(a), self._plain(b)), Kind.minimum)

    def _integer_pow(self, a, y):
        return self._powered(self._plain(a), float(y))

    def _square(self, a):
        return self._powered(self._plain(a), 2.0)

    def _sqrt(self, a):
        return self._powered(self._plain(a), 0.5)

    def _rsqrt(self, a):
        return self._powered(self._plain(a), -0.5)

    def _cbrt(self, a):
        return self._powered(self._plain(a), 1.0 / 3.0)

    def _pow(self, a, b):
        exponent = self._plain(b).constant
        base = self._plain(a).constant
        if exponent is not None and np.ptp(exponent) == 0:
            return self._powered(self._plain(a), float(exponent[0]))
        if base is not None and (base > 0).all():
            return self._exp(self.algebra.times(number(np.log(base)), self._plain(b)))
        raise self.unreadable("a power whose exponent is no fixed number")

    def _powered(self, a: Signomial, exponent: float) -> Signomial:
        negative = self.algebra.range(a)[1] < 0 if len(a.terms) > 1 else next(iter(a.terms.values()), np.zeros(1)) < 0
        if exponent != round(exponent) and negative.any():
            raise self.unreadable("a power of what is negative")
        return self.algebra.power(a, exponent)

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
        return self.algebra.extreme((plain, self.algebra.minus(ZERO, plain), ZERO), Kind.maximum)

    def _clamp(self, low, a, high):
        return self._min(self._max(a, low), high)

    def _copy(self, a, **_):
        return a

    _convert_element_type = _stop_gradient = _copy_p = _optimization_barrier = _reduce_precision = _copy

    def _gt(self, a, b):
        return self._compared(a, b, np.greater)

    def _ge(self, a, b):
        return self._compared(a, b, np.greater_equal)

    def _lt(self, a, b):
        return self._gt(b, a)

    def _le(self, a, b):
        return self._ge(b, a)

    def _compared(self, a, b, holds) -> Signomial | Comparison:
        """`a > b` or `a >= b`: where neither always holds they differ on a set without volume."""
        if isinstance(a, Logarithm) or isinstance(b, Logarithm):
            return Comparison(ZERO, ZERO, np.full(1, np.nan))
        a, b = self._plain(a), self._plain(b)
        gap = self.algebra.minus(a, b)
        if self.algebra.positive(gap):
            return ONE
        low, high = self.algebra.range(gap)
        return _condition(a, b, np.where(holds(low, 0.0), 1.0, np.where(holds(high, 0.0), np.nan, 0.0)))

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
        """`yes` where the condition holds, else `no`: exact where that is known, a maximum or minimum where it is one."""
        algebra = self.algebra
        if isinstance(yes, Comparison) or isinstance(no, Comparison):
            return self._or(self._and(condition, yes), self._and(self._not(condition), no))
        if not isinstance(condition, Comparison):
            held = self._dense(condition) != 0
            if held.all():
                return yes
            if not held.any():
                return no
            return algebra.where(held, self._plain(yes), self._plain(no))
        yes, no = self._plain(yes), self._plain(no)
        if yes.same(no):
            return yes
        steps, gap = algebra.minus(yes, no), algebra.minus(condition.a, condition.b)
        if steps.same(gap):
            return algebra.extreme((yes, no), Kind.maximum)
        if algebra.minus(ZERO, steps).same(gap):
            return algebra.extreme((yes, no), Kind.minimum)
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
        """A known truth value."""
        constant = value.constant if isinstance(value, Signomial) else None
        if constant is None:
            raise self.unreadable("a condition that is no comparison")
        return constant

    def _plain(self, a) -> Signomial:
        """A signomial; logarithms and conditions as what bounds them."""
        if isinstance(a, Signomial):
            return a
        if isinstance(a, Logarithm):
            of = a.of if a.sign > 0 else self.algebra.power(a.of, -1.0)
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

    # Rules for whole arrays.

    def reduced(self, name: str, value: Unknown, params: dict) -> Unknown:
        axes = params["axes"]
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        table = value.transpose(*kept, *axes).reshape(*(value.shape[axis] for axis in kept), -1)
        rows = table.reshape(-1, table.shape[-1])
        if name in ("reduce_max", "reduce_min"):
            kind = Kind.maximum if name == "reduce_max" else Kind.minimum
            made = [self.algebra.extreme([self._plain(x) for x in row], kind) for row in rows]
        else:
            step = {"reduce_sum": self._add, "reduce_prod": self._mul, "reduce_and": self._and, "reduce_or": self._or}[
                name
            ]
            made = [reduce(step, row) for row in rows]
        return objects(made, table.shape[:-1])

    def cumulative(self, name: str, value: Unknown, params: dict) -> Unknown:
        step = {"cumsum": self._add, "cumprod": self._mul, "cummax": self._max, "cummin": self._min}[name]
        rows = np.moveaxis(value, params["axis"], -1)
        made = np.empty(rows.shape, object)
        order = range(rows.shape[-1])[:: -1 if params["reverse"] else 1]
        for index in np.ndindex(rows.shape[:-1]):
            last = None
            for i in order:
                last = rows[index][i] if last is None else step(last, rows[index][i])
                made[(*index, i)] = last
        return np.moveaxis(made, -1, params["axis"])

    def product(self, inputs: list[np.ndarray], params: dict) -> Unknown:
        (left, right), (left_batch, right_batch) = params["dimension_numbers"]
        a, b = as_objects(inputs[0]), as_objects(inputs[1])
        a_free = [i for i in range(a.ndim) if i not in (*left, *left_batch)]
        b_free = [i for i in range(b.ndim) if i not in (*right, *right_batch)]
        batch = [a.shape[i] for i in left_batch]
        rows, columns = [a.shape[i] for i in a_free], [b.shape[i] for i in b_free]
        inner = math.prod(a.shape[i] for i in left)
        a = a.transpose(*left_batch, *a_free, *left).reshape(math.prod(batch), math.prod(rows), inner)
        b = b.transpose(*right_batch, *b_free, *right).reshape(math.prod(batch), math.prod(columns), inner)
        made = [
            reduce(self._add, (self._mul(x, y) for x, y in zip(a[g, i], b[g, j], strict=True)), ZERO)
            for g in range(a.shape[0])
            for i in range(a.shape[1])
            for j in range(b.shape[1])
        ]
        return objects(made, (*batch, *rows, *columns))

    def indexed(self, equation: Any, inputs: list[np.ndarray]) -> np.ndarray:
        """Gathers and scatters at known places: found by moving numbers of elements in place of the elements."""
        name, params = equation.primitive.name, equation.params
        scatters, updates = name.startswith("scatter"), None
        operand, *places = inputs
        if scatters or name == "dynamic_update_slice":
            updates = places.pop(1 if scatters else 0)
        if not all(is_known(x) and x.shape[0] == 1 for x in places):
            raise self.unreadable("a place that depends on a variable or on the plan")
        fixed = [x[0] for x in places]
        shape, size = shape_of(operand), math.prod(shape_of(operand))
        numbers = np.arange(size).reshape(shape)
        with jax.ensure_compile_time_eval():
            if updates is None:
                outside = {"fill_value": -1} if "fill_value" in params else {}
                found = np.asarray(equation.primitive.bind(numbers, *fixed, **params | outside))
                if not ((found >= 0) & (found < size)).all():
                    raise self.unreadable("a place outside of the array")
                return taken(operand, found)
            news = math.prod(shape_of(updates))
            if name in ("scatter", "dynamic_update_slice"):
                fresh = size + np.arange(news).reshape(shape_of(updates))
                if scatters:
                    found = jax.lax.scatter(numbers, fixed[0], fresh, params["dimension_numbers"], mode=params["mode"])
                else:
                    found = equation.primitive.bind(numbers, fresh, *fixed, **params)
                return taken(joined(operand, updates), np.asarray(found))
            # Several updates may meet at one place, so each is followed on its own.
            marks = np.eye(news).reshape(news, *shape_of(updates))
            put = partial(jax.lax.scatter_add, dimension_numbers=params["dimension_numbers"], mode=params["mode"])
            places_of = np.asarray(jax.vmap(lambda mark: put(np.zeros(shape), fixed[0], mark))(marks))
        hits = places_of.reshape(news, size) > 0
        if is_known(operand) and is_known(updates):
            old, new = operand.reshape(len(operand), -1), updates.reshape(len(updates), -1)
            made = old * np.where(hits, new[..., None], 1).prod(1) if "mul" in name else old + new @ hits
            return made.reshape(-1, *shape)
        step = self._mul if "mul" in name else self._add
        made, new = list(as_objects(operand).ravel()), as_objects(updates).ravel()
        for update, place in np.argwhere(hits):
            made[place] = step(made[place], new[update])
        return objects(made, shape)

    def scan(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """A loop of fixed length, unrolled."""
        p = equation.params
        first, second = p["num_consts"], p["num_consts"] + p["num_carry"]
        consts, carry, columns = inputs[:first], inputs[first:second], inputs[second:]
        if not p["length"]:
            raise self.unreadable("a loop of no steps")
        rows: list[list[np.ndarray]] = []
        body = p["jaxpr"]
        for step in range(p["length"])[:: -1 if p["reverse"] else 1]:
            here = [x[:, step] if is_known(x) else np.asarray(x[step], object) for x in columns]
            outs = self.called(equation, body, [*consts, *carry, *here], [True] * len(body.jaxpr.outvars))
            carry = outs[: p["num_carry"]]
            rows.append(outs[p["num_carry"] :])
        if p["reverse"]:
            rows.reverse()
        return [*carry, *(stacked(column) for column in zip(*rows, strict=True))]


def _truth(value: Any) -> np.ndarray:
    """A condition as 1, 0, and NaN where it is not known."""
    if isinstance(value, Comparison):
        return value.known
    constant = value.constant if isinstance(value, Signomial) else None
    return np.full(1, np.nan) if constant is None else (constant != 0).astype(float)


def _scalar_params(params: dict) -> dict:
    return {"y": params["y"]} if "y" in params else {}


_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin")

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
