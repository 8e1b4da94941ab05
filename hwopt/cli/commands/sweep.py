"""`hwopt sweep`: evaluate many variants of a design question; exit code 1 where none is feasible."""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt.cli.commands.optimize import BOUNDS, FREEZE
from hwopt.cli.flags import Flag, Modes, foreign
from hwopt.cli.output import bar, interruptible
from hwopt.cli.paths import REPORT, Outputs
from hwopt.cli.question import CHOICES, SEED, asked_objective
from hwopt.cli.value_types import INTEGER, NAMES, NATURAL, PATH, POSITIVE, SWITCH, TEXT, ValueType, entries
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

DEFAULT_SAMPLES = 1 << 20


def _levels(example: str, flag: str, text: str) -> dict[str, list[float]]:
    from hwopt.sweeps.user_points import level_range

    return {name: level_range(levels, f"{flag} {name}") for name, levels in entries(example, flag, text).items()}


_GRID = "name=low:high:count or name=a|b|c, such as chips=1024:65536:7,tp=1|2|4|8"
_BUDGETS = "budget=low:high:count, such as power_budget_w=30e6:60e6:4"

_VARIANTS = Modes(("variants",), "variants")
"""Mode of flags that apply to sampled variants only, not to `--frontier`, which solves for optima."""

FLAGS = (
    Flag("--samples", f"designs for each case, such as 1e6 or 1,000,000 (default {DEFAULT_SAMPLES:,}; a grid or table sets it)",
         INTEGER, modes=_VARIANTS),
    Flag("--out", "folder or URL (s3://bucket/runs/first) of the store; an existing store is resumed; figures go next to it. "
         "Default: nothing is saved", PATH),
    Flag("--method", "sobol (scrambled Sobol sequence, the default) or lhs (Latin hypercube)", TEXT, modes=_VARIANTS),
    Flag("--sampling", "importance (most designs near good ones, weighted; the default where possible) or plain (uniform)", TEXT,
         modes=_VARIANTS),
    Flag("--grid", "every combination of levels: chips=1024:65536:7,tp=1|2|4|8 (low:high:count, or a|b|c in quotes)",
         ValueType("NAME=LEVELS", partial(_levels, _GRID)), modes=_VARIANTS),
    Flag("--table", "CSV file of designs: a header of variable names, then a row of SI values for each design", PATH,
         modes=_VARIANTS),
    CHOICES,
    BOUNDS,
    FREEZE,
    Flag("--frontier", "certified optimum at each level of these budgets, instead of samples: power_budget_w=30e6:60e6:4",
         ValueType("BUDGET=LEVELS", partial(_levels, _BUDGETS))),
    Flag("--within", "sample only around the certified optimum, up to this ratio to both sides: 1.1 for 10 %%", POSITIVE,
         modes=_VARIANTS),
    Flag("--as-sold", "only machines as sold with plans that the software documents, as in hwopt optimize (default: all hardware "
         "is free)", SWITCH, False, modes=_VARIANTS),
    Flag("--metrics", "metrics of each design, instead of the default ones: step_time_s,mfu,...", NAMES, (), modes=_VARIANTS),
    Flag("--pareto", "metrics of the Pareto front, all minimized: run_cost_usd,run_time_s", NAMES, modes=_VARIANTS),
    Flag("--map", "x and y variables of the bottleneck map: chips,hbm_bandwidth_bytes_per_s", NAMES, modes=_VARIANTS),
    Flag("--dtype", "floating-point type of the evaluation: float32 or float64", TEXT, "float32"),
    Flag("--block", "designs written at a time; a killed sweep loses at most one block", INTEGER, modes=_VARIANTS),
    Flag("--gradients", "elasticities of the objective for each design, to all variables or to the named variables and inputs",
         NAMES, (), modes=_VARIANTS, alone=True),
    Flag("--rows", "store every design, or only counts, best designs, front and map (default: all up to 16.8 million)",
         SWITCH, modes=_VARIANTS, also=("--no-rows",)),
    Flag("--no-figures", "draw no figures into DIR.figures", SWITCH, True, field="figures"),
    Flag("--distributed", "join the processes that share this sweep (Slurm, Open MPI, Kubernetes, TPU pods)", SWITCH, False,
         modes=_VARIANTS),
    Flag("--coordinator", "host:port of process 0, where --distributed does not detect it", TEXT, modes=_VARIANTS),
    Flag("--processes", "number of processes that share the sweep, where --distributed does not detect it", INTEGER,
         modes=_VARIANTS),
    Flag("--process", "index of this process, from 0, where --distributed does not detect it", NATURAL, modes=_VARIANTS),
    Flag("--csv", "also write every design as a row of this CSV file, with units in the column names", PATH, modes=_VARIANTS),
    Flag("--parquet", "also write the same table as Parquet (requires pyarrow)", PATH, modes=_VARIANTS),
    SEED,
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: best design, budgets, front, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer | int":
    """Return the answer of `hwopt sweep`.

    Of several processes that share a sweep, only the first has an answer; the others return their exit code.
    """
    return (_variants if options.frontier is None else _optima)(options)


def _variants(options: argparse.Namespace) -> "Answer | int":
    arguments, outputs, tables = _arguments(options), Outputs.of(options), _tables(options)
    first = _joined(options)
    objective = asked_objective(options)
    from hwopt.output.answers.sweep import sweep_answer
    from hwopt.output.answers.sweep_table import write_table
    from hwopt.sweeps import sweep

    kept = "finished blocks are saved; the same command resumes" if outputs.folder else "nothing is saved without --out"
    with interruptible(kept):
        with bar(options, objective, first) as tell:
            dataset = sweep(objective, out=outputs.folder, progress=tell, **arguments)
        if not first:
            return 0 if dataset.attrs["best_are"] == "feasible" else 1
        figures = outputs.drawn(partial(_draw, dataset))
        for path in tables:
            write_table(path, dataset)
        return sweep_answer(dataset, outputs.out, figures, tables)


def _draw(dataset: Any, folder: Path) -> list[Path]:
    """Write the figures of a sweep, or that of a frontier, into a folder, and return their paths."""
    from hwopt.output.figures.frontier import plot_frontier
    from hwopt.output.figures.sweep import FIGURES, save_figures

    return save_figures(dataset, folder, FIGURES if "best_variant" in dataset else {"frontier": plot_frontier})


def _tables(options: argparse.Namespace) -> list[Path]:
    """Return the files of `--csv` and `--parquet`, after checking that they can be written."""
    from hwopt.output.answers.sweep_table import check_table
    from hwopt.output.html.files import writable

    paths = []
    for flag, end in (("--csv", ".csv"), ("--parquet", ".parquet")):
        text = getattr(options, flag[2:])
        if text is None:
            continue
        check_table(flag, text)
        if not text.endswith(end):
            raise UserError(f"{flag} {text}: end its name in {end}")
        paths.append(writable(flag, text, f"variants{end}"))
    if paths and options.rows is False:
        raise UserError("--no-rows: --csv and --parquet need every design; leave it out")
    return paths


def _optima(options: argparse.Namespace) -> "Answer":
    """Return certified optima at levels of budgets."""
    if stranger := foreign(options, FLAGS, "frontier"):
        raise UserError(f"{stranger[0]}: has no meaning with --frontier, which optimizes instead of sampling")
    outputs, objective = Outputs.of(options), asked_objective(options)
    from hwopt.analysis.frontier import frontier
    from hwopt.output.answers.frontier import frontier_answer

    levers = {"freeze": options.freeze, "bounds": options.bounds, "choices": options.choices}
    with interruptible("with --out finished points are saved, and the same command resumes"):
        with bar(options, objective) as tell:
            dataset = frontier(objective, options.frontier, out=outputs.folder, progress=tell, **levers)
        return frontier_answer(dataset, outputs.out, outputs.drawn(partial(_draw, dataset)))


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `hwopt.sweep` from the flags."""
    if options.gradients and options.rows is False:
        raise UserError("--gradients: elasticities are stored with every design; leave out --no-rows")
    counted = options.grid is not None or options.table is not None
    same = ("method", "sampling", "seed", "grid", "table", "choices", "bounds", "freeze", "within", "metrics",
            "pareto", "gradients", "rows", "dtype", "block", "as_sold")  # fmt: skip
    samples = options.samples or (None if counted else DEFAULT_SAMPLES)
    return {name: getattr(options, name) for name in same} | {"samples": samples, "map_of": options.map}


def _joined(options: argparse.Namespace) -> bool:
    """Join the processes that share a sweep; return whether this is the first, which prints.

    Must be called before JAX looks for devices.
    """
    places = (options.coordinator, options.processes, options.process)
    if not options.distributed and all(each is None for each in places):
        return True
    count, index = options.processes, options.process
    if index is not None and count is not None and index >= count:
        raise UserError(f"--process {index}: with --processes {count} the last index is {count - 1}")
    host, _, port = (options.coordinator or "host:1").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--coordinator {options.coordinator}: write host:port, such as node0:1234")
    import jax

    from hwopt.sweeps import store_lock

    store_lock.join(options.coordinator, count, index)
    return jax.process_index() == 0
