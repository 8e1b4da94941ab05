"""Network fabrics: a topology with its parts, and its representation as the two outer tiers of a network."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hwopt.catalog.load import built, leaf, positive, supported
from hwopt.errors import UserError, suggest
from hwopt.hardware.topology import Crossbar, Dragonfly, FatTree, FullMesh, Parts, Topology, Torus
from hwopt.hardware.topology.direct import Direct
from hwopt.quantity import quantities
from hwopt.types import Scalar

UNLIMITED = 1e9
"""Number of endpoints of an inner tier with nothing outside it: larger than any cluster."""


class FabricTiers(NamedTuple):
    """A fabric as the two outer tiers of `hwopt.hardware.network.Network`, in plain numbers.

    Pairs are (inner tier, outer tier). Where all chips fit into the inner tier, the outer one has the same hops and
    costs nothing. Prices include the NIC. Powers do not, because a server's `host_power` includes it.
    """

    link: str  # entry of `links`
    pod: float  # endpoints of the inner tier
    core_bandwidth_ratio: float  # bandwidth of an endpoint out of the inner tier / within it
    hops: tuple[float, float]  # maximum number of switches passed; of links crossed where there are no switches
    added_latency_s: tuple[float, float]  # compared with a path of one hop
    usd_per_endpoint: tuple[float, float]
    power_w_per_endpoint: tuple[float, float]
    dimensions: float  # axes of a torus, else 1
    crossings: float  # of an all-to-all on a torus, else 0
    links: float  # per endpoint
    switched: float  # 1; 0 where endpoints forward traffic
    switches_per_endpoint: tuple[float, float]
    switch_price_share: tuple[float, float]
    switch_power_share: tuple[float, float]


_TOPOLOGIES: Mapping[str, type[Topology]] = {
    "crossbar": Crossbar,
    "dragonfly": Dragonfly,
    "fat tree": FatTree,
    "full mesh": FullMesh,
    "torus": Torus,
}


def topology(name: str | Path) -> Topology:
    """Return the topology of a fabric.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file.

    **Raises:** `UserError` for unknown names, bad files, an unknown topology, or numbers that cannot be built.
    """
    entry = supported("fabrics", name)
    wanted = str(entry.text["topology"])
    if wanted not in _TOPOLOGIES:
        entry.refuse(f"unknown topology '{wanted}': {suggest(wanted, _TOPOLOGIES)}")
    counts = {
        field: positive(
            entry.si(str(each.key), each.default), f"fabric '{entry.slug}': {each.key}", least=1.0, most=UNLIMITED
        )
        for field, each in quantities(_TOPOLOGIES[wanted]).items()
    }
    if wanted == "fat tree" and (ports := counts["radix"] * counts["planes"]) <= 2.0:
        entry.refuse(f"a fat tree needs switches of more than 2 ports, not {ports:g}")
    if wanted == "dragonfly":
        used = counts["hosts"] + counts["routers"] - 1.0 + counts["global_links"]
        if used > counts["radix"]:
            entry.refuse(f"{used:g} ports of a router are used, but its radix is {counts['radix']:g}")
    return _TOPOLOGIES[wanted](**{field: leaf(count) for field, count in counts.items()})


def parts(name: str | Path) -> Parts:
    """Return the prices, powers and latencies of a fabric's parts: switches, cables and NICs.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file.

    **Raises:** `UserError` for unknown names, bad files, a share above 1, or a fabric of switches without their price.
    """
    entry = supported("fabrics", name)
    if not issubclass(_TOPOLOGIES.get(str(entry.text["topology"]), Topology), Direct):
        for key in ("port_price", "port_power"):
            entry.si(key)  # refuses a switched fabric that does not state it
    return built(Parts, entry)


def fabric_tiers(name: str | Path, chips: float) -> FabricTiers:
    """Return a fabric over `chips` endpoints as the two outer tiers of a network.

    The inner tier has full bandwidth within few hops. It is two levels of a fat tree (one leaf, if it is
    oversubscribed), a group of a dragonfly, or the whole torus. Its price per endpoint is that of a fabric of its size,
    `price(pod) / pod`. The outer tier has the rest of `price(chips) / chips`. Powers are split in the same way.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file; `chips` it connects.

    **Raises:** `UserError` for unknown names, bad files, a link that is not a scale-out link, or more chips than it
    connects.
    """
    entry, shape, bill = supported("fabrics", name), topology(name), parts(name)
    link = supported("links", str(entry.text["link"]))
    if link.text.get("role") != "scale_out":
        entry.refuse(f"link '{link.slug}' is not a scale-out link")
    count = positive(chips, "chips", least=1.0, most=UNLIMITED)
    if count > float(shape.largest):
        raise UserError(f"fabric '{entry.slug}' connects {float(shape.largest):,.0f} endpoints, not {count:,.0f}")
    whole = leaf(count)
    pod = min(float(shape.inner(whole)), UNLIMITED)
    inner = leaf(min(count, pod))
    hops = float(shape.worst_hops(inner)), float(shape.worst_hops(whole))
    step_s = float(bill.switch_latency_s + bill.link_latency_s)
    wired = replace(bill, nic_w=leaf(0.0))

    def split(total: Callable[[Topology, Scalar, Parts], Scalar], bought: Parts) -> tuple[float, float]:
        """Return the amount per endpoint in the inner tier, and in the outer one."""
        near, far = float(total(shape, inner, bought) / inner), float(total(shape, whole, bought) / whole)
        return near, max(far - near, 0.0) if count > pod else 0.0

    ports = split(lambda shape, ends, _: shape.switch_ports(ends), bill)
    usd, watts = split(Topology.price_usd, bill), split(Topology.power_w, wired)

    def share(port: Scalar, of: tuple[float, float]) -> tuple[float, float]:
        """Return the switches' share of a sum over both tiers; at most 1, despite rounding."""
        near, far = (min(float(port) * n / all_, 1.0) if all_ > 0.0 else 0.0 for n, all_ in zip(ports, of, strict=True))
        return near, far

    return FabricTiers(
        link=link.slug,
        pod=pod,
        core_bandwidth_ratio=float(shape.core_bandwidth_ratio),
        hops=hops,
        added_latency_s=(max(hops[0] - 1.0, 0.0) * step_s, max(hops[1] - 1.0, 0.0) * step_s),
        usd_per_endpoint=usd,
        power_w_per_endpoint=watts,
        dimensions=float(shape.dimensions),
        crossings=float(shape.crossings),
        links=float(shape.links_per_endpoint(whole)),
        switched=float(shape.switched),
        switches_per_endpoint=split(lambda shape, ends, _: shape.switches(ends), bill),
        switch_price_share=share(bill.switch_port_usd, usd),
        switch_power_share=share(bill.switch_port_w, watts),
    )
