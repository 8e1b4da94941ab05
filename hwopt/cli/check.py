"""`hwopt check`: whether a stated machine and plan can be, line by line; 1 where a line fails."""

import argparse
import os
from dataclasses import replace

from hwopt.cli.flags import Flag
from hwopt.cli.kinds import PATH
from hwopt.cli.output import show
from hwopt.cli.paths import REPORT, page_path
from hwopt.errors import UserError

FLAGS = (
    Flag(
        "blueprint",
        "a .toml file of what is claimed, or the name of an entry of hwopt catalog blueprints",
        PATH,
        needed=True,
    ),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: lines, repairs, what was assumed"),
)


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit code."""
    page = page_path(options)
    if not options.blueprint.endswith(".toml") and os.path.isfile(options.blueprint):
        raise UserError(f"{options.blueprint}: a blueprint is read from a .toml file; end its name in .toml")
    from hwopt.report.blueprint import check_document, check_screen
    from hwopt.study.blueprint import check

    checked = check(options.blueprint)
    if page is not None:
        from hwopt.report.page.blueprint import blueprint_page
        from hwopt.report.page.files import write

        write(page, blueprint_page(checked, options.command_line))
    show(options, lambda: check_document(checked), lambda: check_screen(checked))
    return 0 if checked.holds else 1
