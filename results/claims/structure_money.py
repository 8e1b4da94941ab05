"""Claims of structure about money, supply and the building."""

from __future__ import annotations

from hwopt import catalog
from objectives.export_rules import figures_of
from results.claims.claim import HOLDS_WITHIN, Finding, at_least, claim, either
from results.claims.machines import estimate, shares, si
from results.claims.structure_machines import (
    CHIPS,
    FABRIC,
    FLOPS,
    HBM,
    LINKS,
    MANY,
    PLAIN,
    best_of,
    changed,
    gpt3,
    h100,
    speed,
    worth,
)


@claim("B7", "000:47", "shortages of GPUs held back research")
def shortages() -> Finding:
    half, whole = best_of(CHIPS // 2), best_of()
    longer = speed(whole) / speed(half)
    cheaper = 1.0 - float(half.report.run_cost_usd / whole.report.run_cost_usd)
    return Finding(
        f"{longer:.2f} times the run with half the chips",
        "cannot be decided",
        "who got chips when is history, not cost; what a shortage does to one run the model can say: half of "
        f"{CHIPS:,} H100 take {longer:.2f} times as long over GPT-3 and {100 * cheaper:.0f} % less money, so it "
        "delays and does not forbid",
    )


@claim("B8", "000:49", "export limits force the use of older hardware")
def export_limits() -> Finding:
    free = speed(best_of())
    cut, older = free / speed(best_of(chip="h800", **FABRIC)), free / speed(best_of(chip="a800", fabric="hdr-fat-tree"))
    links = si("chips", "h800", "scale_up_bandwidth") / si("chips", "h100-sxm", "scale_up_bandwidth")
    rule, years = (
        catalog.export_rule("october-2023"),
        {name: int(si("chips", name, "year")) for name in ("h20", "h800", "a800", "a100-80", "v100")},
    )
    sold = {name: year for name, year in years.items() if not rule.caught_by(figures_of(name))}
    newest = max(sold, key=lambda name: sold[name])
    caught = min(year for name, year in years.items() if name not in sold)
    weak = free / speed(best_of(chip=newest, **FABRIC))
    return Finding(
        f"{cut:.2f} times the run on H800, {weak:.2f} times on {newest.upper()}, {older:.2f} times on A800",
        either(sold[newest] < caught),
        f"a rule limits arithmetic, its density and links, not age: of 2022 it left the H800, an H100 with {links:.2f} of the "
        f"NVLink, on which GPT-3 on {CHIPS:,} takes {cut:.2f} times as long; of 2023 it catches chips of {caught} such as the "
        f"A100 and leaves the {newest.upper()} of {sold[newest]}, weaker and not older: {weak:.2f} times; the older A800 takes "
        f"{older:.2f} times; orders to single vendors do not set a threshold",
    )


@claim("B25", "002:14-15", "specialised pods cost more, idle less, and usually win")
def specialised() -> Finding:
    sizes = (CHIPS, 6144, MANY)

    def run_usd(chips: int, **around) -> tuple[float, float]:
        report = best_of(chips, objective="run_cost_usd", **around).report
        return float(report.run_cost_usd), float(report.capex_usd)

    special, plain = [run_usd(chips, **FABRIC) for chips in sizes], [run_usd(chips, **PLAIN) for chips in sizes]
    ratio = [a[0] / b[0] for a, b in zip(special, plain, strict=True)]
    capital = [a[1] / b[1] for a, b in zip(special, plain, strict=True)]
    idle = [
        1.0 - shares(best_of(CHIPS, objective="run_cost_usd", **kind).report)["compute"] for kind in (FABRIC, PLAIN)
    ]
    return Finding(
        ", ".join(f"{part:.2f} times the cost on {chips:,} chips" for part, chips in zip(ratio, sizes, strict=True)),
        at_least(sum(part <= 1.0 for part in ratio), 2),
        f"GPT-3 by cost at the best plan, InfiniBand NDR against 100 Gb/s Ethernet: {100 * (capital[0] - 1):.0f} % "
        f"more capital, {100 * idle[0]:.0f} instead of {100 * idle[1]:.0f} % of a step without arithmetic on "
        f"{CHIPS:,} chips; a run's cost is {ratio[0]:.3f}, {ratio[1]:.3f} and {ratio[2]:.3f} times the plain one's: "
        "even on few chips, a gain where many share a batch",
    )


@claim("B26", "002:18", "the path from grid to rack and the site's power limit constrain a cluster")
def site_power() -> Finding:
    report, chip, site = best_of().report, si("chips", "h100-sxm", "tdp"), 40e6
    meter, pue = float(report.peak_power_w) / CHIPS, float(report.pue)
    return Finding(
        f"{meter / 1e3:.2f} kW at the meter for a chip of {chip / 1e3:.1f} kW",
        at_least(meter / chip, HOLDS_WITHIN),
        f"host, network, fans and power supplies make {meter / pue / 1e3:.2f} kW of a chip's {chip / 1e3:.1f}, "
        f"cooling and conversion of the building (PUE {pue:.2f}) {meter / 1e3:.2f}: a connection of "
        f"{site / 1e6:.0f} MW feeds {site / meter:,.0f} H100, not {site / chip:,.0f}",
    )


@claim("B29", "002:25-29", "hyperscale, on premise and rented cloud trade capital against price")
def ways_to_own() -> Finding:
    run, plan = gpt3(), best_of().plan

    def an_hour(prices: str, occupancy: float = 1.0) -> tuple[float, float]:
        cluster = changed(h100(prices=prices), lambda c: c.prices.occupancy, occupancy)
        report = estimate(run, cluster, plan)
        return float(report.run_cost_usd / report.run_time_s) * 3600.0 / CHIPS, float(report.capex_usd)

    (large, large_usd), (own, own_usd), (rent, rent_usd) = map(an_hour, ("hyperscale", "on-premise", "rented"))
    used = si("prices", "on-premise", "occupancy")
    # Cost by the hour of use is a + b / occupancy: two points give both.
    standing = (an_hour("on-premise", 0.5)[0] - own) * used
    even = standing / (rent - (own - standing / used))
    return Finding(
        f"{large:.2f} $ an H100-hour hyperscale, {own:.2f} $ on premise, {rent:.2f} $ rented",
        either(large < min(own, rent) and rent_usd < min(large_usd, own_usd)),
        f"the cheapest hour takes the most commitment: {large_usd / 1e6:.0f} M$ for {CHIPS:,} chips at hyperscale, "
        f"{own_usd / 1e6:.0f} M$ on premise, none rented; a machine of one's own beats rent when busy for more than "
        f"{100 * even:.0f} % of its life",
    )


@claim("B30", "002:30", "bottlenecks come in the order GPUs, network, power, memory, data, economics")
def order() -> Finding:
    run, cluster, plan = gpt3(), h100(), best_of().plan

    def value(*parts, of: str = "run_cost_usd") -> float:
        return sum(abs(worth(part, run, cluster, plan, of)) for part in parts)

    prices = ("chip_base_usd", "hbm_usd_per_byte", "hbm_usd_per_byte_per_s")
    parts = {
        "GPUs": value(FLOPS),
        "network": value(LINKS, of="run_time_s"),  # as if faster links were free
        "power": value(lambda c: c.facility.electricity_usd_per_j, lambda c: c.facility.construction_usd_per_w),
        "memory": value(HBM, of="run_time_s"),
        "data": value(lambda c: c.storage.input_bytes_per_s_per_chip),
        "economics": value(*(lambda c, name=name: getattr(c.prices, name) for name in prices)),
    }
    found = sorted(parts, key=parts.__getitem__, reverse=True)
    return Finding(
        ", ".join(f"{name} {part:.2f} %" for name, part in parts.items()),
        either(found == list(parts)),
        f"cost of GPT-3's run on {CHIPS:,} H100 by 1 % of each (arithmetic; links; price of power and its building; "
        f"memory bandwidth; input; price of chips): {', '.join(found)}; a sequence in time is history, in worth it "
        "is this",
    )
