"""In-process cache of sweep programs: tracing and compiling one takes longer than most sweeps."""

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
"""Maximum number of cached programs, evaluators and search results."""


@dataclass(frozen=True)
class _ProgramKey:
    """Cache key that also carries the function that creates a missing value."""

    decided: Hashable
    make: Callable[[], Any] = field(compare=False)


@lru_cache(maxsize=MOST)
def _kept(same: _ProgramKey) -> Any:
    return same.make()


def recent_programs(decided: Hashable, make: Callable[[], T]) -> T:
    """Return the cached value of an equal key, otherwise create it.

    **Arguments:** `decided`: the key, everything that determines the value; `make`: creates the value.
    """
    return _kept(_ProgramKey(decided, make))


def forget() -> None:
    """Clear the cache of programs, evaluators and search results, so that benchmarks can measure a cold start."""
    _kept.cache_clear()


def program_of(program: SweepProgram, dtype: str) -> SweepProgram:
    """Return the cached sweep program equal to `program` for this `dtype`, already traced, or `program` itself."""
    return recent_programs((dtype, decided(program)), lambda: program)


def evaluator_of(
    program: SweepProgram,
    sampler: Sampler,
    tile: int,
    dtype: str,
    elasticities: VariantElasticities | None = None,
    devices: tuple[Any, ...] = (),
) -> Evaluator:
    """Return an evaluator that reuses the compiled program of an equal one, if cached. **Arguments:** see `Evaluator`."""

    def make() -> Evaluator:
        return Evaluator(program, sampler, tile, dtype, elasticities, devices)

    if isinstance(sampler, DesignTable):  # not cached: it would keep its table, which may be large, in memory
        return make()
    inputs = None if elasticities is None else tuple(getattr(each, "name", each) for each in elasticities.inputs)
    own = decided(program), inputs, type(sampler), sampler.names, tile, dtype, devices
    return recent_programs(own, make).at(sampler)


def decided(program: SweepProgram) -> Hashable:
    """Return the cache key of a program: structure compared by equality, functions by identity, numbers bit by bit."""
    problem = program.problem
    leaves, tree = jax.tree.flatten(problem.template)
    numbers = tuple((np.shape(leaf), np.asarray(leaf).dtype.str, np.asarray(leaf).tobytes()) for leaf in leaves)
    asked = problem.variables, problem.objective, problem.budgets
    return tree, numbers, asked, program.metrics, program.pareto, program.numbered
