"""The shipped calibration: fits the published runs of open studies, and predicts each by constants that have not seen it.

Locked studies (`hwopt.calibration.holdout`) are not read here: neither shifts nor widths of intervals know them.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.files import write
from hwopt.calibration.fit.interval_width import beyond, conformal_quantile, fit_widths, half_widths, weighted_quantile
from hwopt.calibration.fit.observations import Observations, complete, timed_runs
from hwopt.calibration.fit.posterior import Posterior, across, fit, leave_out
from hwopt.calibration.holdout import in_test_set
from hwopt.calibration.intervals import MEMORY, TERMS, terms
from hwopt.calibration.validation.score import Scored, cells_of, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.hardware.calibration import Scopes

RUNS = Path(str(files("hwopt") / "data" / "runs"))

TABLES = ("train.csv", "train_round2.csv")
"""Of runs that are fitted."""

LEAST_STUDIES = 2
"""That must have run a chip's family or software before either gets constants of its own: none is known to one source."""

GENERATIONS = (
    ("A100 from Hopper", ("hopper",), ("ampere",)),
    ("Hopper from A100", ("ampere",), ("hopper",)),
    ("Blackwell from both", ("ampere", "hopper"), ("blackwell",)),
    ("TPU from GPUs", ("volta", "ampere", "hopper", "blackwell", "cdna"), ("tpu",)),
)
"""Name, families of chips fitted, families of chips predicted."""


@dataclass(frozen=True)
class PublishedFit:
    """The fit to all published runs, and every prediction that was made without seeing what it predicts."""

    observations: Observations
    everything: Posterior
    by_source: np.ndarray  # logarithms of predicted step times
    sources: dict[str, Posterior]
    by_software: np.ndarray
    by_generation: dict[str, np.ndarray]
    features: np.ndarray  # of intervals, shape (run, term)
    widths: dict[str, float]
    inside: np.ndarray  # whether a run lies inside an interval whose constants and widths have not seen its study


def fit_published(shipped: catalog.Calibration | None = None) -> PublishedFit:
    """All fits. A minute or two.

    **Arguments:** `shipped` constants, whose shifts without each study then predict it, in place of fits made anew.
    """
    rows = [row for name in TABLES for row in timed_runs(RUNS / name) if not in_test_set(row.row.source)]
    mark_repeats(rows)
    observations = Observations.of(rows, least_studies=LEAST_STUDIES)
    everything = fit(observations)
    if shipped is None:
        by_source, sources = leave_out(observations, observations.sources, everything)
    else:
        by_source, sources = leave_one_study_out(observations, shipped)
    software = np.array([catalog.software_family(stack) for stack in observations.stacks])
    by_software, _ = leave_out(observations, software, everything)
    by_generation = {name: across(observations, fitted, predicted) for name, fitted, predicted in GENERATIONS}
    features = known_features(observations, by_source)
    widths, inside = _widths(observations, features, by_source, by_software, *by_generation.values())
    widths[MEMORY] = _memory_width()
    return PublishedFit(
        observations, everything, by_source, sources, by_software, by_generation, features, widths, inside
    )


def leave_one_study_out(
    observations: Observations, shipped: catalog.Calibration
) -> tuple[np.ndarray, dict[str, Posterior]]:
    """Predictions of each study by shipped shifts that have not seen it; levels of single sources, which no file holds, are 0."""
    predicted, found = np.zeros(len(observations.rows)), {}
    for source in sorted(set(observations.sources)):
        known = dict(zip(shipped.scopes.entries, shipped.left_out.get(source, shipped.shifts), strict=True))
        shifts = np.array([known.get(entry, 0.0) for entry in observations.scopes.entries])
        log_predicted_s = observations.log_predicted_s(shifts)
        predicted[observations.sources == source] = log_predicted_s[observations.sources == source]
        found[source] = Posterior(shifts, np.zeros((len(shifts), len(shifts))), log_predicted_s)
    return predicted, found


def known_features(observations: Observations, log_predicted_s: np.ndarray) -> np.ndarray:
    """Terms of each run's interval under a fit without its source: a family or a stack that only it ran is new.

    **Arguments:** `observations`; `log_predicted_s` of that fit.
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
    """Weights of runs in widths and coverage: every cell of a study the same, a study of n cells `sqrt(n)`.

    So a study of twenty models says more than one of one, and no publisher decides what all others' intervals are.
    """
    cells: dict[str, list[list[int]]] = {}
    for members in observations.cells.values():
        cells.setdefault(str(observations.sources[members[0]]), []).append(members)
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
) -> tuple[dict[str, float], np.ndarray]:
    """Widths from studies left out, and what new software and new chips add from families and generations left out.

    The scale is conformal over studies: with widths fitted without a study, too, its errors over their widths are what a
    stranger's would be; their conformal quantile at `COVERAGE` is what the widths fitted to all are multiplied by.

    **Returns:** widths; which runs lie inside intervals that have seen nothing of their study but that one factor.
    """
    counted, open_ = study_weights(observations), observations.open_half_widths
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
    ratio = np.zeros(len(error))
    for source in sorted(set(observations.sources)):
        own = observations.sources == source
        without = fit_widths(all_errors, all_inputs, all_weights * (of_source != source))
        ratio[own] = error[own] / half_widths(without, features[own])
    scale = conformal_quantile(ratio, counted, observations.sources)
    widths["base"] += float(np.log(scale))
    return widths, ratio <= scale


def scored_literature(name: str) -> list[Scored]:
    """Rows of a shipped table, predicted with the constants of the literature."""
    return score(RUNS / name, catalog.calibration(catalog.LITERATURE), cases=False).scored


def _memory_width() -> float:
    """Half width of a chip's peak memory: the quantile of errors of published measurements, every cell weighing the same."""
    rows = scored_literature("memory.csv")
    weights = np.zeros(len(rows))
    for members in cells_of(rows).values():
        weights[members] = 1.0 / len(members)
    return weighted_quantile(np.array([abs(np.log1p(row.error)) for row in rows]), weights)


def save(evidence: PublishedFit, path: Path) -> None:
    """Writes the constants' file."""
    observations = evidence.observations
    fitted = int(np.sum(observations.weights > 0.0))
    cells = len({row.cell for row in observations.rows if complete(row) and not row.left_out})
    families, stacks = ", ".join(sorted(set(observations.families))), len(set(observations.stacks))
    title = f"{fitted} published training runs in {cells} cells, to November 2026"
    note = f"families of chips: {families}; {stacks} stacks; made by python -m results.benchmarks.accuracy"
    shown = ~observations.scopes.of_sources  # what a source has of its own says nothing of others
    entries = tuple(entry for entry, on in zip(observations.scopes.entries, shown, strict=True) if on)
    everything = evidence.everything
    left_out = {source: each.shifts[shown] for source, each in evidence.sources.items()}
    fit = (Scopes(entries), everything.shifts[shown], everything.sd[shown], left_out)
    write(path, catalog.Calibration(title, *fit, evidence.widths, note, fitted))
