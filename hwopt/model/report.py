"""What `estimate` returns: named metrics, breakdowns and signed margins, all floating arrays."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx

from hwopt.model.footprint import Footprint
from hwopt.model.schedule import Breakdown
from hwopt.types import Scalar


class Margins(eqx.Module):
    """Signed logarithmic margins, `log(limit / used)`: zero or more is feasible."""

    memory: Scalar  # HBM capacity over the footprint
    pool: Scalar  # capacity of the memory pool over what is offloaded; 0 where nothing is
    chips: Scalar  # cluster's chips over the plan's; zero when the plan uses them all
    stages: Scalar  # layers, embedding and head over stages times chunks
    tensor_parallel: Scalar  # heads over the tensor parallel degree
    experts: Scalar  # experts (or 1) over the expert parallel degree
    replicas: Scalar  # chips of a stage over those that hold one copy of its experts
    sites: Scalar  # replicas over sites: each holds at least one
    batch: Scalar  # global batch over one micro-batch of every replica
    context: Scalar  # sequence length over the context parallel degree
    cooling: Scalar  # power a chip may draw over what it draws at its lowest clock
    rack_power: Scalar  # power a rack may draw over what its chips do at full load
    rack_cables: Scalar  # cross-section of copper that a rack has room for over what its scale-up links take
    rack_weight: Scalar  # weight the floor carries over the rack's
    failures: Scalar  # share of time that may be lost to failures over the one that is


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
    pool_per_chip_bytes: Scalar  # offloaded to the memory pool
    clock_ratio: Scalar  # sustained, over nominal
    clock_margin: Scalar  # log of allowed over drawn power at the clock asked for: negative where the chip throttles
    junction_temperature_k: Scalar  # at full load
    heat_flux_w_per_m2: Scalar  # mean over the dies under the lid, at full load
    chip_power_w: Scalar  # one chip at full load
    rack_power_w: Scalar  # one rack at full load
    racks: Scalar
    floor_area_m2: Scalar
    pue: Scalar
    power_w: Scalar  # at the meter, average over a step
    peak_power_w: Scalar  # at the meter, every chip at full load
    site_power_w: Scalar  # the same at one of several sites
    goodput: Scalar  # share of time that failures and checkpoints leave
    mean_time_between_failures_s: Scalar
    checkpoint_interval_s: Scalar
    energy_per_token_j: Scalar  # this and what follows count the time lost to failures
    carbon_per_token_kg: Scalar  # operational and embodied
    capex_usd: Scalar
    cost_per_token_usd: Scalar
    run_time_s: Scalar
    run_cost_usd: Scalar
    run_energy_j: Scalar
    run_carbon_kg: Scalar
    loss: Scalar  # nats a token, by the run's loss law
    silicon_area_m2: Scalar  # of one chip
    hbm_stacks: Scalar  # of the cluster, as the next two
    package_area_m2: Scalar
    wafers: Scalar
    parameters: Scalar
    active_parameters: Scalar
    breakdown: Breakdown
    hidden_s: Scalar
    memory: Footprint
    margins: Margins
    bottleneck: Scalar  # index of the largest entry of `breakdown`
    feasible: Scalar  # 1 where every margin is zero or more

    BOUNDS = (
        "memory", "stages", "tensor_parallel", "experts", "replicas", "batch", "context", "cooling", "rack_power",
        "rack_weight", "failures",
    )  # fmt: skip
    """Margins that bound every design; the chips' margin holds by construction (dp follows from them)."""

    def bottleneck_name(self) -> str:
        """Name of the largest part of the step; concrete (unmapped) reports only."""
        return Breakdown._fields[int(self.bottleneck)].removesuffix("_s")

    def violations(self) -> dict[str, float]:
        """Violated constraints of a concrete report: name -> how far over the limit, as a fraction of it."""
        return violations(self.margins)


def violations(margins: Any) -> dict[str, float]:
    """Violated ones of concrete margins: name -> how far over the limit, as a fraction of it."""
    over = {name: -float(getattr(margins, name)) for name in margins.__dataclass_fields__}
    return {name: math.expm1(value) for name, value in over.items() if value > FEASIBILITY_TOLERANCE}


FEASIBILITY_TOLERANCE = 1e-6
"""Relative violation that still counts as feasible: rounding of float32 and of products of whole numbers."""
