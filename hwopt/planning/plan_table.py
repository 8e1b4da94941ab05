"""Tables of plans of a fixed cluster: evaluation in blocks, ranking, and search results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.declared import Result
from hwopt.design.metrics import Metric
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import AnyCluster
from hwopt.model.estimate import estimate
from hwopt.trace.cache import TracedFunction, cached_trace

MOST_PLANS = 20_000_000
"""Maximum number of plans that are enumerated: 2 GB of memory, half a minute."""

BLOCK = 4096
"""Number of plans evaluated at a time."""

REMEMBERED = 8
"""Number of clusters whose traced model is cached."""

_BITS = 40  # objectives that agree to this number of bits are equal; the rest is rounding


@dataclass(frozen=True)
class PlanTable:
    """Table of plans as columns of integers. Of plans that differ only in sharding, the least sharded comes first.

    **Arguments:**

    - `columns`: by name.
    - `keys`: function that returns the columns that distinguish plans. Plans that agree in them differ only in sharding
      or batch.
    - `build`: function from columns to plans, shape (plan,) per leaf.
    - `block`: number of plans evaluated at a time, small enough for intermediate results to stay in the CPU cache.
    """

    columns: Mapping[str, np.ndarray]
    keys: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]
    build: Callable[[Mapping[str, np.ndarray]], Any]
    block: int = BLOCK

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def count(self) -> int:
        """Number of plans."""
        return len(next(iter(self.columns.values())))

    def _rows(self, index: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[index] for name, column in self.columns.items()}

    def at(self, index: np.ndarray) -> Any:
        """Return plans by index."""
        return self.build(self._rows(index))

    def which(self, allowed: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Return the indices of the plans that are allowed.

        **Arguments:** `allowed`: function from plans, shape (plan,) per leaf, to whether each is allowed.

        **Raises:** `UserError` where none is.
        """
        parts = [
            first + np.flatnonzero(allowed(self.at(np.arange(first, min(first + self.block, self.count)))))
            for first in range(0, self.count, self.block)
        ]
        if not len(index := np.concatenate(parts)):
            raise UserError(f"none of {self.count:,} plans qualifies")
        return index

    def having(self, stated: Mapping[str, float]) -> "PlanTable":
        """Return the table of the plans with some values, by column.

        **Raises:** `UserError` for an unknown column, and for a value that no plan with the values before it has.
        """
        left = np.arange(self.count)
        for name, value in stated.items():
            if name not in self.columns:
                raise UserError(f"'{name}' is not the same for all plans of a search: {suggest(name, self.columns)}")
            column = self.columns[name][left]
            if not len(left := left[column == value]):
                near = sorted(np.unique(column), key=lambda x: abs(np.log(x / value)) if value else x)[:2]
                words = " or ".join(f"{name}={x:g}" for x in sorted(near))
                raise UserError(f"plan: {name}={value:g}: no plan of this cluster has it; possible: {words}")
        return self.only(left)

    def only(self, index: np.ndarray) -> "PlanTable":
        """Return the table of some plans by index."""
        return replace(self, columns=self._rows(index))

    def distinct(self, ranked: np.ndarray, wanted: int) -> np.ndarray:
        """Return the first `wanted` plans that differ in some key.

        **Arguments:** `ranked`: plan indices, best first.

        **Returns:** their indices.
        """
        chosen = ranked[:0]
        for first in range(0, len(ranked), self.block):
            some = np.concatenate([chosen, ranked[first : first + self.block]])
            keys = np.stack(self.keys(self._rows(some)), axis=1)
            chosen = some[np.sort(np.unique(keys, axis=0, return_index=True)[1])][:wanted]
            if len(chosen) == wanted:
                break
        return chosen


class PlanCandidate(NamedTuple):
    """Plan with its report from the exact model."""

    plan: Any  # of the workload's type
    report: Any
    objective: float


@dataclass(frozen=True)
class PlanSearch(Result):
    """Result of a plan search over a lattice. If no plan fits, `best` is the one closest to fitting."""

    objective: Metric
    best: PlanCandidate
    alternatives: list[PlanCandidate]  # the next best that fit, each with other degrees
    examined: int  # number of plans of the lattice
    fitting: int
    scope: str
    lower_bound: float | None  # of the objective over the lattice: no plan is better than the best one
    limits: Mapping[str, float] = field(default_factory=dict)  # upper limits on metrics of a service
    missed: Mapping[str, float] = field(default_factory=dict)  # limits that the best plan misses: relative excess

    @property
    def feasible(self) -> bool:
        """Whether any plan fits."""
        return self.fitting > 0

    @property
    def gap(self) -> float | None:
        """Optimality gap: best objective minus lower bound, relative to the bound.

        It is 0 after an exhaustive search, and None if no plan fits.
        """
        if self.lower_bound is None or self.best.objective == self.lower_bound:
            return None if self.lower_bound is None else 0.0
        return self.best.objective / self.lower_bound - 1.0


@dataclass(frozen=True)
class PrefillDecodeSplit:
    """Best plan of one way to share the chips between prefill and decode."""

    best: PlanCandidate
    fits: bool
    missed: Mapping[str, float]  # limits that it misses, with the excess as a fraction
    way: str = ""  # name of its machine, if there are several

    @property
    def feasible(self) -> bool:
        """Whether the plan fits in memory and satisfies the limits."""
        return self.fits and not self.missed

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Sort key, smaller is better: whether it fits, then by how much it misses limits, then the objective."""
        return not self.fits, max(self.missed.values(), default=0.0), self.best.objective


def reports(workload: Any, cluster: AnyCluster, plans: Any) -> Any:
    """Return complete reports of plans as NumPy arrays: leaves (plan, ...)."""
    return _modelled(workload, cluster, plans, _whole)


def memory_margins(workload: Any, cluster: AnyCluster, plans: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return feasibility and memory margins of plans, including the memory pool, without evaluating the rest of the model."""
    return _modelled(workload, cluster, plans, _room)


def _whole(report: Any) -> Any:
    return report


def _room(report: Any) -> Any:
    memory, pool = report.margins.memory, getattr(report.margins, "pool", None)
    return report.feasible, memory if pool is None else jnp.minimum(memory, pool)


def _modelled(workload: Any, cluster: AnyCluster, plans: Any, part: Callable[[Any], Any]) -> Any:
    """Return a part of the reports of plans of one cluster."""
    known = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves((workload, cluster))]
    columns = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(plans)]
    shapes = (*(leaf.shape for leaf in known), *[()] * len(columns))
    numbers = np.concatenate([leaf.ravel() for leaf in known]).tobytes()
    model = _of_cluster(jax.tree.structure((workload, cluster, plans)), shapes, numbers, part)
    return model(columns, len(columns[0]))


@lru_cache(maxsize=REMEMBERED)
def _of_cluster(tree: Any, shapes: tuple, numbers: bytes, part: Callable[[Any], Any]) -> TracedFunction:
    """Return the traced model of one cluster's plans, with everything that does not depend on the plan precomputed."""
    return traced_model(tree, shapes).only(part).known(np.frombuffer(numbers).tolist())


@lru_cache(maxsize=REMEMBERED)
def traced_model(tree: Any, shapes: tuple) -> TracedFunction:
    """Return the model traced for inputs of given tree and shapes; the process keeps the last few."""
    return cached_trace(
        estimate, *jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(each, np.float64) for each in shapes])
    )


def in_blocks(
    function: Callable, plans: PlanTable, index: np.ndarray, workload: Any, cluster: AnyCluster
) -> list[np.ndarray]:
    """Apply a function to plans by index, block by block, and return its results, shape (plan,) each.

    **Arguments:** `function`: of (workload, cluster, plans); `index`: at least one plan.
    """
    parts = []
    for first in range(0, len(index), plans.block):
        some = plans.at(index[first : first + plans.block])
        parts.append([np.asarray(part) for part in function(workload, cluster, some)])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def without_rounding(values: np.ndarray) -> np.ndarray:
    """Return values rounded to `_BITS` bits, so that rounding errors do not decide their order."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS)
