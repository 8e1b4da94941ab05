"""Replay of a trace: repeats the recorded arithmetic for other search-tree nodes without rerunning the Python code.

Converting a question to a convex program takes mostly Python bookkeeping over small arrays with one number per node. The
bookkeeping is the same for every batch of nodes. It is therefore traced once (`solver.gp.tape`), over nodes whose ranges
contain all others. A `Replay` repeats the arithmetic for other nodes, many operations of the same type at a time. It also
reports at which nodes the recorded conditions are true. Where they are false the trace is invalid, and the caller has to
read the model again.
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
"""Number of nodes per block. Smaller blocks are dominated by call overhead; larger ones no longer fit in the cache."""

LEAST = 128
"""Minimum number of nodes that justifies another worker process. Chosen, not measured."""


@dataclass(frozen=True)
class _ReplayStep:
    """Operations with the same function that do not depend on each other: table rows of their results and of their arguments.

    A row is reused once its value is no longer needed, so that the table has a quarter as many rows as there are values.
    """

    function: Callable
    rows: slice
    arguments: tuple[np.ndarray, ...]

    def done(self, table: np.ndarray) -> None:
        """Compute the results and write them to their rows."""
        given = [table.take(each, axis=0) for each in self.arguments]
        if isinstance(self.function, np.ufunc):
            self.function(*given, out=table[self.rows])
        else:
            table[self.rows] = self.function(*given)


_ROOM = threading.local()


def _room(rows: int, columns: int) -> np.ndarray:
    """Return an uninitialized table (row, column) in reused memory: allocating fresh memory takes a fifth of a run."""
    numbers = getattr(_ROOM, "numbers", None)
    if numbers is None or numbers.size < rows * columns:
        numbers = _ROOM.numbers = np.empty(rows * columns)
    return numbers[: rows * columns].reshape(rows, columns)


def _first_free(taken: np.ndarray, count: int) -> slice:
    """Return the first `count` consecutive free rows."""
    edges = np.flatnonzero(np.diff(taken, prepend=True, append=True))
    first = edges[::2][np.flatnonzero(edges[1::2] - edges[::2] >= count)[0]]
    return slice(int(first), int(first) + count)


class Replay:
    """Executable form of a trace: the operations that its outputs and conditions need, grouped into steps.

    **Arguments:** `outputs`: arrays recorded on the tape, or plain numbers.
    """

    def __init__(self, tape: Tape, outputs: Sequence[Any]):
        wanted = [tape.number_of(each) for each in outputs]
        needed = self._needed(tape, [*wanted, *tape.asked, *tape.inputs])
        level = [0] * len(tape.operations)
        groups: dict[tuple[int, Any], list[int]] = {}
        for number in needed:  # ascending, so that arguments come first
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
        last = np.full(len(tape.operations), -1)  # index of the last step that uses each value
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
            together = np.argsort(last[numbers], kind="stable")  # values that are last used in the same step
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
        for number in range(len(needed) - 1, -1, -1):  # descending, so that a value is visited before its arguments
            if needed[number]:
                kept.append(number)
                for each in tape.operations[number][1]:
                    needed[each] = True
        return kept[::-1]

    def run(self, inputs: np.ndarray, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Compute the outputs for other nodes, in several processes if there are many nodes.

        **Arguments:**

        - `inputs`: (input, node), in the order of the tape's inputs.
        - `whole`: stop at the first block of nodes at which a recorded condition fails.

        **Returns:** outputs (output, node), with truth values as 1 and 0; and a mask (node,) of the nodes at which all
        recorded conditions are known to be true.
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
