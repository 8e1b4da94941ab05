"""The fastest whole-number plan of a fixed cluster, by evaluating every valid one of a stated lattice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax
import numpy as np

from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.optim.whole_plans import divisors
from hwopt.plan import Plan, stage_layers
from hwopt.workload.training import TrainingRun

BLOCK = 2048
"""Plans evaluated at a time; the last block is padded, so one compiled function serves all."""

_LONG_SEQUENCE = 16384  # tokens from which context parallelism is tried


def _degrees(run: TrainingRun, cluster: Cluster) -> Iterator[tuple[int, ...]]:
    """Valid (tp, pp, dp, cp, ep, chunks, micro-batch)."""
    model = run.model
    heads, layers, experts = (round(float(x)) for x in (model.heads, model.layers, model.experts))
    batch, chips = round(float(run.global_batch_sequences)), round(float(cluster.chips))
    sequence = round(float(run.sequence_length))
    contexts = [c for c in (1, 2, 4, 8, 16) if c == 1 or (sequence >= _LONG_SEQUENCE and sequence % c == 0)]
    tensor = [t for t in divisors(heads) if t <= 64 and chips % t == 0]
    expert = [e for e in divisors(experts) if e <= 128] if experts else [1]
    for tp, cp in itertools.product(tensor, contexts):
        for pp in (p for p in divisors(chips // tp) if p <= layers and chips % (tp * p * cp) == 0):
            dp = chips // (tp * pp * cp)
            for micro_batch in (b for b in (1, 2, 4, 8, 16) if batch % (dp * b) == 0):
                micro_batches = batch // (dp * micro_batch)
                chunks = [v for v in (1, 2, 3, 4, 6, 8, 12, 16) if v == 1 or (pp > 1 and pp * v <= layers)]
                for v in chunks:
                    if v > 1 and micro_batches < pp:
                        continue
                    for ep in expert:
                        if (tp * cp * dp) % (ep * (1 if ep > 1 else tp)) == 0:
                            yield tp, pp, dp, cp, ep, v, micro_batch


def lattice(run: TrainingRun, cluster: Cluster) -> dict[str, np.ndarray]:
    """Every valid plan as columns named like the fields of `Plan`.

    Degrees as divisors of heads, chips, experts and batch; one to sixteen chunks; micro-batches of 1 to 16; recomputation
    none or full; states sharded as ZeRO-1 or ZeRO-3.

    **Raises:** `UserError` where nothing divides.
    """
    layers = round(float(run.model.layers))
    rows = []
    for tp, pp, dp, cp, ep, v, micro_batch in _degrees(run, cluster):
        fullest, last = stage_layers(layers, pp, v)
        for recompute, weights in itertools.product((0.0, 1.0), (0.0, 1.0)):
            if weights and (pp > 1 or dp * cp == 1):
                continue  # gathering weights for every micro-batch of a pipeline never pays
            expert_tp = 1 if ep > 1 else tp
            rows.append(
                (tp, pp, dp, cp, ep, expert_tp, v, micro_batch, fullest, last, float(tp > 1), 1.0, weights, weights, 1.0,
                 recompute, 0.0, 1.0)
            )  # fmt: skip
    if not rows:
        raise UserError(
            f"no plan divides {float(cluster.chips):,.0f} chips, {float(run.model.heads):g} heads and a global batch of "
            f"{float(run.global_batch_sequences):,.0f} sequences: choose chips with small factors or another batch"
        )
    columns = np.asarray(rows, np.float64).T
    return dict(zip(Plan.__dataclass_fields__, columns, strict=True))


def fastest_plan(run: TrainingRun, cluster: Cluster) -> Plan:
    """The fastest plan of the lattice that fits; where none fits, the one closest to fitting.

    Call under `jax.enable_x64(True)` for float64. **Raises:** `UserError` where no plan is valid.
    """
    columns = lattice(run, cluster)
    count = len(next(iter(columns.values())))

    @jax.jit
    def evaluate(plans: Plan):
        report = jax.vmap(lambda plan: estimate(run, cluster, plan))(plans)
        return report.step_time_s, report.feasible, report.margins.memory

    times, feasible, margins = [], [], []
    for first in range(0, count, BLOCK):
        index = np.minimum(np.arange(first, first + BLOCK), count - 1)
        block = evaluate(Plan(**{name: column[index] for name, column in columns.items()}))
        for found, part in zip((times, feasible, margins), block, strict=True):
            found.append(np.asarray(part))
    time, fits, margin = (np.concatenate(parts)[:count] for parts in (times, feasible, margins))
    best = int(np.argmin(np.where(fits > 0, time, np.inf)) if fits.any() else np.argmax(margin))
    return Plan(**{name: column[best] for name, column in columns.items()})
