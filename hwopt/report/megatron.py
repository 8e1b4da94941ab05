"""A plan as the launch settings of Megatron-LM: what its flags can say, and a note where they cannot.

Flags and checks are those of `megatron/training/arguments.py` and `megatron/core/transformer` of NVIDIA/Megatron-LM at
core_v0.15.0.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from hwopt.plan import Plan
from hwopt.types import PRECISIONS
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

VERSION = "core_v0.15.0"

Value = int | str | bool
"""Of a flag; True for a flag that takes none."""

_FORMATS: dict[str, dict[str, Value]] = {
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid"},
    "fp4": {"--bf16": True, "--fp4-format": "e2m1"},
    "fp32": {},
    "tf32": {},
}


class MegatronSettings(NamedTuple):
    """Launch settings: arguments of `pretrain_gpt.py`, its environment, and what they do not say."""

    arguments: dict[str, Value]
    environment: dict[str, str]
    world_size: int
    notes: list[str]


def _whole(value: object) -> int:
    return round(float(np.asarray(value)))


def chunk_layers(layers: int, pp: int, virtual_stages: int) -> list[int]:
    """Layers of every pipeline chunk in the order a token meets them; chunk j is on stage j mod p.

    `ceil(L / (p v))` each; where that is more than there are, the last chunk (with the head) goes short by one, then the
    first (with the embedding), then those of the stages between, as `hwopt.plan.stage_layers` counts them.

    **Returns:** p v numbers that add up to the layers.
    """
    count = pp * virtual_stages
    most = -(-layers // count)
    inner = [j for j in reversed(range(count)) if 0 < j % pp < pp - 1]
    short = list(dict.fromkeys([count - 1, 0, *inner, *reversed(range(count))]))[: most * count - layers]
    return [most - (j in short) for j in range(count)]


def layout(chunks: Sequence[int]) -> str:
    """Chunks in the language of `--pipeline-model-parallel-layout`: `Et*7|(t*8|)*14t*7L` for 126 layers on 16 stages."""
    words = ["" if n == 0 else "t" if n == 1 else f"t*{n}" for n in chunks]
    words = [f"E{words[0]}", *words[1:-1], f"{words[-1]}L"]
    runs = [(word, len(list(same))) for word, same in groupby(words[:-1])]
    return "".join(f"({word}|)*{times}" if times > 1 else f"{word}|" for word, times in runs) + words[-1]


def _attention(w: Transformer) -> dict[str, Value]:
    if _whole(w.kv_rank):
        query: dict[str, Value] = {"--q-lora-rank": _whole(w.query_rank)} if _whole(w.query_rank) else {}
        return {
            "--multi-latent-attention": True,
            **query,
            "--kv-lora-rank": _whole(w.kv_rank),
            "--qk-head-dim": _whole(w.qk_dim) - _whole(w.rope_dim),
            "--qk-pos-emb-head-dim": _whole(w.rope_dim),
            "--v-head-dim": _whole(w.v_dim),
        }
    heads, groups = _whole(w.heads), _whole(w.kv_heads)
    grouped: dict[str, Value] = {"--group-query-attention": True, "--num-query-groups": groups}
    return {"--kv-channels": _whole(w.qk_dim)} | (grouped if groups < heads else {})


def _experts(w: Transformer, plan: Plan) -> dict[str, Value]:
    layers, moe = _whole(w.layers), _whole(w.moe_layers)
    if not moe:
        return {}
    found: dict[str, Value] = {
        "--num-experts": _whole(w.experts),
        "--moe-router-topk": _whole(w.experts_per_token),
        "--moe-ffn-hidden-size": _whole(w.expert_ffn),
        "--moe-token-dispatcher-type": "alltoall",
        "--moe-grouped-gemm": True,
        "--expert-model-parallel-size": _whole(plan.ep),
        "--expert-tensor-parallel-size": _whole(plan.expert_tp),
    }
    if _whole(w.shared_experts):
        found["--moe-shared-expert-intermediate-size"] = _whole(w.shared_experts) * _whole(w.expert_ffn)
    if moe < layers:
        found["--moe-layer-freq"] = f"([0]*{layers - moe}+[1]*{moe})"
    return found


def _model(run: TrainingRun) -> dict[str, Value]:
    w, length = run.model, _whole(run.sequence_length)
    found: dict[str, Value] = {
        "--num-layers": _whole(w.layers),
        "--hidden-size": _whole(w.hidden),
        "--ffn-hidden-size": _whole(w.ffn) or _whole(w.expert_ffn),
        "--num-attention-heads": _whole(w.heads),
        **_attention(w),
        "--seq-length": length,
        "--max-position-embeddings": max(length, _whole(w.learned_positions)),
        "--vocab-size": _whole(w.vocab),
    }
    if _whole(w.mlp_matrices) == 3:
        found["--swiglu"] = True
    if not _whole(w.tied_embeddings):
        found["--untie-embeddings-and-output-weights"] = True
    return found


def _pipeline(run: TrainingRun, plan: Plan) -> dict[str, Value]:
    """Stages and chunks; the order of micro-batches where their number is no multiple of the stages."""
    layers, pp, chunks = _whole(run.model.layers), _whole(plan.pp), _whole(plan.virtual_stages)
    found: dict[str, Value] = {"--pipeline-model-parallel-size": pp}
    if pp > 1 and layers % (pp * chunks):
        found["--pipeline-model-parallel-layout"] = layout(chunk_layers(layers, pp, chunks))
    elif chunks > 1:
        found["--num-layers-per-virtual-pipeline-stage"] = layers // (pp * chunks)
    micro_batches = _micro_batches(run, plan)
    if chunks > 1 and micro_batches % pp:
        fits = (g for g in range(pp, micro_batches + 1) if micro_batches % g == 0 or micro_batches % g >= pp)
        found["--microbatch-group-size-per-virtual-pipeline-stage"] = next(fits, micro_batches)
    return found


def _micro_batches(run: TrainingRun, plan: Plan) -> int:
    return _whole(run.global_batch_sequences) // (_whole(plan.dp) * _whole(plan.micro_batch))


def _zero(plan: Plan) -> int:
    return _whole(plan.optimizer_sharded) + _whole(plan.gradients_sharded) + _whole(plan.weights_sharded)


def _sharding(plan: Plan) -> dict[str, Value]:
    zero = _zero(plan)
    found: dict[str, Value] = {"--overlap-grad-reduce": True}
    if zero:
        found |= {"--use-distributed-optimizer": True, "--overlap-param-gather": True}
    if zero > 1:
        found |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": "optim_grads" if zero == 2 else "optim_grads_params",
            "--no-gradient-accumulation-fusion": True,
            "--ckpt-format": "fsdp_dtensor",
        }
    if _whole(plan.shard_groups) > 1:
        found["--num-distributed-optimizer-instances"] = _whole(plan.shard_groups)
    return found


def _recompute(run: TrainingRun, plan: Plan) -> dict[str, Value]:
    full = float(np.asarray(plan.recompute_full))
    chunk = _whole(run.model.layers) / (_whole(plan.pp) * _whole(plan.virtual_stages))
    if full >= 1.0:
        return {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
    if full > 0.0:
        layers = max(1, round(full * chunk))
        return {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": layers}
    return {"--recompute-granularity": "selective"} if _whole(plan.recompute_attention) else {}


def _precision(run: TrainingRun) -> str:
    return PRECISIONS[int(np.argmax(np.asarray(run.gemm_precision)))]


def _notes(run: TrainingRun, plan: Plan, given: dict[str, Value]) -> list[str]:
    """What Megatron-LM cannot do, or what the plan does not know."""
    w, tp, cp, pp = run.model, _whole(plan.tp), _whole(plan.cp), _whole(plan.pp)
    groups, length, zero = _whole(w.kv_heads), _whole(run.sequence_length), _zero(plan)
    found = []
    if not _whole(w.kv_rank) and groups % tp:
        near = max(t for t in range(1, min(groups, tp) + 1) if groups % t == 0 and tp % t == 0)
        found.append(
            f"cannot be expressed in {VERSION}: tp = {tp} splits {groups} key-value heads, which must be a multiple of it "
            f"(later versions take divisors too); nearest: --tensor-model-parallel-size {near}"
        )
    widths = {"--ffn-hidden-size": w.ffn, "--hidden-size": w.hidden}
    found += [f"{name} {_whole(x)} is no multiple of tp = {tp}: pad it" for name, x in widths.items() if _whole(x) % tp]
    if cp > 1 and length % (2 * cp):
        found.append(f"cannot be expressed: --seq-length {length} must be a multiple of 2 cp = {2 * cp}")
    if zero > 1 and pp > 1:
        found.append(
            f"ZeRO-{zero} under a pipeline is Megatron-FSDP's alone, which reduces gradients after every micro-batch; nearest "
            "without it: ZeRO-1 (drop --use-megatron-fsdp and the three flags behind it), if memory allows"
        )
    if zero > 1 and "--sequence-parallel" in given:
        found.append(
            "--use-megatron-fsdp forbids CUDA_DEVICE_MAX_CONNECTIONS=1, with which tensor parallelism overlaps best"
        )
    if "--microbatch-group-size-per-virtual-pipeline-stage" in given:
        found.append(
            f"{_micro_batches(run, plan)} micro-batches are no multiple of pp = {pp}: groups of another size keep more "
            "activations than the plan counts"
        )
    if "--moe-layer-freq" in given:
        found.append("--moe-layer-freq takes dense layers to come first; write your model's order if it differs")
    if float(np.asarray(w.local_layers_fraction)) > 0.0:
        found.append("windowed attention is not set: --window-size and --window-attn-skip-freq are your model's")
    if float(np.asarray(plan.bubble_fraction)) != 1.0:
        found.append("cannot be expressed: a schedule with a smaller bubble; these settings run 1F1B")
    if 0.0 < float(np.asarray(plan.recompute_full)) < 1.0:
        found.append("--recompute-num-layers is a whole number a chunk: the nearest to the plan's share of layers")
    if _precision(run) not in _FORMATS:
        found.append(f"cannot be expressed: GEMMs in {_precision(run)}; nearest: --bf16")
    if "--swiglu" in given:
        found.append("--swiglu stands for a gated MLP: another gate has its own flag")
    found.append(
        "yours to set: tokenizer, data, optimizer, normalization, position embedding, biases, dropout, train length"
    )
    return found


def megatron_settings(run: TrainingRun, plan: Plan) -> MegatronSettings:
    """A training run under a concrete plan as Megatron-LM's settings.

    **Arguments:** a plan of whole degrees. **Returns:** arguments, environment, ranks to launch and notes.
    """
    given = {
        **_model(run),
        "--tensor-model-parallel-size": _whole(plan.tp),
        **({"--sequence-parallel": True} if _whole(plan.sequence_parallel) and _whole(plan.tp) > 1 else {}),
        **_pipeline(run, plan),
        "--context-parallel-size": _whole(plan.cp),
        **({"--cp-comm-type": "p2p"} if _whole(plan.cp) > 1 else {}),
        **_experts(run.model, plan),
        "--micro-batch-size": _whole(plan.micro_batch),
        "--global-batch-size": _whole(run.global_batch_sequences),
        **_sharding(plan),
        **_recompute(run, plan),
        **_FORMATS.get(_precision(run), _FORMATS["bf16"]),
    }
    ordered = "--use-megatron-fsdp" not in given and (_whole(plan.tp) > 1 or _whole(plan.cp) > 1)
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if ordered else {}
    ranks = _whole(plan.tp) * _whole(plan.pp) * _whole(plan.dp) * _whole(plan.cp)
    return MegatronSettings(given, environment, ranks, _notes(run, plan, given))


def megatron_document(settings: MegatronSettings) -> dict[str, Any]:
    """Settings as JSON."""
    return {"framework": "megatron-lm", "version": VERSION, **settings._asdict()}


def megatron_text(settings: MegatronSettings, title: str) -> str:
    """Settings as lines of bash: comments, the environment, and an array for `pretrain_gpt.py "${MEGATRON_ARGS[@]}"`."""
    words = [
        flag if value is True else f"{flag} {shlex.quote(str(value))}" for flag, value in settings.arguments.items()
    ]
    return "\n".join(
        [
            f"# Megatron-LM {VERSION}, {settings.world_size:,} ranks: {title}",
            *(f"# - {note}" for note in settings.notes),
            *(f"export {name}={value}" for name, value in settings.environment.items()),
            "MEGATRON_ARGS=(",
            *(f"  {word}" for word in words),
            ")",
        ]
    )
