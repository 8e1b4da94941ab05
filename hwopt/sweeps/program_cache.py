"""Programs of questions that this process has swept before: to trace and compile one takes longer than most sweeps."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import jax
import numpy as np

from hwopt.sweeps.evaluator import Evaluator
from hwopt.sweeps.program import SweepProgram, VariantElasticities
from hwopt.sweeps.samplers import DesignTable, Sampler

T = TypeVar("T")

MOST = 16
"""Programs, evaluators and searched designs that are kept."""


@dataclass(frozen=True)
class _ProgramKey:
    """Something that is made anew only where nothing equal is kept."""

    decided: Hashable
    make: Callable[[], Any] = field(compare=False)


@lru_cache(maxsize=MOST)
def _kept(same: _ProgramKey) -> Any:
    return same.make()


def recent_programs(decided: Hashable, make: Callable[[], T]) -> T:
    """What was made before of something equal, else made now. **Arguments:** `decided`: all that makes it what it is."""
    return _kept(_ProgramKey(decided, make))


def forget() -> None:
    """Keep nothing of what was swept: benchmarks measure how long it takes to begin."""
    _kept.cache_clear()


def program_of(program: SweepProgram, dtype: str) -> SweepProgram:
    """A program of sweeps in `dtype`, or an equal one whose parts are known already."""
    return recent_programs((dtype, decided(program)), lambda: program)


def evaluator_of(
    program: SweepProgram,
    sampler: Sampler,
    tile: int,
    dtype: str,
    elasticities: VariantElasticities | None = None,
    devices: tuple[Any, ...] = (),
) -> Evaluator:
    """An evaluator, with the compiled program of an equal one where there is one. **Arguments:** as of `Evaluator`."""

    def make() -> Evaluator:
        return Evaluator(program, sampler, tile, dtype, elasticities, devices)

    if isinstance(sampler, DesignTable):  # which would be kept too, and may be large
        return make()
    inputs = None if elasticities is None else tuple(getattr(each, "name", each) for each in elasticities.inputs)
    own = decided(program), inputs, type(sampler), sampler.names, tile, dtype, devices
    return recent_programs(own, make).at(sampler)


def decided(program: SweepProgram) -> Hashable:
    """All that makes a program what it is: structure by equality, functions by identity, numbers by their bits."""
    problem = program.problem
    leaves, tree = jax.tree.flatten(problem.template)
    numbers = tuple((np.shape(leaf), np.asarray(leaf).dtype.str, np.asarray(leaf).tobytes()) for leaf in leaves)
    asked = problem.variables, problem.objective, problem.budgets
    return tree, numbers, asked, program.metrics, program.pareto, program.numbered
