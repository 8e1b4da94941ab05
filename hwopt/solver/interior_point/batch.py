"""Batch solver for convex programs of one structure: Newton's method on slots that are refilled from a pool.

Exponents, Jacobians and Newton matrices are sparse, with the same pattern in all programs of a structure. On the CPU,
sparse matrices multiply columns of numbers, and all programs share one symbolic Cholesky factorization. NumPy and SciPy
do this without tracing or compiling, so a new structure costs milliseconds. A single thread is used: sixteen took two and
a half times as long.

If a rough solution is enough, the first iterations run in single precision. They prove nothing: bounds are those of
`hwopt.solver.gp.certificate` at the resulting points and multipliers. An accelerator runs the same iteration compiled,
always in double precision (`hwopt.solver.interior_point.device_loop`). The result of a program does not depend on the
others in its batch.
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
    """Solve all programs of a batch.

    **Arguments:**

    - `structure`, `numbers`: the programs.
    - `cutoff`: of each problem, or one for all. A problem whose optimum is proved to exceed it is dropped.
    - `start`: starting points (problem, variable); the center of the variable bounds if None.
    - `tolerance`: largest gap between objective and bound, and largest violation, of a solved problem.
    - `loose`: the same limits, per problem or one for all, for a problem whose optimum is below the cutoff where only
      this fact matters. Its `bound` is accurate to single precision.
    - `iterations`: number of iterations after which a problem is given up as unresolved; None for the limit of the
      options.
    - `device`: accelerator to use, compiled once per shape of structure and batch size; None for this CPU, uncompiled.
    - `options`: step lengths and batch sizes.

    **Returns:** results, in the order of the problems.
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
    """Solve programs on the CPU and yield them as they finish. Programs with a loose tolerance start in single precision.

    **Arguments:** `first`: starting points (variable, problem); `waiting`: indices of the programs to solve.
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
    """Solve programs that start in single precision; unfinished ones continue in double precision from their last iterate."""
    # A negative tolerance is never reached, so in single precision only programs that cannot beat their cutoff terminate.
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
    """Iterate programs in slots and yield those that terminate or reach the iteration limit: indices, status and states.

    **Arguments:** `waiting`: indices of the programs to solve; `begun`: returns initial states for positions in
    `waiting`.
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
    """Convert floating arrays to another precision; integers are unchanged."""
    return type(columns)(*(each.astype(precision) if each.dtype.kind == "f" else each for each in columns))


def _taken(columns: Columns, which: np.ndarray) -> Columns:
    return type(columns)(*(each.take(which, axis=-1) for each in columns))


def _joined(*columns: Columns) -> Columns:
    return type(columns[0])(*(np.concatenate(each, axis=-1) for each in zip(*columns, strict=True)))
