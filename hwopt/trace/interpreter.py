"""Abstract interpreter of jaxprs over symbolic elements: it moves elements itself, and a subclass defines their arithmetic.

Values that do not depend on an unknown are plain arrays with a leading axis of search-tree nodes. All others are arrays
of objects.
"""

import abc
import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.extend import core

from hwopt.trace.arrays import MOVES, Unknown, is_known, known_constant, moved, objects, shape_of, taken
from hwopt.trace.constant_folding import NUMBERS, on_numbers
from hwopt.trace.primitive_compat import expanded_primitive

Origin = tuple[Any, ...]
"""An equation and, innermost first, the calls that contain it."""


class Interpreter(abc.ABC):
    """Evaluation of a jaxpr, element by element, in an algebra that a subclass defines."""

    def __init__(self) -> None:
        self.origin: Any = ()  # equation being evaluated
        self.calls: Origin = ()  # enclosing calls, innermost first

    @abc.abstractmethod
    def lifted(self, value: np.ndarray) -> Any:
        """Convert a known number (node,) to an element of the subclass's algebra."""

    @abc.abstractmethod
    def element(self, name: str, arguments: tuple, params: dict) -> Any:
        """Apply an elementwise JAX operation to elements of the algebra, at least one of them unknown."""

    @abc.abstractmethod
    def folded(self, name: str, row: list) -> Any:
        """Reduce a row of elements of the algebra to one element (`reduce_sum`, `argmax`, ...)."""

    @abc.abstractmethod
    def unreadable(self, why: str = "") -> Exception:
        """Return the exception to raise for an equation that the algebra does not support."""

    def run(self, closed: core.ClosedJaxpr, arguments: Sequence[np.ndarray], wanted: Sequence[bool]) -> list[Any]:
        """Return the outputs of a jaxpr; None for those not wanted.

        **Arguments:**

        - `closed`: the jaxpr.
        - `arguments`: its inputs, in order: known arrays (node, *shape) or arrays of elements.
        - `wanted`: which outputs to compute.
        """
        jaxpr = closed.jaxpr
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(known_constant, closed.consts), strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))
        _, uses = _needed(jaxpr, tuple(wanted))

        def value(v) -> Any:
            return known_constant(v.val) if isinstance(v, core.Literal) else values.get(v)

        for equation, outs in zip(jaxpr.eqns, uses, strict=True):
            if outs is None:
                continue
            inputs = [value(v) for v in equation.invars]
            self.origin = (equation, *self.calls)
            inner = _called(equation)
            results = self._equation(equation, inputs) if inner is None else self._call(equation, inner, inputs, outs)
            values |= dict(zip(equation.outvars, results, strict=True))
        return [value(v) if want else None for v, want in zip(jaxpr.outvars, wanted, strict=True)]

    def _call(self, equation: Any, inner: core.ClosedJaxpr, inputs: list[Any], wanted: Sequence[bool]) -> list[Any]:
        """Return the outputs of a function that an equation calls."""
        self.calls = (equation, *self.calls)
        results = self.run(inner, inputs, wanted)
        self.calls = self.calls[1:]
        return results

    def _equation(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return self._scan(equation, inputs)
        if name == "split":
            return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], params["axis"] + is_known(inputs[0]))
        if name == "unstack":
            rows = np.moveaxis(inputs[0], params["axis"] + is_known(inputs[0]), 0)
            return [rows[i, ...] for i in range(len(rows))]  # `...` keeps a single element an array
        if name == "optimization_barrier":
            return inputs
        if name in MOVES:
            return [moved(MOVES[name], inputs, params, self.as_objects)]
        if name in _PLACED:
            return [self._placed(equation, inputs)]
        if all(is_known(x) for x in inputs):
            if name in NUMBERS:
                return [on_numbers(name, inputs, params)]
            raise self.unreadable()
        if name in _FOLDS:
            return [self._reduced(name, inputs[0], params["axes"])]
        if name == "dot_general":
            return [self._product(inputs, params)]
        if name in _CUMULATIVE:
            return [self._cumulative(_CUMULATIVE[name], inputs[0], params)]
        try:
            shape = np.broadcast_shapes(*(shape_of(x) for x in inputs))
        except ValueError:  # not elementwise
            raise self.unreadable() from None
        columns = [np.broadcast_to(self.as_objects(x), shape).ravel() for x in inputs]
        return [objects([self.element(name, each, params) for each in zip(*columns, strict=True)], shape)]

    def as_objects(self, value: np.ndarray) -> Unknown:
        """Return an array of elements, converting known numbers."""
        if not is_known(value):
            return value
        flat = value.reshape(value.shape[0], -1)
        return objects([self.lifted(flat[:, i]) for i in range(flat.shape[1])], value.shape[1:])

    def _reduced(self, name: str, value: Unknown, axes: tuple[int, ...]) -> Unknown:
        if not value.size:  # an empty array contains no unknowns
            return on_numbers(name, [np.zeros((1, *value.shape))], {"axes": axes})
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        table = value.transpose(*kept, *axes).reshape(*(value.shape[axis] for axis in kept), -1)
        return objects([self.folded(name, list(row)) for row in table.reshape(-1, table.shape[-1])], table.shape[:-1])

    def _cumulative(self, step: str, value: Unknown, params: dict) -> Unknown:
        rows = np.moveaxis(value, params["axis"], -1)
        result = np.empty(rows.shape, object)
        order = range(rows.shape[-1])[:: -1 if params["reverse"] else 1]
        for index in np.ndindex(rows.shape[:-1]):
            last = None
            for i in order:
                last = rows[index][i] if last is None else self.element(step, (last, rows[index][i]), {})
                result[(*index, i)] = last
        return np.moveaxis(result, -1, params["axis"])

    def _product(self, inputs: list[np.ndarray], params: dict) -> Unknown:
        (left, right), (left_batch, right_batch) = params["dimension_numbers"]
        a, b = self.as_objects(inputs[0]), self.as_objects(inputs[1])
        a_free = [i for i in range(a.ndim) if i not in (*left, *left_batch)]
        b_free = [i for i in range(b.ndim) if i not in (*right, *right_batch)]
        batch = [a.shape[i] for i in left_batch]
        rows, columns = [a.shape[i] for i in a_free], [b.shape[i] for i in b_free]
        inner = math.prod(a.shape[i] for i in left)
        a = a.transpose(*left_batch, *a_free, *left).reshape(math.prod(batch), math.prod(rows), inner)
        b = b.transpose(*right_batch, *b_free, *right).reshape(math.prod(batch), math.prod(columns), inner)
        result = [
            self.folded("reduce_sum", [self.element("mul", pair, {}) for pair in zip(a[g, i], b[g, j], strict=True)])
            for g in range(a.shape[0])
            for i in range(a.shape[1])
            for j in range(b.shape[1])
        ]
        return objects(result, (*batch, *rows, *columns))

    def _placed(self, equation: Any, inputs: list[np.ndarray]) -> np.ndarray:
        """Evaluate gathers and scatters at known indices.

        The operation is applied to the indices of the elements; its result says which element goes where.
        """
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
                places_of = np.asarray(equation.primitive.bind(numbers, *fixed, **params | outside))
                if not ((places_of >= 0) & (places_of < size)).all():
                    raise self.unreadable("a place outside of the array")
                return taken(operand, places_of)
            news = math.prod(shape_of(updates))
            if name in ("scatter", "dynamic_update_slice"):
                fresh = size + np.arange(news).reshape(shape_of(updates))
                if scatters:
                    places_of = jax.lax.scatter(
                        numbers, fixed[0], fresh, params["dimension_numbers"], mode=params["mode"]
                    )
                else:
                    places_of = equation.primitive.bind(numbers, fresh, *fixed, **params)
                places_of = np.asarray(places_of)
                join = lambda parts, _: np.concatenate([part.ravel() for part in parts])[places_of]
                return moved(join, [operand, updates], params, self.as_objects)
            # Several updates may have the same destination, so each is tracked separately.
            marks = np.eye(news).reshape(news, *shape_of(updates))
            put = partial(jax.lax.scatter_add, dimension_numbers=params["dimension_numbers"], mode=params["mode"])
            places_of = np.asarray(jax.vmap(lambda mark: put(np.zeros(shape), fixed[0], mark))(marks))
        hits = places_of.reshape(news, size) > 0
        if is_known(operand) and is_known(updates):
            old, new = operand.reshape(len(operand), -1), updates.reshape(len(updates), -1)
            result = old * np.where(hits, new[..., None], 1).prod(1) if "mul" in name else old + new @ hits
            return result.reshape(-1, *shape)
        step = "mul" if "mul" in name else "add"
        result, new = list(self.as_objects(operand).ravel()), self.as_objects(updates).ravel()
        for update, place in np.argwhere(hits):
            result[place] = self.element(step, (result[place], new[update]), {})
        return objects(result, shape)

    def _scan(self, equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Evaluate a loop of fixed length by unrolling it."""
        p = equation.params
        held, carried = _loop_inputs(p)
        first, second = held, held + carried
        consts, carry, columns = inputs[:first], inputs[first:second], inputs[second:]
        if not p["length"]:
            raise self.unreadable("a loop of no steps")
        rows: list[list[np.ndarray]] = []
        body = p["jaxpr"]
        for step in range(p["length"])[:: -1 if p["reverse"] else 1]:
            here = [x[:, step] if is_known(x) else np.asarray(x[step], object) for x in columns]
            outs = self._call(equation, body, [*consts, *carry, *here], [True] * len(body.jaxpr.outvars))
            carry = outs[:carried]
            rows.append(outs[carried:])
        if p["reverse"]:
            rows.reverse()
        stacked = (moved(MOVES["stack"], list(column), {}, self.as_objects) for column in zip(*rows, strict=True))
        return [*carry, *stacked]


def _loop_inputs(params: dict[str, Any]) -> tuple[int, int]:
    """Return the numbers of a loop's constant and carried inputs; JAX has two formats."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    held, carried, _ = params["ft_in"].unpack()  # from 0.11 on
    return len(list(held)), len(list(carried))


@cache
def _needed(jaxpr: core.Jaxpr, wanted: tuple[bool, ...]) -> tuple[list[bool], list[list[bool] | None]]:
    """Return which inputs the wanted outputs need, and which outputs of each equation (None for an equation that is not
    needed).
    """
    alive = {v for v, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(v, core.Literal)}
    uses: list[list[bool] | None] = []
    for equation in reversed(jaxpr.eqns):
        outs = [v in alive for v in equation.outvars]
        if not any(outs):
            uses.append(None)
            continue
        uses.append(outs)
        inner = _called(equation)
        reads = _needed(inner.jaxpr, tuple(outs))[0] if inner is not None else [True] * len(equation.invars)
        alive |= {v for v, used in zip(equation.invars, reads, strict=True) if used and not isinstance(v, core.Literal)}
    return [v in alive for v in jaxpr.invars], uses[::-1]


def _called(equation: Any) -> core.ClosedJaxpr | None:
    """Return the jaxpr that an equation merely calls, or its expansion into older primitives; None for any other equation."""
    if (form := expanded_primitive(equation)) is not None:
        return form
    if equation.primitive.name in _CALLS:
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if name in equation.params:
                inner = equation.params[name]
                return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())
    return None


_CALLS = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint",
)  # fmt: skip

_PLACED = ("gather", "dynamic_slice", "dynamic_update_slice", "scatter", "scatter-add", "scatter-mul")

_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
"""Cumulative operations along an axis -> the operation that each repeats."""

_FOLDS = (
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin",
)  # fmt: skip
