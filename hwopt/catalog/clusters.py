"""What surrounds chips, with its prices, as a `Cluster`."""

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
from hwopt.catalog.networks import UNLIMITED, network, outside, scale_up_link
from hwopt.catalog.reliability import reliability as _reliability
from hwopt.catalog.surroundings import memory_pool
from hwopt.catalog.surroundings import sites as _sites
from hwopt.catalog.surroundings import storage as _storage
from hwopt.hardware.cluster import Cluster
from hwopt.hardware.prices import Prices


def prices(
    name: str | Path,
    chip: str | Path,
    *,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    fabric: str | Path | None = None,
    chips: float = 1.0,
) -> Prices:
    """A price list for a chip: the chip's price split into compute, memory and scale-up links.

    Compute keeps at least `chip_base_floor_fraction` of the price; where memory and links would take more, they are
    scaled down to the rest, so that the parts always add up to the price. The domain's cabling is priced at the
    chip's own domain or at the list's, whichever is larger.

    **Arguments:** `name` of the price list; `chip`; links instead of the chip's own, or a `fabric` counted for `chips` ends.

    **Raises:** `UserError` for unknown names or bad files.
    """
    held, paid = supported("chips", chip), supported("prices", name)
    own_inner, inner = scale_up_link(held, None), scale_up_link(held, scale_up)
    outer = outside(chip, scale_out=scale_out, fabric=fabric, chips=chips)
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
        network_usd_per_byte_per_s=leaf([own * inner.si("price"), *outer.usd_per_byte_per_s]),
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
    fabric: str | Path | None = None,
    latency_tail_s: float | None = None,
    bandwidth_spread: float | None = None,
    stack: str | Path | None = None,
    site: str | Path = "us-average",
    cooling: str | Path | None = None,
    rack: str | Path = "orv3",
    rack_chips: float | None = None,
    reliability: str | Path = "fleet-mean",
    prices: str | Path = "default",
    pool: str | Path | None = None,
    storage: str | Path = "shared-flash",
    sites: float = 1.0,
    lines: str | Path | None = None,
    constants: str | Path = CALIBRATED,
) -> Cluster:
    """A cluster of `chips` chips with everything around them.

    **Arguments:** `chip` and `chips`; the network's as `network` takes them; `stack`, the chip's usual one
    by default; `site`; `cooling`, by default what the chip's servers are built for, or the site's; `rack`, and `rack_chips`
    in one instead of as many as fit; `reliability` of the fleet; `prices`: a price list; `pool`: memory beyond the chips', by
    default their hosts'; `storage`; `sites` that share the chips, and the `lines` between them
    (`continental`); `constants`: `calibrated` to
    published runs (the default), `literature`, `speed-of-light`, or a `.toml` file of `hwopt calibrate`.

    **Raises:** `UserError` for unknown names and for a number of chips that is not at least one.
    """
    count = positive(chips, "chips", least=1.0, most=UNLIMITED)
    if rack_chips is not None:
        rack_chips = positive(rack_chips, "rack_chips", least=1.0, most=UNLIMITED)
    several = _sites(sites, lines, count)
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
        fabric=fabric,
        chips=count / float(several.count),
        latency_tail_s=latency_tail_s,
        bandwidth_spread=bandwidth_spread,
    )
    building = facility(site, chip)
    around = _cooling(default_cooling(chip, site) if cooling is None else cooling, chip)
    beyond = memory_pool(str(held.text.get("pool", "none")) if pool is None else pool)
    family = architecture(held)
    software = default_stack(chip) if stack is None else stack
    literature = Cluster(
        chip=_chip(chip),
        chips=leaf(count),
        network=links,
        pool=beyond,
        storage=_storage(storage, reliability),
        sites=several,
        cooling=around,
        rack=_rack(rack, chip, around, building, links, beyond, rack_chips, scale_up),
        facility=building,
        reliability=_reliability(reliability),
        prices=_prices(
            prices, chip, scale_up=scale_up, scale_out=scale_out, fabric=fabric, chips=count / float(several.count)
        ),
        stack=_stack(software, family),
    )
    slug = record("stacks", software).slug
    return with_constants(literature, calibration(constants), family, slug)
