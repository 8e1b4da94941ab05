"""Measured collectives: bus bandwidth and latency of every system, and links that hold what a fit finds."""

from __future__ import annotations

from functools import cache

import pytest

from hwopt import catalog
from hwopt.evidence import collectives

BANDWIDTH, LATENCY = 0.15, 1.5
"""Targets: median error of bus bandwidth from 1 MB to 8 GB, median factor of latency below 64 kB."""


@cache
def scores() -> dict:
    return collectives.score()


def test_every_system_is_there():
    rows = collectives.read()
    assert len(rows) == 1721 and {row.system for row in rows} == set(collectives.SYSTEMS)
    assert all(row.time_s > 0 and row.message_bytes > 0 and row.chips >= 2 for row in rows)


@pytest.mark.parametrize("system", collectives.SYSTEMS)
def test_bus_bandwidth_and_latency(system):
    whole = scores()[system]["all"]
    assert whole.bandwidth_error < BANDWIDTH
    assert whole.latency_factor < LATENCY


@pytest.mark.parametrize("system", collectives.SYSTEMS)
def test_no_collective_of_a_system_is_off(system):
    for name, part in scores()[system].items():
        assert part.bandwidth_error < 0.16, name
        assert part.latency_factor < LATENCY, name


def test_nearly_all_of_a_system_is_near():
    """The 90th percentile over sizes: protocols switch in steps that no smooth curve follows."""
    for system, parts in scores().items():
        assert parts["all"].bandwidth_error_90 < 0.45 and parts["all"].latency_factor_90 < 1.65, system


@pytest.mark.parametrize("name", collectives.TARGETS)
def test_links_hold_what_the_fit_finds(name):
    target, link = collectives.TARGETS[name], catalog.record("links", name)
    rows = collectives.rows_of(target)
    found = collectives.fit_rows(rows, target.tier)
    assert link.si("efficiency") == pytest.approx(found.efficiency, rel=0.01)
    assert link.si("latency") == pytest.approx(found.latency_s, rel=0.02)
    if found.in_network_reduction is not None:
        assert link.si("in_network_reduction") == pytest.approx(found.in_network_reduction, rel=0.01)


@pytest.mark.parametrize("name", ["nvlink-3", "nvlink-4", "nvlink-5"])
def test_the_ramp_of_theory_is_the_one_measured(name):
    """A free factor in place of 1 comes out near it."""
    target = collectives.TARGETS[name]
    rows = collectives.rows_of(target)
    assert collectives.fit_rows(rows, target.tier, ramp=None).ramp == pytest.approx(1.0, abs=0.3)


def test_one_tier_after_the_other_would_be_too_slow():
    """Two nodes of p5 at 8 GB: the domain alone takes almost all of the time, so the tiers run at once."""
    (row,) = (r for r in collectives.read() if r.system == "p5" and r.message_bytes == 2**33)
    inside = row.message_bytes * 2 * 7 / 8 / 480e9  # an all-reduce at the bus bandwidth of one node
    outside = row.message_bytes / 8 / 50e9
    assert row.time_s < 0.7 * (inside + outside)


def test_the_printed_table_names_every_system():
    text = collectives.table(scores())
    assert all(name in text for name in collectives.SYSTEMS)


def test_main_prints_the_scores(capsys):
    collectives.main([])
    assert "gb300" in capsys.readouterr().out
