"""`hwopt explore`: the best cluster for a design question, as a page with sliders that a browser opens."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.commands import optimize
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.question import asked_objective
from hwopt.cli.value_types import SWITCH
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

_OMITTED = ("--report", "--export", "--alternatives", "--vary", "--one-sided-prices", "--confidence")
"""Flags of `optimize` that `explore` does not have: they take a long time, or need another answer."""

FLAGS = (
    *(each for each in optimize.FLAGS if each.name not in _OMITTED),
    replace(REPORT, meaning="file of the page (default explore.html)", default="explore.html"),
    Flag("--no-open", "do not open the page in a browser", SWITCH, True, field="open"),
)


def answer(options: argparse.Namespace) -> "Answer":
    """Search for the best design of a question, and return it with a page around it."""
    for each in optimize.FLAGS:
        if each.name in _OMITTED and each.name != "--report":
            setattr(options, each.attribute, each.default)
    from hwopt.design.portfolio import portfolio_of
    from hwopt.output.answer import Answer, OnPage, Section

    if portfolio_of(asked_objective(options)) is not None:
        raise UserError("explore is about one question, not a list: name a member with --only NAME")
    if options.regime == "relaxed":
        raise UserError("explore is about designs that can be built: leave out --regime relaxed")
    found = optimize.answer(options)
    assert isinstance(found, Answer)
    where = Section("The page", [OnPage(None, [f"Page with sliders: {options.report}"])], titled=False)
    return replace(found, command="explore", sections=[*found.sections, where])
