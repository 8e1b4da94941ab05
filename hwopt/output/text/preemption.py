"""Run on preemptible chips, compared with one on reserved chips, as lines of a screen and as JSON."""

import math
from typing import Any

from hwopt.model.facility.preemption import Interrupted, SpotReport
from hwopt.model.report import TrainingReport, outputs
from hwopt.output.text.layout import heading
from hwopt.output.text.parts import number
from hwopt.units import pretty


def spot_document(spot: SpotReport | None) -> dict[str, Any]:
    """Return both ways to continue after preemption for JSON: waiting and elastic; empty where not requested."""
    if spot is None:
        return {}
    values = lambda of: {name: number(getattr(of, name)) for name in outputs(type(of))}
    return {"spot": values(spot) | {"waiting": values(spot.waiting), "elastic": values(spot.elastic)}}


def spot_lines(spot: SpotReport | None, report: TrainingReport) -> list[str]:
    """Return a table of time and cost: reserved chips, continuing with fewer replicas, waiting for all chips."""
    if spot is None:
        return []
    often = pretty(1.0 / float(spot.taken_per_s), "s")
    here, whole = 100 * float(spot.present), 100 * float(spot.whole)
    stays = Interrupted(report.goodput, report.run_time_s, report.run_cost_usd, report.goodput * math.nan)
    best = min((spot.elastic, spot.waiting), key=lambda each: _cost(each))
    words = "worth it" if _cost(best) < float(report.run_cost_usd) else "not worth it: chips that stay are cheaper"
    return [
        *heading("On preemptible chips"),
        f"  some leave every {often}; {here:.3g} % of them are there on average, all of them {whole:.3g} % of the time: {words}",
        f"  {'':<34}{'useful':>10}{'whole run':>14}{'money':>12}   worth it from a discount of",
        _line("chips that stay", stays),
        _line("elastic: fewer replicas go on", spot.elastic),
        _line("waiting until all are back", spot.waiting),
    ]


def _cost(each: Interrupted) -> float:
    cost = float(each.run_cost_usd)
    return cost if math.isfinite(cost) else math.inf


def _line(name: str, each: Interrupted) -> str:
    useful, discount = float(each.useful), float(each.least_discount)
    if not math.isfinite(_cost(each)) or useful < 1e-6:
        return f"  {name:<34}{'gets nowhere: interrupted before anything is saved':>36}"
    time, cost = pretty(float(each.run_time_s), "s"), pretty(float(each.run_cost_usd), "USD")
    least = "" if math.isnan(discount) else f"   {100 * discount:.3g} %"
    return f"  {name:<34}{100 * useful:>8.1f} %{time:>14}{cost:>12}{least}"
