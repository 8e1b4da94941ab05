"""Scalar operations carried out in NumPy: what each does, takes and leaves is looked up once for all calls.

A model is some thousand operations, and a search asks it hundreds of times: half of that went into finding operations by name. A
column goes as soon as no later operation needs it: the few dozen that are held at a time stay in a processor's cache.
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
    """One operation."""

    function: Callable[..., np.ndarray]
    arguments: Callable[[list], tuple]  # out of all places
    place: int  # of its result


class NumpyProgram(NamedTuple):
    """Operations in order, and the places of their columns: of inputs, then of constants, then of results."""

    constants: list[np.ndarray]
    results: int  # places of results, each taken by one after the other
    steps: list[NumpyStep]
    outputs: list[int]

    def __call__(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, of one row where no input reaches. **Arguments:** a column (row,) in float64 for each input."""
        values: list[Any] = [*columns, *self.constants, *[None] * self.results]
        with np.errstate(all="ignore"):
            for function, arguments, place in self.steps:
                values[place] = function(*arguments(values))
        return [values[place] for place in self.outputs]


def numpy_program(
    inputs: Sequence[Any], operations: Sequence[Any], outputs: Sequence[Any], other: Callable
) -> NumpyProgram:
    """Symbols as steps. **Arguments:** `other`: what gives an operation that is not in `NUMBERS` its function."""
    place = {id(each): i for i, each in enumerate(inputs)}
    made = {id(each) for each in operations}
    constants = []
    for each in chain(*(symbol.arguments for symbol in operations), outputs):
        if id(each) not in made and id(each) not in place:
            place[id(each)] = len(inputs) + len(constants)
            constants.append(np.asarray(each)[None])
    last = {id(each): i for i, symbol in enumerate(operations) for each in symbol.arguments}
    last |= {id(each): len(operations) for each in outputs}
    first = end = len(inputs) + len(constants)
    free, steps = [], []
    for i, symbol in enumerate(operations):
        arguments = [place[id(each)] for each in symbol.arguments]
        free += {place[id(each)] for each in symbol.arguments if id(each) in made and last[id(each)] == i}
        if not free:
            free.append(end)
            end += 1
        place[id(symbol)] = free.pop()
        steps.append(NumpyStep(_function(symbol) or other(symbol), _picked(arguments), place[id(symbol)]))
    return NumpyProgram(constants, end - first, steps, [place[id(each)] for each in outputs])


def _function(symbol: Any) -> Callable[..., np.ndarray] | None:
    plain = PLAIN.get(symbol.name)
    if plain is None and symbol.name in NUMBERS:
        return partial(NUMBERS[symbol.name], p=dict(symbol.params))
    return plain


def _picked(places: list[int]) -> Callable[[list], tuple]:
    if len(places) == 1:
        return lambda values, place=places[0]: (values[place],)
    return itemgetter(*places)
