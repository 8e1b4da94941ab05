"""Run on preemptible chips, compared with one on reserved chips, as a section of an answer."""

import math

from hwopt.model.facility.preemption import Interrupted, SpotReport
from hwopt.model.report import TrainingReport
from hwopt.output.answer import Lines, Section, Table
from hwopt.units import pretty


def spot_section(spot: SpotReport, report: TrainingReport) -> Section:
    """Return a table of time and cost: reserved chips, continuing with fewer replicas, waiting for all chips.

    **Arguments:** `report` of the same run on reserved chips.
    """
    often = pretty(1.0 / float(spot.taken_per_s), "s")
    here, whole = 100 * float(spot.present), 100 * float(spot.whole)
    stays = Interrupted(report.goodput, report.run_time_s, report.run_cost_usd, report.goodput * math.nan)
    worth = min(_cost(spot.elastic), _cost(spot.waiting)) < float(report.run_cost_usd)
    words = "cheaper than reserved chips" if worth else "not worth it: reserved chips are cheaper"
    mean = f"on average {here:.3g} % of the chips are available, all of them {whole:.3g} % of the time"
    ways = {
        "reserved chips": stays,
        "elastic: fewer replicas go on": spot.elastic,
        "wait until all are back": spot.waiting,
    }
    rows = [[name, *_cells(each)] for name, each in ways.items()]
    heads = ("", "goodput", "whole run", "cost", "break-even discount")
    said = Lines([words, f"a preemption every {often}; {mean}"])
    return Section("On preemptible chips", [said, Table("ways", heads, rows, "lrrrl")])


def _cost(each: Interrupted) -> float:
    cost = float(each.run_cost_usd)
    return cost if math.isfinite(cost) else math.inf


def _cells(each: Interrupted) -> list[str]:
    """Return the table cells of one policy: goodput, run time, cost, and the discount from which it pays."""
    useful, discount = float(each.useful), float(each.least_discount)
    if not math.isfinite(_cost(each)) or useful < 1e-6:
        return ["0.0 %", "never ends", "-", "interrupted before a checkpoint is saved"]
    time, cost = pretty(float(each.run_time_s), "s"), pretty(float(each.run_cost_usd), "USD")
    return [f"{100 * useful:.1f} %", time, cost, "" if math.isnan(discount) else f"{100 * discount:.3g} %"]
