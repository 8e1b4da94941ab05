"""Heat: what a chip may draw, the clock that leaves it, and the temperature it settles at.

Leakage grows with temperature and temperature with leakage, so the operating point is the root of an equation. Roots are
found by bisection and differentiated implicitly; or the temperature is given, and a margin says whether it settles there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import LEAKAGE_REFERENCE_K, Chip
from hwopt.hardware.cooling import Cooling
from hwopt.types import Scalar

LOWEST_CLOCK = 0.05
"""Of nominal: a chip that cannot even run at this clock does not work."""

LEAST_RISE_K = 1e-3
"""Of the junction above the coolant; stands for a coolant that is too warm to cool, which is infeasible."""


class OperatingPoint(NamedTuple):
    """A chip at full load under its power cap and its cooling."""

    clock_ratio: Array  # sustained, over nominal
    junction_k: Array
    allowed_w: Array  # the least of power cap, what cooling removes, and the heat flux limit
    leakage_w: Array  # at that clock and temperature
    core_w: Array  # dynamic power of the compute dies there
    power_w: Array  # everything
    clock_margin: Array  # log(power removed / power drawn) at the clock asked for: negative where it throttles
    cooling_margin: Array  # the same at the lowest clock: negative where the chip cannot run


def thermal_resistance_k_per_w(chip: Chip, cooling: Cooling) -> Scalar:
    """Junction to coolant: `R = R_sink + r / A`."""
    return cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.silicon_area_m2


def voltage_ratio(chip: Chip, clock_ratio: Scalar) -> Scalar:
    """Supply voltage over nominal: `V = V_t + kappa f`, i.e. `v + (1 - v) f/f_0` with v = V_t/V_0.

    **Source:** the linear upper bound of the alpha-power law (Sakurai and Newton 1990); keeps log-log convexity.
    """
    v = chip.threshold_voltage_fraction
    return v + (1.0 - v) * clock_ratio


def core_power_w(chip: Chip, clock_ratio: Scalar) -> Scalar:
    """Dynamic power of the compute dies at full load: `P_0 (V/V_0)^2 f/f_0`. A posynomial in f."""
    return chip.core_power_w * voltage_ratio(chip, clock_ratio) ** 2 * clock_ratio


def leakage_w(chip: Chip, clock_ratio: Scalar, junction_k: Scalar) -> Scalar:
    """Leakage: `P_L (V/V_0) exp(beta (T - T_ref))`. Log-log convex: the exponent is a posynomial less a constant."""
    return (
        chip.leakage_power_w
        * voltage_ratio(chip, clock_ratio)
        * jnp.exp(chip.leakage_per_k * (junction_k - LEAKAGE_REFERENCE_K))
    )


def full_load_w(chip: Chip, clock_ratio: Scalar, junction_k: Scalar) -> Scalar:
    """Standby, leakage, compute dies at full load, HBM at full bandwidth. A datasheet chip at 75 degC: its TDP."""
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    return chip.standby_power_w + memory + core_power_w(chip, clock_ratio) + leakage_w(chip, clock_ratio, junction_k)


def rated_power_w(chip: Chip) -> Scalar:
    """Full load at the clock asked for and the temperature at which a TDP is drawn: what a TDP must cover."""
    return full_load_w(chip, chip.clock_ratio, jnp.asarray(LEAKAGE_REFERENCE_K))


def allowed_power_w(chip: Chip, cooling: Cooling) -> Scalar:
    """What the chip may draw: the least of its power cap, `(T_max - T_coolant) / R`, and heat flux times die area."""
    rise = cooling.junction_limit_k - cooling.coolant_temperature_k
    rise = jnp.where(rise > LEAST_RISE_K, rise, LEAST_RISE_K)
    removable = rise / thermal_resistance_k_per_w(chip, cooling)
    by_flux = cooling.heat_flux_limit_w_per_m2 * chip.silicon_area_m2
    least = jnp.where(removable < chip.power_cap_w, removable, chip.power_cap_w)
    return jnp.where(by_flux < least, by_flux, least)


def root(residual: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where an increasing function crosses zero between `low` and `high`; the nearer end where it does not.

    Bisection for the value, the implicit function theorem for derivatives of any order: `dx = -dF / F_x`.
    """

    def solve(function, guess):
        def halve(_, box):
            a, b = box
            middle = 0.5 * (a + b)
            below = function(middle) < 0.0
            return jnp.where(below, middle, a), jnp.where(below, b, middle)

        a, b = jax.lax.fori_loop(0, 60, halve, (jnp.zeros_like(guess) + low, jnp.zeros_like(guess) + high))
        return 0.5 * (a + b)

    return jax.lax.custom_root(residual, 0.5 * (low + high), solve, lambda slope, y: y / slope(jnp.ones_like(y)))


def retreat_k(chip: Chip, cooling: Cooling, clock_ratio: Scalar, allowed_w: Scalar) -> Scalar:
    """How far below `T_c + R P_allowed` a chip can give away most besides its leakage; 0 for all but wafers on air.

    `(T - T_c) / R - P_L(T)` peaks where one more kelvin leaks as much as it removes, `R beta P_L(T) = 1`: beyond it
    heat runs away. Packaged chips reach their limit long before (a kink where both meet).
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    rise = resistance * allowed_w
    leaked = leakage_w(chip, clock_ratio, cooling.coolant_temperature_k + rise)
    gain = resistance * chip.leakage_per_k * leaked
    unstable = gain > 1.0
    back = jnp.log(jnp.where(unstable, gain, 1.0)) / jnp.where(unstable, chip.leakage_per_k, 1.0)
    most = jnp.where(rise > LEAST_RISE_K, rise - LEAST_RISE_K, 0.0)
    return jnp.where(back < most, back, most)


def operating_point(chip: Chip, cooling: Cooling) -> OperatingPoint:
    """The clock that power cap and cooling sustain, and the junction's temperature at full load.

    Throttled, a chip runs as hot as helps, at `T = T_c + R P_allowed` less `retreat_k`, and its clock solves
    `P(f, T) = (T - T_c) / R`, a cubic. Unthrottled, `T = T_c + R P(f, T)` has its lower root below that temperature. Both
    are log-log convex: `1/f` and T are the least points of sets that posynomial inequalities bound. What a throttled
    chip draws is not (a least of reciprocals), nor then the price of the building that feeds it: designs are held to
    clocks that they sustain.

    **Units:** W, K, clocks over nominal.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    allowed = allowed_power_w(chip, cooling)
    warmest = cooling.coolant_temperature_k + resistance * allowed

    def removed_and_drawn(clock):
        back = retreat_k(chip, cooling, clock, allowed)
        # Not as a difference of temperatures: float32 would lose it.
        return allowed - back / resistance, full_load_w(chip, clock, warmest - back)

    asked = chip.clock_ratio
    lowest_clock = jnp.where(asked < LOWEST_CLOCK, asked, LOWEST_CLOCK)
    removed, wanted = removed_and_drawn(asked)
    removed_at_least, least = removed_and_drawn(lowest_clock)
    runs, throttled = least < removed_at_least, wanted > removed
    solvable = runs & throttled

    # Rows without a root get a problem that has one, so that no gradient is a quotient by zero.
    def shortfall(clock):
        can, does = removed_and_drawn(clock)
        return jnp.where(solvable, does - can, clock - asked)

    sustained = root(shortfall, lowest_clock, asked * jnp.where(solvable, 1.0, 2.0))
    clock = jnp.where(throttled, jnp.where(runs, sustained, lowest_clock), asked)
    hottest = warmest - retreat_k(chip, cooling, clock, allowed)

    core = core_power_w(chip, clock)
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    without_leakage = chip.standby_power_w + memory + core
    coolest = cooling.coolant_temperature_k + resistance * without_leakage
    # Where it throttles, `coolest` may be hot enough to overflow: no branch that is not taken may.
    cold_leakage = jnp.where(throttled, 0.0, leakage_w(chip, clock, jnp.where(throttled, hottest, coolest)))

    # In the rise x above the temperature without leakage: x = R P_L exp(beta x), x <= hottest - coolest.
    def excess(x):
        return x - resistance * cold_leakage * jnp.exp(chip.leakage_per_k * x)

    top = jnp.where(throttled, 1.0, hottest - coolest)
    rise = root(excess, jnp.zeros_like(top), top)
    junction = jnp.where(throttled, hottest, coolest + rise)
    leak = leakage_w(chip, clock, junction)
    return OperatingPoint(
        clock_ratio=clock,
        junction_k=junction,
        allowed_w=allowed,
        leakage_w=leak,
        core_w=core,
        power_w=without_leakage + leak,
        clock_margin=jnp.log(removed / wanted),
        cooling_margin=jnp.log(removed_at_least / least),
    )


def settled_point(chip: Chip, cooling: Cooling, junction_k: Scalar) -> tuple[OperatingPoint, Scalar]:
    """The chip at the clock f it asks for with its junction at a given T, and whether heat leaves at T.

    Heat margin `log(T / (T_c + R P(f, T)))`, clock margin `log(P_allowed / P(f, T))`: P is a posynomial and one
    exponential, so both are concave in logarithms. The least T of heat margin 0 or more is the junction's temperature;
    all that the model charges grows with T, so a minimum lies there. Some T has both margins at 0 or more just where
    `operating_point` does not throttle: its least one is at most `T_c + R P_allowed`, and of the temperatures up to
    there `operating_point` asks the one that gives away most, `retreat_k` below.

    **Arguments:** `junction_k` T.

    **Returns:** the point, whose cooling margin is its clock margin (a chip that sustains its clock sustains the lowest),
    and the heat margin: negative where the junction would be hotter than T.

    **Units:** W, K, clocks over nominal.
    """
    clock = chip.clock_ratio
    core, leak = core_power_w(chip, clock), leakage_w(chip, clock, junction_k)
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    drawn = chip.standby_power_w + memory + core + leak
    allowed = allowed_power_w(chip, cooling)
    margin = jnp.log(allowed / drawn)
    settled_k = cooling.coolant_temperature_k + thermal_resistance_k_per_w(chip, cooling) * drawn
    point = OperatingPoint(
        clock_ratio=clock,
        junction_k=junction_k,
        allowed_w=allowed,
        leakage_w=leak,
        core_w=core,
        power_w=drawn,
        clock_margin=margin,
        cooling_margin=margin,
    )
    return point, jnp.log(junction_k / settled_k)
