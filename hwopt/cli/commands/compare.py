"""`hwopt compare`: a design question answered on several chips side by side; exit code 1 where all are infeasible."""

import argparse
import math
from typing import TYPE_CHECKING

from hwopt.cli.commands.optimize import BOUNDS, FREEZE
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.question import asked_objective
from hwopt.cli.value_types import NAMES, POSITIVE
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    Flag("--chips", "chips of the catalogue to compare: h100-sxm,b200,mi300x; * for all", NAMES, needed=True),
    FREEZE,
    BOUNDS,
    Flag(
        "--seconds",
        "time limit, s; chips not reached by then are left out (default: no limit)",
        POSITIVE,
        math.inf,
    ),
)


def answer(options: argparse.Namespace) -> "Answer":
    """Return the comparison of the chips that the flags name."""
    if "chip" in options.given:
        raise UserError("--chip: --chips names the chips to compare; leave --chip out")
    objective = asked_objective(options)
    from hwopt.analysis.comparison import compare
    from hwopt.output.answers.comparison import comparison_answer

    how = {"freeze": options.freeze, "bounds": options.bounds, "progress": is_watched(options)}
    return comparison_answer(compare(objective, options.chips, seconds=options.seconds, **how))
