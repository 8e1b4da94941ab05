"""Tiles at the top of the page of `optimize`: the most requested numbers, such as chips, run time and cost."""

import math
from functools import singledispatch
from typing import Any

from hwopt.hardware.cluster import Cluster
from hwopt.model.report import ServingReport, TrainingReport, TrainServeReport
from hwopt.output.html import components
from hwopt.output.html.markup import Html
from hwopt.output.text.token_prices import priced_tokens
from hwopt.solver.solution import Solution
from hwopt.units import pretty


def tiles(solution: Solution) -> Html:
    """Return the tiles of an answer."""
    report, cluster = solution.report, solution.inputs.cluster
    pairs = _asked_first(report, cluster, solution.plan)
    pairs += [("capital cost", pretty(float(report.capex_usd), "USD"))] if float(report.capex_usd) else []
    return components.tiles([*pairs, ("peak power", pretty(float(report.peak_power_w), "W"))])


@singledispatch
def _asked_first(report: Any, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    raise TypeError(f"no tiles of a {type(report).__name__}")


@_asked_first.register
def _(report: TrainingReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("chips", f"{float(cluster.chips):,.0f}"),
        ("run time", pretty(float(report.run_time_s), "s")),
        ("step time", pretty(float(report.step_time_s), "s")),
        ("MFU", pretty(float(report.mfu), "fraction", 3)),
        ("run cost", pretty(float(report.run_cost_usd), "USD")),
    ]


@_asked_first.register
def _(report: ServingReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("chips", f"{float(cluster.chips):,.0f}"),
        *_latencies(report),
        ("throughput", pretty(float(report.tokens_per_s), "token/s")),
        (f"a million {priced_tokens(report)}", pretty(1e6 * float(report.cost_per_token_usd), "USD", 3)),
    ]


@_asked_first.register
def _(report: TrainServeReport, cluster: Cluster, plan: Any) -> list[tuple[str, str]]:
    return [
        ("training chips", f"{float(cluster.chips):,.0f}"),
        ("serving chips", f"{float(plan.serving.chips):,.0f}"),
        ("run time", pretty(float(report.run_time_s), "s")),
        *_latencies(report),
    ]


def _latencies(report: ServingReport | TrainServeReport) -> list[tuple[str, str]]:
    times = {"TTFT": report.time_to_first_token_s, "TPOT": report.time_per_output_token_s}
    return [(name, pretty(float(time), "s", 3)) for name, time in times.items() if not math.isnan(time)]
