"""Workloads: transformer shapes and training runs from the catalog, a user's `.toml`, or a Hugging Face config; loss laws."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from hwopt.catalog.batch_ramps import stated_ramp
from hwopt.catalog.chips import slot
from hwopt.catalog.huggingface import counted_apart, read_config
from hwopt.catalog.layer_kinds import absent_parts, layer_kinds
from hwopt.catalog.load import built, config_file, leaf, positive, record, supported
from hwopt.catalog.memory_formats import formats_of, memory_numbers, parse_memory
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.quantity import quantities
from hwopt.run_words import BY_NAME, implied
from hwopt.types import PRECISIONS
from hwopt.workload.learning import LossLaw
from hwopt.workload.operator_kinds import Lookup, operator_table
from hwopt.workload.operators import Operators
from hwopt.workload.training import ExpertRouting, TrainingRun
from hwopt.workload.transfer import Transfer
from hwopt.workload.transformer import (
    TOKEN,
    Transformer,
    active_parameters,
    embedding_parameters,
    head_parameters,
    misaligned,
    total_parameters,
)

TOKEN_NUMBER_BYTES = 4.0
"""Bytes read from storage per token of a text run: the token's number, 32 bit (by the format of token files)."""

_ADAPTERS = {"frozen_bytes", "adapted_mlp"}
"""Memory formats of runs that train adapters of frozen weights."""

_TRANSFORMERS = {*_ADAPTERS, "kept_bytes", "chunk_tokens", "layers_gathered", "table_moment_bytes"}
"""Memory formats that need a transformer: they distinguish its layers, tables and logits."""

_TOKENS_PER_STEP, _TOKENS_PER_PARAMETER = 4.0 * 2**20, 20.0


def named(name: str | Path) -> str:
    """Return the display name of a workload: its name, followed by the approximations of its estimate.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    left_out = approximations(name)
    return f"{name} ({'; '.join(left_out)})" if left_out else str(name)


def approximations(name: str | Path) -> list[str]:
    """Return the omissions and approximations of a workload's estimate, a phrase each.

    **Raises:** see `named`.
    """
    return record("workloads", name).words("approximations")


def checkpoint(name: str | Path) -> str:
    """Return the storage format of a workload's own weights, in the words of `quantization_config`; empty for 16 or 32
    bit.

    **Arguments:** `name` of a workload, or the path of a `.toml` or `config.json` file. Such a file states for example
    `mxfp4` or `compressed-tensors pack-quantized`.
    """
    return next(iter(supported("workloads", name).words("checkpoint")), "")


def model_config(name: str | Path) -> dict[str, Any]:
    """Return what is known of a model's `config.json`, by key: all of such a file, or the field `config` of an entry.

    The field lists `key=value`, with values as in JSON, and ends with its source.

    **Raises:** `UserError` for an unknown name, a bad file, or a value that is not JSON.
    """
    if (path := config_file("workloads", name)) is not None:
        return read_config(path)[1]
    entry = supported("workloads", name)
    try:
        return {key: json.loads(value) for key, _, value in (x.partition("=") for x in entry.words("config")[:-1])}
    except (ValueError, RecursionError):
        entry.refuse("'config' must list key=value with values as in JSON, such as rope_theta=500000, then its source")


def model_of(name: str | Path | Operators) -> Transformer | Operators:
    """Return the model of a workload: a transformer's shape, or a table of operators where the entry or config describes
    one.

    **Arguments, raises:** as in `transformer`; a table made by `hwopt.workload.operator_kinds.operator_table` is
    returned unchanged.
    """
    if isinstance(name, Operators):
        return name
    entry = supported("workloads", name)
    if not entry.operators:
        return transformer(name)
    layers, hidden = entry.si("layers", 1.0), positive(entry.si("hidden"), f"{entry.slug}: 'hidden'")
    for key, least in (("layers", 1.0), ("tensor_parts", 1.0), ("table_shards", 0.0)):
        value = entry.si(key, least)
        if value != round(value) or value < least:
            entry.refuse(f"'{key}' = {value:g} must be an integer of at least {least:g}")
    _check_words(entry)
    return operator_table(
        entry.operators,
        layers=layers,
        hidden=hidden,
        kept_inputs=entry.si("kept_inputs", layers * hidden),
        heads=entry.si("tensor_parts", 1.0),
        shards=entry.si("table_shards", 0.0),
        logits=entry.si("logits", 0.0),
        table_bytes=entry.si("table_bytes", 4.0),
        sample=" ".join(entry.words("sample")) or "sequence",
        unit_of_work=" ".join(entry.words("unit_of_work")) or TOKEN,
        language=entry.words("predicts") == ["text"],
    )


def parameter_counts(name: str | Path) -> dict[str, float]:
    """Return the parameters of a workload: all, those a token uses, and parts that cards may leave out or add.

    Keys: `parameters` and `active_parameters` of the model; `embedding` and `head`, its tables of tokens, which both
    contain; `multi_token` and keys of towers such as `vision_config`, which neither contains (from a `config.json` alone);
    `stated_parameters` and `stated_active_parameters` as the card has them. An unsupported entry has the last two alone.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    entry = record("workloads", name)
    counts: dict[str, float] = {}
    if "unsupported" not in entry.text:
        model = model_of(name)
        counts = {"parameters": float(total_parameters(model)), "active_parameters": float(active_parameters(model))}
        if isinstance(model, Transformer):
            counts |= {"embedding": float(embedding_parameters(model)), "head": float(head_parameters(model))}
    path = config_file("workloads", name)
    apart = counted_apart(path) if path is not None else {}
    stated = ("parameters", "active_parameters")
    return counts | apart | {f"stated_{key}": entry.si(key) for key in stated if key in entry.quantities}


def _check_words(entry: Record) -> None:
    """Refuse sharded lookups without a number of shards or with tensor parts, and unknown values of `predicts`."""
    spread = any(isinstance(each, Lookup) and each.spread for each in entry.operators)
    if spread and not entry.si("table_shards", 0.0):
        entry.refuse(
            "its embedding tables are spread over chips: 'table_shards' must state the maximum number of parts"
        )
    if spread and entry.si("tensor_parts", 1.0) > 1.0:
        entry.refuse("its embedding tables are spread over replicas: 'tensor_parts' must be 1")
    if (said := entry.words("predicts")) not in ([], ["text"]):
        entry.refuse(f"'predicts' = {said[0]!r}: write text, or remove it (then no loss law applies)")


def transformer(name: str | Path) -> Transformer:
    """Return a transformer's shape.

    **Arguments:** `name` of a workload (`llama3.1-405b`, or as in model hubs), the path of a `.toml` of the same form,
    or of a Hugging Face `config.json`.

    **Raises:** `UserError` for an unknown name, a bad file, or an architecture the model has no terms for.
    """
    entry = supported("workloads", name)
    if entry.operators:
        raise UserError(
            f"workload '{entry.slug}' is a table of operators, not a transformer: it can be trained, but not served"
        )
    values = {key: each.si for key, each in entry.quantities.items()}
    declared = quantities(Transformer)
    shape = {field: values.get(field, each.default or 0.0) for field, each in declared.items() if not each.absent}
    _check_shape(shape, str(name), bool(entry.layer_kinds))
    shape["misaligned_heads"] = misaligned(shape["qk_dim"], shape["v_dim"])
    shape |= {field: values[field] for field, each in declared.items() if each.absent and field in values}
    stated = {*shape, *(field for row in entry.layer_kinds for field in row)}
    shape = absent_parts(stated) | shape
    kinds = layer_kinds(shape, entry.layer_kinds, str(name))
    return Transformer(**{field: leaf(value) for field, value in shape.items()}, kinds=kinds)


def _check_shape(values: dict[str, float], where: str, kinds: bool) -> None:
    needed = ["layers", "hidden", "heads", "kv_heads", "qk_dim", "v_dim", "vocab", "mlp_matrices"]
    needed += ["ffn"] * (values["moe_layers"] < values["layers"] and not kinds) + ["expert_ffn"] * (
        values["moe_layers"] > 0.0
    )
    for field in needed:
        positive(values[field], f"{where}: '{field}'", least=1.0)
    for field in ("layers", "heads", "experts"):
        if values[field] != round(values[field]):
            raise UserError(f"{where}: '{field}' = {values[field]:g} must be an integer")
    for field in ("moe_layers", "shared_experts"):
        if values[field] < 0.0:
            raise UserError(f"{where}: '{field}' = {values[field]:g} must not be negative")
    if values["rope_dim"] > values["qk_dim"]:
        raise UserError(f"{where}: 'rope_dim' = {values['rope_dim']:g} is more than 'qk_dim' = {values['qk_dim']:g}")
    if values["moe_layers"] > values["layers"]:
        raise UserError(f"{where}: {values['moe_layers']:g} MoE layers exceed the {values['layers']:g} layers")
    if values["kv_heads"] > values["heads"]:
        raise UserError(f"{where}: {values['kv_heads']:g} KV heads exceed the {values['heads']:g} heads")
    if values["moe_layers"] > 0 and not 0 < values["experts_per_token"] <= values["experts"]:
        raise UserError(
            f"{where}: {values['experts_per_token']:g} experts per token must be above 0 and at most {values['experts']:g}"
        )
    for field, each in quantities(Transformer).items():
        if values.get(field, 0.0) > each.most:
            raise UserError(f"{where}: '{field}' = {values[field]:g} must lie between 0 and 1")


def training_run(
    name: str | Path | Operators,
    *,
    sequence_length: float | None = None,
    global_batch: float | None = None,
    precision: str = "bf16",
    tokens: float | None = None,
    unique_tokens: float | None = None,
    causal_fraction: float = 0.5,
    trainable_fraction: float = 1.0,
    routing_imbalance: float = 1.0,
    expert_routing: str | float | None = None,
    tuning: str | None = None,
    input_bytes_per_token: float | None = None,
    law: str | Path = "chinchilla-epoch",
    checkpoint_interval_s: float = 0.0,
    batch_ramp: str | None = None,
    memory_formats: str | None = None,
) -> TrainingRun:
    """Return a training run of a workload.

    **Arguments:**

    - `name`: as in `model_of`.
    - `sequence_length`, `global_batch`: in tokens and in sequences, by default the entry's (else 4 M tokens a step).
    - `precision`: of the layers' GEMMs, one of fp32 tf32 bf16 fp16 fp8 mxfp8 nvfp4 fp4 int8.
    - `tokens`: of the run, by default the published number, else 20 per parameter.
    - `unique_tokens`: available distinct tokens, by default the stock of public text.
    - `causal_fraction`: share of attention scores that is computed.
    - `trainable_fraction`: share of the weights that is trained.
    - `routing_imbalance`: load of the busiest expert rank over the mean, under any plan.
    - `expert_routing`: the same where a plan spreads experts over ranks: balanced (the default), natural, or a number.
    - `tuning`: `functional` runs route naturally unless stated otherwise.
    - `input_bytes_per_token`: read from storage (4 as token numbers; a 16 x 16 patch of pixels 768).
    - `law`: dependence of the loss on parameters, tokens and batch.
    - `checkpoint_interval_s`: of work between checkpoints; 0: the optimal interval.
    - `batch_ramp`: earlier, smaller batches and the tokens at which each ends (`1024@0.25T,2048@2.8T,4096`, see
      `batch_ramps.stated_ramp`). By default it is the entry's, in proportion to its last batch; `none` disables it.
    - `memory_formats`: those of weights, moments, gradients, loss and reserve (`moments=8bit,frozen=nf4,loss=chunked`), see
      `memory_formats.memory_numbers`. By default those of the entry and the software.

    **Raises:** `UserError` for unknown names and values out of range.
    """
    shape, entry = model_of(name), _stated(name)
    _check_length(shape, sequence_length, entry)
    ramp = stated_ramp(entry_ramp(name) if batch_ramp is None else batch_ramp)
    if ramp is not None and ramp.last is not None:
        if batch_ramp is not None and global_batch not in (None, ramp.last):
            raise UserError(
                f"batch_ramp = {batch_ramp!r} ends with {ramp.last:,} sequences, but the global batch is {global_batch:,.12g}: "
                "remove one of them"
            )
        global_batch = ramp.last if global_batch is None else global_batch
    length = _pick(sequence_length, "sequence_length", entry, _no_length, least=1.0)
    usual = lambda: max(1.0, round(_TOKENS_PER_STEP / length))
    batch = _pick(global_batch, "global_batch_sequences", entry, usual)
    if sequence_length is not None and global_batch is None and "global_batch_sequences" in entry.quantities:
        batch = max(
            1.0, round(batch * entry.si("sequence_length") / length)
        )  # another length keeps the tokens of a step
    for key, count in (("sequence_length", length), ("global_batch", batch)):
        if not float(count).is_integer():
            raise UserError(f"{key} = {count:g} must be an integer")
    total = _pick(tokens, "training_tokens", entry, lambda: _TOKENS_PER_PARAMETER * float(total_parameters(shape)))
    stock = (
        supported("laws", law).si("text_stock")
        if unique_tokens is None
        else positive(unique_tokens, "unique_tokens", least=1.0)
    )
    place = slot(precision)
    stored = {
        field: entry.si(str(each.key), each.default) for field, each in quantities(TrainingRun).items() if each.default
    }
    if place in ("fp32", "tf32"):
        stored |= {"weight_bytes": 4.0, "master_bytes": 0.0, "activation_bytes": 4.0}
    kept = {} if memory_formats is None else memory_numbers(parse_memory(memory_formats))
    if isinstance(shape, Operators) and _TRANSFORMERS.intersection(kept):
        raise UserError(
            f"memory_formats = {memory_formats!r}: moments=8bit, frozen, adapters, activations, loss and fsdp2 need a transformer"
        )
    if trainable_fraction == 1.0 and _ADAPTERS.intersection(kept):
        raise UserError(
            f"memory_formats = {memory_formats!r}: all weights train; state the share of adapters: trainable_fraction = 0.003"
        )
    stored |= {name: value for name, value in kept.items() if name in stored}
    numbers = stored | {
        "sequence_length": length,
        "global_batch_sequences": batch,
        "tokens": total,
        "unique_tokens": stock,
        "causal_fraction": _share(causal_fraction, "causal_fraction"),
        "trainable_fraction": _share(trainable_fraction, "trainable_fraction"),
        "input_bytes_per_token": _pick(input_bytes_per_token, "input_bytes", entry, lambda: TOKEN_NUMBER_BYTES),
        "checkpoint_interval_s": checkpoint_interval_s and positive(checkpoint_interval_s, "checkpoint_interval_s"),
        "routing_imbalance": positive(routing_imbalance, "routing_imbalance", least=1.0),
    }
    return TrainingRun(
        model=shape,
        law=loss_law(law),
        gemm_precision=leaf([float(each == place) for each in PRECISIONS]),
        ramp=None if ramp is None else ramp.of(ramp.last or batch, total),
        routing=routed(shape, {"expert_routing": expert_routing, "tuning": tuning}),
        formats=formats_of(kept),
        **{field: leaf(value) for field, value in numbers.items()},
    )


def routed(shape: Transformer | Operators, words: Mapping[str, Any]) -> ExpertRouting | None:
    """Return the routing that words of a run state; None for balanced routing, and for models without experts."""
    (change,) = BY_NAME["expert_routing"].changes(implied(words).get("expert_routing", "balanced"))
    return ExpertRouting(leaf(change.value)) if has_experts(shape) and change.value > 1.0 else None


def has_experts(shape: Transformer | Operators) -> bool:
    """Return whether a model is a transformer with experts."""
    return isinstance(shape, Transformer) and float(shape.experts) > 0.0


def _check_length(shape: Transformer | Operators, asked: float | None, entry: Record) -> None:
    """Refuse another sample length where samples have a fixed one, such as images or clicks."""
    own = entry.quantities.get("sequence_length")
    if asked is None or own is None or not isinstance(shape, Operators) or shape.language:
        return
    if own.si == 1.0 and asked != 1.0:
        entry.refuse(f"a sample is one {shape.sample}: it has no sequence_length (1), not {asked:g}")


def entry_ramp(name: str | Path | Operators) -> str:
    """Return the batch ramp that a workload states, as text; empty where it states none."""
    return ", ".join(_stated(name).words("batch_ramp"))


def _stated(name: str | Path | Operators) -> Record:
    """Return the entry that states a workload's training run; for a table of operators an empty one."""
    if isinstance(name, Operators):
        return Record(slug="table", title="", kind="workloads", text={}, quantities={}, sources={})
    return supported("workloads", name)


def _pick(asked: float | None, key: str, entry: Record, otherwise: Callable[[], float], *, least: float = 0.0) -> float:
    """Return the specified value, else the entry's, else that of a default rule."""
    if asked is None and key in entry.quantities:
        return positive(entry.si(key), f"'{key}' of workload '{entry.slug}'", least=least)
    return positive(otherwise() if asked is None else asked, key, least=least)


def _share(value: float, name: str) -> float:
    share = positive(value, name)
    if share > 1.0:
        raise UserError(f"{name} = {share:g} must not exceed 1")
    return share


def _no_length() -> NoReturn:
    raise UserError("sequence_length: a table of operators must state the tokens per sample (1 for an image)")


def transfer(name: str | Path = "text") -> Transfer:
    """Return a law of transfer: the amount of new data that pre-training on other data replaces.

    **Arguments:** `name` of an entry (`text`, `text-and-code`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    return built(Transfer, supported("transfers", name))


def loss_law(name: str | Path = "chinchilla-epoch") -> LossLaw:
    """Return a published scaling law of the loss, with a law of the critical batch size.

    **Arguments:** `name` of an entry (`chinchilla-epoch`, `chinchilla-published`), or the path of a `.toml` of the same
    form.

    **Raises:** `UserError` for an unknown name, a bad file, or an exponent of the critical batch that is 1 or more.
    """
    entry = supported("laws", name)
    if entry.si("critical_token_exponent") >= 1.0:
        entry.refuse("'critical_token_exponent' must be below 1: otherwise more tokens would not need more steps")
    return built(LossLaw, entry)
