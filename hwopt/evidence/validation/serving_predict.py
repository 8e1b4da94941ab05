"""Latencies and throughputs of all serving rows at once: a few jitted, vmapped calls of `estimate` in float64."""

# Rows that come this far have their blanks filled or were skipped; the checker cannot see that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Array

from hwopt.evidence.validation.predict import stacked
from hwopt.evidence.validation.serving_join import ServingCase
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.optim.quick_jit import quick_jit
from hwopt.plan import Plan
from hwopt.workload.service import Service

MOST_SEQUENCES = 2048
"""Sequences that an engine runs at once on a replica, at most (the default of TensorRT-LLM's `max_batch_size`)."""

MOST_TOKENS = 8192.0
"""Tokens of a pass, at most, where a prompt is no longer (the default of TensorRT-LLM's `max_num_tokens`)."""

_REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (500, 2000): 3000, (1000, 1000): 3000, (1000, 2000): 1500,
    (2048, 128): 3000, (2048, 2048): 1500, (5000, 500): 1500, (20000, 2000): 1000, (1024, 1024): 3000, (8192, 1024): 1500,
    (1024, 8192): 1500, (32768, 1024): 1000, (1024, 32768): 1000,
}  # fmt: skip
"""Requests of a run of TensorRT-LLM's perf-overview by input and output tokens: its section on reproducing results."""


@dataclass(frozen=True)
class ServingPrediction:
    """What the model says about one case."""

    step_s: float  # a pass that generates; a pass of prompts where nothing is generated
    prefill_s: float  # all prompts of the batch; 0 where they run beside the answers
    batch: float  # sequences of a replica
    mfu: float
    memory_bytes: float
    memory_capacity_bytes: float
    breakdown: dict[str, float]
    value: float  # in the row's unit


Inputs = tuple[Service, Cluster, Plan]


@quick_jit
def _estimate_all(service: Service, cluster: Cluster, plan: Plan) -> tuple[dict[str, Array], dict[str, Array]]:
    def one(service: Service, cluster: Cluster, plan: Plan) -> tuple[dict[str, Array], dict[str, Array]]:
        report = estimate(service, cluster, plan)
        values = {
            "step_s": report.step_time_s,
            "first_s": report.time_to_first_token_s,
            "each_s": report.time_per_output_token_s,
            "tokens_per_s_per_chip": report.tokens_per_s_per_chip,
            "mfu": report.mfu,
            "memory": report.memory_per_chip_bytes,
            "cache": report.memory.cache_bytes,
            "capacity": report.memory_capacity_bytes,
        }
        return values, report.breakdown._asdict()

    return jax.vmap(one)(service, cluster, plan)


def _evaluate(inputs: Sequence[Inputs]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    with jax.enable_x64(True):
        answer = cast(Any, _estimate_all(*stacked(inputs)))
        return jax.tree.map(np.asarray, answer)


def predict(cases: Sequence[ServingCase]) -> list[ServingPrediction]:
    """The model's answer for each case: a batch that is stated, or the best of those that an engine could choose."""
    fixed = [i for i, case in enumerate(cases) if not case.row.largest]
    free = [i for i, case in enumerate(cases) if case.row.largest]
    answers: dict[int, ServingPrediction] = dict(zip(fixed, _static([cases[i] for i in fixed]), strict=True))
    answers |= zip(free, _largest([cases[i] for i in free]), strict=True)
    return [answers[i] for i in range(len(cases))]


def _phase(case: ServingCase, prefills: float, decodes: float) -> Inputs:
    """A phase of a static batch. A pipeline passes it in as many parts as it has stages, where it has that many."""
    replica = case.row.sequences / float(case.plan.dp)
    part = max(replica / float(case.plan.pp), 1.0)
    service = replace(
        case.service,
        prefills=np.float64(prefills),
        decodes=np.float64(decodes),
    )
    return service, case.cluster, replace(case.plan, micro_batch=np.float64(part))


def _static(cases: Sequence[ServingCase]) -> list[ServingPrediction]:
    """Batches that start and end together: one pass of all prompts, which makes the first token, then a pass a token.

    `T = T_prefill + (output - 1) T_decode`, decoding at the mean context.
    """
    if not cases:
        return []
    prompts, _ = _evaluate([_phase(case, 1.0, 0.0) for case in cases])
    answers, parts = _evaluate([_phase(case, 0.0, 1.0) for case in cases])
    results = []
    for i, case in enumerate(cases):
        row, stages = case.row, float(case.plan.pp)
        prefill = float(prompts["first_s"][i]) * (2.0 - 1.0 / stages)
        each = float(answers["each_s"][i])
        rest = (row.output_tokens - 1.0) * each
        total = prefill + rest
        mfu = (prefill * float(prompts["mfu"][i]) + rest * float(answers["mfu"][i])) / total
        rate = row.sequences * row.output_tokens / total
        values = {
            "total_latency_ms": 1e3 * total,
            "ttft_ms": 1e3 * prefill,
            "tpot_ms": 1e3 * each,
            "output_tokens_per_s": rate,
            "output_tokens_per_s_per_gpu": rate / row.num_gpus,
        }
        results.append(
            ServingPrediction(
                step_s=each, prefill_s=prefill, batch=row.sequences / float(case.plan.dp), mfu=mfu,
                memory_bytes=max(float(prompts["memory"][i]), float(answers["memory"][i])),
                memory_capacity_bytes=float(answers["capacity"][i]),
                breakdown={name: float(part[i]) for name, part in parts.items()},
                value=values[row.metric],
            )
        )  # fmt: skip
    return results


def _requests(case: ServingCase) -> float:
    """Requests of the run that was measured, a replica; unlimited where the source does not say."""
    row = case.row
    known = re.search(r"tensorrt-llm perf-overview", row.source, re.I)
    total = _REQUESTS.get((round(row.input_tokens), round(row.output_tokens))) if known else None
    return total / float(case.plan.dp) if total else math.inf


def _batches(case: ServingCase) -> list[float]:
    """Batches to choose from: powers of two and 1.5 times these, and even parts of the requests."""
    requests = _requests(case)
    grid = {float(size) for n in range(12) for size in (2**n, 1.5 * 2**n) if size == round(size)}
    if math.isfinite(requests):
        grid |= {requests / n for n in (1, 2, 3, 4, 5, 6, 8)}
    row = case.row
    prompt = row.input_tokens / row.output_tokens
    tokens = max(MOST_TOKENS, row.input_tokens)
    return sorted(x for x in grid if 1.0 <= x <= min(MOST_SEQUENCES, requests) and x * (1.0 + prompt) <= tokens) or [
        1.0
    ]


def _full_length(service: Service) -> float:
    """Tokens kept of a sequence at its end over the mean of its life: engines reserve the whole length."""
    model = service.model
    window, local = float(model.window_tokens), float(model.local_layers_fraction)
    kept = lambda tokens: (1.0 - local) * tokens + local * min(tokens, window or tokens)
    whole, mean = float(service.input_tokens + service.output_tokens), float(service.mean_context)
    return kept(whole) / kept(mean)


def _whole_waves(requests: float, batch: float) -> float:
    """Share of a batch that is filled, mean over the waves in which requests of one length come and go together."""
    return requests / batch / math.ceil(requests / batch - 1e-9) if math.isfinite(requests) else 1.0


def _largest(cases: Sequence[ServingCase]) -> list[ServingPrediction]:
    """The highest rate of all batches that fit, whole lengths reserved."""
    if not cases:
        return []
    choices = [(i, batch) for i, case in enumerate(cases) for batch in _batches(case)]
    inputs = [
        (cases[i].service, cases[i].cluster, replace(cases[i].plan, micro_batch=np.float64(batch)))
        for i, batch in choices
    ]
    found, parts = _evaluate(inputs)
    best: dict[int, tuple[float, ServingPrediction]] = {}
    for at, (i, batch) in enumerate(choices):
        case = cases[i]
        memory = float(found["memory"][at]) + float(found["cache"][at]) * (_full_length(case.service) - 1.0)
        over = max(memory / float(found["capacity"][at]) - 1.0, 0.0)
        rate = float(found["tokens_per_s_per_chip"][at]) * _whole_waves(_requests(case), batch)
        rank = -over if over else rate  # the least that is too much where nothing fits
        if i in best and best[i][0] >= rank:
            continue
        per_gpu = case.row.metric.endswith("per_gpu")
        best[i] = rank, ServingPrediction(
            step_s=float(found["step_s"][at]), prefill_s=0.0, batch=batch, mfu=float(found["mfu"][at]),
            memory_bytes=memory, memory_capacity_bytes=float(found["capacity"][at]),
            breakdown={name: float(part[at]) for name, part in parts.items()},
            value=rate if per_gpu else rate * case.row.num_gpus,
        )  # fmt: skip
    return [best[i][1] for i in range(len(cases))]
