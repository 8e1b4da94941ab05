"""What stands beside chips and network: memory pools, storage, lines between sites, and how often all of it fails."""

import math
from pathlib import Path

from hwopt.catalog.load import built, positive, supported
from hwopt.errors import UserError
from hwopt.hardware.peripherals import MemoryPool, Operation, Reliability, Sites, Storage

USUAL_LINES = "continental"

PRODUCTION, BENCHMARK = "production", "benchmark"
"""How machines are run: for weeks beside others, or for a few steps that a table prints."""


def memory_pool(name: str | Path) -> MemoryPool:
    """A second tier of memory, as each chip's share of it.

    **Arguments:** `name` of a pool (`host-pcie5`, `cxl-ddr5`, `none`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(MemoryPool, supported("pools", name))


def storage(name: str | Path, reliability: str | Path) -> Storage:
    """Storage of a cluster; where its entry says nothing of checkpoints, their rate is the fleet's.

    **Raises:** `UserError` for unknown names or bad files.
    """
    entry, fleet = supported("storages", name), supported("reliability", reliability)
    rate = entry.si("checkpoint_bandwidth", fleet.si("storage_bandwidth"))
    return built(Storage, entry, checkpoint_bytes_per_s_per_chip=rate)


def sites(count: float, lines: str | Path | None = None, chips: float = math.inf) -> Sites:
    """Sites with equal shares of a cluster, and the lines between them.

    **Arguments:** `count` of sites; `lines` by name (`metro`, `continental`), or the path of a `.toml` of the same form;
    `chips` that they share.

    **Raises:** `UserError` for unknown names, bad files, lines that nothing uses, and a number of sites that cannot be.
    """
    number = positive(count, "sites", least=1.0)
    if number != round(number) or number > chips:
        raise UserError(f"sites = {number:g} must be an integer, of no more than the {chips:,.0f} chips")
    if lines is not None and number == 1.0:
        raise UserError(f"lines = '{lines}' join sites, and there is one: sites must be 2 or more")
    return built(Sites, supported("lines", USUAL_LINES if lines is None else lines), count=number)


def reliability(name: str | Path = "fleet-mean") -> Reliability:
    """How often a fleet's chips interrupt a job, and how it recovers.

    **Arguments:** `name` of an entry (`fleet-mean`, `llama3-2024`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Reliability, supported("reliability", name))


def operation(name: str | Path = PRODUCTION) -> Operation:
    """How a machine is run.

    **Arguments:** `name` of an entry (`production`, `benchmark`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Operation, supported("operations", name))
