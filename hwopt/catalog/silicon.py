"""Process nodes, memories and public chips as inputs of chip design."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.load import leaf, record, supported
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.hardware.chip_design import ChipDesign
from hwopt.hardware.technology import Technology
from hwopt.types import PRECISIONS


def technology(
    name: str | Path,
    *,
    memory: str | Path | None = None,
    template: str | Path | None = None,
    datapath: str | Path = "default",
) -> Technology:
    """A process with a memory generation, laid out as a public chip is.

    The pipelines of the template reach `clock x speed / speed of its own node`.

    **Arguments:** `name` of `technologies` or a path; `memory` of `memories`; `template` of `designs`, whose units,
    registers, local memory, formats and efficiencies are kept; both as the technology's file says where None; `datapath`:
    constants per FLOP/clk.

    **Raises:** `UserError` for an unknown name, a bad file, or a template that cannot be modelled.
    """
    held = supported("technologies", name)
    return _technology(
        held,
        supported("memories", memory or str(held.text["memory"])),
        supported("designs", template or str(held.text["template"])),
        supported("datapaths", datapath),
    )


def chip_design(
    name: str | Path, *, technology: str | Path | None = None, memory: str | Path | None = None
) -> tuple[ChipDesign, Technology]:
    """A public chip as the design that an architect would have drawn, and what it is built with.

    Its compute area is the silicon that is on record, less all that is counted: last-level memory, every PHY on the die,
    links, fixed blocks, fabric. The clock is the one its pipelines reach in the technology.

    **Arguments:** `name` of `designs` or a path; another `technology` or `memory` ports the same areas to it.

    **Returns:** a template to start an optimiser from.

    **Raises:** `UserError` for an unknown name, a bad file, a chip that cannot be modelled, or a die that its memory and
    links already fill.
    """
    held = supported("designs", name)
    home = _home(held)
    own = (
        supported("technologies", technology) if technology else supported("technologies", str(held.text["technology"]))
    )
    stacks = supported("memories", memory or str(held.text["memory"]))
    built = _technology(own, stacks, held, supported("datapaths", "default"))
    return ChipDesign(
        dies=leaf(held.si("dies")),
        compute_area_m2=leaf(_compute_area(held, home)),
        matrix_per_vector=leaf(held.si("matrix_per_vector")),
        enabled_fraction=leaf(held.si("enabled_fraction")),
        sram_bytes=leaf(held.si("sram")),
        hbm_stacks=leaf(held.si("memory_stacks")),
        scale_up_bandwidth_bytes_per_s=leaf(held.si("scale_up_bandwidth")),
        scale_out_bandwidth_bytes_per_s=leaf(held.si("scale_out_bandwidth")),
        clock_hz=leaf(built.nominal_clock_hz),
        power_cap_w=leaf(held.si("tdp")),
    ), built


def _home(design: Record) -> Technology:
    """What a chip was really built with."""
    return _technology(
        supported("technologies", str(design.text["technology"])),
        supported("memories", str(design.text["memory"])),
        design,
        supported("datapaths", "default"),
    )


def _compute_area(design: Record, home: Technology) -> float:
    """The total on record, solved for the compute area in the formula of `hwopt.model.silicon.areas`."""
    die, other = design.si("die_area"), design.si("other_area", 0.0)
    if design.si("stacked"):
        compute = die - other
    else:
        controller = home.hbm_controller_transistors / home.logic_density_per_m2
        rest = (
            other
            + home.sram_m2_per_byte * design.si("sram_on_die", design.si("sram"))
            + (home.hbm_phy_m2 + controller) * design.si("memory_sites", design.si("memory_stacks"))
            + home.scale_up_m2_per_byte_per_s * design.si("scale_up_bandwidth")
            + home.scale_out_m2_per_byte_per_s * design.si("scale_out_bandwidth")
            + home.fixed_m2
        )
        bridged = 1.0 + home.die_to_die_share * (1.0 - 1.0 / design.si("dies"))
        compute = (die / bridged - rest) / (1.0 + home.fabric_area_per_compute)
    if compute <= 0.0:
        raise UserError(f"design '{design.slug}': memory and links fill all of its {die * 1e6:g} mm2 of silicon")
    return float(compute)


def _technology(process: Record, memory: Record, design: Record, datapath: Record) -> Technology:
    home = supported("technologies", str(design.text["technology"]))
    energy = process.si("energy")
    return Technology(
        logic_density_per_m2=leaf(process.si("logic_density")),
        matrix_transistors=leaf(datapath.si("matrix_transistors")),
        register_transistors_per_byte=leaf(datapath.si("register_transistors")),
        local_transistors_per_byte=leaf(datapath.si("local_transistors")),
        register_bytes=leaf(design.si("registers")),
        local_bytes=leaf(design.si("local_memory")),
        fabric_area_per_compute=leaf(design.si("fabric")),
        nominal_clock_hz=leaf(design.si("clock") * process.si("speed") / home.si("speed")),
        threshold_voltage_fraction=leaf(design.si("threshold_voltage_fraction")),
        format_ratio=leaf(_format_ratio(design)),
        matmul_efficiency=leaf([_sustained(design, each) for each in PRECISIONS]),
        sram_m2_per_byte=leaf(process.si("sram_area")),
        hbm_bandwidth_bytes_per_s=leaf(memory.si("bandwidth")),
        hbm_capacity_bytes=leaf(memory.si("capacity")),
        hbm_efficiency=leaf(memory.si("efficiency")),
        hbm_energy_j_per_byte=leaf(memory.si("energy")),
        hbm_phy_m2=leaf(memory.si("phy_area")),
        hbm_controller_transistors=leaf(memory.si("controller_transistors")),
        hbm_edge_m=leaf(memory.si("edge")),
        hbm_stack_m2=leaf(memory.si("stack_area")),
        hbm_standby_w=leaf(memory.si("standby")),
        scale_up_m2_per_byte_per_s=leaf(process.si("scale_up_area")),
        scale_up_edge_m_per_byte_per_s=leaf(process.si("scale_up_edge")),
        scale_up_idle_j_per_byte=leaf(process.si("scale_up_idle")),
        scale_out_m2_per_byte_per_s=leaf(process.si("scale_out_area")),
        scale_out_edge_m_per_byte_per_s=leaf(process.si("scale_out_edge")),
        fixed_m2=leaf(process.si("fixed_area")),
        die_to_die_share=leaf(process.si("die_to_die_share")),
        stacked=leaf(design.si("stacked")),
        reticle_m2=leaf(process.si("reticle")),
        interposer_margin=leaf(process.si("interposer_margin")),
        usable_edge=leaf(process.si("usable_edge")),
        matrix_energy_j_per_flop=leaf(datapath.si("matrix_energy") * energy),
        register_energy_j_per_flop_byte=leaf(datapath.si("register_energy") * energy),
        local_energy_j_per_flop_byte=leaf(datapath.si("local_energy") * energy),
        leakage_w_per_m2=leaf(process.si("leakage")),
        base_leakage_w_per_m2=leaf(process.si("base_leakage")),
        leakage_per_k=leaf(process.si("leakage_growth")),
        standby_w_per_m2=leaf(process.si("standby")),
    )


def _chip(design: Record) -> Record:
    """The catalogue's own entry of the chip, where there is one: its formats and measured ceilings."""
    return record("chips", str(design.text["chip"])) if "chip" in design.text else design


def _sustained(design: Record, precision: str) -> float:
    return _chip(design).si(f"matmul_efficiency.{precision}")


def _format_ratio(design: Record) -> list[float]:
    """Peak of each format over bf16, that of fp32 over the vector units'."""
    if "chip" not in design.text:
        return [design.si(f"format_ratio.{each}") for each in PRECISIONS]
    peaks = _chip(design)
    scale = {"fp32": design.si("matrix_per_vector")}
    return [peaks.si(f"peak.{each}") / peaks.si("peak.bf16") * scale.get(each, 1.0) for each in PRECISIONS]
