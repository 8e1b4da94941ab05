"""Measured collectives: bus bandwidth and latency of every system, and links that hold what a fit finds."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.network import collectives as collectives_of_model
from results.benchmarks import collectives
from tests import cases

BANDWIDTH, LATENCY = 0.15, 1.5
"""Targets: median error of bus bandwidth from 1 MB to 8 GB, median factor of latency below 64 kB."""


@cache
def scores() -> dict:
    return collectives.score()


def test_every_system_is_there():
    rows = collectives.read()
    assert len(rows) == 1738 and {row.system for row in rows} == set(collectives.SYSTEMS)
    assert all(row.time_s > 0 and row.message_bytes > 0 and row.chips >= 2 for row in rows)


FITTED = [system for system in collectives.SYSTEMS if system not in collectives.NOT_FITTED]


@pytest.mark.parametrize("system", FITTED)
def test_bus_bandwidth_and_latency(system):
    whole = scores()[system]["all"]
    assert whole.bandwidth_error < BANDWIDTH
    assert whole.latency_factor < LATENCY


@pytest.mark.parametrize("system", FITTED)
def test_no_collective_of_a_system_is_off(system):
    for name, part in scores()[system].items():
        assert part.bandwidth_error < 0.16, name
        assert part.latency_factor < LATENCY, name


def test_nearly_all_of_a_system_is_near():
    """The 90th percentile over sizes: protocols switch in steps that no smooth curve follows."""
    for system in FITTED:
        whole = scores()[system]["all"]
        assert whole.bandwidth_error_90 < 0.45 and whole.latency_factor_90 < 1.65, system


def test_racks_that_no_constant_was_fitted_to():
    """1, 2 and 20 racks of 72: bus bandwidth within a quarter from 2 GB on, half as much again at worst (0.5 GB on two), where
    nested tiers alone would make 20 racks up to four times as fast as they are."""
    rows = collectives.read()
    rows = rows[np.isin(rows.system, collectives.NOT_FITTED)]
    error = np.abs(rows.time_s / collectives.predict(rows) - 1.0)
    assert len(rows) == 17 and sorted(set(rows.nodes)) == [1, 2, 20]
    assert error.max() < 0.5 and error[rows.message_bytes >= 2**31].max() < 0.25 and np.median(error) < 0.12
    nested = collectives.predict(rows, cases.replace(collectives.networks(rows), flat_rings=np.zeros(len(rows))))
    assert (nested < 0.6 * rows.time_s)[rows.nodes == 20].all() and (nested == collectives.predict(rows))[
        rows.nodes < 3
    ].all()
    assert not set(collectives.NOT_FITTED) & {
        system for target in collectives.TARGETS.values() for system in target.systems
    }


def test_tiers_of_an_all_to_all_send_at_once():
    """8.59 GB a chip on two servers of eight B300 with 800 Gb/s each took 44.5 ms (NCCL 2.28, README of Oracle's BM.GPU.B300.8):
    half of it keeps a NIC busy for 43 at its full rate, and the parts inside take 5 and more."""
    size, measured_s = 2.0**33, 44.5e-3
    outside, inside = size / 2 / 100e9, size * 7 / 16 / 900e9
    assert outside < measured_s < outside + inside
    with jax.enable_x64(True):
        network = catalog.network("b300", domain=8.0, scale_out="infiniband-xdr")
        predicted = float(collectives_of_model.all_to_all_s(network, size, np.float64(16.0), np.float64(1.0), 0.0))
    assert predicted == pytest.approx(measured_s, rel=0.1)


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
