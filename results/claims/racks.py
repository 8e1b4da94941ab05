"""Claims about power, cooling and racks."""

from __future__ import annotations

import functools
import math

from hwopt import catalog
from results.claims.blueprint import CHIPS, RACK_CHIPS, RACKS, rack_of_forty
from results.claims.claim import Finding, at_least, by_factor, claim, either
from results.claims.machines import estimate, si

FLEET = 10_000


@functools.cache
def fleet(cooling: str = "air"):
    """10,000 H100 at work on Llama 3.1 405B; what they draw at full load hardly depends on the work."""
    run = catalog.training_run("llama3.1-405b", global_batch=2000)
    plan = catalog.plan(run, FLEET, tp=8, pp=10, virtual_stages=6)
    return estimate(run, catalog.cluster("h100-sxm", FLEET, cooling=cooling), plan)


@claim("A47", "003:29", "an H100 draws about 700 W")
def h100_power() -> Finding:
    power, limit = float(fleet().chip_power_w), si("chips", "h100-sxm", "tdp")
    server = float(fleet().rack_power_w / catalog.cluster("h100-sxm", FLEET).rack.chips)
    return Finding(
        f"{power:.0f} W",
        by_factor(power, 700.0),
        f"at full load in air, {limit:.0f} W where it runs hotter; the PCIe card has {si('chips', 'h100-pcie', 'tdp'):.0f} "
        f"W, and with its share of server, network and fans an SXM takes {server / 1e3:.2f} kW",
    )


@claim("A48", "003:29", "10,000 H100 need about 7 MW plus overhead")
def fleet_power() -> Finding:
    report = fleet()
    chips = FLEET * si("chips", "h100-sxm", "tdp")
    meter, mean = float(report.peak_power_w), float(report.power_w)
    it = meter / float(report.pue)
    return Finding(
        f"{chips / 1e6:.1f} MW of chips, {meter / 1e6:.1f} MW at the meter",
        by_factor(chips, 7e6),
        f"right for the chips, but the overhead is larger than they are: servers, network and fans make it {it / 1e6:.1f} "
        f"MW, the building (PUE {float(report.pue):.2f}) {meter / 1e6:.1f} at full load and {mean / 1e6:.1f} on average in "
        f"training; with cold plates {float(fleet('direct-liquid').peak_power_w) / 1e6:.1f}",
    )


@claim("A49", "003:30", "air cooling is limited to about 30 kW a rack")
def air_limit() -> Finding:
    limit = catalog.record("cooling", "air").quantities["rack_power"]
    assert limit.low is not None and limit.high is not None
    chips = float(catalog.cluster("h100-sxm", 1024, cooling="air").rack.chips)
    return Finding(
        f"{si('cooling', 'air', 'rack_power') / 1e3:.0f} kW",
        by_factor(si("cooling", "air", "rack_power"), 30e3),
        f"the practical limit of surveys, {limit.low:.0f} on plain raised floors and {limit.high:.0f} with contained aisles; "
        f"it holds {chips:.0f} H100",
    )


@claim("A50", "003:32", "immersion exceeds 100 kW a rack")
def immersion_limit() -> Finding:
    limit = si("cooling", "immersion-1p", "rack_power")
    both = si("cooling", "immersion-2p", "rack_power")
    report = fleet("immersion-1p")
    chips = float(catalog.cluster("h100-sxm", FLEET, cooling="immersion-1p").rack.chips)
    return Finding(
        f"{limit / 1e3:.0f} kW, two-phase {both / 1e3:.0f} kW",
        at_least(limit, 100e3),
        f"tanks of 100 to 200 kW are sold; H100 reach their floor's weight first, {chips:.0f} of them and "
        f"{float(report.rack_power_w) / 1e3:.0f} kW, and the warm bath carries {math.exp(float(report.clock_margin)):.0%} of "
        "their full load",
    )


@claim("A63", "003:49", "30 kW a rack, 3.6 MW in all")
def blueprint_power() -> Finding:
    report = rack_of_forty("direct-liquid")
    rack, total, mean = (float(getattr(report, name)) for name in ("rack_power_w", "peak_power_w", "power_w"))
    return Finding(
        f"{rack / 1e3:.0f} kW a rack, {total / 1e6:.2f} MW in all",
        by_factor(total, 3.6e6),
        f"{RACKS} racks of 30 kW are {RACKS * 30 / 1e3:.1f} MW, so the two figures contradict each other by "
        f"{3600 / 30 / RACKS:.0f}; forty H100 draw {rack / 1e3:.0f} kW, {CHIPS:,} at the meter {total / 1e6:.1f} MW at full "
        f"load and {mean / 1e6:.1f} on average, in air {float(rack_of_forty('air').peak_power_w) / 1e6:.1f}",
    )


@claim("A64", "003:49", "30 kW a rack need liquid cooling")
def blueprint_cooling() -> Finding:
    limits = {name: si("cooling", name, "rack_power") / 1e3 for name in ("air", "rear-door", "direct-liquid")}
    needed = float(rack_of_forty("air").rack_power_w) / 1e3
    return Finding(
        f"air carries {limits['air']:.0f} kW, {RACK_CHIPS} H100 need {needed:.0f}",
        either(limits["air"] < 30.0),
        f"at 30 kW air still does; what {RACK_CHIPS} H100 in air really draw, {needed:.0f} kW, is beyond it and within a "
        f"rear-door exchanger's {limits['rear-door']:.0f}, so cold plates ({limits['direct-liquid']:.0f}) are a choice that "
        f"saves {1.0 - float(rack_of_forty('direct-liquid').peak_power_w / rack_of_forty('air').peak_power_w):.0%} of the "
        "power",
    )


@claim("A75", "004:7", "cables, bend radius, power, cooling and weight limit a scale-up domain")
def domain_limits() -> Finding:
    domain = si("chips", "gb200", "scale_up_domain")
    run = catalog.training_run("llama3.1-405b", global_batch=1152)
    cluster = catalog.cluster("gb200", 1152, rack_chips=domain)
    report = estimate(run, cluster, catalog.plan(run, 1152, tp=8, pp=9))
    each = float(report.rack_power_w) / domain
    held = cluster.rack
    cable = float(cluster.network.bandwidth_bytes_per_s[0])
    room = float(held.weight_limit_kg - held.empty_weight_kg)
    chips = {
        "cables that can bend": float(held.cable_limit_m2 / (cable * held.cable_area_m2_per_byte_per_s)),
        "weight": room / float(held.chip_weight_kg + cable * held.cable_weight_kg_per_byte_per_s),
        "cooling": float(cluster.cooling.rack_limit_w) / each,
        "busbar": float(held.busbar_limit_w) / each,
    }
    words = ", ".join(f"{name} {count:.0f}" for name, count in chips.items())
    return Finding(
        f"cables {chips['cables that can bend']:.0f}, weight {chips['weight']:.0f}, cooling {chips['cooling']:.0f} chips",
        either(max(chips[name] for name in ("cables that can bend", "weight", "cooling")) < 2.0 * domain),
        f"GB200 that each limit alone would let into a rack of copper ({words}): the {domain:.0f} sold stand just below the "
        "first, and none but the busbar allows a doubling; room for cables and the floor's load are estimates, and beyond "
        "the rack it takes optics, which are a price and no wall",
    )
