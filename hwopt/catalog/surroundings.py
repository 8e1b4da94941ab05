"""What stands beside chips and network: memory pools, storage, lines between sites."""

from __future__ import annotations

import math
from pathlib import Path

from hwopt.catalog.load import leaf, positive, supported
from hwopt.errors import UserError
from hwopt.hardware.memory_pool import MemoryPool
from hwopt.hardware.sites import Sites
from hwopt.hardware.storage import Storage


def memory_pool(name: str | Path) -> MemoryPool:
    """A second tier of memory, as each chip's share of it.

    **Arguments:** `name` of a pool (`host-pcie5`, `cxl-ddr5`, `none`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    held = supported("pools", name)
    return MemoryPool(
        capacity_bytes=leaf(held.si("capacity")),
        bandwidth_bytes_per_s=leaf(held.si("bandwidth")),
        update_bandwidth_bytes_per_s=leaf(held.si("update_bandwidth")),
        power_w_per_byte=leaf(held.si("power")),
        energy_j_per_byte=leaf(held.si("energy")),
        usd_per_byte=leaf(held.si("price")),
        usd_per_byte_per_s=leaf(held.si("bandwidth_price")),
        carbon_kg_per_byte=leaf(held.si("carbon")),
    )


def storage(name: str | Path, reliability: str | Path) -> Storage:
    """Storage of a cluster; where its entry says nothing of checkpoints, their rate is the fleet's.

    **Raises:** `UserError` for unknown names or bad files.
    """
    held, fleet = supported("storages", name), supported("reliability", reliability)
    return Storage(
        checkpoint_bytes_per_s_per_chip=leaf(held.si("checkpoint_bandwidth", fleet.si("storage_bandwidth"))),
        input_bytes_per_s_per_chip=leaf(held.si("input_bandwidth")),
    )


USUAL_LINES = "continental"


def sites(count: float, lines: str | Path | None = None, chips: float = math.inf) -> Sites:
    """Sites with equal shares of a cluster, and the lines between them.

    **Arguments:** `count` of sites; `lines` by name (`metro`, `continental`), or the path of a `.toml` of the same form;
    `chips` that they share.

    **Raises:** `UserError` for unknown names, bad files, lines that nothing uses, and a number of sites that cannot be.
    """
    number = positive(count, "sites", least=1.0)
    if number != round(number) or number > chips:
        raise UserError(f"sites = {number:g} must be a whole number, of no more than the {chips:,.0f} chips")
    if lines is not None and number == 1.0:
        raise UserError(f"lines = '{lines}' join sites, and there is one: sites must be 2 or more")
    held = supported("lines", USUAL_LINES if lines is None else lines)
    for share in ("efficiency", "overlap"):
        if held.si(share) > 1.0:
            raise UserError(f"line '{held.slug}': '{share}' = {held.si(share):g} must not exceed 1")
    return Sites(
        count=leaf(number),
        bandwidth_bytes_per_s=leaf(held.si("bandwidth")),
        latency_s=leaf(held.si("latency")),
        efficiency=leaf(held.si("efficiency")),
        bytes_per_parameter=leaf(held.si("bytes_per_parameter")),
        overlap=leaf(held.si("overlap")),
        lease_usd_per_byte=leaf(held.si("lease")),
        fixed_usd=leaf(held.si("site_price")),
    )
