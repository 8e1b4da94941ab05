"""Parametric chips: a public chip's design as the starting point, with its process, memory generation, foundry and prices."""

from pathlib import Path

from hwopt.catalog.load import built, record, supported
from hwopt.catalog.names import names
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.hardware.chip_project import ChipDesign, ChipProject
from hwopt.hardware.process import Process
from hwopt.hardware.technology import Technology
from hwopt.types import PRECISIONS

_BASE_PROCESS = "7nm"
"""Process of base dies below stacked compute dies: N6 under the N5 and N3 dies of MI300X and MI355X."""


def technology(
    name: str | Path,
    *,
    memory: str | Path | None = None,
    template: str | Path | None = None,
    datapath: str | Path = "default",
) -> Technology:
    """Return a silicon process with a memory generation, for chips laid out like a public chip.

    The clock is scaled from the template's: `clock x speed / speed of the template's own process`.

    **Arguments:**

    - `name`: an entry of `technologies`, or a path.
    - `memory`: an entry of `memories`; by default the one that the technology's file names.
    - `template`: an entry of `designs`; by default the one that the technology's file names. Its units, registers,
      local memory, formats and efficiencies are kept.
    - `datapath`: energy and transistor constants per FLOP/clk.

    **Raises:** `UserError` for an unknown name, a bad file, or a template that cannot be modeled.
    """
    node = supported("technologies", name)
    stacks = supported("memories", memory or str(node.text["memory"]))
    return _technology(node, stacks, supported("designs", template or str(node.text["template"])), datapath)


def chip_design(
    name: str | Path, *, technology: str | Path | None = None, memory: str | Path | None = None
) -> tuple[ChipDesign, Technology]:
    """Return a public chip as a parametric design, with the technology that it is built in.

    Its compute area is the published die area minus all other blocks: last-level memory, every PHY on the die, links,
    fixed blocks and fabric. The clock is the one its pipelines reach in the technology.

    **Arguments:** `name` of `designs`, or a path; another `technology` or `memory` ports the same areas to it.

    **Returns:** a starting point for an optimizer, and the technology.

    **Raises:** `UserError` for an unknown name, a bad file, a chip that cannot be modeled, or a die that its memory and
    links fill completely.
    """
    entry = supported("designs", name)
    home = _technology(*_parts(entry), entry)
    node = _technology(*_parts(entry, technology, memory), entry)
    design = built(
        ChipDesign, entry, compute_area_m2=_compute_area(entry, home), clock_hz=node.nominal_clock_hz,
        power_cap_w=entry.si("tdp"),
    )  # fmt: skip
    return design, node


def _parts(
    design: Record, technology: str | Path | None = None, memory: str | Path | None = None
) -> tuple[Record, Record]:
    """Return the process node and memory of a design: the specified ones, or by default those the chip was built with."""
    return (
        supported("technologies", technology or str(design.text["technology"])),
        supported("memories", memory or str(design.text["memory"])),
    )


def _compute_area(design: Record, home: Technology) -> float:
    """Return the compute area of a published die: the area formula of `hwopt.model.chip.silicon.areas`, solved for that
    area.
    """
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
        design.refuse(f"memory and link interfaces fill all of its {die * 1e6:g} mm2 of silicon")
    return float(compute)


def _technology(node: Record, memory: Record, design: Record, datapath: str | Path = "default") -> Technology:
    home, units = supported("technologies", str(design.text["technology"])), supported("datapaths", datapath)
    # A catalog entry of the chip has its formats and measured efficiencies.
    peaks = record("chips", str(design.text["chip"])) if "chip" in design.text else design
    energy = node.si("energy")
    return built(
        Technology, {"": node, "memory": memory, "design": design, "datapath": units},
        nominal_clock_hz=design.si("clock") * node.si("speed") / home.si("speed"),
        format_ratio=[_format_ratio(design, peaks, each) for each in PRECISIONS],
        matmul_efficiency=[peaks.si(f"matmul_efficiency.{each}") for each in PRECISIONS],
        matrix_energy_j_per_flop=units.si("matrix_energy") * energy,
        register_energy_j_per_flop_byte=units.si("register_energy") * energy,
        local_energy_j_per_flop_byte=units.si("local_energy") * energy,
    )  # fmt: skip


def _format_ratio(design: Record, peaks: Record, precision: str) -> float:
    """Return the peak of a format over that of bf16; for fp32 over the vector units' peak."""
    if peaks is design:
        return design.si(f"format_ratio.{precision}")
    scale = design.si("matrix_per_vector") if precision == "fp32" else 1.0
    return peaks.si(f"peak.{precision}") / peaks.si("peak.bf16") * scale


def process(name: str | Path) -> Process:
    """Return a silicon process with its packaging line.

    **Arguments:** `name` of an entry of `processes`, such as `5nm`, or the path of a `.toml` file.

    **Raises:** `UserError` for an unknown name, a bad file, a yield above 1, or an edge exclusion that leaves no wafer.
    """
    entry = supported("processes", name)
    rim, diameter = entry.si("edge_exclusion"), entry.si("wafer_diameter")
    if 2.0 * rim >= diameter:
        entry.refuse(f"an 'edge_exclusion' of {rim:g} m leaves no usable area of a wafer of {diameter:g} m")
    return built(Process, entry)


def chip_project(
    design: str | Path,
    *,
    technology: str | Path | None = None,
    memory: str | Path | None = None,
    prices: str | Path = "default",
) -> ChipProject:
    """Return a custom chip project that starts from a public chip's design.

    **Arguments:**

    - `design`: an entry of `designs`, or a path.
    - `technology`, `memory`: what it is ported to; its own by default.
    - `prices`: the price list with the buyer's markup on the bill of materials and the number of chips that pay for the
      design.

    **Raises:** `UserError` for unknown names or bad files.
    """
    start, node = chip_design(design, technology=technology, memory=memory)
    entry, paid = supported("designs", design), supported("prices", prices)
    return built(
        ChipProject, {"": paid, "design": entry}, design=start, technology=node,
        process=process(_process(_parts(entry, technology)[0])), base_process=process(_BASE_PROCESS),
    )  # fmt: skip


def project_records(design: str | Path, technology: str | Path | None, memory: str | Path | None) -> dict[str, Record]:
    """Return the catalog entries behind `chip_project`, by role (`design`, `technology`, `memory`, ...)."""
    start = supported("designs", design)
    node, stacks = _parts(start, technology, memory)
    return {
        "design": start,
        "technology": node,
        "memory": stacks,
        "datapath": supported("datapaths", "default"),
        "process": supported("processes", _process(node)),
        "base_process": supported("processes", _BASE_PROCESS),
    }


def _process(technology: Record) -> str:
    """Return the process that a technology's file names, or else the process of the same name.

    **Raises:** `UserError` where there is neither.
    """
    if "process" not in technology.text and technology.slug not in names("processes"):
        raise UserError(
            f"technology '{technology.slug}' does not state the process of its wafers: add process = \"5nm\" to its "
            f"file, a path or a name ({', '.join(names('processes'))})"
        )
    return str(technology.text.get("process", technology.slug))
