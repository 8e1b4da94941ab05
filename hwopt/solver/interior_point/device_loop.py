"""Interior-point solver for an accelerator: the same iteration, traced once, with a pool of slots that stays on the device.

Matrices that are sparse on the CPU are dense here. For the few hundred variables and terms of a typical program, float64
products of dense matrices are the most efficient operation of an accelerator. One loop runs until all programs are
solved. A slot whose program is finished stores the result and takes the next waiting program. Programs are independent,
so a result depends on no other program, except through the order of floating-point sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from hwopt.solver.gp.options import INTERIOR_POINT, AcceleratorOptions, InteriorPointOptions
from hwopt.solver.gp.program import ProgramStructure
from hwopt.solver.interior_point.newton import (
    RUNNING,
    FinishedProblems,
    Iterate,
    ProblemData,
    finish,
    initial_iterate,
    newton_step,
    residuals,
)
from hwopt.solver.interior_point.sparsity import STRUCTURES, SparsityFrame, frame_of

Device: TypeAlias = Any
"""Device of JAX. `Any`, because type checkers treat JAX's own name as a variable."""

COPIES = 4
"""Number of copies of each array that exist at the same time: an estimate, with `AcceleratorOptions.memory_share` as
safety margin.
"""


class DenseCholesky(eqx.Module):
    """Dense Cholesky factorization of Newton matrices, with entries numbered as in
    `hwopt.solver.interior_point.factorization`.
    """

    entry: jax.Array  # (variable, variable) index of each entry, symmetric; one past the last for zeros
    diagonal: jax.Array  # (variable,) indices of the diagonal entries

    def factor(self, matrix: jax.Array, diagonal: jax.Array) -> jax.Array:
        """Return factors (problem, variable, variable) of matrices (entry, problem); NaN for one that is not positive
        definite.
        """
        matrix = matrix.at[self.diagonal].set(diagonal, unique_indices=True)
        full = jnp.concatenate([matrix, jnp.zeros_like(matrix[:1])]).T[:, self.entry]
        return jnp.linalg.cholesky(full, symmetrize_input=False)

    def solve(self, factor: jax.Array, right: jax.Array) -> jax.Array:
        """Return the solutions (variable, problem) for right-hand sides (variable, problem)."""
        return cho_solve((factor, True), right.T[:, :, None])[:, :, 0].T


_DENSE = ("exponents", "by_variable", "sums", "to_target", "from_target", "squares", "slopes", "outer")
_TABLES = (
    *_DENSE,
    "group",
    "target",
    "straight",
    "objective",
    "of_targets",
    "slope_group",
    "left",
    "right",
    "roof",
    "factors",
)


class DeviceFrame(SparsityFrame):
    """Tables of a structure as dense matrices on a device.

    A traced argument, so that structures of equal shape share a compiled loop.

    **Arguments:**

    - `counts`: numbers of log-sum-exp groups and of their terms, static.
    - `tables`: arrays in the order of `_TABLES`; `factors` is a `DenseCholesky`.
    """

    xp = jnp

    def __init__(self, counts: tuple[int, int], tables: Iterable[Any]):
        self.soft, self.soft_terms = counts
        vars(self).update(zip(_TABLES, tables, strict=True))

    def largest(self, terms: Any) -> Any:
        """Return the largest term of each log-sum-exp group, as in `SparsityFrame.largest`."""
        groups = self.straight.shape[0]
        if not self.soft_terms:
            return jnp.zeros((groups, terms.shape[1]))
        of = self.group[: self.soft_terms]
        found = jax.ops.segment_max(terms[: self.soft_terms], of, groups, indices_are_sorted=True)
        return jnp.where(jnp.isneginf(found), 0.0, found)


jax.tree_util.register_pytree_node(
    DeviceFrame,
    lambda frame: ([getattr(frame, name) for name in _TABLES], (frame.soft, frame.soft_terms)),
    DeviceFrame,
)


def _put(frame: SparsityFrame, device: Device) -> DeviceFrame:
    """Copy the tables of a sparsity frame to a device."""
    entry = np.where(frame.factors.entry >= 0, frame.factors.entry, frame.factors.entry.T)
    tables = {name: getattr(frame, name) for name in _TABLES}
    tables |= {name: tables[name].toarray() for name in _DENSE}
    tables["factors"] = DenseCholesky(np.where(entry >= 0, entry, frame.factors.entries), frame.factors.diagonal)  # pyright: ignore[reportArgumentType]
    return jax.device_put(DeviceFrame((frame.soft, frame.soft_terms), tables.values()), device)


frame_on = lru_cache(maxsize=STRUCTURES)(_put)
"""Return the tables of a sparsity frame on a device; each is copied only once."""


def choose_device(
    structure: ProgramStructure, count: int, options: AcceleratorOptions = INTERIOR_POINT.accelerator
) -> Device | None:
    """Choose the device for `count` more programs of a structure; None is the CPU.

    An accelerator compiles each structure first, so it gets one only after `after_programs` programs have been solved on
    the CPU. Batches of fewer than `least_programs` also stay there, since the CPU finishes them sooner.
    """
    frame = frame_of(structure)
    before, frame.solved = frame.solved, frame.solved + count
    return _accelerator() if before >= options.after_programs and count >= options.least_programs else None


@cache
def _accelerator() -> Device | None:
    """Return JAX's first device if it supports float64 natively, else None; `JAX_PLATFORMS=cpu` leaves none."""
    found = jax.local_devices()[0]
    return found if found.platform in ("gpu", "cuda", "rocm") else None


def bytes_of_a_slot(frame: SparsityFrame) -> int:
    """Return the memory that one program in a slot needs: its columns, products of gradients, and the Newton matrix with
    its factor.
    """
    variables, groups, terms = len(frame.variables), len(frame.groups), len(frame.group)
    columns = terms + frame.factors.entries + len(frame.left) + len(frame.slope_group) + 4 * groups + 4 * variables
    return 8 * COPIES * (columns + variables**2)


def slots_for(
    frame: SparsityFrame, count: int, device: Device, options: AcceleratorOptions = INTERIOR_POINT.accelerator
) -> int:
    """Return the number of programs to iterate at the same time: a power of two, limited by their count and by device
    memory.
    """
    said = device.memory_stats() if device.platform != "cpu" else None
    free = options.fallback_bytes
    if said and "bytes_limit" in said:
        free = options.memory_share * (said["bytes_limit"] - said["bytes_in_use"])
    fit = max(1, int(free / bytes_of_a_slot(frame)))
    return min(options.slots, _filled(count, options), 1 << (fit.bit_length() - 1))


def _filled(count: int, options: AcceleratorOptions) -> int:
    return max(options.least_batch, 1 << (count - 1).bit_length())


def solve_on_device(
    device: Device,
    frame: SparsityFrame,
    given: ProblemData,
    first: np.ndarray,
    waiting: np.ndarray,
    tolerance: float,
    iterations: int,
    options: InteriorPointOptions = INTERIOR_POINT,
) -> Iterator[FinishedProblems]:
    """Solve all programs in one call on a device and yield their results at once.

    **Arguments:**

    - `device`: where to run.
    - `frame`: tables of the structure.
    - `given`: data of all programs, one column each.
    - `first`: starting points (variable, problem).
    - `waiting`: indices of the programs to solve.
    - `tolerance`, `iterations`, `options`: as in `batch.solve`.
    """
    if not len(waiting):
        return
    count = len(waiting)
    padded = np.concatenate([waiting, np.full(_filled(count, options.accelerator) - count, waiting[0])])
    with jax.enable_x64(True):
        tables = jax.device_put(
            (ProblemData(*(each.take(padded, axis=-1) for each in given)), first[:, padded]), device
        )
        slots = slots_for(frame, count, device, options.accelerator)
        done = jax.device_get(
            loop(frame_on(frame, device), *tables, count, tolerance, iterations, slots=slots, options=options)
        )
    yield FinishedProblems(*(each[..., :count] for each in done))._replace(number=waiting)


class _Slots(NamedTuple):
    """State of the loop: programs in slots, waiting programs, and results."""

    number: jax.Array  # (slot,) index of its program; `count` or more if empty
    ahead: jax.Array  # () index of the next waiting program
    given: ProblemData
    state: Iterate
    idle: jax.Array  # (slot,) to be refilled
    answers: FinishedProblems


@partial(jax.jit, static_argnames=("slots", "iterations", "options"))
def loop(
    frame: DeviceFrame,
    given: ProblemData,
    first: jax.Array,
    count: int,
    tolerance: float,
    iterations: int,
    slots: int,
    options: InteriorPointOptions = INTERIOR_POINT,
) -> FinishedProblems:
    """Solve all programs and return their results in the order of the programs.

    **Arguments:**

    - `frame`: tables of the structure.
    - `given`: data of the programs, padded to a power of two.
    - `first`: starting points (variable, problem).
    - `count`: number of programs without padding.
    - `tolerance`, `iterations`, `options`: as in `batch.solve`.
    - `slots`: number of programs that are iterated at the same time.
    """
    total = given.width.shape[1]

    def filled(now: _Slots) -> _Slots:
        """Refill the slots of finished programs with the next waiting ones."""
        places = jnp.cumsum(now.idle) - 1 + now.ahead
        number = jnp.where(now.idle, jnp.minimum(places, total), now.number)
        more = _columns(given, number)
        fresh = initial_iterate(frame, more, _columns(first, number), options)
        pick = lambda new, old: jnp.where(now.idle, new, old)
        return now._replace(
            number=number, ahead=jnp.minimum(now.ahead + now.idle.sum(), total), idle=jnp.zeros_like(now.idle),
            given=jax.tree.map(pick, more, now.given), state=jax.tree.map(pick, fresh, now.state),
        )  # fmt: skip

    def written(now: _Slots, status: jax.Array, done: jax.Array) -> _Slots:
        """Store the results of finished programs at their index; those of empty slots are discarded."""
        at = jnp.where(done & (now.number < count), now.number, total)
        put = lambda table, new: table.at[..., at].set(new, mode="drop")
        answers = jax.tree.map(put, now.answers, finish(now.number, status, now.state))
        return now._replace(answers=answers, idle=done, number=jnp.where(done, total, now.number))

    def once(now: _Slots) -> _Slots:
        now = jax.lax.cond(now.idle.any() & (now.ahead < count), filled, lambda same: same, now)
        verdict, state = residuals(frame, now.given, now.state, tolerance)
        done = (verdict.status != RUNNING) | (state.iteration >= iterations)
        now = written(now._replace(state=state), verdict.status, done)
        return now._replace(state=newton_step(frame, now.given, state, verdict, tolerance, options))

    number = jnp.arange(slots)
    mine = _columns(given, number)
    state = initial_iterate(frame, mine, _columns(first, number), options)
    empty = finish(number, jnp.full(slots, RUNNING), state)
    answers = jax.tree.map(lambda each: jnp.zeros((*each.shape[:-1], total), each.dtype), empty)
    begun = _Slots(number, jnp.asarray(slots), mine, state, jnp.zeros(slots, bool), answers)
    return jax.lax.while_loop(lambda now: (now.number < count).any() | (now.ahead < count), once, begun).answers


def _columns(tables: Any, which: jax.Array) -> Any:
    """Return the columns `which` of all arrays of a tree."""
    return jax.tree.map(lambda each: each.take(which, axis=-1, mode="clip"), tables)
