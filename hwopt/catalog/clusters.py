"""What surrounds chips: network, building, prices, and the whole as a `Cluster`."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.calibrations import CALIBRATED, calibration, with_constants
from hwopt.catalog.chips import architecture, default_stack
from hwopt.catalog.chips import chip as _chip
from hwopt.catalog.chips import stack as _stack
from hwopt.catalog.facilities import cooling as _cooling
from hwopt.catalog.facilities import default_cooling, facility
from hwopt.catalog.facilities import rack as _rack
from hwopt.catalog.load import leaf, positive, record, supported
from hwopt.catalog.reliability import reliability as _reliability
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.network import Network
from hwopt.hardware.prices import Prices

UNLIMITED = 1e9
"""Chips of a pod where the link names no limit: more than anyone has."""


def _links(held: Record, scale_up: str | Path | None, scale_out: str | Path | None) -> tuple[Record, Record]:
    """The links of a chip, or the ones asked for instead."""
    inner = supported("links", str(held.text["scale_up"]) if scale_up is None else scale_up)
    outer = supported("links", str(held.text["scale_out"]) if scale_out is None else scale_out)
    if outer.text.get("role") != "scale_out":
        raise UserError(f"link '{outer.slug}' is a {outer.text.get('role')} link: it cannot be the scale-out network")
    return inner, outer


def network(
    chip: str | Path,
    *,
    domain: float | None = None,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    scale_out_bytes_per_s: float | None = None,
    pod: float | None = None,
    oversubscription: float | None = None,
    in_network_reduction: bool = False,
) -> Network:
    """The network around a chip: its scale-up domain, a non-blocking pod of scale-out links, the core beyond it.

    **Arguments:** `chip`; `domain` chips of the scale-up domain; `scale_up`, `scale_out`: links instead of the
    chip's own, at the links' own rate; `scale_out_bytes_per_s` per chip and direction; `pod` chips below the core;
    `oversubscription` of the core (7 in the cluster that trained Llama 3 405B); `in_network_reduction`: all-reduces
    use the switches (NVLS, SHARP) where the link has them.

    **Raises:** `UserError` for unknown names and numbers that are not positive.
    """
    held = supported("chips", chip)
    inner, outer = _links(held, scale_up, scale_out)
    own_inner = scale_up is None or inner.slug == held.text["scale_up"]
    own_outer = scale_out is None or outer.slug == held.text["scale_out"]
    size = positive(held.si("scale_up_domain") if domain is None else domain, "domain", least=1.0, most=UNLIMITED)
    inside = inner.si("bandwidth")
    if own_inner:
        inside = held.si("scale_up_bandwidth", inside)
    efficiency = held.si("scale_up_efficiency", inner.si("efficiency")) if own_inner else inner.si("efficiency")
    outside = held.si("scale_out_bandwidth") if own_outer else outer.si("bandwidth")
    if scale_out_bytes_per_s is not None:
        outside = positive(scale_out_bytes_per_s, "scale_out_bytes_per_s")
    shared = positive(
        outer.si("oversubscription", 1.0) if oversubscription is None else oversubscription, "oversubscription"
    )
    reach = positive(outer.si("pod", UNLIMITED) if pod is None else pod, "pod", least=1.0, most=UNLIMITED)
    reduction = [each.si("reduction_factor", 1.0) for each in (inner, outer, outer)]
    if in_network_reduction:
        reduction = [
            each.si("in_network_reduction", plain) for each, plain in zip((inner, outer, outer), reduction, strict=True)
        ]
    return Network(
        size=leaf([size, max(reach, size)]),
        bandwidth_bytes_per_s=leaf([inside, outside, outside / shared]),
        efficiency=leaf([efficiency, outer.si("efficiency"), outer.si("efficiency")]),
        latency_s=leaf([inner.si("latency"), outer.si("latency"), outer.si("core_latency", outer.si("latency"))]),
        ramp=leaf([each.si("ramp", 0.0) for each in (inner, outer, outer)]),
        reduction_factor=leaf(reduction),
        energy_j_per_byte=leaf([inner.si("energy"), outer.si("energy"), outer.si("core_energy", outer.si("energy"))]),
    )


def prices(
    name: str | Path,
    chip: str | Path,
    *,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
) -> Prices:
    """A price list for a chip: the chip's price split into compute, memory and scale-up links.

    Compute keeps at least `chip_base_floor_fraction` of the price; where memory and links would take more, they are
    scaled down to the rest, so that the parts always add up to the price. The domain's cabling is priced at the
    chip's own domain or at the list's, whichever is larger.

    **Arguments:** `name` of the price list; `chip`; links instead of the chip's own.

    **Raises:** `UserError` for unknown names or bad files.
    """
    held, paid = supported("chips", chip), supported("prices", name)
    own_inner, _ = _links(held, None, None)
    inner, outer = _links(held, scale_up, scale_out)
    guess = held.si("peak.bf16") * paid.si("chip_usd_per_bf16_flops")
    price = paid.si("price_factor") * held.si("price", guess)
    memory_price, pin_price = paid.si("hbm_usd_per_byte"), paid.si("hbm_usd_per_byte_per_s")
    memory = held.si("memory_capacity") * memory_price + held.si("memory_bandwidth") * pin_price
    links = held.si("scale_up_bandwidth", own_inner.si("bandwidth")) * own_inner.si("price")
    room = (1.0 - paid.si("chip_base_floor_fraction")) * price
    scale = min(1.0, room / (memory + links))
    own = scale if inner.slug == own_inner.slug else 1.0
    return Prices(
        chip_base_usd=leaf(price - scale * (memory + links)),
        hbm_usd_per_byte=leaf(scale * memory_price),
        hbm_usd_per_byte_per_s=leaf(scale * pin_price),
        network_usd_per_byte_per_s=leaf(
            [own * inner.si("price"), outer.si("price"), outer.si("core_price", outer.si("price"))]
        ),
        domain_usd_per_chip=leaf(paid.si("domain_usd_per_chip")),
        reference_domain=leaf(max(paid.si("reference_domain"), held.si("scale_up_domain"))),
        host_usd=leaf(held.si("host_price", paid.si("host_usd"))),
        server_lifetime_s=leaf(paid.si("server_lifetime")),
        spares_fraction=leaf(paid.si("spares_fraction")),
        maintenance_per_s=leaf(paid.si("maintenance")),
        capital_rate_per_s=leaf(paid.si("capital_rate")),
        occupancy=leaf(paid.si("occupancy")),
        margin=leaf(paid.si("margin")),
        owned=leaf(paid.si("owned")),
        host_carbon_kg=leaf(paid.si("host_carbon")),
    )


_prices = prices  # `cluster` has a keyword of the same name


def cluster(
    chip: str | Path,
    chips: float,
    *,
    domain: float | None = None,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    scale_out_bytes_per_s: float | None = None,
    pod: float | None = None,
    oversubscription: float | None = None,
    in_network_reduction: bool = False,
    stack: str | Path | None = None,
    site: str | Path = "us-average",
    cooling: str | Path | None = None,
    rack: str | Path = "orv3",
    rack_chips: float | None = None,
    reliability: str | Path = "fleet-mean",
    prices: str | Path = "default",
    constants: str | Path = CALIBRATED,
) -> Cluster:
    """A cluster of `chips` chips with everything around them.

    **Arguments:** `chip` and `chips`; the network's as `network` takes them; `stack`, the chip's usual one
    by default; `site`; `cooling`, by default what the chip's servers are built for, or the site's; `rack`, and `rack_chips`
    in one instead of as many as fit; `reliability` of the fleet; `prices`: a price list; `constants`: `calibrated` to
    published runs (the default), `literature`, `speed-of-light`, or a `.toml` file of `hwopt calibrate`.

    **Raises:** `UserError` for unknown names and for a number of chips that is not at least one.
    """
    count = positive(chips, "chips", least=1.0, most=UNLIMITED)
    if rack_chips is not None:
        rack_chips = positive(rack_chips, "rack_chips", least=1.0, most=UNLIMITED)
    held = record("chips", chip)
    links = network(
        chip,
        domain=domain,
        scale_up=scale_up,
        scale_out=scale_out,
        scale_out_bytes_per_s=scale_out_bytes_per_s,
        pod=pod,
        oversubscription=oversubscription,
        in_network_reduction=in_network_reduction,
    )
    building = facility(site, chip)
    around = _cooling(default_cooling(chip, site) if cooling is None else cooling, chip)
    family = architecture(held)
    software = default_stack(chip) if stack is None else stack
    literature = Cluster(
        chip=_chip(chip),
        chips=leaf(count),
        network=links,
        cooling=around,
        rack=_rack(rack, chip, around, building, links, rack_chips),
        facility=building,
        reliability=_reliability(reliability),
        prices=_prices(prices, chip, scale_up=scale_up, scale_out=scale_out),
        stack=_stack(software, family),
    )
    slug = record("stacks", software).slug
    return with_constants(literature, calibration(constants), family, slug)
