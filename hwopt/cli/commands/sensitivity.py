"""`hwopt sensitivity`: sensitivity of a question's best cluster to its inputs; exit code 1 where infeasible."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.commands.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.flags import Flag
from hwopt.cli.question import CHOICES, SEED, asked_objective, search_settings
from hwopt.cli.value_types import INTEGER, NAMES, PATH

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FIGURE = Flag(
    "--figure", "also plot the effect of each input's uncertainty range on the optimum, to this image file", PATH
)

FLAGS = (
    FIGURE,
    Flag("--metrics", "metrics whose elasticities to list: step_time_s,mfu,...", NAMES, ()),
    Flag("--top", "number of inputs to list", INTEGER, 12),
    FREEZE,
    BOUNDS,
    CHOICES,
    SECONDS,
    SEED,
)


def answer(options: argparse.Namespace) -> "Answer":
    """Return the sensitivities of a design question's optimum."""
    objective = asked_objective(options)
    from hwopt.analysis.sensitivity import NoOptimum, sensitivity
    from hwopt.design.choices import left_open
    from hwopt.design.metrics import metric
    from hwopt.output.answer import Answer
    from hwopt.output.answers.sensitivity import NO_OPTIMUM, sensitivity_answer
    from hwopt.output.figures.tornado import plot_tornado
    from hwopt.solver.optimize import optimize

    how, rows = search_settings(options), ()
    choices = how.pop("choices")
    for name in options.metrics:
        metric(name)  # reject unknown metrics before any search
    if choices or left_open(objective):  # analyze the best combination of choices
        best = optimize(objective, choices=choices, **how)
        rows, objective = best.choices, replace(objective, **best.chosen)
    try:
        found = sensitivity(objective, metrics=options.metrics, **how)
    except NoOptimum as reason:
        return Answer("sensitivity", NO_OPTIMUM.document(reason), str(reason), feasible=False)
    return replace(sensitivity_answer(found, options.top, rows), draw=lambda path: plot_tornado(found, path))
