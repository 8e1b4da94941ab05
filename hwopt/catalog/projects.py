"""Chips in the making: a public chip's design as a start, what it would be built with, and what it would cost."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.load import leaf, supported
from hwopt.catalog.manufacture import process
from hwopt.catalog.names import names
from hwopt.catalog.schema import Record
from hwopt.catalog.silicon import chip_design
from hwopt.errors import UserError
from hwopt.hardware.chip_project import ChipProject

BASE_PROCESS = "7nm"
"""Process of dies below stacked compute dies: N6 under the N5 and N3 dies of MI300X and MI355X."""


def chip_project(
    design: str | Path,
    *,
    technology: str | Path | None = None,
    memory: str | Path | None = None,
    prices: str | Path = "default",
) -> ChipProject:
    """A chip in the making that starts as a public one.

    **Arguments:** `design` of `designs` or a path; `technology` and `memory` it is ported to, its own by default; `prices`:
    the list that says what a buyer pays over the bill of materials, and over how many chips design is paid.

    **Raises:** `UserError` for unknown names or bad files.
    """
    start, built = chip_design(design, technology=technology, memory=memory)
    held, paid = supported("designs", design), supported("prices", prices)
    return ChipProject(
        design=start,
        technology=built,
        process=process(_process(technology or str(held.text["technology"]))),
        base_process=process(BASE_PROCESS),
        compute_units=leaf(held.si("compute_units")),
        volume=leaf(paid.si("chip_volume")),
        price_over_bill=leaf(paid.si("price_over_bill")),
    )


def project_records(design: str | Path, technology: str | Path | None, memory: str | Path | None) -> list[Record]:
    """The entries behind `chip_project`, for their sources."""
    held = supported("designs", design)
    node = technology or str(held.text["technology"])
    return [
        held,
        supported("technologies", node),
        supported("memories", memory or str(held.text["memory"])),
        supported("datapaths", "default"),
        supported("processes", _process(node)),
        supported("processes", BASE_PROCESS),
    ]


def _process(technology: str | Path) -> str:
    """The process that a technology's file names, or else the one of the same name.

    **Raises:** `UserError` where there is neither.
    """
    held = supported("technologies", technology)
    if "process" not in held.text and held.slug not in names("processes"):
        raise UserError(
            f"technology '{held.slug}' does not say which process its wafers are made in: add process = \"5nm\" to its file, "
            f"a path or a name ({', '.join(names('processes'))})"
        )
    return str(held.text.get("process", held.slug))
