"""What input and output tokens of a service cost, by the million, as people who run services say it."""

import math
from functools import singledispatch
from typing import Any

from hwopt.model.report import Report, ServingReport
from hwopt.report.parts import number

PER = 1e6
"""Tokens that a price is of."""


@singledispatch
def tokens_counted(report: Any) -> str:
    """Which tokens a report counts in its rate and cost, in words."""
    return "tokens"


@tokens_counted.register
def _(report: ServingReport) -> str:
    return "input tokens" if math.isnan(float(report.cost_per_output_token_usd)) else "output tokens"


def price_document(report: Report) -> dict[str, float | None]:
    """Prices per million tokens in USD, of prompts and of answers alone; null for what the machine does not do, none of a run."""
    if not isinstance(report, ServingReport):
        return {}
    each = {"input": report.cost_per_input_token_usd, "output": report.cost_per_output_token_usd}
    return {f"usd_per_million_{name}_tokens": number(PER * float(price)) for name, price in each.items()}


def price_words(report: ServingReport) -> str:
    """Prices per million tokens in words, those of what the machine does."""
    words = [
        f"{price:.4g} $ per {name.removeprefix('usd_per_').replace('_', ' ')}"
        for name, price in price_document(report).items()
        if price is not None
    ]
    return " and ".join(words) + (", by the machine's time that each takes" if len(words) > 1 else "")
