"""The command `sweep`: its flags, what they mean, how far it is, and what remains when it is stopped."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hwopt.cli.commands import asked_objective, boxes, flag, names, number, page_path, print_json
from hwopt.errors import UserError
from hwopt.units import pretty

DEFAULT_SAMPLES = 1 << 20

SWITCHES = ("--rows", "--no-rows", "--no-figures", "--distributed")
"""Flags without a value."""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Flags of `sweep`, besides its question's fields."""
    for name, meaning in (
        (
            "--samples",
            f"variants of each case: 1e6, 1_000_000 (default {DEFAULT_SAMPLES:_}; a grid or table has its own)",
        ),
        ("--out", "folder of the store, resumed when it is there; figures go beside it. Default: nothing is kept"),
        ("--method", "sobol (default: a scrambled Sobol sequence) or lhs (a Latin hypercube)"),
        ("--grid", "every combination of levels: chips=1024:65536:7,tp=1|2|4|8 (low:high:count, or a|b|c in quotes)"),
        ("--table", "CSV file of variants: a line of variables' names, then a line of SI numbers for each variant"),
        ("--choices", "fields of the question, every combination a case: chip=h100-sxm|b200,cooling=air|direct-liquid"),
        ("--bounds", "boxes of one's own in SI units: tp=8:16,chips_per_rack=32:32"),
        ("--freeze", "variables or categories held as they are, comma-separated: scale_up_domain,chip,network"),
        ("--frontier", "instead of variants, the certified optimum at levels of budgets: power_budget_w=30e6:60e6:4"),
        ("--within", "sample only around the certified optimum, by this ratio to both sides: 1.1 for 10 %%"),
        ("--metrics", "numbers of each variant, in place of the usual ones: step_time_s,mfu,..."),
        ("--pareto", "metrics of the front, all made small: run_cost_usd,run_time_s"),
        ("--map", "two variables of the bottleneck map, x,y: chips,hbm_bandwidth_bytes_per_s"),
        ("--dtype", "float32 (default) or float64"),
        ("--block", "variants written at a time: what a kill loses at most"),
        ("--coordinator", "host:port of process 0, where --distributed does not find it"),
        ("--processes", "how many processes share the sweep, likewise"),
        ("--process", "number of this one, from 0, likewise"),
    ):
        default = "float32" if name == "--dtype" else None
        command.add_argument(name, metavar="X", default=default, help=meaning)
    command.add_argument(
        "--gradients",
        nargs="?",
        const=True,
        metavar="A,B",
        help="elasticities of the objective for each variant, by all variables or by those (and inputs) named",
    )
    command.add_argument(
        "--rows",
        action=argparse.BooleanOptionalAction,
        help="keep every variant, or only counts, best ones, front and map (default: every one up to 16.8 million)",
    )
    command.add_argument("--no-figures", action="store_true", help="draw no figures into DIR.figures")
    command.add_argument(
        "--distributed", action="store_true", help="one of several processes (Slurm, Open MPI, Kubernetes, TPU pods)"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the sequence (default 0)")


def run_sweep(options: argparse.Namespace) -> int:
    """Many variants of a question; 1 where none holds its budgets."""
    if options.frontier is not None:
        return _run_frontier(options)
    asked = _asked(options)
    folder, figures = _folders(options)
    page = page_path(options)
    first = _joined(options)
    objective = asked_objective(options)
    from hwopt.study.sweep import sweep

    shown = first and not options.json and sys.stderr.isatty()
    unit = objective.problem().objective.unit if shown else ""
    try:
        with _progress(unit) if shown else contextlib.nullcontext() as tell:
            dataset = sweep(objective, out=folder, progress=tell, **asked)
        if first:
            _answer(options, dataset, figures, page)
    except KeyboardInterrupt:
        kept = "finished blocks are kept; the same command goes on" if folder else "nothing is kept without --out"
        raise KeyboardInterrupt(f"interrupted: {kept}") from None
    return 0 if dataset.attrs["best_are"] == "feasible" else 1


_OF_VARIANTS = (
    "samples", "method", "grid", "table", "choices", "within", "metrics", "pareto", "map", "block", "gradients", "rows",
    "coordinator", "processes", "process",
)  # fmt: skip
"""Flags that say nothing about a frontier."""


def _run_frontier(options: argparse.Namespace) -> int:
    """Certified optima over budgets; 1 where no level of them has a design."""
    given = [name for name in _OF_VARIANTS if getattr(options, name) is not None]
    if given or options.distributed:
        raise UserError(
            f"--{given[0] if given else 'distributed'}: has no meaning beside --frontier, which solves, not samples"
        )
    levels = _levels("--frontier", options.frontier, "budget=low:high:count, such as power_budget_w=30e6:60e6:4") or {}
    folder, figures = _folders(options)
    page = page_path(options)
    objective = asked_objective(options)
    from hwopt.report.frontier import frontier_document, frontier_screen
    from hwopt.study.frontier import frontier

    shown = not options.json and sys.stderr.isatty()
    unit = objective.problem().objective.unit if shown else ""
    try:
        with _progress(unit) if shown else contextlib.nullcontext() as tell:
            dataset = frontier(
                objective, levels, out=folder, freeze=names(options.freeze), bounds=boxes(options.bounds), progress=tell
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: finished points are kept with --out; the same command goes on") from None
    drawn = _drawn_frontier(options, dataset, figures)
    out = str(Path(options.out)) if options.out else None
    found = frontier_document(dataset, out, drawn)
    if page is not None:
        from hwopt.report.page.files import write
        from hwopt.report.page.optima import optima_page

        write(page, optima_page(dataset, options.command_line, out, drawn))
    if options.json:
        print_json(found)
    else:
        print(frontier_screen(dataset, out, drawn))
    return 0 if found["feasible"] else 1


def _drawn_frontier(options: argparse.Namespace, dataset: Any, figures: Path | None) -> tuple[str, ...]:
    """The frontier's figure, where it has one and there is a folder for it."""
    if figures is None:
        return ()
    from hwopt.plot.frontier import plot_frontier
    from hwopt.plot.style import NothingToDraw

    try:
        figures.mkdir(parents=True, exist_ok=True)
        plot_frontier(dataset, figures / "frontier.png")
    except NothingToDraw:
        return ()
    except OSError as error:
        raise UserError(f"folder {figures}: cannot be made ({error})") from None
    return (str(Path(options.out).parent / figures.name / "frontier.png"),)


def _answer(options: argparse.Namespace, dataset: Any, figures: Path | None, page: Path | None) -> None:
    """Figures, the page, then screen or JSON."""
    from hwopt.report.sweep import sweep_document, sweep_screen

    drawn = []
    if figures is not None:
        from hwopt.plot.sweep import save_figures

        beside = Path(options.out).parent / figures.name  # as the user wrote it
        drawn = [str(beside / path.name) for path in save_figures(dataset, figures)]
    out = str(Path(options.out)) if options.out else None
    if page is not None:
        from hwopt.report.page.files import write
        from hwopt.report.page.variants import variants_page

        write(page, variants_page(dataset, options.command_line, out, drawn))
    if options.json:
        print_json(sweep_document(dataset, out, drawn))
    else:
        print(sweep_screen(dataset, out, drawn))


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `hwopt.sweep` from flags."""
    samples = number("--samples", options.samples, whole=True)
    block = number("--block", options.block, whole=True)
    counted = options.grid is not None or options.table is not None
    gradients = options.gradients if options.gradients in (None, True) else names(options.gradients)
    if gradients and options.rows is False:
        raise UserError("--gradients: they are kept with the variants; leave out --no-rows")
    return {
        "samples": int(samples) if samples else None if counted else DEFAULT_SAMPLES,
        "method": options.method,
        "seed": options.seed,
        "grid": _levels(
            "--grid", options.grid, "name=low:high:count or name=a|b|c, such as chips=1024:65536:7,tp=1|2|4|8"
        ),
        "table": options.table,
        "choices": _choices(options),
        "bounds": boxes(options.bounds),
        "freeze": names(options.freeze),
        "within": number("--within", options.within),
        "metrics": names(options.metrics),
        "pareto": names(options.pareto) or None,
        "map_of": names(options.map) or None,
        "gradients": gradients or (),
        "rows": options.rows,
        "dtype": options.dtype,
        "block": int(block) if block else None,
    }


def _entries(what: str, text: str | None, example: str) -> dict[str, str]:
    """`name=value,...` as a dictionary."""
    made: dict[str, str] = {}
    for part in text.split(",") if text is not None else ():
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (name and equals and value):
            raise UserError(f"{what} {part}: write {example}")
        if name in made:
            raise UserError(f"{what}: '{name}' stands twice")
        made[name] = value
    return made


def _levels(what: str, text: str | None, example: str) -> dict[str, list[float]] | None:
    from hwopt.study.sweep.given import level_range

    return {name: level_range(levels) for name, levels in _entries(what, text, example).items()} or None


def _choices(options: argparse.Namespace) -> dict[str, list[str]]:
    """Values of each field."""
    known = {each.name: each for each in dataclasses.fields(options.kind)}
    made: dict[str, list[str]] = {}
    for name, text in _entries("--choices", options.choices, "field=a|b, such as chip=h100-sxm|b200").items():
        if name in known and getattr(options, name) is not None:
            raise UserError(f"--choices {name}: {flag(known[name])} says it already; name it once")
        made[name] = [value.strip() for value in text.split("|")]
    return made


def _folders(options: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Folders of the store and of the figures, each None where there is to be none."""
    if options.out is None:
        return None, None
    folder = Path(os.path.abspath(os.path.expanduser(options.out)))
    if not options.out.strip() or not folder.name:
        raise UserError(f"--out '{options.out}': name a folder of its own, such as runs/first")
    if options.no_figures:
        return folder, None
    figures = folder.with_name(folder.name + ".figures")
    if figures.exists() and not figures.is_dir():
        raise UserError(f"--out {options.out}: figures go to {figures}, which is a file; move it, or add --no-figures")
    return folder, figures


def _joined(options: argparse.Namespace) -> bool:
    """Whether this process speaks: the first of those that share the sweep. To be called before JAX looks for devices."""
    named = (options.coordinator, options.processes, options.process)
    if not options.distributed and all(each is None for each in named):
        return True
    count = number("--processes", options.processes, whole=True)
    index = options.process
    if index is not None and not index.isdecimal():
        raise UserError(f"--process {index}: must be a whole number, 0 for the first")
    if index is not None and count is not None and int(index) >= count:
        raise UserError(f"--process {index}: of --processes {count:.0f} the last is {count - 1:.0f}")
    host, _, port = (options.coordinator or "host:1").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--coordinator {options.coordinator}: write host:port, such as node0:1234")
    import jax

    from hwopt.study.sweep import processes

    processes.join(options.coordinator, None if count is None else int(count), None if index is None else int(index))
    return jax.process_index() == 0


@contextlib.contextmanager
def _progress(unit: str) -> Iterator[Callable[[Any], None]]:
    """A bar on standard error: variants done, a second, time left, the best objective so far in its unit."""
    from tqdm.auto import tqdm

    with tqdm(desc="sweep: compiling", bar_format="{desc}", mininterval=0.25, leave=False, dynamic_ncols=True) as bar:

        def tell(progress: Any) -> None:
            if bar.total is None:
                bar.total = progress.total
                bar.set_description_str("sweep", refresh=False)
                bar.bar_format = "{desc} {percentage:3.0f}% |{bar:20}| {n:,}/{total:,} variants{postfix}"
            rate = progress.per_second
            pace = f"{rate / 1e6:.2f} M/s" if rate >= 1e6 else f"{rate:,.0f}/s"
            left = math.ceil((progress.total - progress.done) / rate) if rate else math.inf
            best = f"best {pretty(progress.best, unit)}" if math.isfinite(progress.best) else "none feasible yet"
            bar.set_postfix_str(f"{pace}, {pretty(left, 's', 3)} left, {best}", refresh=False)
            bar.update(progress.done - bar.n)

        yield tell
