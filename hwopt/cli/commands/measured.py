"""`hwopt validate` and `hwopt calibrate`: measured runs compared with the model, and its constants fitted to them."""

import argparse
from functools import partial
from pathlib import Path

from hwopt.cli.cluster_flags import CONSTANTS
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import NAMES, PATH, SWITCH, ValueType, entries
from hwopt.errors import UserError

_RUNS = Flag(
    "file",
    "CSV file of measured runs, or a log of Megatron-LM, Megatron-Bridge, torchtitan, MaxText, Hugging Face Trainer, or a vLLM or "
    "SGLang benchmark; hwopt validate --columns lists the columns, --template prints a header line to start from",
    PATH,
)

_FACTS = Flag(
    "--facts",
    "columns that the file does not state, for all rows: gpu=h100-sxm,num_gpus=64,model_name=llama3-8b",
    ValueType("COLUMN=VALUE", partial(entries, "column=value, such as gpu=h100-sxm,num_gpus=64")),
    {},
    repeats=True,
)

VALIDATE = (
    _RUNS,
    _FACTS,
    Flag("--figure", "also plot predicted against measured speed, to this image file", PATH),
    CONSTANTS,
    Flag("--columns", "print the columns that a file of measured runs may have, with their meanings, and stop", SWITCH, False),
    Flag("--template", "print a header line for such a file, essential columns first, and stop",
         SWITCH, False),
)  # fmt: skip

CALIBRATE = (
    _RUNS,
    _FACTS,
    Flag("--out", "TOML file to write; other commands read it with --constants", PATH),
    Flag(
        "--only",
        "constants to fit, comma-separated; stack_gemm_efficiency alone fits one factor (default: all)",
        NAMES,
        (),
    ),
    CONSTANTS,
)


def validate(options: argparse.Namespace) -> Rendered:
    """Compare every row of a file of measured runs with the model."""
    if options.columns or options.template:
        return _columns(options)
    _need_file(options)
    from hwopt.calibration import validation

    result = validation.validate(
        options.file, constants=options.constants, facts=options.facts, progress=is_watched(options)
    )

    def draw(path: Path) -> None:
        from hwopt.output.figures.accuracy import plot_accuracy

        plot_accuracy(result, path)

    return Rendered(lambda: result, lambda: validation.screen(result), draw=draw)


def _need_file(options: argparse.Namespace) -> None:
    if options.file is None:
        raise UserError(
            f"{options.command} needs a file of measured runs: hwopt {options.command} my_runs.csv; hwopt validate --template "
            "begins one"
        )


def _columns(options: argparse.Namespace) -> Rendered:
    """Return the columns that a file of measured runs may have: documentation, or its first line."""
    from hwopt.calibration.measured.columns import MeasuredRun, columns_of, columns_text, essential

    first = essential(MeasuredRun)
    names = [*first, *(name for name in columns_of(MeasuredRun) if name not in first)]
    text = columns_text(MeasuredRun).rstrip("\n") if options.columns else ",".join(names)
    return Rendered(lambda: {"columns": names, "essential": list(first)}, lambda: text)


def calibrate(options: argparse.Namespace) -> Rendered:
    """Fit the constants to a file of measured runs."""
    _need_file(options)
    from hwopt.calibration import fit

    result = fit.calibrate(
        options.file,
        options.out,
        only=options.only,
        constants=options.constants,
        facts=options.facts,
        progress=is_watched(options),
    )
    return Rendered(lambda: result, lambda: fit.screen(result))
