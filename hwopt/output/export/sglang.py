"""SGLang's arguments for a group of chips, as in `sglang/srt/arg_groups` of SGLang 0.5.23.

Its tensor parallel size counts all chips of a stage. Attention is tensor parallel over `tp-size / attn-dp-size` of them, an
expert over `tp-size / ep-size`. Sequences and tokens of a chunk are totals over all ranks.
"""

from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA, Engine, Value, Written, weights
from hwopt.output.export.groups import EngineGroup

_PAGE = 64
"""Tokens of the largest KV-cache page of its attention kernels. Prefill chunks are rounded up to whole pages."""

_FORMATS: dict[str, dict[str, Value]] = {
    "bf16": {"--dtype": "auto"},
    "fp8": {"--quantization": "fp8"},
    "int8": {"--quantization": "w8a8_int8"},
    "fp4": {"--quantization": "modelopt_fp4"},
}


def _drafts(group: EngineGroup) -> dict[str, Value]:
    if not group.drafted:
        return {}
    if group.attention_dp > 1:
        raise UserError(
            "a draft model beside data parallel attention: SGLang has none (STANDALONE); leave out --drafted-tokens"
        )
    return {
        "--speculative-algorithm": "STANDALONE",
        "--speculative-draft-model-path": "DRAFT_MODEL",
        "--speculative-num-steps": group.drafted,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": group.drafted + 1,
    }


def _layout(group: EngineGroup) -> dict[str, Value]:
    """Return the arguments for redundant experts and for overlapping two half batches.

    Raise `UserError` for a split KV cache.
    """
    if group.cache_split > 1:
        raise UserError("keys and values split by token (cache_split): not written for SGLang; ask for other --layouts")
    copies: dict[str, Value] = {"--enable-eplb": True, "--ep-num-redundant-experts": group.redundant_experts}
    return (copies if group.redundant_experts else {}) | (
        {"--enable-two-batch-overlap": True} if group.two_batches else {}
    )


def _prompts(group: EngineGroup) -> tuple[dict[str, Value], list[str]]:
    """Return the argument for the prefill chunk size, and for mixing prefill and decode in one pass, with notes."""
    if group.role == "decode":
        return {}, []
    chunk = -(-group.tokens // _PAGE) * _PAGE * group.attention_dp
    budget: dict[str, Value] = {"--chunked-prefill-size": chunk}
    if group.role == "prefill":
        return budget, []
    if group.drafted:
        return budget, ["cannot be expressed: prompts beside drafted sequences in one pass; SGLang passes them in turn"]
    return budget | {"--enable-mixed-chunk": True}, []


def write(group: EngineGroup) -> Written:
    """Return a group of chips as arguments of `python -m sglang.launch_server`."""
    stored, notes = weights(group, _FORMATS)
    prompts, said = _prompts(group)
    arguments: dict[str, Value] = {
        "--tp-size": group.tp * group.attention_dp,
        "--pp-size": group.pp,
        **({"--attn-dp-size": group.attention_dp} if group.attention_dp > 1 else {}),
        **({"--ep-size": group.ep} if group.ep > 1 else {}),
        **_layout(group),
        "--max-running-requests": group.sequences * group.attention_dp,
        **({"--pp-max-micro-batch-size": group.batch} if group.pp > 1 else {}),
        **prompts,
        "--context-length": group.length,
        **stored,
        "--kv-cache-dtype": ENGINE.cache(group),
        **_drafts(group),
    }
    if group.role != "serve":
        arguments |= {"--disaggregation-mode": group.role, "--disaggregation-transfer-backend": "nixl"}
    notes += said
    if group.norms_spread:
        notes.append(
            "norms spread over tensor parallel ranks (sequence_parallel): --enable-layernorm-sp has it, of some models' prompts"
        )
    return Written(arguments, {}, notes)


ENGINE = Engine(
    title="SGLang",
    version="0.5.23",
    command='python -m sglang.launch_server --model-path "$MODEL"',
    families=(*NVIDIA, "cdna3", "cdna4", "ascend"),
    formats=_FORMATS,
    caches={2.0: "auto", 1.0: "fp8_e4m3", 0.5: "nvfp4"},
    memory="--mem-fraction-static (its own guess by default)",
    write=write,
)
