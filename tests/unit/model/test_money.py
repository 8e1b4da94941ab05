"""The annuity, storage that follows the work, and trim chillers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.facility.cost import annuity_per_s, embodied_parts
from hwopt.model.facility.power import chiller_share, design_pue, pue
from hwopt.model.machine import machine, stocked
from hwopt.output.text.cluster import financing
from hwopt.units import YEAR_S


def a_year(rate, years):
    return annuity_per_s(jnp.asarray(rate) / YEAR_S, jnp.asarray(years) * YEAR_S) * YEAR_S


@pytest.mark.parametrize(
    ("rate", "years", "payment"),
    [(0.1, 5, 0.2637974808), (0.1, 15, 0.1314737769), (0.07, 20, 0.0943929257), (1.0, 1, 2.0)],
)
def test_an_annuity_is_the_payment_of_a_spreadsheet(rate, years, payment):
    assert float(a_year(rate, float(years))) == pytest.approx(payment, rel=3e-6)


def test_an_annuity_repays_its_loan():
    """The debt of 1 USD is gone after the last of eight payments."""
    payment, debt = float(a_year(0.09, 8.0)), 1.0
    for _ in range(8):
        debt = debt * 1.09 - payment
    assert debt == pytest.approx(0.0, abs=1e-5)


def test_without_interest_an_annuity_is_straight_line_and_its_slope_is_finite():
    assert float(a_year(0.0, 5.0)) == pytest.approx(0.2, rel=1e-6)
    slope = jax.grad(lambda rate: a_year(rate, 5.0))(0.0)
    assert float(slope) == pytest.approx((5 + 1) / (2 * 5), rel=1e-5)
    assert np.isfinite(jax.grad(lambda years: a_year(0.0, years))(5.0))


def test_the_series_of_an_annuity_meets_its_closed_form():
    below, above = (float(a_year(np.float64(1e-3) * factor, 15.0)) for factor in (1 - 1e-6, 1 + 1e-6))
    assert below == pytest.approx(above, rel=1e-5)


def test_an_annuity_is_log_log_convex():
    rng = np.random.default_rng(3)
    ends = np.exp(rng.uniform(np.log([[1e-4], [1.0]]), np.log([[1.0], [40.0]]), (2, 2, 500)))
    middle = np.sqrt(ends[0] * ends[1])
    with jax.enable_x64(True):
        value = lambda rate, years: np.log(np.asarray(a_year(rate, years)))
        assert (value(*middle) <= 0.5 * (value(*ends[0]) + value(*ends[1])) + 1e-8).all()


def test_storage_follows_tokens_and_checkpoints_not_chips():
    """405 B parameters, 15.6 T tokens: 62 TB of tokens in five copies, a hundred checkpoints of 5.7 TB, and what all have."""
    run = catalog.training_run("llama3.1-405b")
    held = [
        float(stocked(catalog.cluster(chip, chips), run).storage.capacity_bytes)
        for chip, chips in (("h100-sxm", 64), ("h100-sxm", 16384), ("tpu-v7", 1024))
    ]
    assert held[0] == held[1] == held[2]
    assert held[0] == pytest.approx(100e12 + 5 * 15.6e12 * 4 + 100 * 405.85e9 * 14, rel=2e-3)


def test_a_service_stores_its_weights():
    service = catalog.service("llama3.1-405b", precision="fp8")
    held = float(stocked(catalog.cluster("h100-sxm", 64), service).storage.capacity_bytes)
    assert held == pytest.approx(100e12 + 5 * 405.85e9 * float(service.weight_bytes), rel=2e-3)


def test_trim_chillers_carry_the_mean_excess_over_the_range():
    """Against a sample of wet bulbs; and on a day without spread, the clipped line itself."""
    wet = np.random.default_rng(4).normal(290.0, 6.0, 400_000)
    sampled = np.clip((wet + 6.0 - 300.0) / 10.0, 0.0, 1.0).mean()
    assert float(chiller_share(*map(jnp.float32, (290.0, 6.0, 6.0, 300.0, 10.0)))) == pytest.approx(sampled, abs=2e-3)
    for warmer, share in ((-20.0, 0.0), (2.5, 0.25), (30.0, 1.0)):
        assert float(chiller_share(300.0 + warmer, 0.05, 0.0, 300.0, 10.0)) == pytest.approx(share, abs=1e-4)


def test_warmer_coolant_needs_less_chilling_and_liquid_halls_are_as_built():
    """PUE of direct liquid in a mean US climate is 1.10 to 1.20, over the year and on the design day."""
    site = catalog.facility("us-average", "gb200")
    found = [
        replace(catalog.cooling("direct-liquid"), coolant_temperature_k=np.float64(273.15 + t)) for t in (17, 30, 45)
    ]
    yearly, hottest = ([float(of(site, each)) for each in found] for of in (pue, design_pue))
    assert yearly[0] > yearly[1] >= yearly[2] and hottest[0] > hottest[1] > hottest[2]
    assert 1.10 < yearly[1] < hottest[1] < 1.20


def test_a_coolant_that_does_not_warm_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "direct-liquid"\nrange = "0 K"\n')
    with pytest.raises(UserError, match="range"):
        catalog.cooling(path)


def test_embodied_carbon_counts_network_storage_and_racks():
    """By hand: kilograms over life and occupancy."""
    cluster = catalog.cluster("h100-sxm", 1024)
    it = machine(cluster, None, catalog.training_run("llama3.1-8b"))
    found = embodied_parts(it.cluster, it.fed_w, it.powered)
    used_s = 5 * YEAR_S * 0.85
    bought = 1024 * 1.02
    assert float(found["storage"]) * used_s == pytest.approx(
        float(it.cluster.storage.capacity_bytes) * 30e-12, rel=1e-5
    )
    assert float(found["network"]) * used_s == pytest.approx(float(it.capital.network) * 0.035, rel=1e-5)
    chip = float(cluster.chip.embodied_carbon_kg) + 200.0 + 1000.0 / float(cluster.rack.chips)
    assert float(found["equipment"]) * used_s == pytest.approx(bought * chip, rel=1e-5)


def test_financing_is_said_in_words():
    assert financing(catalog.prices("default", "h100-sxm")) == "5-year annuity at 10 %, 85 % occupied"
