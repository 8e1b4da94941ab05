"""Export of a training plan as YAML overrides of a recipe of NVIDIA NeMo's Megatron-Bridge, which trains with Megatron-Core.

The settings are those of `hwopt.output.export.megatron`, under the names of `ConfigContainer`. They follow
`megatron/bridge/training/config.py` of NVIDIA-NeMo/Megatron-Bridge at 0.6.0, and Megatron-Core 0.19.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hwopt import escape
from hwopt.errors import UserError
from hwopt.output.export.engine import NVIDIA
from hwopt.output.export.megatron import LIMITS, WORDS, megatron_flags
from hwopt.output.export.trainer import Trainer, TrainingLaunch

_RENAMED = {
    "--swiglu": "gated_linear_unit", "--num-experts": "num_moe_experts", "--norm-epsilon": "layernorm_epsilon",
    "--untie-embeddings-and-output-weights": "share_embeddings_and_output_weights",
    "--num-layers-per-virtual-pipeline-stage": "virtual_pipeline_model_parallel_size",
    "--no-gradient-accumulation-fusion": "gradient_accumulation_fusion", "--disable-bias-linear": "add_bias_linear",
    "--use-rope-scaling": "rope_scaling", "--te-rng-tracker": "use_te_rng_tracker",
    "--no-check-for-nan-in-loss-and-grad": "check_for_nan_in_grad",
}  # fmt: skip
"""Flags of Megatron-LM -> key, where it is not the flag's own name."""

_SECTIONS = {
    "ddp": """--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --use-megatron-fsdp
        --data-parallel-sharding-strategy --num-distributed-optimizer-instances
        --no-check-for-nan-in-loss-and-grad""",
    "train": "--micro-batch-size --global-batch-size --train-iters",
    "checkpoint": "--ckpt-format",
    "optimizer": """--use-precision-aware-optimizer --optimizer-cpu-offload --optimizer-offload-fraction
        --use-distributed-optimizer --overlap-param-gather""",
    "dist": "--use-megatron-fsdp",
    "dataset": "--seq-length",
}
"""Sections of the recipe -> flags that have a key there; all flags but those of the first four have one in `model` too."""

UNSAID = (
    "--group-query-attention", "--max-position-embeddings", "--bf16", "--fp8-format", "--fp8-recipe", "--fp4-format",
    "--fp4-recipe", "--grad-reduce-in-bf16", "--squared-relu",
)  # fmt: skip
"""Flags without a key of their own: another key, `mixed_precision` or the recipe implies them."""

_FALSE = (
    "--untie-embeddings-and-output-weights",
    "--no-gradient-accumulation-fusion",
    "--disable-bias-linear",
    "--no-check-for-nan-in-loss-and-grad",
)
"""Flags that turn off the feature that their key turns on; the key is set to False."""


def keys_of(flag: str) -> list[tuple[str, str]]:
    """Return the (section, key) pairs of a recipe that state a flag of Megatron-LM."""
    if flag in UNSAID:
        return []
    key = _RENAMED.get(flag, flag.removeprefix("--").replace("-", "_"))
    found = [section for section, flags in _SECTIONS.items() if flag in flags.split()]
    own = [] if set(found) - {"dist", "dataset"} else ["model"]
    return [(section, key) for section in [*own, *found]]


FORMATS: dict[str, str | None] = {
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp4": "bf16_with_nvfp4_mixed",
    "fp32": None,
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
    if flag in ("--window-size", "--window-attn-skip-freq", "--linear-attention-freq"):
        return [int(each) for each in value.strip("()[]").split(",")]
    return value


def _in_keys(text: str) -> str:
    """Return a note with the flags in it replaced by keys."""
    return re.sub(r"--[a-z0-9-]+", lambda found: ".".join((keys_of(found.group()) or [("the", "recipe")])[0]), text)


def _write(asked: TrainingLaunch) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    flags, environment, notes = megatron_flags(asked)
    if float(asked.run.moment_bytes) != 8.0:
        raise UserError(
            f"optimizer moments of {float(asked.run.moment_bytes):g} B a weight: a YAML file states 8 B alone"
        )
    sections: dict[str, Any] = {
        name: {} for name in ("model", "train", "ddp", "optimizer", "dataset", "dist", "checkpoint")
    }
    for flag, value in flags.items():
        for section, key in keys_of(flag):
            sections[section][key] = _said(flag, value, asked)
    told = {name: section for name, section in sections.items() if section}
    reduced = "True" if asked.gradient_bytes == 4.0 else "False"
    notes = [_in_keys(note) for note in notes]
    notes += [f"pretrain.py: {_SCRIPT.format(reduced=reduced)}"]
    return {**told, "mixed_precision": FORMATS[asked.precision]}, environment, notes


_SCRIPT = (
    "from megatron.bridge.training.gpt_step import forward_step; from megatron.bridge.training.pretrain import pretrain; from "
    "megatron.bridge.training.mixed_precision import get_mixed_precision_config; from "
    "megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides; from megatron.bridge.recipes import "
    "RECIPE; config = process_config_with_overrides(RECIPE(), 'plan.yaml'); config.mixed_precision = "
    "get_mixed_precision_config(config.mixed_precision); config.mixed_precision.grad_reduce_in_fp32 = {reduced}; "
    "pretrain(config, forward_step)"
)
"""Program that starts a recipe with the file's keys. RECIPE is a recipe of the model."""


def _lines(file: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a settings file's sections as YAML."""
    for name, section in file.items():
        if isinstance(section, Mapping):
            yield from [f"{name}:", *(f"  {key}: {escape.yaml(value)}" for key, value in section.items())]
        else:
            yield f"{name}: {escape.yaml(section)}"


TRAINER = Trainer(
    title="NeMo (Megatron-Bridge)",
    version="0.6.0",
    name="plan.yaml",
    program="pretrain.py",
    write=_write,
    lines=_lines,
    families=NVIDIA,
    limits=LIMITS,
    words=WORDS,
    formats=("gradient_bytes",),
    mechanisms=True,
    otherwise="; a recipe loads the model's shape from its checkpoint, so that it may still train with this plan's degrees",
)
