"""Fabrics: a topology and its parts, and how both appear as the two outer tiers of a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hwopt.catalog.load import leaf, positive, supported
from hwopt.catalog.schema import Record
from hwopt.errors import UserError, suggest
from hwopt.hardware.topology import Crossbar, Dragonfly, FatTree, FullMesh, Parts, Topology, Torus

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
    links: float  # of an endpoint
    switched: float  # 1, or 0 where endpoints pass traffic on


def _count(held: Record, key: str, default: float | None = None) -> np.ndarray:
    return leaf(positive(held.si(key, default), f"fabric '{held.slug}': {key}", least=1.0, most=UNLIMITED))


def _crossbar(held: Record) -> Topology:
    return Crossbar(radix=_count(held, "radix"), planes=_count(held, "planes", 1.0))


def _fat_tree(held: Record) -> Topology:
    radix, planes = _count(held, "radix"), _count(held, "planes", 1.0)
    if radix * planes <= 2.0:
        raise UserError(f"fabric '{held.slug}': a fat tree needs switches of more than 2 ports, not {radix * planes:g}")
    return FatTree(
        radix=radix,
        oversubscription=_count(held, "oversubscription", 1.0),
        rails=_count(held, "rails", 1.0),
        planes=planes,
    )


def _dragonfly(held: Record) -> Topology:
    hosts, routers, beyond = (_count(held, key) for key in ("hosts", "routers", "global_links"))
    radix, used = _count(held, "radix"), hosts + routers - 1.0 + beyond
    if used > radix:
        raise UserError(f"fabric '{held.slug}': {used:g} ports of a router are used, but its radix is {radix:g}")
    return Dragonfly(hosts=hosts, routers=routers, global_links=beyond, radix=radix)


def _torus(held: Record) -> Topology:
    return Torus(axes=_count(held, "dimensions"))


def _full_mesh(held: Record) -> Topology:
    return FullMesh(ports=_count(held, "ports"))


_TOPOLOGIES = {
    "crossbar": _crossbar,
    "dragonfly": _dragonfly,
    "fat tree": _fat_tree,
    "full mesh": _full_mesh,
    "torus": _torus,
}


def topology(name: str | Path) -> Topology:
    """The topology of a fabric.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file.

    **Raises:** `UserError` for unknown names, bad files, an unknown topology, or numbers that cannot be built.
    """
    held = supported("fabrics", name)
    wanted = str(held.text["topology"])
    if wanted not in _TOPOLOGIES:
        raise UserError(f"fabric '{held.slug}': unknown topology '{wanted}': {suggest(wanted, _TOPOLOGIES)}")
    return _TOPOLOGIES[wanted](held)


def parts(name: str | Path) -> Parts:
    """What a fabric is built of.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file.

    **Raises:** `UserError` for unknown names, bad files, a share above 1, or a fabric of switches without their price.
    """
    held = supported("fabrics", name)
    for key in ("host_copper", "local_copper", "global_copper"):
        if held.si(key) > 1.0:
            raise UserError(f"fabric '{held.slug}': '{key}' = {held.si(key):g} is no share of a whole")
    none = 0.0 if held.text["topology"] in ("torus", "full mesh") else None
    return Parts(
        switch_port_usd=leaf(held.si("port_price", none)),
        switch_port_w=leaf(held.si("port_power", none)),
        copper_cable_usd=leaf(held.si("copper_price")),
        copper_cable_w=leaf(held.si("copper_power")),
        optical_link_usd=leaf(held.si("optical_price")),
        optical_link_w=leaf(held.si("optical_power")),
        nic_usd=leaf(held.si("nic_price")),
        nic_w=leaf(held.si("nic_power")),
        host_copper_share=leaf(held.si("host_copper")),
        local_copper_share=leaf(held.si("local_copper")),
        global_copper_share=leaf(held.si("global_copper")),
        switch_latency_s=leaf(held.si("switch_latency")),
        link_latency_s=leaf(held.si("link_latency")),
        endpoint_latency_s=leaf(held.si("endpoint_latency")),
    )


def fabric_tiers(name: str | Path, chips: float) -> FabricTiers:
    """How a fabric over `chips` endpoints appears as the two outer tiers of a network.

    The inner tier is what has full bandwidth within few hops: two levels of a fat tree (a leaf, where it is oversubscribed),
    a group of a dragonfly, all of a torus. Its price is that of the fabric cut off there, `price(pod) / pod`; the rest
    of `price(chips) / chips` is the outer tier's. Powers likewise.

    **Arguments:** `name` of a fabric, or the path of a `.toml` file; `chips` it connects.

    **Raises:** `UserError` for unknown names, bad files, a link that is no scale-out link, or more chips than it connects.
    """
    held, shape, built = supported("fabrics", name), topology(name), parts(name)
    link = supported("links", str(held.text["link"]))
    if link.text.get("role") != "scale_out":
        raise UserError(f"fabric '{held.slug}': link '{link.slug}' is no scale-out link")
    count = positive(chips, "chips", least=1.0, most=UNLIMITED)
    if count > float(shape.largest):
        raise UserError(f"fabric '{held.slug}' connects {float(shape.largest):,.0f} endpoints, not {count:,.0f}")
    whole = leaf(count)
    pod = min(float(shape.inner(whole)), UNLIMITED)
    inner = leaf(min(count, pod))
    hops = (float(shape.worst_hops(inner)), float(shape.worst_hops(whole)))
    step_s = float(built.switch_latency_s + built.link_latency_s)
    wired = replace(built, nic_w=leaf(0.0))
    usd = float(shape.price_usd(inner, built) / inner), float(shape.price_usd(whole, built) / whole)
    power_w = float(shape.power_w(inner, wired) / inner), float(shape.power_w(whole, wired) / whole)
    return FabricTiers(
        link=link.slug,
        pod=pod,
        core_bandwidth_ratio=float(shape.core_bandwidth_ratio),
        hops=hops,
        added_latency_s=(max(hops[0] - 1.0, 0.0) * step_s, max(hops[1] - 1.0, 0.0) * step_s),
        usd_per_endpoint=(usd[0], _rest(usd, count > pod)),
        power_w_per_endpoint=(power_w[0], _rest(power_w, count > pod)),
        dimensions=float(shape.dimensions),
        links=float(shape.links_per_endpoint(whole)),
        switched=float(shape.switched),
    )


def is_torus(name: str | Path) -> bool:
    """Whether a fabric's bytes travel along axes, so that an all-to-all crosses many links."""
    return isinstance(topology(name), Torus)


def _rest(inner_and_whole: tuple[float, float], reaches_beyond: bool) -> float:
    inner, whole = inner_and_whole
    return max(whole - inner, 0.0) if reaches_beyond else 0.0
