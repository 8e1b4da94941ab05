"""The clock that kernels keep under a power cap and cooling: what their own arithmetic and HBM traffic draw settles it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hwopt.hardware.chip import Chip
from hwopt.model.chip.roofline import KernelTime
from hwopt.model.chip.thermal import OperatingPoint, core_power_w, fixed_power_w, voltage_ratio
from hwopt.model.numerics.maximum import pick
from hwopt.model.numerics.root_finding import held, root
from hwopt.quantity import computed
from hwopt.types import Scalar


class RunningChip(Chip):
    """A chip at work. `clock_ratio` stays the clock asked for: kernels that draw less than full load may keep it.

    Where full load fits at that clock, all do.
    """

    slows: Array = computed("", "whether full load does not fit at the clock asked for")
    allowed_w: Scalar = computed("W", "beyond standby, at the temperature of full load")
    hot_leakage_w: Scalar = computed("W", "leakage at nominal voltage and that temperature")


def clock_under_load(chip: Chip, point: OperatingPoint) -> RunningChip:
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


class ClockModel(NamedTuple):
    """Kernels at their clock against the clock asked for."""

    slowdown: Array | float  # of arithmetic: clock asked for over clock kept
    energy: Array | float  # of arithmetic: squared voltage over that at the clock asked for


AS_ASKED = ClockModel(1.0, 1.0)

_STEPS = 7
"""Newton steps to the clock: the sixth is exact in float64 from half of the clock asked for on, the seventh from a third on."""


def pace(chip: Chip, kernels: KernelTime) -> ClockModel:
    """The pace of kernels that follow each other within what power controllers average over, milliseconds.

    Their clock f is the one asked for, f_a, or else the one at which they draw what is allowed on average:
    `P_core(f_a) (V / V_a)^2 C + P_HBM H = (P_allowed - P_L(f)) (M + C f_a / f)`, C and H their seconds of arithmetic at f_a and of
    HBM, M what HBM adds beyond C. Times `u = f / f_a` and over C that is a cubic in u, convex and above zero at 1, so Newton steps
    from there fall onto its root. Faster HBM moves the same bytes at the same energy: it shortens M, so the sum of both times falls
    with it.

    M is kept as at f_a, which counts a little too much where HBM bounds some of them. The time is the least over f of the
    larger of `M + C f_a / f` and `energy / allowed power`: log-log convex but for that M, a difference. No proof meets it:
    designs are held to clocks at which full load fits.

    **Returns:** as asked for a chip that is held to a clock at which full load fits.
    """
    if not isinstance(chip, RunningChip):
        return AS_ASKED
    v, growth = chip.threshold_voltage_fraction, (1.0 - chip.threshold_voltage_fraction) * chip.clock_ratio
    core_w, hbm_w = chip.core_power_w * chip.clock_ratio, fixed_power_w(chip) - chip.standby_power_w
    steeper_w, left_w = chip.hot_leakage_w * growth, chip.allowed_w - chip.hot_leakage_w * v
    computes = kernels.arithmetic_s > 0.0
    per_arithmetic = 1.0 / jnp.where(computes, kernels.arithmetic_s, 1.0)
    added, hbm = kernels.memory_s * per_arithmetic, kernels.hbm_s * per_arithmetic
    cubic = growth * growth * core_w
    square = 2.0 * growth * v * core_w + steeper_w * added
    linear = v * v * core_w + steeper_w + hbm_w * hbm - left_w * added
    slows = jnp.where(chip.slows, computes & (square + linear > left_w - cubic), False)
    # Rows that keep the clock get a problem with a root, so that no gradient is a quotient by zero.
    linear = jnp.where(slows, linear, 1.0)

    def newton(_: Array, ratio: Array) -> Array:
        return ((twice * ratio + bends) * ratio * ratio + constant) / ((thrice * ratio + 2.0 * bends) * ratio + slope)

    bends, slope, constant, twice, thrice = held((square, linear, left_w, 2.0 * cubic, 3.0 * cubic))
    near = jax.lax.fori_loop(0, _STEPS, newton, jnp.ones_like(slope))
    ratio = root(
        near,
        value=((cubic * near + square) * near + linear) * near - left_w,
        slope=(3.0 * cubic * near + 2.0 * square) * near + linear,
        bend=6.0 * cubic * near + 2.0 * square,
    )
    ratio = pick(slows, ratio, jnp.ones_like(ratio))
    volts = (v + growth * ratio) / (v + growth)
    return ClockModel(1.0 / ratio, volts * volts)


def settled(chip: Chip, kernels: KernelTime, *, beside: KernelTime | None = None) -> KernelTime:
    """Kernels at the clock that they keep. **Arguments:** those that run `beside` them, which compute nothing."""
    keeps = pace(chip, kernels if beside is None else kernels.plus(beside))
    if keeps is AS_ASKED:
        return kernels
    return kernels._replace(compute_s=kernels.compute_s * keeps.slowdown, core_s=kernels.arithmetic_s * keeps.energy)


def asked_core_share(chip: Chip, point: OperatingPoint) -> Scalar | float:
    """Power of compute dies at full load and the clock asked for, over `point.core_w`, that at the clock which full load leaves."""
    return core_power_w(chip, chip.clock_ratio) / point.core_w if isinstance(chip, RunningChip) else 1.0
