"""Makes the files of `results/` again. Run from the top of a checkout:

python -m results.benchmarks.reference                     all that is the same on every machine
python -m results.benchmarks.reference train_cost chips    some of it
python -m results.benchmarks.reference --measured          what holds seconds of a machine too
python -m results.benchmarks.reference --into FOLDER       elsewhere, to compare
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


class Result(NamedTuple):
    """A file of `results/` and the command whose standard output it is."""

    file: str
    command: str
    writes_itself: bool = False  # the command writes the file, and others beside it
    measured: bool = False  # holds seconds, which no other run repeats

    @property
    def name(self) -> str:
        return Path(self.file).stem


TABLE = (
    Result("reference/accuracy.txt", "python -m results.benchmarks.accuracy", writes_itself=True),
    Result(
        "reference/locked.txt", "python -m results.benchmarks.release", writes_itself=True, measured=True
    ),  # once a release
    Result(
        "reference/constants.txt", "python -m results.benchmarks.accuracy", writes_itself=True, measured=True
    ),  # once a fit
    Result("reference/serving_accuracy.txt", "python -m results.benchmarks.serving_accuracy"),
    Result("reference/percentiles.txt", "python -m results.benchmarks.percentiles"),
    Result("reference/waits.txt", "python -m results.benchmarks.waits"),
    Result("reference/own_runs.txt", "python -m results.benchmarks.own_runs", writes_itself=True),
    Result(
        "reference/memory_2026.txt",
        "python -m results.benchmarks.peak_memory --score tests/validation/memory_2026.csv",
    ),
    Result("reference/families.txt", "python -m results.benchmarks.families"),
    Result("reference/train_cost.txt", "hwopt optimize"),
    Result(
        "reference/designed_chip.txt",
        "hwopt optimize --design h100-sxm --prices at-cost --workload llama3.1-70b --global-batch 2048",
    ),
    Result("reference/design_sensitivity.txt", "python -m results.benchmarks.design_sensitivity"),
    Result("reference/loss_under_budget.txt", "hwopt optimize loss_under_budget"),
    Result("reference/questions.json", "python -m results.benchmarks.questions"),
    Result("reference/scaling.txt", "python -m results.benchmarks.scaling"),
    Result("reference/machines.txt", "python -m results.benchmarks.machines"),
    Result("reference/power.txt", "python -m results.benchmarks.power"),
    Result("reference/operators.txt", "python -m results.benchmarks.operators"),
    Result("reference/collectives.txt", "python -m results.benchmarks.collectives"),
    Result("reference/chips.txt", "python -m tests.validation.test_chips"),
    Result("reference/cooling.txt", "python -m tests.validation.test_cooling"),
    Result("reference/rents.txt", "python -m tests.validation.test_rents"),
    Result("claims.md", "python -m results.claims --table"),
    Result("fabrics.md", "python results/benchmarks/fabrics.py"),
    Result("serving.md", "python results/benchmarks/serving.py"),
    Result("reference/codesign.txt", "python results/benchmarks/codesign.py", measured=True),
    Result("reference/solver_benchmark.txt", "python results/benchmarks/solvers.py", writes_itself=True, measured=True),
    Result(
        "reference/solver_throughput.txt", "python results/benchmarks/throughput.py", writes_itself=True, measured=True
    ),
    Result("reference/sweeps.txt", "python results/benchmarks/sweeps.py", writes_itself=True, measured=True),
    Result(
        "reference/sweeps_gpu.txt", "python results/benchmarks/sweeps.py", writes_itself=True, measured=True
    ),  # needs a GPU
    Result(
        "reference/solver_gpu.txt", "python -m results.benchmarks.solver_devices", writes_itself=True, measured=True
    ),  # needs a GPU
    Result("reference/sweeps_best.txt", "python -m results.benchmarks.sweeps_best", writes_itself=True, measured=True),
    Result(
        "reference/calculon.txt", "python -m results.benchmarks.calculon", writes_itself=True, measured=True
    ),  # needs its checkout
    Result(
        "reference/simumax.txt", "python -m results.benchmarks.simumax", writes_itself=True, measured=True
    ),  # needs its checkout
    Result(
        "reference/aiconfigurator.txt", "python -m results.benchmarks.aiconfigurator", writes_itself=True, measured=True
    ),  # needs it in an environment of its own
    Result("reference/choices.txt", "python -m results.benchmarks.choices", writes_itself=True, measured=True),
    Result("reference/pairs.txt", "python -m results.benchmarks.pairs", writes_itself=True, measured=True),
    Result("reference/portfolio.txt", "python -m results.benchmarks.portfolio", writes_itself=True, measured=True),
    Result("reference/confidence.txt", "python -m results.benchmarks.confidence", writes_itself=True, measured=True),
    Result("reference/experts.txt", "python -m results.benchmarks.experts", writes_itself=True, measured=True),
    Result("reference/plausible.txt", "python -m results.benchmarks.plausible", writes_itself=True, measured=True),
    Result("reference/drawn.txt", "python -m results.benchmarks.drawn", writes_itself=True, measured=True),
    Result("reference/export.txt", "python -m results.benchmarks.export", writes_itself=True, measured=True),
    Result("reference/seconds.txt", "python -m results.benchmarks.seconds", writes_itself=True, measured=True),
    Result("reference/regression.txt", "python -m results.benchmarks.regression", writes_itself=True, measured=True),
    Result("reference/mutants.json", "python -m results.benchmarks.mutants", writes_itself=True, measured=True),
)


def make(result: Result, folder: Path = RESULTS) -> Path:
    """Run the command of a result and write the file under `folder`, whole or not at all."""
    if result.writes_itself and folder != RESULTS:
        raise ValueError(f"{result.file} is written by its own command, into results/ only")
    program, *arguments = shlex.split(result.command)
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "hwopt.cli"]
    done = subprocess.run([*start, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=quiet())
    path = folder / result.file
    if not result.writes_itself:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(done.stdout, encoding="utf-8")
    return path


def quiet() -> dict[str, str]:
    """An environment in which a checkout's modules are found and XLA says nothing."""
    return {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONPATH": str(ROOT)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in TABLE))
    parser.add_argument("--measured", action="store_true", help="also what holds seconds of this machine")
    parser.add_argument("--into", type=Path, default=RESULTS, metavar="FOLDER", help="results by default")
    options = parser.parse_args()
    unknown = set(options.names) - {each.name for each in TABLE}
    if unknown:
        parser.error(f"no result '{min(unknown)}': {', '.join(each.name for each in TABLE)}")
    for each in TABLE:
        chosen = each.name in options.names if options.names else options.measured or not each.measured
        if not chosen or (each.writes_itself and options.into != RESULTS):
            continue
        print(f"{each.command} > {make(each, options.into)}", flush=True)


if __name__ == "__main__":
    main()
