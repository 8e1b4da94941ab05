"""Export of a training plan as YAML overrides of a recipe of NVIDIA NeMo's Megatron-Bridge, which trains with Megatron-Core.

The settings are those of `hwopt.output.export.megatron`, under the names of `ConfigContainer`. They follow
`megatron/bridge/training/config.py` of NVIDIA-NeMo/Megatron-Bridge at 0.3.1, and its Megatron-Core 0.16.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA
from hwopt.output.export.megatron import REFUSED, megatron_flags
from hwopt.output.export.trainer import Trainer, TrainingLaunch

_MODEL = {
    "--num-layers": "num_layers", "--hidden-size": "hidden_size", "--ffn-hidden-size": "ffn_hidden_size",
    "--num-attention-heads": "num_attention_heads", "--kv-channels": "kv_channels", "--num-query-groups": "num_query_groups",
    "--multi-latent-attention": "multi_latent_attention", "--q-lora-rank": "q_lora_rank", "--kv-lora-rank": "kv_lora_rank",
    "--qk-head-dim": "qk_head_dim", "--qk-pos-emb-head-dim": "qk_pos_emb_head_dim", "--v-head-dim": "v_head_dim",
    "--seq-length": "seq_length", "--vocab-size": "vocab_size", "--swiglu": "gated_linear_unit",
    "--untie-embeddings-and-output-weights": "share_embeddings_and_output_weights", "--num-experts": "num_moe_experts",
    "--moe-router-topk": "moe_router_topk", "--moe-ffn-hidden-size": "moe_ffn_hidden_size",
    "--moe-token-dispatcher-type": "moe_token_dispatcher_type", "--moe-grouped-gemm": "moe_grouped_gemm",
    "--moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size", "--moe-layer-freq": "moe_layer_freq",
    "--expert-model-parallel-size": "expert_model_parallel_size", "--expert-tensor-parallel-size": "expert_tensor_parallel_size",
    "--tensor-model-parallel-size": "tensor_model_parallel_size", "--sequence-parallel": "sequence_parallel",
    "--pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "--pipeline-model-parallel-layout": "pipeline_model_parallel_layout",
    "--num-layers-per-virtual-pipeline-stage": "virtual_pipeline_model_parallel_size",
    "--microbatch-group-size-per-virtual-pipeline-stage": "microbatch_group_size_per_vp_stage",
    "--context-parallel-size": "context_parallel_size", "--cp-comm-type": "cp_comm_type",
    "--recompute-granularity": "recompute_granularity", "--recompute-method": "recompute_method",
    "--recompute-num-layers": "recompute_num_layers", "--no-gradient-accumulation-fusion": "gradient_accumulation_fusion",
}  # fmt: skip
_DDP = {
    "--use-distributed-optimizer": "use_distributed_optimizer", "--overlap-grad-reduce": "overlap_grad_reduce",
    "--overlap-param-gather": "overlap_param_gather", "--use-megatron-fsdp": "use_megatron_fsdp",
    "--data-parallel-sharding-strategy": "data_parallel_sharding_strategy",
    "--num-distributed-optimizer-instances": "num_distributed_optimizer_instances",
}  # fmt: skip
_TRAIN = {"--micro-batch-size": "micro_batch_size", "--global-batch-size": "global_batch_size"}

KEYS: dict[str, str] = {
    **{flag: f"model.{key}" for flag, key in _MODEL.items()},
    **{flag: f"ddp.{key}" for flag, key in _DDP.items()},
    **{flag: f"train.{key}" for flag, key in _TRAIN.items()},
    "--ckpt-format": "checkpoint.ckpt_format",
}
"""Flags of Megatron-LM -> keys of a Megatron-Bridge recipe."""

_UNSAID = ("--group-query-attention", "--max-position-embeddings", "--bf16", "--fp8-format", "--fp4-format")
"""Flags without a key of their own: another key or the recipe implies them."""

_FALSE = ("--untie-embeddings-and-output-weights", "--no-gradient-accumulation-fusion")
"""Flags that turn off the feature that their key turns on; the key is set to False."""

_TWICE = {
    "--use-distributed-optimizer": "optimizer.use_distributed_optimizer",
    "--overlap-param-gather": "optimizer.overlap_param_gather",
    "--use-megatron-fsdp": "dist.use_megatron_fsdp",
    "--seq-length": "dataset.seq_length",
}
"""Flags of Megatron-LM -> a second key of the recipe that needs the same value."""

FORMATS: dict[str, str | None] = {
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp4": "bf16_with_nvfp4_mixed",
    "fp32": None,
    "tf32": None,
}
"""Formats of the GEMMs -> names in `megatron/bridge/training/mixed_precision.py`; None for the default."""


def _said(flag: str, value: Any, asked: TrainingLaunch) -> Any:
    """Return the value of the recipe's key for a flag."""
    if flag in _FALSE:
        return False
    if flag == "--num-layers-per-virtual-pipeline-stage":
        return asked.split.virtual_stages
    if flag == "--moe-layer-freq":  # Megatron-LM's flag is an expression; the key takes a list
        return [int(layer >= asked.model.layers - asked.model.moe_layers) for layer in range(asked.model.layers)]
    return value


def _in_keys(note: str) -> str:
    """Return a note with the flags in it replaced by keys."""
    return re.sub(r"--[a-z0-9-]+", lambda found: KEYS.get(found.group(), found.group()), note)


def _write(asked: TrainingLaunch) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    if asked.precision not in FORMATS:
        raise UserError(f"GEMMs in {asked.precision}: Megatron-Bridge has {', '.join(FORMATS)}")
    flags, environment, notes = megatron_flags(asked.run, asked.plan)
    if refused := [note for note in notes if note.startswith(REFUSED)]:
        raise UserError(_in_keys(refused[0].removeprefix(REFUSED)))
    sections: dict[str, Any] = {
        name: {} for name in ("model", "train", "ddp", "optimizer", "dataset", "dist", "checkpoint")
    }
    for flag, value in flags.items():
        keys = [] if flag in _UNSAID else [KEYS[flag], *([_TWICE[flag]] if flag in _TWICE else [])]
        for section, key in (each.split(".") for each in keys):
            sections[section][key] = _said(flag, value, asked)
    sections["train"]["train_iters"] = asked.steps
    told = {name: section for name, section in sections.items() if section}
    notes = [_in_keys(note) for note in notes if not note.startswith("yours to set")]
    own = "yours to set: a recipe for the model (its tokenizer, norms, positions, biases), data, optimizer, schedule, checkpoints"
    return {**told, "mixed_precision": FORMATS[asked.precision]}, environment, [*notes, own]


def _lines(file: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a settings file's sections as YAML."""
    for name, section in file.items():
        if isinstance(section, Mapping):
            yield from [f"{name}:", *(f"  {key}: {escape.yaml(value)}" for key, value in section.items())]
        else:
            yield f"{name}: {escape.yaml(section)}"


TRAINER = Trainer(
    title="NeMo (Megatron-Bridge)",
    version="0.3.1",
    name="plan.yaml",
    start="process_config_with_overrides(recipe(), 'plan.yaml') of megatron.bridge.training.utils.omegaconf_utils",
    write=_write,
    lines=_lines,
    families=NVIDIA,
)
