"""`hwopt walls`: which budget of a question binds, up to which value, and which is next; exit code 1 where infeasible."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.commands.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.commands.sensitivity import FIGURE
from hwopt.cli.paths import REPORT
from hwopt.cli.question import CHOICES, asked_objective, search_settings

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    replace(SECONDS, meaning="time limit, s; budgets not tried by then are left out (default: no limit)"),
    replace(
        FIGURE,
        meaning="also plot the optimum after removing each binding budget, and its use of every budget, to this image file",
    ),
    replace(
        REPORT,
        meaning="also write the answer as one self-contained HTML page: binding budgets, answers, chip time, sources",
    ),
)


def answer(options: argparse.Namespace) -> "Answer":
    """Return the sequence of binding budgets of a design question."""
    objective = asked_objective(options)
    from hwopt.analysis.binding_budgets import walls
    from hwopt.output.answers.binding_budgets import walls_answer

    found = walls(objective, **search_settings(options))
    if not found.walls:
        return walls_answer(found)
    from hwopt.output.figures.binding_budgets import plot_walls

    return replace(walls_answer(found), draw=lambda path: plot_walls(found, path))
