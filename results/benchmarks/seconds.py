"""Processor seconds of commands and questions, alone or beside another installation.

python -m results.benchmarks.seconds                        this one
python -m results.benchmarks.seconds --beside NAME=PYTHON   and the one that another Python has, by turns in one run

Commands run in processes of their own: with an empty cache folder, then twice with what that left, of which the lesser counts.
Random questions run one after another in one process, as do questions of one form, which differ in a budget; another installation
answers as many of the random ones as `BESIDE` says.

Writes `results/reference/seconds.txt`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import hwopt
from hwopt.design.problem import Problem
from hwopt.workers import VARIABLE
from tests.unit.solver.test_random_studies import random_study

OUT = Path(__file__).parents[2] / "results" / "reference" / "seconds.txt"

COMMANDS = (
    "--help",
    "estimate --workload llama3.1-8b --chip h100-sxm --chips 8 --plan tp=2,dp=4",
    "plan --workload llama3.1-405b --chip h100-sxm --chips 16384",
    "optimize",
    "optimize serve_cost",
    "optimize --workload mixtral-8x7b --chip h200",
)

RANDOM = 40
BESIDE = 10
ONE_FORM = 10
"""Questions: random ones, those that another installation answers too, and those of one form."""

ANSWER = """
import json, sys, time
import hwopt
hwopt.optimize(hwopt.objective("train_cost"))  # loads and compiles what every question needs
for line in sys.stdin:
    question = json.loads(line)
    problem = hwopt.objective(question["objective"], **question["fields"]).problem()
    problem = problem.narrowed({name: tuple(ends) for name, ends in question["bounds"].items()})
    begun = time.process_time()
    hwopt.optimize(problem)
    print(time.process_time() - begun, flush=True)
"""
"""What a process does that answers questions, by the public surface alone."""


def measured(python: str, command: str, cache: str) -> tuple[float, float]:
    """Processor seconds and seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [python, "-m", "hwopt.cli", *command.split()],
        env=_environment(cache),
        stdout=subprocess.DEVNULL,
        check=True,
        cwd=cache,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - start


def _environment(cache: str) -> dict[str, str]:
    """That of a command, which finds its own installation and no other's, in one process: its processor's seconds are all."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {"TF_CPP_MIN_LOG_LEVEL": "3", **kept, "XDG_CACHE_HOME": cache, VARIABLE: "1"}


def random_questions(count: int) -> list[dict[str, Any]]:
    """Questions of many forms, as names, fields and boxes."""
    rng, asked = np.random.default_rng(77), []
    state, narrow = hwopt.objective, Problem.narrowed

    def stated(name: str, **fields: Any) -> Any:
        asked.append({"objective": name, "fields": fields})
        return state(name, **fields)

    def narrowed(problem: Problem, bounds: Any) -> Problem:
        asked[-1]["bounds"] = bounds
        return narrow(problem, bounds)

    with patch.object(hwopt, "objective", stated), patch.object(Problem, "narrowed", narrowed):
        for _ in range(count):
            random_study(rng, small=False)
    return [each for each in asked if "bounds" in each]


def one_form(count: int) -> list[dict[str, Any]]:
    """The default question under budgets of power between 36 and 48 MW."""
    budgets = np.linspace(36e6, 48e6, count)
    return [{"objective": "train_cost", "fields": {"power_budget_w": float(x)}, "bounds": {}} for x in budgets]


def answered(python: str, cache: str) -> Iterator[Any]:
    """Sent a question, gives the processor seconds of its answer; all in one process."""
    with subprocess.Popen(
        [python, "-c", ANSWER],
        env=_environment(cache),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cache,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        question = yield
        while question is not None:
            print(json.dumps(question), file=process.stdin, flush=True)
            question = yield float(process.stdout.readline())
        process.stdin.close()


def commands(pythons: dict[str, str]) -> Iterator[str]:
    yield "  ".join([f"{'hwopt':78}", *(f"{name + ', first':>16}  {name + ', again':>16}" for name in pythons)])
    for command in COMMANDS:
        row = f"{command:78}"
        for python in pythons.values():
            with tempfile.TemporaryDirectory() as cache:
                first, *again = (measured(python, command, cache) for _ in range(3))
                row += "".join(f"  {cpu:7.2f} /{clock:7.2f}" for cpu, clock in (first, min(again)))
        yield row


def questions(pythons: dict[str, str]) -> Iterator[str]:
    """Random questions and those of one form, by turns."""
    with tempfile.TemporaryDirectory() as cache:
        processes = {name: answered(python, cache) for name, python in pythons.items()}
        for process in processes.values():
            next(process)
        this, *others = pythons
        seconds = {name: [] for name in pythons}
        for number, question in enumerate(random_questions(RANDOM)):
            for name in pythons if number < BESIDE else [this]:
                seconds[name].append(processes[name].send(question))
        yield "processor seconds of random questions  median      90 %   longest"
        yield f"{f'{this}: {RANDOM} of them':36}" + "".join(
            f"{x:10.1f}" for x in np.quantile(seconds[this], [0.5, 0.9, 1.0])
        )
        for name in others:
            ratio = np.divide(seconds[this][:BESIDE], seconds[name])
            yield f"{f'{name}: the first {BESIDE}':36}" + "".join(
                f"{x:10.1f}" for x in np.quantile(seconds[name], [0.5, 0.9, 1.0])
            )
            yield f"{this} / {name}: median {np.median(ratio):.2f}, {ratio.min():.2f} to {ratio.max():.2f}"
        of_form = [processes[this].send(question) for question in one_form(ONE_FORM)]
        yield f"{ONE_FORM} questions of one form in one process: {np.mean(of_form):.1f} s each"
        for process in processes.values():
            process.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", metavar="NAME=PYTHON", default=[], nargs="*", help="other installations")
    pythons = {"this": sys.executable} | dict(each.split("=", 1) for each in parser.parse_args().beside)
    lines = [
        "Seconds of commands, processor / clock: with an empty cache folder, and with what that left (the lesser of two)",
        "python -m results.benchmarks.seconds" + "".join(f" --beside {name}=..." for name in list(pythons)[1:]),
        f"{os.cpu_count()} cores, shared with others: ratios count more than seconds (load {os.getloadavg()[0]:.1f})",
        "",
    ]
    print("\n".join(lines))
    for part in (commands(pythons), [""], questions(pythons)):
        for line in part:
            lines.append(line)
            print(line, flush=True)
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
