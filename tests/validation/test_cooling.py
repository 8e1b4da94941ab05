"""One machine and one question under six cooling technologies: clock, domain, step time and cost move as physics says.

`python -m tests.validation.test_cooling` prints the tables that `results/reference/cooling.txt` holds.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import Report

pytestmark = pytest.mark.search

NAMES = ("air", "rear-door", "direct-liquid", "two-phase", "immersion-1p", "immersion-2p")


class Row(NamedTuple):
    """One technology."""

    report: Report
    cluster: Cluster
    feasible: bool

    @property
    def domain(self) -> float:
        return float(self.cluster.network.size[0])

    @property
    def rack_chips(self) -> float:
        return float(self.cluster.rack.chips)


@cache
def fixed_machine() -> dict[str, Row]:
    """The same chips and plan; racks are filled as far as each technology allows."""
    run = catalog.training_run("llama3.1-405b", global_batch=2048)
    plan = catalog.plan(run, 16384, tp=8, pp=16, virtual_stages=8)
    rows = {}
    with jax.enable_x64(True):
        for name in NAMES:
            cluster = catalog.cluster("gb300", 16384, cooling=name)
            report = hwopt.estimate(run, cluster, plan)
            rows[name] = Row(report, cluster, bool(report.feasible))
    return rows


@cache
def default_question(names: tuple[str, ...] = NAMES) -> dict[str, Row]:
    """The default question, optimised anew under each technology."""
    question = hwopt.objective("train_cost")
    answers = {name: hwopt.optimize(dataclasses.replace(question, cooling=name), explain=False) for name in names}
    return {name: Row(each.report, each.inputs.cluster, each.feasible) for name, each in answers.items()}


def table(rows: dict[str, Row]) -> str:
    """Rows as text."""
    lines = [f"{'cooling':<14}  clock  degC  W/chip  domain  rack  kW/rack    PUE  step s   days     MW      M$"]
    for name, row in rows.items():
        r = jax.tree.map(np.asarray, row.report)
        lines.append(
            f"{name:<14} {r.clock_ratio:6.3f} {r.junction_temperature_k - 273.15:5.1f} {r.chip_power_w:7.0f} "
            f"{row.domain:7.0f} {row.rack_chips:5.0f} {r.rack_power_w / 1e3:8.1f} {r.pue:6.3f} {r.step_time_s:7.3f} "
            f"{r.run_time_s / 86400:6.1f} {r.peak_power_w / 1e6:6.2f} {r.run_cost_usd / 1e6:7.2f}"
        )
    return "\n".join(lines)


def test_cooling_moves_a_fixed_machine():
    """Air does not carry a 1,400 W chip at full load, and slows its training by 4 %; liquid restores clock and rack."""
    rows = fixed_machine()
    air, liquid, boiling = (rows[name].report for name in ("air", "direct-liquid", "two-phase"))
    assert 0.95 < air.clock_ratio < 0.98 and liquid.clock_ratio == boiling.clock_ratio == 1.0
    assert air.clock_margin < -0.2 and liquid.clock_margin >= 0.0
    assert air.step_time_s > liquid.step_time_s and air.run_cost_usd > liquid.run_cost_usd
    assert boiling.junction_temperature_k < liquid.junction_temperature_k < air.junction_temperature_k
    assert air.pue > liquid.pue > rows["immersion-1p"].report.pue
    assert rows["air"].rack_chips < rows["rear-door"].rack_chips < rows["direct-liquid"].rack_chips
    assert air.goodput < liquid.goodput  # hotter chips fail more often


def test_cooling_moves_the_default_study():
    """Chips as sold keep clock and domain under all but one; what the rack can carry and what the plant draws decide the cost."""
    rows = default_question(("air", "direct-liquid", "two-phase", "immersion-1p"))
    assert all(row.feasible for row in rows.values())
    air, liquid, boiling = rows["air"], rows["direct-liquid"], rows["two-phase"]
    assert boiling.report.run_cost_usd < liquid.report.run_cost_usd < air.report.run_cost_usd
    assert (
        liquid.rack_chips == 32.0 > air.rack_chips == 24.0 and liquid.domain == air.domain == 8
    )  # four servers, and three
    assert liquid.report.clock_ratio == pytest.approx(1.0, rel=1e-9)
    assert 0.99 < air.report.clock_ratio < 1.0  # three servers use all the power that air can take from a rack
    assert liquid.report.pue < air.report.pue
    # Immersion at 40 degC leaves least room below the junction's limit: its chips run slowest.
    assert min(rows, key=lambda name: float(rows[name].report.clock_ratio)) == "immersion-1p"


if __name__ == "__main__":
    print("16,384 GB300 train Llama-3.1-405B (tp 8, pp 16): only the cooling moves, and with it how full racks are\n")
    print(table(fixed_machine()))
    print(f"\n{hwopt.objective('train_cost').problem().continuous.question}: asked again under each cooling\n")
    print(table(default_question()))
