"""Plan features that a framework's settings cannot express: declared once, for the exporter and for the plan search."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from hwopt.output.export.mechanisms import dimensions
from hwopt.output.text.plans import integral
from hwopt.workload.service import Service


class Limit(NamedTuple):
    """Feature of a plan that a framework's settings cannot express.

    - `broken`: function of `features` that returns whether a plan has the feature. It accepts numbers, and arrays of plans.
    - `words`: the feature in words, with features by name in braces.
    """

    broken: Callable[[Any], Any]
    words: str


TRAINING = (
    Limit(lambda f: f.weights_offloaded, "weights streamed from the memory pool (weights_offloaded)"),
    Limit(lambda f: f.activations_offloaded, "stored activations in the memory pool (activations_offloaded)"),
    Limit(lambda f: f.local_steps != 1.0, "synchronization only every {local_steps} steps (local_steps)"),
    Limit(lambda f: f.bubble_fraction != 1.0, "a schedule with a smaller bubble than 1F1B (bubble_fraction)"),
)
"""Limits of all training frameworks, unless they declare an exception."""

SERVING = (
    Limit(lambda f: f.weights_sharded, "weights gathered layer by layer (ZeRO-3)"),
    Limit(lambda f: f.cp > 1.0, "context parallelism (cp = {cp})"),
    Limit(
        lambda f: f.ranks % f.tp,
        "ep x expert_tp = {ep} x {expert_tp} with tp = {tp}: experts must be spread over all ranks of one or more tensor "
        "parallel groups",
    ),
    Limit(
        lambda f: (f.scan_heads % f.tp > 0) | ((f.scan_key_heads > 1) & (f.scan_key_heads % f.tp > 0)),
        "tp = {tp} with {scan_heads} heads of scans in {scan_key_heads} groups: it must divide both",
    ),
)
"""Limits of all serving engines.

**Source:** of scans: vLLM, `MambaMixer2` and `GatedDeltaNetAttention`, which split both by tp; SGLang and TensorRT-LLM do the same
(recalled).
"""


def features(workload: Any, plan: Any) -> Any:
    """Return a plan's variables, the model's dimensions, and what follows from both, by name.

    **Arguments:** `plan`: one plan of one group of chips, or arrays of plans, shape (plan,) per leaf.
    """
    parts = {**vars(dimensions(workload.model)), **vars(plan)}
    left_out = ("layout", "differing")
    values = {
        name: np.asarray(value, np.float64)
        for name, value in parts.items()
        if value is not None and name not in left_out
    }
    f: Any = SimpleNamespace(model=workload.model, **values)
    if isinstance(workload, Service):
        moe, layout = float(f.moe_layers) > 0.0, plan.layout
        f.ranks = f.ep * f.expert_tp if moe else f.tp
        f.attention_dp = f.ranks / f.tp
        f.two_batches, f.cache_split = (0.0, 1.0) if layout is None else (layout.two_batches, layout.cache_split)
        f.redundant_experts = 0.0 if layout is None or not moe else np.round(layout.expert_slots * f.ep - f.experts)
        f.drafted = float(workload.drafted_tokens) * float(workload.decodes)
        return f
    f.zero = f.optimizer_sharded + f.gradients_sharded + f.weights_sharded
    f.length, f.batch = float(workload.sequence_length), float(workload.global_batch_sequences)
    f.micro_batches = f.batch / (f.dp * f.micro_batch)
    f.chunks = f.pp * f.virtual_stages
    return f


def refusal(limits: Iterable[Limit], workload: Any, plan: Any) -> str:
    """Return the first feature of a plan that cannot be expressed, in words; empty where the plan can be expressed."""
    for each in plan.groups.values():
        f = features(workload, each)
        shown = integral({name: value for name, value in vars(f).items() if name != "model"})
        for limit in limits:
            if limit.broken(f):
                return limit.words.format(**shown)
    return ""


def expressible(limits: Iterable[Limit], workload: Any, plans: Any) -> np.ndarray:
    """Return which plans can be expressed, shape (plan,). **Arguments:** `plans`: arrays of plans of one group of chips."""
    f = features(workload, plans)
    broken = [np.broadcast_to(np.asarray(limit.broken(f), bool), f.tp.shape) for limit in limits]
    return ~np.any(broken, axis=0)
