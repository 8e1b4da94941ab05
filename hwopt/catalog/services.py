"""Inference services: requests and number formats around a model of the catalog, and integer serving plans."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from hwopt.catalog import day_curves
from hwopt.catalog.checkpoints import stored_formats
from hwopt.catalog.chips import architecture, default_stack, slot
from hwopt.catalog.dates import software_of
from hwopt.catalog.load import LARGEST, leaf, positive, supported
from hwopt.catalog.plans import (
    check_experts,
    check_heads,
    check_product,
    flag,
    integer,
    integers_of,
    plan_leaves,
    settings_of,
)
from hwopt.catalog.workloads import transformer
from hwopt.errors import UserError, suggest
from hwopt.plan import Plan, ServingLayout, stage_layers
from hwopt.types import PRECISION_BYTES, PRECISIONS
from hwopt.validation import number_of
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer, cache_copies

MODES = {"serve": (1.0, 1.0), "prefill": (1.0, 0.0), "decode": (0.0, 1.0)}
"""Mode -> (1 if the machine does prefill, 1 if it does decode)."""

INPUT_TOKENS, OUTPUT_TOKENS = 2048.0, 512.0
"""Tokens of the usual request (assumption).

Published means are 1,155 and 211 in the conversations and 2,048 and 28 in the code of Azure's traces of 2023 (arXiv
2311.18677). At DeepSeek in 2025, about 4,900 tokens precede an answer."""

LOAD = 0.7
"""Utilization of disaggregated prefill chips (assumption, 0.5 to 0.9): the queue grows without bound at 1."""

DRAFT_FRACTION = 0.05
"""Time of a pass of the draft model over the target model's (assumption, 0.02 to 0.15: one of many layers, or a 20 times
smaller model)."""

ACCEPTANCE = 0.8
"""Probability that a drafted token is accepted (assumption, 0.6 to 0.9: Leviathan et al. 2022 measure 0.5 to 0.9)."""

ARRIVAL_SCV = 1.0
"""Squared coefficient of variation of inter-arrival times: 1 for many independent users (Poisson arrivals)."""

LENGTH_SCV = 1.0
"""Squared coefficient of variation of the tokens of prompts, and of answers (assumption, 0.3 to 3; 1 for exponential
lengths)."""

ROUTINGS = {"random": 0.0, "least-loaded": 1.0}
"""Routing policy of requests to replicas -> 1 if it chooses the replica with the fewest requests, else 0."""

_INTEGERS = ("tp", "pp", "dp", "ep", "expert_tp", "batch", "expert_slots", "cache_split")
_FIELDS = (*_INTEGERS, "redundant_experts", "two_batches", "sequence_parallel", "weights_gathered")
_ALIASES = {
    "etp": "expert_tp", "micro_batch": "batch", "mbs": "batch", "mb": "batch", "b": "batch", "sp": "sequence_parallel",
    "dcp": "cache_split", "tbo": "two_batches", "dbo": "two_batches", "redundant": "redundant_experts",
}  # fmt: skip
_WHOSE = " of a service"

_SERVING_STACKS = {
    "volta": "fastertransformer", "ampere": "tensorrt-llm-2023", "hopper": "tensorrt-llm-2026", "blackwell": "tensorrt-llm-2026",
    "rubin": "tensorrt-llm-2026", "tpu": "jax-serving-tpu", "trainium": "neuron-serving",
}  # fmt: skip

_STAND_IN = "tensorrt-llm-2025"
"""Software of accelerators whose own was not measured, such as AMD's and Gaudi (assumption: as good as NVIDIA's)."""


def serving_stack(chip: str | Path, date: str | None = None) -> str:
    """Return the default serving software of a chip in a month; chips without any measured software get `ideal`.

    **Arguments:** `date` as in `default_stack`.
    """
    if default_stack(chip) == "ideal":
        return "ideal"
    entry = supported("chips", chip)
    return software_of(entry, _SERVING_STACKS.get(architecture(entry), _STAND_IN), date)


def service(
    name: str | Path,
    *,
    mode: str = "serve",
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    precision: str | None = None,
    weights: str | None = None,
    kv: str | None = None,
    chips: Sequence[str | Path] = (),
    cached_fraction: float = 0.0,
    requests_per_s: float = 0.0,
    load: float = LOAD,
    drafted_tokens: float = 0.0,
    acceptance: float = ACCEPTANCE,
    draft_fraction: float = DRAFT_FRACTION,
    routing_imbalance: float = 1.0,
    arrival_scv: float = ARRIVAL_SCV,
    input_scv: float = LENGTH_SCV,
    output_scv: float = LENGTH_SCV,
    routing: str = "random",
    peak_over_mean: float = 1.0,
    capacity_in_use: float = 1.0,
    day_curve: str = "",
) -> Service:
    """Return an inference service of a model.

    **Arguments:**

    - `name`: as in `transformer`.
    - `mode`: serve (both phases), prefill or decode.
    - `input_tokens`, `output_tokens`: of the mean request.
    - `precision`: format of the layers' GEMMs; by default the published checkpoint's, see `stored_formats`, else bf16.
    - `weights`: format of stored weights; by default the GEMMs' where these are stated, else the checkpoint's.
    - `kv`: format of keys and values; by default the checkpoint's where `precision` is not stated. Otherwise it is 8 bit
      where GEMMs are narrower than 16 bit, else the GEMMs'.
    - `chips`: those that serve. GEMMs in a format that one of them has no units for run in 16 bit, with weights as stored.
    - `cached_fraction`: share of prompt tokens whose keys and values are cached.
    - `requests_per_s`: arrival rate; 0: as many as the machine can answer.
    - `load`: utilization of disaggregated prefill chips.
    - `drafted_tokens`, `acceptance`: draft tokens per step, and their acceptance probability.
    - `draft_fraction`: time of a draft pass over that of the model's pass.
    - `routing_imbalance`: load of the busiest expert rank over the mean.
    - `arrival_scv`: squared coefficient of variation of inter-arrival times.
    - `input_scv`, `output_scv`: squared coefficients of variation of tokens per prompt and per answer.
    - `routing`: policy of requests to replicas (`ROUTINGS`).
    - `peak_over_mean`: requests of the busiest hour over the day's mean.
    - `capacity_in_use`: maximum mean arrival rate, as a share of capacity.
    - `day_curve`: file with the requests of each hour, which determines `peak_over_mean`.

    **Raises:** `UserError` for unknown names and values out of range.
    """
    if day_curve:
        if peak_over_mean != 1.0:
            raise UserError(f"peak_over_mean = {peak_over_mean:g}: day_curve determines it too; keep one of them")
        peak_over_mean = max(day_curves.day_curve(day_curve))
    if not isinstance(mode, str) or mode not in MODES:
        raise UserError(f"mode '{mode}': {suggest(mode, MODES)}")
    formats = stored_formats(name, chips) if precision is None else None
    precision = precision or (formats.precision if formats else "bf16")
    place, bytes_each = slot(precision), _stored(precision)
    weight_bytes, mix = bytes_each, tuple(float(each == place) for each in PRECISIONS)
    if formats is not None:
        weight_bytes, mix, kv = formats.weight_bytes, formats.gemm_precision, kv or formats.kv
    prefills, decodes = MODES[mode]
    drafted = _not_negative("drafted_tokens", drafted_tokens)
    if drafted != round(drafted):
        raise UserError(f"drafted_tokens = {drafted:g} must be an integer")
    load = _share("load", load)
    if load >= 1.0:
        raise UserError(f"load = {load:g} must be below 1: the queue would grow without bound")
    cached = _share("cached_fraction", cached_fraction)
    if cached == 1.0:
        raise UserError("cached_fraction = 1 must be at most 0.999: a prompt has at least one new token")
    if not isinstance(routing, str) or routing not in ROUTINGS:
        raise UserError(f"routing '{routing}': {suggest(routing, ROUTINGS)}")
    in_use = _share("capacity_in_use", capacity_in_use)
    if in_use == 0.0:
        raise UserError("capacity_in_use = 0 must be above 0 and at most 1")
    tokens_in = INPUT_TOKENS if input_tokens is None else input_tokens
    tokens_out = OUTPUT_TOKENS if output_tokens is None else output_tokens
    numbers = {
        "input_tokens": positive(tokens_in, "input_tokens", least=1.0),
        "cached_fraction": cached,
        "output_tokens": positive(tokens_out, "output_tokens", least=1.0),
        "prefills": prefills,
        "decodes": decodes,
        "requests_per_s": _not_negative("requests_per_s", requests_per_s),
        "load": load,
        "drafted_tokens": drafted,
        "acceptance": _share("acceptance", acceptance),
        "draft_fraction": _share("draft_fraction", draft_fraction),
        "gemm_precision": mix,
        "weight_bytes": _stored(weights) if weights else weight_bytes,
        "kv_bytes": _stored(kv or ("fp8" if bytes_each < 2.0 else precision)),
        "activation_bytes": max(2.0, bytes_each),
        "routing_imbalance": positive(routing_imbalance, "routing_imbalance", least=1.0),
        "arrival_scv": _scv("arrival_scv", arrival_scv),
        "input_scv": _scv("input_scv", input_scv),
        "output_scv": _scv("output_scv", output_scv),
        "least_loaded": ROUTINGS[routing],
        "peak_over_mean": positive(peak_over_mean, "peak_over_mean", least=1.0),
        "capacity_in_use": in_use,
    }
    return Service(model=transformer(name), **{field: leaf(value) for field, value in numbers.items()})


def _stored(precision: str) -> float:
    return PRECISION_BYTES[PRECISIONS.index(slot(precision))]


def _not_negative(name: str, value: float) -> float:
    value = number_of(name, value)
    if not (math.isfinite(value) and value >= 0.0):
        raise UserError(f"{name} = {value:g} must be a finite number of at least 0")
    if value > LARGEST:
        raise UserError(f"{name} = {value:g} lies outside 0 .. {LARGEST:g}; is the unit right?")
    return value


MOST_SCV = 100.0
"""Maximum squared coefficient of variation. Larger ones are unit errors (a percentage, a variance in tokens)."""


def _scv(name: str, value: float) -> float:
    value = _not_negative(name, value)
    if value > MOST_SCV:
        raise UserError(
            f"{name} = {value:g} lies outside 0 .. {MOST_SCV:g}: it is the squared coefficient of variation, 1 for a Poisson "
            "process"
        )
    return value


def _share(name: str, value: float) -> float:
    value = number_of(name, value)
    if not 0.0 <= value <= 1.0:
        raise UserError(f"{name} = {value:g} must lie between 0 and 1")
    return value


def parse_serving_plan(text: str) -> dict[str, str]:
    """Return a plan text such as `tp=8,batch=64` as a dictionary of full field names.

    **Raises:** `UserError` for a part that is not `name=value`, and for an unknown or repeated name.
    """
    return settings_of(text, _FIELDS, _ALIASES, "tp=8,batch=64", _WHOSE)


def serving_plan(workload: Service, chips: float, **settings: object) -> Plan:
    """Return a checked integer serving plan for a number of chips.

    **Arguments:** settings by name, with values as numbers or text:

    - `tp`, `pp`, `ep`: parallel degrees (default 1). Attention is data-parallel where experts are spread over more
      chips than tp.
    - `dp`: replicas (default: the remaining factor of the chips).
    - `expert_tp`: default tp without expert parallelism, 1 with it.
    - `batch`: sequences, or prompts in prefill mode, per pass of each replica (default 1). A replica of p stages has p
      such batches.
    - `sequence_parallel`: norms and residuals are split over tp (default no).
    - `weights_gathered`: weights are sharded over replicas and gathered layer by layer, for large prefill batches
      (default no).
    - `redundant_experts`: copies per group of ep ranks, in addition to one of each expert (default 0); ep must divide
      the total.
    - `expert_slots`: experts and copies per rank, instead of `redundant_experts`.
    - `two_batches`: a batch runs in two halves; expert exchanges of one overlap with compute of the other (default no).
    - `cache_split`: ranks with copies of the same keys and values that store a part of the tokens each instead (default
      1).

    **Raises:** `UserError` that names the field, where a value is not a positive integer or does not divide.
    """
    degrees = integers_of(settings, _FIELDS, _INTEGERS, _WHOSE)
    total = integer("chips", chips)
    tp, pp, ep = (degrees.get(name, 1) for name in ("tp", "pp", "ep"))
    model = workload.model
    check_heads(model, tp)
    if "dp" not in degrees and total % (tp * pp):
        raise UserError(f"plan: tp x pp = {tp * pp} does not divide {total} chips")
    dp = degrees.get("dp") or total // (tp * pp)
    check_product(total, tp, pp, dp, 1)
    expert_tp = degrees.get("expert_tp") or (1 if ep > 1 else tp)
    layers = round(float(model.layers))
    if pp > layers + 2:
        raise UserError(f"plan: pp={pp} exceeds the {layers} layers, embedding and head")
    redundant = _redundant(model, ep, settings.get("redundant_experts"), degrees.get("expert_slots"))
    check_experts(model, ep, expert_tp, tp * dp, "tp x dp", redundant)
    layout = _layout(model, tp, ep, redundant, degrees, settings.get("two_batches"))
    fullest, last = stage_layers(layers, pp, 1)
    values = {
        "tp": tp, "pp": pp, "dp": dp, "ep": ep, "expert_tp": expert_tp, "micro_batch": degrees.get("batch", 1),
        "fullest_stage": fullest, "last_stage": last,
        "sequence_parallel": flag("sequence_parallel", settings.get("sequence_parallel"), default=False),
        "weights_sharded": flag("weights_gathered", settings.get("weights_gathered"), default=False),
    }  # fmt: skip
    return plan_leaves({name: leaf(value) for name, value in values.items()} | layout)


def _redundant(model: Transformer, ep: int, value: object, slots: int | None) -> int:
    """Return the number of redundant experts.

    **Raises:** `UserError` for a dense model, for a single expert rank, and for more than two extra copies of each
    expert.
    """
    count = 0 if value is None else integer("redundant_experts", value, least=0)
    experts = round(float(model.experts))
    if slots is not None:
        if slots * ep < experts or not experts:
            raise UserError(f"plan: expert_slots={slots} on ep={ep} ranks hold {slots * ep} of the {experts} experts")
        if value is not None and count != slots * ep - experts:
            raise UserError(
                f"plan: expert_slots={slots} on ep={ep} ranks are {slots * ep - experts} redundant experts, not {count}"
            )
        count = slots * ep - experts
    if count and not experts:
        raise UserError(f"plan: redundant_experts={count}, but the model is dense: it has no experts")
    if count and ep == 1:
        raise UserError(f"plan: redundant_experts={count} need ep > 1: a single rank has no load to balance")
    if count > 2 * experts:
        raise UserError(f"plan: redundant_experts={count} exceed two further copies of each of the {experts} experts")
    return count


def _layout(
    model: Transformer, tp: int, ep: int, redundant: int, degrees: Mapping[str, int], two_batches: object
) -> dict[str, ServingLayout]:
    """Return the serving layout under the key `layout`; an empty dictionary for a plan without special layout.

    **Raises:** `UserError` for two half-batches without expert parallelism or of a single sequence. It is also raised
    for a cache split that does not divide the number of ranks with the same keys and values.
    """
    two, split = flag("two_batches", two_batches, default=False), degrees.get("cache_split", 1)
    if two and ep == 1:
        raise UserError(
            "plan: two_batches=yes overlaps expert communication, which ep=1 does not have: set ep, or remove two_batches"
        )
    if two and degrees.get("batch", 1) < 2:
        raise UserError("plan: two_batches=yes needs batch=2 or more: a single sequence cannot be split")
    if (copies := cache_copies(model, tp)) % split:
        raise UserError(
            f"plan: cache_split={split} does not divide the {copies} ranks of tp={tp} that hold the same keys and values"
        )
    if not redundant and not two and split == 1:
        return {}
    slots = (round(float(model.experts)) + redundant) / ep
    return {"layout": ServingLayout(leaf(slots), leaf(two), leaf(float(split)))}
