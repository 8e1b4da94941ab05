"""Families of software: stacks that share most of their code."""

from __future__ import annotations

SOFTWARE = {
    "deepspeed-2021": "2021 stacks", "megatron-2021": "2021 stacks", "zero-bubble": "2021 stacks",
    "megatron-2023": "NVIDIA", "megatron-2025": "NVIDIA", "nemo-2024": "NVIDIA", "nemo-2025": "NVIDIA",
    "composer-2023": "PyTorch", "torch-fsdp-2023": "PyTorch", "torchtitan-2024": "PyTorch", "torchtitan-eager": "PyTorch",
    "jax-gpu": "JAX", "jax-maxtext-tpu": "JAX",
}  # fmt: skip
"""Stack -> family of software; stacks that are not named are `others`."""

OTHERS = "others"


def software_family(stack: str) -> str:
    """Family of a stack."""
    return SOFTWARE.get(stack, OTHERS)
