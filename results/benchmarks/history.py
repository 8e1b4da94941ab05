"""What a release weighs: `python -m results.benchmarks.history` adds a line to `results/reference/history.csv`, once a release.

Columns hold what other machines find alike: sizes, counts, an answer; and the rate of a sweep as a ratio, variants for every
million exponentials that NumPy takes in the same time of a processor. Compare that ratio on one machine only, with the former
release in a worktree: processors differ threefold in NumPy's exponentials (one release: 1,830 and 5,500).
"""

from __future__ import annotations

import csv
import datetime
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import hwopt
from hwopt.sweeps.specification import Specification

ROOT = Path(__file__).parents[2]
FILE = ROOT / "results/reference/history.csv"
COLUMNS = (
    "date", "version", "python", "jax", "wheel_bytes", "sweep_operations", "objective_usd", "lower_bound_usd",
    "variants_per_million_exp",
)  # fmt: skip
SAMPLES = 1 << 20


def wheel_bytes() -> int:
    """Size of the wheel, built anew."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)]
        subprocess.run(command, check=True, cwd=folder)
        return next(Path(folder).glob("hwopt-*.whl")).stat().st_size


def sweep_operations() -> int:
    """Scalar operations of the default question's sweep."""
    spec = Specification(hwopt.objective("train_cost"), 1024, sampling="plain")
    return len(spec.programs[0].line(spec.sampler(0).kind, spec.sampler(0).names).operations)


def variants_per_million_exp() -> float:
    """Variants that a sweep evaluates while NumPy takes a million exponentials, both by processor time.

    What a larger sweep takes beyond a smaller one: beginning and end, the same for both, are left out.
    """
    columns = np.random.default_rng(0).uniform(-1.0, 1.0, 1 << 20).astype(np.float32)
    exp = min(_seconds(lambda: np.exp(columns)) for _ in range(20)) / columns.size * 1e6
    question = hwopt.objective("train_cost")
    swept = lambda samples: _seconds(lambda: hwopt.sweep(question, samples, sampling="plain", rows=False))
    swept(SAMPLES)  # compiled
    return 7 * SAMPLES * exp / (swept(8 * SAMPLES) - swept(SAMPLES))


def _seconds(call) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def line() -> dict[str, str]:
    """The numbers of this checkout."""
    solution = hwopt.optimize(hwopt.objective("train_cost"))
    bound = solution.certificate.lower_bound
    values = (
        datetime.date.today().isoformat(), hwopt.__version__, platform.python_version(), jax.__version__, str(wheel_bytes()),
        str(sweep_operations()), f"{solution.objective:.6g}", "" if bound is None else f"{bound:.6g}",
        f"{variants_per_million_exp():.3g}",
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    known = FILE.exists()
    with FILE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        writer.writerow(line())


if __name__ == "__main__":
    main()
