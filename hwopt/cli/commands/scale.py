"""`hwopt scale`: one training run on more and more chips; exit code 1 where no size trains."""

import argparse
import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwopt import escape
from hwopt.cli.cluster_flags import CLUSTER, TRAINING
from hwopt.cli.commands.sensitivity import FIGURE
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.plan_args import PLAN, fixed_words, stated_parts
from hwopt.cli.value_types import NOT_NEGATIVE, SHARE, SIZES, SWITCH, TEXT

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

_OTHERS = ("--mode", "--chips")

FLAGS = (
    *(replace(each, modes=None) for each in CLUSTER
      if each.modes in (None, TRAINING) and each.name not in _OTHERS),
    Flag("--chips", "cluster sizes: 256:1048576 doubles from the first to the last; or a list, 256,512,3072", SIZES,
         needed=True),
    Flag("--weak", "weak scaling: the batch grows with the chips, from --global-batch at the smallest size (default: the "
         "same batch)", SWITCH,
         False),
    Flag("--least-saving", "share of the run time that doubling the chips must save to pay off; at most 0.5 "
         "(default 0.25)",
         SHARE, 0.25),
    Flag("--most-dearer", "max relative cost increase of the run when the chips double (default 0.25)", NOT_NEGATIVE, 0.25),
    Flag("--objective", "metric that the plan of each size minimizes: run_time_s (default), run_cost_usd, ...", TEXT,
         "run_time_s"),
    PLAN,
    replace(FIGURE, meaning="also plot run time, cost and chip time by component over the number of chips, to this image file"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: sizes, where more chips stop paying "
         "and why, plans, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer":
    """Return the scaling study of the training run that the flags state."""
    from hwopt import catalog
    from hwopt.analysis.scaling import scale
    from hwopt.calibration.intervals import PredictionContext
    from hwopt.cli.request import cluster_request
    from hwopt.output.answers.scaling import scaling_answer

    asked = copy.copy(options)
    asked.mode = TRAINING.names[0]
    work = cluster_request(asked, ())
    found = scale(
        work.workload,
        work.cluster,
        options.chips,
        objective=options.objective,
        weak=options.weak,
        least_saving=options.least_saving,
        most_dearer=options.most_dearer,
        common=stated_parts(asked),
    )
    around = {
        each.chips: work.measured(PredictionContext(float(each.report.mfu), each.chips)) for each in found.trained
    }
    title = escape.line(
        f"{catalog.named(options.workload)} on {options.chips[0]:,} to {options.chips[-1]:,} x {options.chip}, "
        f"{options.precision}, site {options.site}{work.operated}"
    )

    def draw(path: Path) -> None:
        from hwopt.output.figures.scaling import plot_scaling

        plot_scaling(found, path, title, around)

    said = scaling_answer(
        found,
        title + work.words + fixed_words(asked),
        around,
        asked.constants,
        options.recovery,
        work.document,
        work.sources,
    )
    return replace(said, draw=draw)
