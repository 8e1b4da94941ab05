"""Networks: a chip's scale-up domain, and the links or the fabric outside it, as tiers with their prices."""

import math
from dataclasses import dataclass
from pathlib import Path

from hwopt.catalog.fabrics import UNLIMITED, fabric_tiers
from hwopt.catalog.load import leaf, positive, supported
from hwopt.catalog.schema import Record
from hwopt.catalog.systems import Slice
from hwopt.errors import UserError
from hwopt.hardware.network import Network

NO_TREES = 1e9
"""Latency of a tree level relative to a ring step, where the link states none: so large that only rings are used."""

NO_LEVELS = 1e9
"""Chips joined by one level of switches, where the link states none: a torus or a mesh has no switches."""


@dataclass(frozen=True)
class Outside:
    """The two tiers outside the scale-up domain, in plain SI numbers; pairs are (pod, core)."""

    link: Record
    pod: float  # chips within the inner tier
    bandwidth_bytes_per_s: tuple[float, float]  # per chip and direction
    latency_s: tuple[float, float]
    energy_j_per_byte: tuple[float, float]
    usd_per_byte_per_s: tuple[float, float]
    dimensions: float  # of a torus, else 1
    crossings: float  # of an all-to-all on a torus, else 0
    links: float  # per chip; 1 behind switches
    switches_per_port: tuple[float, float]
    switch_price_share: tuple[float, float]
    switch_power_share: tuple[float, float]


_PORTS = 3.0, 2.0
"""Switch ports per NIC port: in the inner tier, two levels of a tree of full bandwidth; in the outer tier, one more level."""


def switches_per_port(link: Record) -> tuple[float, float]:
    """Return the switches per NIC port in the inner and the outer tier; 0 where a link states no `radix`."""
    radix = link.si("radix", 0.0)
    return (_PORTS[0] / radix, _PORTS[1] / radix) if radix else (0.0, 0.0)


def _switches_share(link: Record, of: str) -> tuple[float, float]:
    """Return the switches' share of the price or the power (`of`) of both tiers.

    **Raises:** `UserError` for a share above 1.
    """
    shares = link.si(f"switch_{of}_share", 0.0), link.si(f"core_switch_{of}_share", 0.0)
    if max(shares) > 1.0:
        link.refuse(f"a share of its {of} is {max(shares):g}: it must not exceed 1")
    return shares


def scale_up_link(chip: Record, name: str | Path | None) -> Record:
    """Return the link of a chip's scale-up domain, or the specified one instead."""
    return supported("links", str(chip.text["scale_up"]) if name is None else name)


def outside(
    chip: str | Path,
    *,
    scale_out: str | Path | None = None,
    scale_out_bytes_per_s: float | None = None,
    pod: float | None = None,
    oversubscription: float | None = None,
    fabric: str | Path | None = None,
    chips: float = 1.0,
) -> Outside:
    """Return the network outside a chip's scale-up domain: its own scale-out links, others, or a fabric sized for `chips`
    endpoints.

    Without a fabric, prices, powers and latencies are the link's own, for any number of chips. Bandwidths are those of
    all links of a chip: in a torus of 3 dimensions, six times one link's.

    **Raises:** `UserError` for unknown names, numbers that are not positive, and a fabric together with a setting that
    it determines.
    """
    entry = supported("chips", chip)
    beside = {"scale_out": scale_out, "pod": pod, "oversubscription": oversubscription}
    if fabric is not None and (asked := [name for name, value in beside.items() if value is not None]):
        raise UserError(f"fabric '{fabric}' has its own {asked[0]}: remove {asked[0]} = {beside[asked[0]]}")
    counted = None if fabric is None else fabric_tiers(fabric, chips)
    own = str(entry.text["scale_out"])
    link = supported("links", counted.link if counted else (own if scale_out is None else scale_out))
    if link.text.get("role") != "scale_out":
        raise UserError(f"link '{link.slug}' is a {link.text.get('role')} link: it cannot be the scale-out network")
    direct = counted is not None and not counted.switched
    rate = entry.si("scale_out_bandwidth") if link.slug == own else link.si("bandwidth")
    rate = rate * counted.links if counted and direct else rate
    if scale_out_bytes_per_s is not None:
        rate = positive(scale_out_bytes_per_s, "scale_out_bytes_per_s")
    usual = 1.0 / counted.core_bandwidth_ratio if counted else link.si("oversubscription", 1.0)
    shared = positive(usual if oversubscription is None else oversubscription, "oversubscription")
    reach = counted.pod if counted else link.si("pod", UNLIMITED)
    reach = positive(reach if pod is None else pod, "pod", least=1.0, most=UNLIMITED)
    bandwidth = (rate, rate / shared)

    def stated(key: str) -> tuple[float, float]:
        return link.si(key), link.si(f"core_{key}", link.si(key))

    if counted is None:
        shares = [_switches_share(link, of) for of in ("price", "power")]
        return Outside(link, reach, bandwidth, stated("latency"), stated("energy"), stated("price"),
                       link.si("dimensions", 1.0), _crossings(link), link.si("links", 1.0),
                       switches_per_port(link), *shares)  # fmt: skip

    whole = link.si("bandwidth") * counted.links

    def a_byte(each: tuple[float, float]) -> tuple[float, float]:
        return each[0] / whole, each[1] / (whole / shared)

    near, far = (0.0, 0.0) if direct else counted.added_latency_s  # neighbors are one hop away
    return Outside(
        link, max(chips, 1.0) if direct else reach, bandwidth,
        (link.si("latency") + near, link.si("latency") + far),
        a_byte(counted.power_w_per_endpoint), a_byte(counted.usd_per_endpoint),
        counted.dimensions, counted.crossings, counted.links,
        (counted.switches_per_endpoint[0], counted.switches_per_endpoint[1] * shared),
        counted.switch_price_share, counted.switch_power_share,
    )  # fmt: skip


def _crossings(link: Record) -> float:
    """Return the crossings (`Topology.crossings`) of a link that is wired as a torus; 0 behind switches."""
    return 0.25 * link.si("dimensions", 0.0)


def _sharing(links: float, size: float) -> float:
    """Return the exponent q of `(n / m)^q`: the share of a chip's links that n of m chips of a direct network can use.

    Two neighbors share one of a chip's l links; all m chips share all l links: `q = ln l / ln(m / 2)`. 0 behind
    switches.
    """
    within = min(links, max(size - 1.0, 1.0))
    return math.log(within) / math.log(size / 2.0) if size > 2.0 else 0.0


def network(
    chip: str | Path,
    *,
    domain: float | None = None,
    torus: Slice | None = None,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    scale_out_bytes_per_s: float | None = None,
    pod: float | None = None,
    oversubscription: float | None = None,
    in_network_reduction: bool = False,
    fabric: str | Path | None = None,
    chips: float = 1.0,
    latency_tail_s: float | None = None,
    bandwidth_spread: float | None = None,
    operation: Record | None = None,
) -> Network:
    """Return the network around a chip: its scale-up domain, a pod of scale-out links, and the core beyond.

    **Arguments:**

    - `chip`: whose network it is.
    - `domain`: chips of the scale-up domain.
    - `torus`: the slice that is the domain instead. Its rings without wraparound halve the efficiency of their share of the
      links, its longest side slows an all-to-all; steps of rings are those of equal sides.
    - `scale_up`, `scale_out`: links instead of the chip's own, at the links' own rate.
    - `scale_out_bytes_per_s`: per chip and direction.
    - `pod`: chips below the core.
    - `oversubscription` of the core (7 in the cluster that trained Llama 3 405B).
    - `in_network_reduction`: all-reduces use the switches (NVLS, SHARP) where the link supports it.
    - `fabric`: instead of a link, a topology whose switches, cables and hops are counted for `chips` endpoints.
    - `latency_tail_s`, `bandwidth_spread`: jitter of the tiers outside the domain, instead of the link's.
    - `operation`: entry with the jitter of links that state none.

    **Raises:** `UserError` for unknown names and numbers that are not positive.
    """
    entry = supported("chips", chip)
    inner = scale_up_link(entry, scale_up)
    own_inner = inner.slug == entry.text["scale_up"]
    outer = outside(
        chip, scale_out=scale_out, scale_out_bytes_per_s=scale_out_bytes_per_s, pod=pod,
        oversubscription=oversubscription, fabric=fabric, chips=chips,
    )  # fmt: skip
    if domain is not None and torus is not None:
        raise UserError(f"domain = {domain:g}: slice {torus.shape} has {torus.chips} chips: remove one of them")
    whole = entry.si("scale_up_domain") if torus is None else torus.chips
    size = positive(whole if domain is None else domain, "domain", least=1.0, most=UNLIMITED)
    inside = entry.si("scale_up_bandwidth", inner.si("bandwidth")) if own_inner else inner.si("bandwidth")
    efficiency = entry.si("scale_up_efficiency", inner.si("efficiency")) if own_inner else inner.si("efficiency")
    efficiency, far = (efficiency, 1.0) if torus is None else (efficiency * torus.ring_share, torus.elongation)
    pod_size = max(outer.pod, size)
    each = (inner, outer.link, outer.link)
    reduction = [link.si("reduction_factor", 1.0) for link in each]
    if in_network_reduction:
        reduction = [link.si("in_network_reduction", plain) for link, plain in zip(each, reduction, strict=True)]
    tail = _jitter("latency_tail_s", latency_tail_s, outer.link, operation)
    spread = _jitter("bandwidth_spread", bandwidth_spread, outer.link, operation)
    # A tree needs direct paths between any two chips: networks wired to neighbors only have rings only.
    pod_tree = NO_TREES if outer.links > 1.0 else outer.link.si("tree_step", NO_TREES)
    if spread > 1.0:
        raise UserError(f"bandwidth_spread = {spread:g} must not exceed 1: bandwidths would be negative")
    return Network(
        size=leaf([size, pod_size]),
        bandwidth_bytes_per_s=leaf([inside, *outer.bandwidth_bytes_per_s]),
        lane_bytes_per_s=leaf([inner.si("lane", inside), outer.link.si("lane", outer.link.si("bandwidth"))]),
        efficiency=leaf([efficiency, outer.link.si("efficiency"), outer.link.si("efficiency")]),
        latency_s=leaf([inner.si("latency"), *outer.latency_s]),
        ramp=leaf([link.si("ramp", 0.0) for link in each]),
        reduction_factor=leaf(reduction),
        dimensions=leaf([inner.si("dimensions", 1.0), outer.dimensions, 1.0]),
        links=leaf([inner.si("links", 1.0), outer.links]),
        sharing=leaf([_sharing(inner.si("links", 1.0), size), _sharing(outer.links, pod_size / size)]),
        crossings=leaf([far * _crossings(inner), outer.crossings]),
        tree_step=leaf([inner.si("tree_step", NO_TREES), pod_tree, outer.link.si("tree_step", NO_TREES)]),
        latency_tail_s=leaf([inner.si("latency_tail", 0.0), tail, tail]),
        bandwidth_spread=leaf([inner.si("bandwidth_spread", 0.0), spread, spread]),
        level_chips=leaf(inner.si("level_chips", NO_LEVELS)),
        level_latency_s=leaf(inner.si("level_latency", 0.0)),
        flat_rings=leaf(entry.si("flat_rings", 0.0)),
        switches_per_port=leaf([0.0, *outer.switches_per_port]),
        switch_price_share=leaf([0.0, *outer.switch_price_share]),
        switch_power_share=leaf([0.0, *outer.switch_power_share]),
        energy_j_per_byte=leaf([inner.si("energy"), *outer.energy_j_per_byte]),
    )


def _jitter(name: str, asked: float | None, link: Record, operation: Record | None) -> float:
    """Return a jitter parameter: the specified one (0 or more), else the link's, else that of the machine's operation."""
    if asked is None:
        key = name.removesuffix("_s")
        return link.si(key, 0.0 if operation is None else operation.si(key))
    return 0.0 if asked == 0 else positive(asked, name)
