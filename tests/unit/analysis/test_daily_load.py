"""A machine over a day of requests: sums are conserved, idle power is paid, the busiest hour sizes it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwopt import catalog
from hwopt.analysis.daily_load import daily_load
from hwopt.catalog.day_curves import day_curve
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy

CURVE = tuple(float(1.0 + 0.6 * np.sin(2.0 * np.pi * hour / 24.0)) for hour in range(24))


def _machine(**asked):
    service = catalog.service("llama3.1-8b", precision="fp8", requests_per_s=6.0, **asked)
    cluster = catalog.cluster("h100-sxm", 2, stack="tensorrt-llm-2025")
    return service, cluster, catalog.serving_plan(service, 2, tp=2, batch=64)


def test_a_day_is_the_sum_of_its_hours_and_takes_what_its_mean_hours_take():
    service, cluster, plan = _machine()
    day = daily_load(service, cluster, plan, CURVE)
    mean = evaluate_in_numpy(estimate, service, cluster, plan)
    assert day.requests == pytest.approx(6.0 * 86400.0)
    assert day.energy_j == pytest.approx(sum(hour.power_w for hour in day.hours) * 3600.0)
    assert day.energy_j == pytest.approx(float(mean.power_w) * 86400.0, rel=1e-5)
    assert day.usd == pytest.approx(float(mean.cost_per_token_usd * mean.tokens_per_s) * 86400.0, rel=1e-5)
    flat = daily_load(service, cluster, plan, (1.0,) * 24)
    assert flat.energy_j == pytest.approx(day.energy_j, rel=1e-5)
    assert 0.0 < day.idle_j < day.energy_j


def test_hours_differ_by_their_load_alone_and_a_night_without_requests_pays_for_idle_chips():
    service, cluster, plan = _machine()
    night = tuple(0.0 if hour < 6 else 24.0 / 18.0 for hour in range(24))
    day = daily_load(service, cluster, plan, night)
    dark, light = day.hours[0], day.hours[12]
    assert dark.requests_per_s == dark.load == 0.0
    assert day.idle_j == pytest.approx(dark.power_w * 86400.0, rel=1e-6)
    assert 0.3 * light.power_w < dark.power_w < light.power_w
    assert dark.usd_per_s > 0.5 * light.usd_per_s
    assert light.first_p99_s > dark.first_p99_s and light.token_p99_s > dark.token_p99_s
    assert daily_load(service, cluster, plan, tuple(4.0 * each for each in night)).overloaded == 18


def test_the_busiest_hour_sizes_the_machine(tmp_path, capsys):
    path = tmp_path / "day.csv"
    path.write_text("hour,requests\n" + "".join(f"{hour},{100 * share:.6f}\n" for hour, share in enumerate(CURVE)))
    assert day_curve(str(path)) == pytest.approx(CURVE)
    service = _machine(day_curve=str(path))[0]
    assert float(service.peak_over_mean) == pytest.approx(1.6) == pytest.approx(1.0 / float(service.most_load))
    toml = tmp_path / "day.toml"
    toml.write_text(f"requests = {[round(each, 6) for each in CURVE]}\n")
    assert day_curve(str(toml)) == pytest.approx(CURVE, abs=1e-5)
    asked = [
        "estimate", "--mode", "serve", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "2", "--precision", "fp8",
        "--plan", "tp=2,batch=64", "--requests-per-s", "6", "--day-curve", str(path),
    ]  # fmt: skip
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    busiest = max(document["day"]["hours"], key=lambda hour: hour["load"])
    assert busiest["first_p99_s"] == pytest.approx(document["time_to_first_token_p99_s"], rel=1e-6)
    assert busiest["load"] == pytest.approx(document["busiest_load"], rel=1e-6)
    assert document["day"]["overloaded_hours"] == 0
    assert main(asked) == 0
    assert "Daily load" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.csv", "hour,requests\n0,1\n", "has 1 hours instead of 24"),
        ("a.csv", "time,requests\n", "has the header 'time,requests'"),
        ("a.csv", "hour,requests\n1,1\n", "instead of hour 0"),
        ("a.toml", "requests = [" + "0, " * 24 + "]", "all hours have 0"),
        ("a.toml", "requests = [" + "1, " * 23 + "-1]", "-1 requests in hour 23"),
        ("a.toml", 'requests = ["many"]', "'many' in hour 0"),
        ("a.toml", "load = [1]", "has load"),
        ("a.toml", "load =", "a.toml"),
        ("a.txt", "1", "write 24 rows"),
    ],
)
def test_bad_curves_are_refused(tmp_path, name, text, named):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=named):
        day_curve(str(path))


def test_a_missing_curve_and_two_peaks_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        day_curve(str(tmp_path / "none.csv"))
    (tmp_path / "day.toml").write_text(f"requests = {list(CURVE)}")
    with pytest.raises(UserError, match="keep one of them"):
        _machine(day_curve=str(tmp_path / "day.toml"), peak_over_mean=2.0)
