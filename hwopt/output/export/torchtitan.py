"""Export of a training plan as a job file (TOML) of torchtitan.

Keys, and the constraints on a plan, are those of pytorch/torchtitan at v0.2.0, the last version but one with TOML job files.
See `torchtitan/config/job_config.py`, `distributed/parallel_dims.py`, `distributed/pipeline_parallel.py` and
`models/*/infra/parallelize.py`.
"""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA
from hwopt.output.export.megatron import chunk_layers
from hwopt.output.export.trainer import Trainer, TrainingLaunch


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
    raise UserError(f"a job file names a model of torchtitan's code, which has none of {own}; it has {names}")


def _sharding(asked: TrainingLaunch) -> dict[str, Any]:
    """Return the FSDP degrees and whether weights are resharded after the forward pass.

    In a pipeline, FSDP keeps gathered weights and reduces gradients after the last micro-batch: ZeRO-1.
    Without a pipeline, it gathers weights and reduces gradients at each micro-batch: ZeRO-2 of one micro-batch, or ZeRO-3.

    **Raises:** `UserError` for a ZeRO stage that torchtitan cannot do with these degrees.
    """
    split, zero = asked.split, asked.zero
    micro_batches = asked.batch // (split.dp * split.micro_batch)
    if split.dp * split.cp == 1:
        if split.tp * split.pp > 1:
            raise UserError(
                "16-bit copies of weights are FSDP's alone: with dp = cp = 1 ranks of tp and pp run in fp32"
            )
        return {"data_parallel_shard_degree": 1}
    if zero == 0:
        if split.tp * split.pp * split.cp > 1:
            raise UserError(
                "weights, gradients and optimizer are sharded wherever ranks do more than data parallelism: no ZeRO-0"
            )
        return {"data_parallel_replicate_degree": split.dp, "data_parallel_shard_degree": 1}
    if split.pp > 1 and zero > 1:
        raise UserError(f"in a pipeline gathered weights stay, and gradients are reduced once: ZeRO-1, not ZeRO-{zero}")
    if split.pp == 1 and zero < 3 and micro_batches > 1:
        raise UserError(
            f"gradients are reduced and weights gathered at each of {micro_batches} micro-batches: ZeRO-3, not ZeRO-{zero}"
        )
    return {
        "data_parallel_replicate_degree": split.shard_groups,
        "data_parallel_shard_degree": split.dp // split.shard_groups,
        "fsdp_reshard_after_forward": "always" if zero == 3 else "never",
    }


def _pipeline(asked: TrainingLaunch, name: str) -> dict[str, Any]:
    split, layers = asked.split, asked.model.layers
    if split.pp == 1:
        return {}
    if name in UNSTAGED:
        raise UserError(f"{name} has no pipeline: pp = {split.pp}")
    parts, first = [], 0
    for held in chunk_layers(layers, split.pp, split.virtual_stages):
        parts.append([f"layers.{layer}" for layer in range(first, first + held)])
        first += held
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    if not all(parts):
        raise UserError(f"{split.pp * split.virtual_stages} chunks of {layers} layers leave some empty")
    return {
        "pipeline_parallel_degree": split.pp,
        "pipeline_parallel_schedule": "Interleaved1F1B" if split.virtual_stages > 1 else "1F1B",
        "pipeline_parallel_microbatch_size": split.micro_batch,
        "module_fqns_per_model_part": parts,
    }


def _tensor(asked: TrainingLaunch) -> dict[str, Any]:
    """Return the degrees of tensor and context parallelism. **Raises:** `UserError` where torchtitan does not support them."""
    model, split = asked.model, asked.split
    if split.tp > 1 and not split.sequence_parallel:
        raise UserError(f"tp = {split.tp} shards norms along the sequence too, always")
    if not model.kv_rank and model.kv_heads % split.tp:
        raise UserError(f"tp = {split.tp} does not divide {model.kv_heads} key-value heads")
    divisor = 2 * split.tp * split.cp
    if asked.length % divisor:
        raise UserError(f"{asked.length} tokens must be a multiple of 2 tp cp = {divisor}")
    return {"tensor_parallel_degree": split.tp, "context_parallel_degree": split.cp}


def _experts(asked: TrainingLaunch) -> dict[str, Any]:
    """Return the degrees of expert parallelism. It uses ranks of dp and cp and, where experts are not split, also of tp.

    **Raises:** `UserError` for degrees that torchtitan does not support.
    """
    split = asked.split
    if not asked.model.moe_layers:
        return {}
    if split.ep == 1:
        if split.expert_tp != split.tp:
            raise UserError(
                f"with ep = 1 experts are split like all else: expert_tp = {split.expert_tp}, tp = {split.tp}"
            )
        return {}
    if split.expert_tp not in (1, split.tp):
        raise UserError(f"expert_tp = {split.expert_tp} must be 1 or tp = {split.tp}")
    least = split.cp * (1 if split.expert_tp == split.tp else split.tp)
    most = least * split.dp // split.shard_groups
    if split.ep % least or most % split.ep:
        raise UserError(f"ep = {split.ep} must be a multiple of {least} that divides the {most} ranks that it borrows")
    return {"expert_parallel_degree": split.ep, "expert_tensor_parallel_degree": split.expert_tp}


def _recompute(split: SimpleNamespace) -> dict[str, Any]:
    if split.recompute_full >= 1.0:
        return {"mode": "full"}
    if split.recompute_full > 0.0:
        every = round(1.0 / split.recompute_full)
        if abs(every * split.recompute_full - 1.0) > 1e-3:
            raise UserError(
                f"layers are recomputed every so many: a share of {split.recompute_full:.3g} is none of 1/2, 1/3, ..."
            )
        return {"mode": "selective", "selective_ac_option": str(every)}
    if split.recompute_attention:
        raise UserError("selective recomputation is of other products: attention's result is kept")
    return {"mode": "none"}


def _formats(asked: TrainingLaunch) -> tuple[dict[str, Any], list[str]]:
    """Return the converters for GEMMs in fp8, and notes on what the file cannot express; none for bf16.

    **Raises:** `UserError` for other formats.
    """
    if asked.precision == "bf16":
        return {}, []
    if asked.precision != "fp8":
        raise UserError(f"GEMMs in {asked.precision}: torchtitan has bf16 and fp8")
    quantize: dict[str, Any] = {"linear": {"float8": {"recipe_name": "tensorwise", "enable_fsdp_float8_all_gather": True,
                                                      "filter_fqns": ["output"]}}}  # fmt: skip
    converters = ["quantize.linear.float8"]
    if asked.model.moe_layers:
        quantize["grouped_mm"] = {"float8": {"fqns": ["experts"]}}
        converters.append("quantize.grouped_mm.float8")
    note = "fp8 is one scale a tensor (tensorwise) by torchao; rowwise is the other recipe"
    return {"converters": converters, "quantize": quantize}, [note]


def _write(asked: TrainingLaunch) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    run, split = asked.run, asked.split
    if run.ramp is not None:
        raise UserError("the batch does not grow: leave out --batch-ramp")
    name, size = flavor(asked.model)
    formats, notes = _formats(asked)
    rounds = asked.batch // split.dp if split.pp > 1 else split.micro_batch
    converters = {"converters": formats["converters"]} if formats else {}
    sections = {
        "model": {"name": name, "flavor": size, **converters},
        "training": {
            "local_batch_size": rounds,
            "global_batch_size": asked.batch,
            "seq_len": asked.length,
            "steps": asked.steps,
            "dtype": "float32" if float(run.master_bytes) else "bfloat16",
            "mixed_precision_param": "bfloat16",
        },
        "parallelism": {**_sharding(asked), **_tensor(asked), **_pipeline(asked, name), **_experts(asked)},
        "activation_checkpoint": _recompute(split),
        "compile": {"enable": True},
        **({"quantize": formats["quantize"]} if formats else {}),
    }
    if float(run.master_bytes) and float(run.moment_bytes) != 8.0:
        notes.append(f"moments are kept in 8 B a weight; the run counts {float(run.moment_bytes):g}")
    notes.append("compile is on: kernels as the plan counts them are torch.compile's")
    return (
        sections,
        {},
        [*notes, "yours to set: model.hf_assets_path, training.dataset, optimizer, lr_scheduler, checkpoint"],
    )


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
    start="torchrun --nnodes N --nproc_per_node M -m torchtitan.train --job.config_file job.toml",
    write=_write,
    lines=_lines,
    families=("volta", *NVIDIA, "cdna2", "cdna3", "cdna4"),
)
