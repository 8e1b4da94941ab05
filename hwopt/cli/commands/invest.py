"""`hwopt invest`: the value of one more unit of each input to a question's best machine; exit code 1 where infeasible."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.commands.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.question import CHOICES, asked_objective, search_settings
from hwopt.cli.value_types import INTEGER, NAMES, NATURAL

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    Flag("--replan", "number of inputs to re-optimize 10 %% better and 10 %% worse, about 40 s each, with all budgets; 0: only "
         "marginal values, immediately (default 3)", NATURAL, 3),
    Flag("--of", "inputs to re-optimize instead, or endings of their names: "
         "hbm_bandwidth_bytes_per_s,electricity_usd_per_j", NAMES, ()),
    Flag("--top", "number of inputs to list for each part of the machine", INTEGER, 8),
    replace(SECONDS, meaning="time limit, s; inputs not reached by then are not re-optimized (default: no limit)"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: marginal values, budgets, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer":
    """Return the marginal values of a design question's inputs."""
    objective = asked_objective(options)
    from hwopt.analysis.marginal_value import invest
    from hwopt.calibration.intervals import question_interval
    from hwopt.output.answers.marginal_value import invest_answer

    found = invest(objective, top=options.replan, of=options.of, **search_settings(options))
    return invest_answer(found, question_interval(found.start) if found.start.feasible else None, options.top)
