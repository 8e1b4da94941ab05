"""Counts of measured rows by features of plans. Run from the top of a checkout:

    python -m results.benchmarks.evidence        # writes hwopt/data/evidence.csv; half a minute

A row counts for a feature where it states the settings of that feature; assumed settings are no evidence. Rows of the test set
count too: counts are about what was measured, not about errors.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from hwopt import catalog
from hwopt.calibration.evidence import (
    EVERYTHING,
    STUDY,
    Count,
    CountKey,
    Subject,
    phrases,
    software,
)
from hwopt.calibration.holdout import study_of
from hwopt.calibration.measured.columns import METRICS, MeasuredService
from hwopt.calibration.measured.rows import read
from hwopt.calibration.validation.join import MeasuredCase, join
from hwopt.calibration.validation.machines import constants
from hwopt.calibration.validation.skip import Skip
from hwopt.calibration.validation.validate import KINDS
from hwopt.catalog import leaf
from results.benchmarks.published_fit import RUNS, TABLES

TABLES_COUNTED = (*TABLES, "train_single_node.csv", "nanotron.csv", "inference.csv", "inference_2026.csv")
"""Tables of measured runs: the fitted ones, and others of whole runs."""

OUT = RUNS.parent / "evidence.csv"

NOT_STATED = "not stated"
"""Software of rows that name none, of studies that run several."""

SOFTWARE = {
    "Dao-AILab/flash-attention training README": "PyTorch",  # its own training scripts
    "GPT-NeoX-20B (Black et al. 2022)": "2021 stacks",  # Megatron and DeepSpeed, section 3
    "LLaMA (Touvron et al. 2023)": "PyTorch",  # xformers and FairScale, section 2.4
    "MegaScale (Jiang et al. NSDI 2024)": "NVIDIA",  # built on Megatron-LM, section 6
    "PaLM (Chowdhery et al. 2022)": "JAX",  # T5X and Pathways, section 4
    "Dash et al. 2023 (Frontier trillion-parameter)": "2021 stacks",  # Megatron-DeepSpeed
}
"""Software of studies whose rows leave it blank, as their texts say."""


def cases(tables: Iterable[Path]) -> Iterator[MeasuredCase]:
    """Yield every row that measured a rate or a time, joined with the catalog; unstated settings stay at their defaults."""
    literature = constants(catalog.calibration(catalog.LITERATURE))
    for path in tables:
        measurements = read(path)
        kind = replace(KINDS[measurements.kind], openings=lambda row, case: [])
        for row in measurements.rows:
            try:
                case = join(row, kind, literature)
            except Skip:
                continue
            if not METRICS[row.measured_metric].memory:
                yield replace(case, row=replace(case.row, stack=row.stack))


def subject(case: MeasuredCase) -> Subject:
    """Return a row as the features read it: with its own software, and with the batch of a service in its plan."""
    row, plan = case.row, case.plan
    named = software(row.stack) if row.stack else SOFTWARE.get(study_of(row.source), "")
    if isinstance(row, MeasuredService) and not row.largest:
        plan = replace(plan, micro_batch=leaf(max((row.batch or 1.0) / float(plan.dp * plan.pp), 1.0)))
    return Subject(case.workload, case.cluster, plan, case.architecture, named)


def unstated(case: MeasuredCase) -> set[str]:
    """Return the settings that a row leaves to the defaults."""
    return {*case.assumed, *(["memory_formats"] if getattr(case.row, "memory_formats", None) is None else [])}


def year_of(row: Any) -> int:
    """Return the year of a row's software: as stated, or the release of its stack; 0 where neither is known."""
    released = str(catalog.record("stacks", row.stack).text.get("released", "")) if row.stack else ""
    return row.year or int(released[:4] or 0)


def counted(found: Iterable[MeasuredCase]) -> dict[CountKey, Count]:
    """Return the counts of rows by training or serving, feature, phrase and software, sorted."""
    rows: dict[CountKey, list[tuple[Any, ...]]] = defaultdict(list)
    for case in found:
        of, blank, study = subject(case), unstated(case), study_of(case.row.source)
        row = study, *map(round, of.size), year_of(case.row)
        told = {(each.name, phrase) for each, phrase in phrases(of) if blank.isdisjoint(each.stated)}
        for feature, phrase in [EVERYTHING[1:3], *sorted(told)]:
            for name in ("", of.software or NOT_STATED):
                rows[CountKey(of.work, feature, phrase, name)].append(row)
        rows[CountKey(of.work, STUDY, study, of.software or NOT_STATED)].append(row)
    return {key: _count(each) for key, each in sorted(rows.items(), key=lambda item: _order(item[0]))}


def _order(key: CountKey) -> tuple[Any, ...]:
    """Return a key that sorts buckets by size: numbers of a phrase as numbers."""
    words = [(0, int(part.replace(",", "")), "") if part[:1].isdecimal() else (1, 0, part)
             for word in key.phrase.split() for part in word.split("-")[:1]] if key.feature != STUDY else []  # fmt: skip
    return key.work != "training", key.feature != EVERYTHING.feature, key.feature, words, key.phrase, key.software


def _count(rows: Sequence[tuple[Any, ...]]) -> Count:
    studies, chips, tokens, years = zip(*rows, strict=True)
    return Count(len(rows), len(set(studies)), max(chips), max(tokens), max(years))


def write(counts: dict[CountKey, Count], file: TextIO) -> None:
    """Write counts as CSV."""
    lines = csv.writer(file, lineterminator="\n")
    lines.writerows([CountKey._fields + Count._fields, *([*key, *count] for key, count in counts.items())])


def main() -> None:
    """Count all rows and write the file."""
    counts = counted(cases([RUNS / name for name in TABLES_COUNTED]))
    if "--print" in sys.argv:
        write(counts, sys.stdout)
        return
    with OUT.open("w", encoding="utf-8", newline="") as file:
        write(counts, file)
    print(f"{len(counts)} counts in {OUT.name}")


if __name__ == "__main__":
    main()
