"""Cluster at its operating point, and the report outputs that all workloads share.

The operating point is computed, or given by a solver. A system with several chip types has a `Machine` for each type. The
fields of the report declare how their values combine.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model.chip import export_limits
from hwopt.model.chip.roofline import fastest_peak
from hwopt.model.chip.sustained_clock import clock_under_load
from hwopt.model.chip.thermal import OperatingPoint, lifted_point, operating_point
from hwopt.model.facility import cost, power, rack, reliability
from hwopt.model.network import switch_counts
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.report import FEASIBILITY_TOLERANCE, LEAST, MOST, SUM, Report, ServingMargins, TrainingMargins
from hwopt.model.report import outputs as declared
from hwopt.model.serving.footprint import ServingFootprint
from hwopt.model.training.footprint import Footprint
from hwopt.model.training.schedule import Breakdown
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import total_parameters


class Lifted(eqx.Module):
    """Lifted variables: values that the model otherwise computes as roots or as a minimizer."""

    junction_k: Scalar  # at full load
    useful_tokens: Scalar  # tokens that would reach the run's loss in the limit of small batches
    checkpoint_interval_s: Scalar
    prefill_junction_k: Scalar | None = None  # of the prefill chips, where these are of another type

    @property
    def groups(self) -> "tuple[Lifted, ...]":
        """The lifted variables of each chip type, those of the decode chips first."""
        other = self.prefill_junction_k
        return (self,) if other is None else (self, replace(self, junction_k=other))


class LiftedMargins(eqx.Module):
    """Signed logarithmic margins of the lifted variables. The variables are feasible where all margins are zero or more."""

    heat: Scalar  # given junction temperature over the temperature that its power causes
    learning: Scalar  # fresh tokens processed over those needed for the given useful tokens
    storage: Scalar  # checkpoint interval over the time that storage needs for a checkpoint


class Machine(NamedTuple):
    """Cluster at its operating point, with power and capital cost."""

    cluster: Cluster  # with the storage that its workload needs
    point: OperatingPoint
    heat_margin: Scalar  # `heat` of `LiftedMargins`; 1 where the model computes the operating point itself
    stops: reliability.Interruptions  # of a job on all chips
    powered: Scalar  # chips under power: those of the job and hot spares
    it_peak_w: Scalar  # peak IT power of one chip with its share of the rack's other equipment
    fed_w: Scalar  # total IT power at full load, including hot spares and storage
    standing_w: Scalar  # IT power at no load, storage and hot spares included
    pue: Scalar
    design_pue: Scalar
    capital: cost.Capital


def stocked(cluster: Cluster, workload: TrainingRun | Service) -> Cluster:
    """Return the cluster with the storage capacity that a workload needs.

    - Training: `base + copies x tokens x bytes per token + checkpoints x checkpoint bytes`. Data that is read several times is
      counted each time, an upper bound.
    - Serving: `base + copies x weights`.

    It does not depend on the number of chips. A sum of products, thus log-log convex.
    """
    storage, parameters = cluster.storage, total_parameters(workload.model)
    if isinstance(workload, TrainingRun):
        data = workload.tokens * workload.input_bytes_per_token
        kept = storage.checkpoints * reliability.checkpoint_bytes(parameters, workload)
    else:
        data, kept = parameters * workload.weight_bytes, 0.0
    capacity = storage.capacity_bytes + storage.data_copies * data + kept
    return eqx.tree_at(lambda c: c.storage.capacity_bytes, cluster, capacity)


def machine(cluster: Cluster, given: Lifted | None, workload: TrainingRun | Service | None = None) -> Machine:
    """Return a cluster at its operating point, with power, PUE and capital cost.

    **Arguments:**

    - `cluster`: the cluster at its requested clock.
    - `given`: values of the lifted variables; None to compute the operating point.
    - `workload`: the workload that the storage is sized for; None for the storage that any cluster has.
    """
    if workload is not None:
        cluster = stocked(cluster, workload)
    if given is None:
        point, margin = operating_point(cluster.chip, cluster.cooling), jnp.ones_like(cluster.chips)
    else:
        point, margin = lifted_point(cluster.chip, cluster.cooling, given.junction_k)
    it_peak_w = power.it_w(cluster, point, power.FULL_LOAD)
    stops = reliability.interruptions(cluster, cluster.chips, point.junction_k)
    powered, storage_w = reliability.powered_chips(cluster, stops), power.storage_w(cluster)
    fed_w = powered * it_peak_w + storage_w
    return Machine(
        cluster,
        point,
        margin,
        stops,
        powered,
        it_peak_w,
        fed_w,
        powered * power.idle_it_w(cluster, point) + storage_w,
        power.pue(cluster.facility, cluster.cooling),
        power.design_pue(cluster.facility, cluster.cooling),
        cost.capital(cluster, fed_w, powered),
    )


def added(parts: Sequence[Scalar]) -> Scalar:
    """Return the sum of a nonempty sequence, starting from its first entry instead of an integer 0."""
    return sum(parts[1:], start=parts[0])


def least(values: Sequence[Scalar]) -> Scalar:
    """Return the smallest of several margins."""
    return reduce(lambda a, b: -hard_maximum(-a, -b), values)


_TOGETHER = {SUM: jnp.add, MOST: hard_maximum, LEAST: lambda a, b: least((a, b))}


def _joint(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine outputs of several groups of chips by the rule (`joint`) that the report declares for each field.

    Fields without a rule keep the value of the first group.
    """
    known = declared(Report)
    return {
        name: reduce(_TOGETHER[known[name].joint], [each[name] for each in groups]) if known[name].joint else value
        for name, value in groups[0].items()
    }


def _mean(values: Sequence[Scalar], weights: Sequence[Scalar]) -> Scalar:
    """Return the weighted mean over groups of chips; for one group exactly its value."""
    if len(values) == 1:
        return values[0]
    return added([weight * value for value, weight in zip(values, weights, strict=True)]) / added(weights)


def _standing(it: Machine) -> dict[str, Any]:
    """Return the outputs of a machine that do not depend on its workload."""
    cluster, point, chip = it.cluster, it.point, it.cluster.chip
    return {
        "clock_margin": point.clock_margin,
        "junction_temperature_k": point.junction_k,
        "heat_flux_w_per_m2": point.power_w / chip.heat_area_m2,
        "chip_power_w": point.power_w,
        "rack_power_w": rack.built_chips(cluster) * it.it_peak_w,
        "racks": rack.racks(cluster),
        "servers": cluster.chips / cluster.rack.server_chips,
        "lanes": cluster.chips * switch_counts.lanes_per_chip(cluster),
        "nics": cluster.chips * switch_counts.ports_per_chip(cluster),
        "switches": cluster.chips * switch_counts.switches_per_chip(cluster),
        "floor_area_m2": rack.floor_area_m2(cluster),
        "hot_spares": it.powered - cluster.chips,
        "peak_power_w": it.design_pue * it.fed_w,
        "site_power_w": it.design_pue * it.fed_w / cluster.sites.count,
        "capex_usd": cost.capex_usd(cluster, it.capital),
        "silicon_area_m2": chip.silicon_area_m2,
        "total_processing_performance": export_limits.total_processing_performance(chip),
        "performance_density_per_m2": export_limits.performance_density_per_m2(chip),
        "io_rate_bytes_per_s": export_limits.io_rate_bytes_per_s(chip, cluster.network),
        "hbm_stacks": cluster.chips * chip.hbm_stacks,
        "package_area_m2": cluster.chips * chip.package_area_m2,
        "wafers": cluster.chips * chip.wafers,
    }


def outputs(
    machines: Sequence[Machine],
    workload: TrainingRun | Service,
    *,
    clock_ratio: Scalar,
    parameters: Scalar,
    active_parameters: Scalar,
    tokens_per_s: Scalar,
    useful_flops_per_s: Scalar,
    executed_over_useful: Scalar,
    memory: Footprint | ServingFootprint,
    memory_capacity_bytes: Scalar,
    breakdown: Breakdown,
    margins: TrainingMargins | ServingMargins,
) -> dict[str, Any]:
    """Return the outputs that all reports have in common, by field name.

    **Arguments:**

    - `machines`: a machine for each chip type.
    - `clock_ratio`: mean sustained clock over the nominal clock.
    - `useful_flops_per_s`: model FLOPs per second and chip.
    - `executed_over_useful`: executed FLOPs, with recomputation or rejected drafts, over model FLOPs.
    - Others: values of the report fields of the same name.
    """
    counts = [it.cluster.chips for it in machines]
    chips = added(counts)
    mfu = useful_flops_per_s / _mean([fastest_peak(it.cluster.chip, workload) for it in machines], counts)
    parts = jnp.stack(list(breakdown))
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    fed = [it.fed_w for it in machines]
    return _joint([_standing(it) for it in machines]) | {
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_chip": tokens_per_s / chips,
        "mfu": mfu,
        "hfu": mfu * executed_over_useful,
        "model_flops_per_chip_per_s": useful_flops_per_s,
        "memory": memory,
        "memory_per_chip_bytes": memory.total_bytes,
        "memory_capacity_bytes": memory_capacity_bytes,
        "clock_ratio": clock_ratio,
        "pue": _mean([it.pue for it in machines], fed),
        "design_pue": _mean([it.design_pue for it in machines], fed),
        "parameters": parameters,
        "active_parameters": active_parameters,
        "breakdown": breakdown,
        "bottleneck": jnp.argmax(parts, axis=0).astype(parts.dtype),
        "margins": margins,
        "feasible": jnp.all(fits).astype(parts.dtype),
    }


def margins(machines: Sequence[Machine]) -> dict[str, Scalar]:
    """Return the workload-independent margins of machines by name, each the smallest over machines."""
    each = [_margins(it) for it in machines]
    return {name: reduce(_TOGETHER[LEAST], [of[name] for of in each]) for name in each[0]}


def _margins(it: Machine) -> dict[str, Scalar]:
    cluster, link = it.cluster, it.cluster.chip.nic_link_bytes_per_s
    stated = link > 0.0
    nic = jnp.log(jnp.where(stated, link, 1.0) / cluster.network.bandwidth_bytes_per_s[1])
    return {
        "nic": jnp.where(stated, nic, jnp.inf),
        "cooling": it.point.cooling_margin,
        "rack_power": jnp.log(rack.rack_limit_w(cluster) / (rack.built_chips(cluster) * it.it_peak_w)),
        "rack_cables": rack.cables_margin(cluster),
        "rack_weight": jnp.log(cluster.rack.weight_limit_kg / rack.rack_weight_kg(cluster)),
    }


def running(cluster: Cluster, point: OperatingPoint, *, settles: bool) -> Cluster:
    """Return the cluster at work, with network distances that follow from its racks.

    **Arguments:**

    - `point`: operating point of the chip.
    - `settles`: whether groups of kernels find their own sustained clocks; otherwise the clock stays as given.
    """
    chip = clock_under_load(cluster.chip, point) if settles else cluster.chip
    return eqx.tree_at(lambda c: (c.chip, c.network), cluster, (chip, rack.spread_out(cluster)))
