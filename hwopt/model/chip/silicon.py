"""Silicon model: from a chip design (areas, memory, links, clock) to a `Chip`.

With `dies` and the 0/1 constant `stacked` fixed, every area is a posynomial of the design (log-log convex). The peak is a
monomial at fixed `matrix_per_vector`. Exceptions are marked.
"""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipDesign
from hwopt.hardware.technology import Technology
from hwopt.types import PRECISIONS, Scalar


class Areas(NamedTuple):
    """Silicon areas of a package by function, m2; lengths of die edge, m."""

    compute: Scalar  # compute units with registers, local memory, control
    fabric: Scalar  # crossbars, clock spines and gaps; with stacked dies the silicon that carries them
    sram: Scalar
    hbm_phy: Scalar  # PHYs and controllers
    scale_up_phy: Scalar
    scale_out_phy: Scalar
    fixed: Scalar
    die_to_die: Scalar
    total: Scalar  # all dies, base dies included: sum of the above
    one_die: Scalar  # the largest compute die
    base_dies: Scalar  # 0 unless stacked
    footprint: Scalar  # silicon under the lid; base dies only, where compute dies are stacked on them
    shoreline_needed: Scalar  # die edge for PHYs, m
    shoreline_available: Scalar
    interposer: Scalar


class ChipMargins(NamedTuple):
    """Margins of a chip design, log of limit over need: negative where the design cannot be built."""

    reticle: Scalar
    shoreline: Scalar
    package: Scalar


def transistors_per_flop(design: ChipDesign, technology: Technology) -> Scalar:
    """Return the transistors of compute area per 16-bit matrix FLOP/clk: a posynomial.

    `a + b R / s + c L`: multipliers, registers (R bytes per vector FLOP/clk, s matrix FLOPs per vector FLOP), and local memory
    (L bytes).

    **Source:** the form is that of Zhang et al., LLMCompass, ISCA 2024 (units, register files, local buffers add up);
    constants in `hwopt/data/datapaths`.
    """
    return (
        technology.matrix_transistors
        + technology.register_transistors_per_byte * technology.register_bytes / design.matrix_per_vector
        + technology.local_transistors_per_byte * technology.local_bytes
    )


def flop_energy_j(design: ChipDesign, technology: Technology) -> Scalar:
    """Return the energy per 16-bit matrix FLOP at the nominal clock, including operands from local memory: a posynomial.

    **Units:** J/FLOP, as drawn at TDP per FLOP of the chip's best large GEMMs.
    """
    return (
        technology.matrix_energy_j_per_flop
        + technology.register_energy_j_per_flop_byte * technology.register_bytes / design.matrix_per_vector
        + technology.local_energy_j_per_flop_byte * technology.local_bytes
    )


def peak_bf16_flops_per_s(design: ChipDesign, technology: Technology) -> Scalar:
    """Return the dense 16-bit peak at the nominal clock: enabled area x density / transistors per FLOP/clk x clock, FLOP/s.

    Its reciprocal is a posynomial; at fixed `matrix_per_vector` it is a monomial.
    """
    transistors = design.compute_area_m2 * design.enabled_fraction * technology.logic_density_per_m2
    return transistors / transistors_per_flop(design, technology) * technology.nominal_clock_hz


def areas(design: ChipDesign, technology: Technology) -> Areas:
    """Return the silicon areas and shoreline of a design.

    `total = (compute (1 + fabric) + SRAM + PHYs + fixed) (1 + share (1 - 1/dies))` is a posynomial with `dies` fixed. So are
    `one_die`, `footprint`, `interposer` and `shoreline_needed`. `shoreline_available` is proportional to the square root of
    `footprint`. Therefore the ratio of needed to available edge is not log-log convex, and its margin is not concave. The
    search relaxes it by a bound; the optimality gap includes the resulting slack.

    **Returns:** `Areas`, m2 and m.

    **Source:** PHY and controller constants of Zhang et al., LLMCompass, ISCA 2024; see `hwopt/data`.
    """
    controller = technology.hbm_controller_transistors / technology.logic_density_per_m2
    parts = {
        "compute": design.compute_area_m2,
        "fabric": technology.fabric_area_per_compute * design.compute_area_m2,
        "sram": technology.sram_m2_per_byte * design.sram_bytes,
        "hbm_phy": design.hbm_stacks * (technology.hbm_phy_m2 + controller),
        "scale_up_phy": technology.scale_up_m2_per_byte_per_s * design.scale_up_bandwidth_bytes_per_s,
        "scale_out_phy": technology.scale_out_m2_per_byte_per_s * design.scale_out_bandwidth_bytes_per_s,
        "fixed": technology.fixed_m2,
    }
    compute, fabric, *others = parts.values()
    rest = sum(others, start=fabric)
    die_to_die = technology.die_to_die_share * (1.0 - 1.0 / design.dies) * (compute + rest)
    total = compute + rest + die_to_die
    stacked, alone = technology.stacked, 1.0 - technology.stacked
    base = stacked * (rest + die_to_die)
    footprint = alone * total + base
    # Dies in a row: all edges except the two at each seam; base dies count as one block.
    row = alone * (2.0 * design.dies + 2.0) * jnp.sqrt(1.0 / design.dies) + 4.0 * stacked
    return Areas(
        **parts,
        die_to_die=die_to_die,
        total=total,
        one_die=(alone * total + stacked * compute) / design.dies,
        base_dies=base,
        footprint=footprint,
        shoreline_needed=design.hbm_stacks * technology.hbm_edge_m
        + design.scale_up_bandwidth_bytes_per_s * technology.scale_up_edge_m_per_byte_per_s
        + design.scale_out_bandwidth_bytes_per_s * technology.scale_out_edge_m_per_byte_per_s,
        shoreline_available=technology.usable_edge * row * jnp.sqrt(footprint),
        interposer=technology.interposer_margin * (footprint + design.hbm_stacks * technology.hbm_stack_m2),
    )


def margins(design: ChipDesign, technology: Technology) -> ChipMargins:
    """Return the margins of a design to the limits of reticle, shoreline and package: `log(limit / need)`.

    The margins of reticle and package are log-log concave (their negatives are logs of posynomials). The shoreline margin is
    not; see `areas`.
    """
    area = areas(design, technology)
    return ChipMargins(
        reticle=jnp.log(technology.reticle_m2 / area.one_die),
        shoreline=jnp.log(area.shoreline_available / area.shoreline_needed),
        package=jnp.log(technology.package_limit_m2 / area.interposer),
    )


def chip(design: ChipDesign, technology: Technology, *, wafers: Scalar, embodied_carbon_kg: Scalar) -> Chip:
    """Return the accelerator of a design, in the same form as one from a datasheet.

    Core power is that of the sustained share of the peak: `efficiency x peak x energy per FLOP`. It grows as
    `(v + (1-v) r)^2 r` with the clock ratio r. Log-log convex, except for core power in `matrix_per_vector` (a ratio of
    posynomials).

    **Arguments:** `wafers` per good chip, and `embodied_carbon_kg` of manufacturing it, both from
    `hwopt.model.chip.manufacture`.
    """
    silicon = areas(design, technology)
    peak = peak_bf16_flops_per_s(design, technology)
    bf16 = PRECISIONS.index("bf16")
    over_bf16 = jnp.stack(
        [1.0 / design.matrix_per_vector if name == "fp32" else jnp.ones_like(peak) for name in PRECISIONS]
    )
    standby = (
        technology.standby_w_per_m2 * silicon.total
        + technology.hbm_standby_w * design.hbm_stacks
        + technology.scale_up_idle_j_per_byte * design.scale_up_bandwidth_bytes_per_s
    )
    leakage = (
        technology.leakage_w_per_m2 * (silicon.total - silicon.base_dies)
        + technology.base_leakage_w_per_m2 * silicon.base_dies
    )
    clock = design.clock_hz / technology.nominal_clock_hz
    return Chip(
        peak_flops_per_s=peak * over_bf16 * technology.format_ratio,
        matmul_efficiency=technology.matmul_efficiency,
        clock_ratio=clock,
        sold_clock_ratio=clock,
        threshold_voltage_fraction=technology.threshold_voltage_fraction,
        sram_bytes=design.sram_bytes,
        hbm_bandwidth_bytes_per_s=design.hbm_stacks * technology.hbm_bandwidth_bytes_per_s,
        hbm_capacity_bytes=design.hbm_stacks * technology.hbm_capacity_bytes,
        hbm_efficiency=technology.hbm_efficiency,
        power_cap_w=design.power_cap_w,
        standby_power_w=standby,
        scale_up_idle_j_per_byte=technology.scale_up_idle_j_per_byte,
        leakage_power_w=leakage,
        leakage_per_k=technology.leakage_per_k,
        core_power_w=technology.matmul_efficiency[bf16] * peak * flop_energy_j(design, technology),
        hbm_energy_j_per_byte=technology.hbm_energy_j_per_byte,
        host_bytes_per_s=design.scale_out_bandwidth_bytes_per_s,
        nic_link_bytes_per_s=jnp.zeros_like(clock),  # made for its NICs
        host_slowness=jnp.ones_like(clock),
        silicon_area_m2=silicon.footprint,
        logic_area_m2=silicon.total,
        heat_area_m2=silicon.footprint,
        hbm_stacks=design.hbm_stacks,
        wafers=wafers,
        package_area_m2=silicon.interposer,
        embodied_carbon_kg=embodied_carbon_kg,
    )
