"""The runner of commands: paths are checked first, then one answer becomes figure, page, JSON or screen."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt.cli.output import heartbeat, show
from hwopt.cli.paths import figure_path, open_page, page_path

if TYPE_CHECKING:
    from hwopt.output.answer import Answer


@dataclass(frozen=True)
class Rendered:
    """Answer given as functions for JSON, screen, page and figure, called only for the forms that the flags request.

    Its attributes are those that `run` needs from `hwopt.output.answer.Answer`.
    """

    document: Callable[[], Any]
    screen: Callable[[], str]
    feasible: bool = True
    page: Callable[[str], str] | None = None
    draw: Callable[[Path], Any] | None = None


Command = Callable[[argparse.Namespace], "Answer | Rendered | int"]
"""Command function: returns its answer, or an exit code where it has already printed everything."""


def run(command: Command, options: argparse.Namespace) -> int:
    """Run a command, render its answer as the flags request, and return the exit code."""
    requested: Any = vars(options)
    figure = figure_path(options) if "figure" in requested else None
    path = page_path(options) if "report" in requested else None
    with heartbeat(options):
        found = command(options)
    if isinstance(found, int):
        return found
    if figure is not None and found.draw is not None:
        found.draw(figure)
    if path is not None and found.page is not None:
        from hwopt.output.html.files import write

        write(path, found.page(options.command_line))
        if requested.get("open") and not options.json:
            open_page(path)
    show(options, found.document, found.screen)
    return 0 if found.feasible else 1
