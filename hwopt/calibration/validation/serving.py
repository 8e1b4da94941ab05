"""Serving measurements: workload, cluster and plan of a row, and prediction of its measured latency or throughput."""

# Blanks are filled or the row is skipped before this point; the type checker cannot know that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Array

from hwopt import catalog
from hwopt.calibration.measured.columns import SERVING, MeasuredService
from hwopt.calibration.measured.stacks import habits
from hwopt.calibration.validation.expert_imbalance import busiest_rank
from hwopt.calibration.validation.join import MeasuredCase, Prediction, WorkKind, evaluate, require
from hwopt.calibration.validation.machines import MeasuredMachine
from hwopt.calibration.validation.skip import Skip, SkipReason
from hwopt.catalog import leaf
from hwopt.catalog.chips import slot
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.serving import cache
from hwopt.plan import Plan
from hwopt.types import PRECISION_BYTES, PRECISIONS
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer

MOST_SEQUENCES = 2048
"""Maximum number of concurrent sequences per replica (the default of TensorRT-LLM's `max_batch_size`)."""

MOST_TOKENS = 8192.0
"""Maximum number of tokens per forward pass, unless a prompt is longer (the default of TensorRT-LLM's `max_num_tokens`)."""


def _unsupported(row: MeasuredService) -> str:
    if row.measured_metric not in SERVING:
        return f"'{row.measured_metric}'"
    rate = row.measured_metric.startswith("output_tokens_per_s")
    return f"'{row.measured_metric}' at a batch that the engine chose" if row.largest and not rate else ""


def completed(row: MeasuredService, assumed: list[str]) -> MeasuredService:
    """Complete the degrees of a row; attention data parallelism implies tp = 1.

    **Raises:** `Skip` for missing required columns or an inconsistent plan.
    """
    require(row, "num_gpus", "input_tokens", "output_tokens", "batch")
    if row.num_gpus > 1 and not row.attention_data_parallel:
        require(row, "tp")
    open_ = {"pp": row.pp is None, "largest_batch": row.largest}  # chosen by the engine: `_batches`
    assumed += [name for name, is_open in open_.items() if is_open]
    row = replace(row, tp=1 if row.attention_data_parallel else row.tp or 1, pp=row.pp or 1, ep=row.ep or 1)
    if row.num_gpus % (split := row.tp * row.pp):
        raise Skip(SkipReason.INCONSISTENT_PLAN, f"tp x pp = {split} does not divide {row.num_gpus} chips")
    return row


def _inputs(
    row: MeasuredService, shape: Transformer, accelerator: str, architecture: str, stack: str, assumed: list[str]
) -> tuple[Service, MeasuredMachine, Plan, bool]:
    heads = float(shape.heads)
    if heads % row.tp and habits(stack).pads_heads:
        # Zero-filled heads are added, so that all chips have the same number.
        assumed.append("padded_heads")
        padded = leaf(math.ceil(heads / row.tp) * row.tp)
        shape = replace(shape, heads=padded, kv_heads=padded if float(shape.kv_heads) == heads else shape.kv_heads)
    plan = _plan(row, shape)
    machine = MeasuredMachine(accelerator, architecture, row.gpus_per_node, None, stack)
    return _service(row, shape, accelerator, stack, assumed), machine, plan, False


def _plan(row: MeasuredService, shape: Transformer) -> Plan:
    """Return the plan for one sequence. Experts are split by expert parallelism, and by tensor parallelism over the remaining
    chips.
    """
    workload = replace(catalog.service("llama2-7b"), model=shape)
    experts = float(shape.experts) > 0.0
    split = {"ep": row.ep, "expert_tp": max(row.num_gpus // (row.pp * row.ep), 1)} if experts else {"ep": 1}
    try:
        return catalog.serving_plan(workload, row.num_gpus, tp=row.tp, pp=row.pp, batch=1, **split)
    except UserError as error:
        raise Skip(SkipReason.INCONSISTENT_PLAN, str(error).removeprefix("plan: ")) from None


def _service(row: MeasuredService, shape: Transformer, accelerator: str, stack: str, assumed: list[str]) -> Service:
    """Return the service with number formats of products, stored weights and cache.

    8-bit integers, and formats without units on the chip, apply to stored weights only; products run in 16 bit. 4-bit
    checkpoints leave the projections of latents in 16 bit (model card of nvidia/DeepSeek-R1-0528-NVFP4-v2, recalled).
    """
    native = catalog.record("chips", accelerator).words("native")
    weights = slot(row.weight_format or "bf16")
    products = slot(row.number_format or (weights if weights in native and weights != "int8" else "bf16"))
    narrow = PRECISION_BYTES[PRECISIONS.index(products)] < 2.0 and habits(stack).cache == "narrow"
    kv = slot(row.kv_format or ("fp8" if narrow else "bf16"))
    lengths = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
    base = catalog.service("llama2-7b", **lengths, precision=products, weights=weights, kv=kv)
    mixed = row.kept_16_bit is None and weights == "fp4" and float(shape.kv_rank) > 0.0
    spread = row.ep > 1 and float(shape.experts) > 0.0
    open_ = {"weight_precision": row.weight_format is None, "kv_precision": row.kv_format is None}
    open_ |= {"mixed_formats": mixed, "routing_imbalance": spread}
    assumed += [name for name, is_open in open_.items() if is_open]
    wide, stored = _shares_in_16_bit(shape, "latents" if mixed else row.kept_16_bit or "none")
    share = (1.0 - wide) * np.asarray(base.gemm_precision) + wide * np.array([float(x == "bf16") for x in PRECISIONS])
    return replace(
        base,
        model=shape,
        gemm_precision=share,
        weight_bytes=leaf((1.0 - stored) * float(base.weight_bytes) + stored * 2.0),
        routing_imbalance=leaf(busiest_rank(float(shape.experts), row.ep) if spread else 1.0),
    )


def _shares_in_16_bit(shape: Transformer, kept: str) -> tuple[float, float]:
    """Return the shares of a layer's products and of its stored weights that stay in 16 bit.

    **Arguments:** `shape`; `kept`: `none`, `attention`, or `latents` (without the output projection, which is as narrow as
    experts).
    """
    if kept == "none":
        return 0.0, 0.0
    h, heads = float(shape.hidden), float(shape.heads)
    qk, v = float(shape.qk_dim), float(shape.v_dim)
    if float(shape.kv_rank) > 0.0:
        latents = float(shape.query_rank + shape.kv_rank + shape.rope_dim)
        up = float(shape.query_rank) * heads * qk + float(shape.kv_rank) * heads * (qk - float(shape.rope_dim) + v)
        inner = h * latents + up
    else:
        inner = h * (heads * qk + float(shape.kv_heads) * (qk + v))
    output = h * heads * v
    wide = inner + output - (h * heads * v if kept == "latents" else 0.0)
    one = float(shape.mlp_matrices) * h * float(shape.expert_ffn)
    active = one * float(shape.experts_per_token + shape.shared_experts)
    stored = one * float(shape.experts + shape.shared_experts)
    return wide / (inner + output + active), wide / (inner + output + stored)


# Predictions ---------------------------------------------------------------------------------------------------------


def _pass(service: Service, cluster: Cluster, plan: Plan) -> dict[str, Array]:
    report = estimate(service, cluster, plan)
    return {
        "step_s": report.step_time_s,
        "first_s": report.time_to_first_token_full_batch_s,
        "each_s": report.time_per_output_token_full_batch_s,
        "tokens_per_s_per_chip": report.tokens_per_s_per_chip,
        "mfu": report.mfu,
        "memory": report.memory_per_chip_bytes,
        "cache": report.memory.cache_bytes,  # pyright: ignore[reportAttributeAccessIssue] of a service
        "capacity": report.memory_capacity_bytes,
    }


def _predict(cases: Sequence[MeasuredCase]) -> list[Prediction]:
    """Predict each case: at the best batch that an engine could choose, in a closed loop of users, or as a static batch."""
    way = lambda row: _at_best_batch if row.largest else _in_closed_loop if row.closed_loop else _at_batch
    ways = [way(case.row) for case in cases]
    answers: dict[int, Prediction] = {}
    for predicted in dict.fromkeys(ways):
        own = [i for i, each in enumerate(ways) if each is predicted]
        answers |= zip(own, predicted([cases[i] for i in own]), strict=True)
    return [answers[i] for i in range(len(cases))]


def _in_closed_loop(cases: Sequence[MeasuredCase]) -> list[Prediction]:
    """Predict a constant number of users, each of whom sends a request as soon as the last one is answered.

    This is the steady state of the model at a full batch: passes mix decoding sequences with the prompts of new requests.
    """
    part = lambda case: max(case.row.batch / float(case.plan.dp) / float(case.plan.pp), 1.0)
    chosen = lambda case: (case.workload, case.cluster, replace(case.plan, micro_batch=leaf(part(case))))
    results = []
    for case, each in zip(cases, evaluate(_pass, [chosen(case) for case in cases]), strict=True):
        rate = each["tokens_per_s_per_chip"]
        values = {
            "total_latency_ms": 1e3 * (each["first_s"] + (case.row.output_tokens - 1.0) * each["each_s"]),
            "ttft_ms": 1e3 * each["first_s"],
            "tpot_ms": 1e3 * each["each_s"],
            "output_tokens_per_s": rate * case.row.num_gpus,
            "output_tokens_per_s_per_gpu": rate,
        }
        value = values[case.row.measured_metric]
        results.append(Prediction(value, each["step_s"], each["mfu"], each["memory"], each["capacity"]))
    return results


def _phase(case: MeasuredCase, prefills: float) -> tuple[Service, Cluster, Plan]:
    """Return the inputs of prefill or decode of a static batch; a pipeline splits it into one part per stage, if possible."""
    part = max(case.row.batch / float(case.plan.dp) / float(case.plan.pp), 1.0)
    service = replace(case.workload, prefills=leaf(prefills), decodes=leaf(1.0 - prefills))
    return service, case.cluster, replace(case.plan, micro_batch=leaf(part))


def _at_batch(cases: Sequence[MeasuredCase]) -> list[Prediction]:
    """Predict static batches: one prefill pass, which gives the first token, then one decode pass per token.

    `T = T_prefill + (output - 1) T_decode`, with decode at the mean context length.
    """
    passes = evaluate(_pass, [_phase(case, phase) for phase in (1.0, 0.0) for case in cases])
    results = []
    for case, prompts, answers in zip(cases, passes[: len(cases)], passes[len(cases) :], strict=True):
        row = case.row
        prefill = prompts["first_s"] * (2.0 - 1.0 / float(case.plan.pp))
        each = answers["each_s"]
        rest = (row.output_tokens - 1.0) * each
        total = prefill + rest
        rate = row.batch * row.output_tokens / total
        values = {
            "total_latency_ms": 1e3 * total,
            "ttft_ms": 1e3 * prefill,
            "tpot_ms": 1e3 * each,
            "output_tokens_per_s": rate,
            "output_tokens_per_s_per_gpu": rate / row.num_gpus,
        }
        mfu = (prefill * prompts["mfu"] + rest * answers["mfu"]) / total
        memory = max(prompts["memory"], answers["memory"])
        results.append(Prediction(values[row.measured_metric], each, mfu, memory, answers["capacity"]))
    return results


def _requests(case: MeasuredCase) -> float:
    """Return the number of requests per replica in the measured run; infinite if it is not stated."""
    return case.row.requests / float(case.plan.dp) if case.row.requests else math.inf


def _batches(case: MeasuredCase) -> list[float]:
    """Return candidate batch sizes of a serving measurement that does not state its batch, ascending.

    They are powers of two, 1.5 times powers of two, and a replica's requests divided by 1 to 6 and 8. Limits on sequences and
    tokens in a batch apply.
    """
    row, requests = case.row, _requests(case)
    grid = {float(size) for n in range(12) for size in (2**n, 1.5 * 2**n) if size == round(size)}
    if math.isfinite(requests):
        grid |= {requests / n for n in (1, 2, 3, 4, 5, 6, 8)}
    most, tokens = min(MOST_SEQUENCES, requests), max(MOST_TOKENS, row.input_tokens)
    each = 1.0 + row.input_tokens / row.output_tokens
    return sorted(x for x in grid if 1.0 <= x <= most and x * each <= tokens) or [1.0]


def _full_length(service: Service) -> float:
    """Return the final cache size of a sequence over its mean size during decode: engines reserve the full length."""
    kept = lambda tokens: float(cache.layer_mean(service.model, tokens))
    return kept(service.input_tokens + service.output_tokens) / kept(service.mean_context)


def _whole_waves(requests: float, batch: float) -> float:
    """Return the filled share of a batch, mean over waves in which requests of equal length start and end together."""
    return requests / batch / math.ceil(requests / batch - 1e-9) if math.isfinite(requests) else 1.0


def _at_best_batch(cases: Sequence[MeasuredCase]) -> list[Prediction]:
    """Predict the highest rate over all batches that fit with full-length cache reservation."""
    choices = [(i, batch) for i, case in enumerate(cases) for batch in _batches(case)]
    chosen = lambda case, batch: (case.workload, case.cluster, replace(case.plan, micro_batch=leaf(batch)))
    inputs = [chosen(cases[i], batch) for i, batch in choices]
    best: dict[int, tuple[float, Prediction]] = {}
    for (i, batch), each in zip(choices, evaluate(_pass, inputs), strict=True):
        case = cases[i]
        memory = each["memory"] + each["cache"] * (_full_length(case.workload) - 1.0)
        over = max(memory / each["capacity"] - 1.0, 0.0)
        rate = each["tokens_per_s_per_chip"] * _whole_waves(_requests(case), batch)
        rank = -over if over else rate  # if nothing fits, the batch with the smallest excess
        if i not in best or rank > best[i][0]:
            value = rate if case.row.measured_metric.endswith("per_gpu") else rate * case.row.num_gpus
            best[i] = rank, Prediction(value, each["step_s"], each["mfu"], memory, each["capacity"])
    return [best[i][1] for i in range(len(cases))]


KIND = WorkKind(
    unsupported=_unsupported,
    completed=completed,
    usual_stack=lambda row, accelerator, architecture: catalog.serving_stack(accelerator),
    inputs=_inputs,
    predict=_predict,
    openings=lambda row, case: [],
)
