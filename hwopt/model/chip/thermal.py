"""Heat: what a chip may draw, the clock that leaves it, and the temperature it settles at.

Leakage grows with temperature and temperature with leakage, so the operating point is the root of an equation, found by a fixed
number of Newton steps; or the temperature is given, and a margin says whether it settles there.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import LEAKAGE_REFERENCE_K, Chip
from hwopt.hardware.facility import Cooling
from hwopt.model.numerics.root_finding import held, lambert_above_branch, moved, root
from hwopt.types import Scalar

LOWEST_CLOCK = 0.05
"""Of nominal: a chip that cannot even run at this clock does not work."""

LEAST_RISE_K = 1e-3
"""Of the junction above the coolant; stands for a coolant that is too warm to cool, which is infeasible."""

_TIE = 16  # roundings by which more may be drawn than is removed before a chip throttles
_CLOCK_STEPS = 8  # the 7th is exact in float64 for chips far wilder than any on record


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
    return cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2


def voltage_ratio(chip: Chip, clock_ratio: Scalar | float) -> Scalar:
    """Supply voltage over nominal: `V = V_t + kappa f`, i.e. `v + (1 - v) f/f_0` with v = V_t/V_0.

    **Source:** the linear upper bound of the alpha-power law (Sakurai and Newton 1990); keeps log-log convexity.
    """
    v = chip.threshold_voltage_fraction
    return v + (1.0 - v) * clock_ratio


def lowest_clock(chip: Chip) -> Scalar:
    """`LOWEST_CLOCK`, or the one asked for if that is lower."""
    return jnp.where(chip.clock_ratio < LOWEST_CLOCK, chip.clock_ratio, LOWEST_CLOCK)


def core_power_w(chip: Chip, clock_ratio: Scalar) -> Scalar:
    """Dynamic power of the compute dies at full load: `P_0 (V/V_0)^2 f/f_0`. A posynomial in f."""
    return chip.core_power_w * voltage_ratio(chip, clock_ratio) ** 2 * clock_ratio


def leakage_w(chip: Chip, clock_ratio: Scalar | float, junction_k: Scalar) -> Scalar:
    """Leakage: `P_L (V/V_0) exp(beta (T - T_ref))`. Log-log convex: the exponent is a posynomial less a constant."""
    return (
        chip.leakage_power_w
        * voltage_ratio(chip, clock_ratio)
        * jnp.exp(chip.leakage_per_k * (junction_k - LEAKAGE_REFERENCE_K))
    )


def fixed_power_w(chip: Chip) -> Scalar:
    """Standby, and HBM at full bandwidth: what no clock changes."""
    return chip.standby_power_w + chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte


def full_load_w(chip: Chip, clock_ratio: Scalar, junction_k: Scalar) -> Scalar:
    """Standby, leakage, compute dies at full load, HBM at full bandwidth. A datasheet chip at 75 degC: its TDP."""
    return fixed_power_w(chip) + core_power_w(chip, clock_ratio) + leakage_w(chip, clock_ratio, junction_k)


def rated_power_w(chip: Chip) -> Scalar:
    """Full load at the clock asked for and the temperature at which a TDP is drawn: what a TDP must cover."""
    return full_load_w(chip, chip.clock_ratio, jnp.asarray(LEAKAGE_REFERENCE_K))


def allowed_power_w(chip: Chip, cooling: Cooling) -> Scalar:
    """What the chip may draw: the least of its power cap, `(T_max - T_coolant) / R`, and heat flux times die area."""
    rise = cooling.junction_limit_k - cooling.coolant_temperature_k
    rise = jnp.where(rise > LEAST_RISE_K, rise, LEAST_RISE_K)
    removable = rise / thermal_resistance_k_per_w(chip, cooling)
    by_flux = cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2
    least = jnp.where(removable < chip.power_cap_w, removable, chip.power_cap_w)
    return jnp.where(by_flux < least, by_flux, least)


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


def feedback(gain: Scalar) -> Scalar:
    """Leakage settled over leakage before it heats, as a logarithm: the lower root w of `w = z e^w`, Lambert's `-W_0(-z)`.

    Log-log convex, with `w' = e^w / (1 - w)`.

    **Arguments:** `gain` z, 0 or more: kelvins by leakage a kelvin, before leakage heats. From 1/e on heat runs away: held.
    """
    largest = (1.0 - 4.0 * float(jnp.finfo(jnp.result_type(gain)).eps)) / math.e
    gain = jnp.where(gain < largest, gain, largest)
    w = 1.0 - lambert_above_branch(jnp.sqrt(2.0 - 2.0 * math.e * gain))
    settled = held(gain) * jnp.exp(w)
    w = w - (w - settled) / (1.0 - settled)  # exact where w is small, too
    left, step = 1.0 - w, moved(gain) * jnp.exp(w)
    return w + step / left * (1.0 + 0.5 * step / left * (1.0 + 1.0 / left))


def highest_sustainable(chip: Chip, cooling: Cooling, allowed_w: Scalar) -> Scalar:
    """The clock at which leakage alone is all that can be removed besides `fixed_power_w`; the one asked for if lower.

    Leakage adds `x = R P_L(f, T_0 + x)` kelvins to the temperature T_0 that fixed power leads to. Some x up to the
    highest, `R (P_allowed - P_fixed)`, is that large just where 1/beta is, or the highest if that is lower.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    fixed = fixed_power_w(chip)
    rise = resistance * (allowed_w - fixed)
    steep = chip.leakage_per_k * rise > 1.0
    rise = jnp.where(steep, 1.0 / jnp.where(steep, chip.leakage_per_k, 1.0), rise)
    hot = cooling.coolant_temperature_k + resistance * fixed + rise
    leaked = resistance * leakage_w(chip, 1.0, hot)
    crowded = leaked * voltage_ratio(chip, chip.clock_ratio) > rise
    v = chip.threshold_voltage_fraction
    return jnp.where(crowded, (rise / jnp.where(crowded, leaked, 1.0) - v) / (1.0 - v), chip.clock_ratio)


def sustained_clock(chip: Chip, cooling: Cooling, allowed_w: Scalar, solvable: Array) -> Scalar:
    """The clock f at which a throttled chip draws what its cooling removes, over nominal.

    Newton steps in `u = log f` on `g = log((P_core + P_L) / (Q - P_fixed))`: power drawn, and Q removed, `retreat_k` below
    `T_c + R P_allowed`, both less what no clock changes, which would flatten g. `P_core + P_L` is a posynomial of f, its
    logarithm convex in u and increasing; Q is concave and falls, as `retreat_k` is convex in u. Where a chip begins to
    retreat its leakage stops to grow, at `1 / (R beta)`, and Q begins to fall, as fast: the slope of g grows there too as
    long as more is drawn than removed. So steps from above fall onto the root and never below. They start at
    `highest_sustainable`; up to there `Q - P_fixed` is at least the leakage.

    **Arguments:** `allowed_w` P_allowed; `solvable` whether such a clock lies between the lowest and the one asked for;
    where not, any of these is returned, without derivatives.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    warmest = cooling.coolant_temperature_k + resistance * allowed_w
    start = highest_sustainable(chip, cooling, allowed_w)
    # Rows without a root get a problem that has one, so that no gradient is a quotient by zero.
    core_w = jnp.where(solvable, chip.core_power_w, 1.0)
    warm_w = jnp.where(solvable, leakage_w(chip, 1.0, warmest), 0.0)
    left_w = jnp.where(solvable, allowed_w - fixed_power_w(chip), 1.0)
    gain = resistance * chip.leakage_per_k
    runaway_w = 1.0 / jnp.where(gain * warm_w * voltage_ratio(chip, chip.clock_ratio) > 0.5, gain, 1.0)

    def value_and_slope(parts: tuple[Array, ...], ratio: Array) -> tuple[Array, Array]:
        """Of g, by the logarithm of the clock over the one asked for, with which the root does not move."""
        v, core_w, warm_w, left_w, gain, runaway_w = parts
        clock = asked * jnp.exp(ratio)
        volts = v + (1.0 - v) * clock
        growth = 1.0 - v / volts  # of log V by log f
        excess = gain * warm_w * volts
        retreats = excess > 1.0
        core = core_w * volts * volts * clock
        drawn = core + jnp.where(retreats, runaway_w, warm_w * volts)
        # Slopes by log f, which add up: the leakage's until it retreats, from there on what is no longer removed.
        leak_slope = growth * jnp.where(retreats, 0.0, warm_w * volts)
        removed_fall = growth * jnp.where(retreats, runaway_w, 0.0)
        per_removed = 1.0 / (left_w - runaway_w * jnp.log(jnp.where(retreats, excess, 1.0)))
        slope = (core * (1.0 + 2.0 * growth) + leak_slope) * (1.0 / drawn) + removed_fall * per_removed
        return jnp.log(drawn * per_removed), slope

    parts = chip.threshold_voltage_fraction, core_w, warm_w, left_w, gain, runaway_w
    still, asked, lowest, start = held((parts, chip.clock_ratio, lowest_clock(chip), start))
    start = jnp.log(jnp.where(start > lowest, start, lowest) / asked)
    lowest = jnp.log(lowest / asked)

    def closer(_: Array, ratio: Array) -> Array:
        value, slope = value_and_slope(still, ratio)
        ratio = ratio - value * (1.0 / slope)
        ratio = jnp.where(ratio > 0.0, 0.0, ratio)
        return jnp.where(ratio < lowest, lowest, ratio)

    near = jax.lax.fori_loop(0, _CLOCK_STEPS, closer, start)
    _, (_, bend) = jax.jvp(partial(value_and_slope, still), (near,), (jnp.ones_like(near),))
    value, slope = value_and_slope(parts, near)
    return asked * jnp.exp(root(near, value, slope, bend))


def operating_point(chip: Chip, cooling: Cooling) -> OperatingPoint:
    """The clock that power cap and cooling sustain, and the junction's temperature at full load.

    Throttled, a chip runs as hot as helps, at `T = T_c + R P_allowed` less `retreat_k`, and its clock solves
    `P(f, T) = (T - T_c) / R`, a cubic. Unthrottled, `T = T_c + R P(f, T)` has its lower root below that temperature.
    `1/f` and the unthrottled T are log-log convex, the least points of sets that posynomial inequalities bound. What a
    throttled chip draws is not (a least of reciprocals), nor then the price of the building that feeds it; nor is its
    temperature, highest instead of least, and with it the failures that heat causes: designs are held to clocks that
    they sustain.

    **Units:** W, K, clocks over nominal.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    allowed = allowed_power_w(chip, cooling)
    warmest = cooling.coolant_temperature_k + resistance * allowed

    def removed_and_drawn(clock):
        back = retreat_k(chip, cooling, clock, allowed)
        # Not as a difference of temperatures: float32 would lose it.
        return allowed - back / resistance, full_load_w(chip, clock, warmest - back)

    asked, lowest = chip.clock_ratio, lowest_clock(chip)
    removed, wanted = removed_and_drawn(asked)
    removed_at_least, least = removed_and_drawn(lowest)
    # By more than rounding: a cap of just what is drawn must not have the slopes of one side here and of the other there.
    throttled = wanted > removed * (1.0 + _TIE * float(jnp.finfo(jnp.result_type(removed)).eps))
    runs = least < removed_at_least
    sustained = sustained_clock(chip, cooling, allowed, runs & throttled)
    clock = jnp.where(throttled, jnp.where(runs, sustained, lowest), asked)
    hottest = warmest - retreat_k(chip, cooling, clock, allowed)

    core = core_power_w(chip, clock)
    without_leakage = fixed_power_w(chip) + core
    coolest = cooling.coolant_temperature_k + resistance * without_leakage
    # Where it throttles, `coolest` may be hot enough to overflow: no branch that is not taken may.
    cold_leakage = jnp.where(throttled, 0.0, leakage_w(chip, clock, jnp.where(throttled, hottest, coolest)))

    # The rise x above the temperature without leakage: x = R P_L exp(beta x). Beyond `hottest` by rounding alone.
    cold_rise = resistance * cold_leakage
    rise = cold_rise * jnp.exp(feedback(chip.leakage_per_k * cold_rise))
    beyond = held(rise - (hottest - coolest))
    rise = rise - jnp.where(beyond > 0.0, beyond, 0.0)
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


def lifted_point(chip: Chip, cooling: Cooling, junction_k: Scalar) -> tuple[OperatingPoint, Scalar]:
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
    drawn = fixed_power_w(chip) + core + leak
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
