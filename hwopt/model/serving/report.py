"""What `estimate` returns for a service: named metrics, breakdowns and signed margins, all floating arrays."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array

from hwopt.model.report import violations
from hwopt.model.schedule import Breakdown
from hwopt.types import Scalar


class ServingFootprint(NamedTuple):
    """Bytes of the fullest chip's memory; the parts add up to the total."""

    weights_bytes: Array
    cache_bytes: Array  # keys and values of all sequences
    working_bytes: Array  # activations and logits of a pass
    reserve_bytes: Array

    @property
    def total_bytes(self) -> Array:
        return sum(self[1:], start=self[0])


class ServingMargins(eqx.Module):
    """Signed logarithmic margins, `log(limit / used)`: zero or more is feasible. Of two groups of chips the lesser."""

    memory: Scalar  # memory over weights, cache and what a pass needs
    demand: Scalar  # requests that the machine could answer over those that arrive; 0 where it takes what it can
    chips: Scalar  # cluster's chips over the plan's; zero when the plan uses them all
    stages: Scalar  # layers, embedding and head over stages
    tensor_parallel: Scalar  # heads over the tensor parallel degree
    experts: Scalar  # experts (or 1) over the expert parallel degree
    replicas: Scalar  # chips of a stage over those that hold one copy of its experts
    cooling: Scalar  # power a chip may draw over what it draws at its lowest clock
    rack_power: Scalar  # power a rack may draw over what its chips do at full load
    rack_cables: Scalar  # cross-section of copper that a rack has room for over what its scale-up links take
    rack_weight: Scalar  # weight the floor carries over the rack's


class ServingReport(eqx.Module):
    """Metrics of one machine that serves. Every leaf is a floating array, scalar unless mapped.

    A step is a pass of a micro-batch: the time between two tokens of a sequence (without drafting), or of a batch of
    prompts where nothing is generated. Tokens are generated ones there, prompts' new ones here.
    """

    step_time_s: Scalar
    tokens_per_s: Scalar
    tokens_per_s_per_chip: Scalar
    requests_per_s: Scalar
    capacity_requests_per_s: Scalar  # that the machine could answer
    time_to_first_token_s: Scalar  # 0 where no prompts are processed
    time_per_output_token_s: Scalar  # mean; this and the next two are 0 where nothing is generated
    request_time_s: Scalar  # from a request to the last token of its answer
    users: Scalar  # sequences that are being generated
    users_per_w: Scalar
    floor_time_s: (
        Scalar  # least time of a step: weights and cache read, over the bandwidth of the chips that share them
    )
    kv_transfer_s: Scalar  # of one prompt between two groups of chips
    prefill_chips: Scalar  # that take prompts alone
    decode_chips: Scalar  # the others
    mfu: Scalar  # FLOPs of accepted tokens over the peak of the service's formats, mean over chips
    hfu: Scalar  # of all tokens checked
    model_flops_per_chip_per_s: Scalar
    memory_per_chip_bytes: Scalar  # fullest chip
    memory_capacity_bytes: Scalar
    clock_ratio: Scalar  # sustained, over nominal
    clock_margin: Scalar  # log of allowed over drawn power at the clock asked for: negative where the chip throttles
    junction_temperature_k: Scalar  # at full load
    heat_flux_w_per_m2: Scalar  # mean over the dies under the lid, at full load
    chip_power_w: Scalar  # one chip at full load
    rack_power_w: Scalar  # one rack at full load
    racks: Scalar
    floor_area_m2: Scalar
    pue: Scalar
    power_w: Scalar  # at the meter, average
    peak_power_w: Scalar  # at the meter, every chip at full load
    site_power_w: Scalar  # the same at one of several sites
    goodput: Scalar  # share of time that failures leave a replica
    mean_time_between_failures_s: Scalar  # of a replica
    energy_per_token_j: Scalar  # this and what follows count the time lost to failures
    carbon_per_token_kg: Scalar  # operational and embodied
    capex_usd: Scalar
    cost_per_token_usd: Scalar
    silicon_area_m2: Scalar  # of one chip
    hbm_stacks: Scalar  # of the cluster, as the next two
    package_area_m2: Scalar
    wafers: Scalar
    parameters: Scalar
    active_parameters: Scalar
    breakdown: Breakdown
    hidden_s: Scalar
    memory: ServingFootprint
    margins: ServingMargins
    bottleneck: Scalar  # index of the largest entry of `breakdown`
    feasible: Scalar  # 1 where every margin is zero or more

    BOUNDS = (
        "memory", "demand", "stages", "tensor_parallel", "experts", "replicas", "cooling", "rack_power", "rack_weight",
    )  # fmt: skip
    """Margins that bound every design; the chips' margin holds by construction (replicas follow from them)."""

    def bottleneck_name(self) -> str:
        """Name of the largest part of the step; concrete (unmapped) reports only."""
        return Breakdown._fields[int(self.bottleneck)].removesuffix("_s")

    def violations(self) -> dict[str, float]:
        """Violated constraints of a concrete report: name -> how far over the limit, as a fraction of it."""
        return violations(self.margins)
