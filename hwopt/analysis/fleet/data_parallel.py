"""Training on several chip generations at once: optimal batch shares and plans, and the marginal value of each group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from hwopt import catalog
from hwopt.analysis.fleet.pipeline import fastest_pipeline
from hwopt.catalog.load import leaf
from hwopt.declared import Result, shown
from hwopt.design.plan_lattice import check_documented
from hwopt.design.variables import count_of
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import Cluster, Fleet
from hwopt.hardware.peripherals import Sites
from hwopt.model.chip.roofline import fastest_peak
from hwopt.model.estimate import estimate
from hwopt.model.fleet.data_parallel import FleetReport, share_of
from hwopt.model.report import StageReport, TrainingReport
from hwopt.options import options_of
from hwopt.plan import FleetPipeline, FleetPlan, Plan
from hwopt.planning.plan_search import best_plan
from hwopt.planning.plan_table import traced_model
from hwopt.solver.options import SEARCH, FleetOptions, SearchOptions
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.validation import check_kinds, number_of
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

MOST_GROUPS = 8
"""Maximum number of groups of chips. Each takes searches of a second or two, with and without it."""

DATA, PIPELINE, BEST = "data", "pipeline", "best"
LAYOUTS = (BEST, DATA, PIPELINE)
"""Dimension that the groups split: sequences (data), layers (pipeline), or the faster of both (best)."""


@dataclass(frozen=True)
class FleetGroup:
    """A group of chips of one type. **Arguments:** `name`, `cluster`; `plan`: fixed plan, None for the best one."""

    name: str
    cluster: Cluster
    plan: Plan | None = None


@dataclass(frozen=True)
class FleetAnswer:
    """The fastest shares and plans of a fleet, and the report of the run."""

    groups: tuple[FleetGroup, ...]  # in pipeline order, where there is a pipeline
    plan: FleetPlan | FleetPipeline
    report: FleetReport = shown(spliced=True)

    @property
    def layout(self) -> str:
        """Return whether the groups split sequences (`data`) or layers (`pipeline`)."""
        return PIPELINE if isinstance(self.plan, FleetPipeline) else DATA

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the sequences, or layers, of each group."""
        return tuple(map(float, self.plan.layers if isinstance(self.plan, FleetPipeline) else self.plan.sequences))

    @property
    def feasible(self) -> bool:
        """Return whether the plan is feasible."""
        return bool(self.report.feasible)


@dataclass(frozen=True)
class GroupValue:
    """Marginal value of a group in a fleet.

    The comparison is a fleet without the group. The group then draws no power, and the others take the whole batch. **Units:**
    s, J, USD, USD/J, USD/s.
    """

    name: str = shown(key="chip")
    without: FleetAnswer | None = shown(meaning="the fleet without the group; null where the others cannot train alone")
    faster: float = shown(meaning="relative increase in tokens per second of useful work")
    saved_s: float = shown("s", "time of the run that the group saves")
    more_j: float = shown("J", "energy that the run needs more with the group")
    most_usd_per_j: float = shown(
        "USD/J", "break-even electricity price, capital cost sunk; null: it pays at any price"
    )
    owned_usd_per_s: float = shown(
        "USD/s", "break-even value of a second of the run, capital cost sunk; below 0: it always pays"
    )
    rented_usd_per_s: float = shown("USD/s", "the same where all costs of the group can be avoided")


@dataclass(frozen=True)
class FleetStudy(Result):
    """Fleet answer with the marginal value of each group."""

    run: TrainingRun
    whole: FleetAnswer
    worths: tuple[GroupValue, ...]
    other: FleetAnswer | None = None  # of the slower layout, where both were tried
    failed: str = ""  # reason why the other layout has no answer
    options: FleetOptions = SEARCH.fleet  # of the search


def fleet(
    run: TrainingRun,
    groups: Sequence[FleetGroup],
    lines: str | Path | None = None,
    local_steps: int = 1,
    layout: str = BEST,
    options: SearchOptions | None = None,
) -> FleetStudy:
    """Find the plans and shares with the shortest step on several chip types, and the marginal value of each group.

    If groups split the batch, the best few plans of each group are evaluated. Their shares are whole micro-batches near the
    group's share of total speed. Among these, the shares that add up to the batch and minimize the slowest group's time are
    exact. If groups split the layers, see `fastest_pipeline`.

    **Arguments:**

    - `run`: the training run.
    - `groups`: the chips.
    - `lines`: catalog entry of the network lines between sites, where each group is a site of its own.
    - `local_steps`: steps between exchanges of the sites.
    - `layout`: `data` splits the batch, `pipeline` the layers. `best` takes the faster; between sites, and for models other
      than transformers, it is `data`.
    - `options`: options of the search, of which `fleet` applies.

    **Raises:** `UserError` for no group or too many, for several sites, for a batch ramp, and for groups that can split
    neither.
    """
    _check(run, groups)
    own = options_of("fleet", options, SearchOptions).fleet
    if local_steps < 1 or (local_steps > 1 and lines is None):
        raise UserError(
            f"local_steps = {local_steps}: 1 or more steps lie between exchanges of sites: name their lines"
        )
    if lines is not None and len(groups) == 1:
        raise UserError(f"lines = '{lines}' join sites, and there is one group: name another, or leave them out")
    between = _Between(lines, local_steps)
    between.of(len(groups))  # raises for unknown lines before any search
    whole, other, failed = _laid_out(run, groups, between, layout, own)
    return FleetStudy(run, whole, tuple(_worths(run, whole, between, own)), other, failed, own)


def _laid_out(
    run: TrainingRun, groups: Sequence[FleetGroup], between: _Between, layout: str, options: FleetOptions
) -> tuple[FleetAnswer, FleetAnswer | None, str]:
    """Return the requested layout's answer, or the faster of both, the slower one, and the reason if there is only one."""
    if layout not in LAYOUTS:
        raise UserError(f"layout = '{layout}': {suggest(layout, LAYOUTS)}")
    why = _no_pipeline(run, groups, between)
    if layout == PIPELINE and why:
        raise UserError(f"layout = 'pipeline': {why}")
    wanted = [DATA] if why else [PIPELINE, DATA] if layout == BEST else [layout]
    answers, failed = [], ""
    for each in wanted:
        try:
            staged = each == PIPELINE
            answers.append(pipeline(run, groups, options) if staged else fastest_shares(run, groups, between, options))
        except UserError as error:
            if each == wanted[-1] and not answers:
                raise
            failed = str(error)
    slow = lambda each: (not each.feasible, float(each.report.step_time_s))
    first, *others = sorted(reversed(answers), key=slow)
    return first, others[0] if others else None, failed


def _no_pipeline(run: TrainingRun, groups: Sequence[FleetGroup], between: _Between) -> str:
    """Return why groups cannot form one pipeline; empty where they can."""
    if len(groups) == 1:
        return "stages lie on several kinds of chips, and there is one: name another (--groups)"
    if not isinstance(run.model, Transformer):
        return "blocks of this model differ, so that it is no pipeline: split the batch (data)"
    if between.lines is not None:
        return "stages of a pipeline stand at one site: leave out the lines, or split the batch (data)"
    if any(each.plan is not None for each in groups):
        return "plans of groups are stated, and a pipeline finds its own: leave them out, or split the batch (data)"
    return ""


def pipeline(run: TrainingRun, groups: Sequence[FleetGroup], options: FleetOptions = SEARCH.fleet) -> FleetAnswer:
    """Find the fastest pipeline across all groups, or the one closest to feasibility.

    **Raises:** `UserError` where there is no pipeline.
    """
    found = fastest_pipeline(run, [each.cluster for each in groups], options)
    if found is None:
        names = " and ".join(f"{count_of(each.cluster.chips):,} {each.name}" for each in groups)
        words = "with as many replicas on each kind, stages of a layer or more and memory for their layers"
        raise UserError(
            f"no pipeline over {names} {words}: try other counts of chips or another batch (--global-batch)"
        )
    order, plan = found
    return _answer(run, [groups[i] for i in order], plan)


def restated(
    run: TrainingRun,
    groups: Sequence[FleetGroup],
    names: Sequence[str],
    layout: str,
    leaves: Sequence[float],
    lines: str | Path | None = None,
    local_steps: int = 1,
) -> FleetStudy:
    """Evaluate one given plan of a fleet, without a search.

    **Arguments:**

    - `names`: names of the groups in the order of the plan.
    - `leaves`: numbers of the plan, as `jax.tree.leaves` lists them.
    - `run`, `groups`, `layout`, `lines`, `local_steps`: as in `fleet`.

    **Raises:** `UserError` where names or numbers do not match a plan of these groups.
    """
    by_name = {each.name: each for each in groups}
    if sorted(names) != sorted(by_name) or layout not in (DATA, PIPELINE):
        raise UserError(f"a plan of {', '.join(names)} by {layout} is not one of {', '.join(by_name)}")
    ordered, kind = [by_name[name] for name in names], FleetPlan if layout == DATA else FleetPipeline
    form = kind(tuple(catalog.plan(run, 1) for _ in ordered), tuple(leaf(0.0) for _ in ordered))
    structure = jax.tree.structure(form)
    if len(leaves) != structure.num_leaves:
        raise UserError(
            f"{len(leaves)} numbers are not a plan of {len(ordered)} groups, which has {structure.num_leaves}"
        )
    plan = jax.tree.unflatten(structure, [leaf(number_of("leaves", each)) for each in leaves])
    between = _Between(lines, local_steps) if layout == DATA else _NOTHING
    return FleetStudy(run, _answer(run, ordered, plan, between), ())


def fleet_scope(study: FleetStudy) -> str:
    """Return a sentence that describes the plans and shares searched."""
    if len(study.whole.groups) == 1:
        return "the best plan of one type of chip; every valid plan was evaluated"
    own = study.options
    if study.whole.layout == PIPELINE:
        sizes = ", ".join(map(str, own.micro_batches))
        return (
            "searched: every order of chip types (as named for more than three), tensor parallelism within a domain, the same "
            f"number of replicas on each type, micro-batches of {sizes}, three ways of recomputation, no interleaving; the "
            f"{own.exact_pipelines} fastest of these, were layers divisible, were evaluated with whole layers; other plans are not "
            "ruled out"
        )
    low, high = (f"{100 * each:g} %" for each in (own.least_share, own.most_share))
    return (
        f"searched: for each type of chip the {own.plans} best plans at the share in proportion to its speed, with every share "
        f"in whole micro-batches from {low} to {high} of it; the shares are the best of these; other plans are not ruled out"
    )


def _check(run: TrainingRun, groups: Sequence[FleetGroup]) -> None:
    check_kinds("fleet", {"run": run, "groups": groups}, {"run": (TrainingRun,), "groups": (list, tuple)})
    for each in groups:
        check_kinds("fleet", {"group": each}, {"group": (FleetGroup,)})
        check_documented(run, each.cluster.stack, each.name)
    if not 1 <= len(groups) <= MOST_GROUPS:
        raise UserError(f"{len(groups)} groups of chips: name 1 to {MOST_GROUPS}")
    if run.ramp is not None:
        raise UserError("a fleet shares one batch: leave out the batch ramp (--batch-ramp none)")
    if apart := [each.name for each in groups if count_of(each.cluster.sites.count) > 1]:
        raise UserError(f"{apart[0]}: groups of a fleet stand at one site")
    names = [each.name for each in groups]
    if len(set(names)) < len(names):
        raise UserError(f"{', '.join(names)}: name each group once; chips of one kind are one group")


class _Between(NamedTuple):
    """Connection between groups: none, or network lines between sites with a number of local steps between exchanges."""

    lines: str | Path | None
    local_steps: int

    def of(self, groups: int) -> Sites | None:
        """Return the network lines that connect the given number of sites; None for one site or without lines."""
        return None if self.lines is None or groups == 1 else catalog.sites(groups, self.lines)


_NOTHING = _Between(None, 1)


class _Times(NamedTuple):
    """Shortest step time of a group for each share of the batch, and the plan that attains it.

    Infinite where no plan is feasible.
    """

    seconds: np.ndarray  # (batch + 1,)
    plan: np.ndarray  # index into `plans`
    plans: list[Plan]


def fastest_shares(
    run: TrainingRun,
    groups: Sequence[FleetGroup],
    between: _Between = _NOTHING,
    options: FleetOptions = SEARCH.fleet,
) -> FleetAnswer:
    """Find the fastest plans and batch shares of a fleet.

    **Raises:** `UserError` where no shares in whole micro-batches add up to the batch.
    """
    batch = count_of(run.global_batch_sequences)
    speeds = [float(fastest_peak(each.cluster.chip, run)) * count_of(each.cluster.chips) for each in groups]
    if len(groups) == 1:
        return _alone(run, groups[0], between)
    times: list[_Times] = []
    shares, hints = [batch], []
    for _ in range(options.rounds):
        before, hints = hints, rounded_shares([batch * speed / sum(speeds) for speed in speeds], batch)
        if hints == before:
            break
        times = [_times(run, group, hint, batch, options) for group, hint in zip(groups, hints, strict=True)]
        if not all(np.isfinite(each.seconds).any() for each in times):  # return the closest plans
            return _answer(
                run, groups, FleetPlan(tuple(each.plans[0] for each in times), tuple(map(leaf, hints))), between
            )
        found = balanced_shares([each.seconds for each in times])
        if found is None:
            replicas = " and ".join(str(count_of(each.plans[0].dp)) for each in times)
            words = f"of {replicas} replicas: try another batch (--global-batch), fewer groups, or other plans"
            raise UserError(f"no shares of whole micro-batches add up to {batch:,} sequences a step, {words}")
        shares = found
        speeds = [share / each.seconds[share] for share, each in zip(shares, times, strict=True)]
    chosen = tuple(each.plans[each.plan[share]] for share, each in zip(shares, times, strict=True))
    return _answer(run, groups, FleetPlan(chosen, tuple(leaf(share) for share in shares)), between)


def _answer(
    run: TrainingRun, groups: Sequence[FleetGroup], plan: FleetPlan | FleetPipeline, between: _Between = _NOTHING
) -> FleetAnswer:
    lines = between.of(len(groups))
    clusters = Fleet(tuple(each.cluster for each in groups), lines)
    if isinstance(plan, FleetPlan):
        local = leaf(1 if lines is None else between.local_steps)
        plan = replace(plan, groups=tuple(replace(each, local_steps=local) for each in plan.groups))
    return FleetAnswer(tuple(groups), plan, evaluate_in_numpy(estimate, run, clusters, plan))


def _alone(run: TrainingRun, group: FleetGroup, between: _Between) -> FleetAnswer:
    """Return the answer of a single group with the whole batch; its own plan applies where it divides the batch."""
    batch, plan = count_of(run.global_batch_sequences), group.plan
    if plan is None or batch not in _whole(plan, batch, batch):
        plan = best_plan(run, group.cluster, alternatives=0).best.plan
    return _answer(run, [group], FleetPlan((plan,), (leaf(batch),)), between)


def _times(run: TrainingRun, group: FleetGroup, hint: int, batch: int, options: FleetOptions) -> _Times:
    """Compute a group's shortest step time for each share, over its likely plans with the same or smaller micro-batches."""
    if group.plan is None:
        search = best_plan(share_of(run, leaf(hint)), group.cluster, alternatives=options.plans - 1)
        plans = [
            replace(each.plan, micro_batch=leaf(size))
            for each in (search.best, *search.alternatives)
            for size in range(1, count_of(each.plan.micro_batch) + 1)
        ]
    else:
        plans = [group.plan]
    seconds, chosen = np.full(batch + 1, np.inf), np.zeros(batch + 1, int)
    near = (options.least_share * hint, min(options.most_share * hint, float(batch)))
    low, high = (1.0, float(batch)) if group.plan is not None else near
    shares = [_whole(plan, low, high) for plan in plans]
    places = np.repeat(np.arange(len(plans)), [len(each) for each in shares])
    if len(places):
        some = np.concatenate(shares)
        steps = _steps_s(run, group.cluster, [plans[place] for place in places], some)
        for row in np.argsort(steps, kind="stable"):
            if steps[row] < seconds[some[row]]:
                seconds[some[row]], chosen[some[row]] = steps[row], places[row]
    return _Times(seconds, chosen, plans)


def _whole(plan: Plan, low: float, high: float) -> np.ndarray:
    """Return the shares in [low, high] that are whole micro-batches on all replicas.

    With interleaved stages, each replica has at least as many micro-batches as stages.
    """
    unit = count_of(plan.dp * plan.micro_batch)
    least = count_of(plan.pp) if float(plan.virtual_stages) > 1.0 else 1
    return unit * np.arange(max(math.ceil(low / unit), least), math.floor(high / unit) + 1)


def rounded_shares(shares: Sequence[float], batch: int) -> list[int]:
    """Round shares to integers that add up to the batch.

    They are multiples of a power of two, so that many numbers of replicas divide them.
    """
    unit = 2 ** max(math.floor(math.log2(max(min(shares), 1.0) / 4.0)), 0)
    while batch % unit:
        unit //= 2
    counts = [max(math.floor(share / unit), 1) for share in shares]
    rest = np.argsort([count - share / unit for count, share in zip(counts, shares, strict=True)])
    for i in range(max(batch // unit - sum(counts), 0)):
        counts[int(rest[i % len(rest)])] += 1
    return [min(count * unit, batch) for count in counts]


def _steps_s(run: TrainingRun, cluster: Cluster, plans: Sequence[Plan], shares: np.ndarray) -> np.ndarray:
    """Return the step time of a group alone for pairs of plan and share, s; infinite where infeasible."""
    rows = jax.tree.map(lambda *leaves: np.stack([np.asarray(each, np.float64) for each in leaves]), *plans)
    known = [np.asarray(each, np.float64) for each in jax.tree.leaves((run, cluster))]
    varied = eqx.tree_at(lambda r: r.global_batch_sequences, run, np.full((), np.nan))
    shapes = (*(each.shape for each in known), *[()] * len(jax.tree.leaves(rows)))
    model = traced_model(jax.tree.structure((run, cluster, rows)), shapes)
    step_s = model.only(lambda report: (report.step_time_s, report.feasible))
    numbers = [x for each in jax.tree.leaves((varied, cluster)) for x in np.asarray(each, np.float64).ravel()]
    columns = [shares.astype(float) if np.isnan(each) else np.full(1, each) for each in numbers]
    step, fits = step_s([*columns, *jax.tree.leaves(rows)], len(shares))
    return np.where(fits > 0, step, np.inf)


def balanced_shares(seconds: Sequence[np.ndarray]) -> list[int] | None:
    """Find shares that add up to a batch and minimize the longest time, by exact dynamic programming over the groups.

    **Arguments:** `seconds`: time of each group by its share, (batch + 1,), infinite where infeasible.

    **Returns:** the share of each group; None where no shares are feasible.
    """
    batch = len(seconds[0]) - 1
    best, taken = seconds[0], []
    for times in seconds[1:]:
        combined, choice = np.full(batch + 1, np.inf), np.zeros(batch + 1, int)
        for share in np.flatnonzero(np.isfinite(times)):
            longest = np.maximum(best[: batch + 1 - share], times[share])
            better = longest < combined[share:]
            combined[share:][better], choice[share:][better] = longest[better], share
        best = combined
        taken.append(choice)
    if not np.isfinite(best[batch]):
        return None
    shares, left = [], batch
    for choice in reversed(taken):
        shares.append(int(choice[left]))
        left -= shares[-1]
    return [left, *reversed(shares)]


def _worths(run: TrainingRun, whole: FleetAnswer, between: _Between, options: FleetOptions) -> Iterator[GroupValue]:
    """Yield the marginal value of each group, against the fleet without it."""
    if len(whole.groups) == 1 or not whole.feasible:
        return
    on = whole.report
    for place, group in enumerate(whole.groups):
        others = [each for each in whole.groups if each is not group]
        try:
            staged = whole.layout == PIPELINE and len(others) > 1
            without = pipeline(run, others, options) if staged else fastest_shares(run, others, between, options)
        except UserError:
            without = None
        if without is None or not without.feasible:
            yield GroupValue(group.name, None, math.inf, math.nan, math.nan, math.nan, math.nan, math.nan)
            continue
        yield _worth(group.name, on, without, place)


def _worth(name: str, on: FleetReport, without: FleetAnswer, place: int) -> GroupValue:
    """Compute the marginal value of the group at a `place`: time, energy, and break-even prices.

    For an owned group, the capital cost is sunk. With the group on, the run saves `dT (S + v)` and uses electricity for `dE p`.
    Here S is the standing cost of the whole fleet per second, v the value of a second of the run, and p the electricity price.
    For a rented group, all its costs are avoided when it is returned: `C_on - C_off = dT v`.
    """
    off = without.report
    saved, more = float(off.run_time_s - on.run_time_s), float(on.run_energy_j - off.run_energy_j)
    standing = sum(map(float, on.standing_usd_per_s))
    price = float(on.electricity_usd_per_j[place])
    faster = float(on.tokens_per_s * on.goodput / (off.tokens_per_s * off.goodput)) - 1.0
    if saved <= 0.0:
        return GroupValue(name, without, faster, saved, more, 0.0, math.inf, math.inf)
    dearer = float(on.run_cost_usd - off.run_cost_usd)
    return GroupValue(
        name,
        without,
        faster=faster,
        saved_s=saved,
        more_j=more,
        most_usd_per_j=math.inf if more <= 0.0 else saved * standing / more,
        owned_usd_per_s=more * price / saved - standing,
        rented_usd_per_s=dearer / saved,
    )


def group_rows(answer: FleetAnswer) -> list[tuple[FleetGroup, Plan, float, TrainingReport | StageReport, float]]:
    """Return for each group its plan, its sequences or layers, its report, and the share of the step that it waits."""
    rows = zip(answer.groups, answer.plan.groups, answer.shares, answer.report.groups, answer.report.waits, strict=True)
    return [(group, plan, share, report, float(waits)) for group, plan, share, report, waits in rows]
