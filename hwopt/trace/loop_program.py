"""Scalar programs as one JAX operation: a table of steps that a single compiled loop executes, with derivatives of any order.

Compiling a model of three thousand operations, or its gradient, takes XLA tens of seconds. Here the operations are rows of an
integer table (operation, places of its arguments, place of its result) on a file of registers. XLA compiles only the loop and
some twenty elementary operations. Derivatives are scalar programs again: `pushforward` for tangents, `pullback` for cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from hwopt.trace.numpy_executor import Slots, slots
from hwopt.trace.scalar_program import ScalarProgram, Simplifier, applied, blank, scalar_program
from hwopt.trace.symbols import Element, Symbol
from hwopt.trace.yield_primitive import OPERATIONS, elementwise_primitive

_FLAT = frozenset(
    {"gt", "lt", "ge", "le", "eq", "ne", "and", "or", "not", "stop_gradient", "round", "floor", "ceil", "sign"}
    | {"convert_element_type", "is_finite"}
)
"""Operations whose derivative is zero wherever it exists."""

_ON_TRUTH: dict[str, Callable[..., Any]] = {
    "and": lambda a, b: a * b,
    "or": lambda a, b: jnp.maximum(a, b),
    "not": lambda a: 1.0 - a,
    "select_n": lambda which, no, yes: jnp.where(which != 0.0, yes, no),
}
"""Operations on truth values, which registers hold as 0 and 1."""


class LoopProgram:
    """Scalar program that JAX evaluates, differentiates and batches as one operation.

    **Arguments:** `line`: the program.
    """

    def __init__(self, line: ScalarProgram):
        self.line = line

    def __call__(self, x: Array) -> Array:
        """Return the outputs (output, *batch) for inputs (input, *batch), in their dtype."""
        return run_p.bind(x, program=self)

    @cached_property
    def pushforward(self) -> LoopProgram:
        """Program from inputs and tangents of the inputs to tangents of the outputs."""
        builder, count = Simplifier(), len(self.line.inputs)
        inputs = blank(2 * count)
        values = dict(zip(map(id, self.line.inputs), inputs[:count], strict=True))
        moved: dict[int, Element] = dict(zip(map(id, inputs[:count]), inputs[count:], strict=True))
        for symbol in self.line.operations:
            arguments = tuple(values.get(id(each), each) for each in symbol.arguments)
            result = values[id(symbol)] = builder.again(symbol, arguments)
            if isinstance(result, Symbol) and id(result) not in moved:
                slopes = zip(result.arguments, _slopes(builder, result), strict=True)
                parts = [builder.simplified("mul", moved[id(a)], slope) for a, slope in slopes if id(a) in moved]
                moved[id(result)] = _sum(builder, parts)
        outputs = [moved.get(id(values.get(id(each), each)), np.float64(0.0)) for each in self.line.outputs]
        return LoopProgram(ScalarProgram.to(inputs, outputs))

    @cached_property
    def pullback(self) -> LoopProgram:
        """Program from inputs and cotangents of the outputs to cotangents of the inputs."""
        builder, count = Simplifier(), len(self.line.inputs)
        inputs = blank(count + len(self.line.outputs))
        same = self.line.again(builder, ScalarProgram(inputs[:count], (), inputs[:count]))
        parts: dict[int, list[Element]] = {}
        for output, weight in zip(same.outputs, inputs[count:], strict=True):
            parts.setdefault(id(output), []).append(weight)
        for symbol in reversed(same.operations):
            weight = _sum(builder, parts.get(id(symbol), []))
            for argument, slope in zip(symbol.arguments, _slopes(builder, symbol), strict=True):
                if isinstance(argument, Symbol):
                    parts.setdefault(id(argument), []).append(builder.simplified("mul", weight, slope))
        return LoopProgram(ScalarProgram.to(inputs, [_sum(builder, parts.get(id(x), [])) for x in inputs[:count]]))

    @cached_property
    def _slots(self) -> Slots:
        """Registers of a program whose operations are grouped: those of the table, then long ones, then the next table."""
        return slots(self.line.inputs, [x for _, group in self._groups for x in group], self.line.outputs)

    @cached_property
    def _groups(self) -> list[tuple[bool, list[Symbol]]]:
        """Operations in order, split where an operation is too long for the loop."""
        level: dict[int, int] = {}
        for symbol in self.line.operations:
            before = max((level.get(id(each), 0) for each in symbol.arguments), default=0)
            level[id(symbol)] = before + before % 2 + (symbol.name in OPERATIONS)  # long ones have odd levels
        order = sorted(self.line.operations, key=lambda symbol: level[id(symbol)])
        groups: dict[int, list[Symbol]] = {}
        for symbol in order:
            groups.setdefault(level[id(symbol)], []).append(symbol)
        return [(number % 2 == 1, group) for number, group in groups.items()]

    def run(self, x: Array) -> Array:
        """Execute the table on inputs (input, *batch). The batch is last: a register is then contiguous in memory."""
        where, batch = self._slots, x.shape[1:]
        constants = jnp.asarray(where.constants, x.dtype).reshape(-1, *(1 for _ in batch))
        spare = where.count - len(x) - len(constants)
        wide = jnp.broadcast_to(constants, (len(constants), *batch))
        file = jnp.concatenate([x, wide, jnp.zeros((spare, *batch), x.dtype)])
        rows = iter(where.rows)
        for long, group in self._groups:
            here = [next(rows) for _ in group]
            file = _one_by_one(file, here) if long else _looped(file, here)
        return file[np.asarray(where.outputs)]


def _looped(file: Array, rows: Sequence[Any]) -> Array:
    kinds: dict[Any, tuple[int, Callable]] = {}
    numbers = []
    for symbol, arguments, result in rows:
        kind = kinds.setdefault((symbol.name, symbol.params), (len(kinds), _branch(symbol)))[0]
        numbers.append([kind, *arguments, *[0] * (3 - len(arguments)), result])
    table, branches = jnp.asarray(np.asarray(numbers, np.int32)), [branch for _, branch in kinds.values()]

    def step(i: Array, file: Array) -> Array:
        kind, a, b, c, place = table[i]
        read = [lax.dynamic_index_in_dim(file, each, keepdims=False) for each in (a, b, c)]
        return lax.dynamic_update_index_in_dim(file, lax.switch(kind, branches, *read), place, 0)

    return lax.fori_loop(0, len(numbers), step, file)


def _one_by_one(file: Array, rows: Sequence[Any]) -> Array:
    results = [_branch(symbol)(*(file[each] for each in arguments)) for symbol, arguments, _ in rows]
    return file.at[np.asarray([place for *_, place in rows])].set(jnp.stack(results))


def _branch(symbol: Symbol) -> Callable[..., Array]:
    count = len(symbol.arguments)

    def branch(*registers: Array) -> Array:
        own, kind = _ON_TRUTH.get(symbol.name), registers[0].dtype
        used = registers[:count]
        return jnp.asarray(own(*used) if own else applied(symbol, list(used), kind)).astype(kind)

    return branch


def _sum(builder: Simplifier, parts: Sequence[Element]) -> Element:
    total: Element = np.float64(0.0)
    for each in parts:
        total = builder.simplified("add", total, each)
    return total


def _slopes(builder: Simplifier, symbol: Symbol) -> list[Element]:
    """Return the derivative of an operation with respect to each of its arguments."""
    zero, one = np.float64(0.0), np.float64(1.0)
    if symbol.name in _FLAT:
        return [zero] * len(symbol.arguments)
    if symbol.name == "select_n":
        which = symbol.arguments[0]
        return [zero, *(builder.simplified("select_n", which, *pair) for pair in ((one, zero), (zero, one)))]
    if symbol.name in OPERATIONS:
        slopes = (_slope_of(symbol.name, i) for i in range(len(symbol.arguments)))
        return [builder.kept(each.name, symbol.arguments, each) for each in slopes]
    line = _slopes_of(symbol.name, symbol.primitive, symbol.params, len(symbol.arguments))
    return list(line.built(builder, symbol.arguments))


@cache
def _slopes_of(name: str, primitive: Any, params: tuple, count: int) -> ScalarProgram:
    """Trace the derivatives of an operation by JAX's own rules."""
    symbol = Symbol(name, (None,) * count, primitive, params)
    return scalar_program(jax.grad(lambda x: applied(symbol, list(x), np.float64)), count)


@cache
def _slope_of(name: str, index: int) -> Primitive:
    """Return the derivative of a long operation with respect to one argument, as a long operation of its own."""
    primitive = OPERATIONS[name]

    def slope(*arguments: Array) -> Array:
        tangents = [jnp.full_like(each, float(i == index)) for i, each in enumerate(arguments)]
        return jax.jvp(lambda *some: primitive.bind(*some), arguments, tuple(tangents))[1]

    return elementwise_primitive(f"{name}_by_{index}", slope)


run_p, push_p = Primitive("run_scalar_program"), Primitive("push_scalar_program")
"""Values of a program at inputs, and tangents of its outputs at inputs and their tangents; the second is linear in tangents."""


def _values(x: Array, *, program: LoopProgram) -> Array:
    return program.run(x)


def _tangents(x: Array, moved: Array, *, program: LoopProgram) -> Array:
    return program.pushforward.run(jnp.concatenate([x, moved]))


def _shape(x: Any, *_: Any, program: LoopProgram) -> Any:
    return x.update(shape=(len(program.line.outputs), *x.shape[1:]))


def _differentiated(primals: Any, tangents: Any, *, program: LoopProgram) -> tuple[Array, Array]:
    (x,), (moved,) = primals, tangents
    return program(x), push_p.bind(x, ad.instantiate_zeros(moved), program=program)


def _tangents_differentiated(primals: Any, tangents: Any, *, program: LoopProgram) -> tuple[Array, Array]:
    x = jnp.concatenate(primals)
    moved = jnp.concatenate([ad.instantiate_zeros(each) for each in tangents])
    return push_p.bind(*primals, program=program), push_p.bind(x, moved, program=program.pushforward)


def _transposed(weight: Any, x: Array, _: Any, *, program: LoopProgram) -> tuple[None, Array]:
    return None, program.pullback(jnp.concatenate([x, ad.instantiate_zeros(weight)]))


def _batched(primitive: Primitive) -> Callable:
    def rule(arrays: Sequence[Array], axes: Sequence[int | None], **params: Any) -> tuple[Array, int]:
        size = next(each.shape[axis] for each, axis in zip(arrays, axes, strict=True) if axis is not None)
        last = [
            jnp.broadcast_to(each[..., None], (*each.shape, size)) if axis is None else jnp.moveaxis(each, axis, -1)
            for each, axis in zip(arrays, axes, strict=True)
        ]
        result = primitive.bind(*last, **params)
        return result, result.ndim - 1

    return rule


for _primitive, _function, _jvp in ((run_p, _values, _differentiated), (push_p, _tangents, _tangents_differentiated)):
    _primitive.def_impl(jax.jit(_function, static_argnames="program"))
    _primitive.def_abstract_eval(_shape)
    mlir.register_lowering(_primitive, mlir.lower_fun(_function, multiple_results=False))
    batching.primitive_batchers[_primitive] = _batched(_primitive)
    ad.primitive_jvps[_primitive] = _jvp
ad.primitive_transposes[push_p] = _transposed
