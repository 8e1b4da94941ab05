"""Fixed orders of formats and of the parts of a step."""

from __future__ import annotations

FORMATS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4")
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
BREAKDOWN = (
    "compute_s", "memory_bound_s", "host_s", "tp_comm_s", "cp_comm_s", "ep_comm_s", "pp_comm_s",
    "pp_bubble_s", "pp_imbalance_s", "dp_comm_s", "optimizer_s", "offload_s", "input_s", "sites_comm_s",
    "overhead_s", "jitter_s", "production_s",
)  # fmt: skip


def per_format(vector) -> dict[str, float]:
    return {name: float(value) for name, value in zip(FORMATS, vector, strict=True)}
