"""Fabrics: a topology and its parts, and how both appear as the two outer tiers of a network."""

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
"""Endpoints of an inner tier with nothing outside it: more than anyone has."""


class FabricTiers(NamedTuple):
    """A fabric as the two outer tiers of `hwopt.hardware.network.Network`, in plain numbers.

    Pairs are (inner tier, outer tier). Where all chips fit the inner one, the outer one repeats its hops and costs nothing.
    Prices have the NIC in them; powers do not, as a server's `host_power` has it.
    """

    link: str  # entry of `links`
    pod: float  # endpoints of the inner tier
    core_bandwidth_ratio: float  # of an endpoint's bandwidth out of the inner tier over that within
    hops: tuple[float, float]  # most switches passed; links crossed where there are none
    added_latency_s: tuple[float, float]  # over a path of one hop
    usd_per_endpoint: tuple[float, float]
    power_w_per_endpoint: tuple[float, float]
    dimensions: float  # axes of a torus, else 1
    crossings: float  # of an all-to-all on a torus, else 0
    links: float  # of an endpoint
    switched: float  # 1, or 0 where endpoints pass traffic on
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
    """The topology of a fabric.

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
    """What a fabric is built of.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file.

    **Raises:** `UserError` for unknown names, bad files, a share above 1, or a fabric of switches without their price.
    """
    entry = supported("fabrics", name)
    if not issubclass(_TOPOLOGIES.get(str(entry.text["topology"]), Topology), Direct):
        for key in ("port_price", "port_power"):
            entry.si(key)  # which nothing stands for where there are switches
    return built(Parts, entry)


def fabric_tiers(name: str | Path, chips: float) -> FabricTiers:
    """How a fabric over `chips` endpoints appears as the two outer tiers of a network.

    The inner tier is what has full bandwidth within few hops: two levels of a fat tree (a leaf, where it is oversubscribed),
    a group of a dragonfly, all of a torus. Its price is that of the fabric cut off there, `price(pod) / pod`; the rest
    of `price(chips) / chips` is the outer tier's. Powers likewise.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file; `chips` it connects.

    **Raises:** `UserError` for unknown names, bad files, a link that is no scale-out link, or more chips than it connects.
    """
    entry, shape, bill = supported("fabrics", name), topology(name), parts(name)
    link = supported("links", str(entry.text["link"]))
    if link.text.get("role") != "scale_out":
        entry.refuse(f"link '{link.slug}' is no scale-out link")
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
        """What an endpoint has of the inner tier, and of the rest."""
        near, far = float(total(shape, inner, bought) / inner), float(total(shape, whole, bought) / whole)
        return near, max(far - near, 0.0) if count > pod else 0.0

    ports = split(lambda shape, ends, _: shape.switch_ports(ends), bill)
    usd, watts = split(Topology.price_usd, bill), split(Topology.power_w, wired)

    def share(port: Scalar, of: tuple[float, float]) -> tuple[float, float]:
        """What switches are of a sum over both tiers; at most all of it, whatever rounding says."""
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
