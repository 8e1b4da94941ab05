"""`hwopt explore`: the best cluster for a design question, as a page with sliders that a browser opens."""

import argparse
from dataclasses import replace

from hwopt import escape
from hwopt.cli.commands import optimize
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.question import asked_objective
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import SWITCH
from hwopt.errors import UserError

FLAGS = (
    *(each for each in optimize.FLAGS if each is not REPORT),
    replace(REPORT, meaning="file of the page (default explore.html)", default="explore.html"),
    Flag("--no-open", "do not open the page in a browser", SWITCH, True, field="open"),
)


def answer(options: argparse.Namespace) -> Rendered:
    """Search for the best design of a question. The runner writes its page, and opens it."""
    from hwopt.design.portfolio import portfolio_of
    from hwopt.output.text.layout import wrapped

    if portfolio_of(asked_objective(options)) is not None:
        raise UserError("explore: a list has no page with sliders; name a member with --only NAME")
    if options.export is not None or options.regime == "relaxed":
        raise UserError("explore: its page is about designs that can be built: leave out --export and --regime relaxed")
    found = optimize.answer(options)
    screen = lambda: (
        f"{wrapped(found.document()['verdict'], '', '')}\n\nPage with sliders: {escape.line(options.report)}"
    )
    return Rendered(found.document, screen, found.feasible, found.page)
