"""Reads a jaxpr as signomials over atoms: arithmetic of a model, without running it.

Values that no variable reaches are plain arrays with a leading axis of nodes. The others are arrays of `Signomial`. What
cannot be read raises `Unreadable` with the file and line of the model that wrote it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from jax._src import source_info_util
from jax.extend import core
from scipy import special

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


Known = np.ndarray  # (node, *shape): numbers and truth values
Unknown = np.ndarray  # dtype object, shape: Signomial, Logarithm, Comparison


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
    return f"{frame.file_name}:{frame.start_line} ({frame.function_name})" if frame else "an unknown line"


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
        return _Reader(algebra).run(jaxpr.jaxpr, [_constant(c) for c in jaxpr.consts], arguments, wanted)


def _constant(value: Any) -> Known:
    """A constant of a jaxpr, the same at all nodes."""
    value = np.asarray(value)
    return (value.astype(np.float64) if np.issubdtype(value.dtype, np.floating) else value)[None]


def _is_known(value: np.ndarray) -> bool:
    return value.dtype != object


def needed(jaxpr: core.Jaxpr, wanted: Sequence[bool]) -> tuple[list[bool], list[list[bool] | None]]:
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
        reads = needed(inner.jaxpr, outs)[0] if inner is not None else [True] * len(equation.invars)
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
        _, uses = needed(jaxpr, wanted)

        def value(v) -> Any:
            return _constant(v.val) if isinstance(v, core.Literal) else values.get(v)

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
        results = self.run(inner.jaxpr, [_constant(c) for c in inner.consts], inputs, wanted)
        self.calls = self.calls[1:]
        return results

    def equation(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return self.scan(equation, inputs)
        if name == "split":
            return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], params["axis"] + _is_known(inputs[0]))
        if name in _MOVES:
            return [_moved(_MOVES[name], inputs, params)]
        if name in _PLACED:
            return [self.indexed(equation, inputs)]
        if all(_is_known(x) for x in inputs):
            if name in _NUMBERS:
                return [_numbers(name, inputs, params)]
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
        shape = np.broadcast_shapes(*(_shape(x) for x in inputs))
        columns = [np.broadcast_to(_as_objects(x), shape).ravel() for x in inputs]
        made = [rule(*each, **_scalar_params(params)) for each in zip(*columns, strict=True)]
        return [_objects([self.algebra.gathered(x) if isinstance(x, Signomial) else x for x in made], shape)]

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
        return _objects(made, table.shape[:-1])

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
        a, b = _as_objects(inputs[0]), _as_objects(inputs[1])
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
        return _objects(made, (*batch, *rows, *columns))

    def indexed(self, equation: Any, inputs: list[np.ndarray]) -> np.ndarray:
        """Gathers and scatters at known places: found by moving numbers of elements in place of the elements."""
        name, params = equation.primitive.name, equation.params
        scatters, updates = name.startswith("scatter"), None
        operand, *places = inputs
        if scatters or name == "dynamic_update_slice":
            updates = places.pop(1 if scatters else 0)
        if not all(_is_known(x) and x.shape[0] == 1 for x in places):
            raise self.unreadable("a place that depends on a variable or on the plan")
        fixed = [x[0] for x in places]
        shape, size = _shape(operand), math.prod(_shape(operand))
        numbers = np.arange(size).reshape(shape)
        with jax.ensure_compile_time_eval():
            if updates is None:
                outside = {"fill_value": -1} if "fill_value" in params else {}
                found = np.asarray(equation.primitive.bind(numbers, *fixed, **params | outside))
                if not ((found >= 0) & (found < size)).all():
                    raise self.unreadable("a place outside of the array")
                return _taken(operand, found)
            news = math.prod(_shape(updates))
            if name in ("scatter", "dynamic_update_slice"):
                fresh = size + np.arange(news).reshape(_shape(updates))
                if scatters:
                    found = jax.lax.scatter(numbers, fixed[0], fresh, params["dimension_numbers"], mode=params["mode"])
                else:
                    found = equation.primitive.bind(numbers, fresh, *fixed, **params)
                return _taken(_joined(operand, updates), np.asarray(found))
            # Several updates may meet at one place, so each is followed on its own.
            marks = np.eye(news).reshape(news, *_shape(updates))
            put = partial(jax.lax.scatter_add, dimension_numbers=params["dimension_numbers"], mode=params["mode"])
            places_of = np.asarray(jax.vmap(lambda mark: put(np.zeros(shape), fixed[0], mark))(marks))
        hits = places_of.reshape(news, size) > 0
        if _is_known(operand) and _is_known(updates):
            old, new = operand.reshape(len(operand), -1), updates.reshape(len(updates), -1)
            made = old * np.where(hits, new[..., None], 1).prod(1) if "mul" in name else old + new @ hits
            return made.reshape(-1, *shape)
        step = self._mul if "mul" in name else self._add
        made, new = list(_as_objects(operand).ravel()), _as_objects(updates).ravel()
        for update, place in np.argwhere(hits):
            made[place] = step(made[place], new[update])
        return _objects(made, shape)

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
            here = [x[:, step] if _is_known(x) else np.asarray(x[step], object) for x in columns]
            outs = self.called(equation, body, [*consts, *carry, *here], [True] * len(body.jaxpr.outvars))
            carry = outs[: p["num_carry"]]
            rows.append(outs[p["num_carry"] :])
        if p["reverse"]:
            rows.reverse()
        return [*carry, *(_stacked(column) for column in zip(*rows, strict=True))]


def _truth(value: Any) -> np.ndarray:
    """A condition as 1, 0, and NaN where it is not known."""
    if isinstance(value, Comparison):
        return value.known
    constant = value.constant if isinstance(value, Signomial) else None
    return np.full(1, np.nan) if constant is None else (constant != 0).astype(float)


def _stacked(values: Sequence[np.ndarray]) -> np.ndarray:
    """Values of one shape along a new first axis."""
    if not all(_is_known(x) for x in values):
        return np.stack([_as_objects(x) for x in values])
    nodes = max(x.shape[0] for x in values)
    return np.stack([np.broadcast_to(x, (nodes, *x.shape[1:])) for x in values], axis=1)


def _scalar_params(params: dict) -> dict:
    return {"y": params["y"]} if "y" in params else {}


def _shape(value: np.ndarray) -> tuple[int, ...]:
    return value.shape[1:] if _is_known(value) else value.shape


def _objects(made: list, shape: tuple[int, ...]) -> Unknown:
    result = np.empty(len(made), object)
    result[:] = made
    return result.reshape(shape)


def _as_objects(value: np.ndarray) -> Unknown:
    """Known numbers as constant signomials."""
    if not _is_known(value):
        return value
    flat = value.reshape(value.shape[0], -1)
    return _objects([number(flat[:, i]) for i in range(flat.shape[1])], value.shape[1:])


def _taken(value: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Elements by number."""
    if _is_known(value):
        return value.reshape(value.shape[0], -1)[:, places.ravel()].reshape(value.shape[0], *places.shape)
    return value.ravel()[places.ravel()].reshape(places.shape)


def _joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two values, flat, one after the other."""
    if _is_known(a) and _is_known(b):
        nodes = max(a.shape[0], b.shape[0])
        flat = [np.broadcast_to(x.reshape(x.shape[0], -1), (nodes, x.size // x.shape[0])) for x in (a, b)]
        return np.concatenate(flat, axis=1)
    return np.concatenate([_as_objects(a).ravel(), _as_objects(b).ravel()])


def _moved(move: Callable, inputs: list[np.ndarray], params: dict) -> np.ndarray:
    """Operations that only move elements, for known and unknown ones alike."""
    if all(_is_known(x) for x in inputs) and len(inputs) == 1:
        x = inputs[0]
        numbers = move([np.arange(x.size // x.shape[0]).reshape(x.shape[1:])], params)
        return _taken(x, numbers)
    if all(_is_known(x) for x in inputs):
        nodes = max(x.shape[0] for x in inputs)
        sizes = [x.size // x.shape[0] for x in inputs]
        flat = np.concatenate(
            [np.broadcast_to(x.reshape(x.shape[0], -1), (nodes, s)) for x, s in zip(inputs, sizes, strict=True)], axis=1
        )
        starts = np.cumsum([0, *sizes[:-1]])
        numbers = [start + np.arange(s).reshape(x.shape[1:]) for start, s, x in zip(starts, sizes, inputs, strict=True)]
        return _taken(flat, move(numbers, params))
    return move([_as_objects(x) for x in inputs], params)


def _broadcast_in_dim(inputs, p):
    x, shape = inputs[0], p["shape"]
    wide = np.ones(len(shape), int)
    wide[list(p["broadcast_dimensions"])] = x.shape
    return np.broadcast_to(x.reshape(tuple(wide)), shape)


def _slice(inputs, p):
    strides = p["strides"] or (1,) * inputs[0].ndim
    return inputs[0][tuple(slice(*each) for each in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


def _stack(inputs, p):
    axis = next((p[name] for name in ("axis", "dimension") if name in p), 0)
    return np.stack(inputs, axis)


_MOVES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda x, p: x[0].reshape(p["new_sizes"]),
    "squeeze": lambda x, p: np.squeeze(x[0], tuple(p["dimensions"])) if p["dimensions"] else x[0],
    "expand_dims": lambda x, p: np.expand_dims(x[0], tuple(p["dimensions"])),
    "transpose": lambda x, p: x[0].transpose(p["permutation"]),
    "slice": _slice,
    "concatenate": lambda x, p: np.concatenate(x, p["dimension"]),
    "rev": lambda x, p: np.flip(x[0], p["dimensions"]),
    "stack": _stack,
}
"""Operations that move elements: functions of object or index arrays."""

_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin")

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")


def _axes(p: dict) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in p["axes"])


def _cumulate(function: Callable) -> Callable:
    def run(x, p):
        axis = p["axis"] + 1
        return np.flip(function(np.flip(x, axis), axis), axis) if p["reverse"] else function(x, axis)

    return run


def _numbers(name: str, inputs: list[Known], params: dict) -> Known:
    """An operation on known numbers, node by node."""
    rank = max(x.ndim for x in inputs) if inputs else 0
    aligned = [x.reshape(x.shape[0], *(1,) * (rank - x.ndim), *x.shape[1:]) if x.ndim < rank else x for x in inputs]
    return _NUMBERS[name](*aligned, p=params)


def _simple(function: Callable) -> Callable:
    return lambda *x, p: function(*x)


def _divided(a, b):
    """Whole numbers are divided towards 0."""
    if np.issubdtype(a.dtype, np.floating) or np.issubdtype(b.dtype, np.floating):
        return np.true_divide(a, b)
    return np.trunc(np.true_divide(a, b)).astype(np.result_type(a, b))


def _rounded(a, p):
    away = p["rounding_method"] == jax.lax.RoundingMethod.AWAY_FROM_ZERO
    return np.trunc(a + np.copysign(0.5, a)) if away else np.round(a)


def _converted(a, p):
    kind = p["new_dtype"]
    return a.astype(np.float64 if np.issubdtype(kind, np.floating) else kind)


def _dot(a, b, p):
    (left, right), (left_batch, right_batch) = p["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxy")
    of_a, of_b = {}, {}
    for i, j in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
        of_a[i] = of_b[j] = next(letters)
    for i in range(a.ndim - 1):
        of_a.setdefault(i, None)
    names_a = [of_a[i] or next(letters) for i in range(a.ndim - 1)]
    names_b = [of_b.get(j) or next(letters) for j in range(b.ndim - 1)]
    batch = [names_a[i] for i in left_batch]
    free_a = [n for i, n in enumerate(names_a) if i not in (*left, *left_batch)]
    free_b = [n for j, n in enumerate(names_b) if j not in (*right, *right_batch)]
    nodes = max(a.shape[0], b.shape[0])
    a, b = (np.broadcast_to(x, (nodes, *x.shape[1:])) for x in (a, b))
    return np.einsum(f"z{''.join(names_a)},z{''.join(names_b)}->z{''.join(batch + free_a + free_b)}", a, b)


_NUMBERS: dict[str, Callable] = {
    "add": _simple(operator.add), "add_any": _simple(operator.add), "sub": _simple(operator.sub),
    "mul": _simple(lambda a, b: a & b if a.dtype == bool else a * b), "div": _simple(_divided),
    "rem": _simple(np.fmod),
    "max": _simple(np.maximum), "min": _simple(np.minimum), "neg": _simple(np.negative), "sign": _simple(np.sign),
    "exp": _simple(np.exp), "exp2": _simple(np.exp2), "expm1": _simple(np.expm1), "log": _simple(np.log),
    "log1p": _simple(np.log1p), "sqrt": _simple(np.sqrt), "rsqrt": _simple(lambda a: 1.0 / np.sqrt(a)),
    "cbrt": _simple(np.cbrt), "square": _simple(np.square), "abs": _simple(np.abs), "floor": _simple(np.floor),
    "ceil": _simple(np.ceil), "round": _rounded, "pow": _simple(np.power), "tanh": _simple(np.tanh),
    "logistic": _simple(special.expit), "erf": _simple(special.erf), "erfc": _simple(special.erfc),
    "lgamma": _simple(special.gammaln), "digamma": _simple(special.digamma), "sin": _simple(np.sin), "cos": _simple(np.cos),
    "is_finite": _simple(np.isfinite), "and": _simple(np.bitwise_and), "or": _simple(np.bitwise_or),
    "not": _simple(np.invert), "gt": _simple(np.greater), "ge": _simple(np.greater_equal),
    "lt": _simple(np.less), "le": _simple(np.less_equal), "eq": _simple(np.equal), "ne": _simple(np.not_equal),
    "copy": _simple(lambda a: a), "copy_p": _simple(lambda a: a), "stop_gradient": _simple(lambda a: a),
    "optimization_barrier": _simple(lambda a: a), "reduce_precision": _simple(lambda a: a),
    "select_n": _simple(lambda c, *cases: np.where(c.astype(bool), cases[1], cases[0]) if len(cases) == 2
                        else np.choose(c, cases)),
    "integer_pow": lambda a, p: np.power(a, p["y"]),
    "convert_element_type": _converted,
    "reduce_sum": lambda a, p: a.sum(_axes(p)), "reduce_max": lambda a, p: a.max(_axes(p)),
    "reduce_min": lambda a, p: a.min(_axes(p)), "reduce_prod": lambda a, p: a.prod(_axes(p)),
    "reduce_and": lambda a, p: a.all(_axes(p)), "reduce_or": lambda a, p: a.any(_axes(p)),
    "argmax": lambda a, p: a.argmax(p["axes"][0] + 1), "argmin": lambda a, p: a.argmin(p["axes"][0] + 1),
    "cumsum": _cumulate(np.cumsum), "cumprod": _cumulate(np.cumprod),
    "cummax": _cumulate(np.maximum.accumulate), "cummin": _cumulate(np.minimum.accumulate),
    "iota": lambda p: np.broadcast_to(
        np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(
            [-1 if i == p["dimension"] else 1 for i in range(len(p["shape"]))]), p["shape"])[None],
    "clamp": _simple(lambda low, x, high: np.clip(x, low, high)),
    "dot_general": _dot,
}  # fmt: skip
"""Operations on known numbers; arrays have a leading axis of nodes."""
