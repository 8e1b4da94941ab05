"""The price of predictability: what a run costs by fabric, or by density of racks, as evenly as links and switches deliver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.report import TrainingReport, over_words
from hwopt.plan import Plan
from hwopt.planning.plan_search import best_plan
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.validation import check_kinds
from hwopt.workload.training import TrainingRun

MOST_CASES = 32
"""Fabrics, or densities: a search of a second or two each."""


class JitterLevel(NamedTuple):
    """How unevenly links outside the scale-up domain deliver. **Units:** relative standard deviation; s, mean of the tail."""

    name: str
    spread: float
    tail_s: float


def jitter_levels(
    operation: str = "production", spread: float | None = None, tail_s: float | None = None
) -> tuple[JitterLevel, ...]:
    """Even links, those of an entry of `operations`, and the least even: by default the upper ends of that entry's ranges."""
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
    """The upper end of a number's range in SI; the number where it has none."""
    stated = entry.quantities.get(key)
    if stated is None or stated.high is None or not stated.value:
        return entry.si(key, 0.0)
    return stated.si * stated.high / stated.value


class FabricVariant(NamedTuple):
    """What `cases` vary. **Arguments:** a name; a cluster of it by `spread` and `tail_s`."""

    name: str
    cluster: Callable[[float, float], Cluster]


@dataclass(frozen=True)
class FabricCase:
    """A machine under one plan. **Arguments:** `reports` in the order of the levels; `refused`: why there are none."""

    name: str
    cluster: Cluster | None
    plan: Plan | None
    reports: tuple[TrainingReport, ...] = ()
    refused: str = ""

    @property
    def feasible(self) -> bool:
        """Whether the run fits, however even links are."""
        return bool(self.reports) and all(bool(each.feasible) for each in self.reports)

    @property
    def reason(self) -> str:
        """Why it does not fit; empty where it does."""
        if self.feasible or not self.reports:
            return self.refused
        found: dict[str, float] = {}
        for each in self.reports:
            found = {name: max(over, found.get(name, 0.0)) for name, over in each.violations().items()} | found
        return "; ".join(over_words(name, over) for name, over in found.items())

    @property
    def costs_usd(self) -> list[float]:
        """Of the run, by level."""
        return [float(each.run_cost_usd) for each in self.reports]

    @property
    def dearer(self) -> list[float]:
        """Cost of the run at each level over that of even links, less 1."""
        return [cost / self.costs_usd[0] - 1.0 for cost in self.costs_usd]

    @property
    def worth_usd_per_chip(self) -> list[float]:
        """What evenness may add to a chip's share of the capital before each level is as cheap: `(C_level / C_even - 1) K / N`.

        A run pays for capital by its time, so its cost grows as capital does; zero where the machine is rented.
        """
        assert self.cluster is not None
        share = float(self.reports[0].capex_usd) / float(self.cluster.chips)
        return [more * share for more in self.dearer]


@dataclass(frozen=True)
class Fabrics:
    """Machines side by side. **Arguments:** the `levels`; a `FabricCase` each; what was `held`: a plan, or nothing."""

    run: TrainingRun
    levels: tuple[JitterLevel, ...]
    cases: tuple[FabricCase, ...]
    held: bool

    @property
    def trained(self) -> list[FabricCase]:
        """Those that fit, the cheapest in production first."""
        return sorted((each for each in self.cases if each.feasible), key=lambda each: each.costs_usd[1])

    def cheapest(self, level: int) -> FabricCase:
        """The cheapest at a level."""
        return min(self.trained, key=lambda each: each.costs_usd[level])


def fabrics(
    run: TrainingRun,
    machines: Sequence[FabricVariant],
    uneven: Sequence[JitterLevel] | None = None,
    plan: Callable[[Cluster], Plan] | None = None,
    common: Mapping[str, float] | None = None,
) -> Fabrics:
    """Cost and time of a run on several machines, with even links, as in production, and with the least even ones.

    Each machine runs one plan at all levels: the cheapest of all as links are in production, or the stated one. Nobody plans
    anew for a step that is late.

    **Arguments:** the `machines`; `uneven`: levels, by default those of `production`; a stated `plan` by cluster; what all plans
    have alike (`common`), where they are searched.

    **Raises:** `UserError` for no machine or too many, and for a plan that no machine allows.
    """
    check_kinds("fabrics", {"run": run, "machines": machines}, {"run": (TrainingRun,), "machines": (list, tuple)})
    for each in machines:
        check_kinds("fabrics", {"machine": each}, {"machine": (FabricVariant,)})
    if not 1 <= len(machines) <= MOST_CASES:
        raise UserError(f"{len(machines)} machines: name 1 to {MOST_CASES}")
    chosen = tuple(jitter_levels() if uneven is None else uneven)
    cases = tuple(_case(run, each, chosen, plan, common) for each in machines)
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
