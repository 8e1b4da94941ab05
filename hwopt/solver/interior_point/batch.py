"""Many convex programmes of one structure solved at once: Newton's method on slots refilled from a pool.

Exponents, Jacobians and Newton matrices are mostly zeros, the same ones in all programmes of a structure: on a processor they
are products of sparse matrices with columns of numbers, and one sparse Cholesky factor for all. That is NumPy and SciPy's:
nothing is traced or compiled, so a new structure costs milliseconds. In one thread: sixteen took two and a half times as long.
Where a rough answer will do, the first iterations are in single precision: what they find proves nothing, as bounds are those of
`hwopt.solver.gp.certificate` at the points and multipliers that come out. An accelerator runs the same iteration compiled, all
in double precision (`hwopt.solver.interior_point.device_loop`). No programme's numbers depend on those beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from hwopt.solver.gp.options import INTERIOR_POINT, InteriorPointOptions
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point import device_loop
from hwopt.solver.interior_point.newton import (
    RUNNING,
    FinishedProblems,
    Iterate,
    ProblemData,
    Residuals,
    columns,
    finish,
    initial_iterate,
    newton_step,
    problem_data,
    residuals,
)
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.interior_point.sparsity import SparsityFrame, frame_of

_DONE = -1

Columns = TypeVar("Columns", ProblemData, Iterate, Residuals)


def solve(
    structure: ProgramStructure,
    numbers: ProgramNumbers,
    *,
    cutoff: np.ndarray | float | None = None,
    start: np.ndarray | None = None,
    tolerance: float = 1e-9,
    loose: np.ndarray | float = 0.0,
    iterations: int | None = None,
    device: device_loop.Device | None = None,
    options: InteriorPointOptions = INTERIOR_POINT,
) -> BatchResult:
    """Solve all programmes of a batch.

    **Arguments:** `cutoff` of each problem, or of all: one whose optimum is proved to lie above it is dropped. `start`:
    points to begin at (problem, variable); the middle of the box if None. `tolerance`: largest gap between objective and
    bound, and largest violation, of a solved problem; `loose`: those of a problem whose optimum lies below the cutoff, where
    that is all that matters, of each problem or of all; `bound` of these is good to single precision. `iterations`: after so
    many a problem is given up as unresolved; None: as many as the options say.
    `device`: where the iteration runs, compiled once for each shape of structure and size of batch; None: on this processor,
    uncompiled. `options`: step lengths and batch sizes.
    **Returns:** answers, in the order of the problems.
    """
    frame = frame_of(structure)
    count = len(numbers)
    iterations = options.iterations if iterations is None else iterations
    empty = np.any(numbers.lower > numbers.upper, axis=1)
    answers = BatchResult.none(numbers.lower, np.zeros((count, len(structure.target))))
    answers.status[:] = np.where(empty, SolveStatus.infeasible, SolveStatus.unresolved)
    limits = (np.broadcast_to(np.asarray(x, float), (count,)) for x in (np.inf if cutoff is None else cutoff, loose))
    with np.errstate(all="ignore"):
        given = problem_data(structure, numbers, frame, *limits)
        first = 0.5 * given.width if start is None else columns(start - numbers.lower, frame.variables)
        work = _worked if device is None else partial(device_loop.solve_on_device, device)
        for done in work(frame, given, first, np.flatnonzero(~empty), tolerance, iterations, options):
            at, alive = done.number, given.there[: len(frame.groups), done.number]
            answers.y[at[:, None], frame.variables] += done.y.T
            answers.multipliers[at[:, None], frame.groups] = (alive * done.multiplier).T
            answers.bound[at] = done.bound + numbers.lower[at] @ structure.objective
            answers.status[at] = np.where(done.status == RUNNING, SolveStatus.unresolved, done.status)
            answers.iterations[at], answers.residual[at] = done.iteration, done.residual
    none = answers.status == SolveStatus.infeasible
    answers.y[:] = np.clip(answers.y, numbers.lower, np.maximum(numbers.lower, numbers.upper))
    answers.objective[:] = np.where(none, np.inf, answers.y @ structure.objective)
    answers.bound[none] = np.inf
    return answers


def _worked(
    frame: SparsityFrame,
    given: ProblemData,
    first: np.ndarray,
    waiting: np.ndarray,
    tolerance: float,
    iterations: int,
    options: InteriorPointOptions,
) -> Iterator[FinishedProblems]:
    """Programmes as they are done with, on this processor: those that need no sharp answer begin in single precision.

    **Arguments:** `first`: points to begin at; `waiting`: numbers of those to work on.
    """
    rough = given.loose[waiting] > 0
    if rough.any():
        yield from _worked_roughly(frame, given, first, waiting[rough], tolerance, iterations, options)
    waiting = waiting[~rough]
    begun = lambda place: initial_iterate(
        frame, _taken(given, waiting[place]), first.take(waiting[place], axis=1), options
    )
    for done in _in_slots(frame, given, waiting, begun, tolerance, options.slots, iterations, options):
        yield finish(*done)


def _worked_roughly(
    frame: SparsityFrame,
    given: ProblemData,
    first: np.ndarray,
    waiting: np.ndarray,
    tolerance: float,
    iterations: int,
    options: InteriorPointOptions,
) -> Iterator[FinishedProblems]:
    """The same of programmes that begin in single precision; what is left then goes on in double from where it is."""
    # Nothing is solved to a negative tolerance: what ends in single precision is what cannot beat its cutoff.
    single = _in(np.float32, given)._replace(loose=np.full(given.loose.shape, -1.0, np.float32))
    start = first.astype(np.float32)
    begun = lambda place: initial_iterate(
        frame.single, _taken(single, waiting[place]), start.take(waiting[place], axis=1), options
    )
    numbers, states = [], []
    for number, status, state in _in_slots(
        frame.single,
        single,
        waiting,
        begun,
        -1.0,
        2 * options.slots,
        min(options.single_precision_iterations, iterations),
        options,
    ):
        over = status != RUNNING
        yield finish(number[over], status[over], _taken(state, np.flatnonzero(over)))
        left = _in(float, _taken(state, np.flatnonzero(~over)))
        numbers.append(number[~over])
        states.append(left._replace(damping=0.0 * left.damping, best_bound=np.full_like(left.best_bound, -np.inf)))
    waiting, state = np.concatenate(numbers), _joined(*states)
    kept = lambda place: _taken(state, place)
    for done in _in_slots(frame, given, waiting, kept, tolerance, options.slots, iterations, options):
        yield finish(*done)


def _in_slots(
    frame: SparsityFrame, given: ProblemData, waiting: np.ndarray, begun: Callable[[np.ndarray], Iterate], tolerance: float,
    slots: int, iterations: int, options: InteriorPointOptions,
) -> Iterator[tuple[np.ndarray, np.ndarray, Iterate]]:  # fmt: skip
    """Programmes that are done with, or after so many iterations: numbers, status and states.

    **Arguments:** `waiting`: numbers of those to work on; `begun`: states of some of them, by their places there.
    """
    place = np.arange(len(waiting))
    which = place[:0]
    here, state = _taken(given, waiting[which]), begun(which)
    while which.size or place.size:
        room = slots - which.size
        if place.size and room * options.refill >= slots:
            more, place = place[:room], place[room:]
            here, state = _joined(here, _taken(given, waiting[more])), _joined(state, begun(more))
            which = np.concatenate([which, more])
        now, state = residuals(frame, here, state, tolerance)
        done = (which != _DONE) & ((now.status != RUNNING) | (state.iteration >= iterations))
        if done.any():
            at = np.flatnonzero(done)
            yield waiting[which[at]], now.status[at], _taken(state, at)
            which[at] = _DONE
        left = np.flatnonzero(which != _DONE)
        if (which.size - left.size) * options.refill >= which.size:
            here, state, now, which = _taken(here, left), _taken(state, left), _taken(now, left), which[left]
        if which.size:
            state = newton_step(frame, here, state, now, tolerance, options)


def _in(precision: type, columns: Columns) -> Columns:
    """The same in another precision; integers as they are."""
    return type(columns)(*(each.astype(precision) if each.dtype.kind == "f" else each for each in columns))


def _taken(columns: Columns, which: np.ndarray) -> Columns:
    return type(columns)(*(each.take(which, axis=-1) for each in columns))


def _joined(*columns: Columns) -> Columns:
    return type(columns[0])(*(np.concatenate(each, axis=-1) for each in zip(*columns, strict=True)))
