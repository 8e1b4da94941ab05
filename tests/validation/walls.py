"""How large a training run may grow within a fixed time, however many chips it gets: limits by bandwidth and by latency.

    python -m tests.validation.walls

Dense models of Llama's proportions, 20 tokens a parameter, batches at the critical batch (so twice the tokens), H100 with
the best software: nothing waits for hosts, collectives run in logarithmic time and hide. The published walls (Erdil and
Schneider-Joseph, arXiv 2411.01137: 90 days, 2e28 FLOP by data movement and about 2e31 by latency) are of another model with
its own laws of batch and shape, in which no link is slower than another and nothing stalls. With the tails of links and the stalls
of long runs, as this model has them elsewhere, walls come sooner: a third of the published arithmetic takes 109 and 162 days.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.model.training import learning
from tests import cases

SEQUENCE, HEAD, TOKENS_PER_PARAMETER = 8192, 128, 20.0
PUBLISHED_FLOP = {"bandwidth": 2e28, "latency": 2e31}
RUN_DAYS = 90.0


class Fastest(NamedTuple):
    """The fastest run of a size, with any number of chips."""

    days: float
    mfu: float
    chips: float
    plan: dict[str, int]
    days_of_most_chips: float  # of the split that takes more chips than any other


def model_of(flop: float):
    """Run and batch, in sequences, of a model that is best for so much arithmetic: 6 N D = C, D = 20 N."""
    parameters = math.sqrt(flop / (6.0 * TOKENS_PER_PARAMETER))
    tokens = TOKENS_PER_PARAMETER * parameters
    layers = max(round((parameters / 12.0 / HEAD**2) ** (1.0 / 3.0)), 1)  # h = 128 L, N = 12 L h^2
    base = catalog.training_run("llama3.1-405b", sequence_length=SEQUENCE)
    model = cases.replace(
        base.model, hidden=HEAD * layers, layers=layers, heads=layers, kv_heads=layers / 8, ffn=3.5 * HEAD * layers
    )
    batch = float(learning.critical_batch_tokens(base.law, parameters, tokens)) / SEQUENCE
    run = cases.replace(base, global_batch_sequences=batch, tokens=2.0 * tokens)
    leaves = vars(run) | {"model": model}
    return type(run)(**leaves), batch, layers


def cluster_of(unlimited: bool):
    """H100 with the best software, all links alike; `unlimited`: arithmetic, memory and links without any limit but latency."""
    held = catalog.cluster("h100-sxm", 16384)
    stack = dict(host_layer_s=0.0, step_overhead_s=0.0, logarithmic_passes=1.0, dp_overlap=1.0, pp_overlap=1.0)
    held = cases.replace(
        held, **{f"stack__{name}": value for name, value in stack.items()},
        network__latency_tail_s=np.zeros(3), network__bandwidth_spread=np.zeros(3),
        operation__stall_fraction=0.0, operation__straggler_sigma=0.0,
    )  # fmt: skip
    if not unlimited:
        return held
    chip, much = held.chip, 1e9
    return cases.replace(
        held, stack__gemm_half_size=0.0, chip__peak_flops_per_s=chip.peak_flops_per_s * much,
        chip__hbm_bandwidth_bytes_per_s=much * 1e12, chip__hbm_capacity_bytes=1e18, chip__hbm_energy_j_per_byte=0.0,
        network__bandwidth_bytes_per_s=held.network.bandwidth_bytes_per_s * much,
    )  # fmt: skip


def plans_of(layers: int, batch: float, whole_layers: bool) -> np.ndarray:
    """(tp, pp, chunks, micro-batches, dp), all but chunks and replicas in powers of two.

    **Arguments:** `whole_layers`: split over all heads, and nothing else.
    """
    powers = lambda most: [2**k for k in range(int(math.log2(most)) + 1)]
    rows = []
    for tp in powers(layers)[-1:] if whole_layers else powers(layers):
        for pp in [1] if whole_layers else powers(min(layers, 256)):
            for chunks in sorted({1, max(1, layers // pp)}) if pp > 1 else [1]:
                counts = powers(batch)
                rows += [(tp, pp, chunks, m, batch / m) for m in counts if chunks == 1 or m >= pp]
    return np.array(rows, float)


@jax.jit
def _evaluated(run, cluster, plans, chips):
    def one(plan, count):
        report = estimate(run, _with_chips(cluster, count), plan)
        return report.step_time_s, report.mfu, report.margins.memory

    return jax.vmap(one)(plans, chips)


def _with_chips(cluster, count):
    """The cluster with another number of chips."""
    return type(cluster)(**(vars(cluster) | {"chips": count}))


def fastest(flop: float, latency_only: bool) -> Fastest:
    """The fastest run of a size over all splits. `latency_only`: nothing else takes time, every layer split over its heads."""
    run, batch, layers = model_of(flop)
    rows = plans_of(layers, batch, latency_only)
    tp, pp, chunks, _, dp = rows.T
    plain = jax.tree.map(lambda leaf: np.full(len(rows), float(leaf)), catalog.plan(run, 1))
    plans = cases.replace(plain, tp=tp, expert_tp=tp, pp=pp, virtual_stages=chunks, dp=dp, sequence_parallel=1.0)
    chips = tp * pp * dp
    with jax.enable_x64(True):
        step, mfu, room = map(np.asarray, _evaluated(run, cluster_of(latency_only), plans, chips))
    steps = float(run.tokens) / (batch * SEQUENCE)
    days = np.where(room > 0.0, step * steps / 86400.0, np.inf)
    best = int(days.argmin())
    names = ("tp", "pp", "virtual_stages", "micro_batches", "dp")
    plan = dict(zip(names, map(round, rows[best]), strict=True))
    return Fastest(float(days[best]), float(mfu[best]), float(chips[best]), plan, float(days[chips.argmax()]))


def main() -> None:
    """Days of the fastest run by size."""
    for kind, low, high in (("bandwidth", 26.0, 29.0), ("latency", 30.0, 33.0)):
        print(f"{kind}: published {PUBLISHED_FLOP[kind]:.0e} FLOP in {RUN_DAYS:.0f} days")
        for exponent in np.arange(low, high + 0.1, 0.25):
            found = fastest(10.0**exponent, kind == "latency")
            words = " ".join(f"{name}={value}" for name, value in found.plan.items())
            print(
                f"  {10.0**exponent:.1e} FLOP: {found.days:8.1f} d, MFU {found.mfu:.3f}, {found.chips:.2e} chips, {words}"
            )


if __name__ == "__main__":
    main()
