"""The cases of `aiconfigurator.py`: plans that serve, and how aiconfigurator is asked for each."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from hwopt import catalog
from hwopt.workload.transformer import total_parameters

MODELS = {
    "llama3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
}
SYSTEMS = {"h100-sxm": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm"}
"""Chip and model of the catalogue -> its own."""

FP8_70B = "nvidia/Llama-3.1-70B-Instruct-FP8"
"""Its name of the checkpoint in 8 bit."""

NODE = 8
"""Chips of a node of all three systems."""

BUDGET_TOKENS = 8192
"""Of a pass, as TensorRT-LLM is run by default."""

BATCHES = [1, 2, 3, *(part * 2**k // 4 for k in range(2, 8) for part in (4, 5, 6, 7)), 256]
"""Of cases that are drawn."""

LOAD = 0.9
"""Share of the time of chips for prompts that it takes as filled where two groups serve."""


class Case(NamedTuple):
    """A plan on so many chips; `prompts`: the plan of chips for prompts alone, where there are any."""

    name: str
    model: str
    chip: str
    chips: int
    precision: str
    mode: str
    request: tuple[int, int]
    plan: dict[str, int]
    prompts: dict[str, int] | None = None


_AGREED = (4000, 1000)
SEVEN = (
    Case("70B bf16, 8 x H100", "llama3.1-70b", "h100-sxm", 8, "bf16", "serve", _AGREED, {"tp": 8, "batch": 64}),
    Case("70B fp8, 16 x H200", "llama3.1-70b", "h200", 16, "fp8", "serve", _AGREED, {"tp": 2, "batch": 48}),
    Case(
        "70B fp8, 16 x H200 in two groups", "llama3.1-70b", "h200", 16, "fp8", "serve", _AGREED, {"tp": 2, "batch": 128},
        {"tp": 1, "batch": 1},
    ),
    Case("405B fp8, 16 x H200", "llama3.1-405b", "h200", 16, "fp8", "serve", _AGREED, {"tp": 8, "batch": 64}),
    Case("DeepSeek-V3, 32 x H200", "deepseek-v3", "h200", 32, "fp8", "serve", _AGREED, {"tp": 1, "ep": 16, "batch": 11}),
    Case(
        "DeepSeek-V3, 32 x B200", "deepseek-v3", "b200", 32, "fp8", "serve", _AGREED,
        {"tp": 1, "ep": 4, "expert_tp": 2, "batch": 64},
    ),
    Case("70B fp8 on 8 x H200, batch 48", "llama3.1-70b", "h200", 8, "fp8", "serve", _AGREED, {"tp": 8, "batch": 48}),
    Case("the same, batch 128", "llama3.1-70b", "h200", 8, "fp8", "serve", _AGREED, {"tp": 8, "batch": 128}),
)  # fmt: skip


def one(rng: random.Random) -> Case:
    model, chip, precision = rng.choice(list(MODELS)), rng.choice(list(SYSTEMS)), rng.choice(["bf16", "fp8", "fp8"])
    mode, batch = rng.choice(["serve", "prefill", "decode"]), rng.choice(BATCHES)
    request = rng.choice([(500, 2000), (1000, 1000), (2000, 200), (4000, 1000), (8000, 500), (16000, 1000)])
    if mode == "prefill":
        batch = max(BUDGET_TOKENS // request[0], 1)
    service = catalog.service(model, precision=precision)
    weights = float(service.weight_bytes) * float(total_parameters(service.model))
    memory = float(catalog.chip(chip).hbm_capacity_bytes)
    tp = next((n for n in (1, 2, 4, 8) if n * memory >= 2.0 * weights), 8)
    plan, apart = {"tp": tp, "batch": batch}, rng.random() < 0.5
    if float(service.model.experts) > 1 and tp > 1:
        plan = {"tp": 1 if apart else tp, "ep": tp, "batch": batch}
    return Case(f"{model} {precision}, {tp} x {chip}", model, chip, tp, precision, mode, request, plan)


def _formats(case: Case) -> dict[str, str]:
    kept = "bfloat16" if case.precision == "bf16" else "fp8"
    products = {"bf16": "bfloat16", "fp8": "fp8_static"}[case.precision]
    block = case.model == "deepseek-v3" and case.precision == "fp8"
    words = {"gemm": "fp8_block" if block else products, "kvcache": kept, "fmha": "bfloat16" if block else kept}
    if float(catalog.transformer(case.model).experts) > 1:
        words["moe"] = "fp8_block" if block else kept
    return {f"{name}_quant_mode": word for name, word in words.items()}


def _degrees(case: Case, plan: dict[str, int], prefix: str = "") -> dict[str, int]:
    ep, tp = plan.get("ep", 1), plan["tp"]
    degrees = {"tp_size": tp}
    if float(catalog.transformer(case.model).experts) > 1:
        expert_tp = plan.get("expert_tp", 1 if ep > 1 else tp)
        degrees |= {"attention_dp_size": max(ep * expert_tp // tp, 1), "moe_ep_size": ep, "moe_tp_size": expert_tp}
    return {prefix + name: value for name, value in degrees.items()}


def asked(case: Case) -> list[dict[str, Any]]:
    """A case as aiconfigurator's `cli_estimate` takes it, once for each budget of tokens that a pass may have."""
    given, generated = case.request
    modes = {"serve": "agg", "prefill": "static_ctx", "decode": "static_gen"}
    same = {"model_path": MODELS[case.model], "system_name": SYSTEMS[case.chip], "isl": given, "osl": generated}
    same |= _formats(case)
    if case.prompts is not None:
        groups = {"prefill_": case.prompts, "decode_": case.plan}
        workers = {f"{name}num_workers": case.chips // 2 // plan["tp"] for name, plan in groups.items()}
        batches = {f"{name}batch_size": plan["batch"] for name, plan in groups.items()}
        degrees = _degrees(case, case.prompts, "prefill_") | _degrees(case, case.plan, "decode_")
        return [same | {"mode": "disagg"} | workers | batches | degrees]
    one = same | {"mode": modes[case.mode], "batch_size": case.plan["batch"]} | _degrees(case, case.plan)
    if case.mode != "serve":
        return [one]
    if wide(case):
        return [one | {"mode": "static_ctx", "batch_size": 1}, one | {"mode": "static_gen"}]
    return [one | {"ctx_tokens": budget} for budget in sorted({given, given * max(BUDGET_TOKENS // given, 1)})]


def wide(case: Case) -> bool:
    """Whether experts leave a node: its estimate of one group then gathers all tokens everywhere, which its search does not; so
    its two phases are put together, a pass for each prompt and passes of sequences between, as it does.
    """
    return case.plan.get("ep", 1) * case.plan.get("expert_tp", 1) > NODE
