"""vLLM's arguments for a group of chips, as in `vllm/engine/arg_utils.py` and `vllm/config` of vLLM 0.33.0."""

import json

from hwopt.output.export.engine import NORMS_SPREAD, NVIDIA, Engine, Value, Written, weights
from hwopt.output.export.groups import EngineGroup
from hwopt.output.export.limits import SERVING, Limit

_FORMATS: dict[str, dict[str, Value]] = {
    "bf16": {"--dtype": "auto"},
    "fp8": {"--quantization": "fp8"},
    "int8": {},  # the checkpoint determines it: compressed-tensors
    "fp4": {"--quantization": "modelopt_fp4"},
}

_SPARSE_LATENT = (
    "sparse latent attention keeps fp8 keys and values as fp8_ds_mla: 512 B of latent, 16 B of scales and 128 B of rotary key in "
    "16 bit for each token and layer (656 B), more than the plan's 1 B for each of its numbers"
)
"""Note on the KV cache of DeepSeek-V3.2.

**Source:** vLLM, `DeepseekV32ForCausalLM` in `model_executor/models/config.py` (recalled).
"""

_CONNECTORS = {"prefill": "kv_producer", "decode": "kv_consumer"}


def _experts(group: EngineGroup) -> dict[str, Value]:
    """Return the arguments for data parallel attention and for expert parallelism over all chips of an instance."""
    ranked: dict[str, Value] = {"--data-parallel-size": group.attention_dp} if group.attention_dp > 1 else {}
    return ranked | ({"--enable-expert-parallel": True} if group.ep > 1 else {})


def _layout(group: EngineGroup) -> dict[str, Value]:
    """Return the arguments for redundant experts, overlap of two half batches, and a KV cache split by token."""
    layout: dict[str, Value] = {}
    if group.redundant_experts:
        copies = {"num_redundant_experts": group.redundant_experts}
        layout |= {"--enable-eplb": True, "--eplb-config": json.dumps(copies)}
    if group.two_batches:
        layout["--enable-dbo"] = True
    if group.cache_split > 1:
        layout["--decode-context-parallel-size"] = group.cache_split
    return layout


def write(group: EngineGroup) -> Written:
    """Return a group of chips as arguments of `vllm serve`."""
    stored, notes = weights(group, _FORMATS)
    tokens = max(group.tokens, group.sequences)  # vLLM requires at least as many tokens as sequences
    arguments: dict[str, Value] = {
        "--tensor-parallel-size": group.tp,
        "--pipeline-parallel-size": group.pp,
        **_experts(group),
        **_layout(group),
        "--max-num-seqs": group.sequences,
        "--max-num-batched-tokens": tokens,
        "--max-model-len": group.length,
        **stored,
        "--kv-cache-dtype": ENGINE.cache(group),
    }
    if group.drafted:
        drafts = {"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": group.drafted}
        arguments["--speculative-config"] = json.dumps(drafts)
    if group.role in _CONNECTORS:
        moves = {"kv_connector": "NixlConnector", "kv_role": _CONNECTORS[group.role]}
        arguments["--kv-transfer-config"] = json.dumps(moves)
    if group.sparse_latent and group.kv_bytes == 1.0:
        notes.append(_SPARSE_LATENT)
    if group.pp > 1:
        notes.append(
            f"vLLM forms micro-batches itself from all {group.sequences} sequences: {group.batch} on each of {group.pp} stages"
        )
    return Written(arguments, {}, notes)


def _hosts(count: int) -> list[str]:
    """Return the words for several hosts; all but the first serve no requests (`--headless`)."""
    meet = ["--nnodes", str(count), "--node-rank", '"$NODE_RANK"', "--master-addr", '"$MASTER_ADDR"']
    return [*meet, '$([ "$NODE_RANK" = 0 ] || echo --headless)']


ENGINE = Engine(
    title="vLLM",
    version="0.33.0",
    command='vllm serve "$MODEL"',
    families=("volta", *NVIDIA, "cdna2", "cdna3", "cdna4", "cdna5"),
    formats=_FORMATS,
    caches={2.0: "auto", 1.0: "fp8", 0.5: "nvfp4"},
    memory=("--gpu-memory-utilization", "used"),
    write=write,
    limits=(
        *SERVING,
        Limit(
            lambda f: (f.moe_layers > 0) & (f.ep > 1) & (f.expert_tp > 1),
            "ep x expert_tp = {ep} x {expert_tp}: vLLM distributes whole experts over all chips of an instance "
            "(expert_tp=1), or splits each of them over all",
        ),
        NORMS_SPREAD,
    ),
    hosts=_hosts,
    plugins={"tpu": "tpu-inference", "gaudi": "vllm-gaudi", "ascend": "vllm-ascend"},
)
