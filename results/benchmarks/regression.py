"""Accuracy, speed and plausibility of a checkout compared with recorded numbers, in one table. From the top of a checkout:

    python -m results.benchmarks.regression           # all checks; writes results/reference/regression.txt
    python -m results.benchmarks.regression --quick   # prints those that take seconds; two CPU minutes

Run it when an issue closes. Recorded numbers are read from the committed files of `results/reference`. A number without a file of
its own is read from the former `regression.txt`. The exit code is 1 where a check fails.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.observations import complete
from hwopt.calibration.holdout import in_test_set
from hwopt.calibration.validation.score import Scored, by_group, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.workload.transformer import total_parameters
from results.benchmarks import families, history, peak_memory, plausible, serving_accuracy
from results.benchmarks.evidence import OUT as EVIDENCE
from results.benchmarks.evidence import TABLES_COUNTED, cases, counted
from results.benchmarks.published_fit import RUNS, TABLES
from tests.plausibility.rules import broken

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
OUT = REFERENCE / "regression.txt"

ERROR_POINTS = 0.5
"""Percentage points by which an error may grow: a cell that moves by its own error changes a mean of 60 to 160 cells by less."""

SPEED = 1.35
"""Ratio up to which a time counts as unchanged: two runs on a busy machine (load of 9 on two cores) differed by 27 %."""

OPERATIONS = 1.05
"""Ratio up to which a sweep may gain operations in a release: new physics that every run uses, but no unused mechanism."""

GAP = 1e-4
"""Largest optimality gap of a default answer: the gap at which a search stops (`hwopt.solver.options`), rounded up."""

PLAUSIBLE = 6
"""Random questions of `results.benchmarks.plausible` that are repeated, the first ones of its seed."""


class Check(NamedTuple):
    """One number with its recorded value and the largest value that passes."""

    name: str
    now: Callable[[], float]
    recorded: Callable[[], float]
    limit: Callable[[float], float]  # of the recorded number
    quick: bool = True


def grown(points: float) -> Callable[[float], float]:
    """Return a limit that is so many points above the recorded number."""
    return lambda recorded: recorded + points


def printed(file: str, line: str, place: int) -> float:
    """Return a percentage of a committed result: the one at `place` in the first line that begins with `line`."""
    lines = (REFERENCE / file).read_text(encoding="utf-8").splitlines()
    found = next(each for each in lines if each.strip().startswith(line))
    return float(re.findall(r"([-+\d.]+) ?%", found)[place])


def former(name: str) -> float:
    """Return the number of a check in the former table; not a number where there is none."""
    lines = OUT.read_text(encoding="utf-8").splitlines() if OUT.exists() else []
    found = [each[44:].split() for each in lines if each[:44].strip() == name]
    return float(found[0][1]) if found else float("nan")


@cache
def training() -> tuple[float, float]:
    """Return median and mean error of open tuned training runs, each study left out of the shipped constants, in per cent."""
    rows = [row for name in TABLES for row in score(RUNS / name, catalog.calibration(), cases=False).scored]
    rows = [row for row in rows if not in_test_set(row.row.source)]
    mark_repeats(rows)
    return _errors([row for row in rows if complete(row) and not row.left_out and not row.functional])


def _errors(rows: list[Scored]) -> tuple[float, float]:
    """Return median and mean error over cells, in per cent."""
    errors, _ = by_group(rows, lambda row: "all")["all"]
    return 100.0 * (errors.median_abs_error or 0.0), 100.0 * (errors.mean_abs_error or 0.0)


@cache
def services() -> tuple[float, float]:
    """Return median and mean error of measured services, by constants that their own source did not inform, in per cent."""
    return _errors(serving_accuracy.held_out(serving_accuracy.counting()))


def memory() -> float:
    """Return the median error of peak memory in runs of 2025 and 2026, in per cent."""
    lines = peak_memory.score_lines(ROOT / "tests" / "validation" / "memory_2026.csv")
    return float(re.findall(r"([\d.]+) %", lines[-1])[0])


def parameters() -> float:
    """Return the largest relative difference of a family's parameters from `families.txt`."""
    text = (REFERENCE / "families.txt").read_text(encoding="utf-8")
    committed = {name: float(count) for name, count in re.findall(r"^(\S+) +\d +([\d.]+) ", text, re.MULTILINE)}
    counts = {name: 1e-9 * float(total_parameters(catalog.transformer(name))) for name in families.FAMILIES}
    return max(abs(committed[name] / count - 1.0) for name, count in counts.items())


def reference_s() -> float:
    """Return the processor seconds of a fixed calculation in NumPy and Python, the unit of times."""
    column = np.random.default_rng(0).uniform(-1.0, 1.0, 1 << 20)

    def once() -> float:
        began = time.process_time()
        for _ in range(20):
            np.sort(np.exp(column))
        sum(i * i % 7 for i in range(3_000_000))
        return time.process_time() - began

    return min(once() for _ in range(3))


@cache
def answered(*line: str) -> tuple[dict, float]:
    """Ask a question twice in separate processes.

    **Returns:** its answer, and the lesser ratio of its processor seconds to those of `reference_s` just before.
    """
    ratios = []
    for _ in range(2):
        unit = reference_s()
        answer, cpu_s, code, error = plausible.answered([*line])
        if code:
            raise RuntimeError(f"hwopt {' '.join(line)} ended with {code}: {error}")
        ratios.append(cpu_s / unit)
    return answer, min(ratios)


def gap(*line: str) -> float:
    """Return the optimality gap of an answer; infinite where none is proved."""
    found = answered(*line)[0]["certificate"]["gap"]
    return float("inf") if found is None else found


def rules(lines: Sequence[Sequence[str]]) -> float:
    """Return how many rules of purchase the answers to questions break."""
    answers = [plausible.answered([*line])[0] for line in lines]
    return float(sum(len(broken(each)) for each in answers if each.get("feasible")))


def recount() -> float:
    """Return how many counts of `hwopt/data/evidence.csv` differ from the tables of measured runs."""
    rows = {",".join(map(str, (*key, *each))) for key, each in _counts().items()}
    committed = {line.replace('"', "") for line in EVIDENCE.read_text(encoding="utf-8").splitlines()[1:]}
    return float(len(rows ^ committed))


def _counts():
    return counted(cases([RUNS / name for name in TABLES_COUNTED]))


def last_release(column: str) -> float:
    """Return a number of the last line of `history.csv`."""
    header, *_, line = (REFERENCE / "history.csv").read_text(encoding="utf-8").splitlines()
    return float(line.split(",")[header.split(",").index(column)])


DEFAULTS = ("train_cost", "serve_cost")
OPEN, SERVED = "one study left out", "all"

CHECKS = (
    Check("training, one study left out, median %", lambda: training()[0], partial(printed, "accuracy.txt", OPEN, 0),
          grown(ERROR_POINTS)),
    Check("training, one study left out, mean %", lambda: training()[1], partial(printed, "accuracy.txt", OPEN, 1),
          grown(ERROR_POINTS)),
    Check("services, median %", lambda: services()[0], partial(printed, "serving_accuracy.txt", SERVED, 0),
          grown(ERROR_POINTS)),
    Check("services, mean %", lambda: services()[1], partial(printed, "serving_accuracy.txt", SERVED, 1),
          grown(ERROR_POINTS)),
    Check("peak memory of 2026, median %", memory, partial(printed, "memory_2026.txt", "all", 0), grown(ERROR_POINTS)),
    Check("parameters of 2026's families, relative", parameters, lambda: 0.0, lambda recorded: 5e-4),  # three digits are printed
    Check("evidence: counts that differ", recount, lambda: 0.0, lambda recorded: 0.0),
    Check("operations of the default sweep", lambda: float(history.sweep_operations()),
          partial(last_release, "sweep_operations"), lambda recorded: OPERATIONS * recorded),
    *(Check(f"{name}, CPU time over reference", lambda name=name: answered("optimize", name)[1],
            partial(former, f"{name}, CPU time over reference"), lambda recorded: SPEED * recorded) for name in DEFAULTS),
    *(Check(f"{name}, optimality gap", lambda name=name: gap("optimize", name), partial(former, f"{name}, optimality gap"),
            lambda recorded: GAP) for name in DEFAULTS),
    *(Check(f"{name}, rules of purchase broken", lambda name=name: float(len(broken(answered("optimize", name)[0]))),
            partial(former, f"{name}, rules of purchase broken"), lambda recorded: 0.0) for name in DEFAULTS),
    Check(f"{PLAUSIBLE} random questions, rules broken",
          lambda: rules(plausible.questions(plausible.SEED, PLAUSIBLE)),
          partial(former, f"{PLAUSIBLE} random questions, rules broken"), lambda recorded: 0.0, quick=False),
)  # fmt: skip


def row(check: Check) -> tuple[str, bool]:
    """Return the line of a check, and whether it passes. A number without a record passes."""
    recorded, now = check.recorded(), check.now()
    limit = check.limit(recorded)
    passes = now <= limit or limit != limit
    cells = ("-" if value != value else f"{value:.4g}" for value in (recorded, now, limit))
    return f"{check.name:44}" + "".join(f"{cell:>12}" for cell in cells) + f"  {'ok' if passes else 'FAILS'}", passes


def main(arguments: Sequence[str]) -> int:
    """Run the checks, and return the exit code."""
    quick = "--quick" in arguments
    lines = [f"{'name':44}{'recorded':>12}{'now':>12}{'limit':>12}  ok"]
    print(lines[0], flush=True)
    passed = True
    for check in CHECKS:
        if check.quick or not quick:
            line, passes = row(check)
            lines, passed = [*lines, line], passed and passes
            print(line, flush=True)
    if not quick:
        OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
