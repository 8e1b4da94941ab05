"""Silicon processes of the catalogue as modules of the model."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.load import leaf, supported
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.hardware.process import Process

_KEYS = {
    "wafer_usd": "wafer_price",
    "wafer_diameter_m": "wafer_diameter",
    "edge_exclusion_m": "edge_exclusion",
    "scribe_m": "scribe",
    "defects_per_m2": "defect_density",
    "clustering": "clustering",
    "nre_usd": "nre",
    "sort_usd_per_m2": "sort_cost",
    "test_usd_per_m2": "test_cost",
    "interposer_wafer_usd": "interposer_wafer_price",
    "interposer_defects_per_m2": "interposer_defect_density",
    "interposer_clustering": "interposer_clustering",
    "substrate_usd_per_m2": "substrate_cost",
    "assembly_usd_per_part": "assembly_cost",
    "die_bond_yield": "die_bond_yield",
    "stack_bond_yield": "stack_bond_yield",
    "substrate_yield": "substrate_yield",
    "hbm_usd_per_byte": "hbm_price",
    "fab_energy_j_per_m2": "fab_energy",
    "fab_gases_kg_per_m2": "fab_gases",
    "fab_materials_kg_per_m2": "fab_materials",
    "fab_carbon_kg_per_j": "fab_carbon",
    "fab_yield": "fab_yield",
    "package_carbon_kg_per_m2": "package_carbon",
    "hbm_carbon_kg_per_byte": "hbm_carbon",
}
"""Field of `Process` -> key of its data file."""

_SHARES = ("die_bond_yield", "stack_bond_yield", "substrate_yield", "fab_yield")


def process(name: str | Path) -> Process:
    """A silicon process with its packaging line.

    **Arguments:** `name` of an entry of `processes`, such as `5nm`, or the path of a `.toml` file.

    **Raises:** `UserError` for an unknown name, a bad file, a yield above 1, or a rim that leaves no wafer.
    """
    held = supported("processes", name)
    _check(held)
    return Process(**{field: leaf(held.si(key)) for field, key in _KEYS.items()})


def _check(held: Record) -> None:
    for key in _SHARES:
        if held.si(key) > 1.0:
            raise UserError(f"process '{held.slug}': '{key}' = {held.si(key):g} is a share: it must not be above 1")
    rim, diameter = 2.0 * held.si("edge_exclusion"), held.si("wafer_diameter")
    if rim >= diameter:
        raise UserError(
            f"process '{held.slug}': an 'edge_exclusion' of {0.5 * rim:g} m leaves nothing of a wafer of {diameter:g} m"
        )
