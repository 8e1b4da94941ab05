"""Which keys a data file of each kind may hold, with their SI units, and which it must."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    "reduction_factor", "in_network_reduction", "oversubscription", "pod", "gemm_efficiency_factor",
    "attention_forward_efficiency", "attention_backward_efficiency", "pue", "construction_lifetime", "server_lifetime",
    "reference_domain",
})  # fmt: skip
"""Quantities and tables that the model divides by."""

_COMMON = ("title", "vendor", "note", "unsupported")

_CHIP = {
    "year": "1",
    "dies": "1",
    "die_area": "m2",
    "transistors": "1",
    "nominal_clock": "Hz",
    "threshold_voltage_fraction": "1",
    "sram": "B",
    "register_file": "B",
    "local_sram": "B",
    "memory_stacks": "1",
    "memory_capacity": "B",
    "memory_bandwidth": "B/s",
    "memory_efficiency": "1",
    "memory_energy": "J/B",
    "tdp": "W",
    "idle_fraction": "1",
    "scale_up_bandwidth": "B/s",
    "scale_up_efficiency": "1",
    "scale_up_domain": "chip",
    "scale_out_bandwidth": "B/s",
    "price": "USD",
    "host_power_fraction": "1",
    "host_price": "USD",
}

_LINK = {
    "bandwidth": "B/s",
    "efficiency": "1",
    "latency": "s",
    "energy": "J/B",
    "price": "USD/(B/s)",
    "in_network_reduction": "1",
    "reduction_factor": "1",
    "oversubscription": "1",
    "pod": "chip",
    "core_latency": "s",
    "core_energy": "J/B",
    "core_price": "USD/(B/s)",
}

_WORKLOAD = {
    "layers": "1",
    "hidden": "1",
    "ffn": "1",
    "mlp_matrices": "1",
    "heads": "1",
    "kv_heads": "1",
    "qk_dim": "1",
    "v_dim": "1",
    "query_rank": "1",
    "kv_rank": "1",
    "rope_dim": "1",
    "vocab": "1",
    "tied_embeddings": "1",
    "learned_positions": "1",
    "moe_layers": "1",
    "experts": "1",
    "experts_per_token": "1",
    "shared_experts": "1",
    "expert_ffn": "1",
    "local_layers_fraction": "1",
    "window_tokens": "token",
    "year": "1",
    "context_length": "token",
    "parameters": "parameter",
    "active_parameters": "parameter",
    "training_tokens": "token",
    "sequence_length": "token",
    "global_batch_sequences": "sequence",
    "weight_bytes": "B",
    "master_bytes": "B",
    "moment_bytes": "B",
    "activation_bytes": "B",
}

_STACK = {
    "attention_scores_stored": "1",
    "dropout_masks": "1",
    "gemm_half_size": "1",
    "gemm_efficiency_factor": "1",
    "elementwise_passes": "1",
    "cast_passes": "1",
    "kernel_launch": "s",
    "host_layer": "s",
    "tp_overlap": "1",
    "cp_overlap": "1",
    "ep_overlap": "1",
    "pp_overlap": "1",
    "dp_overlap": "1",
    "communication_slowdown": "1",
    "collective_launch": "s",
    "gradient_bytes": "B",
    "optimizer_passes": "1",
    "step_overhead": "s",
    "jitter_sigma": "1",
    "memory_reserve": "B",
    "fragmentation": "1",
}

_SITE = {
    "pue": "1",
    "host_power_fraction": "1",
    "idle_host_fraction": "1",
    "electricity": "USD/J",
    "carbon": "kg/J",
    "construction": "USD/W",
    "construction_lifetime": "s",
}

_COOLING = {
    "rack_power": "W",
    "heat_flux": "W/m2",
    "thermal_resistance": "K/W",
    "coolant_temperature": "degC",
    "junction_temperature": "degC",
    "pue": "1",
    "capital_cost": "USD/W",
    "heat_captured": "1",
    "chip_power": "W",
}

_PRICES = {
    "price_factor": "1",
    "hbm_usd_per_byte": "USD/B",
    "hbm_usd_per_byte_per_s": "USD/(B/s)",
    "domain_usd_per_chip": "USD",
    "reference_domain": "chip",
    "host_usd": "USD",
    "chip_usd_per_bf16_flops": "USD/(FLOP/s)",
    "chip_base_floor_fraction": "1",
    "server_lifetime": "s",
    "spares_fraction": "1",
    "maintenance": "1/s",
}

_BY_ARCHITECTURE = (ARCHITECTURES, "1")

ENTRIES: dict[str, Entry] = {
    "chips": Entry(
        text=(*_COMMON, "architecture", "process", "topology", "memory_type", "form_factor", "native", "scale_up",
              "scale_out", "half_of", "default_stack"),
        quantities=_CHIP,
        tables={"peak": (PRECISIONS, "FLOP/s"), "matmul_efficiency": (PRECISIONS, "1")},
        required=("architecture", "native", "scale_up", "scale_out", "peak", "matmul_efficiency", "sram", "memory_capacity",
                  "memory_bandwidth", "memory_efficiency", "memory_energy", "tdp", "idle_fraction",
                  "threshold_voltage_fraction", "scale_up_domain", "scale_out_bandwidth"),
    ),
    "links": Entry(
        text=(*_COMMON, "role", "topology"),
        quantities=_LINK,
        required=("role", "bandwidth", "efficiency", "latency", "energy", "price"),
    ),
    "workloads": Entry(
        text=(*_COMMON, "family", "parameter_count_reason"),
        quantities=_WORKLOAD,
        required=("layers", "hidden", "ffn", "mlp_matrices", "heads", "kv_heads", "qk_dim", "v_dim", "vocab",
                  "tied_embeddings", "sequence_length"),
    ),
    "stacks": Entry(
        text=(*_COMMON, "framework"),
        quantities=_STACK,
        tables={"attention_forward_efficiency": _BY_ARCHITECTURE, "attention_backward_efficiency": _BY_ARCHITECTURE},
        required=("attention_forward_efficiency", "attention_backward_efficiency", *_STACK),
    ),
    "cooling": Entry(text=_COMMON, quantities=_COOLING, required=("rack_power", "pue")),
    "sites": Entry(text=(*_COMMON, "cooling"), quantities=_SITE, required=tuple(_SITE)),
    "prices": Entry(text=_COMMON, quantities=_PRICES, required=tuple(_PRICES)),
}  # fmt: skip
"""The keys of every kind."""
