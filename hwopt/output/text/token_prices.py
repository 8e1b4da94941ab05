"""Names, rates and prices of tokens: input and output tokens of a service, or a run's own unit of work.

Reports, documents and objectives count tokens. Screens count images or samples where the workload does (`unit_of_work`).
"""

import math
from functools import singledispatch
from typing import Any

from hwopt.model.fleet.data_parallel import FleetReport
from hwopt.model.report import Report, ServingReport, TrainingReport
from hwopt.output.text.parts import number
from hwopt.units import pretty
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import TOKEN

PER = 1e6
"""Number of tokens that a price refers to."""


@singledispatch
def unit_of_work(of: Any) -> tuple[str, float]:
    """Return the unit of work of a report or run on screens, and its number of tokens."""
    return TOKEN, 1.0


@unit_of_work.register
def _(of: TrainingReport) -> tuple[str, float]:
    return of.unit_of_work, float(of.tokens_per_unit)


@unit_of_work.register
def _(of: FleetReport) -> tuple[str, float]:
    return unit_of_work(of.groups[0])


@unit_of_work.register
def _(of: TrainingRun) -> tuple[str, float]:
    return of.model.unit_of_work, float(of.tokens_per_unit)


Work = tuple[str, float]
"""Unit of work, such as token or image, and its number of tokens."""

TOKENS: Work = (TOKEN, 1.0)


def counted(value: float, unit: str, work: Work) -> tuple[float, str]:
    """Convert a number per token to the unit of work: `USD/token` to `USD/image`, `token/s` to `image/s`."""
    name, tokens = work
    over, _, below = unit.partition("/")
    if name == TOKEN or TOKEN not in (over, below):
        return value, unit
    return (
        (value * tokens, f"{over}/{name}") if below == TOKEN else (value / tokens, f"{name}/{below}" if below else name)
    )


def rate_words(report: Any, tokens_per_s: Any) -> str:
    """Return a rate of tokens in words: `1.2 Mtoken/s`, `3,120 image/s`."""
    unit, tokens = unit_of_work(report)
    return pretty(float(tokens_per_s), "token/s") if unit == TOKEN else f"{float(tokens_per_s) / tokens:,.0f} {unit}/s"


def million_words(report: Any) -> str:
    """Return the cost of a million tokens or other units of work: `1.3 $ per million tokens`, `2 $ per million images`.

    That of a service is its whole cost over its output tokens: `1.3 $ per million output tokens, input included`.
    """
    _, tokens = unit_of_work(report)
    return f"{PER * float(report.cost_per_token_usd) * tokens:.4g} $ per million {priced_tokens(report)}"


def priced_tokens(report: Any) -> str:
    """Return the plural name of the units that a report's cost is divided by, and what else the cost includes."""
    split = isinstance(report, ServingReport) and not math.isnan(float(report.request_time_full_batch_s))
    return f"{tokens_counted(report)}{', input included' if split else ''}"


def tokens_counted(report: Any) -> str:
    """Return the plural name of the units that a report's rate counts."""
    if isinstance(report, ServingReport):
        return "input tokens" if math.isnan(float(report.cost_per_output_token_usd)) else "output tokens"
    return f"{unit_of_work(report)[0]}s"


def price_document(report: Report) -> dict[str, float | None]:
    """Return a price list that pays the cost of a service: USD for a million new input and for a million output tokens.

    Cost is split between prefill and decode by chip time. Null for a phase that the service does not run; empty for a training
    run.
    """
    if not isinstance(report, ServingReport):
        return {}
    each = {"input": report.cost_per_input_token_usd, "output": report.cost_per_output_token_usd}
    return {f"usd_per_million_{name}_tokens": number(PER * float(price)) for name, price in each.items()}


def price_words(report: ServingReport) -> list[str]:
    """Return the price list of a service in words, if it runs both phases."""
    first, later = price_document(report).values()
    if first is None or later is None:
        return []
    return [
        f"{first:.4g} $ per million input tokens and {later:.4g} $ per million output tokens pay the same (split by chip time)"
    ]
