"""A serving row joined with the catalogue: service, cluster and plan, and what had to be assumed."""

# Rows that come this far have their blanks filled or were skipped; the checker cannot see that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from hwopt import catalog
from hwopt.catalog.chips import slot
from hwopt.errors import UserError, suggest
from hwopt.evidence.validation import models
from hwopt.evidence.validation.reasons import Reason, Skip
from hwopt.evidence.validation.serving_rows import MeasuredService
from hwopt.hardware.cluster import Cluster
from hwopt.plan import Plan
from hwopt.types import PRECISION_BYTES, PRECISIONS
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer

METRICS = {
    "total_latency_ms": "ms",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "output_tokens_per_s": "token/s",
    "output_tokens_per_s_per_gpu": "token/s",
}
"""Metrics that can be scored, with the unit they are printed in."""

_STACKS = (
    # words of the source -> stack; the first that matches wins
    (r"fastertransformer", "fastertransformer"),
    (r"tensorrt-llm.*\bv0\.", "tensorrt-llm-2023"),
    (r"tensorrt-llm|trtllm", "tensorrt-llm-2025"),
    (r"neuron", "neuron-serving"),
    (r"\bpope\b|pax|\bjax\b|tpu", "jax-serving-tpu"),
)

_ATTENTION_DATA_PARALLEL = r"attention data parallel|attention[- _]dp\b|\badp\b"


_MOE_OPTIONS = r"tensorrt-llm perf-overview"
"""Source whose section on reproducing results sets `enable_attention_dp` for every MoE model, also where a table's head says TP."""


_ROUTING_IMBALANCE = 1.3
"""Tokens of the busiest expert rank over the mean where experts are spread (assumption, 1.1 to 2: requests of random tokens,
and no replicated experts)."""


@dataclass(frozen=True)
class ServingCase:
    """One row, ready for the model."""

    row: MeasuredService
    service: Service  # both phases
    cluster: Cluster
    plan: Plan  # its batch is one sequence
    accelerator: str  # catalogue slug
    architecture: str  # of the accelerator
    stack: str
    assumed: tuple[str, ...]


def join(row: MeasuredService) -> ServingCase:
    """The inputs of `estimate` for one row.

    **Raises:** `Skip` with one of the closed list of reasons.
    """
    _check_measurement(row)
    assumed: list[str] = []
    accelerator = _accelerator(row.gpu)
    if accelerator is None:
        raise Skip(Reason.UNKNOWN_ACCELERATOR, f"'{row.gpu}'")
    record = catalog.record("chips", accelerator)
    if "unsupported" in record.text:
        raise Skip(Reason.UNKNOWN_ACCELERATOR, f"'{row.gpu}' has no model yet")
    architecture = str(record.text.get("architecture", ""))
    shape = models.shape(row, assumed)
    row = _completed(row, assumed)
    stack = _stack(row, accelerator, assumed)
    shape = _padded(shape, row, stack, assumed)
    plan = _plan(row, shape, assumed)
    cluster = replace(_parts(accelerator, row.gpus_per_node, stack), chips=np.float64(row.num_gpus))
    service = _service(row, shape, accelerator, architecture, assumed)
    return ServingCase(row, service, cluster, plan, accelerator, architecture, stack, tuple(dict.fromkeys(assumed)))


def _check_measurement(row: MeasuredService) -> None:
    if row.quality.upper().startswith("C") or re.search(r"inconsistent in source", row.notes, re.I):
        raise Skip(Reason.HEADLINE)
    if row.value is None:
        raise Skip(Reason.NO_MEASUREMENT)
    if row.metric not in METRICS:
        raise Skip(Reason.UNSUPPORTED_METRIC, f"'{row.metric}'")
    if row.largest and not row.metric.startswith("output_tokens_per_s"):
        raise Skip(Reason.UNSUPPORTED_METRIC, f"'{row.metric}' at a batch that the engine chose")


def _accelerator(name: str) -> str | None:
    """Slug of the accelerator a row counts; instances of Trainium are counted by their NeuronCores."""
    instance = re.match(r"trn(\d)", name, re.I)
    return models.lookup("chips", f"trainium{instance[1]}-core") if instance else models.accelerator(name)


def _completed(row: MeasuredService, assumed: list[str]) -> MeasuredService:
    """The row with every degree and length filled, or `Skip`. Attention that is data-parallel has no tensor group."""
    for name in ("num_gpus", "input_tokens", "output_tokens"):
        if getattr(row, name) is None:
            raise Skip(Reason.INCOMPLETE_PLAN, f"{name} not stated")
    if row.sequences is None and not row.largest:
        raise Skip(Reason.INCOMPLETE_PLAN, "batch not stated")
    apart = bool(re.search(_ATTENTION_DATA_PARALLEL, row.notes, re.I))
    if not apart and re.search(_MOE_OPTIONS, row.source, re.I) and (row.moe_experts or 0) and (row.ep or 1) > 1:
        apart = True
        assumed.append("attention_data_parallel")
    if row.tp is None and row.num_gpus > 1 and not apart:
        raise Skip(Reason.INCOMPLETE_PLAN, "tp not stated")
    if row.pp is None:
        assumed.append("pp")
    if row.largest:
        assumed.append("largest_batch")  # limits of the engine: `serving_predict`
    row = replace(row, tp=1 if apart else row.tp or 1, pp=row.pp or 1, ep=row.ep or 1)
    if row.num_gpus % (row.tp * row.pp):
        raise Skip(Reason.INCONSISTENT_PLAN, f"tp x pp = {row.tp * row.pp} does not divide {row.num_gpus} chips")
    return row


def _stack(row: MeasuredService, accelerator: str, assumed: list[str]) -> str:
    """Catalogue name of the software: the row's `stack` column, words of its source, the chip's usual one."""
    if row.stack:
        try:
            return catalog.find("stacks", row.stack)
        except UserError:
            raise UserError(
                f"row at line {row.line}, column 'stack': unknown software stack '{row.stack}': "
                f"{suggest(row.stack, catalog.names('stacks'))}"
            ) from None
    for words, name in _STACKS:
        if re.search(words, row.source, re.I):
            return name
    assumed.append("stack")
    return catalog.serving_stack(accelerator)


def _padded(shape: Transformer, row: MeasuredService, stack: str, assumed: list[str]) -> Transformer:
    """The model with heads of zeros, so that all chips hold as many: what Neuron adds where the degree does not divide."""
    heads = float(shape.heads)
    if stack != "neuron-serving" or heads % row.tp == 0:
        return shape
    assumed.append("padded_heads")
    padded = math.ceil(heads / row.tp) * row.tp
    own = padded if float(shape.kv_heads) == heads else float(shape.kv_heads)
    return replace(shape, heads=np.float64(padded), kv_heads=np.float64(own))


@cache
def _parts(accelerator: str, domain: int | None, stack: str) -> Cluster:
    return catalog.cluster(accelerator, 8, domain=domain, stack=stack, constants=catalog.LITERATURE)


def _plan(row: MeasuredService, shape: Transformer, assumed: list[str]) -> Plan:
    workload = replace(catalog.service("llama2-7b"), model=shape)
    experts = float(shape.experts) > 0.0
    try:
        return catalog.serving_plan(
            workload, row.num_gpus, tp=row.tp, pp=row.pp, ep=row.ep if experts else 1, batch=1,
            expert_tp=_expert_tp(row) if experts else None,
        )  # fmt: skip
    except UserError as error:
        raise Skip(Reason.INCONSISTENT_PLAN, str(error).removeprefix("plan: ")) from None


def _expert_tp(row: MeasuredService) -> int:
    """Every chip of a stage holds its share of the experts: what expert parallelism leaves splits each of them."""
    return max(row.num_gpus // (row.pp * row.ep), 1)


def _service(
    row: MeasuredService, shape: Transformer, accelerator: str, architecture: str, assumed: list[str]
) -> Service:
    formats = _formats(row, shape, accelerator, architecture, assumed)
    base = catalog.service(
        "llama2-7b",
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        precision=formats.products,
        weights=formats.weights,
        kv=formats.kv,
    )
    imbalance = 1.0
    if row.ep > 1 and float(shape.experts):
        assumed.append("routing_imbalance")
        imbalance = _ROUTING_IMBALANCE
    wide = formats.share_16_bit
    share = (1.0 - wide) * np.asarray(base.gemm_precision) + wide * np.array([float(x == "bf16") for x in PRECISIONS])
    weights = (1.0 - formats.stored_16_bit) * float(base.weight_bytes) + formats.stored_16_bit * 2.0
    return replace(
        base,
        model=shape,
        gemm_precision=share,
        weight_bytes=np.float64(weights),
        routing_imbalance=np.float64(imbalance),
    )


@dataclass(frozen=True)
class _Formats:
    products: str
    weights: str
    kv: str
    share_16_bit: float = 0.0  # of the layers' products, by FLOPs
    stored_16_bit: float = 0.0  # of the layers' weights


def _format(row: MeasuredService, column: str, otherwise: str, assumed: list[str]) -> str:
    """The number format in a cell, the first where it names several; `otherwise` where it names none that is known."""
    try:
        return slot(getattr(row, column).split("/")[0].strip())
    except UserError:
        assumed.append(column)
        return otherwise


def _formats(
    row: MeasuredService, shape: Transformer, accelerator: str, architecture: str, assumed: list[str]
) -> _Formats:
    """Number formats of products, stored weights and cache.

    8-bit integers, and formats that the chip has no units for, are weights alone: products run in 16 bit. Checkpoints of
    gpt-oss hold experts in 4 bit and all else in 16, and multiply in 8; those of DeepSeek in 4 bit leave the projections of
    latents in 16 (model cards of openai/gpt-oss-120b and nvidia/DeepSeek-R1-0528-NVFP4-v2, recalled).
    """
    weights = _format(row, "weight_precision", "bf16", assumed)
    native = catalog.record("chips", accelerator).words("native")
    products = weights if weights in native and weights != "int8" else "bf16"
    narrow = PRECISION_BYTES[PRECISIONS.index(products)] < 2.0
    kv = _format(row, "kv_precision", "fp8" if narrow else "bf16", assumed)
    if re.search(r"gpt-?oss", row.model_name, re.I):
        assumed.append("mixed_formats")
        if architecture == "hopper":
            return _Formats("bf16", "fp4", "bf16", 0.0, _attention_share(shape, 0.0)[1])
        products = "fp8" if "fp8" in native else "bf16"
        return _Formats(products, "fp4", kv, *_attention_share(shape, 0.0))
    if weights == "fp4" and float(shape.kv_rank) > 0.0:
        assumed.append("mixed_formats")
        return _Formats(products, weights, kv, *_attention_share(shape, float(shape.heads * shape.v_dim)))
    return _Formats(products, weights, kv)


def _attention_share(shape: Transformer, narrow_inner: float) -> tuple[float, float]:
    """Attention's share of a layer's products and of its stored weights.

    **Arguments:** `narrow_inner`: inner dimension of an output projection that is narrow as experts are, 0 where it is not.
    """
    h, heads = float(shape.hidden), float(shape.heads)
    qk, v = float(shape.qk_dim), float(shape.v_dim)
    if float(shape.kv_rank) > 0.0:
        latents = float(shape.query_rank + shape.kv_rank + shape.rope_dim)
        up = float(shape.query_rank) * heads * qk + float(shape.kv_rank) * heads * (qk - float(shape.rope_dim) + v)
        inner = h * latents + up
    else:
        inner = h * (heads * qk + float(shape.kv_heads) * (qk + v))
    output = h * heads * v
    wide = inner + output - h * narrow_inner
    one = float(shape.mlp_matrices) * h * float(shape.expert_ffn)
    active = one * float(shape.experts_per_token + shape.shared_experts)
    stored = one * float(shape.experts + shape.shared_experts)
    return wide / (inner + output + active), wide / (inner + output + stored)
