"""A run on more and more chips: the best plan at every size, where more chips stop paying, and what of the step grew there."""

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
from hwopt.design.metrics import metric_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import TrainingReport, over_words
from hwopt.model.training import learning
from hwopt.planning.plan_search import best_plan
from hwopt.planning.plan_table import PlanSearch
from hwopt.validation import number_of
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun

MOST_SIZES = 64
"""Searches, each of a second or two."""

LEAST_SAVING = 0.25
"""Share of the time that twice the chips must save to pay, where nobody says otherwise; half is the most they can."""

MOST_DEARER = 0.25
"""Share by which twice the chips may make the run dearer, where nobody says otherwise."""

PRICE = "chip_price"
"""What takes money besides chip time."""


@dataclass(frozen=True)
class ScalingPoint:
    """A number of chips and what became of it.

    **Arguments:** `run` with the batch of this size; `search` of its best plan, None where none could be asked for (`refused`);
    `tokens_needed` for the loss of the smallest size, over those of the run: 1 where the batch is the same.
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
        """Of the best plan, or of the one that comes closest."""
        assert self.search is not None
        return self.search.best.report

    @property
    def reason(self) -> str:
        """Why nothing trains here; empty where something does."""
        if self.search is None or self.feasible:
            return self.refused
        over = "; ".join(over_words(name, by) for name, by in self.report.violations().items())
        return f"none of {self.search.examined:,} plans fits; the closest {over}"

    @property
    def time_s(self) -> float:
        """Seconds of the run, to the loss of the smallest size."""
        return self.tokens_needed * float(self.report.run_time_s)

    @property
    def cost_usd(self) -> float:
        """Of the run, to the same loss."""
        return self.tokens_needed * float(self.report.run_cost_usd)

    @cached_property
    def chip_time(self) -> dict[str, float]:
        """Seconds of a chip for one token of the smallest size's run, by what takes them."""
        return chip_time(self.report, self.chips, self.tokens_needed)


class GrowthCause(NamedTuple):
    """What grew from one size to the next. **Arguments:** `share` of the smaller size's cost of the run; below 0: it shrank."""

    name: str
    share: float


@dataclass(frozen=True)
class ScalingStep:
    """From one size that trains to the next that does."""

    before: ScalingPoint
    after: ScalingPoint

    def _a_doubling(self, ratio: float) -> float:
        """A ratio of the two sizes, for each time that the chips double between them."""
        return ratio ** (1.0 / math.log2(self.after.chips / self.before.chips))

    @property
    def saved(self) -> float:
        """Share of the run's time that twice the chips save: a half at most."""
        return 1.0 - self._a_doubling(self.after.time_s / self.before.time_s)

    @property
    def dearer(self) -> float:
        """Share by which twice the chips make the run dearer."""
        return self._a_doubling(self.after.cost_usd / self.before.cost_usd) - 1.0

    @property
    def usd_per_second_saved(self) -> float | None:
        """What finishing a second sooner costs; None where nothing is saved."""
        sooner = self.before.time_s - self.after.time_s
        return (self.after.cost_usd - self.before.cost_usd) / sooner if sooner > 0.0 else None

    @cached_property
    def causes(self) -> list[GrowthCause]:
        """All that the cost of the run grew by, the largest first: they add up to `after.cost / before.cost - 1`."""
        was, now = self.before.chip_time, self.after.chip_time
        whole = sum(was.values())
        grown = {name: (now.get(name, 0.0) - was.get(name, 0.0)) / whole for name in {**was, **now}}
        price = float(self.after.report.chip_usd_per_s) / float(self.before.report.chip_usd_per_s)
        grown[PRICE] = (price - 1.0) * sum(now.values()) / whole
        return sorted((GrowthCause(*each) for each in grown.items()), key=lambda each: -each.share)


@dataclass(frozen=True)
class Scaling:
    """Sizes of one run.

    **Arguments:** `weak`: whether the batch grows with the chips; `least_saving`, `most_dearer` as of `scale`.
    """

    sizes: list[ScalingPoint]
    objective: str
    weak: bool
    least_saving: float
    most_dearer: float

    @property
    def trained(self) -> list[ScalingPoint]:
        """Sizes on which some plan trains."""
        return [each for each in self.sizes if each.feasible]

    @property
    def growths(self) -> list[ScalingStep]:
        """From each size that trains to the next."""
        return [ScalingStep(*pair) for pair in zip(self.trained, self.trained[1:], strict=False)]

    def pays(self, growth: ScalingStep) -> bool:
        """Whether more chips save as much time as asked for, and make the run no dearer than that."""
        return growth.saved >= self.least_saving and growth.dearer <= self.most_dearer

    @property
    def knee(self) -> ScalingStep | None:
        """The first growth that does not pay; None where all do."""
        return next((each for each in self.growths if not self.pays(each)), None)

    @property
    def cheapest(self) -> ScalingPoint | None:
        return min(self.trained, key=lambda each: each.cost_usd, default=None)

    @property
    def soonest(self) -> ScalingPoint | None:
        return min(self.trained, key=lambda each: each.time_s, default=None)

    def speedup(self, size: ScalingPoint) -> float:
        """Time of the run on the smallest size that trains, over that on this one."""
        return self.trained[0].time_s / size.time_s

    def efficiency(self, size: ScalingPoint) -> float:
        """Speed-up over the ratio of chips."""
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
    """The best plan of a training run on several numbers of chips, each over every plan of its lattice (`best_plan`).

    Strong scaling keeps the batch. Weak scaling gives every chip as many sequences as on the smallest size, `B = B_0 N / N_0`;
    time and money are then those to the smallest size's loss, for which a larger batch needs more tokens,
    `(1 + B / B_crit) / (1 + B_0 / B_crit)` of them (McCandlish et al., arXiv 1812.06162, equation 2.11; fresh ones).

    **Arguments:** `cluster_of` a number of chips; `chips`: two numbers or more; `objective`: the metric that a plan makes least;
    `least_saving`: share of the time that twice the chips must save to pay; `most_dearer`: share by which they may make the run
    dearer; `common` as of `best_plan`.

    **Raises:** `UserError` for invalid sizes, for weak scaling whose batch is not whole or grows during the run, and where
    no size can be asked for.
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
    found = [_answer(cluster_of, *each, objective, common) for each in zip(sizes, runs, strict=True)]
    if all(each.search is None for each in found):
        raise UserError(found[0].refused)
    return Scaling(_to_one_loss(found) if weak else found, objective, weak, least_saving, most_dearer)


def _checked(chips: Sequence[int]) -> list[int]:
    """Numbers of chips, the smallest first."""
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
    """The run with the batch of weak scaling."""
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
    """Sizes with the tokens that each batch needs for the loss of the smallest."""
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
