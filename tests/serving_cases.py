"""Random but plausible services on the clusters of `tests.cases`, with plans that serve them: one group of chips, or two."""

from __future__ import annotations

import jax
import numpy as np

from hwopt.catalog.plans import plan_leaves
from hwopt.hardware.cluster import Cluster
from hwopt.plan import Disaggregated, Plan
from hwopt.types import PRECISIONS
from hwopt.workload.service import Service
from hwopt.workload.transformer import Transformer
from tests.cases import random_cases, replace, take

MODES = ("serve", "prefill", "decode", "disaggregated")
"""What one group of chips does, or two."""

_PHASES = {"serve": (1.0, 1.0), "prefill": (1.0, 0.0), "decode": (0.0, 1.0), "disaggregated": (1.0, 1.0)}


def _log(rng, low, high, n: int) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), n))


def random_services(rng: np.random.Generator, model: Transformer, mode: str, headroom: bool = False) -> Service:
    """A service for each model: requests of 16 to 200,000 tokens, weights from 4 to 16 bit, a half with drafts.

    **Arguments:** `headroom`: whether half of them leave some of what the machine can answer unused, and have a busiest hour.
    """
    n = len(model.layers)
    prefills, decodes = _PHASES[mode]
    native = rng.choice(["bf16", "bf16", "fp8", "fp4"], n)
    precision = (native[:, None] == np.array(PRECISIONS)).astype(float)
    mixed = rng.uniform(size=n) < 0.15
    precision[mixed] = 0.5 * precision[mixed] + 0.5 * (np.array(PRECISIONS) == "bf16")
    stored = np.select([native == "fp4", native == "fp8"], [0.5, 1.0], 2.0)
    narrower = rng.uniform(size=n) < 0.2  # weights alone
    return Service(
        model=model,
        input_tokens=np.where(rng.uniform(size=n) < 0.5, np.round(_log(rng, 16, 2e5, n)), _log(rng, 16, 2e5, n)),
        cached_fraction=np.where(rng.uniform(size=n) < 0.5, 0.0, rng.uniform(0, 0.95, n)),
        output_tokens=np.where(rng.uniform(size=n) < 0.5, np.round(_log(rng, 1, 2e4, n)), _log(rng, 1, 2e4, n)),
        prefills=np.full(n, prefills),
        decodes=np.full(n, decodes),
        requests_per_s=np.zeros(n),
        load=rng.uniform(0.3, 0.95, n),
        drafted_tokens=rng.choice([0.0, 0.0, 0.0, 1.0, 3.0, 7.0], n),
        acceptance=rng.choice([0.0, 0.3, 0.8, 1.0], n),
        draft_fraction=rng.uniform(0.0, 0.15, n),
        gemm_precision=precision,
        weight_bytes=np.where(narrower, np.minimum(stored, 0.5), stored),
        kv_bytes=rng.choice([0.5, 1.0, 2.0], n),
        activation_bytes=np.full(n, 2.0),
        routing_imbalance=np.where(model.experts > 0, rng.uniform(1, 1.6, n), 1.0),
        **_unlike(np.random.default_rng(n), n, headroom),
    )


def _unlike(rng: np.random.Generator, n: int, headroom: bool) -> dict[str, np.ndarray]:
    """How requests differ and come, and what is kept free for them; of a half nothing is stated."""
    plain = rng.uniform(size=n) < 0.5
    either = lambda usual, other: np.where(plain, usual, other)
    return {
        "arrival_scv": either(1.0, rng.uniform(0.2, 8.0, n)),
        "input_scv": either(1.0, rng.uniform(0.1, 2.0, n)),
        "output_scv": either(1.0, rng.uniform(0.1, 2.0, n)),
        "least_loaded": either(0.0, rng.choice([0.0, 1.0], n)),
        "peak_over_mean": either(1.0, rng.uniform(1.0, 3.0, n)) if headroom else np.ones(n),
        "capacity_in_use": either(1.0, rng.uniform(0.3, 1.0, n)) if headroom else np.ones(n),
    }


def random_plans(rng: np.random.Generator, w: Transformer, batches: tuple[float, float]) -> Plan:
    """Whole or fractional degrees of 1 to about 4,096 chips; a third of the degrees are exactly 1."""
    n = len(w.layers)
    whole = rng.uniform(size=n) < 0.6
    near = lambda x: np.where(whole, np.round(x), x)
    chance = lambda share: rng.uniform(size=n) < share
    tp = np.where(chance(0.35), 1.0, near(np.minimum(_log(rng, 1, 128, n), w.heads)))
    pp = np.where(chance(0.5), 1.0, near(np.clip(_log(rng, 1, 16, n), 1.0, np.maximum(np.floor(w.layers), 1.0))))
    dp = np.where(chance(0.3), 1.0, near(_log(rng, 1, 256, n)))
    inside = tp * dp
    ep = np.maximum(near(np.minimum(w.experts, inside) ** rng.uniform(0, 1, n)), 1.0)
    ep = np.where(w.experts > 0, np.minimum(ep, inside), 1.0)
    room = np.where(whole, np.floor(inside / ep), 0.9 * inside / ep)
    fullest = np.where((pp > 1) & chance(0.5), 1.0 + rng.uniform(0, 0.5, n), 1.0)
    least = np.maximum(pp - fullest * (pp - 1.0), 0.0)  # the other stages hold at most `fullest` each
    return plan_leaves(
        dict(
            tp=tp,
            pp=pp,
            dp=dp,
            ep=ep,
            expert_tp=np.where(chance(0.5), 1.0, np.maximum(np.minimum(tp, room), 1.0)),
            micro_batch=np.where(chance(0.2), 1.0, near(_log(rng, *batches, n))),
            fullest_stage=fullest,
            last_stage=np.where(fullest > 1, least + (fullest - least) * rng.uniform(0, 1, n), 1.0),
        )
    )


def chips_of(plan: Plan | Disaggregated) -> np.ndarray:
    """Chips of a plan."""
    if isinstance(plan, Disaggregated):
        return chips_of(plan.prefill) + chips_of(plan.decode)
    return plan.tp * plan.pp * plan.dp


def serving_cases(
    rng: np.random.Generator, n: int, kind: str | None = None, mode: str = "serve", headroom: bool = False
) -> tuple[Service, Cluster, Plan | Disaggregated]:
    """n cases, stacked along the first axis of every leaf; `kind` one of `tests.cases.KINDS`, or a mix of all."""
    run, cluster, _ = random_cases(rng, n, kind)
    prompts, sequences = (1.0, 16.0), (1.0, 1024.0)
    plan = random_plans(rng, run.model, prompts if mode == "prefill" else sequences)
    if mode == "disaggregated":
        plan = Disaggregated(prefill=random_plans(rng, run.model, prompts), decode=plan)
    used = chips_of(plan)
    cluster = replace(cluster, chips=np.where(rng.uniform(size=n) < 0.9, used, used * _log(rng, 0.5, 2, n)))
    service = random_services(rng, run.model, mode, headroom)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (service, cluster, plan))


def serving_case(rng: np.random.Generator, kind: str | None = None, mode: str = "serve"):
    """One case with scalar float64 leaves."""
    return take(serving_cases(rng, 1, kind, mode), 0)
