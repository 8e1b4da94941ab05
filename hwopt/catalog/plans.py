"""Integer parallelism plans from text such as `tp=8,pp=16,dp=128`, checked against the workload and the chip count."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from hwopt.catalog.load import leaf
from hwopt.errors import UserError, suggest
from hwopt.plan import OFFLOADED, Plan, stage_layers
from hwopt.units import read_number, separated
from hwopt.validation import check_kinds
from hwopt.workload.operators import Operators, most_chunks
from hwopt.workload.ramp import batch_quotients
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import MATRIX_TILE, Transformer, splits_heads, splits_tiles, tensor_degrees

_RECOMPUTE = {"none": (0.0, 0.0), "selective": (0.0, 1.0), "full": (1.0, 0.0)}
"""Word -> share of layers that are recomputed fully, share of layers that recompute attention only."""

_ALIASES = {
    "vpp": "virtual_stages", "v": "virtual_stages", "mbs": "micro_batch", "mb": "micro_batch", "b": "micro_batch",
    "etp": "expert_tp", "sp": "sequence_parallel", "fsdp": "zero",
}  # fmt: skip
_INTEGERS = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "micro_batch", "shard_groups", "local_steps")
_FIELDS = (*_INTEGERS, "zero", "recompute", "sequence_parallel", "bubble_fraction", *OFFLOADED)


def parse_plan(text: str) -> dict[str, str]:
    """Return a plan text such as `tp=8,pp=16` as a dictionary of full field names.

    **Raises:** `UserError` for a part that is not `name=value`, and for an unknown or repeated name.
    """
    return settings_of(text, _FIELDS, _ALIASES, "tp=8,pp=16,dp=128")


def settings_of(
    text: str, fields: Collection[str], aliases: Mapping[str, str], example: str, whose: str = "", what: str = "plan"
) -> dict[str, str]:
    """Return the settings of a plan's text as full field name -> value.

    **Arguments:** `text`; known `fields` and their `aliases`; for messages an `example`, the owner (`whose`), and `what` is set.

    **Raises:** `UserError` for an empty text, a part that is not `name=value`, and an unknown or repeated name.
    """
    if not isinstance(text, str) or not text.strip(" ,"):
        raise UserError(f"{what}: {text!r} is empty; write for example {example}, or remove it")
    settings: dict[str, str] = {}
    for setting in separated(f"{what}:", text, ","):
        name, equals, value = (x.strip() for x in setting.partition("="))
        name = aliases.get(name.lower(), name.lower())
        if not equals or not value:
            raise UserError(f"{what}: '{setting}' is not name=value; write for example {example}")
        if name not in fields:
            raise UserError(
                f"{what}: unknown name '{name}' in '{setting}'{whose}: {suggest(name, (*fields, *aliases))}"
            )
        if name in settings:
            raise UserError(f"{what}: '{name}' is given twice")
        settings[name] = value
    return settings


def integers_of(
    settings: Mapping[str, object], fields: Collection[str], integers: Collection[str], whose: str = ""
) -> dict[str, int]:
    """Return the integers among the settings of a plan.

    **Raises:** `UserError` for a name that is not among the `fields`, and for a value that is not a positive integer.
    """
    for name in sorted(set(settings) - set(fields)):
        raise UserError(f"plan: unknown name '{name}'{whose}: {suggest(name, fields)}")
    return {name: integer(name, settings[name]) for name in integers if settings.get(name) is not None}


def plan(workload: TrainingRun, chips: float, *, sites: float = 1.0, **settings: object) -> Plan:
    """Return a checked integer plan for a training run on a number of chips.

    **Arguments:** settings by name, with values as numbers or text:

    - `sites`: they share the chips, each with the same number of replicas.
    - `tp`, `pp`, `cp`, `ep`, `virtual_stages`, `micro_batch`, `shard_groups`: default 1.
    - `dp`: default: the remaining factor of the chips.
    - `expert_tp`: default tp without expert parallelism, 1 with it.
    - `zero`: 0 to 3 (default 1).
    - `recompute`: none, selective, full, or a share of layers between 0 and 1.
    - `sequence_parallel`: default: on when tp > 1.
    - `bubble_fraction`: 1: 1F1B, 0: zero bubble.
    - `weights_offloaded`, `optimizer_offloaded`, `activations_offloaded`: shares in the memory pool (default 0).
    - `local_steps`: steps between exchanges of several sites (default 1).

    **Raises:** `UserError` that names the field, where a value is not a positive integer or does not divide.
    """
    check_kinds("plan", {"workload": workload}, {"workload": (TrainingRun,)})
    degrees = integers_of(settings, _FIELDS, _INTEGERS)
    total = integer("chips", chips)
    tp, pp, cp, ep, chunks, micro_batch, groups, local_steps = (
        degrees.get(name, 1)
        for name in ("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "shard_groups", "local_steps")
    )
    if isinstance(workload.model, Operators):
        _check_operators(workload.model, tp, pp * chunks, cp, ep)
    else:
        check_heads(workload.model, tp)
    dp = degrees.get("dp") or _rest(total, tp * pp * cp)
    expert_tp = degrees.get("expert_tp") or (1 if ep > 1 else tp)
    check_product(total, tp, pp, dp, cp)
    _check_stages(workload.model, pp, chunks)
    check_experts(workload.model, ep, expert_tp, tp * cp * dp, "tp x cp x dp")
    if round(float(workload.sequence_length)) % cp:
        raise UserError(f"plan: cp={cp} does not divide the sequence of {float(workload.sequence_length):g} tokens")
    _check_batch(workload, pp, dp, chunks, micro_batch)
    _check_sites(integer("sites", sites), tp * cp, dp, ep * expert_tp, local_steps)
    if (dp * cp) % groups:
        raise UserError(f"plan: shard_groups={groups} does not divide the {dp * cp} data parallel ranks")
    zero = _zero(settings.get("zero", 1))
    full, attention = _recompute(settings.get("recompute", "none"))
    fullest, last = stage_layers(round(float(workload.model.layers)), pp, chunks)
    values = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "expert_tp": expert_tp,
        "virtual_stages": chunks, "micro_batch": micro_batch, "fullest_stage": fullest, "last_stage": last,
        "sequence_parallel": flag("sequence_parallel", settings.get("sequence_parallel"), default=tp > 1),
        "optimizer_sharded": zero >= 1, "gradients_sharded": zero >= 2, "weights_sharded": zero >= 3,
        "shard_groups": groups, "recompute_full": full, "recompute_attention": attention,
        "bubble_fraction": _share("bubble_fraction", settings.get("bubble_fraction", 1.0)),
        "local_steps": local_steps,
        **{name: _share(name, settings.get(name, 0.0)) for name in OFFLOADED},
    }  # fmt: skip
    return Plan(**{name: leaf(value) for name, value in values.items()})


_NOT_TRAINED = {"cp": 1.0, "virtual_stages": 1.0, "shard_groups": 1.0, "local_steps": 1.0}
"""Values of training settings in a serving plan; all other training settings are 0."""


def plan_leaves(values: Mapping[str, Any]) -> Plan:
    """Return a serving plan from its degrees and its batch, as arrays of one shape."""
    ones = np.ones_like(values["tp"])
    numbers = (name for name in Plan.__dataclass_fields__ if name != "layout")
    missing = {name: _NOT_TRAINED.get(name, 0.0) * ones for name in numbers if name not in values}
    return Plan(**{**missing, **values})


def _number(name: str, value: object) -> float:
    try:
        number = read_number(value) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"plan: {name}={value!r} is not a number") from None
    if not math.isfinite(number):
        raise UserError(f"plan: {name}={value} is not finite")
    return number


def integer(name: str, value: object, least: int = 1) -> int:
    """Return an integer of at least `least`, from a number or text."""
    number = _number(name, value)
    if number != int(number) or number < least:
        whose = "" if name in ("chips", "sites") else "plan: "
        raise UserError(f"{whose}{name}={value} must be an integer of at least {least}")
    return int(number)


def _share(name: str, value: object) -> float:
    number = _number(name, value)
    if not 0.0 <= number <= 1.0:
        raise UserError(f"plan: {name}={value} must lie between 0 and 1")
    return number


_YES, _NO = ("yes", "true", "on", "1", "1.0"), ("no", "false", "off", "0", "0.0")


def flag(name: str, value: object, default: bool) -> float:
    """Return 1 for yes and 0 for no, in any usual spelling."""
    text = str(default if value is None else value).lower()
    if text not in (*_YES, *_NO):
        raise UserError(f"plan: {name}={value} must be yes or no")
    return float(text in _YES)


def _zero(value: object) -> int:
    number = _number("zero", value)
    if number not in (0, 1, 2, 3):
        raise UserError(
            f"plan: zero={value} must be 0 (no sharding), 1 (optimizer state), 2 (also gradients) or 3 (also weights, FSDP)"
        )
    return int(number)


def _recompute(value: object) -> tuple[float, float]:
    """Return (share of layers that are recomputed fully, share of layers that recompute attention only)."""
    text = str(value).strip().lower()
    if text in _RECOMPUTE:
        return _RECOMPUTE[text]
    try:
        return _share("recompute", text), 0.0
    except UserError:
        raise UserError(
            f"plan: recompute={value} must be none, selective, full or a share of layers between 0 and 1: "
            f"{suggest(text, _RECOMPUTE)}"
        ) from None


def _rest(chips: int, model_parallel: int) -> int:
    if chips % model_parallel:
        lower = chips // model_parallel * model_parallel
        fits = (
            f"{lower} or {lower + model_parallel} chips would fit"
            if lower
            else f"at least {model_parallel} chips are needed"
        )
        raise UserError(f"plan: tp x pp x cp = {model_parallel} does not divide {chips} chips; {fits}")
    return chips // model_parallel


def check_heads(model: Transformer, tp: int) -> None:
    """Refuse a tensor parallel degree that does not fit the model.

    It must divide the heads and the matrix tiles of the MLP. It must also divide the key-value heads, or be a multiple
    of their number.
    """
    heads, groups = round(float(model.heads)), round(float(model.kv_heads))
    near = sorted(tensor_degrees(model), key=lambda d: abs(math.log(d / tp)))[:2]
    words = " or ".join(f"tp={d}" for d in sorted(near))
    if model.kinds is not None and not splits_heads(model, tp):
        raise UserError(f"plan: tp={tp} does not split the heads of every kind of layers evenly; try {words}")
    if heads % tp:
        raise UserError(f"plan: tp={tp} does not divide the {heads} attention heads; try {words}")
    if not splits_heads(model, tp):
        raise UserError(
            f"plan: tp={tp} is neither a divisor nor a multiple of the {groups} key-value heads; try {words}"
        )
    if not splits_tiles(model, tp):
        raise UserError(
            f"plan: tp={tp} does not split the MLP's {round(float(model.ffn)):,} columns into tiles of {MATRIX_TILE}; try {words}"
        )


def _check_operators(model: Operators, tp: int, chunks: int, cp: int, ep: int) -> None:
    """Refuse parallelism that a table of operators does not support: every operator can split the batch, few can split
    more.
    """
    parts, shards, blocks = (round(float(each)) for each in (model.heads, model.experts, model.layers))
    if tp > 1 and parts == 1:
        raise UserError(f"plan: tp={tp}: not all operators of this model can be split across chips; use dp and zero")
    if parts % tp:
        near = " or ".join(f"tp={each}" for each in tensor_degrees(model)[-2:])
        raise UserError(f"plan: tp={tp} does not divide the {parts} parts that all operators split into; try {near}")
    if chunks > 1 and blocks == 1:
        raise UserError(
            "plan: pp > 1: the blocks of this model differ in work and size, so it cannot be pipelined; use dp and zero"
        )
    if cp > 1:
        raise UserError(f"plan: cp={cp}: context parallelism needs a transformer; use dp")
    if ep > 1 and not shards:
        raise UserError(f"plan: ep={ep}: the model has no embedding tables to spread over chips")
    if shards and shards % ep:
        raise UserError(f"plan: ep={ep} does not divide the {shards} parts of the tables")


def check_product(chips: int, tp: int, pp: int, dp: int, cp: int) -> None:
    """Refuse degrees whose product is not the number of chips."""
    product = tp * pp * dp * cp
    if product != chips:
        raise UserError(
            f"plan: tp x pp x dp x cp = {tp} x {pp} x {dp} x {cp} = {product}, but there are {chips} chips"
            + (f"; dp={chips // (tp * pp * cp)} would use all of them" if chips % (tp * pp * cp) == 0 else "")
        )


def _check_stages(model: Transformer | Operators, pp: int, chunks: int) -> None:
    layers = round(float(model.layers))
    if pp * chunks > most_chunks(model):
        what = "layers, embedding and head" if isinstance(model, Transformer) else "blocks"
        raise UserError(f"plan: pp x virtual_stages = {pp} x {chunks} = {pp * chunks} exceeds the {layers} {what}")
    if chunks > 1 and pp == 1:
        raise UserError(f"plan: virtual_stages={chunks} needs pp > 1: a single stage cannot be interleaved")


def check_experts(
    model: Transformer | Operators, ep: int, expert_tp: int, ranks: int, words: str, redundant: int = 0
) -> None:
    """Refuse an expert parallel degree that does not fit.

    It must divide the experts, including `redundant` copies. Its product with `expert_tp` must divide the `ranks` of a
    stage. `words` describes these ranks in messages.
    """
    experts = round(float(model.experts))
    if isinstance(model, Operators):
        if ranks % (ep * expert_tp):
            raise UserError(
                f"plan: ep={ep} does not divide the {ranks} chips of a stage, over which embedding tables are spread"
            )
        return
    if ep > 1 and not experts:
        raise UserError(f"plan: ep={ep}, but the model is dense: it has no experts")
    if experts and (experts + redundant) % ep:
        what = f"{experts} experts and {redundant} redundant ones" if redundant else f"{experts} experts"
        raise UserError(f"plan: ep={ep} does not divide the {what}{_as_redundant(experts, ep, words)}")
    if ranks % (ep * expert_tp):
        raise UserError(
            f"plan: ep x expert_tp = {ep} x {expert_tp} does not divide the {words} = {ranks} chips of a stage"
        )


def _as_redundant(experts: int, ep: int, words: str) -> str:
    """Return a hint that makes the degree possible with redundant experts in serving; empty for training, which has none."""
    fill = -experts % ep
    return f"; redundant_experts={fill} would fill all ranks" if words == "tp x dp" and fill <= experts else ""


def _check_sites(sites: int, split: int, dp: int, experts: int, local_steps: int) -> None:
    if local_steps > 1 and sites == 1:
        raise UserError(f"plan: local_steps={local_steps} needs several sites, but there is one")
    if dp % sites:
        raise UserError(f"plan: dp={dp} replicas cannot be divided among {sites} sites")
    if (ranks := split * (dp // sites)) % experts:
        raise UserError(
            f"plan: ep x expert_tp = {experts} does not divide the tp x cp x dp = {ranks} chips of a stage at one site"
        )


def _check_batch(workload: TrainingRun, pp: int, dp: int, chunks: int, micro_batch: int) -> None:
    last = round(float(workload.global_batch_sequences))
    early = [round(float(each) * last) for each in batch_quotients(workload.ramp)]
    for batch in (last, *early):
        what = "global batch" if batch == last else "batch ramp's stage"
        if batch % (dp * micro_batch):
            raise UserError(
                f"plan: dp x micro_batch = {dp} x {micro_batch} does not divide the {what} of {batch} sequences"
                + (f"; the batch must be at least {dp * micro_batch}" if batch < dp * micro_batch else "")
            )
        micro_batches = batch // (dp * micro_batch)
        if chunks > 1 and micro_batches < pp:
            raise UserError(
                f"plan: an interleaved schedule needs at least pp={pp} micro-batches a replica; the {what} of {batch} gives "
                f"{micro_batches}"
            )
