"""Bill of materials of an answer: component, quantity, unit price, power, and the source of the price."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx

from hwopt.catalog import Record, slice_words, slices
from hwopt.declared import shown
from hwopt.design.design import Design, kinds_of_chips, serving_part, training_part, with_derived_parts
from hwopt.hardware.cluster import Cluster
from hwopt.model.facility.bill import bill_lines
from hwopt.model.facility.rack import chips_in_racks
from hwopt.output.answer import Section, Sentences, Table
from hwopt.solver.solution import Solution
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.units import pretty
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe

_PRICED_BY = {
    "chips": ("chip", "price"), "HBM stacks": ("prices", "hbm_usd_per_byte"), "scale-up lanes": ("scale_up", "price"),
    "domain cabling": ("prices", "domain_usd_per_chip"), "optics beyond racks": ("rack", "optics_price"),
    "NICs and cables": ("scale_out", "price"), "switches": ("scale_out", "switch_price_share"),
    "hosts": ("prices", "host_usd"), "memory pool": ("pool", "price"),
    "memory": ("prices", "hbm_usd_per_byte"), "racks": ("rack", "price"), "storage, TB": ("storage", "price"),
    "storage bandwidth, per chip": ("storage", "bandwidth_price"),
    "spares": ("prices", "spares_fraction"),
    "hot spares": ("recovery", "spare_deviations"), "chips of the minimum order unused": ("prices", "least_order"),
    "redesign of the chip": ("prices", "redesign"), "fans and supplies": ("cooling", "fan_fraction"),
    "building, W of IT": ("site", "construction"), "further sites": ("lines", "site_price"),
}  # fmt: skip
"""Component -> (catalog record, key) that states its price; the record is named by its role."""

_ON_DIES = {"HBM stacks": "memory"}
"""Other names of components of a chip without HBM stacks."""

_WHOLE = ("switches", "spares", "hot spares", "chips of the minimum order unused")
"""Components that the model counts in proportion to others. The bill rounds their count up and prices only the used share.

Hot spares are rounded to whole servers.
"""

_NOTHING, _ROUNDING = 1e-12, 1e-9

PROMPTS, ANSWERS = "prefill: ", "decode: "
"""Prefixes of components of the prefill and the decode machine, where these have different chips."""


class BillItem(NamedTuple):
    """Row of the bill of materials. **Units:** `unit_price` in USD and `power_w` in W, both of one."""

    part: str
    count: float
    unit_price: float
    power_w: float
    source: str

    @property
    def price(self) -> float:
        return self.count * self.unit_price

    @property
    def power(self) -> float:
        return self.count * self.power_w


def bill(solution: Solution) -> list[BillItem]:
    """Return the bill of materials of an answer, without components that cost and draw nothing.

    The totals are its capital cost and its peak power.
    """
    known = solution.problem.provenance
    machines = _machines(solution.built.workload, solution.built)
    of = lambda label: known.of_answers if label == ANSWERS else known.records
    return _dearest_first(
        row for label, each in machines for row in _rows(each.cluster, each.workload, of(label), label)
    )


@dataclass(frozen=True)
class SystemCount:
    """Systems of one type that an answer buys."""

    name: str = shown("", "entry of hwopt catalog systems, or typical-CHIP where it has none")
    title: str = shown()
    count: float = shown("", "systems")
    chips_each: float = shown("chip", "of one system")
    racks: float = shown("", "racks that they fill")
    used_each: float = shown("chip", "of one system that the plan uses; the others are hot spares")
    machine: str = shown("", "part of the machine, where it has two", default="", optional=True)
    slice: str = shown("", "shape of a slice of a torus, which is then what is counted", default="", optional=True)

    @property
    def slices(self) -> str:
        """Return the number and the shape of slices in words, such as 4 slices of 8x8x16; empty for other systems."""
        return slice_words(self.count * self.chips_each, self.slice) if self.slice else ""

    @property
    def words(self) -> str:
        """Return the number of systems and of their racks in words, such as 198 racks of GB200 NVL72."""
        racks = f"{self.racks:,.0f} {'rack' if self.racks == 1 else 'racks'}"
        counted = f"{self.slices}, in {racks} of" if self.slice else f"{racks} of" if self.count == self.racks else ""
        words = f"{counted} {self.title}" if counted else f"{self.count:,.0f} x {self.title}, in {racks}"
        used = f", {self.used_each:,.0f} of {self.chips_each:,.0f} chips used"
        return words + (used if self.used_each < self.chips_each else "")


_NOT_SOLD = ("hbm_stacks", "scale_up_lanes", "scale_up_domain")
"""Variables of a machine that no product has."""


def systems(solution: Solution) -> list[SystemCount]:
    """Return the systems that an answer buys; none where its chips, NICs or racks are not as a product is sold."""
    problem = solution.problem
    fixed = [each.lower == each.upper for each in problem.variables if each.name.endswith("nics_per_server")]
    if not all(fixed) or not fixed or any(each.name in _NOT_SOLD for each in problem.variables):
        return []
    counts, known = [], problem.provenance
    for label, design in _machines(solution.built.workload, solution.built):
        rack, sold = design.cluster.rack, (known.of_answers if label == ANSWERS else known.records).get("system")
        chips, each = round(float(design.cluster.chips)), round(float(rack.system_chips))
        used = round(each * chips / float(chips_in_racks(design.cluster)))
        domain, shapes = float(design.cluster.network.size[0]), slices(sold) if sold else {}
        shape = next((one.shape for one in shapes.values() if one.chips == each == domain), "")
        if sold is not None and (shape or sold.si("chips") == each):
            racks, part = math.ceil(chips / float(rack.chips) * (1.0 - _ROUNDING)), label.removesuffix(": ")
            counts.append(SystemCount(sold.slug, sold.title, chips / used, each, racks, used, part, shape))
    return counts


def cluster_bill(cluster: Cluster, workload: Any, records: Mapping[str, Record]) -> list[dict[str, Any]]:
    """Return the bill of materials of a given cluster, for JSON: one row per component, the most expensive first.

    **Arguments:** `workload`: the workload that its storage is sized for; `records`: its catalog entries, by part, such
    as `chip`.
    """
    return [row._asdict() for row in _dearest_first(_rows(cluster, workload, records))]


def _dearest_first(rows: Iterable[BillItem]) -> list[BillItem]:
    return sorted(rows, key=lambda row: (-row.price, -row.power))


def _rows(cluster: Cluster, workload: Any, records: Mapping[str, Record], label: str = "") -> Iterator[BillItem]:
    names = {} if float(cluster.chip.hbm_stacks) else _ON_DIES
    for key, line in evaluate_in_numpy(bill_lines, cluster, workload).items():
        count, price, power = map(float, line)
        part = str(names.get(key, key))
        if count > _NOTHING and (abs(price) > 0.0 or abs(power) > 0.0):
            lot = float(cluster.rack.server_chips) if part == "hot spares" else 1.0
            whole = lot * math.ceil(count / lot * (1.0 - _ROUNDING)) if part in _WHOLE else count
            in_use = count / whole
            yield BillItem(label + part, whole, in_use * price, in_use * power, _source(records, part))


@singledispatch
def _machines(workload: Any, design: Design) -> list[tuple[str, Design]]:
    """Return the machines that an answer buys, each with a prefix for its components where there are two."""
    return [("", design)]


@_machines.register
def _(workload: Service, design: Design) -> list[tuple[str, Design]]:
    kinds, plans = kinds_of_chips(design), design.plan.groups
    if len(kinds) == 1:
        return [("", design)]
    own = lambda group, each: each._replace(cluster=eqx.tree_at(lambda c: c.chips, each.cluster, plans[group].chips))
    kinds = {group: each._replace(cluster=each.cluster.unstored) if group else each for group, each in kinds.items()}
    return [(PROMPTS if group else ANSWERS, own(group, each)) for group, each in kinds.items()]


@_machines.register
def _(workload: TrainServe, design: Design) -> list[tuple[str, Design]]:
    training, serving = training_part(design), with_derived_parts(serving_part(design)._replace(project=None))
    return [("training: ", training), ("serving: ", serving)]


def _source(records: Mapping[str, Record], part: str) -> str:
    """Return the catalog record and the citation behind a price; the record alone where its number is derived from several."""
    of, key = _PRICED_BY[part]
    record = records.get(of)
    if record is None:
        return "hwopt"
    number = record.quantities.get(key)
    return f"{record.slug}: {number.source}" if number is not None else record.slug


def joint_bill(solutions: Iterable[Solution]) -> list[BillItem]:
    """Return the combined bill of materials of several answers. Unit price and power are means where they differ."""
    rows: dict[tuple[str, str], list[BillItem]] = {}
    for solution in solutions:
        for row in bill(solution):
            rows.setdefault((row.part, row.source), []).append(row)
    together = []
    for (part, source), several in rows.items():
        count = sum(row.count for row in several)
        price, power = (sum(getattr(row, name) for row in several) for name in ("price", "power"))
        together.append(BillItem(part, count, price / count, power / count, source))
    return _dearest_first(together)


def bill_section(rows: Sequence[BillItem], rents: bool) -> Section:
    """Return the bill as a table whose last row is the total.

    **Arguments:** `rents`: whether the machine is rented, so that a landlord pays.
    """
    cells = []
    for row in rows:
        counted = pretty(row.count, "W") if row.part.endswith("W of IT") else f"{row.count:,.0f}"
        each = pretty(row.unit_price, "USD") if row.unit_price else "-"
        cells.append(
            [
                re.sub(r", (W of IT|TB)$", r", per \1", row.part),
                counted,
                each,
                pretty(row.price, "USD"),
                pretty(row.power, "W"),
            ]
        )
    paid, drawn = sum(row.price for row in rows), sum(row.power for row in rows)
    cells.append(["total", "", "", pretty(paid, "USD"), pretty(drawn, "W")])
    heads = ("component", "quantity", "unit price", "total price", "peak power")
    note = ["Rented: the landlord pays these prices; they are part of the rent."] if rents else []
    title = "Bill of materials (power: every chip at full load on the hottest design day)"
    return Section(title, [Table("the bill", heads, cells), Sentences(note)])


def rented(solution: Solution) -> bool:
    """Return whether the machine is rented, so that its owner pays the bill."""
    return float(solution.built.cluster.groups[0].prices.owned) == 0.0
