"""Read catalog entries on everything around chips and network.

They cover memory pools, storage, links between sites, failures and recovery. Further ones are the market of a machine, spot
chips, and operating conditions such as stalls and stragglers.
"""

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
"""Operating modes of a machine: shared production over weeks, or a short benchmark run as published tables report."""


def memory_pool(name: str | Path) -> MemoryPool:
    """Return a second tier of memory, with the share of one chip.

    **Arguments:** `name` of a pool (`host-pcie5`, `cxl-ddr5`, `none`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(MemoryPool, supported("pools", name))


def storage(name: str | Path, reliability: str | Path) -> Storage:
    """Return the storage of a cluster. An entry without a checkpoint bandwidth uses that of the fleet in `reliability`.

    **Raises:** `UserError` for unknown names or bad files.
    """
    entry, fleet = supported("storages", name), supported("reliability", reliability)
    rate = entry.si("checkpoint_bandwidth", fleet.si("storage_bandwidth"))
    return built(Storage, entry, checkpoint_bytes_per_s_per_chip=rate)


def sites(count: float, lines: str | Path | None = None, chips: float = math.inf) -> Sites:
    """Return the sites that share a cluster in equal parts, and the lines between them.

    **Arguments:** `count` of sites; `lines` by name (`metro`, `continental`), or the path of a `.toml` of the same
    form; `chips` of the whole cluster.

    **Raises:** `UserError` for unknown names, bad files, lines of a single site, and a count that is not an integer
    from 1 to `chips`.
    """
    number = positive(count, "sites", least=1.0)
    if number != round(number) or number > chips:
        raise UserError(f"sites = {number:g} must be an integer of at most the {chips:,.0f} chips")
    if lines is not None and number == 1.0:
        raise UserError(f"lines = '{lines}' connects sites, but there is only one: set sites to 2 or more")
    return built(Sites, supported("lines", USUAL_LINES if lines is None else lines), count=number)


_CAUSES_OF = "llama3-2024"
"""Fleet whose interruptions are published by cause, as counts; used for fleets that publish no causes."""

_COUNTED_IN = "air"
"""Cooling of the fleets whose coolant-loop failures were counted."""


def reliability(name: str | Path = "fleet-mean") -> Reliability:
    """Return the failure rates of the parts of a machine.

    A fleet publishes interruptions per chip-hour, f, on a known machine, and sometimes their causes. The rate of a part
    is `f share / parts per chip` of that machine. Fleets without published causes have the shares of Llama 3's fleet.
    Switch failures count as link failures where the number of switches is unknown.

    **Arguments:** `name` of an entry (`fleet-mean`, `llama3-2024`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = supported("reliability", name)
    split = entry if f"causes.{CAUSES[0]}" in entry.quantities else supported("reliability", _CAUSES_OF)
    counts = {cause: split.si(f"causes.{cause}") for cause in CAUSES}
    if sum(counts.values()) == 0.0:
        split.refuse("all of 'causes' are 0: at least one must be above zero")
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
    """Return how a job recovers from a failure.

    **Arguments:** `name` of an entry (`from-storage`, `hot-spares`, `in-memory`), or the path of a `.toml` of the same
    form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Recovery, supported("recoveries", name))


def deployment(name: str | Path = "us-2026") -> Deployment:
    """Return a market in which machines are built, housed or rented.

    **Arguments:** `name` of an entry, or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Deployment, supported("deployments", name))


def operation(name: str | Path = PRODUCTION) -> Operation:
    """Return the operating conditions of a machine.

    **Arguments:** `name` of an entry (`production`, `benchmark`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Operation, supported("operations", name))


def spot(every_s: float, return_s: float, discount: float, group_chips: float) -> Spot:
    """Return the preemption terms of spot chips. There is no default, because markets differ.

    **Arguments:**

    - `every_s`: mean seconds until a group of `group_chips` chips is preempted.
    - `return_s`: mean seconds until it is available again.
    - `discount`: on the price, from 0 to below 1.
    - `group_chips`: chips preempted together.

    **Raises:** `UserError` for a discount outside 0 to 1, and for any other value that is not positive.
    """
    if not 0.0 <= number_of("spot: discount", discount) < 1.0:
        raise UserError(f"spot: discount = {discount:g} must be at least 0 and below 1, such as 0.6 for 60 %")
    positive_of = {"every_s": every_s, "return_s": return_s, "group_chips": group_chips}
    values = {name: leaf(positive(value, f"spot: {name}", least=1e-9)) for name, value in positive_of.items()}
    return Spot(**values, discount=leaf(discount))
