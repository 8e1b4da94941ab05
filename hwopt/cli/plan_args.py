"""Arguments of a plan search from the flags of `hwopt plan`: request, limits, number of next best plans."""

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
    """Return the `ClusterRequest` of the flags, after checking that its plans can be exported.

    **Arguments:** `flags` of the command.
    """
    from hwopt.cli.request import cluster_request

    work = cluster_request(options, flags)
    for chip in work.chips:
        check_export(options.export, work.workload, chip, options.precision)
    return work


def limits(options: argparse.Namespace) -> dict[str, float]:
    """Return the requested latency limits by metric."""
    stated = {metric: getattr(options, name) for name, metric in _LIMITS.items()}
    return {metric: limit for metric, limit in stated.items() if limit is not None and math.isfinite(limit)}


def top(options: argparse.Namespace) -> int:
    """Return the number of next best plans to keep."""
    return max(options.top, LOOKED_AT) if options.export is not None else options.top
