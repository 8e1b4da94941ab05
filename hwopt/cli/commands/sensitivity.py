"""`hwopt sensitivity`: sensitivity of a question's best cluster to its inputs; exit code 1 where infeasible."""

import argparse
from dataclasses import replace
from pathlib import Path

from hwopt.cli.commands.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.question import CHOICES, SEED, asked_objective, check_choices
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import INTEGER, NAMES, PATH

FIGURE = Flag("--figure", "also plot how far each input's range moves the optimum, to this image file", PATH)

FLAGS = (
    FIGURE,
    Flag("--metrics", "numbers of the report to tabulate: step_time_s,mfu,...", NAMES, ()),
    Flag("--top", "how many inputs to list", INTEGER, 12),
    FREEZE,
    BOUNDS,
    CHOICES,
    SECONDS,
    SEED,
)


def answer(options: argparse.Namespace) -> Rendered:
    """Return the sensitivities of a design question's optimum."""
    objective = asked_objective(options)
    check_choices(options)
    from hwopt.analysis.sensitivity import NoOptimum, sensitivity
    from hwopt.design.metrics import metric
    from hwopt.output.answers.sensitivity import sensitivity_document, sensitivity_screen
    from hwopt.output.text.choices import choice_lines, choices_document
    from hwopt.solver.optimize import optimize

    how = {
        "seed": options.seed,
        "progress": is_watched(options),
        "freeze": options.freeze,
        "bounds": options.bounds,
        "seconds": options.seconds,
    }
    rows, unit = (), ""
    for name in options.metrics:
        metric(name)  # reject unknown metrics before any search
    if options.choices:  # analyze the best combination of choices
        best = optimize(objective, choices=options.choices, **how)
        rows, unit = best.choices, best.problem.objective.unit
        objective = replace(objective, **best.chosen)
    try:
        found = sensitivity(objective, metrics=options.metrics, **how)
    except NoOptimum as reason:
        message = str(reason)
        return Rendered(lambda: {"feasible": False, "message": message}, lambda: message, False)

    def draw(path: Path) -> None:
        from hwopt.output.figures.tornado import plot_tornado

        plot_tornado(found, path)

    also = {"constants": found.problem.provenance.mode} | ({"choices": choices_document(rows)} if rows else {})
    screen = lambda: "\n".join([sensitivity_screen(found, options.top), *choice_lines(rows, unit)])
    return Rendered(lambda: sensitivity_document(found) | also, screen, draw=draw)
