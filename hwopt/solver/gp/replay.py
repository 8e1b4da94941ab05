"""A reading's arithmetic done again for other nodes, without the Python that decided on it.

Reading a question as a convex programme is bookkeeping in Python over small arrays, one number a node. Most of the time goes
into the bookkeeping, which comes out alike for every batch of boxes: so it is done once, over boxes that hold all others, with
arrays that write down what is done to them (`solver.gp.tape`). A `Replay` does the arithmetic again for other boxes, many
operations of a kind at a time, and says at which of these what the reading took for granted still holds. Where it does not, the
recording says nothing about that node, and who asked reads anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt import workers
from hwopt.solver.gp.tape import Tape

BLOCK = 256
"""Nodes at a time: with fewer, calls outweigh arithmetic; with more, the numbers of each outgrow a cache."""

LEAST = 128
"""Nodes that are worth another process. Chosen, not measured."""


@dataclass(frozen=True)
class _ReplayStep:
    """Operations of one kind that need none of each other: rows of the table that they fill, and those they take.

    A row is filled again once nothing needs what it holds: the table has a quarter of the rows that there are numbers.
    """

    function: Callable
    rows: slice
    arguments: tuple[np.ndarray, ...]

    def done(self, table: np.ndarray) -> None:
        """Fill the rows."""
        given = [table.take(each, axis=0) for each in self.arguments]
        if isinstance(self.function, np.ufunc):
            self.function(*given, out=table[self.rows])
        else:
            table[self.rows] = self.function(*given)


_ROOM = threading.local()


def _room(rows: int, columns: int) -> np.ndarray:
    """A table to be filled (row, column), the same memory each time: fresh memory takes a fifth of a run."""
    numbers = getattr(_ROOM, "numbers", None)
    if numbers is None or numbers.size < rows * columns:
        numbers = _ROOM.numbers = np.empty(rows * columns)
    return numbers[: rows * columns].reshape(rows, columns)


def _first_free(taken: np.ndarray, count: int) -> slice:
    """The first so many rows in a row that are free."""
    edges = np.flatnonzero(np.diff(taken, prepend=True, append=True))
    first = edges[::2][np.flatnonzero(edges[1::2] - edges[::2] >= count)[0]]
    return slice(int(first), int(first) + count)


class Replay:
    """What a tape's outputs and questions need, ready to be run for other nodes.

    **Arguments:** `outputs`: nodes recorded on the tape, or numbers.
    """

    def __init__(self, tape: Tape, outputs: Sequence[Any]):
        wanted = [tape.number_of(each) for each in outputs]
        needed = self._needed(tape, [*wanted, *tape.asked, *tape.inputs])
        level = [0] * len(tape.operations)
        groups: dict[tuple[int, Any], list[int]] = {}
        for number in needed:  # ascending: after all that it needs
            function, arguments = tape.operations[number]
            if arguments:
                level[number] = 1 + max([level[each] for each in arguments])
                groups.setdefault((level[number], function), []).append(number)
        kept = set(needed)
        begins = [*tape.inputs, *(each for each in tape.constants if each in kept)]
        self._inputs = len(tape.inputs)
        self._constants = np.array([tape.constants[each] for each in begins[self._inputs :]])
        steps = [
            (function, np.array(numbers), np.array([tape.operations[number][1] for number in numbers], int))
            for (_, function), numbers in sorted(groups.items(), key=lambda each: each[0][0])
        ]
        last = np.full(len(tape.operations), -1)  # the step that needs a number last
        for i, (_, _, arguments) in enumerate(steps):
            last[arguments] = i
        last[[*wanted, *tape.asked]] = len(steps)
        by_last = np.argsort(last, kind="stable")
        ends = np.searchsorted(last[by_last], np.arange(len(steps) + 1))

        row = np.zeros(len(tape.operations), int)
        row[begins] = np.arange(len(begins))
        taken = np.zeros(len(begins) + len(needed), bool)
        taken[: len(begins)] = True
        self._size = len(begins)
        self._steps: list[_ReplayStep] = []
        for i, (function, numbers, arguments) in enumerate(steps):
            together = np.argsort(last[numbers], kind="stable")  # what is not needed any more at the same time
            numbers, arguments = numbers[together], arguments[together]
            rows = _first_free(taken[: self._size + len(numbers)], len(numbers))
            row[numbers] = np.arange(rows.start, rows.stop)
            taken[rows] = True
            self._size = max(self._size, rows.stop)
            self._steps.append(_ReplayStep(function, rows, tuple(row[arguments.T])))
            taken[row[by_last[ends[i] : ends[i + 1]]]] = False
        self._outputs = row[np.array(wanted, int)]
        self._must = row[np.array([number for number, holds in tape.asked.items() if holds], int)]
        self._must_not = row[np.array([number for number, holds in tape.asked.items() if not holds], int)]

    @staticmethod
    def _needed(tape: Tape, wanted: Sequence[int]) -> list[int]:
        needed = bytearray(len(tape.operations))
        for number in wanted:
            needed[number] = True
        kept = []
        for number in range(len(needed) - 1, -1, -1):  # arguments stand before what is made of them
            if needed[number]:
                kept.append(number)
                for each in tape.operations[number][1]:
                    needed[each] = True
        return kept[::-1]

    def run(self, inputs: np.ndarray, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The outputs for other nodes, in several processes where these are many.

        **Arguments:** `inputs` (input, node) in the order of the tape's; `whole`: stop where it does not hold at all nodes.
        **Returns:** outputs (output, node), truth values as 1 and 0; and at which nodes (node,) what the recording takes for
        granted is known to hold.
        """
        parts = np.array_split(inputs, workers.chunks_of(inputs.shape[1], LEAST), axis=1)
        done = workers.map_chunks(Replay._run, self, [(each, whole) for each in parts])
        results, holds = zip(*done, strict=True)
        return np.concatenate(results, axis=1), np.concatenate(holds)

    def _run(self, inputs: np.ndarray, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        count = inputs.shape[1]
        results, holds = np.empty((len(self._outputs), count)), np.zeros(count, bool)
        with np.errstate(all="ignore"):
            for start in range(0, count, BLOCK):
                part = slice(start, min(start + BLOCK, count))
                table = _room(self._size, part.stop - part.start)
                table[: self._inputs] = inputs[:, part]
                table[self._inputs : self._inputs + len(self._constants)] = self._constants[:, None]
                for step in self._steps:
                    step.done(table)
                results[:, part] = table[self._outputs]
                holds[part] = (table[self._must] != 0).all(axis=0) & (table[self._must_not] == 0).all(axis=0)
                if whole and not holds[part].all():
                    break
        return results, holds
