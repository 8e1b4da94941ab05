"""Step times of all rows at once: one jitted, vmapped `estimate` in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.evidence.validation.conventions import StepFlops
from hwopt.evidence.validation.join import Case
from hwopt.hardware.cluster import Cluster
from hwopt.model import work
from hwopt.model.estimate import estimate
from hwopt.optim.quick_jit import quick_jit
from hwopt.plan import Plan
from hwopt.types import PRECISIONS
from hwopt.workload.training import TrainingRun

Inputs = tuple[TrainingRun, Cluster, Plan]


@dataclass(frozen=True)
class Prediction:
    """What the model says about one case."""

    step_s: float
    mfu: float  # of the peak of the row's formats
    memory_bytes: float
    memory_capacity_bytes: float
    memory_reserve_bytes: float  # of it: context, buffers, fragmentation
    flops: StepFlops
    peak_flops_per_s: float  # 16 bit, one chip
    breakdown: dict[str, float]
    recompute_full: float


def stacked(trees: Sequence) -> Any:
    """Pytrees of the same structure as one with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, np.float64) for leaf in leaves]), *trees)


def predict(cases: Sequence[Case]) -> list[Prediction]:
    """The model's answer for each case.

    Rows whose recomputation is not stated, on stacks whose users turn it on when memory is short, are estimated without,
    and where they do not fit again with all of it and then with the share of it that just fits.
    """
    if not cases:
        return []
    inputs = [(case.workload, case.cluster, case.plan) for case in cases]
    answers = _evaluate(inputs)
    retry = [i for i, case in enumerate(cases) if case.full_if_too_big and _too_big(answers[i])]
    if retry:
        # All rows again: the same shapes, so no second trace.
        everything = _evaluate(_recomputing(inputs, dict.fromkeys(retry, 1.0)))
        shares = {i: _share_that_fits(answers[i], everything[i]) for i in retry}
        answers = _evaluate(_recomputing(inputs, shares))
    return answers


def _recomputing(inputs: Sequence[Inputs], shares: dict[int, float]) -> list[Inputs]:
    """The inputs with these shares of layers recomputed."""
    changed = list(inputs)
    for i, share in shares.items():
        workload, cluster, plan = inputs[i]
        changed[i] = (workload, cluster, replace(plan, recompute_full=np.float64(share)))
    return changed


def _share_that_fits(nothing: Prediction, everything: Prediction) -> float:
    """Share of layers to recompute: memory falls linearly from `nothing` recomputed to `everything`."""
    saved = nothing.memory_bytes - everything.memory_bytes
    missing = nothing.memory_bytes - nothing.memory_capacity_bytes
    return min(missing / saved, 1.0) if saved > 0.0 else 1.0


def _too_big(answer: Prediction) -> bool:
    return answer.memory_bytes > answer.memory_capacity_bytes


@quick_jit
def _estimate_all(workload: TrainingRun, cluster: Cluster, plan: Plan) -> tuple[dict[str, Array], dict[str, Array]]:
    def one(workload: TrainingRun, cluster: Cluster, plan: Plan) -> tuple[dict[str, Array], dict[str, Array]]:
        report = estimate(workload, cluster, plan)
        tokens = workload.global_batch_sequences * workload.sequence_length
        shape = workload.model
        matrix = work.matrix_parameters(shape)
        full = work.attention_span(workload, jnp.ones_like(workload.causal_fraction))
        attention = 2.0 * full * shape.heads * (shape.qk_dim + shape.v_dim) * shape.layers
        layers = matrix - shape.vocab * shape.hidden
        values = {
            "step_s": report.step_time_s,
            "mfu": report.mfu,
            "memory_bytes": report.memory_per_chip_bytes,
            "memory_reserve_bytes": report.memory.reserve_bytes,
            "memory_capacity_bytes": report.memory_capacity_bytes,
            "products": tokens * 2.0 * (2.0 + workload.trainable_fraction) * matrix,
            "attention_full": tokens * 3.0 * attention,
            "repeated": tokens
            * (
                plan.recompute_full * (2.0 * layers + attention)
                + (1.0 - plan.recompute_full) * plan.recompute_attention * attention
            ),
            "peak": cluster.chip.peak_flops_per_s[PRECISIONS.index("bf16")],
            "recompute_full": plan.recompute_full,
        }
        return values, report.breakdown._asdict()

    return jax.vmap(one)(workload, cluster, plan)


def _evaluate(inputs: Sequence[tuple[TrainingRun, Cluster, Plan]]) -> list[Prediction]:
    with jax.enable_x64(True):
        answer = cast(Any, _estimate_all(*stacked(inputs)))
        values, parts = (jax.tree.map(np.asarray, part) for part in answer)
    return [
        Prediction(
            step_s=float(values["step_s"][i]),
            mfu=float(values["mfu"][i]),
            memory_bytes=float(values["memory_bytes"][i]),
            memory_capacity_bytes=float(values["memory_capacity_bytes"][i]),
            memory_reserve_bytes=float(values["memory_reserve_bytes"][i]),
            flops=StepFlops(*(float(values[name][i]) for name in ("products", "attention_full", "repeated"))),
            peak_flops_per_s=float(values["peak"][i]),
            breakdown={name: float(part[i]) for name, part in parts.items()},
            recompute_full=float(values["recompute_full"][i]),
        )
        for i in range(len(inputs))
    ]
