"""The two roots of an operating point: how far leakage heats itself, and the clock that a throttled chip sustains."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from scipy.special import lambertw

from hwopt.hardware.chip import LEAKAGE_REFERENCE_K
from hwopt.model.chip import thermal
from hwopt.solver.jit_options import quick_jit
from tests.cases import random_cases, replace, take
from tests.in_numpy import in_numpy

N = 20_000
POINT = quick_jit(jax.vmap(thermal.operating_point))
ONE = {
    name: way(lambda both: jnp.stack(list(thermal.operating_point(*both))))
    for name, way in (("forward", jax.jacfwd), ("backward", jax.jacrev))
}
SLOPES = {name: quick_jit(jax.vmap(one)) for name, one in ONE.items()}
AT_THE_FOLD = 1.0 / np.e

# Leakage that heats itself -------------------------------------------------------------------------------------------


def gains() -> np.ndarray:
    """From no leakage to the fold."""
    return np.concatenate([np.geomspace(1e-12, 0.2, 3000), AT_THE_FOLD * (1.0 - np.geomspace(1e-9, 0.6, 3000))])


def near_fold(gain: np.ndarray, eps: float) -> np.ndarray:
    """How far a gain rounded by `eps` moves the root: its slope is `w / (z (1 - w))`."""
    return 4.0 * eps * (1.0 + 1.0 / np.sqrt(1.0 - np.e * gain))


def test_feedback_is_lamberts_function():
    gain = gains()
    with jax.enable_x64(True):
        w = np.asarray(thermal.feedback(jnp.asarray(gain)))
    assert (np.abs(w + lambertw(-gain, 0).real) < near_fold(gain, 2.3e-16)).all()
    assert (np.diff(w[np.argsort(gain)]) >= -1e-15).all()


def test_feedback_in_single_precision_is_as_good_as_its_input():
    gain = gains()
    gain = gain[gain < AT_THE_FOLD * (1 - 1e-6)].astype(np.float32)
    w = np.asarray(thermal.feedback(jnp.asarray(gain)))
    assert w.dtype == np.float32
    exact = -lambertw(-gain.astype(float), 0).real
    assert (np.abs(w - exact) < near_fold(gain.astype(float), 1.2e-7)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_feedback_has_finite_slopes_everywhere(dtype):
    """Without leakage the slope is 1, from the fold on the value is held just below 1."""
    with jax.enable_x64(dtype == np.float64):
        gain = np.array([0.0, 1e-30, 0.1, AT_THE_FOLD * (1 - 1e-7), AT_THE_FOLD, 0.5, 1e30], dtype)
        ways = (f := thermal.feedback, jax.grad(f), jax.jacfwd(f), jax.grad(jax.grad(f)))
        together = quick_jit(jax.vmap(lambda x: [way(x) for way in ways]))(gain)
        value, slope, forward, second = map(np.asarray, together)
    for x in (value, slope, forward, second):
        assert np.isfinite(x).all()
    np.testing.assert_allclose(forward, slope, rtol=1e-5)
    np.testing.assert_allclose(slope[:2], 1.0, rtol=1e-5)
    np.testing.assert_allclose(second[0], 2.0, rtol=1e-4)  # w = z + z^2 + ...
    np.testing.assert_allclose(value[-3:], 1.0, atol=2e-3)
    assert (slope[-2:] == 0).all()


def test_slopes_of_feedback_are_those_of_lambert():
    gain = np.linspace(0.001, AT_THE_FOLD * 0.999, 500)
    w = -lambertw(-gain, 0).real
    first = w / (gain * (1 - w))
    np.testing.assert_allclose(in_numpy(jax.grad(thermal.feedback))(gain), first, rtol=1e-10)
    second = in_numpy(jax.grad(jax.grad(thermal.feedback)))(gain)
    np.testing.assert_allclose(second, first**2 * (2 - w) / (1 - w), rtol=1e-9)


# The sustained clock -------------------------------------------------------------------------------------------------


def wild_chips(seed: int, n: int = N):
    """Chips and what cools them, far beyond what is on record: from calm ones to wafers of leakage on hot air."""
    rng = np.random.default_rng(seed)
    uniform = lambda low, high: rng.uniform(low, high, n)
    log = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), n))
    _, cluster, _ = random_cases(rng, n)
    core = log(10, 3e4)
    chip = replace(
        cluster.chip,
        clock_ratio=log(0.06, 2),
        threshold_voltage_fraction=uniform(0, 0.9),
        core_power_w=core,
        leakage_power_w=core * log(1e-3, 2),
        standby_power_w=core * log(1e-3, 1),
        leakage_per_k=log(1e-3, 0.15),
        hbm_energy_j_per_byte=core * log(1e-3, 0.5) / cluster.chip.hbm_bandwidth_bytes_per_s,
        power_cap_w=core * log(0.05, 20),
        heat_area_m2=log(1e-4, 0.05),
    )
    cooling = replace(
        cluster.cooling,
        sink_resistance_k_per_w=np.where(uniform(0, 1) < 0.3, 0.0, log(1e-4, 0.1)),
        coolant_temperature_k=uniform(270, 350),
        junction_limit_k=uniform(340, 430),
    )
    return chip, cooling


def run_model(chip, cooling, dtype=np.float64):
    with jax.enable_x64(dtype == np.float64):
        both = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (chip, cooling))
        return jax.tree.map(np.asarray, POINT(*both))


def derivatives(chip, cooling, dtype, way="backward"):
    """Of every output by every input, shape (case, output, input)."""
    with jax.enable_x64(dtype == np.float64):
        both = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (chip, cooling))
        leaves = jax.tree.leaves((SLOPES[way] if dtype == np.float32 else in_numpy(ONE[way]))(both))
        return np.concatenate([x.reshape(len(x), 8, -1) for x in leaves], 2)


def plain(chip, cooling):
    """Allowed power, and a function of the clock: what is drawn, what is removed and how hot it is at best (NumPy)."""
    resistance = cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2
    limit = np.maximum(cooling.junction_limit_k - cooling.coolant_temperature_k, thermal.LEAST_RISE_K)
    by_flux = cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2
    allowed = np.minimum(np.minimum(chip.power_cap_w, limit / resistance), by_flux)
    fixed = chip.standby_power_w + chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    v, beta = chip.threshold_voltage_fraction, chip.leakage_per_k

    def at(clock):
        volts = v + (1 - v) * clock
        kelvin = cooling.coolant_temperature_k + resistance * allowed
        leak = chip.leakage_power_w * volts * np.exp(beta * (kelvin - LEAKAGE_REFERENCE_K))
        back = np.log(np.maximum(resistance * beta * leak, 1.0)) / np.where(beta > 0, beta, 1.0)
        back = np.minimum(back, np.maximum(resistance * allowed - thermal.LEAST_RISE_K, 0.0))
        drawn = fixed + chip.core_power_w * volts**2 * clock + leak * np.exp(-beta * back)
        return drawn, allowed - back / resistance, kelvin - back

    return allowed, at


def bisected(chip, cooling):
    """Clocks by bisection, and where there is one: throttled and running."""
    _, at = plain(chip, cooling)
    low, high = np.minimum(thermal.LOWEST_CLOCK, chip.clock_ratio), chip.clock_ratio
    excess = lambda clock: np.subtract(*at(clock)[:2])
    solvable = (excess(low) < 0) & (excess(high) > 0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = excess(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high), solvable


@pytest.fixture(scope="module")
def wild():
    return wild_chips(50)


def test_clock_and_temperature_are_those_of_a_bisection(wild):
    clock, solvable = bisected(*wild)
    point = run_model(*wild)
    assert 0.1 < solvable.mean() < 0.5
    np.testing.assert_allclose(point.clock_ratio[solvable], clock[solvable], rtol=1e-12)
    hottest = plain(*wild)[1](clock)[2]
    np.testing.assert_allclose(point.junction_k[solvable], hottest[solvable], rtol=1e-12)


def test_steps_fall_onto_the_clock_and_never_below(wild, monkeypatch):
    """After none at or below the clock asked for, after seven exact in float64."""
    clock, solvable = bisected(*wild)
    chip, cooling = take(wild, solvable)
    clock = clock[solvable]
    allowed, _ = plain(chip, cooling)
    before = chip.clock_ratio
    for steps in range(8):
        monkeypatch.setattr(thermal, "_CLOCK_STEPS", steps)
        with jax.enable_x64(True):
            now = np.asarray(jax.vmap(thermal.sustained_clock)(chip, cooling, allowed, np.ones(len(allowed), bool)))
        assert (now <= before * (1 + 1e-12)).all() and (now >= clock * (1 - 1e-12)).all()
        before = now
    np.testing.assert_allclose(now, clock, rtol=1e-12)


def test_a_clock_asked_for_far_beyond_runaway_is_brought_back():
    """Even a coolant-cold junction leaks more than it removes at the clock asked for: no tangent there is below the root."""
    chip, cooling = wild_chips(51)
    n = len(chip.clock_ratio)
    chip = replace(chip, threshold_voltage_fraction=np.full(n, 0.05), leakage_per_k=np.full(n, 0.1))
    chip = replace(chip, leakage_power_w=chip.core_power_w, standby_power_w=1e-3 * chip.core_power_w)
    clock, solvable = bisected(chip, cooling)
    _, at = plain(chip, cooling)
    cold = at(chip.clock_ratio)[2] < cooling.coolant_temperature_k + 2 * thermal.LEAST_RISE_K
    assert (solvable & cold).sum() > 20
    point = run_model(chip, cooling)
    np.testing.assert_allclose(point.clock_ratio[solvable], clock[solvable], rtol=1e-12)


@pytest.mark.search
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", list(SLOPES))
def test_wild_chips_have_finite_values_and_gradients(wild, dtype, way):
    point = run_model(*wild, dtype)
    assert all(np.isfinite(leaf).all() and leaf.dtype == dtype for leaf in point)
    assert (point.clock_ratio <= wild[0].clock_ratio.astype(dtype)).all()
    assert np.isfinite(derivatives(*take(wild, np.arange(4000)), dtype, way)).all()


EXTREMES = {
    "leakage that no temperature moves": dict(leakage_per_k=0.0),
    "leakage that temperature hardly moves": dict(leakage_per_k=1e-30),
    "no leakage": dict(leakage_power_w=0.0),
    "a cap far below idle power": dict(power_cap_w=1e-3),
    "leakage that runs away": dict(leakage_power_w=1e9, leakage_per_k=0.1),
    "a voltage that no clock moves": dict(threshold_voltage_fraction=1.0),
    "no compute": dict(core_power_w=0.0),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extremes_have_finite_values_and_gradients(kind, dtype):
    chip, cooling = wild_chips(52, 1000)
    chip = replace(chip, **{name: np.full(1000, value) for name, value in EXTREMES[kind].items()})
    point = run_model(chip, cooling, dtype)
    assert all(np.isfinite(leaf).all() for leaf in point)
    for way in SLOPES:
        assert np.isfinite(derivatives(chip, cooling, dtype, way)).all()
    if dtype == np.float64:
        clock, solvable = bisected(chip, cooling)
        np.testing.assert_allclose(point.clock_ratio[solvable], clock[solvable], rtol=1e-11)
    if kind.startswith("a cap") or kind.endswith("away"):
        assert (point.cooling_margin < 0).all()


def test_leakage_that_no_temperature_moves_heats_in_proportion():
    """`T - T_0 = R P_L` at beta = 0, and its slope by beta is that of a small one."""
    chip, cooling = wild_chips(53, 1000)
    flat = replace(chip, leakage_per_k=np.zeros(1000))
    point = run_model(flat, cooling)
    calm = point.clock_margin > 0.1
    assert calm.sum() > 100
    resistance = cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2
    kelvin = cooling.coolant_temperature_k + resistance * point.power_w
    np.testing.assert_allclose(point.junction_k[calm], kelvin[calm], rtol=1e-14)
    volts = chip.threshold_voltage_fraction + (1 - chip.threshold_voltage_fraction) * chip.clock_ratio
    np.testing.assert_allclose(point.leakage_w[calm], (chip.leakage_power_w * volts)[calm], rtol=1e-14)

    def junction(beta, chip, cooling):
        return thermal.operating_point(eqx.tree_at(lambda c: c.leakage_per_k, chip, beta), cooling).junction_k

    slope = in_numpy(jax.grad(junction))(flat.leakage_per_k, chip, cooling)
    exact = resistance * point.leakage_w * (point.junction_k - LEAKAGE_REFERENCE_K)
    np.testing.assert_allclose(slope[calm], exact[calm], rtol=1e-9, atol=1e-9)


def test_slopes_at_a_margin_of_zero_are_those_of_the_chip_at_its_clock():
    """A cap of just what is drawn: rounding alone must not decide whether the junction moves with it."""
    chip, cooling = wild_chips(54, 1000)
    chip = replace(chip, power_cap_w=np.full(1000, 1e9))
    point = run_model(chip, cooling)
    tied = replace(chip, power_cap_w=np.where(point.clock_margin > 0.1, point.power_w, 1e9))
    free, at_the_tie = derivatives(chip, cooling, np.float64), derivatives(tied, cooling, np.float64)
    unthrottled = point.clock_margin > 0.1
    assert unthrottled.sum() > 50
    at_the_cap = run_model(tied, cooling)
    np.testing.assert_allclose(at_the_cap.clock_margin[unthrottled], 0.0, atol=1e-14)
    assert (at_the_cap.clock_ratio == chip.clock_ratio)[unthrottled].all()
    kelvin = thermal.OperatingPoint._fields.index("junction_k")
    np.testing.assert_allclose(at_the_tie[unthrottled, kelvin], free[unthrottled, kelvin], rtol=1e-9, atol=1e-9)


# What is traced ------------------------------------------------------------------------------------------------------


def primitives(jaxpr) -> set[str]:
    """Names of all primitives, those of inner jaxprs too."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jaxprs_in_params(equation.params):
            found |= primitives(inner)
    return found


def test_nothing_but_a_scan_is_traced():
    """No rule of our own, no loop of unknown length, no callback: it differentiates both ways, any number of times."""
    one = jax.tree.map(lambda leaf: leaf[0], wild_chips(55, 1))
    names = primitives(jax.make_jaxpr(thermal.operating_point)(*one).jaxpr)
    assert "scan" in names and "exp" in names
    assert not [name for name in names if name == "while" or "custom" in name or "callback" in name]
