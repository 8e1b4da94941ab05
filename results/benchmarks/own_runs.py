"""A few runs of a source given, its others predicted: how far one's own runs help. Run from the top of a checkout:

    python -m results.benchmarks.own_runs

Ten minutes, after `accuracy.py`, whose constants it starts at. Every open source with `FEWEST` runs or more on one accelerator
and stack; the constants start from a fit that has not seen the source. Rewrites `hwopt/data/calibrations/own_runs.toml`, the
half widths after one's own runs and after an anchor, and `results/reference/own_runs.txt`. An anchor is one run, or several, that
scale the time of a step as a whole: of every cluster (source, model, accelerator, stack, number of chips) with `FEWEST_PLANS`
plans or more, each plan in turn, or three spread over its table, the others predicted.

Tried besides, after three runs (143 cells, median 6.6 and mean 12.6 %): an own time of a step or passes of the optimizer change
neither, an own time of hosts makes the mean 12.7; tails of the own level as heavy as those of sources (0.13) 6.5 and 12.4; what
the fit leaves of the runs given carried to plans like them (kriging) 6.4 and 12.0, its constants chosen without the study.
Not built: the last wants the runs given at every estimate. 2.4 points of that mean were six cells of Gaudi's fine-tuning scripts,
whose runs of eight chips are two to four times slower for reasons that three runs do not tell apart; the table now lists such
functional runs by themselves. Of services, what three runs of a model on a chip leave carried to plans like them (kriging) gives
median 9.8 and mean 13.4 % instead of 11.3 and 13.3 (62 cells), and three runs of other models on the same machine do not help.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from hwopt import catalog
from hwopt.calibration.fit.observations import Observations, complete, timed_runs
from hwopt.calibration.fit.posterior import fit
from hwopt.calibration.fit.transfer import own_features, own_prior, own_weights, residual_rms
from hwopt.calibration.holdout import in_test_set, study_of
from hwopt.calibration.intervals import COVERAGE, PredictionContext, terms
from hwopt.calibration.validation.join import input_form
from hwopt.calibration.validation.score import Cell, Scored, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.catalog import Calibration
from hwopt.catalog.calibrations import MOST_ANCHORS
from hwopt.hardware.calibration import CONSTANTS, OWN, Scopes
from results.benchmarks.interval_width import beyond, conformal_quantile, open_half_widths, weighted_quantile
from results.benchmarks.published_fit import RUNS, TABLES

FEWEST = 6
"""Runs of a source on one machine from which on some are given and the others predicted."""

GIVEN = (1, 3, 10)

FEWEST_PLANS = 4
"""Plans of a cluster from which on one anchors the others."""

WEIGHTS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Exponents of measured over predicted that are tried for the level of an anchor of one run."""

ANCHORS = (1, MOST_ANCHORS)
"""Numbers of runs of an anchor."""

STARTS = (0.0, 0.33, 0.67)
"""Where in a source's rows the choice of given runs begins: the first is what the table shows, the widths know all."""

FEATURES = ("log_runs", "single", "log_residual", "published")

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "hwopt" / "data" / "calibrations" / "own_runs.toml"
REPORT = ROOT / "results" / "reference" / "own_runs.txt"

_ROOM = 32  # runs of a source are filled up to multiples of it, so that few programs are compiled
_RIDGE = 1e-3


def published_log_width(row: Scored, base: Calibration, of: PredictionContext, without: str = "") -> float:
    """Return the log half width of a run's step time from published errors alone; `of` and `without` as in `terms`."""
    case, widths = row.case, base.intervals
    assert case is not None
    on = terms(case.workload, case.architecture, case.stack, base, without, of)
    return widths["base"] + sum(widths.get(name, 0.0) * x for name, x in on.items())


@dataclass(frozen=True)
class Trial:
    """Some runs of a source on a machine given, its others predicted."""

    source: str
    first: bool  # given runs start at the first of the source
    given: int
    rows: tuple[Scored, ...]  # predicted
    log_ratio: np.ndarray  # predicted over measured
    before: np.ndarray  # the same with nothing given
    open_: np.ndarray  # half widths that open fields alone make
    features: np.ndarray  # of the half width, shape (run, feature)


def spread(rows: Sequence[Scored], count: int, first: int = 0) -> list[int]:
    """Runs spread over plans: one, then always the one farthest from those chosen, in logarithms of degrees, batch, sequence and
    chips; another format or model counts as a factor of e.
    """
    numbers, words = zip(*((_numbers(each), _words(each)) for each in rows), strict=True)
    at, chosen = np.array(numbers), [first]
    nearest = np.full(len(rows), math.inf)
    while len(chosen) < count:
        last = chosen[-1]
        differ = [sum(a != b for a, b in zip(each, words[last], strict=True)) for each in words]
        nearest = np.minimum(nearest, ((at - at[last]) ** 2).sum(axis=1) + differ)
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return chosen


def _numbers(scored: Scored) -> tuple[float, ...]:
    row = scored.row
    each = (row.tp, row.pp, row.micro_batch, row.global_batch_sequences, row.seq_len, row.num_gpus)
    return tuple(math.log(x) if x else 0.0 for x in each)


def _words(scored: Scored) -> tuple[str | None, str]:
    return scored.row.number_format, scored.row.model_name


def sources() -> dict[tuple[str, str, str], list[Scored]]:
    """Runs of open studies that count, by (study, accelerator, stack)."""
    rows = [row for name in TABLES for row in timed_runs(RUNS / name) if not in_test_set(row.row.source)]
    mark_repeats(rows)
    groups: dict[tuple[str, str, str], list[Scored]] = defaultdict(list)
    for row in rows:
        if not row.left_out:
            groups[study_of(row.row.source), row.accelerator, row.stack].append(row)
    return {key: each for key, each in groups.items() if len(each) >= FEWEST}


def trials(rows: Sequence[Scored], starts: Sequence[float] = STARTS) -> Iterator[Trial]:
    """Each number of given runs, from each start, for the runs of one source on one machine."""
    base = catalog.calibration()
    assert base is not None
    source = study_of(rows[0].row.source)
    own = [(constant.name, OWN) for constant in CONSTANTS if OWN in constant.prior]
    scopes = Scopes((*base.scopes.entries, *own))
    mean, sd = own_prior(base, scopes)
    mean[: len(base.shifts)] = base.left_out.get(source, base.shifts)
    filled = list(rows) + [rows[0]] * (-len(rows) % _ROOM)
    observations = Observations.of(filled, scopes=scopes)
    before = observations.log_predicted_s(mean) - observations.log_measured_s
    for start in starts:
        for count in GIVEN:
            if count >= len(rows) - 1:
                continue
            given = spread(rows, count, int(start * len(rows)))
            weights = np.zeros(len(filled))
            weights[given] = own_weights([rows[i] for i in given])
            weights[given] = np.where(weights[given] > 0.0, weights[given], 1.0)  # doubtful rows are given, too
            posterior = fit(observations, weights, start=mean, prior_mean=mean, prior_sd=sd)
            log_ratio = posterior.log_predicted_s - observations.log_measured_s
            others = [i for i in range(len(rows)) if i not in set(given)]
            configurations = len({(rows[i].cell, rows[i].row.configuration) for i in given})
            residual = residual_rms(log_ratio[given], weights[given])
            alike = own_features(float(weights[given].sum()), configurations, residual)
            after = observations.circumstances(posterior.log_predicted_s)
            each = [alike | {"published": published_log_width(rows[i], base, after[i], source)} for i in others]
            features = np.array([[of[name] for name in FEATURES] for of in each])
            predicted = tuple(rows[i] for i in others)
            open_ = open_half_widths(observations)[others]
            yield Trial(source, start == 0.0, count, predicted, log_ratio[others], before[others], open_, features)


def all_trials() -> list[Trial]:
    """Of every source. Some minutes."""
    return [trial for rows in sources().values() for trial in trials(rows)]


def _stacked(trials: Sequence[Trial]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Errors, features, weights and studies of all predicted runs: cells of a trial count the same, n of them as `sqrt(n)`."""
    weights = []
    for trial in trials:
        cells = Counter(row.cell for row in trial.rows)
        weights.append(np.array([1.0 / cells[row.cell] for row in trial.rows]) / math.sqrt(len(cells)))
    errors = np.concatenate([beyond(trial.log_ratio, trial.open_) for trial in trials])
    features = np.concatenate([trial.features for trial in trials])
    return errors, features, np.concatenate(weights), np.repeat(
        [trial.source for trial in trials], [len(trial.rows) for trial in trials]
    )  # fmt: skip


def fit_widths(errors: np.ndarray, features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Half widths `exp(b . x)` that hold `COVERAGE` of the errors: least pinball loss.

    **Returns:** base and coefficients of `FEATURES`.
    """
    x = np.column_stack([np.ones(len(errors)), features])
    share = weights / weights.sum() / 0.1

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        width = np.exp(np.clip(x @ b, -8.0, 2.0))  # a line search may try anything
        over = errors - width
        slope = np.where(over > 0.0, -COVERAGE, 1.0 - COVERAGE)
        pull = np.r_[0.0, b[1:]]
        return float(share @ (-slope * over) + _RIDGE / 2.0 * pull @ pull), x.T @ (
            share * slope * width
        ) + _RIDGE * pull

    start = np.r_[math.log(weighted_quantile(errors, weights)), np.zeros(features.shape[1])]
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    found[0] += math.log(weighted_quantile(errors / np.exp(x @ found), weights))
    return found


def half_widths(coefficients: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Half widths of runs with these features."""
    return np.exp(coefficients[0] + features @ coefficients[1:])


def nested(trials: Sequence[Trial]) -> list[np.ndarray]:
    """Half widths of each trial, from widths fitted without its study."""
    errors, features, weights, names = _stacked(trials)
    without = {name: fit_widths(errors, features, weights * (names != name)) for name in set(names)}
    return [half_widths(without[trial.source], trial.features) for trial in trials]


def shipped(trials: Sequence[Trial]) -> np.ndarray:
    """The widths: fitted to all trials, scaled so that those of a study left out hold `COVERAGE` (conformal over studies)."""
    errors, features, weights, names = _stacked(trials)
    found = fit_widths(errors, features, weights)
    found[0] += math.log(conformal_quantile(errors / np.concatenate(nested(trials)), weights, names))
    return found


def absolute_errors(rows: Sequence[Scored], log_ratio: np.ndarray) -> np.ndarray:
    """|predicted - measured| / measured of what each run measures."""
    return np.abs(np.expm1(np.where([row.metric.rate for row in rows], -log_ratio, log_ratio)))


def own_runs_table(trials: Sequence[Trial]) -> str:
    """The table as text: errors over cells of complete rows, bias of step times, half widths and how many rows they hold.

    Widths have not seen the study that they are of.
    """
    tried = [each for each in zip(trials, nested(trials), strict=True) if each[0].first]
    head = f"{'cells':>6}{'rows':>6}{'before: median':>16}{'mean':>7}{'after: median':>15}{'mean':>7}{'time':>8}{'half width':>12}"
    head += f"{'hold: of cells':>16}{'of rows':>9}"
    lines = [
        f"Every open source with {FEWEST} rows or more on one accelerator and stack: some given, spread over plans, the others",
        "predicted by constants fitted without the source, and those rows. Over cells (source, model, accelerator) of complete",
        "rows, tuned unless a line says functional. Half widths have not seen the study that they are of.",
        "asked of 3 given: median 6.5 %, mean 11.5 %, 80 % intervals that hold 70 to 90 %",
        "",
        f"{'given':60}{head}",
        *(_line(str(count), [each for each in tried if each[0].given == count]) for count in GIVEN),
        _line("3, functional runs", [each for each in tried if each[0].given == 3], functional=True),
        "",
        f"{'3 given, by source':60}{head}",
    ]
    of_three = [each for each in tried if each[0].given == 3]
    for machine in sorted({(trial.source, trial.rows[0].accelerator, trial.rows[0].stack) for trial, _ in of_three}):
        each = [(t, h) for t, h in of_three if (t.source, t.rows[0].accelerator, t.rows[0].stack) == machine]
        if any(_tuned(row) for row in each[0][0].rows):
            lines.append(_line(f"{machine[0][:30]:31} {machine[1][:13]} {machine[2][:15]}", each))
    return "\n".join(line.rstrip() for line in lines) + "\n"


class Plan(NamedTuple):
    """One plan of a cluster, predicted by constants that have not seen its source."""

    source: str
    counts: bool  # whether its cluster counts in the table
    rate: bool
    log_ratio: float  # predicted over measured time
    open_: float  # half width that open fields alone make
    published: float  # log half width without an anchor


Clusters = dict[tuple, list[Plan]]


def training_clusters() -> Clusters:
    """Plans of open training runs, by cluster."""
    base = catalog.calibration()
    assert base is not None
    rows = [row for name in TABLES for row in timed_runs(RUNS / name) if not in_test_set(row.row.source)]
    mark_repeats(rows)
    alike: dict[tuple, list[Scored]] = defaultdict(list)
    for row in rows:
        if not row.left_out and row.case is not None:
            inputs = (row.case.workload, row.case.cluster, row.case.plan)
            alike[study_of(row.row.source), input_form(inputs)].append(row)
    plans: dict[tuple, dict[tuple, Plan]] = defaultdict(dict)
    for (source, _), each in alike.items():
        observations = Observations.of(each + [each[0]] * (-len(each) % _ROOM), scopes=Scopes(base.scopes.entries))
        predicted = observations.log_predicted_s(base.left_out.get(source, base.shifts))
        ratios, around = predicted - observations.log_measured_s, observations.circumstances(predicted)
        for row, ratio, of, half in zip(each, ratios, around, open_half_widths(observations), strict=False):
            width = published_log_width(row, base, of, source)
            plan = Plan(source, _tuned(row), row.metric.rate, float(ratio), float(half), width)
            plans[source, *row.cell[1:], row.stack, row.row.num_gpus].setdefault(row.row.configuration, plan)
    return {key: list(each.values()) for key, each in plans.items() if len(each) >= FEWEST_PLANS}


def service_clusters(paths: Sequence[Path] = (RUNS / "inference.csv",)) -> Clusters:
    """Measured services, by cluster (source, model, accelerator, chips); one row of each configuration."""
    base = catalog.calibration()
    plans: dict[tuple, dict[tuple, Plan]] = defaultdict(dict)
    for row in (each for path in paths for each in score(path, base).scored):
        if row.left_out or row.interval is None:
            continue
        half = 0.5 * math.log(row.interval[1] / row.interval[0])
        plan = Plan(study_of(row.row.source), True, row.metric.rate, math.log(row.time_ratio), 0.0, math.log(half))
        plans[*row.cell, row.row.num_gpus].setdefault((row.row.measured_metric, row.row.configuration), plan)
    return {key: list(each.values()) for key, each in plans.items() if len(each) >= FEWEST_PLANS}


def prior_runs(weight: float) -> float:
    """Number of runs that the constants count as, where one run has a weight."""
    return 1.0 / max(weight, 1e-9) - 1.0


def _given(plans: Sequence[Plan], runs: int) -> np.ndarray:
    """Whether each plan is among those given, by (choice, plan): each in turn is the first, the others spread over the table."""
    found = np.zeros((len(plans), len(plans)), dtype=bool)
    for i, j in itertools.product(range(len(plans)), range(runs)):
        found[i, (i + j * len(plans) // runs) % len(plans)] = True
    return found


def anchored(clusters: Clusters, weight: float, runs: int) -> dict[tuple, tuple[np.ndarray, np.ndarray]]:
    """Each cluster's (choice of given plans, other plan): log ratio after the anchor, absolute error of what is measured.

    **Arguments:** `weight`: of an anchor of one run; `runs`: given ones.
    """
    found = {}
    for key, plans in clusters.items():
        ratio, given = np.array([plan.log_ratio for plan in plans]), _given(plans, runs)
        level = given @ ratio / (runs + prior_runs(weight))
        after = ratio[None, :] - level[:, None]
        rate = np.array([plan.rate for plan in plans])
        found[key] = after[~given], np.abs(np.expm1(np.where(rate[None, :], -after, after)))[~given]
    return found


def _others(plans: Sequence[Plan], field: str, runs: int) -> np.ndarray:
    """A field of the other plan, by (choice of given plans, other plan)."""
    return np.tile([getattr(plan, field) for plan in plans], (len(plans), 1))[~_given(plans, runs)]


def _scaled(errors: np.ndarray, features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Half widths as a share of those without an anchor, for each number of runs: services have few studies."""
    log_runs = features[:, 1]
    of = lambda on: math.log(weighted_quantile(errors[on] / np.exp(features[on, 0]), weights[on]))
    base, most = of(log_runs == 0.0), log_runs.max()
    return np.array([base, 1.0, min(of(log_runs == most) - base, 0.0) / most])


Choice = tuple[tuple, int]
"""Cluster and number of given runs."""


def anchor_widths(clusters: Clusters, weight: float, training: bool) -> tuple[np.ndarray, dict[Choice, np.ndarray]]:
    """Coefficients (base, published, log runs) of half widths after an anchor; those of each cluster, fitted without its study."""
    fit_to = fit_widths if training else _scaled
    errors, features, open_, sources = {}, {}, {}, {}
    for runs in ANCHORS:
        after = anchored(clusters, weight, runs)
        for key, plans in clusters.items():
            open_[key, runs] = _others(plans, "open_", runs)
            errors[key, runs] = beyond(after[key][0], open_[key, runs])
            published = _others(plans, "published", runs)
            features[key, runs] = np.column_stack([published, np.full(len(published), math.log(runs))])
            sources[key, runs] = plans[0].source
    names = np.concatenate([np.repeat(sources[key], len(each)) for key, each in errors.items()])
    e, x = np.concatenate(list(errors.values())), np.concatenate(list(features.values()))
    w = np.concatenate([np.full(len(each), 1.0 / len(each)) for each in errors.values()])
    without = {name: fit_to(e, x, w * (names != name)) for name in set(names)}
    widths = {key: np.hypot(half_widths(without[sources[key]], features[key]), open_[key]) for key in errors}
    return fit_to(e, x, w), widths


def anchor_table(name: str, clusters: Clusters, training: bool) -> tuple[list[str], dict[str, float]]:
    """The table of an anchor as lines; weight with the least mean error and coefficients of half widths."""

    def errors(weight: float, runs: int) -> np.ndarray:
        after = anchored(clusters, weight, runs)
        return np.array([after[key][1].mean() for key, plans in clusters.items() if any(plan.counts for plan in plans)])

    of_both = lambda weight: sum(errors(weight, runs).mean() for runs in ANCHORS)
    head = f"{'clusters':>9}{'plans':>7}{'median':>9}{'mean':>8}{'half width':>12}{'hold: of clusters':>19}"
    lines, best = [], min(WEIGHTS, key=of_both)
    found, widths = anchor_widths(clusters, best, training)
    for runs in ANCHORS:
        lines += ["", f"{f'anchor of {runs}, {name}: weight of one run':60}{head}"]
        half = 100 * math.expm1(np.median([np.median(widths[key, runs]) for key in clusters]))
        after = anchored(clusters, best, runs)
        inside = np.mean([(np.abs(after[key][0]) <= widths[key, runs]).mean() for key in clusters])
        for weight in WEIGHTS:
            of, plans = errors(weight, runs), sum(map(len, clusters.values()))
            line = f"{weight:<60.1f}{len(of):9}{plans:7}{100 * np.median(of):8.1f}%{100 * of.mean():7.1f}%"
            lines.append(line + (f"{half:11.1f}%{100 * inside:18.1f}%" if weight == best else ""))
    return lines, dict(
        zip(("prior_runs", "base", "published", "log_runs"), (prior_runs(best), *map(float, found)), strict=True)
    )


def _tuned(row: Scored) -> bool:
    return complete(row) and not row.functional


def _line(name: str, tried: Sequence[tuple[Trial, np.ndarray]], functional: bool = False) -> str:
    """Trials over cells."""
    cells: dict[Cell, list[tuple[float, float, float, float, bool]]] = defaultdict(list)
    for trial, half in tried:
        errors = [absolute_errors(trial.rows, of) for of in (trial.before, trial.log_ratio)]
        widened = np.hypot(half, trial.open_)
        columns = (*errors, trial.log_ratio, widened, np.abs(trial.log_ratio) <= widened)
        for row, *each in zip(trial.rows, *columns, strict=True):
            if complete(row) and row.functional == functional:
                cells[row.cell].append((each[0], each[1], each[2], each[3], each[4]))
    before, after, bias, half, inside = np.array([np.mean(each, axis=0) for each in cells.values()]).T
    held = np.array([held for each in cells.values() for *_, held in each])
    return (
        f"{name:60}{len(after):6}{len(held):6}{100 * np.median(before):15.1f}%{100 * before.mean():6.1f}%"
        f"{100 * np.median(after):14.1f}%{100 * after.mean():6.1f}%{100 * math.expm1(bias.mean()):+7.1f}%"
        f"{100 * math.expm1(np.median(half)):11.1f}%{100 * inside.mean():15.1f}%{100 * held.mean():8.1f}%"
    )


def save(coefficients: np.ndarray, anchors: dict[str, dict[str, float]]) -> None:
    """Writes the widths' file. `anchors`: weight and half widths after an anchor, by the name of their table."""
    head = [
        "# Half widths of step times, in the logarithm, after a few runs of one's own, that hold four measured values in five:",
        "# exp(base + log_runs ln n + single (of one configuration) + log_residual ln(what the fit leaves)",
        "# + published ln(half width before)).",
        "# After an anchor: exp(base + published ln(half width before) + log_runs ln n); the level is",
        "# (measured / predicted)^(n / (n + prior_runs)).",
        "# Written by python -m results.benchmarks.own_runs.",
        "[half_widths]",
    ]
    values = [f"{name} = {value:.4f}" for name, value in zip(("base", *FEATURES), coefficients, strict=True)]
    for table, each in anchors.items():
        values += ["", f"[{table}]", *(f"{name} = {value:.4f}" for name, value in each.items())]
    TABLE.write_text("\n".join([*head, *values]) + "\n", encoding="utf-8")


def anchors() -> tuple[list[str], dict[str, dict[str, float]]]:
    """The tables of anchors as lines, and the numbers of their half widths."""
    training, of_training = anchor_table("training", training_clusters(), True)
    services, of_services = anchor_table("services", service_clusters(), False)
    said = [
        "",
        f"Every cluster (source, model, accelerator, stack, chips) of open sources with {FEWEST_PLANS} plans or more: each plan in",
        "turn is the anchor, alone or with two others that are spread over the cluster's table. The others are predicted by",
        "constants fitted without the source (services: with their constants), times (measured / predicted)^weight. Mean absolute",
        "error of a cluster, over clusters; median half width; half widths have not seen the study. Weight 0 is without an anchor;",
        "a weight w of one run means n / (n + 1/w - 1) of n. Asked of the best: median 10 %, of three runs 6.5 and mean 11.5 %",
        "(services 9 and 14); 80 % intervals that hold 70 to 90 %.",
    ]
    return [*said, *training, *services], {"anchored": of_training, "anchored_service": of_services}


def main() -> None:
    tried, (lines, numbers) = all_trials(), anchors()
    save(shipped(tried), numbers)
    text = own_runs_table(tried) + "\n".join(line.rstrip() for line in lines) + "\n"
    REPORT.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
