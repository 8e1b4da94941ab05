"""`hwopt invest`: what one more unit of each number is worth to a question's best machine; 1 where none satisfies its budgets."""

import argparse
from dataclasses import replace

from hwopt.cli.flags import Flag
from hwopt.cli.kinds import INTEGER, NAMES, NATURAL
from hwopt.cli.optimize import BOUNDS, FREEZE, SECONDS
from hwopt.cli.output import is_watched, show
from hwopt.cli.paths import REPORT, page_path
from hwopt.cli.question import CHOICES, asked_objective, check_choices

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    Flag("--replan", "how many numbers to search anew 10 %% better and worse, some 20 s each end, and all budgets; 0: marginal "
         "values alone, at once (default 3)", NATURAL, 3),
    Flag("--of", "which numbers to replan instead, or endings of their names: "
         "hbm_bandwidth_bytes_per_s,electricity_usd_per_j", NAMES, ()),
    Flag("--top", "how many numbers of each part to list", INTEGER, 8),
    replace(SECONDS, meaning="time limit, s; numbers not reached by then are not replanned (default: no limit)"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: values, arcs, budgets, sources"),
)  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Answer, and return the exit code."""
    path, objective = page_path(options), asked_objective(options)
    check_choices(options)
    from hwopt.evidence.intervals import question_interval
    from hwopt.report.invest import invest_document, invest_screen
    from hwopt.study.invest import invest

    answer = invest(
        objective,
        top=options.replan,
        of=options.of,
        seconds=options.seconds,
        freeze=options.freeze,
        bounds=options.bounds,
        choices=options.choices,
        progress=is_watched(options),
    )
    around = question_interval(answer.start) if answer.start.feasible else None
    if path is not None:
        from hwopt.report.page.files import write
        from hwopt.report.page.invest import invest_page

        write(path, invest_page(answer, around, options.command_line))
    show(options, lambda: invest_document(answer, around), lambda: invest_screen(answer, around, options.top))
    return 0 if answer.start.feasible else 1
