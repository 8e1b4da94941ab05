"""Fits the shipped calibration, judges it, and writes constants, table and figure. Run from the top of a checkout:

    python -m results.benchmarks.accuracy           # after a change of what is fitted
    python -m results.benchmarks.accuracy --table   # table and figure alone, by the shipped constants, which stay
    python -m results.benchmarks.accuracy --moved OLD.toml   # list of constants alone, since an older file of constants

A quarter of an hour. Every test of the table is on runs that the constants have not seen; targets are next to it, and the
worst cells are explained. Rewrites `hwopt/data/calibrations/published.toml`, `results/reference/accuracy.txt` and
`results/figures/accuracy.png`. A fit also writes `results/reference/constants.txt`, the list of constants that moved.
`refit`, whose first step this is, regenerates the results that depend on the constants.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.observations import Observations, complete
from hwopt.calibration.fit.options import FIT
from hwopt.calibration.fit.posterior import fit
from hwopt.calibration.holdout import study_of
from hwopt.calibration.intervals import TERMS
from hwopt.calibration.validation.score import (
    Cell,
    CellErrors,
    Scored,
    cells_of,
    fit_baseline,
    release_spread,
    release_trend,
)
from hwopt.catalog.names import data_root
from hwopt.hardware.calibration import OWN, Scopes
from hwopt.output.figures.accuracy import plot_accuracy
from results.benchmarks import peak_memory, plan_ranking, release
from results.benchmarks.published_fit import (
    LATEST_YEAR,
    RUNS,
    PublishedFit,
    fit_published,
    save,
    scored_literature,
    study_weights,
)

ROOT = Path(__file__).parents[2]

POOR = 0.18
"""Error of a cell from which it is explained by name."""


@cache
def explanations() -> tuple[tuple[str, str, str, str], ...]:
    """(source, model, accelerator, why a cell of theirs is predicted poorly); `*` stands for any text."""
    with (data_root() / "calibrations" / "explained.csv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return tuple((row["source"], row["model"], row["accelerator"], row["why"]) for row in rows)


def explanation(cell: Cell) -> str:
    """Why a cell is predicted poorly, as far as that is known."""
    known = (why for *patterns, why in explanations() if all(map(fnmatchcase, cell, patterns)))
    return next(known, "not explained")


def _line(name: str, errors: CellErrors, asked: str = "") -> str:
    """A test over cells."""
    if not errors.cells:
        return f"{name:44} no runs"
    median, mean, _, signed, bias = (100 * (x or 0.0) for x in errors[1:6])
    return f"{name:44}{errors.cells:5}{errors.rows:6}{median:8.1f}%{mean:7.1f}%{signed:+7.1f}%{bias:+7.1f}%   {asked}"


def _row_line(name: str, errors: np.ndarray, asked: str = "") -> str:
    """A test over rows."""
    if not len(errors):
        return f"{name:44} no runs"
    absolute = np.abs(errors)
    return (
        f"{name:44}{'':5}{len(errors):6}{100 * np.median(absolute):8.1f}%{100 * absolute.mean():7.1f}%"
        f"{100 * errors.mean():+7.1f}%   max {100 * absolute.max():.1f}%   {asked}"
    )


def accuracy_table(evidence: PublishedFit) -> str:
    """The whole table as text."""
    observations, source, fitted = evidence.observations, evidence.by_source, evidence.everything.log_predicted_s
    rows, errors = observations.rows, observations.errors(source)
    counting = np.array([not row.left_out for row in rows])
    moe = evidence.features[:, TERMS.index("moe")] > 0.0
    sources = [name.lower() for name in observations.sources]
    of = lambda words: counting & np.array([words in name for name in sources])
    literature = observations.log_predicted_s(np.zeros(len(observations.scopes.entries)))
    tuned, latest = ~observations.functional, np.isfinite(evidence.from_earlier)
    cells = lambda name, predicted, asked="", runs=True: _line(
        name, observations.over_cells(predicted, tuned & runs), asked
    )
    head = f"{'':44}{'cells':>5}{'rows':>6}{'median':>9}{'mean':>8}{'signed':>8}{'time':>8}   asked"
    lines = [
        *_release_lines(),
        "",
        "Measured against predicted step times and rates, per cell (source, model, accelerator), then over cells; open studies.",
        "Complete plans of quality A to B+; latest release only. signed: of what was measured; time: of step times, + too slow.",
        "Tuned runs, unless a line says functional: regression tests, verification cards and fine-tuning examples.",
        "The structure was chosen with these studies in view.",
        "",
        "Constants that have not seen what they predict",
        head,
        cells("one study left out", source, "locked: median 12, mean 17, time 5"),
        cells("  experts (MoE)", source, "", moe),
        cells("  dense", source, "", ~moe),
        cells("  all but AWS's dispatchers and Gaudi", source, "", ~of("awslabs") & ~of("habana")),
        cells(f"fitted to runs before {LATEST_YEAR}, later ones", evidence.from_earlier, "median 17, mean 23", latest),
        cells("  without AWS's dispatchers", evidence.from_earlier, "", latest & ~of("awslabs")),
        cells("one software family left out", evidence.by_software),
        *(cells(name, predicted) for name, predicted in evidence.by_generation.items()),
        "",
        "Beside them",
        head,
        cells("fitted: the same runs", fitted),
        cells("literature constants, nothing fitted", literature),
        *_baseline_lines(observations),
        _line("functional runs, one study left out", observations.over_cells(source, ~tuned)),
        "",
        *_trend_lines(observations),
        "",
        *_group_lines(evidence),
        "",
        "Single tests, over rows, the study left out",
        _row_line("SimuMax, B200 slices", errors[of("simumax")], "mean 18"),
        _row_line("  after one scale fitted to them", _one_scale_errors(evidence, of("simumax")), "mean 8 (peer 5.6)"),
        _row_line("arXiv 2205.05198 table 5, fitted", observations.errors(fitted)[of("korthikanti")],
                  "mean 5 (peer 3.65, 8.87)"),
        _row_line("Zero-Bubble, pipelines of 8 to 32 stages", errors[of("zero bubble")]),
        "",
        *_memory_lines(),
        "",
        *_interval_lines(evidence, counting),
        "",
        *plan_ranking.table(plan_ranking.ranking()).splitlines(),
        "",
        f"Cells above {100 * POOR:.0f} % with their study left out, and why",
        *_worst_lines(observations, errors),
        "",
        *_source_lines(evidence),
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _release_lines() -> list[str]:
    """What the last release saw on locked studies: what a stranger with other data sees."""
    if not release.HISTORY.exists():
        return ["Locked studies: no release has scored them yet"]
    with release.HISTORY.open(encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    share = lambda name: f"{100 * float(last[name]):.1f} %"
    return [
        f"Locked studies, as of {last['date']} ({last['cells']} cells of {last['studies']} studies that nothing was chosen by):",
        f"  median {share('median')}, mean {share('mean')}, step times {100 * float(last['bias']):+.1f} %; "
        f"intervals that promise 80 % hold {share('inside_cells')} of cells, {share('inside_rows')} of rows",
        f"  one utilisation a chip, fitted to these very runs: median {share('baseline_median')}, mean {share('baseline_mean')}",
        calculon_line(last),
    ]


def calculon_line(last: dict[str, str]) -> str:
    """Calculon beside the locked runs that it can express, where the release had a checkout of it.

    **Arguments:** `last` line of the history.
    """
    if not last.get("calculon_cells"):
        return "  Calculon beside them: not run at this release; on open runs see calculon.txt"
    share = lambda name: f"{100 * float(last[name]):.1f} %"
    return (
        f"  Calculon on the {last['calculon_cells']} cells that it can express: median {share('calculon_median')}, "
        f"mean {share('calculon_mean')}; hwopt there {share('beside_median')}, {share('beside_mean')}, "
        f"nearer in {last['beside_nearer']}"
    )


def _baseline_lines(observations: Observations) -> list[str]:
    """What one number a chip would give, and how far one configuration's releases differ."""
    rows, spread = observations.rows, release_spread(observations.rows)
    fit_baseline(list({row.row.id: row for row in rows}.values()))
    flat = np.array([row.baseline / row.predicted * (1.0 + row.error) - 1.0 for row in rows])
    whole = [members for members in observations.cells.values() if complete(rows[members[0]])]
    cells = [np.mean(np.abs(flat[members])) for members in whole if not observations.functional[members[0]]]
    return [
        f"{'one utilisation a chip, fitted':44}{len(cells):5}{'':6}{100 * np.median(cells):8.1f}%{100 * np.mean(cells):7.1f}%",
        f"{'releases of one configuration differ by':44}{'':11}{100 * (spread['median'] or 0):8.1f}%"
        f"   (90th percentile {100 * (spread['p90'] or 0):.0f} %: a band that no model can beat)",
    ]


def one_scale(rows: Sequence[Scored], scopes: Scopes, start: np.ndarray) -> np.ndarray:
    """Return the errors of runs after fitting only their own step-time factor; all other constants stay at `start`."""
    with_own = Scopes((*scopes.entries, ("level", OWN)))
    observations = Observations.of(rows, by_cell=False, scopes=with_own)
    mean, sd = np.append(start, 0.0), np.append(np.full(len(start), FIT.fixed_sd), FIT.wide * with_own.prior_sd[-1])
    return observations.errors(fit(observations, start=mean, prior_mean=mean, prior_sd=sd).log_predicted_s)


def _one_scale_errors(evidence: PublishedFit, of: np.ndarray) -> np.ndarray:
    """Errors of some rows of one source after one constant, the stack's GEMM efficiency, was fitted to them."""
    own = [row for row, chosen in zip(evidence.observations.rows, of, strict=True) if chosen]
    return one_scale(own, evidence.observations.scopes, evidence.sources[study_of(own[0].row.source)].shifts)


def _trend_lines(observations: Observations) -> list[str]:
    """How much faster the same runs became with newer releases; the fit does not use it.

    Applied to the dates of runs it made left-out errors 12.5 and 16.3 % (median, mean) instead of 11.9 and 16.2 %, and later runs
    21 and 26 % instead of 22 and 26 % (280 cells of models with one type of layer).
    """
    rows = np.array(observations.rows, dtype=object)
    family = np.array([catalog.software_family(stack) for stack in observations.stacks])
    experts = np.array([float(row.case.workload.model.experts) > 1.0 for row in rows])
    lines = [
        "The same runs on newer releases: change of the step time in a year, and its standard error (recipes independent)",
        f"{'':44}{'recipes':>8}{'a year':>9}{'s.e.':>7}",
    ]
    for name in sorted(set(family)):
        for kind, of in (("dense", ~experts), ("experts", experts)):
            if trend := release_trend(rows[(family == name) & of]):
                change, error = np.expm1(trend.per_year), trend.sd * np.exp(trend.per_year)
                lines.append(f"{f'{name}, {kind}':44}{trend.recipes:8}{100 * change:+8.0f}%{100 * error:6.0f}%")
    return [
        *lines,
        "Fitted constants with it predict held-out runs no better: stacks keep a level for each release instead.",
    ]


def _group_lines(evidence: PublishedFit) -> list[str]:
    """Errors and intervals by group of runs, beside one utilization a chip that is fitted to these very runs."""
    observations, rows = evidence.observations, evidence.observations.rows
    fit_baseline(list({row.row.id: row for row in rows}.values()))
    flat = np.log([row.baseline / row.predicted for row in rows]) * [-1.0 if row.metric.rate else 1.0 for row in rows]
    flat = flat + [np.log(row.time_ratio) for row in rows] + observations.log_measured_s
    model = lambda row: row.case.workload.model
    layers = lambda row: (
        "several kinds" if model(row).kinds is not None else "experts" if model(row).experts > 1 else "dense"
    )
    groups = {
        "software of": [str(row.row.year or "unstated year") for row in rows],
        "chips": observations.families,
        "chip": [row.accelerator for row in rows],
        "layers": [layers(row) for row in rows],
        "tuning": ["functional" if each else "tuned" for each in observations.functional],
    }
    lines = [
        "By group, one study left out; tuned runs but for the last lines. one rate: one utilization a chip, fitted to these runs;",
        "in: cells inside their 80 % interval; score: mean interval score of cells in log units, less is better",
        f"{'':44}{'cells':>5}{'rows':>6}{'median':>9}{'mean':>8}{'time':>8}{'one rate':>10}{'in':>6}{'score':>7}",
    ]
    for kind, names in groups.items():
        for name in sorted(set(names)):
            of = np.array([each == name for each in names]) & ((kind == "tuning") | ~observations.functional)
            errors, rate = observations.over_cells(evidence.by_source, of), observations.over_cells(flat, of)
            if not errors.cells:
                continue
            members = [[i for i in m if of[i] and complete(rows[i])] for m in observations.cells.values()]
            mean = lambda values, members=members: 100 * np.mean([np.mean(values[m]) for m in members if m])
            lines.append(
                f"{f'  {kind} {name}':44}{errors.cells:5}{errors.rows:6}{100 * errors.median_abs_error:8.1f}%"
                f"{100 * errors.mean_abs_error:7.1f}%{100 * errors.time_bias:+7.1f}%{100 * rate.median_abs_error:9.1f}%"
                f"{mean(evidence.inside):5.0f}%{mean(evidence.interval_scores) / 100:7.2f}"
            )
    return lines


def constants_table(evidence: PublishedFit, before: catalog.Calibration) -> str:
    """Every constant that moved by a tenth of its prior deviation, and what informs it.

    **Arguments:** `before`: constants of an earlier fit.
    """
    scopes, fits = evidence.observations.scopes, evidence.sources
    earlier, prior = dict(zip(before.scopes.entries, before.shifts, strict=True)), scopes.prior_sd
    lines = [
        "Constants that moved by a tenth of their prior deviation: shifts in log or log-odds units",
        f"before: by the fit to {before.title}",
        "studies: those whose leaving out moves it by a tenth of its deviation; without: the one that moves it most",
        f"{'constant':44}{'before':>8}{'after':>8}{'s.d.':>7}{'studies':>9}{'without':>9}  the study of most influence",
    ]
    for i, entry in enumerate(scopes.entries):
        was, now = earlier.get(entry, 0.0), evidence.everything.shifts[i]
        if scopes.of_sources[i] or abs(now - was) < 0.1 * prior[i]:
            continue
        moved = {source: each.shifts[i] for source, each in fits.items()}
        most = max(moved, key=lambda source: abs(moved[source] - now))
        informing = sum(abs(each - now) > 0.1 * evidence.everything.sd[i] for each in moved.values())
        lines.append(
            f"{' of '.join(entry):44}{was:+8.2f}{now:+8.2f}{evidence.everything.sd[i]:7.2f}{informing:9}{moved[most]:+9.2f}  {most}"
        )
    return "\n".join(lines) + "\n"


def _memory_lines() -> list[str]:
    """Peak memory, runs that fitted and plans that ran out."""
    measured = scored_literature("memory.csv")
    by_cell = [np.mean([abs(measured[i].error) for i in members]) for members in cells_of(measured).values()]
    sources = {row.row.source: [] for row in measured}
    for row in measured:
        sources[row.row.source].append(row.error)
    fitting = lambda rows: [row.prediction.memory_bytes <= row.prediction.memory_capacity_bytes for row in rows]
    ran, out = fitting(scored_literature("train.csv")), fitting(scored_literature("out_of_memory.csv"))
    with TemporaryDirectory() as folder:
        names = ("sweep.csv", "failed.csv", "keeping.csv", "printed.csv")
        sweep, failed, keeping, printed = (Path(folder) / name for name in names)
        peak_memory.write(peak_memory.peaks(RUNS / "nanotron.csv"), sweep)
        tables = RUNS / "nanotron.csv", RUNS / "nanotron_failed.csv"
        peak_memory.write(plans := peak_memory.failures(*tables), failed)
        peak_memory.write(peak_memory.failures(*tables, pipelined_keep=True), keeping)
        peak_memory.write(peak_memory.peaks(RUNS / "train_round2.csv"), printed)
        scored = [scored_literature(str(path)) for path in (sweep, printed)]
        ran_too, fits, fit_keeping = (
            fitting(scored[0]),
            *(sum(fitting(scored_literature(str(x)))) for x in (failed, keeping)),
        )
    mixed = fits + peak_memory.PIPELINED_KEEP * (fit_keeping - fits)
    for rows in scored:
        for row in rows:
            sources.setdefault(row.row.source, []).append(row.error)
    share = lambda name, rows, kept, asked: f"{name:44}{'':5}{rows:6}{100 * kept:8.1f}%   asked: {asked}"
    return [
        "Memory",
        f"{'peak memory, error over cells of memory.csv':44}{len(by_cell):5}{len(measured):6}{100 * np.median(by_cell):8.1f}%"
        f"{100 * np.mean(by_cell):7.1f}%   asked: median 5",
        *(_row_line(f"  {source[:41]}", np.array(errors), "median 6") for source, errors in sorted(sources.items())),
        share("runs that fitted, said to fit", len(ran), np.mean(ran), 95),
        share("  nanotron's sweep", len(ran_too), np.mean(ran_too), 95),
        share("plans that ran out, said to run out", len(out), 1.0 - np.mean(out), 95),
        share("  nanotron's, which ran out or crashed", len(plans), 1.0 - fits / len(plans), 85),
        share("  of them a third keeping what tp gathers", len(plans), 1.0 - mixed / len(plans), 85),
    ]


def _interval_lines(evidence: PublishedFit, counting: np.ndarray) -> list[str]:
    """Coverage by stratum of intervals whose constants and widths have not seen the study; what widens them."""
    observations, weights = evidence.observations, study_weights(evidence.observations)
    cells = np.zeros(len(counting))
    for members in observations.cells.values():
        cells[members] = 1.0 / len(members)
    strata = {
        "all": counting,
        **{f"software: {x}": np.array([catalog.software_family(each) == x for each in observations.stacks])
           for x in sorted({catalog.software_family(each) for each in observations.stacks})},
        **{f"chips: {x}": np.array(observations.families) == x for x in sorted(set(observations.families))},
        "experts": evidence.features[:, TERMS.index("moe")] > 0.0,
        "dense": evidence.features[:, TERMS.index("moe")] == 0.0,
    }  # fmt: skip
    lines = [
        "Intervals that promise 80 %, constants and widths without the study (asked of locked ones: 72 to 88, each 65 to 95)",
        f"{'':44}{'':5}{'rows':>6}{'in rows':>9}{'in cells':>10}{'by study':>10}",
    ]
    for name, members in strata.items():
        chosen = members & counting
        if cells[chosen].sum() > 0.0:
            inside = evidence.inside[chosen]
            shares = (
                inside.mean(),
                np.average(inside, weights=cells[chosen]),
                np.average(inside, weights=weights[chosen]),
            )
            lines.append(f"  {name:42}{'':5}{chosen.sum():6}" + "".join(f"{100 * share:9.0f}%" for share in shares))
    wider = ", ".join(f"{name} x{np.exp(evidence.widths[name]):.2f}" for name in TERMS)
    return [*lines, f"  half width {100 * np.exp(evidence.widths['base']):.1f} %, wider for: {wider}"]


def _worst_lines(observations: Observations, errors: np.ndarray) -> list[str]:
    """Cells of complete rows above `POOR`, the worst first."""
    counts = lambda i: complete(observations.rows[i]) and not observations.functional[i]
    cells = ((m, cell) for cell, m in observations.cells.items() if counts(m[0]))
    worst = sorted(((float(np.mean(np.abs(errors[m]))), cell) for m, cell in cells), reverse=True)
    return [
        f"  {100 * error:5.1f}%  {cell[1]}, {cell[2]} ({cell[0][:40]}): {explanation(cell)}"
        for error, cell in worst
        if error >= POOR
    ]


def _left_out(evidence: PublishedFit) -> dict[str, Any]:
    """Complete runs of open studies, their study left out, as `validate` tells of rows."""
    observations = evidence.observations
    errors, over = observations.errors(evidence.by_source), observations.over_cells(evidence.by_source)
    rows = [
        {"status": "scored", "counts": complete(row) and not row.left_out, "accelerator": row.accelerator,
         "predicted": row.row.measured_value * (1.0 + error), "measured": row.row.measured_value,
         "metric": row.row.measured_metric, "chips": row.row.num_gpus}
        for row, error in zip(observations.rows, errors, strict=True)
    ]  # fmt: skip
    summary = {
        "constants": "calibrated, study left out",
        "median_abs_error": over.median_abs_error,
        "cells": over.cells,
    }
    return {"rows": rows, "summary": summary}


def _source_lines(evidence: PublishedFit) -> list[str]:
    """Each source, left out and fitted."""
    observations = evidence.observations
    lines = [f"{'source':52}{'cells':>6}{'rows':>6}{'left out':>10}{'time':>8}{'fitted':>9}{'time':>8}"]
    for source in sorted(set(observations.sources)):
        out, fitted = (
            observations.over_cells(predicted, observations.sources == source, every=True)
            for predicted in (evidence.by_source, evidence.everything.log_predicted_s)
        )
        if out.cells:
            line = f"{source[:51]:52}{out.cells:6}{out.rows:6}"
            for of, width in ((out, 9), (fitted, 8)):
                line += f"{100 * (of.median_abs_error or 0.0):{width}.1f}%{100 * (of.time_bias or 0.0):+7.1f}%"
            lines.append(line)
    return lines


def main(arguments: Sequence[str]) -> None:
    moved = ROOT / "results" / "reference" / "constants.txt"
    if arguments[:1] == ["--moved"]:
        since = catalog.calibration(arguments[1])
        moved.write_text(constants_table(fit_published(catalog.calibration()), since), encoding="utf-8")
        return
    if arguments != ["--table"]:
        before, fitted = catalog.calibration(), fit_published()
        assert before is not None
        moved.write_text(constants_table(fitted, before), encoding="utf-8")
        save(fitted, ROOT / "hwopt" / "data" / "calibrations" / "published.toml")
        catalog.forget_calibrations()
    evidence = fit_published(catalog.calibration())  # what users have: a file holds no level that one study alone knows
    table = accuracy_table(evidence)
    (ROOT / "results" / "reference" / "accuracy.txt").write_text(table, encoding="utf-8")
    plot_accuracy(_left_out(evidence), ROOT / "results" / "figures" / "accuracy.png")
    print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
