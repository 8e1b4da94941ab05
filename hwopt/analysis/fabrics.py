"""Cost of network jitter: a training run on several fabrics or rack densities, with ideal, typical and worst-case jitter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.declared import Result
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.report import TrainingReport, over_words
from hwopt.plan import Plan
from hwopt.planning.plan_search import best_plan
from hwopt.progress import counted
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.validation import check_kinds
from hwopt.workload.training import TrainingRun

MOST_CASES = 32
"""Maximum number of fabrics or densities; each takes a search of a second or two."""


TIED = 1e-3
"""Relative difference of two costs below which machines are ties (assumption, 5e-4 to 0.01: prices of links are rounder)."""


class JitterLevel(NamedTuple):
    """Jitter of the links outside the scale-up domain.

    **Arguments:**

    - `spread`: relative standard deviation of bandwidth.
    - `tail_s`: mean of the latency tail, s.

    **Units:** 1 (relative); s.
    """

    name: str
    spread: float
    tail_s: float


def jitter_levels(
    operation: str = "production", spread: float | None = None, tail_s: float | None = None
) -> tuple[JitterLevel, ...]:
    """Return ideal, typical and worst-case jitter.

    Typical values come from an entry of `operations`. Worst-case values default to the upper ends of that entry's ranges.
    """
    entry = catalog.record("operations", operation)
    usual = {key: entry.si(key, 0.0) for key in ("bandwidth_spread", "latency_tail")}
    worst = {key: _upper(entry, key) for key in usual}
    return (
        JitterLevel("even", 0.0, 0.0),
        JitterLevel("in production", usual["bandwidth_spread"], usual["latency_tail"]),
        JitterLevel(
            "least even",
            worst["bandwidth_spread"] if spread is None else spread,
            worst["latency_tail"] if tail_s is None else tail_s,
        ),
    )


def _upper(entry: Any, key: str) -> float:
    """Return the upper end of an input's range in SI units, or its value where it has no range."""
    stated = entry.quantities.get(key)
    if stated is None or stated.high is None or not stated.value:
        return entry.si(key, 0.0)
    return stated.si * stated.high / stated.value


class FabricVariant(NamedTuple):
    """A machine variant to compare. **Arguments:** a `name`; `cluster`: function from `spread` and `tail_s` to its cluster."""

    name: str
    cluster: Callable[[float, float], Cluster]


@dataclass(frozen=True)
class FabricCase:
    """One machine with one plan at all jitter levels.

    **Arguments:** `reports`: one for each level; `refused`: why there are none.
    """

    name: str
    cluster: Cluster | None
    plan: Plan | None
    reports: tuple[TrainingReport, ...] = ()
    refused: str = ""

    @property
    def feasible(self) -> bool:
        """Return whether the run is feasible at every jitter level."""
        return bool(self.reports) and all(bool(each.feasible) for each in self.reports)

    @property
    def reason(self) -> str:
        """Return why the run is infeasible; empty where it is feasible."""
        if self.feasible or not self.reports:
            return self.refused
        found: dict[str, float] = {}
        for each in self.reports:
            found = {name: max(over, found.get(name, 0.0)) for name, over in each.violations().items()} | found
        return "; ".join(over_words(name, over) for name, over in found.items())

    @property
    def costs_usd(self) -> list[float]:
        """Return the cost of the run at each jitter level."""
        return [float(each.run_cost_usd) for each in self.reports]

    @property
    def dearer(self) -> list[float]:
        """Return the relative cost increase of the run at each level over ideal links."""
        return [cost / self.costs_usd[0] - 1.0 for cost in self.costs_usd]

    @property
    def worth_usd_per_chip(self) -> list[float]:
        """Return the break-even price of eliminating jitter, in USD per chip, for each level: `(C_level / C_even - 1) K / N`.

        K is the capital cost and N the number of chips. The run pays for capital by time, so that its cost is in proportion to
        capital. The result is zero for a rented machine.
        """
        assert self.cluster is not None
        share = float(self.reports[0].capex_usd) / float(self.cluster.chips)
        return [more * share for more in self.dearer]


@dataclass(frozen=True)
class Fabrics(Result):
    """Comparison of machines under jitter.

    **Arguments:**

    - `run`: the training run.
    - `levels`: jitter levels.
    - `cases`: one result for each machine.
    - `held`: whether the plan was given rather than searched.
    """

    rows = "cases"

    run: TrainingRun
    levels: tuple[JitterLevel, ...]
    cases: tuple[FabricCase, ...]
    held: bool

    @property
    def trained(self) -> list[FabricCase]:
        """Return the feasible cases, the cheapest with typical jitter first; of equal ones that with the least capital."""
        known = [each for each in self.cases if each.feasible]
        return sorted(known, key=lambda each: (float(f"{each.costs_usd[1]:.7g}"), float(each.reports[0].capex_usd)))

    @property
    def ties(self) -> list[FabricCase]:
        """Return the cases that cost the same as the cheapest with typical jitter, within the share `TIED`."""
        return [each for each in self.trained[1:] if each.costs_usd[1] <= (1.0 + TIED) * self.trained[0].costs_usd[1]]

    def cheapest(self, level: int) -> FabricCase:
        """Return the feasible case with the lowest cost at a jitter level."""
        return min(self.trained, key=lambda each: each.costs_usd[level])


def fabrics(
    run: TrainingRun,
    machines: Sequence[FabricVariant],
    uneven: Sequence[JitterLevel] | None = None,
    plan: Callable[[Cluster], Plan] | None = None,
    common: Mapping[str, float] | None = None,
) -> Fabrics:
    """Compute cost and time of a run on several machines, with ideal, typical and worst-case jitter.

    Each machine uses one plan for all levels: the cheapest one with typical jitter, or the given one. In practice, plans are
    not changed because of a late step.

    **Arguments:**

    - `run`: the training run.
    - `machines`: the variants to compare.
    - `uneven`: jitter levels; by default those of `production`.
    - `plan`: function from a cluster to a fixed plan; None to search for one.
    - `common`: settings that all searched plans share.

    **Raises:** `UserError` for no machine, for too many, and for an invalid plan.
    """
    check_kinds("fabrics", {"run": run, "machines": machines}, {"run": (TrainingRun,), "machines": (list, tuple)})
    for each in machines:
        check_kinds("fabrics", {"machine": each}, {"machine": (FabricVariant,)})
    if not 1 <= len(machines) <= MOST_CASES:
        raise UserError(f"{len(machines)} machines: name 1 to {MOST_CASES}")
    chosen = tuple(jitter_levels() if uneven is None else uneven)
    cases = tuple(_case(run, each, chosen, plan, common) for each in counted(machines, "machine"))
    return Fabrics(run, chosen, cases, plan is not None)


def _case(
    run: TrainingRun,
    machine: FabricVariant,
    uneven: Sequence[JitterLevel],
    stated: Callable[[Cluster], Plan] | None,
    common: Mapping[str, float] | None,
) -> FabricCase:
    clusters = [machine.cluster(each.spread, each.tail_s) for each in uneven]
    if stated is not None:
        plan = stated(clusters[0])
    else:
        try:
            plan = best_plan(run, clusters[min(1, len(clusters) - 1)], "run_cost_usd", 0, common).best.plan
        except UserError as error:
            return FabricCase(machine.name, clusters[0], None, refused=str(error))
    return FabricCase(
        machine.name, clusters[0], plan, tuple(evaluate_in_numpy(estimate, run, each, plan) for each in clusters)
    )
