"""NVIDIA Dynamo workers around each engine, as in `dynamo/{vllm,sglang,trtllm}` of ai-dynamo 1.6.1.

Workers of vLLM and SGLang take the engine's own arguments. The worker of TensorRT-LLM has its own arguments and takes the rest
as JSON.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from hwopt.output.export import sglang, tensorrt_llm, vllm
from hwopt.output.export.engine import Engine, Value, Written
from hwopt.output.export.groups import EngineGroup

VERSION = "1.6.1"


def _with_role(written: Written, group: EngineGroup) -> Written:
    """Add the argument that restricts a worker to prefill or decode. SGLang's own argument already does so."""
    said: dict[str, Value] = {} if group.role == "serve" else {"--disaggregation-mode": group.role}
    return written._replace(arguments=written.arguments | said)


def _of_vllm(group: EngineGroup) -> Written:
    return _with_role(vllm.write(group), group)


def _of_sglang(group: EngineGroup) -> Written:
    return sglang.write(group)


def _of_tensorrt_llm(group: EngineGroup) -> Written:
    more = {"kv_cache_config": {"dtype": tensorrt_llm.ENGINE.cache(group)}, **tensorrt_llm.further(group)}
    more |= {"enable_chunked_prefill": True} if group.role != "decode" else {}
    named = {f"--{name.replace('_', '-')}": value for name, value in
             (tensorrt_llm.parallel(group) | tensorrt_llm.limits(group)).items()}  # fmt: skip
    arguments: dict[str, Value] = {
        **named,
        **({"--expert-parallel-size": group.ep} if group.moe else {}),
        **({"--enable-attention-dp": True} if group.attention_dp > 1 else {}),
        "--override-engine-args": json.dumps(more),
    }
    return _with_role(Written(arguments, {}, tensorrt_llm.notes(group)), group)


def _around(engine: Engine, module: str, model: str, write: Callable[[EngineGroup], Written]) -> Engine:
    version = f"{VERSION} with {engine.title} {engine.version}"
    command = f'python -m dynamo.{module} {model} "$MODEL"'
    return replace(engine, title="NVIDIA Dynamo", version=version, command=command, write=write, hosts=None)


VLLM = _around(vllm.ENGINE, "vllm", "--model", _of_vllm)
SGLANG = _around(sglang.ENGINE, "sglang", "--model-path", _of_sglang)
TENSORRT_LLM = replace(
    _around(tensorrt_llm.ENGINE, "trtllm", "--model", _of_tensorrt_llm),
    memory=("--free-gpu-memory-fraction", "cache"),
)
