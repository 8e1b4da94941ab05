"""NumPy executor of scalar programs. Functions, arguments and memory slots are resolved once for all calls.

A model has several thousand operations, and a search evaluates it hundreds of times; half of that time went into looking
up operations by name. A column's slot is freed as soon as no later operation needs the column. The few dozen columns that
exist at a time stay in the CPU's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from hwopt.trace.constant_folding import NUMBERS, PLAIN


class NumpyStep(NamedTuple):
    """One operation of a `NumpyProgram`."""

    function: Callable[..., np.ndarray]
    arguments: Callable[[list], tuple]  # picks the arguments from the list of all slots
    place: int  # slot of the result


class NumpyProgram(NamedTuple):
    """Operations in order, on a list of slots: first inputs, then constants, then results."""

    constants: list[np.ndarray]
    results: int  # number of result slots, each of which holds several results in turn
    steps: list[NumpyStep]
    outputs: list[int]

    def __call__(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs; those that do not depend on an input have one row.

        **Arguments:** `columns`: a column (row,) in float64 for each input.
        """
        values: list[Any] = [*columns, *self.constants, *[None] * self.results]
        with np.errstate(all="ignore"):
            for function, arguments, place in self.steps:
                values[place] = function(*arguments(values))
        return [values[place] for place in self.outputs]


class Slots(NamedTuple):
    """Memory of a program: inputs first, then constants, then results."""

    constants: list[Any]
    count: int  # of slots
    rows: list[tuple[Any, list[int], int]]  # operation, slots of its arguments, slot of its result
    outputs: list[int]


def slots(inputs: Sequence[Any], operations: Sequence[Any], outputs: Sequence[Any]) -> Slots:
    """Assign a slot to every value; one is used again when no later operation needs its value."""
    place = {id(each): i for i, each in enumerate(inputs)}
    made = {id(each) for each in operations}
    constants = []
    for each in chain(*(symbol.arguments for symbol in operations), outputs):
        if id(each) not in made and id(each) not in place:
            place[id(each)] = len(inputs) + len(constants)
            constants.append(each)
    last = {id(each): i for i, symbol in enumerate(operations) for each in symbol.arguments}
    last |= {id(each): len(operations) for each in outputs}
    end = len(inputs) + len(constants)
    free, rows = [], []
    for i, symbol in enumerate(operations):
        arguments = [place[id(each)] for each in symbol.arguments]
        free += {place[id(each)] for each in symbol.arguments if id(each) in made and last[id(each)] == i}
        if not free:
            free.append(end)
            end += 1
        place[id(symbol)] = free.pop()
        rows.append((symbol, arguments, place[id(symbol)]))
    return Slots(constants, end, rows, [place[id(each)] for each in outputs])


def numpy_program(
    inputs: Sequence[Any], operations: Sequence[Any], outputs: Sequence[Any], other: Callable
) -> NumpyProgram:
    """Compile symbols to steps. **Arguments:** `other`: returns the function of an operation that is not in `NUMBERS`."""
    own = slots(inputs, operations, outputs)
    steps = [
        NumpyStep(_function(symbol) or other(symbol), _picked(places), result) for symbol, places, result in own.rows
    ]
    constants = [np.asarray(each)[None] for each in own.constants]
    return NumpyProgram(constants, own.count - len(inputs) - len(constants), steps, own.outputs)


def _function(symbol: Any) -> Callable[..., np.ndarray] | None:
    plain = PLAIN.get(symbol.name)
    if plain is None and symbol.name in NUMBERS:
        return partial(NUMBERS[symbol.name], p=dict(symbol.params))
    return plain


def _picked(places: list[int]) -> Callable[[list], tuple]:
    if len(places) == 1:
        return lambda values, place=places[0]: (values[place],)
    return itemgetter(*places)
