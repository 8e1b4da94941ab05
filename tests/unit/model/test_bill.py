"""The bill of any machine: its sums are capital and peak power, and nothing of it counts less than none."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model import machine
from hwopt.model.facility import cost
from hwopt.model.facility.bill import bill_lines
from tests.in_numpy import in_numpy
from tests.tiers import turn

COOLINGS = (None, "air", "direct-liquid", "immersion-2p")
POOLS = (None, "none", "host-pcie5", "cxl-ddr5", "pooled-fabric")
CHANGES = (
    {},
    {"recovery": "hot-spares"},
    {"recovery": "in-memory", "prices": "hyperscale"},
    {"prices": "rented"},
    {"prices": "at-cost", "storage": "object-store"},
    {"sites": 4.0},
    {"rack_chips": 4.0},  # of larger domains, what leaves the rack
)


def clusters():
    """Every chip in some coolings, with pools, under lists of prices: others each turn. Those that the catalogue refuses are
    left out.
    """
    found, rng, every = [], np.random.default_rng(turn()), list(itertools.product(COOLINGS, POOLS))
    for place, chip in enumerate(catalog.names("chips")):
        for cooling, pool in (every[i] for i in rng.choice(len(every), 5, replace=False)):
            change = CHANGES[(place + len(found)) % len(CHANGES)]
            try:
                found.append(catalog.cluster(chip, 2048, cooling=cooling, pool=pool, **change))
            except UserError:
                continue
    return found


def totals(cluster):
    it, lines = machine.machine(cluster, None), bill_lines(cluster)
    return {
        "capex": cost.capex_usd(cluster, it.capital),
        "peak_w": it.design_pue * it.fed_w,
        "paid": sum(line.count * line.unit_usd for line in lines.values()),
        "drawn": sum(line.count * line.unit_w for line in lines.values()),
        "least": [(line.count, line.unit_usd, line.unit_w) for line in lines.values()],
    }


@pytest.fixture(scope="module")
def found():
    every = clusters()
    assert len(every) > 125  # of the whole product more than 500
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), *every)
    return stacked, in_numpy(totals)(stacked)


def test_sums_are_capital_and_peak_power(found):
    _, sums = found
    np.testing.assert_allclose(sums["paid"], sums["capex"], rtol=1e-12)
    np.testing.assert_allclose(sums["drawn"], sums["peak_w"], rtol=1e-12)


def test_who_rents_buys_nothing(found):
    stacked, sums = found
    rented = stacked.prices.owned == 0.0
    assert 0 < rented.sum() < len(rented)
    assert (sums["paid"][rented] == 0.0).all() and (sums["paid"][~rented] > 0.0).all()


def test_nothing_counts_or_costs_less_than_none(found):
    _, sums = found
    for count, price, watts in sums["least"]:
        assert (np.asarray(count) > -1e-9).all() and (np.asarray(price) >= 0.0).all()
        assert (np.asarray(watts) >= -1e-9).all()
