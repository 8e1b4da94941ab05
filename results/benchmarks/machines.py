"""Published machines compared with the model: power and capital, the same quantity on both sides. From the top of a checkout:

    python -m results.benchmarks.machines > results/reference/machines.txt

Ten seconds. Nothing is fitted here. Every machine with one chip of the catalog and a figure whose parts the source states is in the
table, however well it fits; the others are listed with the reason. A power at full load is that of the bill of materials, with
fans and power supplies shared by the boards that count.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.facility.bill import bill_lines
from results.claims.runs import palm_540b

STORAGE = ("storage, TB", "storage bandwidth, per chip")
BUILDING = "building, W of IT"
WITHOUT: dict[str, tuple[str, ...]] = {
    "facility": (),
    "IT": (BUILDING,),
    "IT without storage": (BUILDING, *STORAGE),
    "servers": (BUILDING, *STORAGE, "switches", "NICs and cables"),
}
"""Parts left out of a power, by name of the quantity. NIC chips are a part of hosts; the line of NICs and cables holds optical
modules, three of four of which are outside of servers."""

UNPAID: dict[str, tuple[str, ...]] = {
    "all": (),
    "equipment": (BUILDING, "spares"),
    "servers": (BUILDING, "spares", *STORAGE, "switches"),
}
"""Parts left out of a capital, by name of the quantity; `building` is the building's line alone."""

COLUMNS = {
    "chip": ("chips", "HBM stacks"),
    "host": ("hosts",),
    "links": ("scale-up lanes", "NICs and cables", "switches", "optics beyond racks"),
    "fans": ("fans and supplies",),
    "storage": STORAGE,
    "building": (BUILDING,),
}
"""Columns of the model's power at full load, W a chip."""

LIQUID = "direct-liquid"
HPL, TRAINING = "IT without storage, average of HPL", "IT, average of training"
AVERAGES = {HPL: "IT without storage", TRAINING: "IT"}
"""Powers that are averages of a run, and the rating with which HPL is compared."""

POWER_WITHIN, CAPITAL_WITHIN, GIGAWATT_WITHIN = 0.15, 0.25, 0.12


class Machine(NamedTuple):
    """A published machine. `chips` None: as many as the model feeds with `watts`."""

    name: str
    date: str
    chip: str
    chips: float | None
    watts: float
    power: str  # name of what the power includes
    source: str  # with its kind
    usd: float | None = None
    capital: str = ""  # name of what the capital includes
    scored: bool = True  # the power is a statement about so many chips
    note: str = ""
    cooling: str | None = None  # where it is not the usual one of the chip's servers

    @property
    def gigawatt(self) -> bool:
        return self.watts == 1e9


class Figures(NamedTuple):
    """The model's: W and USD a chip of what the source includes, and W a chip by column at full load."""

    watts: float
    usd: float
    columns: tuple[float, ...]


TOP500 = "list, TOP500 and Green500"
MS = "estimate, Morgan Stanley of May 2026 as gate.com/post/status/21206536 reports it"
BERNSTEIN = (
    "estimate, Bernstein of October 2025: ng.investing.com, 2169144; 35 B$ a GW over 5.9 M$ a rack is 5,932 racks"
)
CRUSOE = "vendor, Crusoe of 18 March 2025 (globenewswire 3044956) and of May 2025 (verdict.co.uk)"
DSX = "vendor, NVIDIA DSX MaxLPS, June 2026 (orply.com): 274,968 without MaxLPS, 399,096 with it"
IREN = "purchase, IREN from Dell, November 2025 (therush.news, technologies.org): 200 MW of critical IT, 5.8 B$"
VR_RACK = "estimate, Morgan Stanley, 2026: 7,803,148 $ a rack to cloud providers"
SU = "vendor, DGX SuperPOD reference architecture, GB200 (docs.nvidia.com)"
GW = 1e9

MACHINES = (
    Machine("Selene", "2020-11", "a100-80", 4480, 2.646e6, HPL, f"{TOP500}: 63.46 PF at 23.98 GF/W", note="560 DGX A100"),
    Machine(
        "JUWELS Booster", "2020-11", "a100-40", 3744, 1.764e6, HPL, f"{TOP500}: 44.12 PF at 25.0 GF/W",
        note="936 nodes of four", cooling=LIQUID),
    Machine(
        "Perlmutter, phase 1", "2021-11", "a100-40", 6144, 2.589e6, HPL, f"{TOP500}: 70.87 PF at 27.37 GF/W",
        note="1,536 nodes of one CPU and four chips", cooling=LIQUID),
    Machine("HiPerGator AI", "2021-06", "a100-80", 1120, 0.583e6, HPL, f"{TOP500}: 17.20 PF at 29.52 GF/W", note="140 DGX A100"),
    Machine("Frontier", "2023-11", "mi250x", 37632, 22.70e6, HPL, f"{TOP500}: 1,194 PF at 52.59 GF/W", cooling=LIQUID),
    Machine(
        "Frontier, the most seen", "2024-10", "mi250x", 37632, 30e6, "facility",
        "measured, Sun et al., Scientific Data 11:1077: 8 to 30 MW", cooling=LIQUID),
    Machine(
        "LUMI-G", "2023-11", "mi250x", 11664, 7.107e6, HPL, f"{TOP500}: 379.7 PF, 2,752,704 cores; kW recalled", cooling=LIQUID),
    Machine(
        "PaLM's two pods", "2022-04", "tpu-v4", 6144, 6144 * 378.5, TRAINING, "measured, arXiv 2204.02311, appendix B: 378.5 W",
        note="host power of the catalog is derived from GLaM's 326 W, not from PaLM"),
    Machine(
        "HGX H100 server", "2024-12", "h100-sxm", 8, 8480, "servers", "measured, Latif et al., arXiv 2412.08602: the most seen",
        note="rated 10.2 kW"),
    Machine("DGX B300, four in a rack", "2025-10", "b300", 32, 56e3, "servers", "vendor, DGX SuperPOD B300 XDR (docs.nvidia.com)"),
    Machine("GB300 NVL72 rack", "2025-10", "gb300", 72, 142e3, "servers", "vendor, GB300 reference architecture (docs.nvidia.com)",
        note="up to"),
    Machine(
        "DGX GB200 SuperPOD unit", "2025-06", "gb200", 576, 1.2e6, "IT", SU,
        note="thermal design power of eight racks and the rest"),
    Machine(
        "20,480 H100", "2024-03", "h100-sxm", 20480, 28.4e6, "IT", "estimate, SemiAnalysis, AI Datacenter Energy Dilemma: 1,389 W"),
    Machine(
        "xAI Colossus", "2024-11", "h100-sxm", 1e5, 150e6, "facility", "contract, TVA board of 7 November 2024 (tomshardware.com)",
        note="request of the operator", cooling=LIQUID),
    Machine(
        "Abilene, two buildings", "2025-03", "gb200", 1e5, 200e6, "facility", CRUSOE, note="200+ MW for up to 50,000 chips each"),
    Machine(
        "New Carlisle", "2026-06", "trainium2", 687e3 * 1979 / 1299, 1092e6, "IT",
        "estimate, Epoch AI (epoch.ai/data/ai-data-centers)", note="chips derived: 687,000 H100 equivalents at 8 bit"),
    Machine("Vera Rubin, 1 GW", "2026-06", "rubin", 274968, GW, "facility", DSX, 41e9, "all", note=f"capital: {MS}"),
    Machine(
        "Vera Rubin, 1 GW (Foxconn)", "2026-05", "rubin", 3557 * 72, GW, "facility", "estimate, Foxconn (digitalcitizen.life)",
        note="its 47 B$ are left out: the catalog's chip price comes from them"),
    Machine(
        "GB200, 1 GW", "2025-10", "gb200", 5932 * 72, GW, "facility", BERNSTEIN, 35e9, "all",
        note="a watt is taken as one of the facility, as in every 1 GW whose source does not say"),
    Machine("GB200, 1 GW of IT", "2026-05", "gb200", None, GW, "IT", "estimate, Epoch AI (type0.ai reports 38 B$)", 38e9, "all"),
    Machine("GB300, 1 GW", "2026-05", "gb300", None, GW, "facility", MS, 33e9, "all"),
    Machine("B200, 1 GW", "2026-05", "b200", None, GW, "facility", MS, 24e9, "all"),
    Machine("H100, 1 GW", "2026-05", "h100-sxm", None, GW, "facility", MS, 23e9, "all"),
    Machine("TPU v7, 1 GW", "2026-05", "tpu-v7", None, GW, "facility", MS, 27e9, "all"),
    Machine("Trainium3, 1 GW", "2026-05", "trainium3", None, GW, "facility", MS, 15e9, "all"),
    Machine(
        "GB200 NVL72 and its share", "2025-10", "gb200", 72, 0, "", BERNSTEIN, 3.4e6, "equipment", False,
        "with network and storage"),
    Machine(
        "GB300 NVL72 rack, price", "2026-05", "gb300", 72, 0, "", "estimate, Morgan Stanley, 2026: about 4 M$ a rack", 4e6,
        "servers", False),
    Machine("Vera Rubin NVL72 rack", "2026-05", "rubin", 72, 0, "", VR_RACK, 7.803e6, "servers", False),
    Machine("Childress, Horizon 1 to 4", "2025-11", "gb300", None, 200e6, "IT", IREN, 5.8e9, "equipment", False),
    Machine(
        "8,200 H100 of Taiga Cloud", "2023-11", "h100-sxm", 8200, 0, "", "purchase, Northern Data: 330 M EUR, 360 M$ (binance.com)",
        360e6, "servers", False, "HPE Cray XD"),
    Machine(
        "Abilene, eight buildings", "2025-05", "gb200", None, 1.2e9, "facility", CRUSOE, 15e9, "building", False, "joint venture"),
)  # fmt: skip

LEFT_OUT = (
    ("Leonardo, 7,494 kW", "its A100 of 64 GB and 124 SMs is not in the catalog"),
    ("Eos, Eagle", "no power in the list"),
    ("JUPITER, Alps, Isambard-AI, El Capitan", "GH200 and MI300A are not in the catalog"),
    ("GLaM, 326 W a TPU v4", "the catalog's host power is derived from it"),
    ("GPT-3, 330 W a V100 (Patterson 2021)", "recalled, not found again"),
    ("Meta's clusters of 24,576 H100, RSC", "no power and no price published"),
    (
        "Colossus 1 and 2, Fairwater, Prometheus (Epoch)",
        "several chips, or power inferred from the chips that it would test",
    ),
    ("Rainier, 256,000 chips in 250 to 300 MW", "a figure worked out by the press"),
    (
        "Perlmutter 146 M$, Leonardo, LUMI, Frontier, HiPerGator",
        "contracts with CPU nodes, storage, development or services",
    ),
    ("Oracle's 400,000 GB200 for 40 B$", "chips or superchips of two: the report does not say"),
    ("IREN's 1,080 H200 for 43.9 M$, 2,400 B200 and B300 for 130 M$", "parts not stated; two chips in one price"),
    ("NVIDIA, 50 to 60 B$ a GW", "of future chips, according to Bernstein"),
    ("DGX prices", "prices of the catalog's chips come from the same reports"),
)
"""Machines looked at, and why they are not in the table."""

MISSES = (
    ("HPL", "averages of the lists are 0.59 to 0.81 of the model's full load. Runs at 59 to 79 % of the A100's FP64 peak, and at "
            "a third of the MI250X's, probably leave chips below their caps; Perlmutter has one CPU for four chips, less than "
            "a host of 175 W"),
    ("GB200, unit and 1 GW", "the sources count racks at a nameplate of 132 kW, and management; 110 kW at full load in the model "
                             "(chips 83, hosts 13, NVLink 4, losses 10)"),
    ("GB200, 1 GW, capital", "agrees by compensation: a building of 10.2 $ a watt against 14.8, and 19 % more racks, each "
                             "8 % dearer"),
    ("GB300 and Vera Rubin, 1 GW", "network: NICs, cables and switches are a sixth of the model's capital"),
    ("New Carlisle", "chips and hosts: no power of Trainium2 is published; 500 W and 139 W are estimates"),
    ("H100 and B200, 1 GW", "chips: the catalog's prices are of 2023 and 2024, the source is of 2026"),
    ("Trainium3, 1 GW", "building: of the source's 15 $ a watt the model's building alone takes 10"),
)  # fmt: skip


@functools.cache
def figures(machine: Machine) -> Figures:
    """Return the model's figures of a machine; average power of training is that of the published run."""
    with jax.enable_x64(True):
        chips = machine.chips or 1e5
        cluster = catalog.cluster(machine.chip, chips, cooling=machine.cooling)
        bill = {
            part: (float(n * w) / chips, float(n * usd) / chips) for part, (n, usd, w) in bill_lines(cluster).items()
        }
    watts, dollars = ({part: pair[i] for part, pair in bill.items()} for i in (0, 1))
    boards = sum(w for part, w in watts.items() if part not in (*STORAGE, BUILDING, "fans and supplies"))
    without = WITHOUT[AVERAGES.get(machine.power, machine.power or "facility")]
    lost = sum(watts[part] for part in without if part not in (*STORAGE, BUILDING))
    kept = sum(w for part, w in watts.items() if part not in without) - lost * watts["fans and supplies"] / boards
    if machine.power == TRAINING:
        report = palm_540b().report
        kept = float(report.power_w / report.pue) / chips
    paid = (
        dollars[BUILDING] if machine.capital == "building"
        else sum(usd for part, usd in dollars.items() if part not in UNPAID[machine.capital or "all"])
    )  # fmt: skip
    return Figures(kept, paid, tuple(sum(watts.get(part, 0.0) for part in parts) for parts in COLUMNS.values()))


def ratios(machine: Machine, model: Figures) -> tuple[float | None, float | None]:
    """Return power a chip and capital, model over published; None where the source states none."""
    power = None if machine.chips is None or not machine.scored else model.watts * machine.chips / machine.watts
    chips = machine.watts / model.watts if machine.chips is None or machine.gigawatt else machine.chips
    return power, None if machine.usd is None else model.usd * chips / machine.usd


def row(machine: Machine) -> str:
    """Return a machine's line of the table."""
    model = figures(machine)
    power, capital = ratios(machine, model)
    chips = machine.watts / model.watts if machine.chips is None else machine.chips
    published = "" if power is None else f"{machine.watts / chips:,.0f}"
    paid = "" if capital is None or machine.usd is None else _millions(machine.usd)
    figure = "" if capital is None or machine.usd is None else _millions(capital * machine.usd)
    cells = "".join(f"{w:9,.0f}" for w in model.columns)
    return (
        f"{machine.name:27s}{machine.date:9s}{machine.chip:10s}{chips:>10,.0f}  {machine.power:35s}"
        f"{published:>7s}{model.watts:7,.0f}"
        f"{_share(power):>7s}{cells}   {machine.capital:10s}{paid:>8s}{figure:>8s}{_share(capital):>7s}"
    ).rstrip()


def _millions(usd: float) -> str:
    return f"{usd / 1e6:,.{2 if usd < 1e8 else 0}f}"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio - 1.0:+.0%}"


def _within(errors: list[float | None], most: float) -> str:
    stated = [each for each in errors if each is not None]
    held = sum(abs(each - 1.0) <= most for each in stated)
    mean = np.mean(np.abs(np.array(stated) - 1.0))
    return f"{held} of {len(stated)} within {most:.0%}, mean error {mean:.0%}"


def table() -> str:
    """Return the table, how many rows are within the limits, and the sources."""
    found = {machine: ratios(machine, figures(machine)) for machine in MACHINES}
    averages = [power for machine, (power, _) in found.items() if machine.power == HPL]
    others = [power for machine, (power, _) in found.items() if machine.power != HPL and not machine.gigawatt]
    gigawatts = [(machine, pair) for machine, pair in found.items() if machine.gigawatt]
    blackwell = [pair for machine, pair in gigawatts if machine.chip in ("gb200", "gb300")]
    head = (
        f"{'machine':27s}{'date':9s}{'chip':10s}{'chips':>10s}  {'power includes':35s}{'said':>7s}{'model':>7s}{'':7s}"
        + "".join(f"{name:>9s}" for name in COLUMNS) + f"   {'capital':10s}{'said':>8s}{'model':>8s}"
    )  # fmt: skip
    return "\n".join([
        "Published machines compared with the model. Power in W a chip, capital in M$. The columns after the ratio are the model's",
        "power at full load in W a chip, by part, whatever the source includes. Where the source states no number of chips it is",
        "the number that the model feeds.",
        "",
        head,
        *map(row, MACHINES),
        "",
        f"Power at full load or of training: {_within(others, POWER_WITHIN)}.",
        f"Average power of HPL against the model's full load: {_within(averages, POWER_WITHIN)}.",
        f"Capital: {_within([usd for machine, (_, usd) in found.items() if not machine.gigawatt], CAPITAL_WITHIN)}.",
        f"1 GW, chips: {_within([1.0 / p if p else None for _, (p, _) in gigawatts], GIGAWATT_WITHIN)}; "
        f"of GB200 and GB300 {_within([1.0 / p if p else None for p, _ in blackwell], GIGAWATT_WITHIN)}.",
        f"1 GW, capital: {_within([usd for _, (_, usd) in gigawatts], GIGAWATT_WITHIN)}; "
        f"of GB200 and GB300 {_within([usd for _, usd in blackwell], GIGAWATT_WITHIN)}.",
        "",
        "What the misses are made of",
        *(f"  {name}: {why}" for name, why in MISSES),
        "",
        "Sources",
        *(f"  {each.name}: {each.source}{f'; {each.note}' if each.note else ''}" for each in MACHINES),
        "",
        "Looked at and left out",
        *(f"  {name}: {why}" for name, why in LEFT_OUT),
    ])  # fmt: skip


if __name__ == "__main__":
    print(table())
