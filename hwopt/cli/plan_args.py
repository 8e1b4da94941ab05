"""Arguments of a plan search from the flags of `hwopt plan`: request, limits, number of next best plans."""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from hwopt import escape
from hwopt.cli.cluster_flags import TRAINING, run_words
from hwopt.cli.exports import check_export
from hwopt.cli.flags import Flag
from hwopt.cli.value_types import SETTINGS, number

LIMITS = {
    f"{flag}{level}_limit_s": f"{metric}{level or '_full_batch'}_s"
    for flag, metric in (("ttft", "time_to_first_token"), ("tpot", "time_per_output_token"))
    for level in ("", "_p95", "_p99")
}
"""Flag of a latency limit, by attribute -> the metric that it limits."""


PLAN = Flag(
    "--plan", "parts of the plan to fix: tp=8,pp=16,optimizer_offloaded=1,local_steps=500 (default: chosen by the search; "
    "local_steps=1)", SETTINGS, also=("--hold",),
)  # fmt: skip


def stated_parts(options: argparse.Namespace) -> dict[str, float]:
    """Return the values that `--plan` fixes in all plans of a search, by name."""
    from hwopt import catalog
    from hwopt.design.stated_plan import part_value
    from hwopt.planning.training_plans import COMMON

    if options.plan is None:
        return {}
    parse = catalog.parse_plan if options.mode in TRAINING.names else catalog.parse_serving_plan
    shares = lambda name, text: number(f"--plan {name}", text, least=0.0)
    return {name: (shares if name in COMMON else part_value)(name, text) for name, text in parse(options.plan).items()}


def fixed_words(options: argparse.Namespace) -> str:
    """Return the parts of a plan that `--plan` fixes as a line to append to a title; empty without the flag."""
    return "" if options.plan is None else "\n" + escape.line(f"fixed: {options.plan}")


def work_asked(options: argparse.Namespace, flags: Sequence[Flag]) -> Any:
    """Return the workload and the cluster that the command line asks for, as a `ClusterRequest`.

    With `--export`, check first that the named training or serving software can run this workload on the chips.

    **Arguments:**

    - `options`: the parsed command line.
    - `flags`: all flags that the command accepts.

    **Raises:** `UserError` for flags that contradict each other, and for software that does not support the request.
    """
    from hwopt.cli.request import cluster_request

    work = cluster_request(options, flags)
    for chip in work.chips:
        check_export(options.export, work.workload, chip, options.precision, run_words(options))
    return work


def limits(options: argparse.Namespace) -> dict[str, float]:
    """Return the requested latency limits by metric."""
    stated = {metric: getattr(options, name) for name, metric in LIMITS.items()}
    return {metric: limit for metric, limit in stated.items() if limit is not None and math.isfinite(limit)}
