"""Shipped calibration: fit to the published runs of the development set, with held-out predictions of every study.

Test-set studies (`hwopt.calibration.holdout`) are not read here; neither shifts nor interval widths depend on them.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.files import write
from hwopt.calibration.fit.observations import Observations, complete, timed_runs
from hwopt.calibration.fit.posterior import Posterior, fit, leave_out
from hwopt.calibration.holdout import in_test_set
from hwopt.calibration.intervals import COVERAGE, MEMORY, TERMS, terms
from hwopt.calibration.validation.score import Scored, cells_of, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.hardware.calibration import Scopes
from results.benchmarks.interval_width import (
    beyond,
    conformal_quantile,
    fit_widths,
    half_widths,
    open_half_widths,
    weighted_quantile,
)

RUNS = Path(str(files("hwopt") / "data" / "runs"))

TABLES = ("train.csv", "train_round2.csv", "train_round2b.csv", "train_round3.csv")
"""Tables of the runs that are fitted."""

COLLECTED = "2026-11"
"""Month to which the runs were collected: the reference date of questions (`hwopt.catalog.dates`)."""

LEAST_STUDIES = 2
"""Minimum number of studies that measured a chip family or software for it to get its own constants.

Thus none of them depends on a single study.
"""

LATEST_YEAR = 2026
"""Year of software from which runs are also predicted with constants fitted to earlier ones alone."""

GENERATIONS = (
    ("A100 from Hopper", ("hopper",), ("ampere",)),
    ("Hopper from A100", ("ampere",), ("hopper",)),
    ("Blackwell from both", ("ampere", "hopper"), ("blackwell",)),
    ("TPU from GPUs", ("volta", "ampere", "hopper", "blackwell", "cdna"), ("tpu",)),
)
"""Name, chip families fitted, chip families predicted."""


@dataclass(frozen=True)
class PublishedFit:
    """The fit to all published runs, with every held-out prediction."""

    observations: Observations
    everything: Posterior
    by_source: np.ndarray  # log predicted step times, with the run's study held out
    sources: dict[str, Posterior]
    by_software: np.ndarray
    by_generation: dict[str, np.ndarray]
    from_earlier: np.ndarray  # of runs of `LATEST_YEAR`, predicted from earlier ones; NaN for these
    features: np.ndarray  # terms of intervals, shape (run, term)
    widths: dict[str, float]
    beyond: np.ndarray  # log error of a run, its study held out, beyond what its unstated settings explain
    half_widths: np.ndarray  # half width of its interval in log units, its study held out of constants and widths

    @property
    def inside(self) -> np.ndarray:
        """Whether a run lies in its interval."""
        return self.beyond <= self.half_widths

    @property
    def interval_scores(self) -> np.ndarray:
        """Interval score of each run in log units: width, plus 2 / (1 - coverage) times what lies outside it.

        The least mean score belongs to the intervals that are as narrow as their coverage allows (Gneiting and Raftery 2007).
        """
        outside = np.maximum(self.beyond - self.half_widths, 0.0)
        return 2.0 * self.half_widths + 2.0 / (1.0 - COVERAGE) * outside


def open_runs() -> Observations:
    """Return the runs of open studies."""
    rows = [row for name in TABLES for row in timed_runs(RUNS / name) if not in_test_set(row.row.source)]
    mark_repeats(rows)
    return Observations.of(rows, least_studies=LEAST_STUDIES)


def fit_published(shipped: catalog.Calibration | None = None) -> PublishedFit:
    """Run all fits; takes ten minutes.

    **Arguments:** `shipped`: constants whose stored leave-one-study-out shifts replace new leave-one-study-out fits.
    """
    observations = open_runs()
    rows, everything = observations.rows, fit(observations)
    if shipped is None:
        by_source, sources = leave_out(observations, observations.sources, everything)
    else:
        by_source, sources = leave_one_study_out(observations, shipped)
    software = np.array([catalog.software_family(stack) for stack in observations.stacks])
    by_software, _ = leave_out(observations, software, everything)
    latest = np.array([(row.row.year or 0) >= LATEST_YEAR for row in rows])
    earlier = fit(observations, np.where(latest, 0.0, observations.weights), start=everything.shifts)
    from_earlier = np.where(latest, earlier.log_predicted_s, np.nan)
    by_generation = {name: across(observations, fitted, predicted) for name, fitted, predicted in GENERATIONS}
    features = known_features(observations, by_source)
    widths, error, half = _widths(observations, features, by_source, by_software, *by_generation.values())
    widths[MEMORY] = _memory_width()
    return PublishedFit(
        observations,
        everything,
        by_source,
        sources,
        by_software,
        by_generation,
        from_earlier,
        features,
        widths,
        error,
        half,
    )


def across(observations: Observations, fitted: Sequence[str], predicted: Sequence[str]) -> np.ndarray:
    """Predict runs with constants fitted to some chip families only; runs of families not in `predicted` are NaN."""
    families = np.array(observations.families)
    others = fit(observations, np.where(np.isin(families, list(fitted)), observations.weights, 0.0))
    return np.where(np.isin(families, list(predicted)), others.log_predicted_s, np.nan)


def leave_one_study_out(
    observations: Observations, shipped: catalog.Calibration
) -> tuple[np.ndarray, dict[str, Posterior]]:
    """Predict each study with the shipped shifts fitted without it; the step-time factors of single sources are 0.

    Calibration files do not contain factors of single sources.
    """
    predicted, found = np.zeros(len(observations.rows)), {}
    for source in sorted(set(observations.sources)):
        known = dict(zip(shipped.scopes.entries, shipped.left_out.get(source, shipped.shifts), strict=True))
        shifts = np.array([known.get(entry, 0.0) for entry in observations.scopes.entries])
        log_predicted_s = observations.log_predicted_s(shifts)
        predicted[observations.sources == source] = log_predicted_s[observations.sources == source]
        found[source] = Posterior(shifts, np.zeros((len(shifts), len(shifts))), log_predicted_s)
    return predicted, found


def known_features(observations: Observations, log_predicted_s: np.ndarray) -> np.ndarray:
    """Return the interval terms of each run with its source held out; a chip family or stack only of that source counts as new.

    **Arguments:** `observations`; `log_predicted_s`: predictions with the source held out.
    """
    literature = catalog.Calibration("", observations.scopes, np.zeros(len(observations.scopes.entries)))
    circumstances, rows = observations.circumstances(log_predicted_s), []
    counting = observations.weights > 0.0
    families, stacks, sources = np.array(observations.families), observations.stacks, observations.sources
    for i, case in enumerate(row.case for row in observations.rows):
        assert case is not None
        on = terms(case.workload, case.architecture, case.stack, literature, of=circumstances[i])
        others = counting & (sources != sources[i])
        on["new_family"] = float(not np.any(others & (families == families[i])))
        on["new_stack"] = float(not np.any(others & (stacks == stacks[i])))
        rows.append([on[name] for name in TERMS])
    return np.array(rows)


def study_weights(observations: Observations) -> np.ndarray:
    """Return run weights for widths and coverage: cells of a study weigh the same, and a study of n cells weighs `sqrt(n)`.

    Functional runs weigh nothing. A study of twenty models counts more than a study of one, but no publisher dominates the
    intervals of all others.
    """
    cells: dict[str, list[list[int]]] = {}
    for members in observations.cells.values():
        tuned = [i for i in members if not observations.functional[i]]
        if tuned:
            cells.setdefault(str(observations.sources[tuned[0]]), []).append(tuned)
    weights = np.zeros(len(observations.rows))
    for each in cells.values():
        for members in each:
            weights[members] = 1.0 / len(members) / np.sqrt(len(each))
    return weights


def _widths(
    observations: Observations,
    features: np.ndarray,
    by_source: np.ndarray,
    by_software: np.ndarray,
    *across_: np.ndarray,
) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Fit interval widths to held-out studies; the terms for new software and chips come from held-out families and
    generations.

    The scale is conformal over studies. Errors of each study are divided by widths fitted without it, as for an unknown study.
    The conformal quantile of these ratios at `COVERAGE` multiplies the widths fitted to all studies.

    **Returns:** widths; errors of runs beyond what unstated settings explain, and the half widths of their intervals, with
    their study held out of everything except that factor.
    """
    counted, open_ = study_weights(observations), open_half_widths(observations)
    error = beyond(by_source - observations.log_measured_s, open_)
    errors, inputs, weights, groups = [error], [features], [counted], [observations.sources]
    for predicted, term in ((by_software, "new_stack"), *((each, "new_family") for each in across_)):
        known = np.isfinite(predicted)
        more = known_features(observations, predicted)[known]
        more[:, TERMS.index(term)] = 1.0
        errors.append(beyond(predicted - observations.log_measured_s, open_)[known])
        inputs.append(more)
        weights.append(0.25 * counted[known])
        groups.append(observations.sources[known])
    all_errors, all_inputs = np.concatenate(errors), np.concatenate(inputs)
    all_weights, of_source = np.concatenate(weights), np.concatenate(groups)
    widths = fit_widths(all_errors, all_inputs, all_weights)
    half = np.zeros(len(error))
    for source in sorted(set(observations.sources)):
        own = observations.sources == source
        without = fit_widths(all_errors, all_inputs, all_weights * (of_source != source))
        half[own] = half_widths(without, features[own])
    scale = conformal_quantile(error / half, counted, observations.sources)
    widths["base"] += float(np.log(scale))
    return widths, error, scale * half


def scored_literature(name: str) -> list[Scored]:
    """Score the rows of a shipped table with literature constants."""
    return score(RUNS / name, catalog.calibration(catalog.LITERATURE), cases=False).scored


def _memory_width() -> float:
    """Return the half width of a chip's peak memory: quantile of published measurements' errors, with equal weight per cell."""
    rows = scored_literature("memory.csv")
    weights = np.zeros(len(rows))
    for members in cells_of(rows).values():
        weights[members] = 1.0 / len(members)
    return weighted_quantile(np.array([abs(np.log1p(row.error)) for row in rows]), weights)


def save(evidence: PublishedFit, path: Path) -> None:
    """Write the file of the constants."""
    observations = evidence.observations
    fitted = int(np.sum(observations.weights > 0.0))
    cells = len({row.cell for row in observations.rows if complete(row) and not row.left_out})
    families, stacks = ", ".join(sorted(set(observations.families))), len(set(observations.stacks))
    title = (
        f"{fitted} published training runs in {cells} cells, to {datetime.date.fromisoformat(COLLECTED + '-01'):%B %Y}"
    )
    note = f"families of chips: {families}; {stacks} stacks; made by python -m results.benchmarks.accuracy"
    shown = ~observations.scopes.of_sources  # shifts of single sources do not transfer to others
    entries = tuple(entry for entry, on in zip(observations.scopes.entries, shown, strict=True) if on)
    everything = evidence.everything
    left_out = {source: each.shifts[shown] for source, each in evidence.sources.items()}
    fit = (Scopes(entries), everything.shifts[shown], everything.sd[shown], left_out)
    write(path, catalog.Calibration(title, *fit, evidence.widths, note, fitted, date=COLLECTED))
