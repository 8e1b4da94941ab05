"""`hwopt compare`: a design question answered on several chips side by side; exit code 1 where all are infeasible."""

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt import escape
from hwopt.cli.commands.optimize import BOUNDS, FREEZE
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.question import asked_objective, search_settings
from hwopt.cli.value_types import NAMES, POSITIVE, number
from hwopt.errors import UserError
from hwopt.units import separated

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    Flag(
        "--chips",
        "chips of the catalog to compare: h100-sxm,b200,mi300x; * for all; or their number, where --chip names "
        "them: --chip h100-sxm,b200 --chips 16384",
        NAMES,
        needed=True,
    ),
    FREEZE,
    BOUNDS,
    Flag(
        "--seconds",
        "time limit, s; chips not searched by then are left out (default: no limit)",
        POSITIVE,
        math.inf,
    ),
    replace(
        REPORT, meaning="also write the answer as one self-contained HTML page, with sliders around each chip's design"
    ),
)


def answer(options: argparse.Namespace) -> "Answer":
    """Return the comparison of the chips that the flags name."""
    names, counted = options.chips, options.chips[0].isdecimal()
    if counted != ("chip" in options.given):
        raise UserError(
            f"--chips {names[0]}: name the chips as well, such as --chip h100-sxm,b200"
            if counted
            else "--chip: --chips names the chips to compare; leave --chip out, or write their number after --chips"
        )
    options.chips = None
    if counted:
        options.chips, names = number("--chips", names[0], integer=True), separated("--chip", options.chip, ",")
        options.chip = None
    objective = asked_objective(options)
    from hwopt.analysis.comparison import compare
    from hwopt.output.answers.comparison import comparison_answer

    own = {"objective", "chip", "seconds", "report", "json"} | (set() if counted else {"chips"})
    words = [word for name, text in options.given.items() if name not in own for word in text.split(" ", 1)]
    rows = compare(objective, names, **search_settings(options))
    command = lambda chip: escape.command(["hwopt", "optimize", options.objective, *words, "--chip", chip])
    movable = [(row.chip, row.solution, command(row.chip), {}) for row in rows if row.solution is not None]
    return comparison_answer(rows, movable if options.report is not None else ())
