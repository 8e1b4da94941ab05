"""Chips: datasheet entries as `Chip`, their native number formats, and their usual software."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hwopt.catalog.dates import question_date, release, software_of
from hwopt.catalog.facilities import own_cooling
from hwopt.catalog.fields import ARCHITECTURES, keys
from hwopt.catalog.load import built, leaf, record, supported
from hwopt.catalog.schema import Record
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip import LEAKAGE_REFERENCE_K, Chip
from hwopt.hardware.facility import Cooling
from hwopt.quantity import quantities
from hwopt.run_words import BY_NAME, implied, switched
from hwopt.stack import Capabilities, Stack
from hwopt.types import PRECISIONS

SLOTS = {name: name for name in PRECISIONS} | {"fp16": "bf16", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
"""Number format as written -> its entry of `PRECISIONS`."""

_IDLE_JUNCTION_K = 313.15
"""Junction temperature (40 degC) of an idle chip, at which idle power is measured (assumption, 30 to 50 degC)."""

_SUPPLY_TOLERANCE_K = 2.0
"""Excess of the coolant temperature over its stated value at which chips still reach their TDP, in K (assumption, 1 to 5)."""

_SERDES_J_PER_BYTE = 16e-12
"""Idle power of trained SerDes per bandwidth of one direction: 2 pJ/bit, as in parametric chips (assumption, 0.5 to 5)."""

_MOST_SERDES = 0.5
"""Maximum share of SerDes in a chip's standby power (assumption): links on a wafer have no SerDes."""

_DEFAULT_STACKS = {
    "volta": "megatron-2021", "ampere": "nemo-2024", "ada": "torch-fsdp-2023", "hopper": "nemo-2024",
    "blackwell": "nemo-2025", "rubin": "nemo-2025",
    "cdna2": "rocm-primus-2025", "cdna3": "rocm-primus-2025", "cdna4": "rocm-primus-2025", "cdna5": "rocm-primus-2025",
    "tpu": "jax-maxtext-tpu",
    "trainium": "neuron", "gaudi": "torch-fsdp-2023", "ascend": "megatron-2023", "wafer": "ideal", "lpu": "ideal", "ipu": "ideal",
}  # fmt: skip


def slot(precision: str) -> str:
    """Return the entry of `PRECISIONS` that a number format uses.

    **Raises:** `UserError` for an unknown format.
    """
    try:
        return SLOTS[precision.lower()]
    except (KeyError, AttributeError):
        raise UserError(f"unknown precision '{precision}': {suggest(str(precision), SLOTS)}") from None


def chip(name: str | Path) -> Chip:
    """Return an accelerator of the catalog, or of a user's own `.toml`.

    A chip draws its TDP at full load and at `rated_junction_k`. Hence `core = TDP - standby - leakage - HBM bandwidth x
    HBM energy`. Idle power is measured at a cool junction: `standby = idle - leakage exp(-growth x 35 K)`, with the
    leakage at 75 degC.

    **Arguments:** `name`: any spelling that `find("chips", ...)` knows, or a path.

    **Raises:** `UserError` for an unknown name, a bad file, or a TDP that memory and idle power already exhaust.
    """
    entry = supported("chips", name)
    tdp = entry.si("tdp")
    bandwidth, energy = entry.si("memory_bandwidth"), entry.si("memory_energy")
    leakage, growth = tdp * entry.si("leakage_fraction"), entry.si("leakage_growth")
    idle = tdp * entry.si("idle_fraction")
    standby = idle - leakage * math.exp(-growth * (LEAKAGE_REFERENCE_K - _IDLE_JUNCTION_K))
    if standby < 0.0:
        entry.refuse(
            f"leakage alone exceeds the idle power of {idle:g} W: raise 'idle_fraction' or lower 'leakage_fraction'"
        )
    links = entry.si("scale_up_bandwidth", supported("links", str(entry.text["scale_up"])).si("bandwidth"))
    die_area, base_area = entry.si("die_area"), entry.si("heat_area", 0.0)
    heat_area = base_area or die_area
    hot = leakage * math.exp(growth * (rated_junction_k(own_cooling(name), tdp, heat_area) - LEAKAGE_REFERENCE_K))
    core = tdp - standby - hot - bandwidth * energy
    if core <= 0.0:
        entry.refuse(
            f"a TDP of {tdp:g} W leaves no power for computation after standby and leakage "
            f"({standby + hot:g} W) and memory ({bandwidth * energy:g} W): lower 'memory_energy' or 'idle_fraction'"
        )
    return built(
        Chip,
        entry,
        clock_ratio=1.0,
        sold_clock_ratio=1.0,
        power_cap_w=tdp,
        standby_power_w=standby,
        scale_up_idle_j_per_byte=min(_SERDES_J_PER_BYTE, _MOST_SERDES * standby / links),
        leakage_power_w=leakage,
        core_power_w=core,
        heat_area_m2=heat_area,
        nic_link_bytes_per_s=nic_link(entry),
        logic_area_m2=die_area + base_area,
    )


def rated_junction_k(around: Cooling, tdp_w: float, heat_area_m2: float) -> float:
    """Return the junction temperature at which a chip draws its TDP: 75 degC, or warmer if its own cooling leaves it
    warmer.

    `max(348 K, T_coolant + tolerance + R TDP)`, at most the junction's limit. Reason: clock and TDP of a datasheet
    apply in the servers in which the chip is sold.

    **Arguments:** `around`: the cooling of those servers, with the chip's own limit; `tdp_w`; `heat_area_m2` of the
    die.
    """
    limit = float(around.junction_limit_k)
    resistance = float(around.sink_resistance_k_per_w) + float(around.area_resistance_k_m2_per_w) / heat_area_m2
    settled = float(around.coolant_temperature_k) + _SUPPLY_TOLERANCE_K + resistance * tdp_w
    return min(max(LEAKAGE_REFERENCE_K, settled), max(limit, LEAKAGE_REFERENCE_K))


def architecture(entry: Record) -> str:
    """Return the chip family of an entry of `chips`.

    **Raises:** `UserError` for a family that no stack knows.
    """
    family = str(entry.text["architecture"])
    if family not in ARCHITECTURES:
        raise UserError(
            f"chip '{entry.slug}' has the unknown architecture '{family}': {suggest(family, ARCHITECTURES)}"
        )
    return family


def check_precision(name: str | Path, precision: str) -> str:
    """Return `precision` in lower case, if the chip has units for it.

    **Arguments:** `name` of a chip; `precision` such as `fp8` or `nvfp4`. fp16 and bf16 are interchangeable on chips
    with bf16 units.

    **Raises:** `UserError` that names the formats the chip has.
    """
    entry = supported("chips", name)
    native = entry.words("native")
    wanted = precision.lower() if isinstance(precision, str) else str(precision)
    if wanted not in native and slot(precision) not in native:
        raise UserError(f"chip '{entry.slug}' does not compute in {wanted}; it supports {', '.join(native)}")
    return wanted


_LISTED = {
    "fp8_products": {"fp8", "mxfp8"}, "int8_products": {"int8"}, "fp4_products": {"nvfp4", "mxfp4"},
    "deduplicated_dispatch": {"DeepEP", "HybridEP"},
}  # fmt: skip
"""Capability -> names in a stack's `formats` or `dispatchers`, of which it has one."""


def stack(name: str | Path, architecture: str = "default", any_software: bool = False) -> Stack:
    """Return a software stack on a chip family.

    **Arguments:** `name` of the stack, or a path; `architecture` in the words of chip entries (`hopper`, `cdna3`,
    `tpu`, ...). The architecture selects the efficiency of attention kernels, `default` where the stack states none for
    it. `any_software`: whether plans may do what the stack does not document.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = supported("stacks", name)
    documented = built(
        Capabilities,
        entry,
        **{
            key: float(not names.isdisjoint((*entry.words("formats"), *entry.words("dispatchers"))))
            for key, names in _LISTED.items()
        },
    )
    families = {
        key: architecture if f"{key}.{architecture}" in entry.quantities else "default" for key in keys(Stack, "family")
    }
    efficiencies = {key: entry.si(f"{key}.{family}") for key, family in families.items()}
    return built(Stack, entry, capabilities=documented.lifted if any_software else documented, **efficiencies)


def with_words(software: Stack, name: str | Path, words: Mapping[str, Any], any_software: bool = False) -> Stack:
    """Return a software stack with the numbers that the words of a run set.

    **Arguments:** `name` of the stack; `words`: value by name (`hwopt.run_words.WORDS`), None where a word is not stated;
    `any_software`: whether words may state what the stack does not document.

    **Raises:** `UserError` for an unknown value, and for a value that the stack does not document.
    """
    entry = record("stacks", name)
    for word, value in ((BY_NAME[stated], value) for stated, value in implied(words).items()):
        listed = [each.lower() for each in entry.words(word.listed)]
        documented = listed or [next(iter(word.values))]
        if word.listed and not any_software and switched(value) not in documented:
            entry.refuse(
                f"does not document {word.name}={value} (it has {', '.join(documented)}): choose another stack, or set "
                "any_software"
            )
        # The stack's own numbers describe its only value. Numbers of another stack hold only where the entry lists the word.
        for field, number, *_, rule in word.changes(value) if listed != [value] else ():
            if not hasattr(software, field) or (isinstance(number, str) and not listed):
                continue
            declared, own = quantities(Stack)[field], getattr(software, field)
            if isinstance(number, str):
                number = record("stacks", number).si(str(declared.key), declared.default)
            software = replace(
                software, **{field: leaf({"set": number, "times": own * number, "least": max(own, number)}[rule])}
            )
    return software


def nic_link(entry: Record) -> float:
    """Return the bandwidth of the link between a chip and its NICs, B/s per direction.

    The default is the link to the host. 0 where a chip states neither: its NICs are then not limited.
    """
    return entry.si("nic_link", entry.si("host_bandwidth", 0.0))


def default_stack(chip_name: str | Path, workload: str | Path = "", date: str | None = None) -> str:
    """Return the usual software of a chip in a month.

    The workload's stack has priority, if its entry names one that runs on the chip. Next come the chip entry's own
    choice and the default of the chip's family, or the stack that preceded them in that month.

    **Arguments:** name or path of a chip, and of a workload; `date`: the month, by default that of the calibration.

    **Returns:** the slug of a stack.

    **Raises:** `UserError` for a malformed month, and for one before the first software of the chip.
    """
    entry = record("chips", chip_name)
    if workload:
        for named in record("workloads", workload).words("stack"):
            own = record("stacks", named)
            if architecture(entry) in own.words("runs_on") and release(own) <= question_date(date):
                return named
    usual = str(entry.text.get("default_stack") or _DEFAULT_STACKS.get(architecture(entry), "nemo-2024"))
    return software_of(entry, usual, date)
