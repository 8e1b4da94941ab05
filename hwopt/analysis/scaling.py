"""Strong and weak scaling of a training run: the best plan for each size, where more chips stop paying, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from hwopt.analysis.chip_time import chip_time
from hwopt.declared import Result, derived, shown
from hwopt.design.metrics import metric_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import TrainingReport, over_words
from hwopt.model.training import learning
from hwopt.planning.plan_search import best_plan
from hwopt.planning.plan_table import PlanSearch
from hwopt.progress import counted
from hwopt.units import pretty
from hwopt.validation import number_of
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun

MOST_SIZES = 64
"""Maximum number of cluster sizes; each takes a search of a second or two."""

LEAST_SAVING = 0.25
"""Default share of the time that a doubling of chips must save to pay. The maximum possible is half."""

MOST_DEARER = 0.25
"""Default limit of the relative cost increase of the run by a doubling of chips."""

PRICE = "chip_price"
"""Cause of cost growth that is not chip time: the price of a chip-second."""


@dataclass(frozen=True)
class ScalingPoint:
    """Result for one cluster size.

    **Arguments:**

    - `chips`: number of chips.
    - `run`: the training run with the batch of this size.
    - `search`: search for its best plan; None where the question cannot be posed (`refused` says why).
    - `tokens_needed`: tokens for the loss of the smallest size, over those of the run. It is 1 where the batch is the same.
    """

    chips: int
    run: TrainingRun
    search: PlanSearch | None
    refused: str = ""
    tokens_needed: float = 1.0

    @property
    def feasible(self) -> bool:
        return self.search is not None and self.search.feasible

    @property
    def report(self) -> TrainingReport:
        """Return the report of the best plan, or of the one closest to feasibility."""
        assert self.search is not None
        return self.search.best.report

    @property
    def reason(self) -> str:
        """Return why no plan is feasible; empty where one is."""
        if self.search is None or self.feasible:
            return self.refused
        over = "; ".join(over_words(name, by) for name, by in self.report.violations().items())
        return f"none of {self.search.examined:,} plans fits; the closest {over}"

    @property
    def time_s(self) -> float:
        """Return the time of the run in seconds, up to the loss of the smallest size."""
        return self.tokens_needed * float(self.report.run_time_s)

    @property
    def cost_usd(self) -> float:
        """Return the cost of the run in USD, up to the loss of the smallest size."""
        return self.tokens_needed * float(self.report.run_cost_usd)

    @cached_property
    def chip_time(self) -> dict[str, float]:
        """Chip-seconds per token of the smallest size's run, by category (`hwopt.analysis.chip_time`)."""
        return chip_time(self.report, self.chips, self.tokens_needed)


class GrowthCause(NamedTuple):
    """A cause of cost growth from one size to the next.

    **Arguments:**

    - `name`: category of chip time, or the chip price.
    - `share`: growth relative to the run cost at the smaller size; negative where the category shrank.
    """

    name: str
    share: float


@dataclass(frozen=True)
class ScalingStep:
    """Increase from one feasible cluster size to the next one."""

    before: ScalingPoint
    after: ScalingPoint

    def _a_doubling(self, ratio: float) -> float:
        """Return a ratio of the two sizes, normalized to one doubling of chips."""
        return ratio ** (1.0 / math.log2(self.after.chips / self.before.chips))

    @derived(meaning="share of the run time that a doubling of chips saves", key="saved_by_a_doubling")
    def saved(self) -> float:
        """Return the share of the run time that a doubling of chips saves; at most a half."""
        return 1.0 - self._a_doubling(self.after.time_s / self.before.time_s)

    @derived(meaning="relative cost increase of the run by a doubling of chips", key="dearer_by_a_doubling")
    def dearer(self) -> float:
        """Return the relative cost increase of the run by a doubling of chips."""
        return self._a_doubling(self.after.cost_usd / self.before.cost_usd) - 1.0

    @derived("USD/s", "cost of finishing a second sooner; null where no time is saved")
    def usd_per_second_saved(self) -> float | None:
        """Return the cost of finishing a second sooner; None where no time is saved."""
        sooner = self.before.time_s - self.after.time_s
        return (self.after.cost_usd - self.before.cost_usd) / sooner if sooner > 0.0 else None

    @cached_property
    def causes(self) -> list[GrowthCause]:
        """All causes of cost growth, the largest first. They add up to `after.cost / before.cost - 1`."""
        was, now = self.before.chip_time, self.after.chip_time
        whole = sum(was.values())
        grown = {name: (now.get(name, 0.0) - was.get(name, 0.0)) / whole for name in {**was, **now}}
        price = float(self.after.report.chip_usd_per_s) / float(self.before.report.chip_usd_per_s)
        grown[PRICE] = (price - 1.0) * sum(now.values()) / whole
        return sorted((GrowthCause(*each) for each in grown.items()), key=lambda each: -each.share)


@dataclass(frozen=True)
class Scaling(Result):
    """Scaling study of one training run.

    **Arguments:**

    - `sizes`: results by number of chips, the smallest first.
    - `objective`: metric that each plan minimizes.
    - `weak`: whether the batch grows with the chips.
    - `least_saving`, `most_dearer`: as in `scale`.
    """

    rows = "sizes"

    sizes: list[ScalingPoint]
    objective: str
    weak: bool
    least_saving: float = shown(meaning="share of the time that a doubling of chips must save to pay")
    most_dearer: float = shown(meaning="limit of the relative cost increase by a doubling")

    @property
    def headline(self) -> str:
        """Return the time and the cost of the run at each size, in words."""
        return "; ".join(
            f"{each.chips:,} chips: {pretty(each.time_s, 's')}, {pretty(each.cost_usd, 'USD')}"
            if each.feasible
            else f"{each.chips:,} chips: {each.reason}"
            for each in self.sizes
        )

    @property
    def trained(self) -> list[ScalingPoint]:
        """Return the sizes with a feasible plan."""
        return [each for each in self.sizes if each.feasible]

    @property
    def growths(self) -> list[ScalingStep]:
        """Return the increases from each feasible size to the next."""
        return [ScalingStep(*pair) for pair in zip(self.trained, self.trained[1:], strict=False)]

    def pays(self, growth: ScalingStep) -> bool:
        """Return whether more chips save enough time without exceeding the cost limit."""
        return growth.saved >= self.least_saving and growth.dearer <= self.most_dearer

    @property
    def knee(self) -> ScalingStep | None:
        """Return the first increase in size that does not pay; None where all do."""
        return next((each for each in self.growths if not self.pays(each)), None)

    @property
    def cheapest(self) -> ScalingPoint | None:
        return min(self.trained, key=lambda each: each.cost_usd, default=None)

    @property
    def soonest(self) -> ScalingPoint | None:
        return min(self.trained, key=lambda each: each.time_s, default=None)

    def speedup(self, size: ScalingPoint) -> float:
        """Return the speedup of a size over the smallest feasible one."""
        return self.trained[0].time_s / size.time_s

    def efficiency(self, size: ScalingPoint) -> float:
        """Return the scaling efficiency: speedup over the ratio of chips."""
        return self.speedup(size) * self.trained[0].chips / size.chips


def scale(
    workload: TrainingRun,
    cluster_of: Callable[[int], Cluster],
    chips: Sequence[int],
    *,
    objective: str = "run_time_s",
    weak: bool = False,
    least_saving: float = LEAST_SAVING,
    most_dearer: float = MOST_DEARER,
    common: Mapping[str, float] | None = None,
) -> Scaling:
    """Find the best plan of a training run for several numbers of chips, each over its full plan lattice (`best_plan`).

    Strong scaling keeps the batch. Weak scaling keeps the sequences per chip of the smallest size, `B = B_0 N / N_0`. Time and
    cost are then counted up to the loss of the smallest size. A larger batch needs more tokens for it: `(1 + B / B_crit) / (1 +
    B_0 / B_crit)` times as many fresh ones (McCandlish et al., arXiv 1812.06162, equation 2.11).

    **Arguments:**

    - `workload`: the training run.
    - `cluster_of`: function from a number of chips to a cluster.
    - `chips`: two or more numbers of chips.
    - `objective`: metric that each plan minimizes.
    - `weak`: whether the batch grows with the chips.
    - `least_saving`: share of the time that a doubling of chips must save to pay.
    - `most_dearer`: limit of the relative cost increase by a doubling.
    - `common`: as in `best_plan`.

    **Raises:** `UserError` for invalid sizes, for weak scaling whose batch is not an integer or grows during the run, and where
    no size can be posed.
    """
    if not isinstance(workload, TrainingRun):
        raise UserError("scale: a service grows by copies of itself; name a training run")
    if not callable(cluster_of) or not isinstance(chips, Iterable):
        raise UserError(
            "scale: pass a function of the number of chips, which returns a cluster, and a list of such numbers"
        )
    sizes = _checked(chips)
    metric_of(objective, workload)
    _check_shares(least_saving, most_dearer)
    if weak and isinstance(workload.model, Operators) and not workload.model.language:
        raise UserError(
            "weak: time and money are counted to one loss, and no law tells it of a model that predicts no text"
        )
    runs = [_run_on(workload, count, sizes[0]) if weak else workload for count in sizes]
    found = [
        _answer(cluster_of, *each, objective, common) for each in counted([*zip(sizes, runs, strict=True)], "size")
    ]
    if all(each.search is None for each in found):
        raise UserError(found[0].refused)
    return Scaling(_to_one_loss(found) if weak else found, objective, weak, least_saving, most_dearer)


def _checked(chips: Sequence[int]) -> list[int]:
    """Return the distinct numbers of chips, the smallest first. Raise `UserError` for invalid ones."""
    sizes = sorted({number_of("scale: chips", each) for each in chips})
    if any(each < 1 or each != int(each) for each in sizes):
        raise UserError(f"chips {min(sizes):g}: a number of chips is an integer of at least 1")
    if len(sizes) < 2:
        raise UserError("scale: name two numbers of chips or more; hwopt plan answers for one")
    if len(sizes) > MOST_SIZES:
        raise UserError(f"scale: {len(sizes)} numbers of chips; {MOST_SIZES} at most, a search each")
    return [int(each) for each in sizes]


def _check_shares(least_saving: float, most_dearer: float) -> None:
    if not 0.0 <= least_saving <= 0.5:
        raise UserError(f"least saving {least_saving:g}: twice the chips save half of the time at most; write 0 to 0.5")
    if not 0.0 <= most_dearer < math.inf:
        raise UserError(f"most dearer {most_dearer:g}: write a share of at least 0, such as 0.25")


def _run_on(run: TrainingRun, chips: int, least: int) -> TrainingRun:
    """Return the run with the batch of weak scaling."""
    if run.ramp is not None:
        raise UserError(
            "weak: the batch grows with the chips already, and cannot grow during the run too; leave the ramp out"
        )
    base = float(run.global_batch_sequences)
    batch = base * chips / least
    if batch != int(batch):
        raise UserError(
            f"weak: {base:,.0f} sequences on {least:,} chips are {batch:,.2f} on {chips:,}, no whole number; "
            f"choose sizes that are multiples of {least // math.gcd(int(base), least):,}"
        )
    return eqx.tree_at(lambda each: each.global_batch_sequences, run, np.float64(batch))


def _answer(
    cluster_of: Callable[[int], Cluster],
    chips: int,
    run: TrainingRun,
    objective: str,
    common: Mapping[str, float] | None,
) -> ScalingPoint:
    try:
        return ScalingPoint(chips, run, best_plan(run, cluster_of(chips), objective, 0, common))
    except UserError as error:
        return ScalingPoint(chips, run, None, str(error))


def _to_one_loss(sizes: list[ScalingPoint]) -> list[ScalingPoint]:
    """Return the sizes with the tokens that each batch needs for the loss of the smallest size."""
    known: Any = next((each.report for each in sizes if each.search is not None), None)
    if known is None:
        return sizes
    run, law = sizes[0].run, sizes[0].run.law
    batches = [each.run.global_batch_sequences * each.run.sequence_length for each in sizes]
    with jax.enable_x64(True):
        equivalent = learning.dense_equivalent_parameters(law, known.active_parameters, known.parameters)
        fresh = learning.repeated_tokens(law, run.unique_tokens, run.tokens / run.unique_tokens)
        useful = learning.effective_tokens(law, equivalent, fresh, batches[0])
        needed = [float(learning.tokens_with_batch(law, equivalent, useful, each)) for each in batches]
    return [replace(size, tokens_needed=tokens / needed[0]) for size, tokens in zip(sizes, needed, strict=True)]
