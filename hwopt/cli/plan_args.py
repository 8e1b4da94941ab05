"""What is asked of a plan, by the flags of `hwopt plan`: the work, limits, how many of the next best."""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from hwopt.cli.exports import LOOKED_AT, check_export
from hwopt.cli.flags import Flag

_LIMITS = {
    f"{flag}{level}_limit_s": f"{metric}{level}_s"
    for flag, metric in (("ttft", "time_to_first_token"), ("tpot", "time_per_output_token"))
    for level in ("", "_p95", "_p99")
}


def work_asked(options: argparse.Namespace, flags: Sequence[Flag]) -> Any:
    """The `Work` of the command's `flags`."""
    from hwopt.cli.request import cluster_request

    work = cluster_request(options, flags)
    for chip in work.chips:
        check_export(options.export, work.workload, chip, options.precision)
    return work


def limits(options: argparse.Namespace) -> dict[str, float]:
    """Limits that are asked for, by metric."""
    stated = {metric: getattr(options, name) for name, metric in _LIMITS.items()}
    return {metric: limit for metric, limit in stated.items() if limit is not None and math.isfinite(limit)}


def top(options: argparse.Namespace) -> int:
    """How many of the next best plans are kept."""
    return max(options.top, LOOKED_AT) if options.export is not None else options.top
