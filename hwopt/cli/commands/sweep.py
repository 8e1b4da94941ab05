"""`hwopt sweep`: many variants of a design question; exit code 1 where none satisfies its budgets."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from hwopt.cli.commands.optimize import BOUNDS, FREEZE
from hwopt.cli.flags import Flag, Modes, foreign
from hwopt.cli.output import bar, interruptible
from hwopt.cli.paths import REPORT, Outputs
from hwopt.cli.question import CHOICES, SEED, asked_objective, check_choices
from hwopt.cli.value_types import INTEGER, NAMES, NATURAL, PATH, POSITIVE, SWITCH, TEXT, ValueType, entries
from hwopt.errors import UserError

DEFAULT_SAMPLES = 1 << 20


def _levels(example: str, flag: str, text: str) -> dict[str, list[float]]:
    from hwopt.sweeps.user_points import level_range

    return {name: level_range(levels, f"{flag} {name}") for name, levels in entries(example, flag, text).items()}


_GRID = "name=low:high:count or name=a|b|c, such as chips=1024:65536:7,tp=1|2|4|8"
_BUDGETS = "budget=low:high:count, such as power_budget_w=30e6:60e6:4"

_VARIANTS = Modes(("variants",), "variants")
"""Mode of flags that apply to sampled variants only, not to `--frontier`, which solves for optima."""

FLAGS = (
    Flag("--samples", f"variants of each case: 1e6 or 1,000,000 (default {DEFAULT_SAMPLES:,}; a grid or table has its own)",
         INTEGER, modes=_VARIANTS),
    Flag("--out", "folder of the store, or a URL (s3://bucket/runs/first), resumed when it is there; figures go "
         "beside it. Default: nothing is kept", PATH),
    Flag("--method", "sobol (default: a scrambled Sobol sequence) or lhs (a Latin hypercube)", TEXT, modes=_VARIANTS),
    Flag("--sampling", "importance (default where it can be: most variants near good designs, with weights) or plain", TEXT,
         modes=_VARIANTS),
    Flag("--grid", "every combination of levels: chips=1024:65536:7,tp=1|2|4|8 (low:high:count, or a|b|c in quotes)",
         ValueType("NAME=LEVELS", partial(_levels, _GRID)), modes=_VARIANTS),
    Flag("--table", "CSV file of variants: a line of variables' names, then a line of SI numbers for each variant", PATH,
         modes=_VARIANTS),
    CHOICES,
    BOUNDS,
    FREEZE,
    Flag("--frontier", "instead of variants, the certified optimum at levels of budgets: power_budget_w=30e6:60e6:4",
         ValueType("BUDGET=LEVELS", partial(_levels, _BUDGETS))),
    Flag("--within", "sample only around the certified optimum, by this ratio to both sides: 1.1 for 10 %%", POSITIVE,
         modes=_VARIANTS),
    Flag("--metrics", "numbers of each variant, in place of the usual ones: step_time_s,mfu,...", NAMES, (), modes=_VARIANTS),
    Flag("--pareto", "metrics of the front, all minimised: run_cost_usd,run_time_s", NAMES, modes=_VARIANTS),
    Flag("--map", "two variables of the bottleneck map, x,y: chips,hbm_bandwidth_bytes_per_s", NAMES, modes=_VARIANTS),
    Flag("--dtype", "float32 or float64", TEXT, "float32"),
    Flag("--block", "variants written at a time: what a kill loses at most", INTEGER, modes=_VARIANTS),
    Flag("--gradients", "elasticities of the objective for each variant, by all variables or by those (and inputs) named",
         NAMES, (), modes=_VARIANTS, alone=True),
    Flag("--rows", "keep every variant, or only counts, best ones, front and map (default: every one up to 16.8 million)",
         SWITCH, modes=_VARIANTS, also=("--no-rows",)),
    Flag("--no-figures", "draw no figures into DIR.figures", SWITCH, True, field="figures"),
    Flag("--distributed", "one of several processes (Slurm, Open MPI, Kubernetes, TPU pods)", SWITCH, False,
         modes=_VARIANTS),
    Flag("--coordinator", "host:port of process 0, where --distributed does not find it", TEXT, modes=_VARIANTS),
    Flag("--processes", "how many processes share the sweep, where --distributed does not find it", INTEGER, modes=_VARIANTS),
    Flag("--process", "number of this process, from 0, where --distributed does not find it", NATURAL, modes=_VARIANTS),
    Flag("--csv", "also write every variant as a row of this file, units in the names of columns", PATH, modes=_VARIANTS),
    Flag("--parquet", "the same as Parquet, where pyarrow is installed", PATH, modes=_VARIANTS),
    SEED,
    REPORT,
)  # fmt: skip


def answer(options: argparse.Namespace) -> int:
    """Print the answer of `hwopt sweep` and return the exit code.

    Of several processes that share a sweep, only the first prints.
    """
    return (_variants if options.frontier is None else _optima)(options)


def _variants(options: argparse.Namespace) -> int:
    arguments, outputs, tables = _arguments(options), Outputs.of(options), _tables(options)
    first = _joined(options)
    objective = asked_objective(options)
    from hwopt.output.answers.sweep import sweep_document, sweep_screen
    from hwopt.output.answers.sweep_table import write_table
    from hwopt.output.html.variants import variants_page
    from hwopt.sweeps import sweep

    def draw(dataset: Any, folder: Path) -> list[Path]:
        from hwopt.output.figures.sweep import save_figures

        return save_figures(dataset, folder)

    kept = "finished blocks are kept; the same command goes on" if outputs.folder else "nothing is kept without --out"
    with interruptible(kept):
        with bar(options, objective, first) as tell:
            dataset = sweep(objective, out=outputs.folder, progress=tell, **arguments)
        if first:
            outputs.write(dataset, draw, variants_page, sweep_document, sweep_screen)
            for path in tables:
                write_table(path, dataset)
    return 0 if dataset.attrs["best_are"] == "feasible" else 1


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
        raise UserError("--no-rows: no variant is kept that a table could hold")
    return paths


def _optima(options: argparse.Namespace) -> int:
    """Print certified optima at levels of budgets; return 1 where no level is feasible."""
    if stranger := foreign(options, FLAGS, "frontier"):
        raise UserError(f"{stranger[0]}: has no meaning beside --frontier, which solves, not samples")
    outputs, objective = Outputs.of(options), asked_objective(options)
    from hwopt.analysis.frontier import frontier
    from hwopt.output.answers.frontier import frontier_document, frontier_screen
    from hwopt.output.html.optima import optima_page

    def draw(dataset: Any, folder: Path) -> list[Path]:
        from hwopt.output.figures.frontier import plot_frontier
        from hwopt.output.figures.sweep import save_figures

        return save_figures(dataset, folder, {"frontier": plot_frontier})

    check_choices(options)
    levers = {"freeze": options.freeze, "bounds": options.bounds, "choices": options.choices}
    with interruptible("finished points are kept with --out; the same command goes on"):
        with bar(options, objective) as tell:
            dataset = frontier(objective, options.frontier, out=outputs.folder, progress=tell, **levers)
        outputs.write(dataset, draw, optima_page, frontier_document, frontier_screen)
    return 0 if bool((dataset["feasible"] > 0).any()) else 1


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `hwopt.sweep` from the flags."""
    if options.gradients and options.rows is False:
        raise UserError("--gradients: they are kept with the variants; leave out --no-rows")
    check_choices(options)
    counted = options.grid is not None or options.table is not None
    same = ("method", "sampling", "seed", "grid", "table", "choices", "bounds", "freeze", "within", "metrics",
            "pareto", "gradients", "rows", "dtype", "block")  # fmt: skip
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
        raise UserError(f"--process {index}: of --processes {count} the last is {count - 1}")
    host, _, port = (options.coordinator or "host:1").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--coordinator {options.coordinator}: write host:port, such as node0:1234")
    import jax

    from hwopt.sweeps import store_lock

    store_lock.join(options.coordinator, count, index)
    return jax.process_index() == 0
