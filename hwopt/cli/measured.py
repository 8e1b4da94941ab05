"""`hwopt validate` and `hwopt calibrate`: measured runs against the model, and its constants fitted to them."""

import argparse

from hwopt.cli.cluster_flags import CONSTANTS
from hwopt.cli.flags import Flag
from hwopt.cli.kinds import NAMES, PATH
from hwopt.cli.output import is_watched, show
from hwopt.cli.paths import figure_path

_RUNS = Flag(
    "file",
    "CSV of measured runs; `python -m hwopt.evidence.columns` prints the columns it may have (hwopt/data/runs/columns.txt)",
    PATH,
    needed=True,
)

VALIDATE = (_RUNS, Flag("--figure", "also draw predicted over measured speed to this image file", PATH), CONSTANTS)

CALIBRATE = (
    _RUNS,
    Flag("--out", "TOML file to write, which --constants of other commands takes", PATH),
    Flag("--only", "constants that may move, comma-separated: stack_gemm_efficiency for one scale", NAMES, ()),
    CONSTANTS,
)


def validate(options: argparse.Namespace) -> int:
    """Score every row of a file, and return the exit code."""
    figure = figure_path(options)
    from hwopt.evidence import validation

    result = validation.validate(options.file, constants=options.constants, progress=is_watched(options))
    if figure is not None:
        from hwopt.plot.accuracy import plot_accuracy

        plot_accuracy(result, figure)
    show(options, lambda: result, lambda: validation.screen(result))
    return 0


def calibrate(options: argparse.Namespace) -> int:
    """Fit, and return the exit code."""
    from hwopt.evidence import calibration

    result = calibration.calibrate(
        options.file, options.out, only=options.only, constants=options.constants, progress=is_watched(options)
    )
    show(options, lambda: result, lambda: calibration.screen(result))
    return 0
