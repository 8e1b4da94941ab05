"""The command line: `hwopt COMMAND`. One line and exit code 2 for bad input, 1 for questions without an answer."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hwopt.errors import UserError, suggest

_DEFAULT_OBJECTIVE = "train_cost"

_EXAMPLES = {
    "optimize": "hwopt optimize train_cost --power-budget-w 40e6 --time-budget-s 3e6",
    "estimate": "hwopt estimate --workload llama3.1-405b --chip h100-sxm --chips 16384 --plan tp=8,pp=16",
    "validate": "hwopt validate my_runs.csv --json",
    "catalog": "hwopt catalog chips h100-sxm",
    "sources": "hwopt sources train_cost --chip b200",
}


class _OneLineParser(argparse.ArgumentParser):
    """argparse with errors of one line that name the likely intent. Chosen over tyro, whose error boxes span lines."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            wrong = next(iter(message.removeprefix("unrecognized arguments: ").split()), "")
            if not wrong.startswith("-"):
                raise UserError(f"'{wrong}' is one argument too many (see {self.prog} --help)")
            parsers = [self, *(p for action in self._actions if action.choices for p in _parsers_in(action))]
            flags = {flag for parser in parsers for action in parser._actions for flag in action.option_strings}
            known = wrong.split("=")[0] in flags
            intent = "write it behind the command it belongs to" if known else suggest(wrong.split("=")[0], flags)
            message = f"unknown argument '{wrong}': {intent}"
        elif "invalid choice: " in message:
            wrong = message.split("invalid choice: '")[-1].split("'")[0]
            choices = next((action.choices for action in self._actions if action.choices), [])
            message = f"unknown command '{wrong}': {suggest(wrong, choices)}"
        raise UserError(f"{message} (see {self.prog} --help)")


def _parsers_in(action: argparse.Action) -> list[argparse.ArgumentParser]:
    """Parsers of the commands of a sub-command action."""
    return list(action.choices.values()) if isinstance(action, argparse._SubParsersAction) else []


def _parser(objective: str, kind: type | None) -> _OneLineParser:
    """The parser; `kind` of an objective makes its fields flags of `optimize`."""
    parser = _OneLineParser(prog="hwopt", description="Differentiable design of AI clusters.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, help_text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=help_text, description=help_text, epilog=f"Example: {_EXAMPLES[name]}", allow_abbrev=False
        )
        command.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output, nothing else there"
        )
        command.set_defaults(run=run, parser=command)
        return command

    optimize = add("optimize", "The best cluster for a design question, under budgets.", _optimize)
    optimize.add_argument("--seed", type=int, default=0, help="seed of the starts (default 0)")
    sources = add("sources", "The references behind exactly the numbers of a design question.", _sources)
    for command in (optimize, sources):
        command.add_argument("objective", nargs="?", default=objective, help="a design question (default: train_cost)")
        if kind is not None:
            _add_fields(command, objective, kind)

    estimate = add("estimate", "Time, memory, power and money of one cluster under one plan.", _estimate)
    estimate.add_argument(
        "--workload", required=True, help="a name of the catalogue, a .toml or a Hugging Face config.json"
    )
    estimate.add_argument("--chip", required=True, help="a name of the catalogue or a .toml file")
    estimate.add_argument("--chips", required=True, help="accelerators in the job")
    estimate.add_argument(
        "--plan", help="tp=8,pp=16,dp=128,cp=1,ep=1,vpp=1,mbs=1,zero=1,recompute=none; default: a search"
    )
    estimate.add_argument("--mode", default="train", help="train (prefill and decode are not built yet)")
    estimate.add_argument("--stack", help="software stack (default: the chip's)")
    estimate.add_argument("--site", default="us-average", help="site of the facility (default us-average)")
    estimate.add_argument(
        "--precision", default="bf16", help="format of the GEMMs: bf16, fp16, fp8, fp4, int8, tf32, fp32"
    )
    for flag, meaning in (
        ("--global-batch", "sequences a step (default: the workload's)"),
        ("--seq-len", "tokens a sequence (default: the workload's)"),
        ("--tokens", "tokens of the whole run (default: the workload's)"),
        ("--domain", "chips of the scale-up domain (default: the chip's)"),
        ("--scale-out-bytes-per-s", "scale-out bandwidth per chip and direction, B/s (default: the chip's)"),
    ):
        estimate.add_argument(flag, help=meaning)

    validate = add("validate", "Measured against predicted, every row of a CSV file accounted for.", _validate)
    validate.add_argument("file", help="CSV of measured runs, columns as in hwopt/data/runs/train.csv")
    validate.add_argument("--figure", help="also draw predicted over measured speed to this image file")

    catalog = add(
        "catalog", "Chips, links, workloads, stacks, cooling, sites, prices, each number with its source.", _catalog
    )
    catalog.add_argument("kind", nargs="?", help="chips, links, workloads, stacks, cooling, sites or prices")
    catalog.add_argument("name", nargs="?", help="an entry, or a file of your own")
    return parser


def _add_fields(command: argparse.ArgumentParser, objective: str, kind: type) -> None:
    """Fields of an objective as flags of a command."""
    command.set_defaults(kind=kind)
    group = command.add_argument_group(f"budgets and choices of {objective}, SI units in the name")
    for field in dataclasses.fields(kind):
        shown = f"{field.default:g}" if isinstance(field.default, float) else field.default
        group.add_argument(_flag(field), metavar="X", dest=field.name, help=f"default {shown}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # before JAX loads: cached kernels log pages of processor features
    try:
        options = _parser(*_objective_of(arguments)).parse_args(arguments)
        if options.version:
            from hwopt import __version__

            print(f"hwopt {__version__}")
            return 0
        if options.command is None:
            _parser(_DEFAULT_OBJECTIVE, None).print_help()
            return 0
        _use_compilation_cache()
        code = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # so that a full disk or a reader that has left is met here
        return code
    except UserError as error:
        print(f"hwopt: {_shown(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left; so do we
        return 0
    except KeyboardInterrupt:
        print("hwopt: interrupted", file=sys.stderr)
        return 130


def entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot print is no reason to fail
    try:
        code = main()
    except Exception as error:  # a fault of ours or of the machine: never 1, which means "no feasible answer"
        if os.environ.get("HWOPT_TRACEBACK"):
            raise
        name = type(error).__name__
        print(_shown(f"hwopt: {name}: {error} (HWOPT_TRACEBACK=1 shows where)"), file=sys.stderr)
        code = 3
    sys.exit(code)


def _shown(message: str, most: int = 600) -> str:
    """A message fit for one line of a terminal: no control characters, the middle of endless names left out."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def _use_compilation_cache() -> None:
    """Keep compiled kernels in the user's cache folder, so that a second run starts at once; without one, do without.

    The folder is named after processor and JAX version: kernels of one do not run on another.
    """
    import jax

    processor = platform.machine()
    with contextlib.suppress(OSError):
        flags = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))
        ]
        processor += flags[0] if flags else ""
    machine = hashlib.sha256(processor.encode()).hexdigest()[:12]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "hwopt" / f"jax-{jax.__version__}-{machine}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


def _number(flag: str, text: str | None, *, whole: bool = False) -> Any:
    """A positive, finite number from a flag, or None where it was not given."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{flag} {text}: not a number") from None
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{flag} {text}: must be a positive, finite number")
    if whole and value != int(value):
        raise UserError(f"{flag} {text}: must be a whole number")
    return value


def _flag(field: dataclasses.Field) -> str:
    return "--" + field.name.replace("_", "-")


def _objective_of(arguments: Sequence[str]) -> tuple[str, type | None]:
    """Name and class of the objective that is asked for; the class adds its fields to the flags."""
    if not arguments or arguments[0] not in ("optimize", "sources"):
        return _DEFAULT_OBJECTIVE, None
    from hwopt import registry

    name, before = _DEFAULT_OBJECTIVE, "--json"
    for each in arguments[1:]:
        is_value = before.startswith("--") and before != "--json" and "=" not in before
        if not each.startswith("-") and not is_value:
            name = each
            break
        before = each
    return name, registry.load(name)


def _estimate(options: argparse.Namespace) -> int:
    if options.mode != "train":
        raise UserError(f"--mode {options.mode}: only 'train' is built so far")
    import jax
    import numpy as np

    from hwopt import catalog
    from hwopt.model.estimate import estimate
    from hwopt.report.documents import plan_document, report_document
    from hwopt.report.screens import estimate_screen

    chips = _number("--chips", options.chips, whole=True)
    run = catalog.training_run(
        options.workload,
        sequence_length=_number("--seq-len", options.seq_len, whole=True),
        global_batch=_number("--global-batch", options.global_batch, whole=True),
        precision=options.precision,
        tokens=_number("--tokens", options.tokens),
    )
    catalog.check_precision(options.chip, options.precision)
    cluster = catalog.cluster(
        options.chip,
        chips,
        domain=_number("--domain", options.domain, whole=True),
        stack=options.stack,
        site=options.site,
        scale_out_bytes_per_s=_number("--scale-out-bytes-per-s", options.scale_out_bytes_per_s),
    )
    with jax.enable_x64(True):
        if options.plan is None:
            from hwopt.optim.plan_search import fastest_plan

            plan = fastest_plan(run, cluster)
        else:
            plan = catalog.plan(run, chips, **catalog.parse_plan(options.plan))
        report = jax.tree.map(np.asarray, jax.jit(estimate)(run, cluster, plan))
    if options.json:
        question = {
            "workload": options.workload,
            "chip": options.chip,
            "chips": int(chips),
            "precision": options.precision,
        }
        _print_json(question | {"plan": plan_document(plan)} | report_document(report))
    else:
        title = f"{options.workload} on {chips:,.0f} x {options.chip}, {options.precision}, site {options.site}"
        print(estimate_screen(report, plan, title))
    return 0 if bool(report.feasible) else 1


def _objective(options: argparse.Namespace) -> Any:
    """The objective with the fields that were given."""
    given = {
        field.name: value if isinstance(field.default, str) else _number(_flag(field), value)
        for field in dataclasses.fields(options.kind)
        if (value := getattr(options, field.name)) is not None
    }
    return options.kind(**given)


def _sources(options: argparse.Namespace) -> int:
    problem = _objective(options).problem()
    if options.json:
        _print_json({"question": problem.question, "sources": list(problem.sources)})
    else:
        print("\n".join([problem.question, "", *(f"- {text}" for text in problem.sources)]))
    return 0


def _optimize(options: argparse.Namespace) -> int:
    if options.objective != options.asked:  # its flags are not the ones that were read
        raise UserError(f"write the objective first: hwopt optimize {options.objective} ...")
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: must not be negative")
    objective = _objective(options)
    from hwopt.optim.optimize import optimize
    from hwopt.report.documents import solution_document
    from hwopt.report.screens import solution_screen

    solution = optimize(objective, seed=options.seed, progress=not options.json and sys.stderr.isatty())
    if options.json:
        _print_json(solution_document(solution))
    else:
        print(solution_screen(solution))
    return 0 if solution.feasible else 1


def _validate(options: argparse.Namespace) -> int:
    from hwopt.study.validation import screen, validate

    result = validate(options.file)
    if options.figure:
        from hwopt.plot.accuracy import plot_accuracy

        plot_accuracy(result, options.figure)
    if options.json:
        _print_json(result)
    else:
        print(screen(result))
    return 0


def _catalog(options: argparse.Namespace) -> int:
    from hwopt import catalog
    from hwopt.report import listings

    if options.kind is None:
        document, text = listings.kinds()
    elif options.name is None:
        document, text = listings.entries(options.kind)
    else:
        document, text = listings.entry(catalog.record(options.kind, options.name))
    if options.json:
        _print_json(document)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    entry()
