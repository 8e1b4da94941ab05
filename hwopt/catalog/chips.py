"""Chips: datasheet entries as `Chip`, the formats they have units for, and their usual software."""

from __future__ import annotations

import math
from pathlib import Path

from hwopt.catalog.fields import ARCHITECTURES
from hwopt.catalog.load import leaf, record, supported
from hwopt.catalog.quantities import STACK_DEFAULTS
from hwopt.catalog.schema import Record
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip import LEAKAGE_REFERENCE_K, Chip
from hwopt.stack import Stack
from hwopt.types import PRECISIONS

SLOTS = {
    **{name: name for name in PRECISIONS},
    "fp16": "bf16",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}
"""Number format as written -> its place in `PRECISIONS`."""

_IDLE_JUNCTION_K = 313.15
"""Junction temperature (40 degC) of an idle chip, at which idle power is measured (assumption, 30 to 50 degC)."""

_DEFAULT_STACKS = {
    "volta": "megatron-2021", "ampere": "nemo-2024", "hopper": "nemo-2024", "blackwell": "nemo-2025", "rubin": "nemo-2025",
    "cdna2": "rocm-primus-2025", "cdna3": "rocm-primus-2025", "cdna4": "rocm-primus-2025", "tpu": "jax-maxtext-tpu",
    "trainium": "neuron", "gaudi": "torch-fsdp-2023", "wafer": "ideal", "lpu": "ideal", "ipu": "ideal",
}  # fmt: skip


def slot(precision: str) -> str:
    """The entry of `PRECISIONS` a number format uses.

    **Raises:** `UserError` for an unknown format.
    """
    try:
        return SLOTS[precision.lower()]
    except (KeyError, AttributeError):
        raise UserError(f"unknown precision '{precision}': {suggest(str(precision), SLOTS)}") from None


def chip(name: str | Path) -> Chip:
    """An accelerator of the catalogue, or of a user's own `.toml`.

    A TDP is drawn at full load and 75 degC: `core = TDP - standby - leakage - HBM bandwidth x HBM energy`. Idle power is
    measured cool: `standby = idle - leakage exp(-growth x 35 K)`.

    **Arguments:** `name` as `find("chips", ...)` knows it, or a path.

    **Raises:** `UserError` for an unknown name, a bad file, or a TDP that memory and idling already use up.
    """
    held = supported("chips", name)
    tdp = held.si("tdp")
    bandwidth, energy = held.si("memory_bandwidth"), held.si("memory_energy")
    leakage, growth = tdp * held.si("leakage_fraction"), held.si("leakage_growth")
    idle = tdp * held.si("idle_fraction")
    standby = idle - leakage * math.exp(-growth * (LEAKAGE_REFERENCE_K - _IDLE_JUNCTION_K))
    if standby < 0.0:
        raise UserError(
            f"chip '{held.slug}': leakage alone draws more than {idle:g} W when idle: raise 'idle_fraction' or lower "
            "'leakage_fraction'"
        )
    core = tdp - standby - leakage - bandwidth * energy
    if core <= 0.0:
        raise UserError(
            f"chip '{held.slug}': a TDP of {tdp:g} W leaves nothing to compute with after standby and leakage "
            f"({standby + leakage:g} W) and memory ({bandwidth * energy:g} W): lower 'memory_energy' or 'idle_fraction'"
        )
    area, stacks = held.si("die_area"), held.si("memory_stacks", 0.0)
    return Chip(
        peak_flops_per_s=leaf([held.si(f"peak.{each}") for each in PRECISIONS]),
        matmul_efficiency=leaf([held.si(f"matmul_efficiency.{each}") for each in PRECISIONS]),
        clock_ratio=leaf(1.0),
        threshold_voltage_fraction=leaf(held.si("threshold_voltage_fraction")),
        sram_bytes=leaf(held.si("sram")),
        hbm_bandwidth_bytes_per_s=leaf(bandwidth),
        hbm_capacity_bytes=leaf(held.si("memory_capacity")),
        hbm_efficiency=leaf(held.si("memory_efficiency")),
        power_cap_w=leaf(tdp),
        standby_power_w=leaf(standby),
        leakage_power_w=leaf(leakage),
        leakage_per_k=leaf(growth),
        core_power_w=leaf(core),
        hbm_energy_j_per_byte=leaf(energy),
        silicon_area_m2=leaf(area),
        hbm_stacks=leaf(stacks),
        wafers=leaf(held.si("wafers", 0.0)),
        package_area_m2=leaf(held.si("package_area", 0.0)),
        embodied_carbon_kg=leaf(held.si("embodied_carbon", 0.0)),
    )


def architecture(held: Record) -> str:
    """The chip family of a record of `chips`.

    **Raises:** `UserError` for a family that no stack knows.
    """
    family = str(held.text["architecture"])
    if family not in ARCHITECTURES:
        raise UserError(f"chip '{held.slug}' has the unknown architecture '{family}': {suggest(family, ARCHITECTURES)}")
    return family


def check_precision(name: str | Path, precision: str) -> str:
    """`precision`, if the chip has units for it.

    **Arguments:** `name` of a chip; `precision` such as `fp8` or `nvfp4`. fp16 and bf16 count as each other on chips
    with bf16 units.

    **Raises:** `UserError` that names the formats the chip has.
    """
    held = supported("chips", name)
    native = held.words("native")
    wanted = precision.lower() if isinstance(precision, str) else str(precision)
    if wanted not in native and slot(precision) not in native:
        raise UserError(f"chip '{held.slug}' has no {wanted} units: it has {', '.join(native)}")
    return wanted


def stack(name: str | Path, architecture: str = "default") -> Stack:
    """A software stack on a chip family.

    **Arguments:** `name` of the stack, or a path; `architecture` as chips state it (`hopper`, `cdna3`, `tpu`, ...):
    picks the attention kernels' efficiency, `default` where the stack states none for it.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    held = supported("stacks", name)

    def attention(key: str) -> float:
        wanted = f"{key}.{architecture}"
        return held.si(wanted if wanted in held.quantities else f"{key}.default")

    renamed = {
        "kernel_launch_s": "kernel_launch",
        "host_layer_s": "host_layer",
        "host_moe_layer_s": "host_moe_layer",
        "collective_launch_s": "collective_launch",
    }
    renamed |= {"step_overhead_s": "step_overhead", "memory_reserve_bytes": "memory_reserve"}
    by_family = ("attention_forward_efficiency", "attention_backward_efficiency")
    plain = [field for field in Stack.__dataclass_fields__ if field not in by_family]
    return Stack(
        **{field: leaf(attention(field)) for field in by_family},
        **{field: leaf(held.si(key := renamed.get(field, field), STACK_DEFAULTS.get(key))) for field in plain},
    )


def default_stack(chip_name: str | Path) -> str:
    """The software a chip usually runs: the entry's own choice, or its family's.

    **Arguments:** name or path of a chip. **Returns:** the slug of a stack.
    """
    held = record("chips", chip_name)
    return str(held.text.get("default_stack") or _DEFAULT_STACKS.get(architecture(held), "nemo-2024"))
