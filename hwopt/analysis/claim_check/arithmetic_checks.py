"""Claim checks without the model: consistency of the stated numbers with each other and with the chip's datasheet."""

import math
from collections.abc import Iterable

from hwopt import catalog
from hwopt.analysis.claim_check.check_line import (
    ROUNDED,
    CheckLine,
    CheckRelation,
    Correction,
    amount,
    checked_line,
    unchecked_line,
)
from hwopt.analysis.claim_check.statement import WHOLE, Blueprint
from hwopt.catalog.chips import nic_link, slot
from hwopt.errors import UserError
from hwopt.units import pretty

MEMORY_LEEWAY = 0.1
"""Relative tolerance of memory: a GB may be a GiB (7.4 %), and firmware reserves 1 to 3 % (see `memory_capacity` of chips)."""

MFU_LEEWAY = 0.1
"""Relative tolerance of MFU: FLOP conventions differ in attention and embedding, 2 to 10 % of 6 N D usually (assumption)."""

DATASHEET_LEEWAY = 0.03
"""Relative tolerance of datasheet values, which are rounded (assumption)."""

BINARY_LEEWAY = 0.05
"""Relative tolerance of binary prefixes: 16 M may mean 2^24 or 16e6 (4.9 %)."""

HOURS_LEEWAY = 0.03
"""Relative tolerance of chip hours: days and chip hours are both rounded (assumption)."""

COST_LEEWAY = 0.05
"""Relative tolerance of cost: chip hours, their price and the run's cost are all rounded (assumption)."""

WITHOUT_PUE = (1.0, 2.0)
"""PUE range of data centers where none is stated: IT only, to twice IT (assumption: means of surveys are 1.5 to 1.6)."""


def arithmetic_checks(blueprint: Blueprint, flops_per_token: float) -> list[CheckLine]:
    """Return all check lines that follow from the stated numbers by arithmetic.

    **Arguments:** `blueprint`: the claim; `flops_per_token`: FLOP per token of the run's model, NaN where unknown.
    """
    found = (
        _racks(blueprint),
        _steps(blueprint),
        _batch(blueprint),
        _chip_hours(blueprint),
        _cost(blueprint),
        _power(blueprint),
        _utilisation(blueprint, flops_per_token),
        *_datasheet(blueprint),
    )
    return [each for each in found if each is not None]


def corrections(blueprint: Blueprint, values: Iterable[tuple[str, float]]) -> tuple[Correction, ...]:
    """Return corrections of a failing line: for each stated key, the value that it would need."""
    repairs = (
        Correction(key, blueprint[key], float(round(value)) if key in WHOLE else value)
        for key, value in values
        if blueprint.has(key) and math.isfinite(value) and value > 0.0 and value != blueprint[key]
    )
    return tuple(each for each in repairs if each.after >= 1.0 or each.key not in WHOLE)


def _racks(b: Blueprint) -> CheckLine | None:
    """Check `racks = ceil(chips / chips per rack)`; the last rack may be partly filled."""
    if not b.has("chips", "racks", "rack_chips"):
        return None
    needed = float(math.ceil(b["chips"] / b["rack_chips"]))
    each = float(math.ceil(b["chips"] / b["racks"]))
    fits = math.ceil(b["chips"] / each) == b["racks"]
    repairs = [("racks", needed), ("chips", b["racks"] * b["rack_chips"])]
    return checked_line(
        "racks",
        "racks x chips per rack = chips",
        CheckRelation.equal,
        b["racks"],
        needed,
        "",
        why=f"{b['racks']:,.0f} x {b['rack_chips']:,.0f} = {b['racks'] * b['rack_chips']:,.0f} chips; "
        f"stated: {b['chips']:,.0f}",
        keys=("chips", "racks", "rack_chips"),
        repairs=corrections(b, [*repairs, *([("rack_chips", each)] if fits else [])]),
    )


def _steps(b: Blueprint) -> CheckLine | None:
    if not b.has("tokens", "steps") or math.isnan(b.batch_tokens):
        return None
    total = b["steps"] * b.batch_tokens
    more = b["tokens"] / total
    batch = "batch_tokens" if b.has("batch_tokens") else "global_batch"
    repairs = [("tokens", total), ("steps", float(round(b["steps"] * more))), (batch, b[batch] * more)]
    return checked_line(
        "steps",
        "steps x tokens per step = tokens",
        CheckRelation.equal,
        b["tokens"],
        total,
        "token",
        leeway=ROUNDED,
        why=f"{b['steps']:,.0f} x {pretty(b.batch_tokens)} tokens",
        keys=("tokens", "steps", "batch_tokens", "global_batch", "sequence_length"),
        repairs=corrections(b, repairs),
    )


def _batch(b: Blueprint) -> CheckLine | None:
    if not b.has("batch_tokens", "global_batch", "sequence_length"):
        return None
    product = b["global_batch"] * b["sequence_length"]
    repairs = [
        ("batch_tokens", product),
        ("global_batch", b["batch_tokens"] / b["sequence_length"]),
        ("sequence_length", b["batch_tokens"] / b["global_batch"]),
    ]
    return checked_line(
        "batch",
        "sequences x sequence length = tokens per step",
        CheckRelation.equal,
        b["batch_tokens"],
        product,
        "token",
        leeway=BINARY_LEEWAY,
        keys=("batch_tokens", "global_batch", "sequence_length"),
        why="16 M may mean 2^24 or 16e6",
        repairs=corrections(b, repairs),
    )


def _chip_hours(b: Blueprint) -> CheckLine | None:
    if not (b.has("chip_hours", "time") and (b.has("chips") or b.has("racks", "rack_chips"))):
        return None
    repairs = [
        ("chip_hours", b.chips * b["time"]),
        ("time", b["chip_hours"] / b.chips),
        ("chips", b["chip_hours"] / b["time"]),
    ]
    return checked_line(
        "chip hours",
        "chips x time = chip hours",
        CheckRelation.equal,
        b["chip_hours"],
        b.chips * b["time"],
        "s",
        leeway=HOURS_LEEWAY,
        keys=("chip_hours", "time", "chips"),
        repairs=corrections(b, repairs),
    )


def _cost(b: Blueprint) -> CheckLine | None:
    """Check `cost = chip hours x price`; chip hours may be chips x time."""
    hours = b["chip_hours"] if b.has("chip_hours") else b.chips * b.time
    if not b.has("run_cost", "chip_hour_price") or math.isnan(hours):
        return None
    total, price = hours * b["chip_hour_price"], b["chip_hour_price"]
    more = b["run_cost"] / total
    time = "chip_hours" if b.has("chip_hours") else "time"
    return checked_line(
        "arithmetic of cost",
        "chip hours x price per chip hour = cost of the run",
        CheckRelation.equal,
        b["run_cost"],
        total,
        "USD",
        leeway=COST_LEEWAY,
        why=f"{hours / 3.6e9:.4g} M chip hours at {pretty(price, 'USD/s')}",
        keys=("run_cost", "chip_hour_price", "chip_hours", "time", "chips"),
        repairs=corrections(b, [("run_cost", total), ("chip_hour_price", price * more), (time, b[time] * more)]),
    )


def _power(b: Blueprint) -> CheckLine | None:
    """Check the machine's power against rack power times the PUE, stated or 1 to 2. Chip power alone is only a lower limit."""
    racks = b["racks"] if b.has("racks") else math.ceil(b.chips / b["rack_chips"]) if b.has("rack_chips") else math.nan
    it = racks * b["rack_power"] if b.has("rack_power") else b.chips * b["chip_power"]
    if not b.has("power") or math.isnan(it):
        return None
    of_racks = b.has("rack_power")
    what = (
        f"{racks:,.0f} racks x {pretty(b['rack_power'], 'W')}"
        if of_racks
        else f"{b.chips:,.0f} chips x {pretty(b['chip_power'], 'W')}"
    )
    pue = (b["pue"], b["pue"]) if b.has("pue") else WITHOUT_PUE
    low, high = it * pue[0], it * pue[1]
    # Chips alone give a lower limit: servers, fans and network need power as well.
    relation = CheckRelation.equal if of_racks else CheckRelation.at_most
    said = f"x a PUE of {pue[0]:g}" if b.has("pue") else f"x a PUE from {pue[0]:g} to {pue[1]:g}"
    of_machine, of_part = (low, pue[0]) if b["power"] < low else (high, pue[1])
    repairs = [("power", of_machine), ("rack_power", b["power"] / of_part / racks)]
    if b["power"] < low:
        repairs.append(("chip_power", b["power"] / of_part / b.chips))
    return checked_line(
        "power of racks" if of_racks else "power of chips",
        "power of the parts x PUE = power of the machine",
        relation,
        b["power"],
        it * math.sqrt(pue[0] * pue[1]),
        "W",
        ends=(low, high),
        leeway=ROUNDED,
        why=f"{what} = {pretty(it, 'W')}, {said}",
        keys=("power", "rack_power", "chip_power", "racks"),
        repairs=corrections(b, repairs),
    )


def _utilisation(b: Blueprint, flops_per_token: float) -> CheckLine | None:
    """Check `FLOP of the run <= chips x peak x MFU x time`, all as stated."""
    if not b.has("mfu"):
        return None
    claim = "chips x peak x MFU x time = FLOP of the run"
    lacking = [
        name for name, value in (("chips", b.chips), ("time", b.time), ("tokens", b.tokens)) if math.isnan(value)
    ]
    peak = _peak(b) if not b.has("peak") else b["peak"]
    if lacking or math.isnan(flops_per_token) or math.isnan(peak):
        lacking += ["workload or parameters"] if math.isnan(flops_per_token) else []
        lacking += ["chip or peak"] if math.isnan(peak) else []
        return unchecked_line("arithmetic of MFU", claim, f"not stated: {', '.join(lacking)}", "", b["mfu"])
    needed = b.tokens * flops_per_token / (b.chips * peak * b.time)
    goodput = f" at a peak of {pretty(peak, 'FLOP/s')} per chip; time lost to failures counts as time"
    more = needed / b["mfu"]
    time = "time" if b.has("time") else "chip_hours"
    repairs = [
        *([("mfu", needed)] if needed <= 1.0 else []),
        (time, b[time] * more),
        ("chips", math.ceil(b["chips"] * more) if b.has("chips") else math.nan),
        ("tokens", b["tokens"] / more),
    ]
    return checked_line(
        "arithmetic of MFU",
        claim,
        CheckRelation.at_most,
        b["mfu"],
        needed,
        "fraction",
        leeway=MFU_LEEWAY,
        why=f"{b.tokens * flops_per_token:.3g} FLOP require an MFU of {100 * needed:.3g} %{goodput}",
        keys=("mfu", "time", "chip_hours", "chips", "tokens"),
        repairs=corrections(b, repairs),
    )


def _peak(b: Blueprint) -> float:
    """Return the datasheet's dense peak in the precision of the run; NaN without a chip."""
    if b.word("chip") is None:
        return math.nan
    return catalog.record("chips", str(b.word("chip"))).si(f"peak.{slot(b.word('precision') or 'bf16')}", math.nan)


def _datasheet(b: Blueprint) -> list[CheckLine]:
    """Check stated properties of a chip against its datasheet."""
    asked = [key for key in ("chip_memory", "peak", "chip_power", "scale_out_bandwidth") if b.has(key)]
    if b.word("chip") is None:
        return [
            unchecked_line(key.replace("_", " "), "equal to the chip's datasheet", "no chip is stated", "", b[key])
            for key in asked
        ]
    entry = catalog.record("chips", str(b.word("chip")))
    lines = []
    if b.has("chip_memory"):
        ours = entry.si("memory_capacity", math.nan)
        lines.append(_beside(b, "chip memory", "chip_memory", ours, "B", MEMORY_LEEWAY, "a GB may be a GiB"))
    if b.has("peak"):
        precision, ours = b.word("precision") or "bf16", _peak(b)
        double = (
            "; twice that is the peak with sparsity, or of the next narrower format"
            if 1.9 < b["peak"] / ours < 2.1
            else ""
        )
        lines.append(_beside(b, "peak", "peak", ours, "FLOP/s", DATASHEET_LEEWAY, f"dense, {precision}{double}"))
    if b.has("chip_power"):
        lines.append(
            _beside(b, "chip power", "chip_power", entry.si("tdp", math.nan), "W", DATASHEET_LEEWAY, "the TDP")
        )
    if b.has("scale_out_bandwidth") and (link := nic_link(entry)):
        sold = amount(entry.si("scale_out_bandwidth", math.nan), "B/s", "network")
        network = checked_line(
            "network",
            "network bandwidth per chip within the bandwidth of its link to NICs",
            CheckRelation.at_least,
            b["scale_out_bandwidth"],
            link,
            "B/s",
            keys=("scale_out_bandwidth",),
            leeway=ROUNDED,
            repairs=corrections(b, [("scale_out_bandwidth", link)]),
            why=f"the computed figure is that link; the chip is sold with {sold}",
        )
        lines.append(network)
    return lines


def _beside(b: Blueprint, name: str, key: str, ours: float, unit: str, leeway: float, why: str) -> CheckLine:
    claim = f"equal to the datasheet of {b.word('chip')}"
    if math.isnan(ours):
        return unchecked_line(name, claim, "not stated by the catalog entry", unit, b[key])
    return checked_line(
        name, claim, CheckRelation.equal, b[key], ours, unit,
        leeway=leeway, why=why, keys=(key,), repairs=corrections(b, [(key, ours)]),
    )  # fmt: skip


def check_words(b: Blueprint) -> None:
    """Reject a precision that the chip does not support, and a plan without a model, before any work.

    **Raises:** `UserError`.
    """
    if b.word("chip") is not None and "unsupported" in catalog.record("chips", str(b.word("chip"))).text:
        return
    if b.word("precision") is not None and b.word("chip") is not None:
        catalog.check_precision(str(b.word("chip")), str(b.word("precision")))
    elif b.word("precision") is not None:
        slot(str(b.word("precision")))
    if b.word("plan") is not None and b.word("workload") is None and not b.has("parameters"):
        raise UserError("blueprint: a plan says how a model is split: state its workload or parameters, too")
