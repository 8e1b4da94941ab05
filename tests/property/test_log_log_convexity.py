"""Where formulas claim to be log-log convex, their Hessians in logarithms are positive; where they deny it, some are not.

Hardware varies, the plan stands still: every variable x is moved as x exp(y), and log f is differentiated twice by y.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.model.chip import thermal
from hwopt.model.estimate import estimate
from hwopt.model.facility import cost, power, rack, reliability
from hwopt.model.numerics.maximum import expected_maximum_sigmas, hard_maximum, jitter_fraction
from hwopt.model.training import learning
from tests.cases import count, random_cases, replace, take
from tests.in_numpy import in_numpy

POINTS = 60
LEAST = -1e-7
"""Of the largest eigenvalue: what rounding may make of 0."""


# Hessians in logarithms ----------------------------------------------------------------------------------------------


def read(tree, path: str):
    for name in path.split("__"):
        tree = getattr(tree, name)
    return tree


def moved(tree, path: str, leaf):
    """A copy with another (traced) leaf at `chip__clock_ratio`."""
    first, _, rest = path.partition("__")
    old = getattr(tree, first)
    values = {name: getattr(tree, name) for name in tree.__dataclass_fields__}
    return type(tree)(**{**values, first: moved(old, rest, leaf) if rest else leaf})


def hessians(function, rows, paths: tuple[str, ...]) -> np.ndarray:
    """Second derivatives of log `function(row)` by the logarithms of its leaves: (row, [output,] variable, variable)."""

    def log_of(y, row):
        start = 0
        for path in paths:
            leaf = jnp.asarray(read(row, path))
            part = y[start : start + leaf.size].reshape(leaf.shape)
            start += leaf.size
            row = moved(row, path, leaf * jnp.exp(part))
        return jnp.log(function(row))

    width = sum(np.size(read(take(rows, 0), path)) for path in paths)
    return in_numpy(lambda row: jax.hessian(log_of)(jnp.zeros(width), row))(rows)


def least_eigenvalues(second: np.ndarray) -> np.ndarray:
    """The least of each Hessian, relative to its largest or to a hundredth."""
    eigenvalues = np.linalg.eigvalsh(second)
    return eigenvalues.min(-1) / np.maximum(np.abs(eigenvalues).max(-1), 1e-2)


def assert_convex(function, rows, *paths: str, bends: bool = True):
    """Nowhere bent down; and, unless it is a monomial, bent up somewhere."""
    assert_bent_up(hessians(function, rows, paths), bends)


def assert_bent_up(second: np.ndarray, bends: bool = True):
    """The same of Hessians."""
    assert np.isfinite(second).all()
    least = least_eigenvalues(second)
    assert (least >= LEAST).all(), f"{(least < LEAST).sum()} of {len(least)}, {least.min():.2e} at row {least.argmin()}"
    assert (np.abs(second).max() > 1e-6) == bends


def assert_not_convex(function, rows, *paths: str):
    """Bent down at some point, by more than rounding."""
    least = least_eigenvalues(hessians(function, rows, paths))
    assert least.min() < -1e-3


@functools.cache
def everything():
    """Cases on which nothing is degenerate: no part is absent, no sink without resistance."""
    run, cluster, plan = random_cases(np.random.default_rng(50), 3_000)
    sink = cluster.cooling.sink_resistance_k_per_w
    cluster = replace(
        cluster,
        cooling__sink_resistance_k_per_w=np.where(sink == 0, 1e-3, sink),
        stack__jitter_sigma=0.0,
        operation__straggler_sigma=0.0,
        prices__owned=1.0,
        prices__capital_rate_per_s=1e-9,
        storage__usd_per_byte=1e-10,
        network__level_chips=1e9,
        network__size=np.minimum(cluster.network.size, cluster.rack.chips[:, None] * [0.9, 1e9]),
    )
    return (run, cluster, plan), in_numpy(estimate)(run, cluster, plan)


def chosen(mask, n: int = POINTS):
    """The first cases where the mask holds."""
    cases, _ = everything()
    where = np.flatnonzero(mask)[:n]
    assert len(where) >= 24
    return take(cases, where)


def calm(at_least: float = 0.02):
    """Chips that run at the clock asked for, a little off the kink."""
    _, report = everything()
    return report.clock_margin > at_least


def throttled():
    _, report = everything()
    return (report.clock_margin < -0.02) & (report.margins.cooling > 0.05)


def retreat_k(cluster) -> np.ndarray:
    """How far chips stay below the temperature allowed, so that heat does not run away; 0 for most."""

    def of(c):
        point = thermal.operating_point(c.chip, c.cooling)
        return thermal.retreat_k(c.chip, c.cooling, point.clock_ratio, point.allowed_w)

    return in_numpy(of)(cluster)


# Chips ---------------------------------------------------------------------------------------------------------------

POWERS = (
    "chip__clock_ratio", "chip__hbm_bandwidth_bytes_per_s", "chip__core_power_w", "chip__standby_power_w",
    "chip__leakage_power_w", "chip__hbm_energy_j_per_byte",
)  # fmt: skip
HEAT = (
    "chip__heat_area_m2", "cooling__sink_resistance_k_per_w", "cooling__area_resistance_k_m2_per_w",
    "cooling__coolant_temperature_k",
)  # fmt: skip


def clusters(mask, n: int = POINTS):
    return chosen(mask, n)[1]


def test_power_at_full_load():
    rows = clusters(calm())
    assert_convex(lambda c: thermal.full_load_w(c.chip, c.chip.clock_ratio, jnp.array(340.0)), rows, *POWERS)
    assert_convex(lambda c: thermal.core_power_w(c.chip, c.chip.clock_ratio), rows, *POWERS)
    assert_convex(lambda c: thermal.voltage_ratio(c.chip, c.chip.clock_ratio), rows, *POWERS)


def test_leakage_by_clock_and_temperature():
    """A coolant's temperature stands for the junction's."""

    def leakage(c):
        return thermal.leakage_w(c.chip, c.chip.clock_ratio, c.cooling.coolant_temperature_k)

    paths = ("chip__leakage_power_w", "chip__clock_ratio", "cooling__coolant_temperature_k", "chip__leakage_per_k")
    assert_convex(leakage, clusters(calm()), *paths[:3])


def test_thermal_resistance():
    assert_convex(lambda c: thermal.thermal_resistance_k_per_w(c.chip, c.cooling), clusters(calm()), *HEAT[:3])


def test_reciprocal_of_the_sustained_clock_of_a_throttled_chip():
    limits = ("chip__power_cap_w", "cooling__junction_limit_k", "cooling__heat_flux_limit_w_per_m2")
    rows = clusters(throttled(), 150)
    assert_convex(
        lambda c: 1.0 / thermal.operating_point(c.chip, c.cooling).clock_ratio, rows, *POWERS[1:], *HEAT, *limits
    )


def test_reciprocal_of_allowed_power():
    limits = ("chip__power_cap_w", "cooling__junction_limit_k", "cooling__heat_flux_limit_w_per_m2")
    cooled = throttled() | calm()
    assert_convex(lambda c: 1.0 / thermal.allowed_power_w(c.chip, c.cooling), clusters(cooled, 150), *HEAT, *limits)


def test_junction_temperature_of_a_chip_at_its_own_clock():
    rows = clusters(calm(), 150)
    assert_convex(lambda c: thermal.operating_point(c.chip, c.cooling).junction_k, rows, *POWERS, *HEAT)


# Racks and power -----------------------------------------------------------------------------------------------------

LINKS = ("network__bandwidth_bytes_per_s", "network__energy_j_per_byte")
SERVER = ("facility__host_power_w", "cooling__fan_fraction", "facility__supply_efficiency")


def inlet_w(c):
    return power.it_w(c, thermal.operating_point(c.chip, c.cooling), power.FULL_LOAD)


def test_network_power_within_the_rack():
    assert_convex(power.network_w, clusters(calm()), *LINKS, "network__size", "rack__chips")


@pytest.mark.search
def test_power_of_chip_and_rack():
    rows = clusters(calm())
    assert_convex(inlet_w, rows, *POWERS, *HEAT, *LINKS, *SERVER)
    assert_convex(lambda c: c.rack.chips * inlet_w(c), rows, *POWERS, *HEAT, *LINKS, *SERVER, "rack__chips")


def test_weight_of_a_rack():
    assert_convex(rack.rack_weight_kg, clusters(calm()), "rack__chips", "rack__chip_weight_kg", "rack__empty_weight_kg")


def test_racks_and_their_floor_are_monomials():
    paths = ("chips", "rack__chips", "rack__floor_area_m2")
    assert_convex(rack.racks, clusters(calm()), *paths, bends=False)
    assert_convex(rack.floor_area_m2, clusters(calm()), *paths, bends=False)


def test_latency_with_the_length_of_links():
    rows = clusters(calm())
    for tier in range(3):
        assert_convex(
            lambda c: rack.spread_out(c).latency_s[tier],  # noqa: B023
            rows, "chips", "rack__chips", "rack__floor_area_m2", "network__latency_s",
        )  # fmt: skip


def test_pue_of_its_efficiencies():
    paths = ("facility__other_fraction", "facility__room_plant_fraction", "facility__chiller_cop",
             "facility__distribution_efficiency", "cooling__plant_fraction", "cooling__other_share")  # fmt: skip
    assert_convex(lambda c: power.pue(c.facility, c.cooling), clusters(calm()), *paths)


# Money and carbon ----------------------------------------------------------------------------------------------------

PRICES = (
    "prices__chip_base_usd", "prices__hbm_usd_per_byte", "prices__hbm_usd_per_byte_per_s", "prices__host_usd",
    "prices__network_usd_per_byte_per_s", "prices__domain_usd_per_chip", "prices__server_lifetime_s",
    "prices__maintenance_per_s", "prices__capital_rate_per_s", "prices__occupancy", "rack__price_usd",
    "facility__construction_usd_per_w", "facility__construction_lifetime_s", "chips", "rack__chips", "network__size",
    "network__bandwidth_bytes_per_s", "chip__hbm_capacity_bytes", "chip__hbm_bandwidth_bytes_per_s",
    "storage__usd_per_byte", "storage__usd_per_byte_per_s", "storage__checkpoint_bytes_per_s_per_chip",
)  # fmt: skip
PARTS = ("chips", "network", "hosts", "storage", "racks", "upkeep", "building", "electricity")


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_the_cost_of_a_domain_inside_its_rack(part):
    bends = part not in ("electricity",)

    def usd(c):
        return getattr(cost.spending(c, cost.capital(c, c.chips * inlet_w(c), c.chips), c.facility.host_power_w), part)

    assert_convex(usd, clusters(calm()), *PRICES, bends=bends)


@pytest.mark.search
def test_capital_and_building():
    """Of one coolant temperature: the search takes each whole degree as a case of its own."""
    rows, heat = clusters(calm()), [path for path in HEAT if path != "cooling__coolant_temperature_k"]
    assert_convex(
        lambda c: cost.capex_usd(c, cost.capital(c, c.chips * inlet_w(c), c.chips)), rows, *PRICES, *POWERS[2:], *heat
    )
    assert_convex(lambda c: cost.capital(c, c.chips * inlet_w(c), c.chips).building, rows, *PRICES, *POWERS[2:], *heat)


@pytest.mark.parametrize("part", ["electricity", "equipment", "network", "storage", "building"])
def test_parts_of_the_carbon(part):
    paths = ("chip__embodied_carbon_kg", "prices__host_carbon_kg", "prices__server_lifetime_s", "prices__occupancy",
             "facility__construction_carbon_kg_per_w", "facility__construction_lifetime_s", "chips",
             "facility__carbon_kg_per_j", "facility__host_power_w")  # fmt: skip

    def kilograms(c):
        return cost.carbon_parts(c, c.chips * inlet_w(c), c.chips, c.facility.host_power_w)[part]

    bends = part not in ("electricity", "network", "storage")
    assert_convex(kilograms, clusters(calm()), *paths, *POWERS, bends=bends)


# Failures ------------------------------------------------------------------------------------------------------------


def quantities(seed: int, n: int = POINTS, **ranges):
    """Random positive numbers as a tree that paths lead into."""
    rng = np.random.default_rng(seed)
    drawn = {name: np.exp(rng.uniform(np.log(low), np.log(high), n)) for name, (low, high) in ranges.items()}
    return bundle(**drawn)


def bundle(**leaves):
    """A tree of named leaves and modules."""
    fields = tuple(leaves)
    kind = _bundle_of(fields)
    return kind(**leaves)


@functools.cache
def _bundle_of(fields: tuple[str, ...]):
    kind = dataclasses.make_dataclass("Bundle", fields)
    return jax.tree_util.register_dataclass(kind, list(fields), [])


TIMES = dict(save=(1, 100), mtbf=(1e4, 1e6), drain=(10, 1000), restart=(60, 3000))


def test_run_time_over_useful_time():
    """In time between saves too, and at the best of them."""
    rows = quantities(51, 200, interval=(10, 1e4), **TIMES)

    def multiplier(q):
        return reliability.multiplier_at(q.interval, q.save, q.mtbf, q.drain, q.restart)

    assert_convex(multiplier, rows, "interval", *TIMES)

    def at_best(q):
        interval = reliability.checkpoint_interval_s(q.save, q.mtbf, q.drain, hard_maximum)
        return reliability.multiplier_at(interval, q.save, q.mtbf, q.drain, q.restart)

    assert_convex(at_best, rows, *TIMES)


def test_failure_rate_by_chips_and_heat():
    rows = clusters(calm())
    paths = (
        "chips",
        "reliability__die_failures_per_m2_s",
        "chip__hbm_stacks",
        "rack__chips",
        "cooling__coolant_temperature_k",
    )

    def rate(c):
        return sum(reliability.interruptions(c, c.chips, c.cooling.coolant_temperature_k))

    assert_convex(rate, rows, *paths)
    heat = (*POWERS, *HEAT, "chips")
    assert_convex(
        lambda c: sum(reliability.interruptions(c, c.chips, thermal.operating_point(c.chip, c.cooling)[1])),
        rows, *heat,
    )  # fmt: skip


def test_chips_under_power_by_chips_and_used_chips_of_a_rack():
    """Working chips and hot spares: those that repairs need, or those that a job leaves idle in its racks."""
    rows = clusters(calm())

    def powered(c):
        return reliability.powered_chips(c, reliability.interruptions(c, c.chips, c.cooling.coolant_temperature_k))

    paths = ("chips", "rack__chips", "rack__sold_chips", "rack__server_chips", "recovery__repair_s")
    assert_convex(powered, rows, *paths)


# Learning ------------------------------------------------------------------------------------------------------------


def runs(grows: str):
    """Loss laws with sizes, tokens and batches on the domain where batches are small enough to learn from."""
    run, _, _ = random_cases(np.random.default_rng(53), 4_000)
    law = run.law
    rng = np.random.default_rng(54)
    drawn = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), 4_000))
    rows = bundle(law=law, parameters=drawn(1e8, 1e12), tokens=drawn(1e9, 1e14), batch=drawn(1e5, 1e8))
    with jax.enable_x64(True):
        margin = jax.vmap(lambda q: learning.batch_margin(q.law, q.parameters, q.tokens, q.batch))(rows)
    by_loss = law.critical_loss_exponent > 0
    wanted = by_loss if grows == "with the loss" else ~by_loss
    where = np.flatnonzero(wanted & (np.asarray(margin) > 0.1))[:200]
    assert len(where) > 100
    return jax.tree.map(lambda leaf: leaf[where], rows)


SIZES = ("parameters", "tokens", "batch")
GROWTH = ["with the tokens", "with the loss"]


@pytest.mark.parametrize("grows", GROWTH)
def test_loss(grows):
    rows = runs(grows)
    assert_convex(lambda q: learning.loss(q.law, q.parameters, q.tokens), rows, *SIZES)
    assert_convex(lambda q: learning.loss_of_run(q.law, q.parameters, q.tokens, q.batch), rows, *SIZES)


@pytest.mark.parametrize("grows", GROWTH)
def test_batches_and_tokens(grows):
    rows = runs(grows)
    critical = lambda q: 1.0 / learning.critical_batch_tokens(q.law, q.parameters, q.tokens)
    assert_convex(critical, rows, *SIZES, bends=grows == "with the loss")
    assert_convex(lambda q: learning.tokens_with_batch(q.law, q.parameters, q.tokens, q.batch), rows, *SIZES)
    useful = lambda q: 1.0 / learning.effective_tokens(q.law, q.parameters, q.tokens, q.batch)
    assert_convex(useful, rows, *SIZES)


@pytest.mark.parametrize("grows", GROWTH)
def test_tokens_to_a_loss(grows):
    rows = runs(grows)
    with jax.enable_x64(True):
        floor = np.asarray(jax.vmap(lambda q: learning.loss_floor(q.law, q.parameters))(rows))
    over = np.exp(np.random.default_rng(55).uniform(np.log(0.02), 0, len(floor)))
    rows = bundle(law=rows.law, parameters=rows.parameters, wanted=floor * (1 + over), batch=rows.batch)
    tokens = lambda q: learning.tokens_to_loss(q.law, q.parameters, q.wanted, q.batch)
    assert_convex(tokens, rows, "parameters", "wanted", "batch")


def test_repeated_data():
    """Its reciprocal, and the loss it leaves, by unique tokens and tokens processed."""
    rows = runs("with the tokens")
    epochs = np.exp(np.random.default_rng(56).uniform(np.log(1.05), np.log(40), count(rows)))
    rows = bundle(law=rows.law, parameters=rows.parameters, tokens=rows.tokens, unique=rows.tokens / epochs)
    worth = lambda q: learning.repeated_tokens(q.law, q.unique, q.tokens / q.unique)
    assert_convex(lambda q: 1.0 / worth(q), rows, "unique", "tokens")
    assert_convex(lambda q: learning.loss(q.law, q.parameters, worth(q)), rows, "unique", "tokens", "parameters")


# The whole model -----------------------------------------------------------------------------------------------------

MACHINE = (
    "chip__peak_flops_per_s", "chip__hbm_capacity_bytes", "chip__sram_bytes", "network__bandwidth_bytes_per_s",
    "network__latency_s", "rack__chips", "rack__floor_area_m2", *POWERS, *HEAT[:3],
)  # fmt: skip
WHOLE = 40


def whole(mask):
    run, cluster, plan = chosen(mask, WHOLE)
    return bundle(run=run, cluster=cluster, plan=plan)


def inside(paths):
    return tuple(f"cluster__{path}" for path in paths)


def ahead():
    """Jobs that get ahead."""
    _, report = everything()
    return report.margins.failures > 0.1


OUTCOMES = ("step_time_s", "run_time_s", "capex_usd", "run_cost_usd", "run_carbon_kg")


def of_report(row):
    """Outputs of `estimate`, one after the other: a single program for all."""
    report = estimate(row.run, row.cluster, row.plan)
    return jnp.stack([getattr(report, name) for name in OUTCOMES])


@pytest.fixture(scope="module")
def at_their_own_clock():
    return hessians(of_report, whole(calm(0.1) & ahead()), inside(MACHINE))


@pytest.mark.search
@pytest.mark.parametrize("name", OUTCOMES)
def test_report_of_chips_at_their_own_clock(at_their_own_clock, name):
    assert_bent_up(at_their_own_clock[:, OUTCOMES.index(name)])


@pytest.mark.search
def test_times_of_throttled_chips():
    """Nearly: their own clock is out of it; what takes power from the compute dies is in.

    Steps follow the clock that kernels keep, the least time of two convex ones, but for what HBM adds beyond arithmetic: it is a
    difference, and bends two of forty down, by 1.4e-3 of their largest curvature (none where HBM is free). A run also waits for
    failures, which grow with the junction's temperature: that is as high as is allowed, `T_c + R P_allowed`, and a posynomial
    between the kinks of P_allowed. Chips that retreat stay below it by a logarithm of leakage and resistance, which bends the
    temperature down, and with it the run.
    """
    paths = tuple(path for path in MACHINE if path != "chip__clock_ratio")
    rows = whole(throttled() & ahead())
    second, retreats = hessians(of_report, rows, inside(paths)), retreat_k(rows.cluster) > 0
    for times in (second[:, OUTCOMES.index("step_time_s")], second[~retreats, OUTCOMES.index("run_time_s")]):
        least = least_eigenvalues(times)
        assert least.min() > -2e-3 and (least < -1e-7).mean() < 0.1
    assert retreats.mean() < 0.1
    # The building feeds what the chip is allowed to draw, which is the least of quotients: bent down.
    assert least_eigenvalues(second[:, OUTCOMES.index("capex_usd")]).min() < -1e-3


# What is not -----------------------------------------------------------------------------------------------------------


def leaving_rows():
    """Domains that leave their racks."""
    cluster = clusters(calm())
    return replace(cluster, network__size=np.stack([3.0 * cluster.rack.chips, 1e3 * cluster.rack.chips], 1))


def test_optical_share_is_not_convex():
    assert_not_convex(rack.optical_share, leaving_rows(), "rack__chips", "network__size")
    assert_not_convex(power.network_w, leaving_rows(), "rack__chips", "network__size")


def test_junctions_of_throttled_chips_that_retreat_are_not_convex():
    (_, cluster, _), _ = everything()
    rows = clusters(throttled() & (retreat_k(cluster) > 0))
    junction = lambda c: thermal.operating_point(c.chip, c.cooling).junction_k
    assert_not_convex(junction, rows, *HEAT[:2])
    assert_not_convex(junction, rows, "chip__leakage_power_w")


def test_chillers_are_not_convex_in_temperature():
    rows = clusters(calm())
    share = lambda c: power.chiller_share(
        c.facility.wet_bulb_k, c.facility.wet_bulb_spread_k, c.cooling.approach_k, c.cooling.coolant_temperature_k, 10.0
    )
    assert_not_convex(share, rows, "cooling__coolant_temperature_k")
    assert_not_convex(lambda c: power.pue(c.facility, c.cooling), rows, "cooling__coolant_temperature_k")


def test_expected_maximum_and_jitter_are_not_convex_in_chips():
    rows = quantities(57, chips=(2, 1e6))
    assert_not_convex(lambda q: expected_maximum_sigmas(q.chips), rows, "chips")
    assert_not_convex(lambda q: jitter_fraction(0.01, q.chips), rows, "chips")


def test_goodput_itself_is_not_convex():
    rows = quantities(58, **TIMES)
    lost = lambda q: reliability.lost_fraction(q.save, q.mtbf, q.drain, q.restart, hard_maximum)
    assert_not_convex(lambda q: reliability.goodput(lost(q)), rows, *TIMES)
