"""SGLang's arguments for a group of chips, as in `sglang/srt/arg_groups` of SGLang 0.5.23.

Its tensor parallel size counts all chips of a stage. Attention is tensor parallel over `tp-size / attn-dp-size` of them, an
expert over `tp-size / ep-size`. Sequences and tokens of a chunk are totals over all ranks.
"""

from hwopt.output.export.engine import NVIDIA, Engine, Value, Written, weights
from hwopt.output.export.groups import EngineGroup
from hwopt.output.export.header import PORT
from hwopt.output.export.limits import SERVING, Limit

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
    return {
        "--speculative-algorithm": "STANDALONE",
        "--speculative-draft-model-path": "DRAFT_MODEL",
        "--speculative-num-steps": group.drafted,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": group.drafted + 1,
    }


def _layout(group: EngineGroup) -> dict[str, Value]:
    """Return the arguments for redundant experts, overlap of two half batches, and norms sharded over ranks."""
    copies: dict[str, Value] = {"--enable-eplb": True, "--ep-num-redundant-experts": group.redundant_experts}
    return {
        **(copies if group.redundant_experts else {}),
        **({"--enable-two-batch-overlap": True} if group.two_batches else {}),
        **({"--enable-layernorm-sp": True} if group.norms_spread else {}),
    }


def _prompts(group: EngineGroup) -> tuple[dict[str, Value], list[str]]:
    """Return the argument for the prefill chunk size, and for mixing prefill and decode in one pass, with notes."""
    if group.role == "decode":
        return {}, []
    chunk = -(-group.tokens // _PAGE) * _PAGE * group.attention_dp
    budget: dict[str, Value] = {"--chunked-prefill-size": chunk}
    if group.role == "prefill":
        return budget, []
    if group.drafted:
        return budget, [
            "SGLang alternates passes of prefill and of speculative decoding; the plan assumes both in one pass"
        ]
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
    notes += said + ([f"--chunked-prefill-size is in whole pages of {_PAGE} tokens"] if prompts else [])
    return Written(arguments, {}, notes)


def _hosts(count: int) -> list[str]:
    return ["--nnodes", str(count), "--node-rank", '"$NODE_RANK"', "--dist-init-addr", f'"$MASTER_ADDR:{PORT}"']


ENGINE = Engine(
    title="SGLang",
    version="0.5.23",
    command='python -m sglang.launch_server --model-path "$MODEL"',
    families=(*NVIDIA, "cdna3", "cdna4", "cdna5", "ascend"),
    formats=_FORMATS,
    caches={2.0: "auto", 1.0: "fp8_e4m3", 0.5: "nvfp4"},
    memory=("--mem-fraction-static", "static"),
    write=write,
    limits=(
        *SERVING,
        Limit(lambda f: f.cache_split > 1, "a KV cache split by token (cache_split = {cache_split})"),
        Limit(
            lambda f: (f.drafted > 0) & (f.attention_dp > 1),
            "a draft model (--drafted-tokens) with data parallel attention over {attention_dp} ranks",
        ),
    ),
    hosts=_hosts,
)
