"""Sustained clock of kernels under a power cap and cooling, from the power of their own arithmetic and HBM traffic."""

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
    """A chip that executes kernels, each at its own sustained clock.

    `clock_ratio` remains the requested clock: kernels that draw less than full load may sustain it. If full load is sustainable
    at the requested clock (`slows` is false), all kernels are.
    """

    slows: Array = computed("", "whether full load does not fit at the clock asked for")
    allowed_w: Scalar = computed("W", "beyond standby, at the temperature of full load")
    hot_leakage_w: Scalar = computed("W", "leakage at nominal voltage and that temperature")


def clock_under_load(chip: Chip, point: OperatingPoint) -> RunningChip:
    """Return a chip whose kernels settle at their own clocks; all run at the lowest clock where even that is not sustainable.

    **Arguments:** `chip`; `point`: its operating point at full load.
    """
    runs = point.cooling_margin > 0.0
    return RunningChip(
        **vars(chip) | {"clock_ratio": jnp.where(runs, chip.clock_ratio, point.clock_ratio)},
        slows=runs & (point.clock_margin < 0.0),
        allowed_w=point.power_w - chip.standby_power_w,
        hot_leakage_w=point.leakage_w / voltage_ratio(chip, point.clock_ratio),
    )


class ClockModel(NamedTuple):
    """Effect of the sustained clock on kernels, relative to the requested clock."""

    slowdown: Array | float  # of arithmetic: requested over sustained clock
    energy: Array | float  # of arithmetic: squared voltage over that at the requested clock


AS_ASKED = ClockModel(1.0, 1.0)

_STEPS = 7
"""Newton steps to the sustained clock; exact in float64 after six from half the requested clock, after seven from a third."""


def pace(chip: Chip, kernels: KernelTime) -> ClockModel:
    """Return slowdown and energy ratio of consecutive kernels within the averaging time of power controllers, milliseconds.

    Their clock f is the requested one, f_a, or else the clock at which their mean power equals the allowed power:
    `P_core(f_a) (V / V_a)^2 C + P_HBM H = (P_allowed - P_L(f)) (M + C f_a / f)`. C is arithmetic time at f_a, H HBM busy time,
    and M the HBM time not overlapped by C. Multiplied by `u = f / f_a` and divided by C, this is a cubic in u. It is convex and
    positive at 1, so Newton steps from there decrease monotonically to its root. Faster HBM moves the same bytes at the same
    energy: it shortens M, and the total time falls with it.

    M is taken at f_a, which slightly overestimates the time of kernels that HBM bounds. The time is the minimum over f of the
    larger of `M + C f_a / f` and `energy / allowed power`. It is log-log convex except for M, which is a difference. No
    relaxation needs it: the search only admits clocks at which full load is sustainable.

    **Returns:** `AS_ASKED` (no slowdown) for a chip that is not a `RunningChip`: its clock is restricted to sustainable ones.
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
    # Rows at the requested clock get a problem that has a root, so that no gradient divides by zero.
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
    """Return kernels at their sustained clock.

    **Arguments:** `kernels`, at the requested clock; `beside`: kernels that run concurrently and have no arithmetic.
    """
    keeps = pace(chip, kernels if beside is None else kernels.plus(beside))
    if keeps is AS_ASKED:
        return kernels
    return kernels._replace(compute_s=kernels.compute_s * keeps.slowdown, core_s=kernels.arithmetic_s * keeps.energy)


def asked_core_share(chip: Chip, point: OperatingPoint) -> Scalar | float:
    """Return the full-load power of compute dies at the requested clock, over `point.core_w`, that at the sustained clock."""
    return core_power_w(chip, chip.clock_ratio) / point.core_w if isinstance(chip, RunningChip) else 1.0
