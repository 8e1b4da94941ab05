"""`hwopt check`: plausibility check of a stated machine and plan, line by line; exit code 1 where a line fails."""

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.value_types import PATH
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FLAGS = (
    Flag(
        "blueprint",
        ".toml file with the claims, or a name of hwopt catalog blueprints",
        PATH,
        needed=True,
    ),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: checks, corrections, assumptions"),
)


def answer(options: argparse.Namespace) -> "Answer":
    """Return the line-by-line check of the blueprint that the flags name."""
    if not options.blueprint.endswith(".toml") and os.path.isfile(options.blueprint):
        raise UserError(f"{options.blueprint}: a blueprint is read from a .toml file; end its name in .toml")
    from hwopt.analysis.claim_check import check
    from hwopt.output.answers.claim_check import check_answer

    return check_answer(check(options.blueprint))
