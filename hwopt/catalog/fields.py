"""Which keys a data file of each kind may hold, with their SI units, and which it must."""

from __future__ import annotations

from dataclasses import dataclass, field

from hwopt.catalog import quantities
from hwopt.types import PRECISIONS

ARCHITECTURES = (
    "default", "volta", "ampere", "hopper", "blackwell", "rubin", "cdna2", "cdna3", "cdna4", "tpu", "trainium", "gaudi",
    "wafer", "lpu", "ipu",
)  # fmt: skip
"""Chip families that a stack may tell apart."""


@dataclass(frozen=True)
class Entry:
    """The keys of one kind of entry."""

    text: tuple[str, ...]
    quantities: dict[str, str]  # key -> SI unit
    tables: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)  # key -> members, SI unit
    required: tuple[str, ...] = ()


NEVER_ZERO = frozenset({
    "sram", "tdp", "memory_capacity", "memory_bandwidth", "memory_efficiency", "peak", "matmul_efficiency",
    "scale_up_bandwidth", "scale_up_efficiency", "scale_up_domain", "scale_out_bandwidth", "bandwidth", "efficiency",
    "reduction_factor", "in_network_reduction", "oversubscription", "pod", "gemm_efficiency_factor", "expert_gemm_factor",
    "gather_efficiency",
    "attention_forward_efficiency", "attention_backward_efficiency", "pue", "construction_lifetime", "server_lifetime",
    "reference_domain", "die_area", "occupancy", "supply_efficiency", "distribution_efficiency", "wet_bulb_spread",
    "chiller_cop", "heat_flux", "area_resistance", "busbar_limit", "weight_limit",
    "failures", "snapshot_bandwidth", "storage_bandwidth", "irreducible_loss",
    "parameter_coefficient", "parameter_exponent", "token_coefficient", "token_exponent", "critical_batch_tokens",
    "critical_reference_tokens", "repetition_epochs", "text_stock",
    "wafer_diameter", "clustering", "interposer_clustering", "die_bond_yield", "stack_bond_yield", "substrate_yield",
    "fab_yield",
    "logic_density", "speed", "dies", "enabled_fraction", "clock", "matrix_per_vector", "matrix_transistors",
    "radix", "rails", "planes", "ports", "hosts", "routers", "global_links",
    "reticle", "usable_edge", "cable_limit", "capacity", "update_bandwidth", "checkpoint_bandwidth", "input_bandwidth",
    "dimensions", "links",
})  # fmt: skip
"""Quantities and tables that the model divides by."""

_COMMON = ("title", "vendor", "note", "unsupported")

_BY_ARCHITECTURE = (ARCHITECTURES, "1")

ENTRIES: dict[str, Entry] = {
    "chips": Entry(
        text=(*_COMMON, "architecture", "process", "topology", "memory_type", "form_factor", "native", "scale_up",
              "scale_out", "half_of", "default_stack", "cooling", "pool"),
        quantities=quantities.CHIP,
        tables={"peak": (PRECISIONS, "FLOP/s"), "matmul_efficiency": (PRECISIONS, "1")},
        required=("architecture", "native", "scale_up", "scale_out", "peak", "matmul_efficiency", "sram", "memory_capacity",
                  "memory_bandwidth", "memory_efficiency", "memory_energy", "tdp", "idle_fraction",
                  "leakage_fraction", "leakage_growth", "die_area", "threshold_voltage_fraction", "scale_up_domain",
                  "scale_out_bandwidth"),
    ),
    "links": Entry(
        text=(*_COMMON, "role", "topology"),
        quantities=quantities.LINK,
        required=("role", "bandwidth", "efficiency", "latency", "energy", "price"),
    ),
    "workloads": Entry(
        text=(*_COMMON, "family", "parameter_count_reason"),
        quantities=quantities.WORKLOAD,
        required=("layers", "hidden", "ffn", "mlp_matrices", "heads", "kv_heads", "qk_dim", "v_dim", "vocab",
                  "tied_embeddings", "sequence_length"),
    ),
    "stacks": Entry(
        text=(*_COMMON, "framework", "purpose", "family", "zero", "recompute", "sequence_parallel", "pads_heads"),
        quantities=quantities.STACK,
        tables={"attention_forward_efficiency": _BY_ARCHITECTURE, "attention_backward_efficiency": _BY_ARCHITECTURE},
        required=("attention_forward_efficiency", "attention_backward_efficiency",
                  *(key for key in quantities.STACK if key not in quantities.STACK_DEFAULTS)),
    ),
    "cooling": Entry(text=_COMMON, quantities=quantities.COOLING, required=tuple(quantities.COOLING)),
    "pools": Entry(text=_COMMON, quantities=quantities.POOL, required=tuple(quantities.POOL)),
    "storages": Entry(text=_COMMON, quantities=quantities.STORAGE, required=("input_bandwidth",)),
    "lines": Entry(text=_COMMON, quantities=quantities.LINE, required=tuple(quantities.LINE)),
    "racks": Entry(text=_COMMON, quantities=quantities.RACK, required=tuple(quantities.RACK)),
    "sites": Entry(text=(*_COMMON, "cooling"), quantities=quantities.SITE, required=tuple(quantities.SITE)),
    "prices": Entry(text=_COMMON, quantities=quantities.PRICES, required=tuple(quantities.PRICES)),
    "reliability": Entry(text=_COMMON, quantities=quantities.RELIABILITY, required=tuple(quantities.RELIABILITY)),
    "laws": Entry(text=_COMMON, quantities=quantities.LAW, required=tuple(quantities.LAW)),
    "processes": Entry(text=_COMMON, quantities=quantities.PROCESS, required=tuple(quantities.PROCESS)),
    "technologies": Entry(text=(*_COMMON, "memory", "template", "process"), quantities=quantities.TECHNOLOGY,
                          required=("memory", "template", *quantities.TECHNOLOGY)),
    "memories": Entry(text=_COMMON, quantities=quantities.MEMORY, required=tuple(quantities.MEMORY)),
    "datapaths": Entry(text=_COMMON, quantities=quantities.DATAPATH, required=tuple(quantities.DATAPATH)),
    "designs": Entry(
        text=(*_COMMON, "die", "technology", "memory", "chip"),
        quantities=quantities.DESIGN,
        tables={"matmul_efficiency": (PRECISIONS, "1"), "format_ratio": (PRECISIONS, "1")},
        required=("die", "technology", "memory", *quantities.DESIGN_INPUTS),
    ),
    "fabrics": Entry(
        text=(*_COMMON, "topology", "link"),
        quantities=quantities.FABRIC,
        required=("topology", "link", *quantities.FABRIC_PARTS),
    ),
}  # fmt: skip
"""The keys of every kind."""
