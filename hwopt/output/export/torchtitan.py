"""Export of a training plan as a job file (TOML) of torchtitan.

Keys, and the limits of a plan, are those of pytorch/torchtitan at v0.2.0, the last version but one with TOML job files.
See `torchtitan/config/job_config.py`, `distributed/parallel_dims.py`, `distributed/pipeline_parallel.py` and
`models/*/infra/parallelize.py`.
"""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA
from hwopt.output.export.limits import TRAINING, Limit
from hwopt.output.export.megatron import chunk_layers
from hwopt.output.export.trainer import Trainer, TrainingLaunch
from hwopt.output.text.plans import integral


class Shape(NamedTuple):
    """Dimensions that identify a model. `kv_heads` is 0 for latent attention, `ffn` is 0 where all layers have experts."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    experts: int = 0
    expert_ffn: int = 0


FLAVORS: dict[tuple[str, str], Shape] = {
    ("llama3", "8B"): Shape(32, 4096, 32, 8, 14336, 128256),
    ("llama3", "70B"): Shape(80, 8192, 64, 8, 28672, 128256),
    ("llama3", "405B"): Shape(126, 16384, 128, 8, 53248, 128256),
    ("qwen3", "0.6B"): Shape(28, 1024, 16, 8, 3072, 151936),
    ("qwen3", "1.7B"): Shape(28, 2048, 16, 8, 6144, 151936),
    ("qwen3", "4B"): Shape(36, 2560, 32, 8, 9728, 151936),
    ("qwen3", "8B"): Shape(36, 4096, 32, 8, 12288, 151936),
    ("qwen3", "14B"): Shape(40, 5120, 40, 8, 17408, 151936),
    ("qwen3", "32B"): Shape(64, 5120, 64, 8, 25600, 151936),
    ("qwen3", "30B-A3B"): Shape(48, 2048, 32, 4, 0, 151936, 128, 768),
    ("qwen3", "235B-A22B"): Shape(94, 4096, 64, 4, 0, 151936, 128, 1536),
    ("deepseek_v3", "16B"): Shape(27, 2048, 16, 0, 10944, 102400, 64, 1408),
    ("deepseek_v3", "236B"): Shape(60, 5120, 128, 0, 12288, 102400, 160, 1536),
    ("deepseek_v3", "671B"): Shape(61, 7168, 128, 0, 18432, 129280, 256, 2048),
}
"""Models in torchtitan's code, by name and flavor."""

UNSTAGED = ("qwen3",)
"""Names of models without pipeline support (`pipelining_fn = None`)."""


def flavor(model: SimpleNamespace) -> tuple[str, str]:
    """Return the name and flavor of a model. **Raises:** `UserError` where torchtitan's code has none of that shape."""
    dense = model.layers > model.moe_layers
    shape = Shape(
        model.layers,
        model.hidden,
        model.heads,
        0 if model.kv_rank else model.kv_heads,
        model.ffn if dense else 0,
        model.vocab,
        model.experts,
        model.expert_ffn if model.moe_layers else 0,
    )
    for known, each in FLAVORS.items():
        if each == shape:
            return known
    names = ", ".join(f"{name} {size}" for name, size in FLAVORS)
    own = f"{shape.layers} layers of width {shape.hidden}, {shape.heads} heads, {shape.vocab} tokens of vocabulary"
    raise UserError(f"torchtitan has no model of {own}; it has {names}")


def _flavor_of(f: Any) -> tuple[str, str]:
    return flavor(SimpleNamespace(**integral(vars(f.model))))


def _most(f: Any) -> Any:
    """Return the ranks of a group of replicas over which experts can be spread, and the least that they use."""
    least = f.cp * np.where(f.expert_tp == f.tp, 1.0, f.tp)
    return least * f.dp / f.shard_groups, least


def _every(f: Any) -> Any:
    """Return the distance between recomputed layers."""
    return 1.0 / np.maximum(f.recompute_full, 1e-9)


LIMITS = (
    Limit(
        lambda f: (
            (f.weights_offloaded != f.optimizer_offloaded)
            | (f.weights_offloaded % 1 > 0)
            | ((f.weights_offloaded > 0) & (f.zero < 3))
        ),
        "weights or optimizer states in the memory pool (weights_offloaded = {weights_offloaded}, optimizer_offloaded = "
        "{optimizer_offloaded}): FSDP keeps both there, all of them, or none",
    ),
    *TRAINING[1:],
    Limit(
        lambda f: (f.dp * f.cp == 1) & (f.tp * f.pp > 1),
        "dp = cp = 1 with tp or pp: only FSDP keeps 16-bit copies of weights",
    ),
    Limit(lambda f: (f.zero == 0) & (f.dp * f.cp > 1) & (f.tp * f.pp * f.cp > 1), "ZeRO-0 with tp, cp or pp"),
    Limit(
        lambda f: (f.dp * f.cp > 1) & (f.pp > 1) & (f.zero > 1),
        "ZeRO-{zero} with pipeline stages: gathered weights are kept and gradients are reduced once, as in ZeRO-1",
    ),
    Limit(
        lambda f: (f.dp * f.cp > 1) & (f.pp == 1) & (f.zero > 0) & (f.zero < 3) & (f.micro_batches > 1),
        "ZeRO-{zero} with {micro_batches} micro-batches: gradients are reduced and weights gathered for each of them, as in "
        "ZeRO-3",
    ),
    Limit(lambda f: (f.pp > 1) & (_flavor_of(f)[0] in UNSTAGED), "pp = {pp} of a model without pipeline support"),
    Limit(lambda f: f.chunks > f.layers + 2.0, "{chunks} chunks for {layers} layers: some would be empty"),
    Limit(
        lambda f: (f.tp > 1) & (f.sequence_parallel == 0),
        "tp = {tp} without norms sharded along the sequence (sequence_parallel)",
    ),
    Limit(
        lambda f: (f.kv_rank == 0) & (f.kv_heads % f.tp > 0),
        "tp = {tp}, which does not divide {kv_heads} key-value heads",
    ),
    Limit(
        lambda f: f.length % (2 * f.tp * f.cp) > 0,
        "tp = {tp} and cp = {cp} with a sequence length {length}, which is not a multiple of 2 tp cp",
    ),
    Limit(
        lambda f: (f.moe_layers > 0) & (f.ep == 1) & (f.expert_tp != f.tp),
        "expert_tp = {expert_tp} with ep = 1 and tp = {tp}: experts are then split like all other weights",
    ),
    Limit(
        lambda f: (f.moe_layers > 0) & (f.ep > 1) & (f.expert_tp != 1) & (f.expert_tp != f.tp),
        "expert_tp = {expert_tp}, which is neither 1 nor tp = {tp}",
    ),
    Limit(
        lambda f: (f.moe_layers > 0) & (f.ep > 1) & ((f.ep % _most(f)[1] > 0) | (_most(f)[0] % f.ep > 0)),
        "ep = {ep}: experts are spread over a multiple of cp, and of tp where they are not split, that divides the ranks",
    ),
    Limit(
        lambda f: (
            (f.recompute_full > 0)
            & (f.recompute_full < 1)
            & (np.abs(np.round(_every(f)) * f.recompute_full - 1) > 1e-3)
        ),
        "full recomputation of a share {recompute_full:.3g} of the layers: every n-th layer is recomputed",
    ),
    Limit(
        lambda f: (f.recompute_full == 0) & (f.recompute_attention > 0),
        "recomputation of attention alone: its selective recomputation keeps the result of attention",
    ),
)
"""What a job file cannot express.

In a pipeline, FSDP keeps gathered weights and reduces gradients after the last micro-batch: ZeRO-1. Without a pipeline, it
gathers weights and reduces gradients at each micro-batch: ZeRO-2 of one micro-batch, or ZeRO-3.
"""


def _sharding(asked: TrainingLaunch) -> dict[str, Any]:
    """Return the FSDP degrees and whether weights are resharded after the forward pass."""
    split = asked.split
    if split.dp * split.cp == 1:
        return {"data_parallel_shard_degree": 1}
    if asked.zero == 0:
        return {"data_parallel_replicate_degree": split.dp, "data_parallel_shard_degree": 1}
    return {
        "data_parallel_replicate_degree": split.shard_groups,
        "data_parallel_shard_degree": split.dp // split.shard_groups,
        "fsdp_reshard_after_forward": "always" if asked.zero == 3 else "never",
    }


def _pipeline(asked: TrainingLaunch) -> dict[str, Any]:
    split = asked.split
    if split.pp == 1:
        return {}
    parts, first = [], 0
    for held in chunk_layers(asked.model.layers, split.pp, split.virtual_stages):
        parts.append([f"layers.{layer}" for layer in range(first, first + held)])
        first += held
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return {
        "pipeline_parallel_degree": split.pp,
        "pipeline_parallel_schedule": "Interleaved1F1B" if split.virtual_stages > 1 else "1F1B",
        "pipeline_parallel_microbatch_size": split.micro_batch,
        "module_fqns_per_model_part": parts,
    }


def _experts(asked: TrainingLaunch) -> dict[str, Any]:
    """Return the degrees of expert parallelism. It uses ranks of dp and cp and, where experts are not split, also of tp."""
    split = asked.split
    if not asked.model.moe_layers or split.ep == 1:
        return {}
    return {"expert_parallel_degree": split.ep, "expert_tensor_parallel_degree": split.expert_tp}


def _recompute(split: SimpleNamespace) -> dict[str, Any]:
    if split.recompute_full >= 1.0:
        return {"mode": "full"}
    if split.recompute_full > 0.0:
        return {"mode": "selective", "selective_ac_option": str(round(1.0 / split.recompute_full))}
    return {"mode": "none"}


def _formats(asked: TrainingLaunch) -> tuple[dict[str, Any], list[str]]:
    """Return the converters for GEMMs in fp8, and notes on what the file cannot express; none for bf16.

    **Raises:** `UserError` for other formats.
    """
    if asked.precision == "bf16":
        return {}, []
    if asked.precision != "fp8":
        raise UserError(f"GEMMs in {asked.precision}: torchtitan supports bf16 and fp8")
    quantize: dict[str, Any] = {"linear": {"float8": {"recipe_name": "tensorwise", "enable_fsdp_float8_all_gather": True,
                                                      "filter_fqns": ["output"]}}}  # fmt: skip
    converters = ["quantize.linear.float8"]
    if asked.model.moe_layers:
        quantize["grouped_mm"] = {"float8": {"fqns": ["experts"]}}
        converters.append("quantize.grouped_mm.float8")
    note = "fp8 uses one scale per tensor (tensorwise) from torchao; rowwise is the alternative recipe"
    return {"converters": converters, "quantize": quantize}, [note]


def _write(asked: TrainingLaunch) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    run, split = asked.run, asked.split
    if run.ramp is not None:
        raise UserError("a growing batch is not supported: remove --batch-ramp")
    name, size = flavor(asked.model)
    formats, notes = _formats(asked)
    compiled = asked.launch.words.get("compilation") != "eager"
    rounds = asked.batch // split.dp if split.pp > 1 else split.micro_batch
    converters = {"converters": formats["converters"]} if formats else {}
    sections = {
        "model": {"name": name, "flavor": size, **converters},
        "training": {
            "local_batch_size": rounds,
            "global_batch_size": asked.batch,
            "seq_len": asked.length,
            "steps": asked.steps,
            "dtype": "float32" if float(run.master_bytes) or float(run.weight_bytes) == 4.0 else "bfloat16",
            "mixed_precision_param": "bfloat16",
            "mixed_precision_reduce": "float32",
            **({"enable_cpu_offload": True} if split.weights_offloaded else {}),
        },
        "parallelism": {
            **_sharding(asked),
            "tensor_parallel_degree": split.tp,
            "context_parallel_degree": split.cp,
            **_pipeline(asked),
            **_experts(asked),
        },
        "activation_checkpoint": _recompute(split),
        "compile": {"enable": compiled},
        **({"quantize": formats["quantize"]} if formats else {}),
    }
    if float(run.master_bytes) and float(run.moment_bytes) != 8.0:
        raise UserError(f"optimizer moments of {float(run.moment_bytes):g} B a weight: torchtitan has 8 B")
    if asked.gradient_bytes != 4.0:
        notes.append(f"gradients are reduced in 4 B; the plan assumes {asked.gradient_bytes:g} B")
    notes += ["compile is on, because the plan assumes fused kernels as of torch.compile"] if compiled else []
    return sections, {}, notes


def _lines(file: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the lines of the sections as TOML. Plain keys of a table precede its subtables, as TOML requires."""
    for name, section in file.items():
        path = f"{above}{name}"
        if plain := {key: value for key, value in section.items() if not isinstance(value, dict)}:
            yield from ["", f"[{path}]", *(f"{key} = {escape.toml(value)}" for key, value in plain.items())]
        yield from _lines({key: value for key, value in section.items() if isinstance(value, dict)}, f"{path}.")


TRAINER = Trainer(
    title="torchtitan",
    version="0.2.0",
    name="job.toml",
    program="-m torchtitan.train --job.config_file job.toml",
    write=_write,
    lines=_lines,
    families=("volta", *NVIDIA, "cdna2", "cdna3", "cdna4", "cdna5"),
    limits=LIMITS,
    words={
        "dispatcher": ("alltoall",),
        "ep_overlap": ("no",),
        "cuda_graphs": ("none",),
        "compilation": ("compiled", "eager"),
    },
    fixes=True,
    formats=("layers_gathered",),
)
