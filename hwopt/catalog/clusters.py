"""Clusters from catalog entries: chips, network, building, storage and prices, as a `Cluster`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from hwopt.catalog import chips as _chips
from hwopt.catalog import facilities as _facilities
from hwopt.catalog import peripherals as _peripherals
from hwopt.catalog.calibrations import CALIBRATED, calibration, usual_operation, with_constants
from hwopt.catalog.dates import check_date
from hwopt.catalog.load import built, leaf, positive, record, supported
from hwopt.catalog.networks import UNLIMITED, network, outside, scale_up_link
from hwopt.catalog.schema import Record
from hwopt.catalog.services import serving_stack
from hwopt.catalog.systems import slice_of, system_of, usual_rack
from hwopt.catalog.systems import used_chips as used_chips_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster, ClusterPair
from hwopt.hardware.peripherals import Operation
from hwopt.hardware.prices import Prices

_DRAM_SHARE = 0.8
"""Share of the peak bandwidth of DRAM that transfers and optimizer updates sustain (as in the catalog's `host-pcie5`)."""


def prices(
    name: str | Path,
    chip: str | Path,
    *,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    fabric: str | Path | None = None,
    chips: float = 1.0,
) -> Prices:
    """Return a price list for a chip: the chip's price split into compute, memory and scale-up links.

    Memory is deducted from the chip's price at `listed_hbm_usd_per_byte` (and its bandwidth at
    `listed_hbm_usd_per_byte_per_s`). A list without these prices uses those of the default list. The rest is the price
    of compute. It does not depend on `hbm_usd_per_byte`: if memory is dearer than listed, the chip is dearer by the
    difference.

    Compute keeps at least `chip_base_floor_fraction` of the price. Where memory and links would exceed the rest, they
    are scaled down to it, so that the parts add up to the price. Cabling of a domain is priced at the larger of the
    chip's own domain and the list's reference domain. A torus, whose link says so, has no backplane: its cables are in
    the link's price.

    A host costs what the chip's entry states, else `host_usd`, plus the price of the DRAM and flash that its system has
    beyond those of the server for which `host_usd` is stated (`host_dram`, `host_flash`, per chip). A system with less
    is cheaper.

    **Arguments:** `name` of the price list; `chip`; links instead of the chip's own, or a `fabric` sized for `chips`
    endpoints.

    **Raises:** `UserError` for unknown names or bad files.
    """
    entry, paid = supported("chips", chip), supported("prices", name)
    own_inner, inner = scale_up_link(entry, None), scale_up_link(entry, scale_up)
    outer = outside(chip, scale_out=scale_out, fabric=fabric, chips=chips)
    guess = entry.si("peak.bf16") * paid.si("chip_usd_per_bf16_flops")
    price = paid.si("price_factor") * entry.si("price", guess)
    listed = [_listed(paid, f"listed_{name}") for name in ("hbm_usd_per_byte", "hbm_usd_per_byte_per_s")]
    memory = entry.si("memory_capacity") * listed[0] + entry.si("memory_bandwidth") * listed[1]
    links = entry.si("scale_up_bandwidth", own_inner.si("bandwidth")) * own_inner.si("price")
    room = (1.0 - paid.si("chip_base_floor_fraction")) * price
    scale = min(1.0, room / (memory + links))
    own = scale if inner.slug == own_inner.slug else 1.0
    return built(
        Prices, paid,
        chip_base_usd=price - scale * (memory + links),
        hbm_usd_per_byte=scale * paid.si("hbm_usd_per_byte"),
        hbm_usd_per_byte_per_s=scale * paid.si("hbm_usd_per_byte_per_s"),
        network_usd_per_byte_per_s=[own * inner.si("price"), *outer.usd_per_byte_per_s],
        domain_usd_per_chip=inner.si("domain_usd_per_chip", paid.si("domain_usd_per_chip")),
        reference_domain=max(paid.si("reference_domain"), entry.si("scale_up_domain")),
        host_usd=entry.si("host_price") if "host_price" in entry.quantities else _host_usd(paid, system_of(chip)),
        redesign_usd=0.0, least_order=0.0,
    )  # fmt: skip


def _listed(paid: Record, key: str) -> float:
    """Return a number of a price list that states it, else that of the default list."""
    return (paid if key in paid.quantities else supported("prices", "default")).si(key)


def _host_usd(paid: Record, system: Record) -> float:
    """Return the price of a chip's share of its host, with the DRAM and flash of its system, USD."""
    beyond = {
        part: system.si(key) / system.si("chips") - _listed(paid, f"host_{part}")
        for part, key in (("dram", "dram"), ("flash", "local_storage"))
        if key in system.quantities
    }
    return paid.si("host_usd") + sum(more * _listed(paid, f"{part}_usd_per_byte") for part, more in beyond.items())


_prices = prices  # `cluster` has a keyword of the same name


def cluster(
    chip: str | Path,
    chips: float,
    *,
    domain: float | None = None,
    slice: str | None = None,
    scale_up: str | Path | None = None,
    scale_out: str | Path | None = None,
    scale_out_bytes_per_s: float | None = None,
    pod: float | None = None,
    oversubscription: float | None = None,
    in_network_reduction: bool | None = None,
    fabric: str | Path | None = None,
    latency_tail_s: float | None = None,
    bandwidth_spread: float | None = None,
    stack: str | Path | None = None,
    any_software: bool = False,
    date: str | None = None,
    dispatcher: str | None = None,
    ep_overlap: str | float | None = None,
    cuda_graphs: str | None = None,
    compilation: str | None = None,
    tuning: str | None = None,
    site: str | Path = "us-average",
    cooling: str | Path | None = None,
    coolant_degc: float | None = None,
    rack: str | Path | None = None,
    rack_chips: float | None = None,
    used_chips: float | None = None,
    reliability: str | Path = "fleet-mean",
    recovery: str | Path = "from-storage",
    operation: str | Path | None = None,
    prices: str | Path = "default",
    pool: str | Path | None = None,
    storage: str | Path = "shared-flash",
    sites: float = 1.0,
    lines: str | Path | None = None,
    nics_per_server: float | None = None,
    clock: float | None = None,
    constants: str | Path = CALIBRATED,
) -> Cluster:
    """Return a cluster of `chips` chips with everything around them.

    **Arguments:**

    - `chip`, `chips`: type and number of chips.
    - `slice`: shape of the torus that is the domain, one that is rented, such as `8x8x16`.
    - `domain` to `bandwidth_spread`: the network, as in `network`. `in_network_reduction` defaults to what the stack
      does.
    - `stack`: software; the chip's usual one by default.
    - `any_software`: whether training plans may do what the stack does not document.
    - `date`: month of the question, such as `2026-11`: it decides which software is the usual one. By default that of the
      calibration.
    - `dispatcher` to `tuning`: words of a training run, as in `hwopt.run_words`; by default what the stack does.
    - `site`, `cooling`: by default, cooling is what the chip's servers are built for, or the site's.
    - `coolant_degc`: supply temperature of the coolant, within the range of the cooling; by default the usual one.
    - `rack`, `rack_chips`: the rack, by default that of the chip's system, and chips in one instead of as many as fit.
    - `used_chips`: how many chips of a rack-scale system the job uses; the others are hot spares.
    - `reliability`, `recovery`: failure rates of the fleet, and how jobs recover.
    - `operation`: `production` or `benchmark`; the default depends on `constants` (`usual_operation`). It also sets the
      jitter of links outside the domain, where neither link nor caller states it.
    - `prices`: the price list.
    - `pool`: memory beyond the chips', by default their hosts', as much as their system is sold with and at most as fast
      as the DRAM of that system sustains.
    - `storage`: of data and checkpoints.
    - `sites`, `lines`: sites that share the chips, and the lines between them (`continental`).
    - `nics_per_server`: NICs shared by a server's chips, instead of the links' bandwidth.
    - `clock`: relative to the chip's stock clock.
    - `constants`: `calibrated` to published runs (the default), `literature`, `speed-of-light`, or a `.toml` file of
      `hwopt calibrate`.

    **Raises:** `UserError` for unknown names, for a number of chips that is not at least one, and for chips and software that
    are newer than `date`.
    """
    count = positive(chips, "chips", least=1.0, most=UNLIMITED)
    if rack_chips is not None:
        rack_chips = positive(rack_chips, "rack_chips", least=1.0, most=UNLIMITED)
    several = _peripherals.sites(sites, lines, count)
    entry, ends = record("chips", chip), count / float(several.count)
    operated = supported("operations", usual_operation(constants) if operation is None else operation)
    software = _chips.default_stack(chip, date=date) if stack is None else stack
    check_date(entry, record("stacks", software), date)
    if in_network_reduction is None:
        in_network_reduction = record("stacks", software).text.get("in_network_reduction") == "yes"
    torus = slice_of(chip, slice) if slice else None
    links = network(
        chip,
        domain=domain,
        torus=torus,
        scale_up=scale_up,
        scale_out=scale_out,
        scale_out_bytes_per_s=scale_out_bytes_per_s,
        pod=pod,
        oversubscription=oversubscription,
        in_network_reduction=in_network_reduction,
        fabric=fabric,
        chips=ends,
        latency_tail_s=latency_tail_s,
        bandwidth_spread=bandwidth_spread,
        operation=operated,
    )
    building = _facilities.facility(site, chip)
    around = _facilities.default_cooling(chip, site) if cooling is None else cooling
    around = _facilities.cooling(around, chip, coolant_degc)
    beyond, system = (
        _peripherals.memory_pool(str(entry.text.get("pool", "none")) if pool is None else pool),
        system_of(chip),
    )
    shared = leaf(float(beyond.shares_link) * entry.si("nic_on_host_link", 1.0))
    beyond = replace(beyond, shares_link=shared)
    if pool is None and "dram" in system.quantities:
        sustained = min(
            float(beyond.update_bandwidth_bytes_per_s),
            _DRAM_SHARE * system.si("dram_bandwidth") / system.si("chips"),
        )
        beyond = replace(
            beyond,
            capacity_bytes=leaf(system.si("dram") / system.si("chips")),
            update_bandwidth_bytes_per_s=leaf(sustained),
        )
    family = _chips.architecture(entry)
    words = {
        "dispatcher": dispatcher, "ep_overlap": ep_overlap, "cuda_graphs": cuda_graphs, "compilation": compilation,
        "tuning": tuning,
    }  # fmt: skip
    literature = Cluster(
        chip=_chips.chip(chip),
        chips=leaf(count),
        network=links,
        pool=beyond,
        storage=_peripherals.storage(storage, reliability),
        sites=several,
        cooling=around,
        rack=_facilities.rack(rack or usual_rack(system), chip, around, building, links, beyond, rack_chips, scale_up),
        facility=building,
        reliability=_peripherals.reliability(reliability),
        recovery=_peripherals.recovery(recovery),
        operation=built(Operation, operated),
        prices=_prices(prices, chip, scale_up=scale_up, scale_out=scale_out, fabric=fabric, chips=ends),
        stack=_chips.with_words(_chips.stack(software, family, any_software), software, words, any_software),
    )
    built_up = with_constants(literature, calibration(constants), family, record("stacks", software).slug)
    if torus is not None:
        built_up = eqx.tree_at(lambda c: c.rack.system_chips, built_up, leaf(float(torus.chips)))
    if nics_per_server is not None:
        each = built_up.network.lane_bytes_per_s[1] / built_up.rack.server_chips
        rate, nics = built_up.network.bandwidth_bytes_per_s, positive(nics_per_server, "nics_per_server", least=1.0)
        rate = np.concatenate([rate[:1], rate[1:] * (nics * each / rate[1])])
        built_up = eqx.tree_at(lambda c: c.network.bandwidth_bytes_per_s, built_up, rate)
    if clock is not None:
        ratio = leaf(positive(clock, "clock", most=1.0))
        built_up = eqx.tree_at(lambda c: c.chip.clock_ratio, built_up, ratio)
    return built_up if used_chips is None else _partly_used(built_up, system, used_chips)


def _partly_used(whole: Cluster, system: Record, used: float) -> Cluster:
    """Return a cluster whose job uses only some chips of each system: a domain and a rack have only these.

    **Raises:** `UserError` for a number of which the catalog knows no use, and for racks that are not those of the system.
    """
    known = used_chips_of(system)
    if used not in known or not float(whole.rack.sold_chips):
        some = f"jobs use {' or '.join(map(str, known))} of its chips" if known else "jobs use all of its chips"
        raise UserError(f"used_chips = {used:g}: of {system.title} as it is sold, {some}")
    return eqx.tree_at(
        lambda c: (c.rack.chips, c.network.size),
        whole,
        (leaf(used), np.concatenate([[used], whole.network.size[1:]])),
    )


def cluster_pair(
    prefill: str | Path,
    decode: str | Path,
    chips: float,
    *,
    stack: str | Path | None = None,
    date: str | None = None,
    **settings: Any,
) -> ClusterPair:
    """Return two types of chips in one hall, for disaggregated prefill and decode, with everything around them.

    **Arguments:**

    - `prefill`, `decode`: the chip of each group.
    - `chips`: total of both groups, which a plan splits.
    - `stack`: of both groups; by default the one that each chip usually serves with.
    - `date`: month of the question, as in `cluster`.
    - `settings`: all other arguments of `cluster`, for both groups.

    **Raises:** `UserError` as in `cluster`, and for several sites.
    """
    if float(settings.get("sites", 1.0)) != 1.0:
        raise UserError("sites: prefill and decode groups must share a site, because they exchange KV caches")
    software = lambda chip: serving_stack(chip, date) if stack is None else stack
    of = lambda chip: cluster(chip, chips, stack=software(chip), date=date, **settings)
    return ClusterPair(prefill=of(prefill), decode=of(decode))
