"""The runner of commands: paths are checked first, then one answer becomes figure, page, JSON or screen."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hwopt.cli.output import show
from hwopt.cli.paths import figure_path, page_path

if TYPE_CHECKING:
    from hwopt.output.answer import Answer


def runs(answer: "Callable[[argparse.Namespace], Answer]") -> Callable[[argparse.Namespace], int]:
    """Return what runs a command: it renders the `answer` as the flags request, and returns the exit code."""

    def run(options: argparse.Namespace) -> int:
        asked: Any = vars(options)
        figure = figure_path(options) if "figure" in asked else None
        path = page_path(options) if "report" in asked else None
        found = answer(options)
        if figure is not None and found.draw is not None:
            found.draw(figure)
        if path is not None:
            from hwopt.output.html.files import write

            write(path, found.page(options.command_line))
        show(options, found.document, found.screen)
        return 0 if found.feasible else 1

    return run
