"""Tracing of NumPy arithmetic over batches of search-tree nodes: arrays that record each operation on a tape for later replay.

An array has one element per node. During tracing, Python may branch on such arrays only by `any` and `all` over nodes. An
example is "if this is true at every node, a simpler form is enough". The tape records each `all` that was true and each
`any` that was false as a condition of the replay. The opposite results need no check: they select the general form, which
is valid at every node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwopt.solver.gp.options import REFORMULATION


class NotRecordable(TypeError):
    """Operation that cannot be replayed for other nodes, because its result depends on the values of the traced nodes."""


class TapeArray(np.lib.mixins.NDArrayOperatorsMixin):
    """NumPy-like array with one value per search-tree node, (node,), that records the operations applied to it on a tape."""

    __slots__ = ("number", "tape", "value")

    def __init__(self, tape: Tape, number: int, value: np.ndarray):
        self.tape, self.number, self.value = tape, number, value

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise NotRecordable("nodes as a plain array")

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **settings: Any) -> TapeArray:
        if method != "__call__" or settings:
            raise NotRecordable(f"{function.__name__}.{method}")
        if function is np.power and not isinstance(inputs[1], TapeArray) and np.size(inputs[1]) == 1:
            shorter = _POWERS.get(np.asarray(inputs[1]).item())
            return self.tape.done(shorter, inputs[:1]) if shorter else self.tape.done(function, inputs)
        return self.tape.done(function, inputs)

    def __array_function__(self, function: Callable, _: Any, inputs: tuple, settings: dict) -> Any:
        if function not in _FUNCTIONS:
            raise NotRecordable(function.__name__)
        return _FUNCTIONS[function](*inputs, **settings)

    # These operations are the most frequent. NumPy's dispatch would take longer than their arithmetic.

    def __add__(self, other: Any) -> TapeArray:
        return self.tape.done(np.add, (self, other))

    def __radd__(self, other: Any) -> TapeArray:
        return self.tape.done(np.add, (other, self))

    def __sub__(self, other: Any) -> TapeArray:
        return self.tape.done(np.subtract, (self, other))

    def __rsub__(self, other: Any) -> TapeArray:
        return self.tape.done(np.subtract, (other, self))

    def __mul__(self, other: Any) -> TapeArray:
        return self.tape.done(np.multiply, (self, other))

    def __rmul__(self, other: Any) -> TapeArray:
        return self.tape.done(np.multiply, (other, self))

    def __len__(self) -> int:
        return len(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return 1

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def any(self) -> bool:
        """Return whether the value is true at some search-tree node. A false result becomes a condition of the replay."""
        holds = bool(self.value.any())
        if not holds:
            self.tape.ask(self.number, False)
        return holds

    def all(self) -> bool:
        """Return whether the value is true at every search-tree node. A true result becomes a condition of the replay."""
        holds = bool(self.value.all())
        if holds:
            self.tape.ask(self.number, True)
        return holds

    def astype(self, kind: Any) -> TapeArray:
        """Convert truth values to floating numbers; return floating numbers unchanged."""
        if np.dtype(kind) == self.value.dtype:
            return self
        if np.dtype(kind) != np.float64:
            raise NotRecordable(f"nodes as {kind}")
        return self.tape.done(np.multiply, (self, 1.0))

    def tobytes(self) -> Any:
        """Return a key that identifies the array by its position on the tape.

        Equal values could be a coincidence of these nodes.
        """
        return (TapeArray, self.number)

    def __bool__(self) -> bool:
        raise NotRecordable("a decision on nodes that is neither `any` nor `all`")


def guessed(value: Any) -> np.ndarray:
    """Return the values of the traced nodes as a plain array.

    Use them only for choices that remain valid, if not optimal, at other nodes.
    """
    return value.value if isinstance(value, TapeArray) else np.asarray(value)


def somewhere(value: Any) -> bool:
    """Return whether the value is true at some node. Traced arrays return true, since the value may be true at other nodes."""
    return isinstance(value, TapeArray) or bool(value.any())


def is_number(value: Any) -> bool:
    """Return whether a value is numeric rather than a symbolic term.

    A numeric value is a NumPy array with one number for each node of the search tree. A `TapeArray`, which records operations on
    such an array, counts as well.
    """
    return isinstance(value, (np.ndarray, TapeArray))


_POWERS: dict[float, Callable] = {-1.0: np.reciprocal, 0.5: np.sqrt, 1.0: np.positive, 2.0: np.square}
"""Cheaper equivalents of powers with these exponents, as NumPy's own `**` uses."""


def applied(function: Callable[..., np.ndarray], *values: Any) -> Any:
    """Apply a function to arrays of numbers per node, and record the call if one of them is traced.

    **Arguments:** `function`: accepts arrays of any shape. It must be the same object, or a method of the same object, at
    every call, so that equal calls are recognized.
    """
    tape = next((each.tape for each in values if isinstance(each, TapeArray)), None)
    return function(*values) if tape is None else tape.done(function, values)


class Remembered:
    """Function of arrays that keeps its last result, for parts of the result that are recorded, and replayed, one by one."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._last: tuple[tuple[Any, ...], Any] = (), None

    def __reduce__(self) -> tuple:  # a worker process does not need the last result
        return Remembered, (self.function,)

    def __call__(self, *inputs: Any) -> Any:
        known, result = self._last
        if len(known) != len(inputs) or not all(map(np.array_equal, known, inputs)):
            result = self.function(*inputs)
            self._last = tuple(map(np.copy, inputs)), result
        return result


def as_nodes(value: Any) -> Any:
    """Return floating numbers as an array with one value per node, or with one value for all nodes."""
    return value.astype(np.float64) if isinstance(value, TapeArray) else np.atleast_1d(np.asarray(value, np.float64))


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if not isinstance(condition, TapeArray):
        if np.all(condition) or not np.any(condition):
            chosen = yes if np.all(condition) else no
            return chosen if isinstance(chosen, TapeArray) else np.atleast_1d(chosen)
        raise NotRecordable("a choice by nodes that were not recorded")
    return condition.tape.done(np.where, (condition, yes, no))


def _nan_to_num(value: TapeArray, nan: float = 0.0, posinf: float = np.inf) -> Any:
    finite = np.where(value == np.inf, posinf, value)
    return np.where(np.isnan(value), nan, finite)


def _broadcast_to(value: TapeArray, shape: tuple[int, ...]) -> TapeArray:
    if shape not in (value.shape, (1,)):
        raise NotRecordable("another number of nodes")
    return value


_FUNCTIONS: dict[Callable, Callable] = {
    np.where: _where,
    np.nan_to_num: _nan_to_num,
    np.broadcast_to: _broadcast_to,
    np.atleast_1d: lambda value: value,
    np.isneginf: lambda value: value == -np.inf,
    np.clip: lambda value, low, high: np.minimum(np.maximum(value, low), high),
    np.round: lambda value: np.rint(value),
    np.any: lambda value: value.any(),
    np.all: lambda value: value.all(),
}


def _negated(value: np.ndarray) -> np.ndarray:
    return 1.0 - value


_OF_BITS: dict[Callable, Callable] = {
    np.logical_and: np.multiply, np.bitwise_and: np.multiply, np.logical_or: np.maximum, np.bitwise_or: np.maximum,
    np.logical_not: _negated, np.invert: _negated,
}  # fmt: skip
"""Equivalents of Boolean operations for truth values stored as 1 and 0."""


def _chosen(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(condition != 0.0, yes, no)


@dataclass
class Tape:
    """Operations applied to the search-tree nodes of one trace, in order."""

    nodes: int
    most: int = REFORMULATION.most_operations  # maximum number of recorded operations
    operations: list[tuple[Callable, tuple[int, ...]]] = field(default_factory=list)  # index -> function, arguments
    constants: dict[int, float] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    asked: dict[int, bool] = field(default_factory=dict)  # index -> truth value required at every node
    _results: dict[Any, TapeArray] = field(default_factory=dict, repr=False)
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)  # of constants, by their hexadecimal form

    def input(self, value: np.ndarray) -> TapeArray:
        """Register an input of the trace: values (node,) at the traced search-tree nodes."""
        number = self._new(np.positive, ())
        self.inputs.append(number)
        return TapeArray(self, number, np.asarray(value, np.float64))

    def _new(self, function: Callable, arguments: tuple[int, ...]) -> int:
        if len(self.operations) == self.most:
            raise NotRecordable("too many numbers")
        self.operations.append((function, arguments))
        return len(self.operations) - 1

    def ask(self, number: int, holds: bool) -> None:
        self.asked[number] = holds

    def forget(self) -> None:
        """Release all traced arrays.

        They refer to the tape, so gigabytes would otherwise stay until the garbage collector runs.
        """
        self._results.clear()

    def number_of(self, value: Any) -> int:
        """Return the index of an argument on the tape. A constant is added to the tape at its first use."""
        if type(value) is TapeArray:
            return value.number
        if type(value) is not float:
            value = np.asarray(value, np.float64)
            if value.size != 1:
                raise NotRecordable("nodes that were not recorded")
            value = value.item()
        key = value.hex()  # distinguishes 0.0 from -0.0
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new(np.positive, ())
            self.constants[number] = value
        return number

    def done(self, function: Callable, inputs: Sequence[Any]) -> TapeArray:
        """Apply an operation and record it. An operation with equal arguments is recorded only once."""
        arguments = tuple([each.number if type(each) is TapeArray else self.number_of(each) for each in inputs])
        key = (function, arguments)
        known = self._results.get(key)
        if known is not None:
            return known
        values = [each.value if type(each) is TapeArray else each for each in inputs]
        kept = function
        if function in _OF_BITS:
            kept = _OF_BITS[function]
            if not all(np.asarray(each).dtype.kind == "b" for each in values):
                raise NotRecordable("bits of numbers")
        elif function is np.where:
            kept = _chosen
        result = np.asarray(function(*values))
        if result.dtype != bool and result.dtype != np.float64:
            result = result.astype(np.float64)
        if result.shape != (self.nodes,):
            result = np.broadcast_to(result, (self.nodes,))
        new = self._results[key] = TapeArray(self, self._new(kept, arguments), result)
        return new
