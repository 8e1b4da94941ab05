"""TensorRT-LLM's arguments for a group of chips: options of `trtllm-serve serve`, and `TorchLlmArgs` in a configuration file.

**Source:** NVIDIA/TensorRT-LLM, `tests/unittest/api_stability/references/trtllm_serve_cli.yaml` at 029e223d, which its own
tests
compare with the options; `tensorrt_llm/llmapi/llm_args.py`, and `TorchLlmArgs` of the documentation of 1.4.0rc4.
"""

from typing import Any

from hwopt.output.export.engine import NORMS_SPREAD, NVIDIA, Engine, Value, Written, weights
from hwopt.output.export.groups import EngineGroup
from hwopt.output.export.limits import SERVING, Limit

_FORMATS: dict[str, dict[str, Value]] = {"bf16": {}, "fp8": {}, "int8": {}, "fp4": {}}
"""No arguments for any format: the checkpoint determines it."""

_ROLES = {"prefill": "CONTEXT", "decode": "GENERATION"}


def parallel(group: EngineGroup) -> dict[str, Value]:
    """Return the tensor parallel size, which counts all chips of a stage, and the number of pipeline stages."""
    return {"tensor_parallel_size": group.tp * group.attention_dp, "pipeline_parallel_size": group.pp}


def limits(group: EngineGroup) -> dict[str, Value]:
    """Return the limits on sequences and tokens in a pass of one rank, and on the tokens of a request."""
    return {"max_batch_size": group.batch, "max_num_tokens": group.tokens, "max_seq_len": group.length}


def further(group: EngineGroup) -> dict[str, Any]:
    """Return the settings that only the configuration file can express: expert split, drafting, KV-cache transfer."""
    config: dict[str, Any] = {}
    if group.moe:
        config["moe_tensor_parallel_size"] = group.expert_tp
    if group.drafted:
        config["speculative_config"] = {
            "decoding_type": "Draft_Target", "max_draft_len": group.drafted, "speculative_model": "DRAFT_MODEL"
        }  # fmt: skip
    if group.role in _ROLES:
        config["cache_transceiver_config"] = {"backend": "DEFAULT"}
    return config


def notes(group: EngineGroup) -> list[str]:
    """Return notes on plan features that neither the options nor the configuration file can express."""
    said = weights(group, _FORMATS)[1]
    if group.pp > 1:
        said.append(
            f"the maximum batch size is one micro-batch; {group.pp} stages hold {group.sequences} sequences at a time"
        )
    return said


def write(group: EngineGroup) -> Written:
    """Return a group of chips as options of `trtllm-serve serve`."""
    options: dict[str, Value] = {
        **parallel(group),
        **({"moe_expert_parallel_size": group.ep} if group.moe else {}),
        **({"enable_attention_dp": True} if group.attention_dp > 1 else {}),
        **limits(group),
        **({"enable_chunked_prefill": True} if group.role != "decode" else {}),
        "kv_cache_dtype": ENGINE.cache(group),
        **({"server_role": _ROLES[group.role]} if group.role in _ROLES else {}),
    }
    return Written({f"--{name}": value for name, value in options.items()}, further(group), notes(group))


ENGINE = Engine(
    title="TensorRT-LLM",
    version="1.4",
    command='trtllm-serve serve "$MODEL"',
    families=NVIDIA,
    formats=_FORMATS,
    caches={2.0: "auto", 1.0: "fp8", 0.5: "nvfp4"},
    memory=("--free_gpu_memory_fraction", "cache"),
    write=write,
    limits=(
        *SERVING,
        Limit(
            lambda f: (f.redundant_experts > 0) | (f.two_batches > 0) | (f.cache_split > 1),
            "redundant experts, two-batch overlap or a split KV cache (--layouts none)",
        ),
        Limit(
            lambda f: (f.attention_dp > 1) & (f.tp > 1),
            "data parallel attention over {attention_dp} ranks of tp = {tp}: attention is split over all chips of an instance, "
            "or over none (tp=1)",
        ),
        NORMS_SPREAD,
    ),
)
