"""What any serving engine must be told of a plan: copies, ranks, sequences, tokens, lengths and formats of each group of chips."""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from hwopt.errors import UserError
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.steady_state import fullest_passes
from hwopt.output.text.plans import integral
from hwopt.plan import Disaggregated, Plan
from hwopt.types import PRECISIONS
from hwopt.workload.service import Service

LENGTH_DEVIATIONS = 4.0
"""Standard deviations above the mean that a prompt, and an answer, may be long (assumption, 3 to 6): of exponential lengths
`e^-5`, seven in a thousand, are longer."""

_ROUNDING = 1e-6
"""Relative error of rows computed in float32."""


@dataclass(frozen=True)
class EngineGroup:
    """A group of chips as engines count it: copies of an instance, each of some ranks that need one another.

    An instance of MoE holds `attention_dp` ranks of attention, each of `tp` chips with sequences of its own, and one set of
    experts over all of their chips: `ep x expert_tp = tp x attention_dp`. Sequences and tokens are those of one rank.
    """

    role: str  # serve, prefill or decode
    instances: int
    tp: int
    pp: int
    attention_dp: int
    ep: int
    expert_tp: int
    batch: int  # sequences, or prompts, in one pass
    tokens: int  # of the fullest pass
    length: int  # of the longest request
    drafted: int  # tokens a pass
    moe: bool
    redundant_experts: int
    two_batches: bool
    cache_split: int  # ranks that hold keys and values of a head together
    norms_spread: bool
    precision: str  # of GEMMs
    weight_bytes: float
    kv_bytes: float
    checkpoint: str = ""  # format of the published weights, where it is not 16 or 32 bit

    @property
    def sequences(self) -> int:
        """Sequences of one rank, on all stages: a micro-batch each."""
        return self.batch * self.pp

    @property
    def chips(self) -> int:
        """Chips of an instance."""
        return self.tp * self.pp * self.attention_dp


def longest_request(service: Service) -> int:
    """Tokens that a request may have: `sum of m (1 + 4 c)` over prompt and answer, c the root of the SCV of lengths of mean m."""
    parts = ((service.input_tokens, service.input_scv), (service.output_tokens, service.output_scv))
    return sum(math.ceil(float(mean) * (1.0 + LENGTH_DEVIATIONS * math.sqrt(float(scv)))) for mean, scv in parts)


def groups_of(service: Service, plan: Plan | Disaggregated) -> list[EngineGroup]:
    """Groups of chips of a plan that serves: one, or that of prompts and that of answers.

    **Raises:** `UserError` for a layout that no engine here has: weights gathered layer by layer, experts on some ranks of a
    tensor parallel group.
    """
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
    words = f"ep x expert_tp = {p.ep} x {p.expert_tp} = {ranks} beside tp = {tp}"
    if p.weights_sharded:
        raise UserError("weights gathered layer by layer: engines keep every weight where it is used")
    if p.cp > 1:
        raise UserError(f"cp = {p.cp}: context parallelism of a service is not written to launch files")
    if ranks % tp:
        raise UserError(f"{words}: experts lie on all ranks of a tensor parallel group, or on several whole groups")
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
    )
