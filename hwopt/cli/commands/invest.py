"""`hwopt invest`: the value of one more unit of each input to a question's best machine; exit code 1 where infeasible."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.commands.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.paths import REPORT
from hwopt.cli.question import CHOICES, asked_objective, check_choices
from hwopt.cli.value_types import INTEGER, NAMES, NATURAL

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    Flag("--replan", "how many numbers to search anew 10 %% better and worse, some 20 s each end, and all budgets; 0: marginal "
         "values alone, at once (default 3)", NATURAL, 3),
    Flag("--of", "which numbers to replan instead, or endings of their names: "
         "hbm_bandwidth_bytes_per_s,electricity_usd_per_j", NAMES, ()),
    Flag("--top", "how many numbers of each part to list", INTEGER, 8),
    replace(SECONDS, meaning="time limit, s; numbers not reached by then are not replanned (default: no limit)"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: values, arcs, budgets, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer":
    """Return the marginal values of a design question's inputs."""
    objective = asked_objective(options)
    check_choices(options)
    from hwopt.analysis.marginal_value import invest
    from hwopt.calibration.intervals import question_interval
    from hwopt.output.answers.marginal_value import invest_answer

    found = invest(
        objective,
        top=options.replan,
        of=options.of,
        seconds=options.seconds,
        freeze=options.freeze,
        bounds=options.bounds,
        choices=options.choices,
        progress=is_watched(options),
    )
    return invest_answer(found, question_interval(found.start) if found.start.feasible else None, options.top)
