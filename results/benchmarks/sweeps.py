"""Variants a second of sweeps, and what this machine could do at best: `python results/benchmarks/sweeps.py`.

Writes `results/reference/sweeps.txt` (on an accelerator `sweeps_PLATFORM.txt`). `--quick` leaves the largest sizes out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hwopt
from hwopt.design.template_inputs import template_inputs
from hwopt.sweeps.evaluator import in_order, options_of
from hwopt.sweeps.program_cache import forget
from hwopt.sweeps.reductions import Block
from hwopt.sweeps.run import SweepRun
from hwopt.sweeps.specification import Specification

FOLDER = Path(__file__).parents[2] / "results" / "reference"

SIZES = {"cpu": (1_000, 10_000, 100_000, 1_000_000, 10_000_000), "gpu": (1_000_000, 1_000_000_000)}
"""Variants, by backend; those of a processor but the last are asked for twice."""
LARGEST = 100_000_000
"""Variants of a process whose memory is measured."""
GRADIENT_INPUTS = 25
REPEATS = 3


def question(gradients: bool, samples: int, rows: bool = False, sampling: str = "plain") -> Specification:
    """The default question with ten metrics; gradients by its variables and by prices."""
    objective = hwopt.objective("train_cost")
    names: list[str] = []
    if gradients:
        problem = objective.problem().continuous
        names = [each.name for each in problem.variables if each.category != "lookup"]
        prices = [each.name for each in template_inputs(problem) if each.name.startswith("cluster.prices.")]
        names += prices[: GRADIENT_INPUTS - len(names)]
    return Specification(objective, samples, sampling=sampling, rows=rows or gradients, gradients=names)


def timed(function: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the quickest of some calls."""
    best = np.inf
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begun)
    return best


def end_to_end(spec: Specification, folder: Path | None = None) -> tuple[float, float]:
    """Seconds of starting (tracing, compiling, the first tile) and of evaluating, reducing and storing all variants."""
    forget()
    begun = time.perf_counter()
    run_ = SweepRun(spec)
    store = run_.store(folder)
    for evaluator, reduction in zip(run_.evaluators, run_.reductions, strict=True):
        columns = evaluator(evaluator.starts([0])[0])
        block = Block(reduction)
        block.finish(block.begin(0, columns | reduction.compiled_codes(columns), 1))
    started = time.perf_counter()
    run_.complete(store, None)
    return started - begun, time.perf_counter() - started


def tiles(spec: Specification) -> tuple[float, float]:
    """Seconds of starting, and of evaluating all tiles of a sweep whose columns nobody keeps."""
    forget()
    begun = time.perf_counter()
    evaluator = SweepRun(spec).evaluators[0]
    starts = evaluator.starts(range(0, spec.samples, spec.tile))
    jax.block_until_ready(evaluator(starts[0]))
    started = time.perf_counter()
    for _ in in_order((partial(evaluator, each) for each in starts), evaluator.devices):
        pass
    return started - begun, time.perf_counter() - started


def fused_peak() -> float:
    """Multiply-adds a second of all cores, times two: chains side by side, on columns that stay in a processor's cache, or are
    read once for many operations where there are no such columns.
    """
    count, depth, chains = 1 << (15 if jax.default_backend() == "cpu" else 24), 64, 8

    def chain(x, a, b):
        held = [x + i for i in range(chains)]
        for _ in range(depth):
            held = [each * a + b for each in held]
        return sum(held)

    options = options_of(jax.default_backend())
    program = jax.jit(chain, compiler_options=options)
    x = [jnp.full(count, value, jnp.float32) for value in (1.0, 0.999, 0.001)]
    jax.block_until_ready(program(*x))
    many = 200 if jax.default_backend() == "cpu" else 20
    seconds = timed(lambda: jax.block_until_ready([program(*x) for _ in range(many)]))
    return 2.0 * depth * chains * count * many / seconds


def bandwidth() -> float:
    """Bytes a second read and written by passes over columns that no cache holds, in place; many in one call, whose own cost is
    that of a pass on an accelerator.
    """
    passes = 50
    once = lambda _, x: jax.lax.optimization_barrier(x + 1.0)
    program = jax.jit(lambda x: jax.lax.fori_loop(0, passes, once, x), donate_argnums=0)
    held = [jax.block_until_ready(program(jnp.ones(1 << 26, jnp.float32)))]

    def again():
        held[0] = jax.block_until_ready(program(held[0]))

    return 2.0 * held[0].nbytes * passes / timed(again)


def completing(run_: SweepRun) -> tuple[tuple[float, float], Any]:
    """Seconds and CPU seconds of evaluating and reducing all variants of a sweep, and its finished store."""
    store = run_.store(None)
    begun, cpu = time.perf_counter(), time.process_time()
    run_.complete(store, None)
    seconds = time.perf_counter() - begun, time.process_time() - cpu
    run_.finish(store)
    return seconds, store


def focused(samples: int, optimum: float | None = None) -> list[str]:
    """Plain and importance sampling side by side, by turns: variants a second, what is feasible, how good the best is."""
    from hwopt.solver.optimize import optimize

    specs = {name: question(False, samples, sampling=name) for name in ("plain", "importance")}
    runs = {name: SweepRun(spec) for name, spec in specs.items()}
    begun = time.perf_counter()
    made = {name: completing(run_) for name, run_ in runs.items()}  # compiles
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    forget()
    runs["importance"].store(None)  # looks for the boxes again
    looking = time.perf_counter() - begun
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in specs}
    for _ in range(3 * REPEATS):
        for name, run_ in runs.items():
            seconds[name].append(completing(run_)[0])
    rates = {name: samples / min(each)[0] for name, each in seconds.items()}
    ratio, of_cpu = np.median(np.divide(seconds["plain"], seconds["importance"]), axis=0)
    optimum = optimize(specs["plain"].problem).objective if optimum is None else optimum
    lines = [
        f"{samples:,} variants of {specs['plain'].problem.name}, no rows; certified optimum of continuous hardware {optimum:,.6g}",
        f"looking for the boxes: {looking:.2f} s, once; both programs compiled and run once: {first:.1f} s",
        f"importance over plain: {ratio:.2f} variants a second, {of_cpu:.2f} a CPU second (median of {3 * REPEATS} by turns; "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})",
        "",
        "                  variants/s     feasible   feasible share of the space     best above the optimum",
    ]
    for name, (_, store) in made.items():
        arrays = {
            key: np.asarray(store.array(key)[...])
            for key in ("feasible_count", "feasible_share", "feasible_share_error")
        }
        best = np.asarray(store.array("best_run_cost_usd")[...])
        above = f"{best[0] / optimum - 1.0:.2%}" if store.group.attrs["best_are"] == "feasible" else "none feasible"
        share = f"{arrays['feasible_share']:.2e} (standard error {arrays['feasible_share_error']:.1e})"
        lines.append(f"{name:<12}  {rates[name]:14,.0f}  {arrays['feasible_count']:11,}   {share:<28}    {above}")
    return lines


def work(spec: Specification) -> dict[str, float]:
    """Operations and bytes of a variant, from a point's numbers to what is judged: as stated, and as compiled."""
    evaluator = SweepRun(spec).evaluators[0]
    inputs = [jax.ShapeDtypeStruct((evaluator.chunk,), np.dtype(spec.dtype))] * len(evaluator.sampler.names)
    options = options_of(spec.platform)
    line = evaluator.line
    compiled = jax.jit(line.__call__, compiler_options=options).lower(*inputs).compile()
    cost: Any = compiled.cost_analysis()
    memory = compiled.memory_analysis()
    return {
        "operations": len(line.operations),
        "flops": cost["flops"] / evaluator.chunk,
        "bytes": cost["bytes accessed"] / evaluator.chunk,
        "columns": (memory.argument_size_in_bytes + memory.output_size_in_bytes) / evaluator.chunk,
    }


def plain_vmap(spec: Specification, count: int = 1 << 15) -> float:
    """Variants a second of `jax.vmap` of the same outputs: what sweeps would be without scalar operations."""
    from hwopt.design.problem import design_at, values
    from hwopt.model.estimate import estimate

    problem = spec.problem
    template = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), problem.template)
    limits = np.asarray(problem.limits, np.float32)

    def one(template, y):
        design = design_at(problem.form, template, y)
        report = estimate(*design.inputs)
        at = values(problem.form, design, report, limits)
        return [each.value(report) for each in spec.metrics], at.constraints

    rng = np.random.default_rng(0)
    low, high = np.asarray(problem.lower, np.float32), np.asarray(problem.upper, np.float32)
    y = jnp.asarray(low + (high - low) * rng.random((count, len(low)), np.float32))
    program = jax.jit(jax.vmap(one, (None, 0)))
    jax.block_until_ready(program(template, y))
    return count / timed(lambda: jax.block_until_ready(program(template, y)))


def peak_memory(samples: int) -> float:
    """Largest resident set, in bytes, of a process that sweeps so many variants without rows."""
    code = f"import hwopt; hwopt.sweep(hwopt.objective('train_cost'), {samples}, rows=False)"
    code += "; print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(made.stdout.split()[-1]) * 1024


def processor() -> str:
    """What this machine calls itself."""
    try:
        found = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1).strip() if found else "unknown processor"


def table(quick: bool) -> list[str]:
    """The report, line by line."""
    device = jax.devices()[0]
    sizes = SIZES[device.platform][: -1 if quick else None]
    made = question(False, sizes[-1])
    lines = [
        f"Sweeps of {made.problem.name}: {len(made.variables)} variables, {len(made.metrics)} metrics, "
        f"{len(made.constraints)} constraints, {made.dtype}",
        f"{processor()}, {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}); {len(jax.devices())} x {device.device_kind}; "
        f"jax {version('jax')}",
        "forward: sampling, model, constraints and reductions (counts, histograms, best, Pareto front, bottleneck map), no rows;",
        "gradients: sampling, model, constraints and the objective's slopes by 25 inputs, nothing kept",
        "",
        "    variants        forward        with gradients",
    ]
    starts, seconds_of = {}, {}
    for size in sizes:
        cells = []
        for gradients, measured in ((False, end_to_end), (True, tiles)):
            starting, seconds = measured(question(gradients, size))
            twice = device.platform == "cpu" and size < 1_000_000
            _, again = measured(question(gradients, size)) if twice else (0.0, seconds)
            starts.setdefault(gradients, starting)
            seconds_of.setdefault(size, seconds)  # forward
            cells.append(f"{size / min(seconds, again):12,.0f}/s")
        lines.append(f"{size:>12,}  " + "   ".join(cells))
        print(lines[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _, seconds = end_to_end(question(False, 1 << 22, rows=True), Path(folder) / "store")
        _, inside = end_to_end(question(False, 1 << 22, rows=True))
    of = work(made)
    lines += [
        "",
        f"rows kept: {(1 << 22) / inside:,.0f}/s in memory, {(1 << 22) / seconds:,.0f}/s to disk (4,194,304 variants)",
        f"starting (tracing, compiling, first tile): forward {starts[False]:.1f} s, with gradients {starts[True]:.1f} s",
        f"jax.vmap of the same metrics and constraints, compiled, nothing reduced: {plain_vmap(made):,.0f}/s",
        "",
        f"a variant: {of['operations']:.0f} scalar operations, {of['flops']:.0f} as compiled (fusions repeat some), "
        f"{of['columns']:.0f} bytes of columns in and out",
    ]
    peak, stream = fused_peak(), bandwidth()
    rate = sizes[-1] / (
        end_to_end(question(False, sizes[-1]))[1] if device.platform == "cpu" else seconds_of[sizes[-1]]
    )
    lines += [
        f"this machine: {peak / 1e9:,.0f} GFLOP/s of multiply-adds{' in cache' * (device.platform == 'cpu')}, "
        f"{stream / 1e9:,.1f} GB/s of memory",
        f"at {rate:,.0f}/s: {of['flops'] * rate / peak:.0%} of that arithmetic as compiled "
        f"({of['operations'] * rate / peak:.0%} as stated), {of['columns'] * rate / stream:.0%} of that bandwidth",
    ]
    if not quick and device.platform == "cpu":
        small, large = peak_memory(1_000_000), peak_memory(LARGEST)
        lines.append(
            f"peak memory of a process: {small / 1e6:,.0f} MB at 1,000,000 variants, {large / 1e6:,.0f} MB at {LARGEST:,}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default=None)
    parser.add_argument(
        "--focused", type=float, nargs="?", const=1e6, help="only importance beside plain sampling, of so many"
    )
    parser.add_argument("--optimum", type=float, help="the certified optimum, where it is known")
    options = parser.parse_args()
    if options.focused:
        print("\n".join(focused(int(options.focused), options.optimum)))
        return
    text = "\n".join(table(options.quick))
    print(text)
    platform = jax.default_backend()
    name = "sweeps.txt" if platform == "cpu" else f"sweeps_{platform}.txt"
    (Path(options.out) if options.out else FOLDER / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
