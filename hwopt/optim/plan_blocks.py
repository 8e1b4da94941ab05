"""What searches over plans share: evaluating a lattice's rows in blocks, ranking them, and what an answer holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array

from hwopt.design.metrics import Metric, metric
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.report import Report
from hwopt.model.serving.report import ServingReport
from hwopt.optim.quick_jit import quick_jit

BLOCK = 16384
"""Plans evaluated at a time; the last block is padded, so that one compiled function serves all."""

ALTERNATIVES = 5

_BITS = 40  # objectives equal to so many bits are one: the rest is rounding


class Rows(Protocol):
    """Whole-number plans, one an index."""

    @property
    def count(self) -> int:
        """How many plans there are."""
        ...

    def at(self, index: np.ndarray, workload: Any, held: Mapping[str, float] | None = None, /) -> Any:
        """Plans by index, shape (plan,) a leaf."""
        ...


class Candidate(NamedTuple):
    """A plan and what the exact model says about it."""

    plan: Any  # a Plan; or a Disaggregated of a service
    report: Any  # a Report or a ServingReport
    objective: float


class PlanSearch(NamedTuple):
    """The best plan of a cluster over a lattice. Where none fits, `best` is the one closest to fitting."""

    objective: Metric
    best: Candidate
    alternatives: list[Candidate]  # the next best that fit, other degrees each
    examined: int  # plans of the lattice
    fitting: int
    scope: str
    lower_bound: float | None  # of the objective over the lattice: no plan of it is better than the best one
    limits: Mapping[str, float] = {}  # metrics of a service that may not be more
    missed: Mapping[str, float] = {}  # by how much the best plan misses limits, as a fraction of each

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


def _mapped(workload: Any, cluster: Cluster, plans: Any) -> Any:
    return jax.vmap(lambda plan: estimate(workload, cluster, plan))(plans)


@quick_jit
def room(workload: Any, cluster: Cluster, plans: Any) -> tuple[Array, Array]:
    """Feasibility and memory margins of plans; the compiler drops all else of the model, step time above all."""
    report = _mapped(workload, cluster, plans)
    return report.feasible, report.margins.memory


@quick_jit
def reports(workload: Any, cluster: Cluster, plans: Any) -> Any:
    """Reports of plans, whole: one program serves every objective and the answer's own report."""
    return _mapped(workload, cluster, plans)


def in_blocks(
    function: Callable,
    rows: Rows,
    index: np.ndarray,
    workload: Any,
    cluster: Cluster,
    held: Mapping[str, float] | None = None,
    block: int = BLOCK,
) -> list[np.ndarray]:
    """A function's answers for plans by index, each of shape (plan,).

    **Arguments:** `function` of (workload, cluster, plans); `index` of one plan or more; `held` as `Rows.at` takes it.
    """
    parts = []
    for first in range(0, len(index), block):
        some = index[np.minimum(np.arange(first, first + block), len(index) - 1)]
        parts.append([np.asarray(part) for part in function(workload, cluster, rows.at(some, workload, held))])
    return [np.concatenate(each)[: len(index)] for each in zip(*parts, strict=True)]


def candidates(
    goal: Metric,
    rows: Rows,
    index: np.ndarray,
    workload: Any,
    cluster: Cluster,
    held: Mapping[str, float] | None = None,
    block: int = BLOCK,
) -> list[Candidate]:
    """Plans by index with their whole reports, as NumPy. **Arguments:** as `in_blocks`, no more plans than a block."""
    plans = rows.at(index[np.minimum(np.arange(block), len(index) - 1)], workload, held)
    found = jax.tree.map(np.asarray, reports(workload, cluster, plans))
    each = [jax.tree.map(lambda leaf, place=place: leaf[place], (plans, found)) for place in range(len(index))]
    return [Candidate(plan, report, float(goal.value(report))) for plan, report in each]


def distinct(keys: Sequence[np.ndarray], ranked: np.ndarray, wanted: int) -> np.ndarray:
    """The first `wanted` of ranked plans that differ in some key.

    **Arguments:** `keys`: columns of the lattice; `ranked` indices into them, best first. **Returns:** indices.
    """
    found: dict[tuple[int, ...], int] = {}
    for row in ranked:
        found.setdefault(tuple(int(column[row]) for column in keys), int(row))
        if len(found) == wanted:
            break
    return np.asarray(list(found.values()))


def rounded(values: np.ndarray) -> np.ndarray:
    """Values without the bits that rounding orders."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS)


def metric_of(name: str, kind: type[Report] | type[ServingReport]) -> Metric:
    """A metric by name that a kind of report has.

    **Raises:** `UserError` for an unknown name, and for a metric of the other kind of work.
    """
    goal = metric(name)
    try:
        goal.value(SimpleNamespace(**dict.fromkeys(kind.__dataclass_fields__, 1.0)))
    except AttributeError:
        work = "a training run has" if kind is Report else "a service has"
        raise UserError(f"metric '{name}' is none that {work}") from None
    return goal


def check_alternatives(alternatives: int, block: int = BLOCK) -> None:
    """Refuses a number of alternatives that a block does not hold."""
    if not 0 <= alternatives < block:
        raise UserError(f"{alternatives} alternatives: must be between 0 and {block - 1:,}")
