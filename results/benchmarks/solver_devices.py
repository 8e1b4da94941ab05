"""The interior point on an accelerator beside the processor: `python -m results.benchmarks.solver_devices`.

Batches of one question's instances, each the continuous hardware of one integer design under its own budgets and prices
(`results/benchmarks/throughput.py`), and a whole certified search with and without the accelerator. Both do the same iteration;
what is proved is proved on the processor from the answers of either.

Writes `results/reference/solver_PLATFORM.txt`; `--search N` stops each search after so many programmes.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwopt
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.gp import certificate
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point import device_loop
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.newton import columns, problem_data
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.interior_point.sparsity import frame_of
from hwopt.solver.options import AcceleratorOptions, InteriorPointOptions, SearchOptions
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.solve_global import SearchProblem
from hwopt.validation import question_of
from results.benchmarks.drawn import QUESTIONS
from results.benchmarks.sweeps import bandwidth, processor, timed
from results.benchmarks.throughput import TOLERANCE, instances, read_and_solved

FOLDER = Path(__file__).parents[2] / "results" / "reference"
DISTINCT = 4_096
"""Instances that differ; larger batches repeat them."""
BATCHES = (256, 2_048, 16_384)
ASKED = 6
"""The question of `results/benchmarks/drawn.py` that is searched: gpt-oss-120b."""
PROGRAMMES = 4_000
"""Of each search, which is far from over then."""
AFTER, NEVER = 1_000, 10**12
"""Programmes after which that search goes to the accelerator: earlier than by itself, where it would not in so few; or never."""


def repeated(numbers: ProgramNumbers, count: int) -> ProgramNumbers:
    """So many programmes, the first again after the last."""
    return numbers.take(np.arange(count) % len(numbers))


def batch(structure: ProgramStructure, numbers: ProgramNumbers, device: Any) -> list[str]:
    """One batch: seconds, and how the answers of both agree."""
    run = lambda place: solve(structure, numbers, tolerance=TOLERANCE, device=place)
    begun = time.perf_counter()
    there = run(device)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    here = run(None)
    on_processor, on_accelerator = time.perf_counter() - begun, timed(lambda: run(device))
    proving = timed(lambda: certificate.lower_bound(structure, numbers, there.y, there.multipliers), 1)
    rate = len(numbers) / on_accelerator
    return [
        f"{len(numbers):>8,} {on_processor:10.3f} {on_accelerator:12.3f} {on_processor / on_accelerator:9.1f} {rate:12,.0f}"
        f" {first:9.1f} {proving:9.2f}   {agreement(structure, numbers, here, there)}"
    ]


def agreement(structure: ProgramStructure, numbers: ProgramNumbers, here: BatchResult, there: BatchResult) -> str:
    """Verdicts that are the same, and the largest distance of proved bounds where both are optimal."""
    both = (here.status == SolveStatus.solved) & (there.status == SolveStatus.solved)
    bounds = [
        certificate.lower_bound(structure, numbers.take(both), each.y[both], each.multipliers[both])
        for each in (here, there)
    ]
    off = np.abs(bounds[0] - bounds[1]).max(initial=0.0)
    return f"{np.mean(here.status == there.status):.2%} same verdicts, bounds within {off:.0e}"


def of_the_card(structure: ProgramStructure, numbers: ProgramNumbers, device: Any) -> list[str]:
    """Arithmetic and bytes of an iteration as compiled, against what the device does at best here."""
    frame = frame_of(structure)
    with np.errstate(all="ignore"):
        given = problem_data(structure, numbers, frame, *np.broadcast_arrays(np.full(len(numbers), np.inf), 0.0))
    first, slots = (
        columns(0.5 * (numbers.upper - numbers.lower), frame.variables),
        device_loop.slots_for(frame, len(numbers), device),
    )
    tables = jax.device_put((given, first), device)
    lowered = device_loop.loop.lower(
        device_loop.frame_on(frame, device), *tables, len(numbers), TOLERANCE, 80, slots=slots
    )
    cost: Any = lowered.compile().cost_analysis()
    seconds = timed(lambda: solve(structure, numbers, tolerance=TOLERANCE, device=device))
    iterations = int(solve(structure, numbers, tolerance=TOLERANCE, device=device).iterations.sum()) / slots
    flops, moved = cost["flops"] * iterations / seconds, cost["bytes accessed"] * iterations / seconds
    product, stream = matrix_peak(), bandwidth()
    return [
        f"an iteration of {slots:,} programmes, as compiled: {cost['flops'] / 1e9:.2f} GFLOP, "
        f"{cost['bytes accessed'] / 1e9:.2f} GB; {iterations:,.0f} of them with every slot busy would be all of {len(numbers):,}",
        f"this device: {product / 1e12:.1f} TFLOP/s of float64 products, {stream / 1e12:.2f} TB/s of memory;"
        f" of these {flops / product:.1%} and {moved / stream:.1%} in the seconds of the whole call",
        f"memory of a programme in work {device_loop.bytes_of_a_slot(frame) / 1e3:,.0f} kB, by our estimate",
    ]


def matrix_peak(size: int = 4096) -> float:
    """float64 operations a second of a product of square matrices."""
    with jax.enable_x64(True):
        a = jnp.ones((size, size), jnp.float64)
        program = jax.jit(lambda x: x @ x)
        jax.block_until_ready(program(a))
        return 2.0 * size**3 / timed(lambda: jax.block_until_ready(program(a)))


def searched(after: int, most: int) -> str:
    """A search of a drawn chip, its structure going to the accelerator after so many programmes."""
    objective, fields = QUESTIONS[ASKED]
    problem = question_of(hwopt.objective(objective, **fields))
    interior_point = InteriorPointOptions(accelerator=AcceleratorOptions(after_programs=after))
    options = SearchOptions(interior_point=interior_point)
    question = SearchProblem(problem, lattice_of(problem), ExactModel(problem).prepare(), Deadline(), options=options)
    begun = time.perf_counter()
    search(question.programmes, result=question.result, most_boxes=most, exact=[question.model])
    seconds = time.perf_counter() - begun
    result = question.result
    return (
        f"{seconds:8.1f} s for {result.boxes:,} programmes in {result.rounds} rounds; {math.exp(result.value):,.0f} $, "
        f"gap {result.gap:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", type=int, default=PROGRAMMES)
    options = parser.parse_args()
    device = jax.devices()[0]
    with jax.enable_x64(True):
        programme = read_and_solved(instances(DISTINCT)).programme
        structure, numbers = programme.structure, programme.numbers
        lines = [
            f"The interior point of certified searches, float64: {structure.exponents.shape[1]} variables, "
            f"{len(structure.target)} groups, {len(structure.group)} terms",
            f"{processor()}, {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}; the processor's iteration uses one); "
            f"{device.device_kind}; jax {version('jax')}",
            "",
            "   batch  processor  accelerator     ratio   programmes   first, s   proving   accelerator beside processor",
            "                  s            s              a second  (compiles)         s",
        ]
        for count in BATCHES:
            lines += batch(structure, repeated(numbers, count), device)
            print(lines[-1], flush=True)
        lines += ["", *of_the_card(structure, repeated(numbers, BATCHES[-1]), device)]
        print("\n".join(lines[-3:]), flush=True)
        lines += [
            "",
            f"the first {options.search:,} programmes of a search ({QUESTIONS[ASKED][1]['workload']}, drawn chip)",
        ]
        for name, after in (("processor", NEVER), ("accelerator", AFTER)):
            lines.append(f"{name:<12}{searched(after, options.search)}")
            print(lines[-1], flush=True)
    (FOLDER / f"solver_{device.platform}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
