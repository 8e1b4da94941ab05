"""Plans of a fixed cluster as columns: evaluated in blocks, ranked, and what an answer holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.design.metrics import Metric
from hwopt.hardware.cluster import AnyCluster
from hwopt.model.estimate import estimate
from hwopt.trace.cache import TracedFunction, cached_trace

MOST_PLANS = 20_000_000
"""Plans that are enumerated at most: 2 GB of memory, half a minute."""

BLOCK = 4096
"""Plans evaluated at a time."""

REMEMBERED = 8
"""Clusters whose model is remembered."""

_BITS = 40  # objectives equal to so many bits are one: the rest is rounding


@dataclass(frozen=True)
class PlanTable:
    """Plans as columns of integers; the plainest of those that differ in sharding alone comes first.

    **Arguments:** `columns` by name; `keys` of columns: those in which two plans differ that are other plans, not the same with
    another sharding or batch; `build` makes plans, shape (plan,) a leaf, of columns; `block`: how many are evaluated at a time,
    few enough that what is computed on the way stays in the cache.
    """

    columns: Mapping[str, np.ndarray]
    keys: Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]
    build: Callable[[Mapping[str, np.ndarray]], Any]
    block: int = BLOCK

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def count(self) -> int:
        """How many plans there are."""
        return len(next(iter(self.columns.values())))

    def _rows(self, index: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[index] for name, column in self.columns.items()}

    def at(self, index: np.ndarray) -> Any:
        """Plans by index."""
        return self.build(self._rows(index))

    def distinct(self, ranked: np.ndarray, wanted: int) -> np.ndarray:
        """The first `wanted` that differ in some key, of plans by index, best first. **Returns:** indices."""
        chosen = ranked[:0]
        for first in range(0, len(ranked), self.block):
            some = np.concatenate([chosen, ranked[first : first + self.block]])
            keys = np.stack(self.keys(self._rows(some)), axis=1)
            chosen = some[np.sort(np.unique(keys, axis=0, return_index=True)[1])][:wanted]
            if len(chosen) == wanted:
                break
        return chosen


class PlanCandidate(NamedTuple):
    """A plan and what the exact model says about it."""

    plan: Any  # of the workload's kind
    report: Any
    objective: float


@dataclass(frozen=True)
class PlanSearch:
    """The best plan of a cluster over a lattice. Where none fits, `best` is the one closest to fitting."""

    objective: Metric
    best: PlanCandidate
    alternatives: list[PlanCandidate]  # the next best that fit, other degrees each
    examined: int  # plans of the lattice
    fitting: int
    scope: str
    lower_bound: float | None  # of the objective over the lattice: no plan of it is better than the best one
    limits: Mapping[str, float] = field(default_factory=dict)  # metrics of a service that may not be more
    missed: Mapping[str, float] = field(default_factory=dict)  # limits that the best plan misses, by a fraction of each

    @property
    def feasible(self) -> bool:
        """Whether any plan fits."""
        return self.fitting > 0

    @property
    def gap(self) -> float | None:
        """Best objective less the lower bound, over the bound: 0 by exhaustion; None where no plan fits."""
        if self.lower_bound is None or self.best.objective == self.lower_bound:
            return None if self.lower_bound is None else 0.0
        return self.best.objective / self.lower_bound - 1.0


@dataclass(frozen=True)
class PrefillDecodeSplit:
    """The best plan of a way to share the chips between prompts and answers."""

    best: PlanCandidate
    fits: bool
    missed: Mapping[str, float]  # limits that it misses, by a fraction of each
    way: str = ""  # by the name of its machine, where there are several

    @property
    def feasible(self) -> bool:
        """Whether it fits and satisfies the limits."""
        return self.fits and not self.missed

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The less the better: what fits, what misses limits by less, what is better by the objective."""
        return not self.fits, max(self.missed.values(), default=0.0), self.best.objective


def reports(workload: Any, cluster: AnyCluster, plans: Any) -> Any:
    """Reports of plans, whole, in NumPy: leaves (plan, ...)."""
    return _modelled(workload, cluster, plans, _whole)


def memory_margins(workload: Any, cluster: AnyCluster, plans: Any) -> tuple[np.ndarray, np.ndarray]:
    """Feasibility of plans and margins of memory, the pool's too, without all else of the model, step time above all."""
    return _modelled(workload, cluster, plans, _room)


def _whole(report: Any) -> Any:
    return report


def _room(report: Any) -> Any:
    memory, pool = report.margins.memory, getattr(report.margins, "pool", None)
    return report.feasible, memory if pool is None else jnp.minimum(memory, pool)


def _modelled(workload: Any, cluster: AnyCluster, plans: Any, part: Callable[[Any], Any]) -> Any:
    """A part of the reports of plans of one cluster."""
    known = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves((workload, cluster))]
    columns = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(plans)]
    shapes = (*(leaf.shape for leaf in known), *[()] * len(columns))
    numbers = np.concatenate([leaf.ravel() for leaf in known]).tobytes()
    model = _of_cluster(jax.tree.structure((workload, cluster, plans)), shapes, numbers, part)
    return model(columns, len(columns[0]))


@lru_cache(maxsize=REMEMBERED)
def _of_cluster(tree: Any, shapes: tuple, numbers: bytes, part: Callable[[Any], Any]) -> TracedFunction:
    """The model of plans of one cluster: what no plan changes is worked out."""
    return traced_model(tree, shapes).only(part).known(np.frombuffer(numbers).tolist())


@lru_cache(maxsize=REMEMBERED)
def traced_model(tree: Any, shapes: tuple) -> TracedFunction:
    """The model of inputs of one form, of the last few of this process."""
    return cached_trace(
        estimate, *jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(each, np.float64) for each in shapes])
    )


def in_blocks(
    function: Callable, plans: PlanTable, index: np.ndarray, workload: Any, cluster: AnyCluster
) -> list[np.ndarray]:
    """A function's answers for plans by index, each of shape (plan,).

    **Arguments:** `function` of (workload, cluster, plans); `index` of one plan or more.
    """
    parts = []
    for first in range(0, len(index), plans.block):
        some = plans.at(index[first : first + plans.block])
        parts.append([np.asarray(part) for part in function(workload, cluster, some)])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def candidates(
    goal: Metric, plans: PlanTable, index: np.ndarray, workload: Any, cluster: AnyCluster
) -> list[PlanCandidate]:
    """Plans by index with their whole reports, as NumPy; no more than a block."""
    some = plans.at(index)
    whole = reports(workload, cluster, some)
    each = [jax.tree.map(lambda leaf, place=place: leaf[place], (some, whole)) for place in range(len(index))]
    return [PlanCandidate(plan, report, float(goal.value(report))) for plan, report in each]


def without_rounding(values: np.ndarray) -> np.ndarray:
    """Values without the bits that rounding orders."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS)
