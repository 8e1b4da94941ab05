"""Fits the constants again and makes everything that hangs on them, in order. From the top of a checkout:

    python -m results.benchmarks.refit                  hours, nothing else running
    python -m results.benchmarks.refit --from guide     goes on where a step failed
    python -m results.benchmarks.refit --list           says what it would run

A later step reads what earlier ones wrote. Left to people: `python -m results.benchmarks.release`, which scores the locked
studies once a release; `python -m results.benchmarks.reference --measured`, which wants a quiet machine; the map of bottlenecks
(`results/README.md`); and numbers in sentences of notebooks, tests and what `writing/quoted.py` of the guide does not list.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from results.benchmarks.reference import ROOT, TABLE, quiet

FITTED = ("accuracy", "own_runs")
"""Results that are written with the constants they judge, before all others."""

STEPS = {
    "accuracy": "results/benchmarks/accuracy.py",
    "serving_widths": "results/benchmarks/serving_widths.py",
    "operator_widths": "results/benchmarks/operators.py --widths",
    "own_runs": "results/benchmarks/own_runs.py",
    "evidence": "results/benchmarks/evidence.py",
    "results": "results/benchmarks/reference.py "
    + " ".join(each.name for each in TABLE if not each.measured and each.name not in FITTED),
    "figures": "-m hwopt sensitivity --figure results/figures/sensitivity.png",
    "guide": "notebooks/guide/renew.py --slow",
    "notebooks": "tests/notebooks/execute.py",
}
"""What is run, by name, as arguments of Python."""


def main() -> None:
    """Run the steps, from one of them on; a step that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", choices=STEPS, default=next(iter(STEPS)), metavar="STEP")
    parser.add_argument("--list", action="store_true", help="print the steps and run none")
    options = parser.parse_args()
    names = list(STEPS)
    for name in names[names.index(options.first) :]:
        print(f"{name}: python {STEPS[name]}", flush=True)
        if options.list:
            continue
        if subprocess.run([sys.executable, *shlex.split(STEPS[name])], cwd=ROOT, env=quiet()).returncode:
            sys.exit(f"{name} failed: what was wrong stands above; go on with --from {name}")


if __name__ == "__main__":
    main()
