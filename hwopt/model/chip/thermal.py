"""Thermal model: a chip's allowed power, its sustained clock, and its junction temperature.

Leakage depends on temperature and temperature on leakage, so the operating point is the root of an equation. A fixed number of
Newton steps finds it. Alternatively the temperature is given, and a margin tells whether the chip settles at or below it.
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
"""Lowest operating clock over the nominal clock: a chip that cannot sustain it does not work."""

LEAST_RISE_K = 1e-3
"""Smallest temperature difference between junction limit and coolant, K; replaces differences of infeasibly warm coolants."""

_TIE = 16  # rounding errors by which drawn power may exceed removed power before a chip throttles
_CLOCK_STEPS = 8  # the 7th is exact in float64 even for chips far more extreme than any on record


class OperatingPoint(NamedTuple):
    """Operating point of a chip at full load under its power cap and its cooling."""

    clock_ratio: Array  # sustained clock over nominal
    junction_k: Array
    allowed_w: Array  # minimum of power cap, heat removal by the cooling, and heat flux limit
    leakage_w: Array  # at that clock and temperature
    core_w: Array  # dynamic power of the compute dies at that clock
    power_w: Array  # total
    clock_margin: Array  # log(power removed / power drawn) at the requested clock: negative where it throttles
    cooling_margin: Array  # like `clock_margin`, at the lowest clock: negative where the chip cannot run


def thermal_resistance_k_per_w(chip: Chip, cooling: Cooling) -> Scalar:
    """Return the thermal resistance from junction to coolant, K/W: `R = R_sink + r / A`."""
    return cooling.sink_resistance_k_per_w + cooling.area_resistance_k_m2_per_w / chip.heat_area_m2


def voltage_ratio(chip: Chip, clock_ratio: Scalar | float) -> Scalar:
    """Return the supply voltage over nominal: `V = V_t + kappa f`, i.e. `v + (1 - v) f/f_0` with v = V_t/V_0.

    **Source:** the linear upper bound of the alpha-power law (Sakurai and Newton 1990); it preserves log-log convexity.
    """
    v = chip.threshold_voltage_fraction
    return v + (1.0 - v) * clock_ratio


def lowest_clock(chip: Chip) -> Scalar:
    """Return `LOWEST_CLOCK`, or the requested clock if that is lower."""
    return jnp.where(chip.clock_ratio < LOWEST_CLOCK, chip.clock_ratio, LOWEST_CLOCK)


def core_power_w(chip: Chip, clock_ratio: Scalar) -> Scalar:
    """Return the dynamic power of the compute dies at full load: `P_0 (V/V_0)^2 f/f_0`. A posynomial in f."""
    return chip.core_power_w * voltage_ratio(chip, clock_ratio) ** 2 * clock_ratio


def leakage_w(chip: Chip, clock_ratio: Scalar | float, junction_k: Scalar) -> Scalar:
    """Return the leakage power, W: `P_L (V/V_0) exp(beta (T - T_ref))`.

    Log-log convex: the exponent is a posynomial less a constant.
    """
    return (
        chip.leakage_power_w
        * voltage_ratio(chip, clock_ratio)
        * jnp.exp(chip.leakage_per_k * (junction_k - LEAKAGE_REFERENCE_K))
    )


def fixed_power_w(chip: Chip) -> Scalar:
    """Return the power that does not depend on the clock: standby, and HBM at full bandwidth."""
    return chip.standby_power_w + chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte


def full_load_w(chip: Chip, clock_ratio: Scalar, junction_k: Scalar) -> Scalar:
    """Return the full-load power: standby, leakage, compute dies at full load, HBM at full bandwidth.

    For a datasheet chip at 75 degC this is its TDP.
    """
    return fixed_power_w(chip) + core_power_w(chip, clock_ratio) + leakage_w(chip, clock_ratio, junction_k)


def rated_power_w(chip: Chip) -> Scalar:
    """Return the full-load power at the requested clock and at the reference temperature of a TDP: a TDP must cover it."""
    return full_load_w(chip, chip.clock_ratio, jnp.asarray(LEAKAGE_REFERENCE_K))


def allowed_power_w(chip: Chip, cooling: Cooling) -> Scalar:
    """Return the power that the chip may draw, W.

    It is the minimum of the power cap, `(T_max - T_coolant) / R`, and the heat flux limit times the die area.
    """
    rise = cooling.junction_limit_k - cooling.coolant_temperature_k
    rise = jnp.where(rise > LEAST_RISE_K, rise, LEAST_RISE_K)
    removable = rise / thermal_resistance_k_per_w(chip, cooling)
    by_flux = cooling.heat_flux_limit_w_per_m2 * chip.heat_area_m2
    least = jnp.where(removable < chip.power_cap_w, removable, chip.power_cap_w)
    return jnp.where(by_flux < least, by_flux, least)


def retreat_k(chip: Chip, cooling: Cooling, clock_ratio: Scalar, allowed_w: Scalar) -> Scalar:
    """Return how far below `T_c + R P_allowed` the junction must stay to remove the most heat besides leakage, K.

    The heat left for other power, `(T - T_c) / R - P_L(T)`, peaks where one more kelvin leaks as much as it removes,
    `R beta P_L(T) = 1`; beyond it lies thermal runaway. The result is 0 except for wafer-scale chips on air: packaged chips
    reach their temperature limit long before (a kink where both meet).
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
    """Return the log of settled leakage over leakage before self-heating: the lower root w of `w = z e^w`.

    In terms of Lambert's function, `w = -W_0(-z)`. Log-log convex, with `w' = e^w / (1 - w)`.

    **Arguments:** `gain` z, 0 or more: leakage heating before self-heating, in kelvins, times the relative growth of leakage
    per kelvin. From 1/e on there is thermal runaway: the result is clamped there.
    """
    largest = (1.0 - 4.0 * float(jnp.finfo(jnp.result_type(gain)).eps)) / math.e
    gain = jnp.where(gain < largest, gain, largest)
    w = 1.0 - lambert_above_branch(jnp.sqrt(2.0 - 2.0 * math.e * gain))
    settled = held(gain) * jnp.exp(w)
    w = w - (w - settled) / (1.0 - settled)  # one Newton step: exact also where w is small
    left, step = 1.0 - w, moved(gain) * jnp.exp(w)
    return w + step / left * (1.0 + 0.5 * step / left * (1.0 + 1.0 / left))


def highest_sustainable(chip: Chip, cooling: Cooling, allowed_w: Scalar) -> Scalar:
    """Return the clock at which leakage alone uses all removable heat besides `fixed_power_w`; the requested clock if lower.

    Leakage adds `x = R P_L(f, T_0 + x)` kelvins to the temperature T_0 that fixed power causes. A rise x is sustainable if
    `R P_L(f, T_0 + x) <= x`; the ratio of both sides is smallest at x = 1/beta. So some x up to the largest possible rise,
    `R (P_allowed - P_fixed)`, is sustainable if and only if the smaller of 1/beta and that rise is.
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
    """Return the clock f, over nominal, at which a throttled chip draws as much power as its cooling removes.

    Newton steps in `u = log f` solve `g = log((P_core + P_L) / (Q - P_fixed)) = 0`. Q is the heat removed at the junction
    temperature `retreat_k` below `T_c + R P_allowed`. Power that no clock changes is subtracted from both sides, since it would
    flatten g.

    The iteration is monotone. `P_core + P_L` is a posynomial of f, so its logarithm is convex and increasing in u. Q is concave
    and decreasing, as `retreat_k` is convex in u. Where `retreat_k` becomes positive, leakage stays constant at `1 / (R beta)`,
    and Q begins to fall at the rate at which leakage grew. There the slope of g also grows as long as more is drawn than
    removed. So steps from above approach the root and never overshoot it. They start at `highest_sustainable`; up to there
    `Q - P_fixed` is at least the leakage.

    **Arguments:**
    - `allowed_w`: P_allowed;
    - `solvable`: whether such a clock lies between the lowest and the requested one; if not, the result is some clock between
      them, without derivatives.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    warmest = cooling.coolant_temperature_k + resistance * allowed_w
    start = highest_sustainable(chip, cooling, allowed_w)
    # Rows without a root get a problem that has one, so that no gradient divides by zero.
    core_w = jnp.where(solvable, chip.core_power_w, 1.0)
    warm_w = jnp.where(solvable, leakage_w(chip, 1.0, warmest), 0.0)
    left_w = jnp.where(solvable, allowed_w - fixed_power_w(chip), 1.0)
    gain = resistance * chip.leakage_per_k
    runaway_w = 1.0 / jnp.where(gain * warm_w * voltage_ratio(chip, chip.clock_ratio) > 0.5, gain, 1.0)

    def value_and_slope(parts: tuple[Array, ...], ratio: Array) -> tuple[Array, Array]:
        """Return g and its slope by the log of the clock over the requested one; in that coordinate the root does not move."""
        v, core_w, warm_w, left_w, gain, runaway_w = parts
        clock = asked * jnp.exp(ratio)
        volts = v + (1.0 - v) * clock
        growth = 1.0 - v / volts  # d log V / d log f
        excess = gain * warm_w * volts
        retreats = excess > 1.0
        core = core_w * volts * volts * clock
        drawn = core + jnp.where(retreats, runaway_w, warm_w * volts)
        # Slopes by log f add up: that of leakage before the retreat, then that of the lost heat removal.
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
    """Return the clock that power cap and cooling sustain, and the junction temperature at full load.

    A throttled chip runs at `T = T_c + R P_allowed` less `retreat_k`, the most favorable temperature, and its clock solves
    `P(f, T) = (T - T_c) / R`, a cubic. Without throttling, T is the lower root of `T = T_c + R P(f, T)`, which is below that
    temperature. `1/f` and the unthrottled T are log-log convex: each is the minimum of a set bounded by posynomial
    inequalities.

    Three quantities of throttled chips are not log-log convex: power drawn (a minimum of reciprocals), the price of the
    building that feeds it, and temperature (a maximum instead of a minimum) with the failures that heat causes. The search
    therefore admits only sustainable clocks.

    **Units:** W, K, clocks over nominal.
    """
    resistance = thermal_resistance_k_per_w(chip, cooling)
    allowed = allowed_power_w(chip, cooling)
    warmest = cooling.coolant_temperature_k + resistance * allowed

    def removed_and_drawn(clock):
        back = retreat_k(chip, cooling, clock, allowed)
        # A difference of temperatures would lose this in float32.
        return allowed - back / resistance, full_load_w(chip, clock, warmest - back)

    asked, lowest = chip.clock_ratio, lowest_clock(chip)
    removed, wanted = removed_and_drawn(asked)
    removed_at_least, least = removed_and_drawn(lowest)
    # With a tolerance: a cap equal to the drawn power must not mix the slopes of both branches.
    throttled = wanted > removed * (1.0 + _TIE * float(jnp.finfo(jnp.result_type(removed)).eps))
    runs = least < removed_at_least
    sustained = sustained_clock(chip, cooling, allowed, runs & throttled)
    clock = jnp.where(throttled, jnp.where(runs, sustained, lowest), asked)
    hottest = warmest - retreat_k(chip, cooling, clock, allowed)

    core = core_power_w(chip, clock)
    without_leakage = fixed_power_w(chip) + core
    coolest = cooling.coolant_temperature_k + resistance * without_leakage
    # With throttling, `coolest` may overflow; branches that are not taken must stay finite too.
    cold_leakage = jnp.where(throttled, 0.0, leakage_w(chip, clock, jnp.where(throttled, hottest, coolest)))

    # The rise x above the temperature without leakage solves x = R P_L exp(beta x); only rounding exceeds `hottest`.
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
    """Return the chip's operating point at the requested clock f and a given junction temperature T, and the heat margin at T.

    The heat margin is `log(T / (T_c + R P(f, T)))`, the clock margin `log(P_allowed / P(f, T))`. P is a posynomial plus one
    exponential, so both margins are concave in logarithms. The least T with a heat margin of 0 or more is the true junction
    temperature. All costs in the model grow with T, so a minimization selects that T.

    This form is equivalent to an unthrottled `operating_point`: some T has both margins at 0 or more if and only if that
    function does not throttle. The least such T is at most `T_c + R P_allowed`. Of the temperatures up to there,
    `operating_point` tests the one with the most heat removal besides leakage, `retreat_k` below.

    **Arguments:** `junction_k` T.

    **Returns:** the point, whose cooling margin equals its clock margin (a chip that sustains its clock also sustains the
    lowest), and the heat margin: negative where the junction would be hotter than T.

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
