"""What stands beside chips and network: memory pools, storage, lines between sites, and how often all of it fails."""

import math
from pathlib import Path

from hwopt.catalog.fields import CAUSES
from hwopt.catalog.load import built, leaf, positive, supported
from hwopt.catalog.networks import switches_per_port
from hwopt.errors import UserError
from hwopt.hardware.deployment import Deployment
from hwopt.hardware.peripherals import MemoryPool, Operation, Recovery, Reliability, Sites, Spot, Storage
from hwopt.validation import number_of

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


_CAUSES_OF = "llama3-2024"
"""The fleet whose interruptions are published by cause, in counts: for fleets that state no causes."""

_COUNTED_IN = "air"
"""Cooling of the fleets whose loops were counted."""


def reliability(name: str | Path = "fleet-mean") -> Reliability:
    """How often the parts of a machine interrupt a job, and how it recovers.

    A fleet publishes interruptions a chip-hour, f, on a machine that it names, and sometimes their causes. A part's rate is
    `f share / parts a chip` of that machine; where no causes are stated they are Llama 3's. Switches that nothing is known of count
    with their links.

    **Arguments:** `name` of an entry (`fleet-mean`, `llama3-2024`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = supported("reliability", name)
    split = entry if f"causes.{CAUSES[0]}" in entry.quantities else supported("reliability", _CAUSES_OF)
    counts = {cause: split.si(f"causes.{cause}") for cause in CAUSES}
    if sum(counts.values()) == 0.0:
        split.refuse("all of 'causes' are 0: something must fail")
    share = {cause: entry.si("failures") * count / sum(counts.values()) for cause, count in counts.items()}
    chip = supported("chips", str(entry.text.get("counted_on", "h100-sxm")))
    link = supported("links", str(chip.text["scale_out"]))
    server, ports = chip.si("server_chips"), chip.si("scale_out_bandwidth") / link.si("lane")
    rack_chips = entry.si("rack_chips", split.si("rack_chips"))
    near, core = switches_per_port(link)
    switches = ports * (near + core / entry.si("oversubscription", link.si("oversubscription", 1.0)))
    if not switches:
        share["links"] += share["switches"]
    return built(
        Reliability, entry,
        die_failures_per_m2_s=share["dies"] / chip.si("heat_area", chip.si("die_area")),
        stack_failures_per_s=share["stacks"] / chip.si("memory_stacks"),
        host_failures_per_s=share["hosts"] * server,
        link_failures_per_s=share["links"] / ports,
        switch_failures_per_s=share["switches"] / switches if switches else 0.0,
        rack_failures_per_s=share["racks"] * rack_chips,
        loop_failures_per_s=share["cooling"] * rack_chips * supported("cooling", _COUNTED_IN).si("loop_racks"),
        software_failures_per_chip_s=share["software"],
    )  # fmt: skip


def recovery(name: str | Path = "from-storage") -> Recovery:
    """How a job goes on after a failure.

    **Arguments:** `name` of an entry (`from-storage`, `hot-spares`, `in-memory`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Recovery, supported("recoveries", name))


def deployment(name: str | Path = "us-2026") -> Deployment:
    """A market in which machines are built, housed or rented.

    **Arguments:** `name` of an entry, or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Deployment, supported("deployments", name))


def operation(name: str | Path = PRODUCTION) -> Operation:
    """How a machine is run.

    **Arguments:** `name` of an entry (`production`, `benchmark`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Operation, supported("operations", name))


def spot(every_s: float, return_s: float, discount: float, group_chips: float) -> Spot:
    """Chips that may be taken away, as their landlord describes them; no default stands for any market.

    **Arguments:** mean seconds until a group of `group_chips` is taken away, and until it is back; the `discount`, below 1.

    **Raises:** `UserError` for what is not above zero, and for a discount beyond 0 to 1.
    """
    if not 0.0 <= number_of("spot: discount", discount) < 1.0:
        raise UserError(f"spot: discount = {discount:g} must be 0 or more and below 1 (60 % off: 0.6)")
    positive_of = {"every_s": every_s, "return_s": return_s, "group_chips": group_chips}
    values = {name: leaf(positive(value, f"spot: {name}", least=1e-9)) for name, value in positive_of.items()}
    return Spot(**values, discount=leaf(discount))
