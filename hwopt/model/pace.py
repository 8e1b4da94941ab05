"""The clock that kernels keep under a power cap and cooling: what their own arithmetic and HBM traffic draw settles it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.model.maximum import pick
from hwopt.model.roofline import KernelTime
from hwopt.model.thermal import OperatingPoint, core_power_w, fixed_power_w, voltage_ratio
from hwopt.quantity import computed
from hwopt.types import Scalar


class RunningChip(Chip):
    """A chip at work. `clock_ratio` stays the clock asked for: kernels that draw less than full load may keep it.

    Where full load fits at that clock, all do.
    """

    slows: Array = computed("", "whether full load does not fit at the clock asked for")
    allowed_w: Scalar = computed("W", "beyond standby, at the temperature of full load")
    hot_leakage_w: Scalar = computed("W", "leakage at nominal voltage and that temperature")


def at_work(chip: Chip, point: OperatingPoint) -> RunningChip:
    """A chip whose kernels settle at clocks of their own, or all at the lowest where it does not run at that.

    **Arguments:** its `point` at full load.
    """
    runs = point.cooling_margin > 0.0
    return RunningChip(
        **vars(chip) | {"clock_ratio": jnp.where(runs, chip.clock_ratio, point.clock_ratio)},
        slows=runs & (point.clock_margin < 0.0),
        allowed_w=point.power_w - chip.standby_power_w,
        hot_leakage_w=point.leakage_w / voltage_ratio(chip, point.clock_ratio),
    )


class Pace(NamedTuple):
    """Kernels at their clock against the clock asked for."""

    slowdown: Array | float  # of arithmetic: clock asked for over clock kept
    energy: Array | float  # of arithmetic: squared voltage over that at the clock asked for


AS_ASKED = Pace(1.0, 1.0)

_STEPS = 6
"""Newton steps to the clock: the sixth is exact in float64 from half of the clock asked for on, with Halley's after it from a
quarter on. That alone carries derivatives, those of the first two orders."""


def pace(chip: Chip, kernels: KernelTime) -> Pace:
    """The pace of kernels that follow each other within what power controllers average over, milliseconds.

    Their clock f is the one asked for, f_a, or else the one at which they draw what is allowed on average:
    `P_core(f_a) (V / V_a)^2 C + P_HBM H = (P_allowed - P_L(f)) (M + C f_a / f)`, C and H their seconds of arithmetic at f_a and of
    HBM, M what HBM adds beyond C. Times f that is a cubic in f, convex and above zero at f_a, so Newton steps from there fall
    onto its root. Faster HBM moves the same bytes at the same energy: it shortens M, so the sum of both times falls with it.

    M is kept as at f_a, which counts a little too much where HBM bounds some of them. The time is the least over f of the
    larger of `M + C f_a / f` and `energy / allowed power`: log-log convex but for that M, a difference. No proof meets it:
    designs are held to clocks at which full load fits.

    **Returns:** as asked for a chip that is held to a clock at which full load fits.
    """
    if not isinstance(chip, RunningChip):
        return AS_ASKED
    asked, v = chip.clock_ratio, chip.threshold_voltage_fraction
    growth = 1.0 - v
    arithmetic, added = kernels.arithmetic_s, kernels.memory_s
    core = chip.core_power_w * asked * arithmetic
    memory = (fixed_power_w(chip) - chip.standby_power_w) * kernels.hbm_s
    left_w, steeper_w = chip.allowed_w - chip.hot_leakage_w * v, chip.hot_leakage_w * growth
    cubic = core * growth * growth
    square = growth * 2.0 * v * core + steeper_w * added
    linear = core * v * v + memory - left_w * added + steeper_w * asked * arithmetic
    constant = left_w * asked * arithmetic
    over = ((cubic * asked + square) * asked + linear) * asked > constant
    slows = jnp.where(chip.slows, over & (arithmetic > 0.0), False)
    # Rows that keep the clock get a problem that has it as its root, so that no gradient is a quotient by zero.
    cubic, square = (jnp.where(slows, x, 0.0) for x in (cubic, square))
    linear, constant = jnp.where(slows, linear, 1.0), jnp.where(slows, constant, asked)

    def at(parts: tuple[Array, ...], clock: Array) -> tuple[Array, Array]:
        """Of the cubic: its value over its slope, and that slope."""
        cubic, square, linear, constant = parts
        slope = (3.0 * cubic * clock + 2.0 * square) * clock + linear
        return (((cubic * clock + square) * clock + linear) * clock - constant) / slope, slope

    parts = cubic, square, linear, constant
    held = jax.lax.stop_gradient(parts)
    begin = jax.lax.stop_gradient(asked * jnp.ones_like(constant))
    near = jax.lax.fori_loop(0, _STEPS, lambda _, clock: clock - at(held, clock)[0], begin)
    newton, slope = at(parts, near)
    bends = (3.0 * cubic * near + square) / slope  # half the second derivative over the first
    clock = near - newton / (1.0 - newton * bends)
    slowdown = pick(slows, asked / clock, jnp.ones_like(clock))
    volts = voltage_ratio(chip, clock) / voltage_ratio(chip, asked)
    return Pace(slowdown, pick(slows, volts * volts, jnp.ones_like(clock)))


def settled(chip: Chip, kernels: KernelTime, *, beside: KernelTime | None = None) -> KernelTime:
    """Kernels at the clock that they keep. **Arguments:** those that run `beside` them, which compute nothing."""
    keeps = pace(chip, kernels if beside is None else kernels.plus(beside))
    if keeps is AS_ASKED:
        return kernels
    return kernels._replace(compute_s=kernels.compute_s * keeps.slowdown, core_s=kernels.arithmetic_s * keeps.energy)


def asked_core_share(chip: Chip, point: OperatingPoint) -> Scalar | float:
    """Power of compute dies at full load and the clock asked for, over `point.core_w`, that at the clock which full load leaves."""
    return core_power_w(chip, chip.clock_ratio) / point.core_w if isinstance(chip, RunningChip) else 1.0
