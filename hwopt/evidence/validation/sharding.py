"""What words of a row say about sharding, recomputation, schedule and formats."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Sharding:
    """Which states are sharded over data parallel ranks, and over how many groups the shards repeat."""

    optimizer: float
    gradients: float
    weights: float
    groups: float = 1.0


_STAGES = {0: (0.0, 0.0, 0.0), 1: (1.0, 0.0, 0.0), 2: (1.0, 1.0, 0.0), 3: (1.0, 1.0, 1.0)}


def sharding(text: str, ranks: int, tp: int, gpus_per_node: int, default_stage: int) -> Sharding:
    """Sharding flags of a `zero_stage` cell.

    **Arguments:** `text` such as `zero1 inside groups of 8 GPUs (hybrid)`, `fsdp 256 inside slice x dp 4 over DCN`,
    `hsdp`, `distributed-optimizer(zero1)`, `ddp`; `ranks` data times context parallel ranks; `default_stage` for a blank.
    """
    said = text.lower()
    stage = _stage(said)
    flags = _STAGES[default_stage if stage is None else stage]
    members = None
    if match := re.search(r"groups? of ([1-9]\d{0,8})", said):
        members = int(match[1])
    elif match := re.search(r"fsdp[ -]?([1-9]\d{0,8})", said):
        # "fsdp2" is the second FSDP, not two ranks.
        members = int(match[1]) if match[0] != "fsdp2" else None
    elif "hsdp" in said:
        members = max(gpus_per_node // tp, 1)
    return Sharding(*flags, groups=max(ranks / members, 1.0) if members else 1.0)


def _stage(said: str) -> int | None:
    if not said:
        return None
    if match := re.search(r"zero[- ]?([0-3])", said):
        return int(match[1])
    if "grad-op" in said or "shard_grad_op" in said:
        return 2
    if "fsdp" in said or "hsdp" in said:
        return 3
    if "distributed" in said and "optimizer" in said:
        return 1
    if "ddp" in said or "none" in said or said in {"0", "no"}:
        return 0
    if said in {"1", "2", "3"}:
        return int(said)
    return None


def recompute(text: str, layers: int, pp: int, *, flash: bool) -> tuple[float, float] | None:
    """(share of layers recomputed whole, share whose attention core is) of a `recompute` cell; None for a blank.

    "selective" differs by source: the attention core (Korthikanti et al., nothing left to save with a fused kernel);
    every other matrix product (torchtitan's `op`: half of the products, no attention, 0.4 of a layer); everything but
    weight products (MaxText `minimal`: the core again); norms and activations (MoE recipes: no products); the whole
    MoE sublayer (0.6 of a layer). `full-on-5-layers`: that many layers of every stage (Megatron's block method).
    """
    said = text.lower()
    if not said:
        return None
    if match := re.search(r"full[- ]on[- ](\d{1,9})", said):
        return min(int(match[1]) * pp / layers, 1.0), 0.0
    if match := re.search(r"(?:every|each) (other|[1-9]\d{0,8})", said):
        return 1.0 / (2 if match[1] == "other" else int(match[1])), 0.0
    if said.startswith(("none", "no", "off", "false")):
        return 0.0, 0.0
    if "(op" in said or said == "op":
        return 0.4, 0.0
    if "qkv_proj_offloaded" in said:
        return 0.85, 0.0
    if "minimal_flash" in said:
        return 0.0, 0.0
    if "minimal" in said or "dot" in said:
        return 0.0, 1.0
    if "moe" in said and "moe_act" not in said:
        return 0.6, 0.0
    if "attention" in said or "attn" in said:
        return 0.0, 1.0
    if said.startswith(("full", "yes", "true", "uniform", "block")):
        return 1.0, 0.0
    return 0.0, 0.0 if flash else 1.0


def bubble_fraction(notes: str) -> float | None:
    """Share of the 1F1B bubble that a named schedule leaves; None where none is named.

    ZB-H1 and ZB-1p leave a third, ZB-2p and V schedules almost none; V-half two thirds at equal activation memory.

    **Source:** Qi et al. 2024 (arXiv 2401.10241, section 2.3; arXiv 2405.15362, table 1).
    """
    said = notes.lower()
    if re.search(r"zb-?2p|zb-?h2|zb-?v\b|zero[ -]bubble v|dualpipe", said):
        return 0.0
    if re.search(r"zb-?1p|zb-?h1|\bzbb?\b|zero[ -]bubble", said):
        return 1.0 / 3.0
    if "v-half" in said or "v-min" in said:
        return 2.0 / 3.0
    return 1.0 if "1f1b" in said or "interleaved" in said else None


def number_format(text: str, notes: str) -> tuple[str, bool]:
    """(entry of `PRECISIONS`, whether it was assumed) of a `precision` cell."""
    said = text.lower()
    if "int8" in said or re.search(r"\bint8\b|\baqt\b", notes.lower()):
        return "int8", False
    for words, name in (
        (("fp4", "mxfp4"), "fp4"),
        (("fp8", "f8", "float8", "e4m3"), "fp8"),
        (("tf32",), "tf32"),
        (("bf16", "fp16", "bfloat16", "float16", "half", "16-mixed"), "bf16"),
        (("fp32", "float32"), "fp32"),
    ):
        if any(word in said for word in words):
            return name, False
    return "bf16", True


def links_gbit_per_s(notes: str, gpus_per_node: int) -> float | None:
    """Scale-out bandwidth per chip that the notes state, Gb/s; None where they do not.

    A chip's scale-out bandwidth is a property of its node: `4x200 Gb/s per node`, `800 Gb/s inter-node per node`,
    `400 Gb/s per GPU`, `8 HDR IB per node`.
    """
    if match := re.search(
        r"(?<!\d)(\d{1,9}(?:\.\d{1,9})?)\s*gb/?(?:it/)?s(?:ec)?\s+per\s+(?:gpu|chip|accelerator)", notes, re.I
    ):
        return float(match[1])
    if match := re.search(
        r"(?<!\d)(\d{1,9})\s*x\s*(\d{1,9})\s*g(?:b/s|bps|bit/s)?(?:\s+\w+)*?\s*(?:;|,|\)|$|per|ib|roce|tcpx|rdma|efa|infiniband)",
        notes,
        re.I,
    ):
        return float(match[1]) * float(match[2]) / gpus_per_node
    if match := re.search(r"(?<!\d)(\d{1,9}(?:\.\d{1,9})?)\s*gb/?s[\w\s-]*?\bper[- ]node", notes, re.I):
        return float(match[1]) / gpus_per_node
    if match := re.search(r"(?<!\d)(\d{1,9})\s*(hdr|ndr|edr)\b(?:\s+\w+)*?\s+per\s+node", notes, re.I):
        return float(match[1]) * {"edr": 100.0, "hdr": 200.0, "ndr": 400.0}[match[2].lower()] / gpus_per_node
    return None
