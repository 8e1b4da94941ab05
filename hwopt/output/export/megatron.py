"""Export of a plan as launch settings of Megatron-LM: its flags, and a note for what they cannot express.

Flags and checks are those of `megatron/training/arguments.py` and `megatron/core/transformer` of NVIDIA/Megatron-LM at
core_v0.15.0.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt import escape
from hwopt.output.text.plans import integral
from hwopt.plan import OFFLOADED, Plan
from hwopt.types import PRECISIONS
from hwopt.workload.ramp import batch_quotients
from hwopt.workload.training import TrainingRun

VERSION = "core_v0.15.0"

Value = int | str | bool
"""Value of a flag; True for a flag without a value."""

_FORMATS: dict[str, dict[str, Value]] = {
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid"},
    "fp4": {"--bf16": True, "--fp4-format": "e2m1"},
    "fp32": {},
    "tf32": {},
}


class MegatronSettings(NamedTuple):
    """Launch settings of Megatron-LM: arguments and environment of `pretrain_gpt.py`, and notes on what they cannot express."""

    arguments: dict[str, Value]
    environment: dict[str, str]
    world_size: int
    notes: list[str]


def chunk_layers(layers: int, pp: int, virtual_stages: int) -> list[int]:
    """Return the number of layers of every pipeline chunk, in the order in which a token passes them.

    Chunk j runs on stage j mod p. Each chunk has `ceil(L / (p v))` layers, where L is the number of layers, p of stages and v
    of
    chunks a stage. If that exceeds L in total, some chunks get one layer fewer: first the last chunk (with the head), then the
    first
    (with the embedding). Chunks of the stages between follow, as in `hwopt.plan.stage_layers`.

    **Returns:** p v numbers that add up to L.
    """
    count = pp * virtual_stages
    most = -(-layers // count)
    inner = [j for j in reversed(range(count)) if 0 < j % pp < pp - 1]
    short = list(dict.fromkeys([count - 1, 0, *inner, *reversed(range(count))]))[: most * count - layers]
    return [most - (j in short) for j in range(count)]


def layout(chunks: Sequence[int]) -> str:
    """Return chunks in the syntax of `--pipeline-model-parallel-layout`, e.g. `Et*7|(t*8|)*14t*7L`: 126 layers on 16 stages."""
    words = ["" if n == 0 else "t" if n == 1 else f"t*{n}" for n in chunks]
    words = [f"E{words[0]}", *words[1:-1], f"{words[-1]}L"]
    runs = [(word, len(list(same))) for word, same in groupby(words[:-1])]
    return "".join(f"({word}|)*{times}" if times > 1 else f"{word}|" for word, times in runs) + words[-1]


def _attention(w: SimpleNamespace) -> dict[str, Value]:
    if w.kv_rank:
        query: dict[str, Value] = {"--q-lora-rank": w.query_rank} if w.query_rank else {}
        return {
            "--multi-latent-attention": True,
            **query,
            "--kv-lora-rank": w.kv_rank,
            "--qk-head-dim": w.qk_dim - w.rope_dim,
            "--qk-pos-emb-head-dim": w.rope_dim,
            "--v-head-dim": w.v_dim,
        }
    grouped: dict[str, Value] = {"--group-query-attention": True, "--num-query-groups": w.kv_heads}
    return {"--kv-channels": w.qk_dim} | (grouped if w.kv_heads < w.heads else {})


def _experts(w: SimpleNamespace, plan: SimpleNamespace) -> dict[str, Value]:
    if not w.moe_layers:
        return {}
    flags: dict[str, Value] = {
        "--num-experts": w.experts,
        "--moe-router-topk": w.experts_per_token,
        "--moe-ffn-hidden-size": w.expert_ffn,
        "--moe-token-dispatcher-type": "alltoall",
        "--moe-grouped-gemm": True,
        "--expert-model-parallel-size": plan.ep,
        "--expert-tensor-parallel-size": plan.expert_tp,
    }
    if w.shared_experts:
        flags["--moe-shared-expert-intermediate-size"] = round(w.shared_experts * w.expert_ffn)
    if dense := w.layers - w.moe_layers:
        flags["--moe-layer-freq"] = f"([0]*{dense}+[1]*{w.moe_layers})"
    return flags


def _model(w: SimpleNamespace, length: int) -> dict[str, Value]:
    return {
        "--num-layers": w.layers,
        "--hidden-size": w.hidden,
        "--ffn-hidden-size": w.ffn or w.expert_ffn,
        "--num-attention-heads": w.heads,
        **_attention(w),
        "--seq-length": length,
        "--max-position-embeddings": max(length, w.learned_positions),
        "--vocab-size": w.vocab,
        **({"--swiglu": True} if w.mlp_matrices == 3 else {}),
        **({} if w.tied_embeddings else {"--untie-embeddings-and-output-weights": True}),
    }


def _pipeline(layers: int, micro_batches: int, plan: SimpleNamespace) -> dict[str, Value]:
    """Return the flags for pipeline stages and chunks.

    They also set the micro-batch group size where the number of micro-batches is not a multiple of the stages.
    """
    pp, chunks = plan.pp, plan.virtual_stages
    flags: dict[str, Value] = {"--pipeline-model-parallel-size": pp}
    if pp > 1 and layers % (pp * chunks):
        flags["--pipeline-model-parallel-layout"] = layout(chunk_layers(layers, pp, chunks))
    elif chunks > 1:
        flags["--num-layers-per-virtual-pipeline-stage"] = layers // (pp * chunks)
    if chunks > 1 and micro_batches % pp:
        fits = (g for g in range(pp, micro_batches + 1) if micro_batches % g == 0 or micro_batches % g >= pp)
        flags["--microbatch-group-size-per-virtual-pipeline-stage"] = next(fits, micro_batches)
    return flags


def _sharding(zero: int, groups: int) -> dict[str, Value]:
    flags: dict[str, Value] = {"--overlap-grad-reduce": True}
    if zero:
        flags |= {"--use-distributed-optimizer": True, "--overlap-param-gather": True}
    if zero > 1:
        flags |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": "optim_grads" if zero == 2 else "optim_grads_params",
            "--no-gradient-accumulation-fusion": True,
            "--ckpt-format": "fsdp_dtensor",
        }
    return flags | ({"--num-distributed-optimizer-instances": groups} if groups > 1 else {})


def _recompute(layers: int, plan: SimpleNamespace) -> dict[str, Value]:
    if plan.recompute_full >= 1.0:
        return {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}
    if plan.recompute_full > 0.0:
        of_chunk = max(1, round(plan.recompute_full * layers / (plan.pp * plan.virtual_stages)))
        return {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": of_chunk}
    return {"--recompute-granularity": "selective"} if round(plan.recompute_attention) else {}


REFUSED = "cannot be expressed: "
"""Prefix of a note on a setting that no version of Megatron-LM can express."""


def _head_notes(w: SimpleNamespace, tp: int) -> list[str]:
    """Return a note where tp does not divide the number of key-value heads.

    This version rejects that; later ones accept a tp that is a multiple of it.
    """
    groups = w.kv_heads
    if w.kv_rank or not groups % tp:
        return []
    return [
        f"cannot be expressed in {VERSION}: tp = {tp} splits {groups} key-value heads, which must be a multiple of it "
        f"(later versions take divisors too); nearest: --tensor-model-parallel-size {math.gcd(groups, tp)}"
    ]


def _notes(
    w: SimpleNamespace, plan: SimpleNamespace, flags: dict[str, Any], zero: int, micro_batches: int, precision: str
) -> list[str]:
    """Return notes on what Megatron-LM cannot do, and on settings that the plan does not determine."""
    tp, pp, cp, length = plan.tp, plan.pp, plan.cp, flags["--seq-length"]
    notes = []
    widths = {"--ffn-hidden-size": w.ffn, "--hidden-size": w.hidden}
    notes += [f"{name} {width} is no multiple of tp = {tp}: pad it" for name, width in widths.items() if width % tp]
    if cp > 1 and length % (2 * cp):
        notes.append(f"{REFUSED}--seq-length {length} must be a multiple of 2 cp = {2 * cp}")
    if zero > 1 and pp > 1:
        notes.append(
            f"ZeRO-{zero} under a pipeline is Megatron-FSDP's alone, which reduces gradients after every micro-batch; nearest "
            "without it: ZeRO-1 (drop --use-megatron-fsdp and the three flags behind it), if memory allows"
        )
    if zero > 1 and "--sequence-parallel" in flags:
        best = "with which tensor parallelism overlaps best"
        notes.append(f"--use-megatron-fsdp forbids CUDA_DEVICE_MAX_CONNECTIONS=1, {best}")
    if "--microbatch-group-size-per-virtual-pipeline-stage" in flags:
        more = "groups of another size keep more activations than the plan counts"
        notes.append(f"{micro_batches} micro-batches are no multiple of pp = {pp}: {more}")
    if "--moe-layer-freq" in flags:
        notes.append("--moe-layer-freq takes dense layers to come first; write your model's order if it differs")
    if w.local_layers_fraction > 0.0:
        notes.append("windowed attention is not set: --window-size and --window-attn-skip-freq are your model's")
    if plan.bubble_fraction != 1.0:
        notes.append(f"{REFUSED}a schedule with a smaller bubble; these settings run 1F1B")
    if 0.0 < plan.recompute_full < 1.0:
        notes.append("--recompute-num-layers is an integer a chunk: the nearest to the plan's share of layers")
    if precision not in _FORMATS:
        notes.append(f"{REFUSED}GEMMs in {precision}; nearest: --bf16")
    if waiting := [f"{name}={getattr(plan, name):g}" for name in OFFLOADED if getattr(plan, name)]:
        notes.append(f"not set: what waits in the memory pool ({', '.join(waiting)}); without it the plan may not fit")
    if "--swiglu" in flags:
        notes.append("--swiglu stands for a gated MLP: another gate has its own flag")
    own = "tokenizer, data, optimizer, normalization, position embedding, biases, dropout, train length"
    return [*notes, f"yours to set: {own}"]


def _ramp_notes(run: TrainingRun) -> list[str]:
    """Return a note on a batch ramp, which the arguments omit: --rampup-batch-size grows in equal steps, not in stages."""
    if run.ramp is None:
        return []
    batches = ", ".join(
        str(round(float(each) * float(run.global_batch_sequences))) for each in batch_quotients(run.ramp)
    )
    return [
        f"the batch ramp ({batches} sequences first) is yours to set: --rampup-batch-size grows by equal steps, not in stages"
    ]


def megatron_flags(run: TrainingRun, plan: Plan) -> tuple[dict[str, Value], dict[str, str], list[str]]:
    """Return arguments, environment and notes of a training run under a concrete plan.

    The notes hold for every Megatron-Core version.
    """
    w, split = (SimpleNamespace(**integral(vars(each))) for each in (run.model, plan))
    length, batch = round(float(run.sequence_length)), round(float(run.global_batch_sequences))
    micro_batches = batch // (split.dp * split.micro_batch)
    zero = split.optimizer_sharded + split.gradients_sharded + split.weights_sharded
    precision = PRECISIONS[int(np.argmax(np.asarray(run.gemm_precision)))]
    flags = {
        **_model(w, length),
        "--tensor-model-parallel-size": split.tp,
        **({"--sequence-parallel": True} if split.sequence_parallel and split.tp > 1 else {}),
        **_pipeline(w.layers, micro_batches, split),
        "--context-parallel-size": split.cp,
        **({"--cp-comm-type": "p2p"} if split.cp > 1 else {}),
        **_experts(w, split),
        "--micro-batch-size": split.micro_batch,
        "--global-batch-size": batch,
        **_sharding(zero, split.shard_groups),
        **_recompute(w.layers, split),
        **_FORMATS.get(precision, _FORMATS["bf16"]),
    }
    ordered = zero <= 1 and (split.tp > 1 or split.cp > 1)
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if ordered else {}
    return flags, environment, [*_notes(w, split, flags, zero, micro_batches, precision), *_ramp_notes(run)]


def megatron_settings(run: TrainingRun, plan: Plan) -> MegatronSettings:
    """Return a training run under a concrete plan as settings of Megatron-LM.

    **Arguments:** `plan`: a plan with integer degrees. **Returns:** arguments, environment, number of ranks to launch, and
    notes.
    """
    flags, environment, notes = megatron_flags(run, plan)
    w, split = (SimpleNamespace(**integral(vars(each))) for each in (run.model, plan))
    return MegatronSettings(
        flags, environment, split.tp * split.pp * split.dp * split.cp, [*_head_notes(w, split.tp), *notes]
    )


def megatron_document(settings: MegatronSettings) -> dict[str, Any]:
    """Return launch settings as a dictionary for JSON."""
    return {"framework": "megatron-lm", "version": VERSION, **settings._asdict()}


def array_lines(name: str, arguments: Mapping[str, Value]) -> list[str]:
    """Return the lines of a bash array that holds command-line arguments."""
    words = [flag if value is True else f"{flag} {escape.shell(str(value))}" for flag, value in arguments.items()]
    return [f"{name}=(", *(f"  {word}" for word in words), ")"]


def megatron_text(settings: MegatronSettings, title: str) -> str:
    """Return settings as bash: comments, the environment, and an array for `pretrain_gpt.py "${MEGATRON_ARGS[@]}"`."""
    return "\n".join(
        [
            escape.comment(f"Megatron-LM {VERSION}, {settings.world_size:,} ranks: {title}"),
            *(escape.comment(f"- {note}") for note in settings.notes),
            *(f"export {name}={escape.shell(value)}" for name, value in settings.environment.items()),
            *array_lines("MEGATRON_ARGS", settings.arguments),
        ]
    )
