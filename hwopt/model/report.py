"""What `estimate` returns: named metrics, breakdowns and signed margins, all floating arrays."""

from __future__ import annotations

import math

import equinox as eqx

from hwopt.model.footprint import Footprint
from hwopt.model.schedule import Breakdown
from hwopt.types import Scalar


class Margins(eqx.Module):
    """Signed logarithmic margins, `log(limit / used)`: zero or more is feasible."""

    memory: Scalar  # HBM capacity over the footprint
    chips: Scalar  # cluster's chips over the plan's; zero when the plan uses them all
    stages: Scalar  # layers, embedding and head over stages times chunks
    tensor_parallel: Scalar  # heads over the tensor parallel degree
    experts: Scalar  # experts (or 1) over the expert parallel degree
    replicas: Scalar  # chips of a stage over those that hold one copy of its experts
    batch: Scalar  # global batch over one micro-batch of every replica
    context: Scalar  # sequence length over the context parallel degree


class Report(eqx.Module):
    """Metrics of one cluster under one plan. Every leaf is a floating array, scalar unless mapped."""

    step_time_s: Scalar
    tokens_per_s: Scalar
    tokens_per_s_per_chip: Scalar
    mfu: Scalar  # model FLOPs (causal attention, no recomputation) over the peak of the run's formats
    hfu: Scalar  # the same with recomputation
    model_flops_per_chip_per_s: Scalar
    memory_per_chip_bytes: Scalar
    memory_capacity_bytes: Scalar
    power_w: Scalar  # at the meter, average over a step
    peak_power_w: Scalar  # at the meter, every chip at full load
    chip_power_w: Scalar  # one chip at full load
    energy_per_token_j: Scalar
    carbon_per_token_kg: Scalar
    capex_usd: Scalar
    cost_per_token_usd: Scalar
    run_time_s: Scalar  # all tokens of the run, without failures
    run_cost_usd: Scalar
    run_energy_j: Scalar
    parameters: Scalar
    active_parameters: Scalar
    breakdown: Breakdown
    hidden_s: Scalar
    memory: Footprint
    margins: Margins
    bottleneck: Scalar  # index of the largest entry of `breakdown`
    feasible: Scalar  # 1 where every margin is zero or more

    def bottleneck_name(self) -> str:
        """Name of the largest part of the step; concrete (unmapped) reports only."""
        return Breakdown._fields[int(self.bottleneck)].removesuffix("_s")

    def violations(self) -> dict[str, float]:
        """Violated constraints of a concrete report: name -> how far over the limit, as a fraction of it."""
        over = {name: -float(getattr(self.margins, name)) for name in self.margins.__dataclass_fields__}
        return {name: math.expm1(value) for name, value in over.items() if value > FEASIBILITY_TOLERANCE}


FEASIBILITY_TOLERANCE = 1e-6
"""Relative violation that still counts as feasible: rounding of float32 and of products of whole numbers."""
