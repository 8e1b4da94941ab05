"""The operating point of a chip: what it may draw, how fast it runs, how hot it gets, and the slopes of all that."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lambertw

from hwopt.hardware.chip import LEAKAGE_REFERENCE_K
from hwopt.model.chip import thermal
from hwopt.solver.jit_options import quick_jit
from tests.cases import random_cases, replace, take
from tests.in_numpy import in_numpy

N = 5_000
LEAKY = quick_jit(jax.vmap(thermal.operating_point))
FIELDS = (
    "clock_ratio", "threshold_voltage_fraction", "hbm_bandwidth_bytes_per_s", "power_cap_w", "standby_power_w",
    "leakage_power_w", "leakage_per_k", "core_power_w", "hbm_energy_j_per_byte", "heat_area_m2",
    "sink_resistance_k_per_w", "area_resistance_k_m2_per_w", "coolant_temperature_k", "junction_limit_k",
    "heat_flux_limit_w_per_m2",
)  # fmt: skip
"""Inputs of an operating point: of the chip, then of the cooling."""
N_CHIP = FIELDS.index("sink_resistance_k_per_w")


def random_chips(seed: int, n: int = N):
    """Chips and what cools them."""
    _, cluster, _ = random_cases(np.random.default_rng(seed), n)
    return cluster.chip, cluster.cooling


def run_model(chip, cooling, dtype=np.float64):
    """Operating points as NumPy arrays."""
    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(np.asarray, LEAKY(*jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (chip, cooling))))


def resistance(chip, cooling):
    return cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2


def loop_gain(chip, cooling, leakage):
    """Kelvins that a kelvin of the junction adds by leakage: above 1 nothing holds the temperature."""
    return resistance(chip, cooling) * chip.leakage_per_k * leakage


@pytest.fixture(scope="module")
def chips():
    return random_chips(40)


@pytest.fixture(scope="module")
def point(chips):
    return run_model(*chips)


@pytest.fixture(scope="module")
def runs(point):
    return point.cooling_margin > 0


# Values --------------------------------------------------------------------------------------------------------------


def test_a_chip_that_runs_draws_no_more_than_allowed(point, runs):
    assert 0.9 < runs.mean() < 1
    assert (point.power_w <= point.allowed_w * (1 + 1e-9))[runs].all()


def test_a_throttled_chip_draws_what_is_allowed(chips, point, runs):
    """Or less, where heat would run away before: there one more kelvin leaks what it removes."""
    throttled = runs & (point.clock_margin < 0)
    assert 0.2 < throttled.mean() < 0.8
    gain = loop_gain(*chips, point.leakage_w)
    below = throttled & (point.power_w < point.allowed_w * (1 - 1e-9))
    assert 0 < below.sum() < 0.1 * throttled.sum()
    np.testing.assert_allclose(gain[below], 1.0, rtol=1e-6)
    assert (gain[throttled] <= 1 + 1e-6).all()


def test_no_clock_beyond_the_sustained_one_has_a_temperature(chips, point, runs):
    """At 1.001 of the sustained clock no temperature up to the limit removes what it draws (a fine grid of them)."""
    throttled = np.flatnonzero(runs & (point.clock_margin < 0))[:400]
    chip, cooling = take(chips, throttled)
    warmest = cooling.coolant_temperature_k + resistance(chip, cooling) * point.allowed_w[throttled]
    with jax.enable_x64(True):
        for share in np.linspace(0.001, 1.0, 200):
            kelvin = cooling.coolant_temperature_k + share * (warmest - cooling.coolant_temperature_k)
            drawn = np.asarray(jax.vmap(thermal.full_load_w)(chip, 1.001 * point.clock_ratio[throttled], kelvin))
            assert (drawn > (kelvin - cooling.coolant_temperature_k) / resistance(chip, cooling)).all()


def test_allowed_is_the_least_of_three_limits(chips, point):
    chip, cooling = chips
    rise = np.maximum(cooling.junction_limit_k - cooling.coolant_temperature_k, thermal.LEAST_RISE_K)
    limits = (
        chip.power_cap_w,
        rise / resistance(chip, cooling),
        cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2,
    )
    np.testing.assert_allclose(point.allowed_w, np.min(limits, 0), rtol=1e-14)
    assert set(np.argmin(limits, 0)) == {0, 1, 2}


def test_heat_made_is_heat_carried_away(chips, point, runs):
    """`T = T_c + R P`, under the junction's limit."""
    chip, cooling = chips
    kelvin = cooling.coolant_temperature_k + resistance(chip, cooling) * point.power_w
    np.testing.assert_allclose(point.junction_k[runs], kelvin[runs], rtol=1e-9)
    assert (point.junction_k <= cooling.junction_limit_k + 1e-6)[runs].all()


def test_a_chip_throttles_where_it_wants_more_than_allowed(chips, point, runs):
    """Never above the clock asked for, at it where the margin allows, at the lowest where the chip does not run."""
    chip, _ = chips
    slower = point.clock_ratio < chip.clock_ratio
    assert (slower == (point.clock_margin < 0)).all()
    assert (point.clock_ratio <= chip.clock_ratio).all()
    np.testing.assert_array_equal(point.clock_ratio[~runs], thermal.LOWEST_CLOCK)


def test_power_is_the_sum_of_its_causes(chips, point):
    chip, _ = chips
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    np.testing.assert_allclose(
        point.power_w, chip.standby_power_w + memory + point.core_w + point.leakage_w, rtol=1e-13
    )
    with jax.enable_x64(True):
        again = jax.vmap(thermal.full_load_w)(chip, point.clock_ratio, point.junction_k)
    np.testing.assert_allclose(point.power_w, again, rtol=1e-12)


def test_feedback_settles_at_the_lower_root(chips, point):
    """`x = -W_0(-z) / beta` above the temperature without leakage, z = beta R P_L there."""
    chip, cooling = chips
    free = point.clock_margin >= 0
    r, beta = resistance(chip, cooling), chip.leakage_per_k
    coolest = cooling.coolant_temperature_k + r * (point.power_w - point.leakage_w)
    v = chip.threshold_voltage_fraction
    cold = chip.leakage_power_w * (v + (1 - v) * chip.clock_ratio) * np.exp(beta * (coolest - LEAKAGE_REFERENCE_K))
    rise = -lambertw(-(beta * r * cold)[free], 0).real / beta[free]
    np.testing.assert_allclose((point.junction_k - coolest)[free], rise, rtol=1e-9, atol=1e-10)
    assert (loop_gain(chip, cooling, point.leakage_w)[free] < 1).all()


def test_a_datasheet_chip_at_the_reference_temperature_draws_its_parts():
    """At nominal clock and `LEAKAGE_REFERENCE_K` power is standby, memory, core and leakage as stated."""
    chip, _ = random_chips(41, 100)
    one = np.ones(100)
    with jax.enable_x64(True):
        watts = np.asarray(jax.vmap(thermal.full_load_w)(chip, one, LEAKAGE_REFERENCE_K * one))
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    stated = chip.standby_power_w + memory + chip.core_power_w + chip.leakage_power_w
    np.testing.assert_allclose(watts, stated, rtol=1e-13)


def test_one_chip_is_as_the_mapped_one(chips, point):
    with jax.enable_x64(True):
        alone = quick_jit(thermal.operating_point)
        for i in range(0, N, 250):
            one = alone(*jax.tree.map(lambda leaf: leaf[i], chips))  # noqa: B023
            for name, value in zip(point._fields, one, strict=True):
                np.testing.assert_allclose(value, getattr(point, name)[i], rtol=1e-12, atol=1e-14, err_msg=name)


# What cannot be cooled -----------------------------------------------------------------------------------------------


def derivatives(chip, cooling, dtype=np.float64):
    """Gradients of every output by every input, shape (case, output, input)."""
    with jax.enable_x64(dtype == np.float64):
        both = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (chip, cooling))
        slopes = SINGLE_SLOPES(both) if dtype == np.float32 else in_numpy(slopes_of)(both)
    return np.concatenate([x.reshape(len(x), 8, -1) for x in jax.tree.leaves(slopes)], 2)


def slopes_of(both):
    return jax.jacrev(lambda both: jnp.stack(list(thermal.operating_point(*both))))(both)


SINGLE_SLOPES = quick_jit(jax.vmap(slopes_of))


def hopeless(kind: str):
    """Chips that no clock saves."""
    chip, cooling = random_chips(42, 500)
    if kind == "coolant warmer than the junction may be":
        return chip, replace(cooling, coolant_temperature_k=cooling.junction_limit_k + 20)
    if kind == "coolant as warm as the junction may be":
        return chip, replace(cooling, coolant_temperature_k=cooling.junction_limit_k)
    if kind == "leakage runs away":  # more leakage alone, at the lowest voltage, than heat can leave
        chip = replace(chip, leakage_power_w=1e4 * chip.core_power_w, leakage_per_k=0.07)
        return chip, replace(cooling, junction_limit_k=378.0)
    if kind == "memory alone would melt it":
        return replace(chip, hbm_energy_j_per_byte=1e6 / chip.hbm_bandwidth_bytes_per_s, leakage_per_k=0.07), cooling
    return replace(chip, power_cap_w=0.9 * chip.standby_power_w), cooling


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "kind",
    [
        "coolant warmer than the junction may be",
        "coolant as warm as the junction may be",
        "leakage runs away",
        "memory alone would melt it",
        "cap below standby",
    ],
)
def test_what_cannot_run_says_so(kind, dtype):
    """A negative cooling margin, and no value or gradient that is not a number."""
    chip, cooling = hopeless(kind)
    point = run_model(chip, cooling, dtype)
    assert all(np.isfinite(leaf).all() for leaf in point)
    assert (point.cooling_margin < 0).all()
    assert (point.clock_ratio == np.float32(thermal.LOWEST_CLOCK)).all() or dtype == np.float64
    assert np.isfinite(derivatives(chip, cooling, dtype)).all()


def test_feedback_beyond_the_fold_is_never_the_answer_unthrottled(chips, point):
    """A hundred times less leakage or a hundred times less resistance: the same chip, calmer, never slower."""
    chip, cooling = chips
    calm = run_model(replace(chip, leakage_power_w=chip.leakage_power_w / 100), cooling)
    assert (calm.clock_ratio >= point.clock_ratio * (1 - 1e-12)).all()
    assert (calm.cooling_margin >= point.cooling_margin).all()


# Derivatives ---------------------------------------------------------------------------------------------------------


def joined(chip, cooling) -> np.ndarray:
    """Inputs of an operating point, shape (case, input)."""
    return np.stack([getattr(chip if i < N_CHIP else cooling, name) for i, name in enumerate(FIELDS)], 1)


def settle(x, chip, cooling):
    """(log clock, junction) from a row of `joined`; other fields from `chip` and `cooling`."""
    named = dict(zip(FIELDS, x, strict=True))
    chip, cooling = (
        type(tree)(**{name: named.get(name, getattr(tree, name)) for name in tree.__dataclass_fields__})
        for tree in (chip, cooling)
    )
    point = thermal.operating_point(chip, cooling)
    return jnp.stack([jnp.log(point.clock_ratio), point.junction_k])


def test_slopes_of_clock_and_temperature_equal_differences(chips, point, runs):
    """Through throttling and through the feedback of leakage, to 1e-6 of each chip's largest elasticity."""
    far = (np.abs(point.clock_margin) > 0.02) & (np.abs(point.cooling_margin) > 0.05)
    some = np.flatnonzero(far & runs & (loop_gain(*chips, point.leakage_w) < 0.8))[:600]
    chip, cooling = jax.tree.map(lambda leaf: leaf[some], chips)
    x = joined(chip, cooling)
    unit = np.where(x == 0, 0.01, x)  # a sink of no resistance moves by 0.01 K/W
    with jax.enable_x64(True):
        exact = np.asarray(quick_jit(jax.vmap(jax.jacfwd(settle)))(x, chip, cooling)) * unit[:, None, :]
        backward = np.asarray(quick_jit(jax.vmap(jax.jacrev(settle)))(x, chip, cooling)) * unit[:, None, :]
        outputs = quick_jit(jax.vmap(settle))

        def difference(h):
            columns = []
            for k in range(len(FIELDS)):
                step = np.zeros_like(x)
                step[:, k] = h * unit[:, k]
                plus, minus = (np.asarray(outputs(x + sign * step, chip, cooling)) for sign in (1, -1))
                columns.append((plus - minus) / (2 * h))
            return np.stack(columns, 2)

        h = 1e-4
        measured = (4 * difference(h / 2) - difference(h)) / 3
    np.testing.assert_allclose(backward, exact, rtol=1e-9, atol=1e-9)
    binding = np.abs(ties(chip, cooling)) > 0.01
    throttled = point.clock_margin[some] < 0
    assert throttled.any() and not throttled.all()
    size = np.abs(exact).max(2, keepdims=True) + 1e-3
    wrong = (np.abs(exact - measured) > 1e-6 * size) & binding[:, None, None]
    assert not wrong.any(), [
        (int(some[i]), o, FIELDS[k], exact[i, o, k], measured[i, o, k]) for i, o, k in np.argwhere(wrong)[:5]
    ]
    assert (exact[throttled, 0, FIELDS.index("clock_ratio")] == 0).all()
    assert exact[~throttled, 0, FIELDS.index("clock_ratio")] == pytest.approx(1.0)


def ties(chip, cooling):
    """How far, in logarithms, the least of the three limits is from the next."""
    rise = np.maximum(cooling.junction_limit_k - cooling.coolant_temperature_k, thermal.LEAST_RISE_K)
    limits = np.stack(
        [chip.power_cap_w, rise / resistance(chip, cooling), cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2]
    )
    least, second = np.sort(np.log(limits), 0)[:2]
    return second - least


@pytest.mark.search
def test_second_derivatives_are_finite_and_symmetric(chips, point):
    some = np.arange(300)
    chip, cooling = jax.tree.map(lambda leaf: leaf[some], chips)
    x = joined(chip, cooling)
    with jax.enable_x64(True):
        second = np.asarray(quick_jit(jax.vmap(jax.jacfwd(jax.jacfwd(settle))))(x, chip, cooling))
    assert np.isfinite(second).all()
    unit = np.where(x == 0, 0.01, x)
    scaled = second * unit[:, None, :, None] * unit[:, None, None, :]
    np.testing.assert_allclose(scaled, scaled.swapaxes(2, 3), rtol=1e-6, atol=1e-9 * np.abs(scaled).max())
    assert (np.abs(scaled[:, 1]).max((1, 2)) > 0).any()


@pytest.mark.search
def test_second_derivatives_equal_differences_of_first_ones(chips, point, runs):
    """To 1e-5 of each chip's largest, away from the kinks: throttling, retreat and ties of limits."""
    far = (np.abs(point.clock_margin) > 0.02) & (np.abs(point.cooling_margin) > 0.05) & runs
    calm = (loop_gain(*chips, point.leakage_w) < 0.8) & (np.abs(ties(*chips)) > 0.01)
    some = np.flatnonzero(far & calm)[:200]
    assert 0.2 < (point.clock_margin[some] < 0).mean() < 0.8
    chip, cooling = take(chips, some)
    x = joined(chip, cooling)
    unit = np.where(x == 0, 0.01, x)
    with jax.enable_x64(True):
        first = quick_jit(jax.vmap(jax.jacfwd(settle)))
        second = np.asarray(quick_jit(jax.vmap(jax.jacfwd(jax.jacrev(settle))))(x, chip, cooling))

        def difference(h):
            sides = [
                [np.asarray(first(x + side * h * unit * column, chip, cooling)) for side in (1, -1)]
                for column in np.eye(len(FIELDS))
            ]
            return np.stack([(plus - minus) / (2 * h) for plus, minus in sides], 3)

        h = 1e-4
        measured = (4 * difference(h / 2) - difference(h)) / 3 * unit[:, None, :, None]
    exact = second * unit[:, None, :, None] * unit[:, None, None, :]
    size = np.abs(exact).max((2, 3), keepdims=True) + 1e-3
    assert (np.abs(exact - measured) < 1e-5 * size).all()


@pytest.mark.search
def test_single_precision_is_close_and_its_gradients_are_finite(chips, point):
    """To 1e-4, but for the clock where the chip hardly runs: what is left to compute with is a difference."""
    rounded = jax.tree.map(lambda leaf: leaf.astype(np.float32).astype(np.float64), chips)
    double, single = run_model(*rounded), run_model(*rounded, np.float32)
    hardly = np.abs(double.cooling_margin) < 0.1
    for name in ("clock_ratio", "junction_k", "allowed_w", "power_w", "leakage_w"):
        np.testing.assert_allclose(
            getattr(single, name)[~hardly], getattr(double, name)[~hardly], rtol=1e-4, err_msg=name
        )
    assert np.isfinite(derivatives(*rounded, np.float32)).all()
    assert np.isfinite(derivatives(*rounded)).all()
