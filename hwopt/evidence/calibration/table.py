"""The accuracy table: every test on runs that the constants have not seen, what was asked beside it, the worst explained."""

from __future__ import annotations

import csv
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.evidence.calibration.calibrate import one_scale
from hwopt.evidence.calibration.held_out import errors_over_cells
from hwopt.evidence.calibration.observations import complete
from hwopt.evidence.calibration.published import RUNS, Evidence, scored_literature
from hwopt.evidence.calibration.widths import fit_widths, half_widths
from hwopt.evidence.intervals import TERMS
from hwopt.evidence.stacks import software_family
from hwopt.evidence.validation.score import Cell, CellErrors, Scored, cells_of, fit_baseline, release_spread
from hwopt.evidence.validation.validate import score

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
    if not errors.cells:
        return f"{name:44} no runs"
    return (
        f"{name:44}{errors.cells:5}{errors.rows:6}{100 * errors.median:8.1f}%{100 * errors.mean:7.1f}%"
        f"{100 * errors.signed:+7.1f}%{100 * errors.time_bias:+7.1f}%   {asked}"
    )


def _row_line(name: str, errors: np.ndarray, asked: str = "") -> str:
    """A test over rows, not cells."""
    if not len(errors):
        return f"{name:44} no runs"
    absolute = np.abs(errors)
    return (
        f"{name:44}{'':5}{len(errors):6}{100 * np.median(absolute):8.1f}%{100 * absolute.mean():7.1f}%"
        f"{100 * errors.mean():+7.1f}%   max {100 * absolute.max():.1f}%   {asked}"
    )


def accuracy_table(evidence: Evidence) -> str:
    """The whole table as text."""
    observations = evidence.observations
    rows, source = observations.rows, evidence.by_source
    errors = observations.errors(source)
    counting = np.array([not row.left_out for row in rows])

    def chosen(test: Callable[[int], bool]) -> np.ndarray:
        return np.array([i for i in range(len(rows)) if counting[i] and test(i)], int)

    def says(words: str) -> Callable[[int], bool]:
        return lambda i: words in rows[i].row.source.lower()

    moe = lambda i: evidence.features[i, TERMS.index("moe")] > 0.0
    head = f"{'':44}{'cells':>5}{'rows':>6}{'median':>9}{'mean':>8}{'signed':>8}{'time':>8}   asked"
    baseline = {row.row.id: row for row in rows}
    fit_baseline(list(baseline.values()))
    flat = np.array([row.baseline / row.predicted * (1.0 + row.error) - 1.0 for row in rows])
    flat_cells = [
        np.mean(np.abs(flat[members])) for members in observations.cells.values() if complete(rows[members[0]])
    ]
    spread = release_spread(rows)
    lines = [
        "Measured against predicted step times and rates, per cell (source, model, accelerator), then over cells.",
        "Complete plans of quality A to B+; latest release only. signed: of what was measured; time: of step times, + too slow.",
        "",
        "Constants that have not seen what they predict",
        head,
        _line("one source left out", errors_over_cells(observations, source), "median 7.5, mean 11, signed 3"),
        _line("  experts (MoE)", errors_over_cells(observations, source, moe), "median 14, mean 17"),
        _line("  dense", errors_over_cells(observations, source, lambda i: not moe(i))),
        _line("one software family left out", errors_over_cells(observations, evidence.by_software),
              "median 12, mean 15, signed 6"),
        *(
            _line(name, errors_over_cells(observations, predicted), f"median {limit}")
            for (name, predicted), limit in zip(evidence.by_generation.items(), (13, 15, 11, 15), strict=True)
        ),
        "",
        "Beside them",
        head,
        _line("fitted: the same runs", errors_over_cells(observations, evidence.everything.log_predicted_s)),
        _line("literature constants, nothing fitted", errors_over_cells(observations, _literature(evidence))),
        f"{'one utilisation a chip, fitted':44}{len(flat_cells):5}{'':6}{100 * np.median(flat_cells):8.1f}%"
        f"{100 * np.mean(flat_cells):7.1f}%",
        f"{'releases of one configuration differ by':44}{'':11}{100 * (spread['median'] or 0):8.1f}%"
        f"   (90th percentile {100 * (spread['p90'] or 0):.0f} %: a band that no model can beat)",
        "",
        "Single tests, over rows, the source left out",
        _row_line("vTrain, 109 rows on several nodes", errors[chosen(says("vtrain"))], "mean 7 (peer 14.7)"),
        _row_line("vTrain, 1,440 rows on one node", single_node_errors(), "median 15 (peer 35.8)"),
        _row_line("SimuMax, B200 slices", errors[chosen(says("simumax"))], "mean 18"),
        _row_line("  after one scale fitted to them", one_scale_errors(evidence), "mean 8 (peer 5.6)"),
        _row_line("arXiv 2205.05198 table 5, fitted",
                  observations.errors(evidence.everything.log_predicted_s)[chosen(says("korthikanti"))],
                  "mean 3.5, max 8 (peer 3.65, 8.87)"),
        "",
        "Communication, the source left out",
        _row_line("vTrain, tensor parallel 16 over two nodes",
                  errors[chosen(lambda i: says("vtrain")(i) and rows[i].row.tp == 16)]),
        _row_line("Zero-Bubble, pipelines of 8 to 32 stages", errors[chosen(says("zero bubble"))]),
        _row_line("SC'21 table 2, ZeRO-3", errors[chosen(lambda i: says("table 2")(i) and rows[i].row.zero == 3)]),
        _row_line("InternEvo, 8 to 64 GPUs",
                  errors[chosen(lambda i: says("intern")(i) and (rows[i].row.num_gpus or 0) <= 64)]),
        _row_line("InternEvo, 128 to 1,024 GPUs",
                  errors[chosen(lambda i: says("intern")(i) and (rows[i].row.num_gpus or 0) > 64)]),
        "",
        *memory_lines(),
        "",
        *interval_lines(evidence, counting),
        "",
        f"Cells above {100 * POOR:.0f} % with their source left out, and why",
        *worst_lines(evidence, errors),
        "",
        *source_lines(evidence),
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _literature(evidence: Evidence) -> np.ndarray:
    return evidence.observations.log_predicted_s(np.zeros(len(evidence.observations.scopes.entries)))


def single_node_errors() -> np.ndarray:
    """Errors on vTrain's rows of one node, by constants fitted without vTrain."""
    rows = score(Path(str(RUNS / "train_single_node.csv")), catalog.calibration(), cases=False).scored
    return np.array([row.error for row in rows])


def one_scale_errors(evidence: Evidence) -> np.ndarray:
    """Errors on SimuMax's rows after one constant, the stack's GEMM efficiency, was fitted to them."""
    observations = evidence.observations
    own = [i for i, row in enumerate(observations.rows) if "SimuMax" in row.row.source and not row.left_out]
    start = evidence.sources[observations.rows[own[0]].row.source].shifts
    return one_scale([observations.rows[i] for i in own], observations.scopes, start)


def memory_lines() -> list[str]:
    """Peak memory, runs that fitted and plans that ran out."""
    measured = scored_literature("memory.csv")
    by_cell = [np.mean([abs(measured[i].error) for i in members]) for members in cells_of(measured).values()]
    fitting = [_fits(row) for row in scored_literature("train.csv")]
    out = [not _fits(row) for row in scored_literature("out_of_memory.csv")]
    return [
        "Memory",
        f"{'peak memory, error over cells':44}{len(by_cell):5}{len(measured):6}{100 * np.median(by_cell):8.1f}%"
        f"{100 * np.mean(by_cell):7.1f}%   asked: median 5",
        f"{'runs that fitted, said to fit':44}{'':5}{len(fitting):6}{100 * np.mean(fitting):8.1f}%   asked: 95",
        f"{'plans that ran out, said to run out':44}{'':5}{len(out):6}{100 * np.mean(out):8.1f}%   asked: 95",
    ]


def _fits(row: Scored) -> bool:
    return row.prediction.memory_bytes <= row.prediction.memory_capacity_bytes


def interval_lines(evidence: Evidence, counting: np.ndarray) -> list[str]:
    """Coverage of the intervals on rows whose source was left out."""
    observations = evidence.observations
    inside = np.abs(evidence.by_source - observations.log_measured_s) <= half_widths(evidence.widths, evidence.features)
    families = np.array([software_family(stack) for stack in observations.stacks])
    lines = [
        "Intervals meant to hold 80 % (rows, the source left out)",
        f"  all {100 * inside[counting].mean():.1f} % of {counting.sum()} (asked: 75 to 85); by software: "
        + ", ".join(
            f"{name} {100 * inside[counting & (families == name)].mean():.0f} %" for name in sorted(set(families))
        )
        + " (asked: 70 each)",
    ]
    base = np.exp(evidence.widths["base"])
    wider = ", ".join(f"{name} x{np.exp(evidence.widths[name]):.2f}" for name in TERMS)
    strict = _coverage_without_own_source(evidence, counting)
    lines.append(f"  widths, too, fitted without the source: {100 * strict:.1f} %")
    return [*lines, f"  half width {100 * base:.1f} %, wider for: {wider}"]


def _coverage_without_own_source(evidence: Evidence, counting: np.ndarray) -> float:
    """Coverage where neither constants nor widths have seen a row's source."""
    observations = evidence.observations
    error = np.abs(evidence.by_source - observations.log_measured_s)
    inside = np.zeros(len(error), bool)
    for source in sorted(set(observations.sources)):
        own = observations.sources == source
        widths = fit_widths(error, evidence.features, counting * ~own)
        inside[own] = error[own] <= half_widths(widths, evidence.features[own])
    return float(inside[counting].mean())


def worst_lines(evidence: Evidence, errors: np.ndarray) -> list[str]:
    """Cells of complete rows above `POOR`, the worst first."""
    observations = evidence.observations
    errors_of_cells = sorted(
        (
            (float(np.mean(np.abs(errors[m]))), cell)
            for cell, m in observations.cells.items()
            if complete(observations.rows[m[0]])
        ),
        reverse=True,
    )
    lines = []
    for error, cell in errors_of_cells:
        if error < POOR:
            break
        lines.append(f"  {100 * error:5.1f}%  {cell[1]}, {cell[2]} ({cell[0][:40]}): {explanation(cell)}")
    return lines


def source_lines(evidence: Evidence) -> list[str]:
    """Each source, left out and fitted."""
    observations = evidence.observations
    lines = [f"{'source':52}{'cells':>6}{'rows':>6}{'left out':>10}{'time':>8}{'fitted':>9}{'time':>8}"]
    for source in sorted(set(observations.sources)):
        own = lambda i, source=source: observations.rows[i].row.source == source
        out, fitted = (
            errors_over_cells(observations, predicted, own, every=True)
            for predicted in (evidence.by_source, evidence.everything.log_predicted_s)
        )
        if out.cells:
            lines.append(
                f"{source[:51]:52}{out.cells:6}{out.rows:6}{100 * out.median:9.1f}%{100 * out.time_bias:+7.1f}%"
                f"{100 * fitted.median:8.1f}%{100 * fitted.time_bias:+7.1f}%"
            )
    return lines
