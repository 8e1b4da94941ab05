"""The supply temperature of the coolant: its bounds, its price, and how a site chooses it."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.model.chip.thermal import operating_point
from hwopt.model.facility.cost import building_usd_per_w
from hwopt.model.facility.power import design_pue, pue
from hwopt.solver.search.solve_global import solve_global

ONE_PLAN = {
    "chips": (5256, 5256), "tp": (4, 4), "cp": (2, 2), "pp": (1, 1), "virtual_stages": (1, 1), "micro_batch": (1, 1),
    "zero": (3, 3), "recompute": (1, 1), "optimizer_tier": (1, 1), "activations_tier": (1, 1), "weights_tier": (1, 1),
    "recovery": (3, 3),
}  # fmt: skip


def test_a_technology_states_its_range():
    assert catalog.coolant_range("direct-liquid") == (17.0, 45.0)
    assert catalog.coolant_range("direct-liquid", "rubin") == (17.0, 45.0)
    assert catalog.coolant_range("air", "h100-sxm") == (18.0, 27.0)


def test_a_systems_limit_at_the_inlet_holds(monkeypatch):
    system = catalog.system_of("rubin")
    limit = system.quantities["coolant_limit"].model_copy(update={"value": 40.0})
    colder = system.model_copy(update={"quantities": system.quantities | {"coolant_limit": limit}})
    monkeypatch.setattr("hwopt.catalog.facilities.system_of", lambda chip: colder)
    assert catalog.coolant_range("direct-liquid", "rubin") == (17.0, 40.0)
    with pytest.raises(UserError, match=r"coolant_degc = 42 must be within 17 \.\. 40 degC"):
        catalog.cooling("direct-liquid", "rubin", 42.0)


@pytest.mark.parametrize(
    ("stated", "complaint"), [("10 degC", "must be at least 17"), ("70 degC", "must not exceed 60")]
)
def test_a_file_cannot_state_an_impossible_coolant(tmp_path, stated, complaint):
    path = tmp_path / "own.toml"
    path.write_text(f'base = "direct-liquid"\ncoolant_temperature = "{stated}"\n')
    with pytest.raises(UserError, match=f"'coolant_temperature' = {stated[:2]} {complaint}"):
        catalog.cooling(path)


@pytest.mark.parametrize("asked", [16.0, 46.0, -77.0])
def test_a_coolant_out_of_range_is_refused(asked):
    with pytest.raises(UserError, match=rf"coolant_degc = {asked:g} must be within 17 \.\. 45 degC"):
        catalog.cluster("gb200", 72, coolant_degc=asked)
    with pytest.raises(UserError, match=r"coolant_degc ?= ?-?\d+(\.0)? must be (within|a positive)"):
        hwopt.objective("train_cost", chip="gb200", coolant_degc=asked).problem()


def test_a_stated_coolant_is_used():
    cluster = catalog.cluster("gb200", 72, coolant_degc=40.0)
    assert float(cluster.cooling.coolant_temperature_k) == pytest.approx(313.15)
    assert float(cluster.cooling.usual_coolant_k) == pytest.approx(303.15)


def test_a_hall_with_the_usual_coolant_costs_what_its_site_states():
    cluster = catalog.cluster("gb200", 72)
    usual = float(cluster.facility.construction_usd_per_w + cluster.cooling.capital_usd_per_w)
    of = {t: float(building_usd_per_w(catalog.cluster("gb200", 72, coolant_degc=t))) for t in (20.0, 30.0, 40.0)}
    assert of[30.0] == pytest.approx(usual, rel=1e-6) and of[20.0] > usual > of[40.0]


@pytest.mark.parametrize("function", [
    lambda c: building_usd_per_w(c), lambda c: pue(c.facility, c.cooling), lambda c: design_pue(c.facility, c.cooling),
    lambda c: operating_point(c.chip, c.cooling).power_w, lambda c: operating_point(c.chip, c.cooling).clock_margin,
])  # fmt: skip
def test_gradients_agree_with_finite_differences(function):
    cluster = catalog.cluster("gb200", 72)

    def at(kelvin):
        return function(replace(cluster, cooling=replace(cluster.cooling, coolant_temperature_k=kelvin)))

    with jax.enable_x64(True):
        for degrees in (18.0, 27.0, 31.0, 44.0):
            kelvin = np.float64(273.15 + degrees)
            slope = (float(at(kelvin + 1e-3)) - float(at(kelvin - 1e-3))) / 2e-3
            assert float(jax.grad(at)(kelvin)) == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_a_free_coolant_has_the_range_of_its_technology():
    of = lambda **asked: {each.name: each for each in hwopt.objective("train_cost", **asked).problem().variables}
    liquid, air = of(chip="gb200", free="coolant")["coolant_degc"], of(free="coolant")["coolant_degc"]
    assert (liquid.lower, liquid.upper, liquid.unit) == (17.0, 45.0, "degC") and (air.lower, air.upper) == (18.0, 27.0)
    assert "coolant_degc" not in of() and "coolant_degc" not in of(free="all")
    problem = hwopt.objective("train_cost", chip="gb200", free="coolant").problem()
    assert "coolant_degc" in lattice_of(problem).names
    with pytest.raises(UserError, match="reach beyond 17:45 degC"):
        problem.narrowed({"coolant_degc": (10.0, 30.0)})


def test_warmer_sites_choose_warmer_coolant():
    """Each site takes the coolant with which the design day needs no chillers, within a kelvin or two."""
    found = {}
    for site in ("norway", "us-average", "singapore"):
        problem = hwopt.objective(
            "train_cost", chip="gb200", site=site, free="coolant", time_budget_s=math.inf,
            capex_budget_usd=math.inf, power_budget_w=math.inf,
        ).problem()  # fmt: skip
        solution = solve_global(problem.narrowed(ONE_PLAN), explain=False)
        assert solution.outcome.status == "proved"
        found[site] = solution.design["coolant_degc"].value
        assert float(solution.inputs[1].cooling.coolant_temperature_k) == pytest.approx(273.15 + found[site])
        free_k = float(solution.inputs[1].facility.design_wet_bulb_k + solution.inputs[1].cooling.approach_k)
        assert abs(273.15 + found[site] - free_k) <= 2.0
    assert 17.0 <= found["norway"] < found["us-average"] < found["singapore"] <= 45.0
