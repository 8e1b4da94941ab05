"""Chips as export rules count them, and the best drawn chip outside of each rule. From the top of a checkout:

    python -m results.benchmarks.export            # writes results/reference/export.txt; a quarter of an hour

Each search is beside one stated plan, for two minutes at most: over all plans no design below the density limits is met in
that time. Bounds are of that plan; others may cost less.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import hwopt
from hwopt import catalog
from hwopt.solver.search.solve_global import design_values
from hwopt.units import pretty
from objectives.export_rules import figures_of

OUT = Path(__file__).parents[2] / "results" / "reference" / "export.txt"

SECONDS = 120.0
RULES = ("october-2022", "october-2023")


class Published(NamedTuple):
    """What is said elsewhere of a chip: TPP, TPP a mm2 (None where nothing was found), GB/s of its domain's links both ways."""

    tpp: float
    density: float | None
    links: float


PUBLISHED = {
    "h100-sxm": Published(15824, 19.4, 900),
    "a100-80": Published(4992, None, 600),
    "a800": Published(4992, None, 400),
    "h800": Published(15824, None, 400),
    "h20": Published(2368, 2.9, 900),
    "h200": Published(15824, None, 900),
    "b200": Published(36000, None, 1800),
    "mi300x": Published(20918, None, 896),
}
"""TPP: dense 16-bit rates of data sheets, 989.4 cut to 989 by most, times 16; density: smbom.com on 3 January 2024 and
tweaktown.com, both after wccftech.com; links: data sheets."""

LARGE = {"tp": 2, "cp": 2, "pp": 6, "virtual_stages": 7, "micro_batch": 1, "zero": 1, "recompute": 2, "weights_tier": 1,
         "optimizer_tier": 1, "activations_tier": 2, "nics_per_server": 1, "scale_up_domain": 24, "chips_per_rack": 24,
         "scale_up_lanes": 5, "hbm_stacks": 3}  # fmt: skip
SMALL = LARGE | {
    "tp": 8,
    "cp": 1,
    "activations_tier": 1,
    "scale_up_domain": 16,
    "chips_per_rack": 16,
    "scale_up_lanes": 3,
}
TINY = SMALL | {"cp": 2, "hbm_stacks": 2}
PLANS = {"few large chips": LARGE, "many small chips": SMALL, "more smaller chips": TINY}


class Search(NamedTuple):
    """One search: a rule, how it is kept, among which plans, and who pays for the design."""

    plan: str
    rule: str = ""
    case: str = ""
    volume: str = ""

    @property
    def words(self) -> str:
        """As the table says it."""
        paid = ", design paid by these chips alone" if self.volume else ""
        return f"{self.rule or 'no rule'}{' ' + self.case if self.case else ''}{paid}"


SEARCHES = (
    Search("few large chips"),
    Search("few large chips", volume="bought"),
    Search("few large chips", "october-2022", "io-600"),
    Search("many small chips", "october-2022", "tpp-4800"),
    Search("more smaller chips", "october-2023", "tpp-1600"),
    Search("many small chips", "october-2023", "tpp-2400-density-3.2"),
    Search("many small chips", "october-2023", "tpp-4800-density-1.6"),
)


def sold_row(chip: str) -> str:
    """A chip of the catalogue beside what is published, and which paragraphs of 3A090 catch it."""
    figures, said = figures_of(chip), PUBLISHED[chip]
    density = "-" if said.density is None else f"{said.density:.1f}"
    caught = [", ".join(catalog.export_rule(rule).caught_by(figures)) or "outside" for rule in RULES]
    links = 2.0 * float(catalog.network(chip).bandwidth_bytes_per_s[0]) / 1e9
    return (
        f"{chip:10}{figures['tpp']:9,.0f}{said.tpp:9,.0f}{figures['density'] / 1e6:8.2f}{density:>7}"
        f"{links:7,.0f}{said.links:7,.0f}{figures['io'] / 1e9:7,.0f}   {caught[0]:10}{caught[1]}"
    )


def drawn_row(asked: Search) -> str:
    """The best drawn chip of a search: its cost, what is proved, and what it is."""
    question = hwopt.objective(
        "train_cost", design="h100-sxm", prices="at-cost", workload="llama3.1-70b", global_batch=2048.0,
        export_rule=asked.rule, export_case=asked.case, chip_volume=asked.volume,
    )  # fmt: skip
    began = time.perf_counter()
    boxes = {name: (float(value), float(value)) for name, value in PLANS[asked.plan].items()}
    answer = hwopt.optimize(question, bounds=boxes, seconds=SECONDS, explain=False)
    head = f"{asked.words:58}{asked.plan:19}"
    seconds = time.perf_counter() - began
    if not answer.feasible:
        return f"{head}{answer.outcome.name.replace('_', ' ')} after {seconds:.0f} s"
    report, values, certificate = answer.report, design_values(answer), answer.certificate
    bound = "-" if certificate.lower_bound is None else pretty(certificate.lower_bound, "USD")
    gap = "-" if certificate.gap is None else f"{100 * certificate.gap:.2g} %"
    if asked.rule:
        caught = catalog.export_rule(asked.rule).caught_by(
            {
                "tpp": float(report.total_processing_performance),
                "density": float(report.performance_density_per_m2),
                "io": float(report.io_rate_bytes_per_s),
            }
        )
        assert not caught, caught
    return (
        f"{head}{pretty(answer.objective, 'USD'):>10}{bound:>10}{gap:>9}{seconds:5.0f}"
        f"{float(report.total_processing_performance):9,.0f}{float(report.performance_density_per_m2) / 1e6:7.2f}"
        f"{float(report.io_rate_bytes_per_s) / 1e9:6.0f}{1e6 * float(report.silicon_area_m2):7,.0f}"
        f"{1e6 * values['compute_area_m2']:7,.0f}{values['sram_bytes'] / 1e6:7,.0f}{values['dies']:4.0f}"
        f"{100 * values['enabled_fraction']:5.0f}{values['clock_hz'] / 1e9:6.2f}{values['chips']:8,.0f}"
        f"{float(report.run_time_s) / 86400.0:6.1f}"
    )


HEADS = (
    "Chips as sold: TPP, TPP a mm2 and rates in GB/s, ours and published; io: links of the domain and to the host, both ways;",
    "paragraphs of ECCN 3A090 that catch them by their numbers (not by what single vendors were told)",
    "",
    f"{'':10}{'TPP':>9}{'publ.':>9}{'a mm2':>8}{'publ.':>7}{'links':>7}{'publ.':>7}{'io':>7}   {'2022':10}2023",
)

DRAWN = (
    "",
    "The cheapest drawn chip (--design h100-sxm --prices at-cost --workload llama3.1-70b, 15.6 T tokens in 90 days), "
    "beside one plan:",
    *(f"  {name}: {', '.join(f'{key}={value}' for key, value in plan.items())}" for name, plan in PLANS.items()),
    "run cost found, bound below all designs of that plan, gap, seconds; TPP, TPP a mm2, io in GB/s, mm2 of silicon, of units,",
    "MB of SRAM, dies, % of units left on, GHz; chips, days",
    "",
    f"{'':77}{'cost':>10}{'bound':>10}{'gap':>9}{'s':>5}{'TPP':>9}{'a mm2':>7}{'io':>6}{'mm2':>7}{'units':>7}{'SRAM':>7}"
    f"{'d':>4}{'on':>5}{'GHz':>6}{'chips':>8}{'days':>6}",
)


def lines():
    """The tables, line by line."""
    yield from HEADS
    yield from map(sold_row, PUBLISHED)
    yield from DRAWN
    yield from map(drawn_row, SEARCHES)


if __name__ == "__main__":
    with OUT.open("w", encoding="utf-8") as file:
        for line in lines():
            for out in (file, None):
                print(line.rstrip(), file=out, flush=True)
