"""One question under six cooling technologies: clock, domain, step time and cost move as physics says.

`pytest tests/validation -m slow -k cooling -s` prints the table that `results/reference/cooling.txt` holds.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog

pytestmark = pytest.mark.slow


def fixed_row(chip: str, cooling: str):
    """The same chip, chips and plan; only the cooling moves."""
    run = catalog.training_run("llama3.1-405b", global_batch=2048)
    plan = catalog.plan(run, 16384, tp=8, pp=16, virtual_stages=8)
    with jax.enable_x64(True):
        return hwopt.estimate(run, catalog.cluster(chip, 16384, cooling=cooling), plan)


def print_table(rows: dict, title: str):
    print(f"\n{title}\n{'cooling':<14} {'clock':>6} {'degC':>5} {'W/chip':>7} {'domain':>6} {'rack':>5} {'kW/rack':>8} {'PUE':>6} "
          f"{'step s':>7} {'days':>6} {'MW':>6} {'M$':>7}")  # fmt: skip
    for name, (report, domain, per_rack) in rows.items():
        r = {key: float(getattr(report, key)) for key in (
            "clock_ratio", "junction_temperature_k", "chip_power_w", "rack_power_w", "pue", "step_time_s", "run_time_s",
            "peak_power_w", "run_cost_usd")}  # fmt: skip
        print(
            f"{name:<14} {r['clock_ratio']:6.3f} {r['junction_temperature_k'] - 273.15:5.1f} {r['chip_power_w']:7.0f} "
            f"{domain:6.0f} {per_rack:5.0f} {r['rack_power_w'] / 1e3:8.1f} {r['pue']:6.3f} {r['step_time_s']:7.3f} "
            f"{r['run_time_s'] / 86400:6.1f} {r['peak_power_w'] / 1e6:6.2f} {r['run_cost_usd'] / 1e6:7.2f}"
        )


def test_cooling_moves_a_fixed_machine():
    """A 1,400 W chip on air throttles to what the air removes; liquid restores clock, rack and domain."""
    rows = {}
    for name in catalog.names("cooling"):
        cluster = catalog.cluster("gb300", 16384, cooling=name)
        rows[name] = fixed_row("gb300", name), float(cluster.network.size[0]), float(cluster.rack.chips)
    print_table(rows, "16,384 GB300, Llama-3.1-405B, tp 8, pp 16: only the cooling moves")
    air, liquid, boiling = (rows[name][0] for name in ("air", "direct-liquid", "two-phase"))
    assert air.clock_ratio < 0.95 and liquid.clock_ratio == boiling.clock_ratio == 1.0
    assert air.step_time_s > liquid.step_time_s and air.run_cost_usd > liquid.run_cost_usd
    assert boiling.junction_temperature_k < liquid.junction_temperature_k < air.junction_temperature_k
    assert air.pue > liquid.pue > rows["immersion-1p"][0].pue
    assert rows["air"][2] < rows["rear-door"][2] < rows["direct-liquid"][2]


def test_cooling_moves_the_default_study():
    """Re-optimised under each technology: what the rack can carry decides the domain, what it cools the clock."""
    rows, answers = {}, {}
    question = hwopt.objective("train_cost")
    for name in catalog.names("cooling"):
        answer = hwopt.optimize(dataclasses.replace(question, cooling=name))
        answers[name] = answer
        cluster = answer.inputs.cluster
        rows[name] = answer.report, float(cluster.network.size[0]), float(cluster.rack.chips)
    print_table(rows, answers["air"].problem.question)
    air, liquid = answers["air"], answers["direct-liquid"]
    assert air.feasible and liquid.feasible
    assert liquid.objective < air.objective  # fans, chillers, racks
    assert rows["direct-liquid"][2] > 2 * rows["air"][2]  # chips in a rack
    assert rows["direct-liquid"][1] >= rows["air"][1]  # domain
    assert liquid.report.pue < air.report.pue
    assert liquid.report.power_w / liquid.inputs.cluster.chips < air.report.power_w / air.inputs.cluster.chips
    # Immersion at 40 degC leaves least room below the junction's limit, so its chips run slowest.
    slowest = min(rows, key=lambda name: float(rows[name][0].clock_ratio))
    warmest = max(rows, key=lambda name: float(rows[name][0].junction_temperature_k))
    assert slowest.startswith("immersion") and np.isfinite(float(rows[warmest][0].junction_temperature_k))
