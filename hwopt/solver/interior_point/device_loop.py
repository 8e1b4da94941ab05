"""Convex programmes solved on an accelerator: the same iteration, traced once, with a pool of slots that never comes back here.

What is sparse on a processor is dense here: for the few hundred variables and terms of a programme of ours a product of full
matrices in float64 is what such a device does best. One loop runs until the last programme is done; a slot whose programme is
done writes the answer where it belongs and takes the next that waits. Programmes do not see one another, so that an answer
depends on no other, up to the order in which a device adds.
"""

from __future__ import annotations

from collections.abc import Iterator
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
"""A device of JAX's, whose own name is a variable to type checkers."""

COPIES = 4
"""Arrays of each kind that are alive at a time: a guess, with `AcceleratorOptions.memory_share` as its margin."""


class DenseCholesky(eqx.Module):
    """Factors of Newton matrices, full ones; entries are numbered as by `hwopt.solver.interior_point.factorization`."""

    entry: jax.Array  # (variable, variable) the number of each entry, symmetric; one past the last where there is none
    diagonal: jax.Array  # (variable,) numbers of the entries on the diagonal

    def factor(self, matrix: jax.Array, diagonal: jax.Array) -> jax.Array:
        """Factors (problem, variable, variable) of matrices (entry, problem); NaN where one is not positive definite."""
        matrix = matrix.at[self.diagonal].set(diagonal, unique_indices=True)
        full = jnp.concatenate([matrix, jnp.zeros_like(matrix[:1])]).T[:, self.entry]
        return jnp.linalg.cholesky(full, symmetrize_input=False)

    def solve(self, factor: jax.Array, right: jax.Array) -> jax.Array:
        """Solutions (variable, problem)."""
        return cho_solve((factor, True), right.T[:, :, None])[:, :, 0].T


class DeviceFrame(eqx.Module):
    """A frame with full matrices on a device; a traced argument, so that structures of one shape share a compiled loop."""

    xp = jnp  # not a field
    soft: int = eqx.field(static=True)
    soft_terms: int = eqx.field(static=True)
    roof: jax.Array
    group: jax.Array
    target: jax.Array
    straight: jax.Array
    objective: jax.Array
    exponents: jax.Array
    by_variable: jax.Array
    sums: jax.Array
    to_target: jax.Array
    from_target: jax.Array
    squares: jax.Array
    slopes: jax.Array
    of_targets: jax.Array
    slope_group: jax.Array
    left: jax.Array
    right: jax.Array
    outer: jax.Array
    factors: DenseCholesky

    def largest(self, terms: jax.Array) -> jax.Array:
        """As `SparsityFrame.largest`."""
        groups = self.straight.shape[0]
        if not self.soft_terms:
            return jnp.zeros((groups, terms.shape[1]))
        of = self.group[: self.soft_terms]
        found = jax.ops.segment_max(terms[: self.soft_terms], of, groups, indices_are_sorted=True)
        return jnp.where(jnp.isneginf(found), 0.0, found)


def _put(frame: SparsityFrame, device: Device) -> DeviceFrame:
    """A frame's tables on a device."""
    entry = np.where(frame.factors.entry >= 0, frame.factors.entry, frame.factors.entry.T)
    factors = DenseCholesky(np.where(entry >= 0, entry, frame.factors.entries), frame.factors.diagonal)  # pyright: ignore[reportArgumentType]
    dense = ("exponents", "by_variable", "sums", "to_target", "from_target", "squares", "slopes", "outer")
    as_they_are = ("group", "target", "straight", "objective", "of_targets", "slope_group", "left", "right")
    tables = {name: getattr(frame, name).toarray() for name in dense} | {
        name: getattr(frame, name) for name in as_they_are
    }
    made = DeviceFrame(frame.soft, frame.soft_terms, np.float64(frame.roof), factors=factors, **tables)  # pyright: ignore[reportArgumentType]
    return jax.device_put(made, device)


frame_on = lru_cache(maxsize=STRUCTURES)(_put)
"""The tables of a frame on a device, put there once."""


def choose_device(
    structure: ProgramStructure, count: int, options: AcceleratorOptions = INTERIOR_POINT.accelerator
) -> Device | None:
    """Where so many more programmes of a structure are best solved: None is the processor.

    An accelerator must first compile, so that it gets a structure only after `after_programs` of its programmes; a
    few programmes are done here before it has begun.
    """
    frame = frame_of(structure)
    before, frame.solved = frame.solved, frame.solved + count
    return _accelerator() if before >= options.after_programs and count >= options.least_programs else None


@cache
def _accelerator() -> Device | None:
    """The first of the devices that JAX finds where float64 is native; `JAX_PLATFORMS=cpu` leaves none."""
    found = jax.local_devices()[0]
    return found if found.platform in ("gpu", "cuda", "rocm") else None


def bytes_of_a_slot(frame: SparsityFrame) -> int:
    """Memory that a programme in work takes: its columns, products of slopes, and the Newton matrix with its factor."""
    variables, groups, terms = len(frame.variables), len(frame.groups), len(frame.group)
    columns = terms + frame.factors.entries + len(frame.left) + len(frame.slope_group) + 4 * groups + 4 * variables
    return 8 * COPIES * (columns + variables**2)


def slots_for(
    frame: SparsityFrame, count: int, device: Device, options: AcceleratorOptions = INTERIOR_POINT.accelerator
) -> int:
    """Programmes in work at a time: a power of two, no more than there are nor than memory allows."""
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
    """Programmes as they are done with: all at once. **Arguments:** as of the interior point's own."""
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
    """The programmes in work, those that wait, and what came out."""

    number: jax.Array  # (slot,) which programme; `count` or more: none
    ahead: jax.Array  # () the next that waits
    given: ProblemData
    state: Iterate
    idle: jax.Array  # (slot,) to be filled anew
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
    """What comes out of all programmes, in their order."""
    total = given.width.shape[1]

    def filled(now: _Slots) -> _Slots:
        """Slots whose programmes are done take the next that wait."""
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
        """Answers of programmes that are done, where they belong; those of an idle slot go nowhere."""
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
    """Columns of all arrays."""
    return jax.tree.map(lambda each: each.take(which, axis=-1, mode="clip"), tables)
