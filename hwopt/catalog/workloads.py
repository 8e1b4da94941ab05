"""Workloads: transformer shapes and training runs from the catalogue, a user's `.toml`, or a Hugging Face config; loss laws."""

from collections.abc import Callable
from pathlib import Path

from hwopt.catalog.batch_ramps import stated_ramp
from hwopt.catalog.chips import slot
from hwopt.catalog.huggingface import config_length, read_config, shape_of_config
from hwopt.catalog.load import built, is_path, leaf, positive, supported
from hwopt.catalog.schema import Record
from hwopt.errors import UserError
from hwopt.quantity import quantities
from hwopt.types import PRECISIONS
from hwopt.workload.learning import LossLaw
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, misaligned, total_parameters

TOKEN_NUMBER_BYTES = 4.0
"""What a text run reads a token: its number, 32 bit (by the format of token files)."""

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
        values = {key: each.si for key, each in supported("workloads", name).quantities.items()}
    shape = {field: values.get(field, each.default or 0.0) for field, each in quantities(Transformer).items()}
    _check_shape(shape, str(name))
    shape["misaligned_heads"] = misaligned(shape["qk_dim"], shape["v_dim"])
    return Transformer(**{field: leaf(value) for field, value in shape.items()})


def _check_shape(values: dict[str, float], where: str) -> None:
    needed = ["layers", "hidden", "heads", "kv_heads", "qk_dim", "v_dim", "vocab", "mlp_matrices"]
    needed += ["ffn"] * (values["moe_layers"] < values["layers"]) + ["expert_ffn"] * (values["moe_layers"] > 0.0)
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
        raise UserError(f"{where}: {values['moe_layers']:g} MoE layers are more than the {values['layers']:g} layers")
    if values["kv_heads"] > values["heads"]:
        raise UserError(f"{where}: {values['kv_heads']:g} KV heads are more than the {values['heads']:g} heads")
    if values["moe_layers"] > 0 and not 0 < values["experts_per_token"] <= values["experts"]:
        raise UserError(f"{where}: a token meets {values['experts_per_token']:g} of {values['experts']:g} experts")
    for field, each in quantities(Transformer).items():
        if values[field] > each.most:
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
    checkpoint_interval_s: float = 0.0,
    batch_ramp: str | None = None,
) -> TrainingRun:
    """A training run of a workload.

    **Arguments:** `name` as `transformer` takes it; `sequence_length` in tokens and `global_batch` in sequences, the
    entry's by default (else 4 M tokens a step); `precision` of the layers' GEMMs, one of fp32 tf32 bf16 fp16 fp8 mxfp8
    nvfp4 fp4 int8; `tokens` of the run, the published number by default, else 20 a parameter; `unique_tokens` that exist, the
    stock of public text by default; `causal_fraction` of the scores computed; `trainable_fraction` of the weights;
    `routing_imbalance` busiest expert rank over mean; `input_bytes_per_token` read from storage (4 as token numbers; a 16 x 16
    patch of pixels 768); `law`: how loss follows from parameters, tokens and batch;
    `checkpoint_interval_s` of work between saves, 0: as many as lose least; `batch_ramp`: batches before that one, and until how
    many tokens each is kept (`1024@0.25T,2048@2.8T,4096`, see `batch_ramps.stated_ramp`), the entry's by default, in proportion to
    its last batch, `none` for none.

    **Raises:** `UserError` for unknown names and values out of range.
    """
    shape, entry = transformer(name), _stated(name)
    ramp = stated_ramp(entry_ramp(name) if batch_ramp is None else batch_ramp)
    if ramp is not None and ramp.last is not None:
        if batch_ramp is not None and global_batch not in (None, ramp.last):
            raise UserError(
                f"batch_ramp = {batch_ramp!r} ends with {ramp.last:,} sequences, and the global batch is {global_batch:,.12g}: "
                "state the last batch once"
            )
        global_batch = ramp.last if global_batch is None else global_batch
    length = _pick(sequence_length, "sequence_length", entry, lambda: _length_of_config(name), least=1.0)
    usual = lambda: max(1.0, round(_TOKENS_PER_STEP / length))
    batch = _pick(global_batch, "global_batch_sequences", entry, usual)
    if sequence_length is not None and global_batch is None and "global_batch_sequences" in entry.quantities:
        batch = max(
            1.0, round(batch * entry.si("sequence_length") / length)
        )  # another length keeps the tokens of a step
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
        **{field: leaf(value) for field, value in numbers.items()},
    )


def entry_ramp(name: str | Path) -> str:
    """The batch ramp that a workload states, as text; empty where it states none."""
    return ", ".join(_stated(name).words("batch_ramp"))


def _stated(name: str | Path) -> Record:
    """What an entry states of its training run; a Hugging Face config states nothing."""
    if _is_config(name):
        return Record(slug=str(name), title="", kind="workloads", text={}, quantities={}, sources={})
    return supported("workloads", name)


def _pick(asked: float | None, key: str, entry: Record, otherwise: Callable[[], float], *, least: float = 0.0) -> float:
    """What the caller asks for, else what the entry states, else a rule."""
    if asked is None and key in entry.quantities:
        return positive(entry.si(key), f"'{key}' of workload '{entry.slug}'", least=least)
    return positive(otherwise() if asked is None else asked, key, least=least)


def _share(value: float, name: str) -> float:
    share = positive(value, name)
    if share > 1.0:
        raise UserError(f"{name} = {share:g} must not exceed 1")
    return share


def _length_of_config(name: str | Path) -> float:
    return min(config_length(read_config(Path(name)), str(name)), 8192.0)


def loss_law(name: str | Path = "chinchilla-epoch") -> LossLaw:
    """A published law of the loss, with a law of the critical batch.

    **Arguments:** `name` of an entry (`chinchilla-epoch`, `chinchilla-published`), or the path of a `.toml` of the same
    form.

    **Raises:** `UserError` for an unknown name, a bad file, or exponents that cannot be.
    """
    entry = supported("laws", name)
    if entry.si("critical_token_exponent") >= 1.0:
        entry.refuse("'critical_token_exponent' must lie below 1: more tokens take more steps")
    return built(LossLaw, entry)
