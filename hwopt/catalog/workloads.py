"""Workloads: transformer shapes and training runs from the catalogue, a user's `.toml`, or a Hugging Face config."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hwopt.catalog.chips import slot
from hwopt.catalog.huggingface import config_length, read_config, shape_of_config
from hwopt.catalog.learning import loss_law
from hwopt.catalog.load import is_path, leaf, positive, supported
from hwopt.errors import UserError
from hwopt.types import PRECISIONS
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

NO_WINDOW = 1e9
"""Window of a model whose attention is all global, in tokens."""

TOKEN_NUMBER_BYTES = 4.0
"""What a text run reads a token: its number, 32 bit (by the format of token files)."""

_DEFAULTS = {"window_tokens": NO_WINDOW}
_TOKENS_PER_STEP, _TOKENS_PER_PARAMETER = 4.0 * 2**20, 20.0


def _is_config(name: str | Path) -> bool:
    return is_path(name) and Path(name).suffix.lower() == ".json"


def transformer(name: str | Path) -> Transformer:
    """A transformer's shape.

    **Arguments:** `name` of a workload (`llama3.1-405b`, or as model hubs print it), the path of a `.toml` of the same
    form, or of a Hugging Face `config.json`.

    **Raises:** `UserError` for an unknown name, a bad file, or an architecture the model has no terms for.
    """
    if _is_config(name):
        values = shape_of_config(read_config(Path(name)), str(name))
    else:
        held = supported("workloads", name)
        values = {field: held.si(field) for field in Transformer.__dataclass_fields__ if field in held.quantities}
    filled = {field: values.get(field, _DEFAULTS.get(field, 0.0)) for field in Transformer.__dataclass_fields__}
    _check_shape(filled, str(name))
    return Transformer(**{field: leaf(value) for field, value in filled.items()})


def _check_shape(values: dict[str, float], where: str) -> None:
    for field in ("layers", "hidden", "heads", "kv_heads", "qk_dim", "v_dim", "vocab", "mlp_matrices"):
        positive(values[field], f"{where}: '{field}'", least=1.0)
    for field in ("layers", "heads", "experts"):
        if values[field] != round(values[field]):
            raise UserError(f"{where}: '{field}' = {values[field]:g} must be a whole number")
    for field in ("moe_layers", "shared_experts"):
        if values[field] < 0.0:
            raise UserError(f"{where}: '{field}' = {values[field]:g} must not be negative")
    if values["moe_layers"] < values["layers"]:
        positive(values["ffn"], f"{where}: 'ffn'", least=1.0)
    if values["moe_layers"] > 0.0:
        positive(values["expert_ffn"], f"{where}: 'expert_ffn'", least=1.0)
    if values["rope_dim"] > values["qk_dim"]:
        raise UserError(f"{where}: 'rope_dim' = {values['rope_dim']:g} is more than 'qk_dim' = {values['qk_dim']:g}")
    if values["moe_layers"] > values["layers"]:
        raise UserError(f"{where}: {values['moe_layers']:g} MoE layers are more than the {values['layers']:g} layers")
    if values["kv_heads"] > values["heads"]:
        raise UserError(f"{where}: {values['kv_heads']:g} KV heads are more than the {values['heads']:g} heads")
    if values["moe_layers"] > 0 and not 0 < values["experts_per_token"] <= values["experts"]:
        raise UserError(f"{where}: a token meets {values['experts_per_token']:g} of {values['experts']:g} experts")
    for field in ("local_layers_fraction", "tied_embeddings", "parallel_layers"):
        if values[field] > 1.0:
            raise UserError(f"{where}: '{field}' = {values[field]:g} must lie between 0 and 1")


def training_run(
    name: str | Path,
    *,
    sequence_length: float | None = None,
    global_batch: float | None = None,
    precision: str = "bf16",
    tokens: float | None = None,
    unique_tokens: float | None = None,
    causal_fraction: float = 0.5,
    trainable_fraction: float = 1.0,
    routing_imbalance: float = 1.0,
    input_bytes_per_token: float | None = None,
    law: str | Path = "chinchilla-epoch",
) -> TrainingRun:
    """A training run of a workload.

    **Arguments:** `name` as `transformer` takes it; `sequence_length` in tokens and `global_batch` in sequences, the
    entry's by default (else 4 M tokens a step); `precision` of the layers' GEMMs, one of fp32 tf32 bf16 fp16 fp8 mxfp8
    nvfp4 fp4 int8; `tokens` of the run, the published number by default, else 20 a parameter; `unique_tokens` that exist, the
    stock of public text by default; `causal_fraction` of the
    scores computed; `trainable_fraction` of the weights; `routing_imbalance` busiest expert rank over mean; `input_bytes_per_token`
    read from storage (4 as token numbers; a 16 x 16 patch of pixels 768); `law`: how loss follows
    from parameters, tokens and batch.

    **Raises:** `UserError` for unknown names and values out of range.
    """
    shape = transformer(name)
    held = None if _is_config(name) else supported("workloads", name)
    length = _pick(sequence_length, "sequence_length", held, lambda: _length_of_config(Path(name)), least=1.0)
    batch = _pick(global_batch, "global_batch_sequences", held, lambda: max(1.0, round(_TOKENS_PER_STEP / length)))
    if sequence_length is not None and global_batch is None and held is not None:
        batch = max(
            1.0, round(batch * held.si("sequence_length") / length)
        )  # another length keeps the tokens of a step
    total = _pick(tokens, "training_tokens", held, lambda: _TOKENS_PER_PARAMETER * _parameters(shape))
    stock = (
        supported("laws", law).si("text_stock")
        if unique_tokens is None
        else positive(unique_tokens, "unique_tokens", least=1.0)
    )
    place = slot(precision)
    wide = place in ("fp32", "tf32")
    stored = {"weight_bytes": 2.0, "master_bytes": 4.0, "moment_bytes": 8.0, "activation_bytes": 2.0}
    if held is not None:
        stored = {field: held.si(field, value) for field, value in stored.items()}
    if wide:
        stored |= {"weight_bytes": 4.0, "master_bytes": 0.0, "activation_bytes": 4.0}
    return TrainingRun(
        model=shape,
        law=loss_law(law),
        sequence_length=leaf(length),
        global_batch_sequences=leaf(batch),
        tokens=leaf(total),
        unique_tokens=leaf(stock),
        gemm_precision=leaf([1.0 if each == place else 0.0 for each in PRECISIONS]),
        causal_fraction=leaf(_share(causal_fraction, "causal_fraction")),
        trainable_fraction=leaf(_share(trainable_fraction, "trainable_fraction")),
        input_bytes_per_token=leaf(_pick(input_bytes_per_token, "input_bytes", held, lambda: TOKEN_NUMBER_BYTES)),
        routing_imbalance=leaf(positive(routing_imbalance, "routing_imbalance", least=1.0)),
        **{field: leaf(value) for field, value in stored.items()},
    )


def _pick(given: float | None, field: str, held, otherwise, *, least: float = 0.0) -> float:
    """What the caller gave, else what the entry states, else a rule."""
    if given is not None:
        return positive(given, field, least=least)
    if held is not None and field in held.quantities:
        return positive(held.si(field), f"'{field}' of workload '{held.slug}'", least=least)
    return positive(otherwise(), field, least=least)


def _share(value: float, name: str) -> float:
    share = positive(value, name)
    if share > 1.0:
        raise UserError(f"{name} = {share:g} must not exceed 1")
    return share


def _length_of_config(path: Path) -> float:
    longest = config_length(read_config(path), str(path))
    return float(min(longest, 8192))


def _parameters(shape: Transformer) -> float:
    """Parameters in plain NumPy: the closed form would start jax in float32."""
    s = {field: float(np.asarray(getattr(shape, field))) for field in Transformer.__dataclass_fields__}
    query = (s["query_rank"] or s["hidden"]) * s["heads"] * s["qk_dim"]
    if s["kv_rank"]:
        key_value = s["kv_rank"] * s["heads"] * (s["qk_dim"] - s["rope_dim"] + s["v_dim"])
    else:
        key_value = s["hidden"] * s["kv_heads"] * (s["qk_dim"] + s["v_dim"])
    latent = s["hidden"] * (s["query_rank"] + s["kv_rank"] + s["rope_dim"])
    attention = latent + query + key_value + s["heads"] * s["v_dim"] * s["hidden"]
    dense = (s["layers"] - s["moe_layers"]) * s["mlp_matrices"] * s["hidden"] * s["ffn"]
    routed = s["moe_layers"] * (s["experts"] + s["shared_experts"]) * s["mlp_matrices"] * s["hidden"] * s["expert_ffn"]
    tables = ((2.0 - s["tied_embeddings"]) * s["vocab"] + s["learned_positions"]) * s["hidden"]
    return tables + s["layers"] * attention + dense + routed
