"""`hwopt walls`: which budget of a design question binds, until where, and which one next; 1 where no design holds them."""

import argparse
from dataclasses import replace

from hwopt.cli.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.output import is_watched, show
from hwopt.cli.paths import REPORT, figure_path, page_path
from hwopt.cli.question import CHOICES, asked_objective, check_choices
from hwopt.cli.sensitivity import FIGURE

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    replace(SECONDS, meaning="time limit, s; budgets not reached by then are left out (default: no limit)"),
    replace(
        FIGURE, meaning="also plot the answers between walls and what they use of every budget, to this image file"
    ),
    replace(
        REPORT, meaning="also write the answer as one self-contained HTML page: walls, answers, chip time, sources"
    ),
)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit code."""
    figure, path, objective = figure_path(options), page_path(options), asked_objective(options)
    check_choices(options)
    from hwopt.report.walls import walls_document, walls_screen
    from hwopt.study.walls import walls

    answer = walls(
        objective,
        seconds=options.seconds,
        freeze=options.freeze,
        bounds=options.bounds,
        choices=options.choices,
        progress=is_watched(options),
    )
    if figure is not None and answer.walls:
        from hwopt.plot.walls import plot_walls

        plot_walls(answer, figure)
    if path is not None:
        from hwopt.report.page.files import write
        from hwopt.report.page.walls import walls_page

        write(path, walls_page(answer, options.command_line))
    show(options, lambda: walls_document(answer), lambda: walls_screen(answer))
    return 0 if answer.start.feasible else 1
