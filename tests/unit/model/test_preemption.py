"""A run on chips that come and go: an event simulation, limits, slopes, and `estimate --spot`."""

import heapq
import json
import math

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.facility import reliability
from hwopt.model.facility.preemption import spot_report
from tests.in_numpy import once

RUN = catalog.training_run("llama3.1-8b", global_batch=64)
CLUSTER = catalog.cluster("h100-sxm", 64, recovery="in-memory")
PLAN = catalog.plan(RUN, 64, tp=8)  # a replica is a server, and so is a group
REPORT = once(estimate)(RUN, CLUSTER, PLAN)


def reported(every_s, return_s, discount=0.5, chips=8.0, plan=PLAN):
    return once(spot_report)(RUN, CLUSTER, plan, catalog.spot(every_s, return_s, discount, chips), REPORT)


def simulated(every_s, return_s, elastic: bool, seed=0, events=6000) -> float:
    """Useful share of time of eight groups that come and go, with saves, failures and restarts, event by event."""
    rng, groups = np.random.default_rng(seed), 8
    size = reliability.checkpoint_bytes(8.03e9, RUN)
    save = float(reliability.save_s(size, 64.0, CLUSTER.reliability))
    drain = float(reliability.drain_s(size, 64.0, reliability.saved_bytes_per_s_per_chip(CLUSTER)))
    restart = float(reliability.recovery_s(CLUSTER)) + drain
    failing = 1.0 / float(REPORT.mean_time_between_failures_s)
    up = 1.0 / (1.0 + return_s / every_s)
    stops = failing + (groups * up if elastic else groups) / every_s
    with jax.enable_x64(True):
        best = reliability.checkpoint_interval_s(
            np.float64(save), 1.0 / stops, drain, lambda a, b: max(float(a), float(b))
        )
    interval = float(best)
    coming = [(rng.exponential(every_s), "leave", i) for i in range(groups)] + [
        (rng.exponential(1 / failing), "fail", -1)
    ]
    heapq.heapify(coming)
    now, present, kept, done, since, paused = (
        0.0,
        groups,
        0.0,
        0.0,
        0.0,
        0.0,
    )  # work kept, done, seconds worked since a save
    safe: list[tuple[float, float]] = []  # saves on their way: when they are safe, and the work in them
    for _ in range(events):
        time, kind, group = heapq.heappop(coming)
        while now < time:  # to the next event: pauses, work up to a save, the save
            runs = present if elastic else (present == groups) * groups
            if paused > 0.0:
                step = min(paused, time - now)
                paused, now = paused - step, now + step
            elif not runs:
                now = time
            elif since < interval:
                step = min(interval - since, time - now)
                since, now, done = since + step, now + step, done + step * runs / groups
            else:
                step = min(interval + save - since, time - now)
                since, now = since + step, now + step
                if since >= interval + save * (1.0 - 1e-9):
                    safe, since = [*safe, (now + drain, done)], 0.0
        for at, work in safe:
            kept = work if at <= now else kept
        safe = [each for each in safe if each[0] > now]
        if kind == "back":
            present += 1
            heapq.heappush(coming, (now + rng.exponential(every_s), "leave", group))
            paused = restart if elastic or present == groups else paused
            continue
        was_running = elastic or present == groups
        if kind == "leave":
            present -= 1
            heapq.heappush(coming, (now + rng.exponential(return_s), "back", group))
        else:
            heapq.heappush(coming, (now + rng.exponential(1 / failing), "fail", -1))
        if was_running:
            done, since, safe, paused = kept, 0.0, [], restart
    return done / now


@pytest.mark.parametrize(("every_s", "return_s"), [(4e5, 3600.0), (1e5, 7200.0), (2e4, 1800.0)])
def test_an_event_simulation_agrees(every_s, return_s):
    found = reported(every_s, return_s)
    assert float(found.elastic.useful) == pytest.approx(simulated(every_s, return_s, elastic=True), rel=0.02)
    assert float(found.waiting.useful) == pytest.approx(simulated(every_s, return_s, elastic=False), rel=0.05)


def test_limits():
    rare = reported(1e12, 60.0, discount=0.3)
    for each in (rare.elastic, rare.waiting):  # chips that hardly ever leave are chips that stay, cheaper
        assert float(each.useful) == pytest.approx(float(REPORT.goodput), rel=1e-4)
        assert float(each.run_cost_usd) == pytest.approx(0.7 * float(REPORT.run_cost_usd), rel=1e-4)
        assert float(each.least_discount) == pytest.approx(0.0, abs=1e-4)
    often = reported(5e4, 3600.0)
    assert often.elastic.useful > often.waiting.useful and often.elastic.run_cost_usd < often.waiting.run_cost_usd
    assert float(often.present) == pytest.approx(5e4 / 53600) and float(often.whole) == pytest.approx(
        (5e4 / 53600) ** 8
    )
    # At the discount from which it is worth it, it costs what chips that stay cost.
    even = reported(5e4, 3600.0, discount=float(often.elastic.least_discount))
    assert float(even.elastic.run_cost_usd) == pytest.approx(float(REPORT.run_cost_usd), rel=1e-9)
    whole = reported(5e4, 3600.0, plan=catalog.plan(RUN, 64, tp=8, pp=8))  # one replica: nothing is left to go on with
    assert float(whole.elastic.useful) < float(often.elastic.useful)
    assert float(whole.taken_per_s) == pytest.approx(8 * float(whole.whole) / 5e4)


def test_slopes():
    def useful(every_s):
        spot = catalog.spot(1.0, 3600.0, 0.5, 8.0)
        return spot_report(
            RUN, CLUSTER, PLAN, type(spot)(every_s, spot.return_s, spot.discount, spot.group_chips), REPORT
        ).elastic.useful

    value, slope = once(useful), once(jax.grad(useful))(5e4)
    assert slope == pytest.approx((value(5e4 + 1.0) - value(5e4 - 1.0)) / 2.0, rel=1e-4) and slope > 0.0


ESTIMATE = [
    "estimate",
    "--workload",
    "llama3.1-8b",
    "--chip",
    "h100-sxm",
    "--chips",
    "64",
    "--plan",
    "tp=8",
    "--global-batch",
    "64",
]


def test_the_flag(capsys):
    arguments = [*ESTIMATE, "--recovery", "in-memory", "--spot", "every=1d,return=1h,discount=60%"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    expected = reported(86400.0, 3600.0, 0.6)
    assert document["spot"]["elastic"]["run_cost_usd"] == pytest.approx(float(expected.elastic.run_cost_usd), rel=1e-6)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "On preemptible chips" in out and "wait until all are back" in out and "cheaper than reserved chips" in out
    assert main([*ESTIMATE, "--spot", "every=1min,return=10h,discount=10%"]) == 0
    out = capsys.readouterr().out
    assert "never ends" in out and "not worth it" in out


@pytest.mark.parametrize(
    ("spot", "named"),
    [
        ("every=10h", "'return' is missing"),
        ("every=10h,return=1h,discount=120%", "below 1"),
        ("every=0,return=1h,discount=10%", "above zero"),
        ("every=10h,return=1h,discount=10%,chips=7", "64 chips"),
        ("ever=10h,return=1h,discount=10%", "'every'"),
        ("every=10kg,return=1h,discount=10%", "is not a unit"),
    ],
)
def test_refusals(capsys, spot, named):
    assert main([*ESTIMATE, "--spot", spot]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and named in captured.err, captured.err


def test_refusals_of_sites_and_services(capsys):
    more = ["--spot", "every=10h,return=1h,discount=10%"]
    assert main([*ESTIMATE, "--sites", "2", *more]) == 2 and "one site" in capsys.readouterr().err
    assert (
        main([*ESTIMATE[:7], "--mode", "serve", *more]) == 2 and "--spot applies to training" in capsys.readouterr().err
    )
    with pytest.raises(UserError, match="discount"):
        catalog.spot(1.0, 1.0, math.nan, 8.0)
