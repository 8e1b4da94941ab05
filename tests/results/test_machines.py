"""The table of published machines is up to date, and its sums are those of the bill."""

import numpy as np
import pytest

from hwopt import catalog
from hwopt.model.facility.bill import bill_lines
from results.benchmarks.machines import MACHINES, figures, ratios, row
from results.benchmarks.reference import RESULTS
from tests.results.test_reference import numbers, words

NAMED = {machine.name: machine for machine in MACHINES}


@pytest.mark.parametrize("name", ["xAI Colossus", "8,200 H100 of Taiga Cloud"])
def test_a_row_comes_out_again(name):
    lines = (RESULTS / "reference" / "machines.txt").read_text(encoding="utf-8").splitlines()
    committed = next(line for line in lines if line.startswith(name))
    found = row(NAMED[name])
    assert words(found) == words(committed)
    np.testing.assert_allclose(numbers(found), numbers(committed), rtol=0.01)


def test_power_of_a_facility_is_the_sum_of_its_bill():
    machine = NAMED["xAI Colossus"]
    bill = bill_lines(catalog.cluster(machine.chip, 1e5, cooling=machine.cooling)).values()
    watts = sum(float(line.count * line.unit_w) for line in bill) / 1e5
    model = figures(machine)
    np.testing.assert_allclose([model.watts, sum(model.columns)], watts, rtol=1e-5)
    assert ratios(machine, model)[0] == pytest.approx(watts / 1500.0, rel=1e-5)


def test_parts_left_out_take_their_fans_along():
    """A server is less than its IT, by switches, modules and the fans and supplies for them."""
    server, unit = NAMED["HGX H100 server"], NAMED["20,480 H100"]
    less = figures(unit).watts - figures(server).watts
    chip, host, links, fans, storage, _ = figures(unit).columns
    lanes = 28.8  # W of NVLink: 450 GB/s at 8 pJ/bit
    assert less == pytest.approx((links - lanes) * (1.0 + fans / (chip + host + links)) + storage, rel=0.03)
