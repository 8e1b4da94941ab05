"""Export of a training run under a plan as a script that starts Megatron-LM.

Flags and checks are those of `megatron/training/arguments.py` and `megatron/core/transformer` of NVIDIA/Megatron-LM at
core_v0.19.0.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA, Value
from hwopt.output.export.limits import TRAINING, Limit
from hwopt.output.export.mechanisms import mechanism_flags
from hwopt.output.export.trainer import Trainer, TrainingLaunch
from hwopt.run_words import switched
from hwopt.workload.ramp import batch_quotients
from hwopt.workload.transformer import MATRIX_TILE

_FORMATS: dict[str, dict[str, Value]] = {
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid", "--fp8-recipe": "delayed"},
    "fp4": {"--bf16": True, "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
    "fp32": {},
}

_MOMENTS: dict[float, dict[str, Value]] = {
    8.0: {},
    4.0: {"--use-precision-aware-optimizer": True, "--exp-avg-dtype": "bf16", "--exp-avg-sq-dtype": "bf16"},
    2.0: {"--use-precision-aware-optimizer": True, "--exp-avg-dtype": "fp8", "--exp-avg-sq-dtype": "fp8"},
}
"""Bytes of both optimizer moments of a weight -> flags."""

_VOCAB_MULTIPLE = 128
"""Multiple to which Megatron-LM pads each rank's share of the vocabulary, unless a flag sets another."""


def _of_chunk(f: Any) -> Any:
    """Return the number of layers of a chunk that are recomputed."""
    return f.recompute_full * f.layers / f.chunks


LIMITS = (
    *TRAINING,
    Limit(
        lambda f: (f.zero > 1) & (f.pp > 1),
        "ZeRO-{zero} with pipeline stages: Megatron-FSDP would reduce gradients after every micro-batch",
    ),
    Limit(lambda f: (f.zero > 1) & (f.optimizer_offloaded > 0), "optimizer states in the memory pool with ZeRO-{zero}"),
    Limit(lambda f: (f.zero == 0) & (f.optimizer_offloaded > 0), "optimizer states in the memory pool without ZeRO"),
    Limit(
        lambda f: (f.kv_rank == 0) & (f.kv_heads % f.tp > 0) & (f.tp % f.kv_heads > 0),
        "tp = {tp} with {kv_heads} key-value heads, of which it must be a multiple or a divisor",
    ),
    Limit(
        lambda f: (f.scan_heads % (f.tp * f.cp) > 0) | (f.scan_key_heads % (f.tp * f.cp) > 0),
        "tp = {tp} and cp = {cp} with {scan_heads} heads of scans in {scan_key_heads} groups: tp cp must divide both",
    ),
    Limit(
        lambda f: (f.cp > 1) & (f.length % (2 * f.cp) > 0),
        "cp = {cp} with a sequence length {length}, which is not a multiple of 2 cp",
    ),
    Limit(
        lambda f: (f.virtual_stages > 1) & (f.micro_batches % f.pp > 0),
        "interleaving with {micro_batches} micro-batches, which is not a multiple of pp = {pp}",
    ),
    Limit(
        lambda f: (
            (f.recompute_full > 0)
            & (f.recompute_full < 1)
            & ((np.abs(_of_chunk(f) - np.round(_of_chunk(f))) > 1e-6) | (f.layers % f.chunks > 0))
        ),
        "full recomputation of a share {recompute_full:.3g} of the layers, which is not a whole number in each of {chunks} chunks",
    ),
    Limit(
        lambda f: (f.recompute_attention > 0) & (f.recompute_attention < 1),
        "attention recomputed in a share of the layers",
    ),
)
"""Name the parts of a plan that the flags cannot express."""


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


def _experts(w: SimpleNamespace, plan: SimpleNamespace, deduplicated: bool, backend: str) -> dict[str, Value]:
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
    if deduplicated and plan.ep * plan.expert_tp > 1:
        flags |= {
            "--moe-token-dispatcher-type": "flex",
            "--moe-flex-dispatcher-backend": backend,
            "--moe-router-dtype": "fp32",  # of probabilities, which both backends require
        }
    if w.shared_experts:
        flags["--moe-shared-expert-intermediate-size"] = round(w.shared_experts * w.expert_ffn)
    if dense := w.layers - w.moe_layers:
        flags["--moe-layer-freq"] = f"([0]*{dense}+[1]*{w.moe_layers})"
    return flags


def _model(w: SimpleNamespace, tp: int, length: int) -> dict[str, Value]:
    return {
        "--num-layers": w.layers,
        "--hidden-size": w.hidden,
        "--ffn-hidden-size": w.ffn or w.expert_ffn,
        "--num-attention-heads": w.heads,
        **_attention(w),
        "--seq-length": length,
        "--max-position-embeddings": max(length, w.learned_positions),
        **_vocabulary(w, tp),
        **({"--swiglu": True} if w.mlp_matrices == 3 else {}),
        **({} if w.tied_embeddings else {"--untie-embeddings-and-output-weights": True}),
    }


def _pipeline(layers: int, plan: SimpleNamespace) -> dict[str, Value]:
    """Return the flags for pipeline stages and chunks."""
    pp, chunks = plan.pp, plan.virtual_stages
    flags: dict[str, Value] = {"--pipeline-model-parallel-size": pp}
    if pp > 1 and layers % (pp * chunks):
        flags["--pipeline-model-parallel-layout"] = layout(chunk_layers(layers, pp, chunks))
    elif chunks > 1:
        flags["--num-layers-per-virtual-pipeline-stage"] = layers // (pp * chunks)
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


def _optimizer(asked: TrainingLaunch) -> dict[str, Value]:
    """Return the flags for moments and gradients, and for optimizer states in the memory of the host.

    **Raises:** `UserError` for formats that Megatron-LM does not have.
    """
    moments, gradients = float(asked.run.moment_bytes), asked.gradient_bytes
    if moments not in _MOMENTS:
        raise UserError(
            f"optimizer moments of {moments:g} B a weight: Megatron-LM has {', '.join(f'{b:g}' for b in _MOMENTS)}"
        )
    if float(asked.run.master_bytes) == 0.0 and asked.precision != "fp32":
        raise UserError("no master weights: Megatron-LM always keeps them, in fp32")
    if gradients not in (2.0, 4.0):
        raise UserError(f"gradients of {gradients:g} B: Megatron-LM reduces them in 4 or 2 B")
    flags = _MOMENTS[moments] | ({"--grad-reduce-in-bf16": True} if gradients == 2.0 else {})
    if share := asked.split.optimizer_offloaded:
        flags |= {
            "--use-precision-aware-optimizer": True,
            "--optimizer-cpu-offload": True,
            "--optimizer-offload-fraction": share,
        }
    return flags


def _run_words(asked: TrainingLaunch) -> dict[str, Value]:
    """Return the flags of stated words of a run: overlap of expert communication, and CUDA graphs.

    **Raises:** `UserError` for a plan under which Megatron-LM refuses the overlap.
    """
    split, words = asked.split, asked.launch.words
    flags: dict[str, Any] = {
        "none": {"--cuda-graph-impl": "none"},
        "parts": {
            "--cuda-graph-impl": "transformer_engine",
            "--cuda-graph-modules": ["attn", *(["moe_router", "moe_preprocess"] if asked.model.moe_layers else [])],
            "--te-rng-tracker": True,
        },
        "step": {
            "--cuda-graph-impl": "full_iteration",
            "--te-rng-tracker": True,
            "--no-check-for-nan-in-loss-and-grad": True,
        },
    }.get(str(words.get("cuda_graphs")), {})
    overlapped = switched(words.get("ep_overlap")) == "yes" and split.ep > 1
    if overlapped and (split.recompute_full or (split.pp > 1 and split.virtual_stages == 1)):
        raise UserError("ep_overlap=yes: Megatron-LM needs interleaving with pp > 1, and no full recomputation")
    return flags | ({"--overlap-moe-expert-parallel-comm": True} if overlapped else {})


def _vocabulary(w: SimpleNamespace, tp: int) -> dict[str, Value]:
    """Return the vocabulary, padded no further than whole ranks and the tiles of tensor cores require."""
    multiple = math.gcd(w.vocab // tp, _VOCAB_MULTIPLE) if w.vocab % tp == 0 else 1
    return {
        "--vocab-size": w.vocab,
        "--make-vocab-size-divisible-by": multiple if multiple >= MATRIX_TILE else _VOCAB_MULTIPLE,
    }


def _notes(asked: TrainingLaunch, flags: Mapping[str, Any]) -> list[str]:
    """Return notes on widths that need padding, and on a batch ramp, which grows in stages rather than in equal steps."""
    w, split, run = asked.model, asked.split, asked.run
    widths = {"--ffn-hidden-size": w.ffn, "--hidden-size": w.hidden}
    notes = [
        f"{name} {width} is not a multiple of tp = {split.tp}: pad it"
        for name, width in widths.items()
        if width % split.tp
    ]
    if "--use-megatron-fsdp" in flags and "--sequence-parallel" in flags:
        notes.append(
            "--use-megatron-fsdp forbids CUDA_DEVICE_MAX_CONNECTIONS=1, with which tensor parallelism overlaps best"
        )
    notes += [
        f"{name}={x} is what the prediction assumes; no flag sets it"
        for name, x in asked.launch.words.items()
        if name == "expert_routing"
    ]
    if run.ramp is not None:
        sizes = (str(round(float(each) * asked.batch)) for each in batch_quotients(run.ramp))
        notes.append(
            f"the batch ramp ({', '.join(sizes)} sequences first): one run of this script for each of its stages"
        )
    return notes


def megatron_flags(asked: TrainingLaunch) -> tuple[dict[str, Value], dict[str, str], list[str]]:
    """Return arguments, environment and notes of a training run under a concrete plan.

    **Raises:** `UserError` for formats that Megatron-LM does not have.
    """
    w, split = asked.model, asked.split
    if asked.precision not in _FORMATS:
        raise UserError(f"GEMMs in {asked.precision}: Megatron-LM supports {', '.join(_FORMATS)}")
    flags = {
        **_model(w, split.tp, asked.length),
        "--tensor-model-parallel-size": split.tp,
        **({"--sequence-parallel": True} if split.sequence_parallel and split.tp > 1 else {}),
        **_pipeline(w.layers, split),
        "--context-parallel-size": split.cp,
        **({"--cp-comm-type": "p2p"} if split.cp > 1 else {}),
        **_experts(w, split, asked.launch.deduplicated, str(asked.launch.words.get("dispatcher", "deepep"))),
        **mechanism_flags(asked.run.model, asked.launch.config, split.cp),
        **_run_words(asked),
        "--micro-batch-size": split.micro_batch,
        "--global-batch-size": asked.batch,
        "--train-iters": asked.steps,
        **_sharding(asked.zero, split.shard_groups),
        **_recompute(w.layers, split),
        **_FORMATS[asked.precision],
        **_optimizer(asked),
        **asked.facts.flags,
    }
    ordered = asked.zero <= 1 and (split.tp > 1 or split.cp > 1)
    return flags, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if ordered else {}, _notes(asked, flags)


def array_lines(name: str, arguments: Mapping[str, Value]) -> list[str]:
    """Return the lines of a bash array that holds command-line arguments."""
    words = [
        flag if value is True else " ".join([flag, *(escape.shell(str(x)) for x in np.atleast_1d(value))])
        for flag, value in arguments.items()
    ]
    return [f"{name}=(", *(f"  {word}" for word in words), ")"]


def _lines(flags: Mapping[str, Value]) -> Iterator[str]:
    """Yield the flags as the lines of a bash array."""
    yield from array_lines("MEGATRON_ARGS", flags)


WORDS = {
    "dispatcher": ("alltoall", "deepep", "hybridep"), "ep_overlap": ("no", "yes"), "cuda_graphs": ("none", "parts", "step"),
    "compilation": ("eager",),
}  # fmt: skip
"""Words of a run -> values that the flags can express."""

TRAINER = Trainer(
    title="Megatron-LM",
    version="core_v0.19.0",
    name="launch.sh",
    program='pretrain_gpt.py "${MEGATRON_ARGS[@]}"',
    write=megatron_flags,
    lines=_lines,
    families=NVIDIA,
    limits=LIMITS,
    words=WORDS,
    key="arguments",
    formats=("gradient_bytes",),
    mechanisms=True,
    framework="megatron-lm",
)
