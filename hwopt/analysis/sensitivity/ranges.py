"""Uncertainty range of each input, with provenance tag and source, as stated in the catalog."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hwopt.catalog.schema import Record, StatedQuantity
from hwopt.design.template_inputs import Input
from hwopt.types import TIERS
from hwopt.units import to_si

UNSTATED = 0.1
"""Relative range to each side for inputs without a stated one."""

UNSTATED_K = 5.0
"""Range of temperatures to each side, K; relative changes of an absolute temperature are meaningless."""

_ROLES = {
    "workload.law": ("law",),
    "workload.training.law": ("law",),
    "workload.stack": ("serving_stack",),
    "cluster.chip": ("chip",),
    "cluster.network": ("chip",),
    "cluster.cooling": ("cooling",),
    "cluster.rack": ("rack", "scale_up"),
    "cluster.facility": ("chip", "site"),
    "cluster.reliability": ("reliability",),
    "cluster.recovery": ("recovery",),
    "cluster.operation": ("operation",),
    "cluster.pool": ("pool",),
    "cluster.storage": ("storage", "reliability"),
    "cluster.sites": ("lines",),
    "cluster.prices": ("chip", "prices"),
    "cluster.stack": ("stack",),
    "project.technology": ("technology", "memory", "datapath", "design"),
    "project.process": ("process",),
    "project.base_process": ("base_process",),
    "project": ("prices", "design"),
}
"""Module of an input -> catalog entries that may state it; the first one that does counts."""


@dataclass(frozen=True)
class InputRange:
    """Uncertainty range of an input: its ends in SI units, provenance tag and source."""

    low: float
    high: float
    stated: bool  # by the catalog; otherwise a conventional range for display
    kind: str = ""
    source: str = ""


def range_of(each: Input, records: Mapping[str, Record]) -> InputRange:
    """Return the range of an input. Without a stated one, it is `UNSTATED` to both sides, or `UNSTATED_K` for a temperature."""
    unstated = InputRange(each.value * (1.0 - UNSTATED), each.value * (1.0 + UNSTATED), False)
    if each.is_temperature:
        unstated = InputRange(each.value - UNSTATED_K, each.value + UNSTATED_K, False)
    entry = _entry(each, records)
    if entry is None:
        return unstated
    record, key, shift = entry
    quantity, source = record.quantities[key], record.citation(key)
    if quantity.low is None and quantity.high is None:
        return replace(unstated, kind=quantity.kind, source=source)
    low, high = (
        _end(each, quantity, quantity.value if end is None else end, shift) for end in (quantity.low, quantity.high)
    )
    return InputRange(low, high, True, quantity.kind, source)


def _end(each: Input, quantity: StatedQuantity, end: float, shift: float) -> float:
    """Return one end of a range in terms of the input: scaled in proportion, or shifted by `shift` per unit."""
    if shift or quantity.unit == "degC":
        return each.value + (shift or 1.0) * (to_si(end, quantity.unit) - quantity.si)
    return each.value * to_si(end, quantity.unit) / quantity.si


def _entry(each: Input, records: Mapping[str, Record]) -> tuple[Record, str, float] | None:
    """Return the catalog record and key that state an input, and the input's shift per unit (0: in proportion)."""
    if not records:
        return None
    if each.name == "cluster.prices.chip_base_usd":
        # Remainder of the chip's price after memory and links, or its least share of the price; the price list's factor makes
        # it uncertain.
        paid, chip = records["prices"], records["chip"]
        price = chip.si("price", chip.si("peak.bf16") * paid.si("chip_usd_per_bf16_flops"))
        least = paid.si("chip_base_floor_fraction") * paid.si("price_factor") * price
        return paid, "price_factor", 0.0 if each.value <= least * (1.0 + 1e-6) else price
    keys = [key for key in (each.quantity.key, each.quantity.follows) if key]
    if each.label in TIERS:
        return _link(each.quantity.follows, each.label, records)
    family = str(records["chip"].text.get("architecture", ""))
    roles = [role for role in (each.quantity.of, *_ROLES.get(each.module, ())) if role in records]
    for role, key in itertools.product(roles, keys):
        for name in (f"{key}.{each.label}", key, f"{key}.{family}", f"{key}.default"):
            if name in records[role].quantities:
                return records[role], name, 0.0
    return None


def _link(key: str, tier: str, records: Mapping[str, Record]) -> tuple[Record, str, float] | None:
    """Return the record of a link, or of a chip, that states a number of a network tier."""
    if tier == "scale_up" and f"scale_up_{key}" in records["chip"].quantities:
        return records["chip"], f"scale_up_{key}", 0.0
    record = records["scale_up" if tier == "scale_up" else "scale_out"]
    if tier == "core" and f"core_{key}" in record.quantities:
        return record, f"core_{key}", 0.0
    return (record, key, 0.0) if key in record.quantities else None
