"""Settings of a serving plan that any engine needs: copies, ranks, sequences, tokens, lengths and formats by chip group."""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from hwopt.model.serving.batch import Batch
from hwopt.model.serving.steady_state import fullest_passes
from hwopt.output.text.plans import integral
from hwopt.plan import Disaggregated, Plan
from hwopt.types import PRECISIONS
from hwopt.workload.service import Service

LENGTH_DEVIATIONS = 4.0
"""Standard deviations above the mean that a prompt or an answer may be long (assumption, range 3 to 6).

Of exponentially distributed lengths a share `e^-5`, 7 in 1,000, are longer.
"""

_ROUNDING = 1e-6
"""Relative tolerance that keeps float32 rounding from increasing a number of tokens when it is rounded up to an integer."""


@dataclass(frozen=True)
class EngineGroup:
    """Group of chips as serving engines count it: copies of an instance, each of several interdependent ranks.

    An MoE instance has `attention_dp` attention ranks of `tp` chips each, with sequences of their own.
    It has one set of experts over all of these chips: `ep x expert_tp = tp x attention_dp`. Sequences and tokens are per rank.
    """

    role: str  # serve, prefill or decode
    instances: int
    tp: int
    pp: int
    attention_dp: int
    ep: int
    expert_tp: int
    batch: int  # sequences in one pass; prompts for prefill
    tokens: int  # tokens of the fullest pass
    length: int  # tokens of the longest request
    drafted: int  # drafted tokens a pass
    moe: bool
    redundant_experts: int
    two_batches: bool
    cache_split: int  # ranks that share the keys and values of a head
    norms_spread: bool
    precision: str  # format of the GEMMs
    weight_bytes: float
    kv_bytes: float
    sparse_latent: bool  # sparse latent attention, by an indexer
    checkpoint: str = ""  # format of the published weights, where it is not 16 or 32 bit
    checkpoint_bytes: float = math.nan  # of one of them, on average; not a number where that is not known

    @property
    def sequences(self) -> int:
        """Return the number of sequences of one rank on all pipeline stages, one micro-batch each."""
        return self.batch * self.pp

    @property
    def chips(self) -> int:
        """Return the number of chips of an instance."""
        return self.tp * self.pp * self.attention_dp


def longest_request(service: Service) -> int:
    """Return the maximum tokens of a request.

    It is the sum of `m (1 + 4 c)` over prompt and answer. Here m is the mean length, and c is the square root of the lengths'
    SCV
    (squared coefficient of variation).
    """
    parts = ((service.input_tokens, service.input_scv), (service.output_tokens, service.output_scv))
    return sum(math.ceil(float(mean) * (1.0 + LENGTH_DEVIATIONS * math.sqrt(float(scv)))) for mean, scv in parts)


def groups_of(service: Service, plan: Plan | Disaggregated) -> list[EngineGroup]:
    """Return the chip groups of a serving plan: one if colocated, else those of prefill and of decode."""
    batches = fullest_passes(service, plan)
    if isinstance(plan, Disaggregated):
        return [
            _group("prefill", service, plan.prefill, batches[1]),
            _group("decode", service, plan.decode, batches[0]),
        ]
    prompts, answers = bool(float(service.prefills)), bool(float(service.decodes))
    return [_group("serve" if prompts and answers else "prefill" if prompts else "decode", service, plan, batches[0])]


def _group(role: str, service: Service, plan: Plan, batch: Batch) -> EngineGroup:
    p: Any = SimpleNamespace(**integral({name: value for name, value in vars(plan).items() if name != "layout"}))
    layout: Any = SimpleNamespace(**integral(vars(plan.layout))) if plan.layout is not None else None
    moe = bool(float(service.model.moe_layers))
    tp, pp, dp = p.tp, p.pp, p.dp
    ranks = p.ep * p.expert_tp if moe else tp
    decodes = role != "prefill"
    drafted = round(float(service.drafted_tokens)) if decodes else 0
    return EngineGroup(
        role=role,
        instances=dp * tp // ranks,
        tp=tp,
        pp=pp,
        attention_dp=ranks // tp,
        ep=p.ep if moe else 1,
        expert_tp=p.expert_tp if moe else 1,
        batch=p.micro_batch,
        tokens=math.ceil(float(batch.rows) * (1.0 - _ROUNDING)),
        length=longest_request(service),
        drafted=drafted,
        moe=moe,
        redundant_experts=round(layout.expert_slots * p.ep - float(service.model.experts)) if moe and layout else 0,
        two_batches=bool(layout and layout.two_batches),
        cache_split=layout.cache_split if layout else 1,
        norms_spread=bool(p.sequence_parallel) and tp > 1,
        precision=PRECISIONS[int(np.argmax(np.asarray(service.gemm_precision)))],
        weight_bytes=float(service.weight_bytes),
        kv_bytes=float(service.kv_bytes),
        sparse_latent=service.model.index_heads is not None and float(service.model.kv_rank) > 0.0,
    )
