"""What a machine is whatever runs on it, as every report states it; and the operating state it is in, found or given.

A machine of several kinds of chips is a `Machine` each: what they are together is declared by the fields of the report.
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


class Lifted(eqx.Module):
    """What the model finds as roots and as a minimum, given."""

    junction_k: Scalar  # at full load
    useful_tokens: Scalar  # what vanishing batches would need for the run's loss
    checkpoint_interval_s: Scalar
    prefill_junction_k: Scalar | None = None  # of the chips for prompts, where these are of another kind

    @property
    def groups(self) -> "tuple[Lifted, ...]":
        """The state of each kind of chips, that of answers first."""
        other = self.prefill_junction_k
        return (self,) if other is None else (self, replace(self, junction_k=other))


class LiftedMargins(eqx.Module):
    """Signed logarithmic margins of what is given: all zero or more is a state that the cluster and the run can hold."""

    heat: Scalar  # junction temperature over the one that its power leads to
    learning: Scalar  # fresh tokens processed over those that the useful ones take
    storage: Scalar  # time between saves over what storage takes for one


class Machine(NamedTuple):
    """A cluster at its operating point."""

    cluster: Cluster
    point: OperatingPoint
    heat_margin: Scalar  # as of `LiftedMargins`; 1 where the point is the model's own
    stops: reliability.Interruptions  # of a job on all chips
    hot_spares: Scalar  # chips that stand started beside the job
    it_peak_w: Scalar  # of one chip with its share of all else in its rack
    fed_w: Scalar  # IT power of all at full load, hot spares and storage too
    standing_w: Scalar  # IT power of hot spares and storage, on average
    pue: Scalar
    design_pue: Scalar
    capital: cost.Capital


def machine(cluster: Cluster, given: Lifted | None) -> Machine:
    """Power, PUE and capital of a cluster. **Arguments:** `cluster` as it is asked for; its state, where it is `given`."""
    if given is None:
        point, margin = operating_point(cluster.chip, cluster.cooling), jnp.ones_like(cluster.chips)
    else:
        point, margin = lifted_point(cluster.chip, cluster.cooling, given.junction_k)
    it_peak_w = power.it_w(cluster, point, power.FULL_LOAD)
    stops = reliability.interruptions(cluster, cluster.chips, point.junction_k)
    spares, storage_w = reliability.hot_spares(cluster, cluster.chips, stops), cluster.chips * power.storage_w(cluster)
    fed_w = (cluster.chips + spares) * it_peak_w + storage_w
    return Machine(
        cluster,
        point,
        margin,
        stops,
        spares,
        it_peak_w,
        fed_w,
        spares * power.idle_it_w(cluster, point) + storage_w,
        power.pue(cluster.facility, cluster.cooling),
        power.design_pue(cluster.facility, cluster.cooling),
        cost.capital(cluster, fed_w, spares),
    )


def added(parts: Sequence[Scalar]) -> Scalar:
    """A sum that begins with its first part."""
    return sum(parts[1:], start=parts[0])


def least(values: Sequence[Scalar]) -> Scalar:
    """The least of some margins."""
    return reduce(lambda a, b: -hard_maximum(-a, -b), values)


_TOGETHER = {SUM: jnp.add, MOST: hard_maximum, LEAST: lambda a, b: least((a, b))}


def _joint(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What groups of chips have together, as the fields of a report declare it; of what is a mean that of the first."""
    known = declared(Report)
    return {
        name: reduce(_TOGETHER[known[name].joint], [each[name] for each in groups]) if known[name].joint else value
        for name, value in groups[0].items()
    }


def _mean(values: Sequence[Scalar], weights: Sequence[Scalar]) -> Scalar:
    """A mean over groups of chips; of one its value."""
    if len(values) == 1:
        return values[0]
    return added([weight * value for value, weight in zip(values, weights, strict=True)]) / added(weights)


def _standing(it: Machine) -> dict[str, Any]:
    """What a machine is and draws before any work."""
    cluster, point, chip = it.cluster, it.point, it.cluster.chip
    return {
        "clock_margin": point.clock_margin,
        "junction_temperature_k": point.junction_k,
        "heat_flux_w_per_m2": point.power_w / chip.heat_area_m2,
        "chip_power_w": point.power_w,
        "rack_power_w": cluster.rack.chips * it.it_peak_w,
        "racks": rack.racks(cluster),
        "servers": cluster.chips / cluster.rack.server_chips,
        "lanes": cluster.chips * switch_counts.lanes_per_chip(cluster),
        "nics": cluster.chips * switch_counts.ports_per_chip(cluster),
        "switches": cluster.chips * switch_counts.switches_per_chip(cluster),
        "floor_area_m2": rack.floor_area_m2(cluster),
        "hot_spares": it.hot_spares,
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
    """What every report states in the same way.

    **Arguments:** a machine for each kind of chip; `clock_ratio`, mean; `useful_flops_per_s` of a chip.
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
    """The margins of machines that say nothing of the work, the least of all."""
    each = [_margins(it) for it in machines]
    return {name: reduce(_TOGETHER[LEAST], [of[name] for of in each]) for name in each[0]}


def _margins(it: Machine) -> dict[str, Scalar]:
    cluster = it.cluster
    return {
        "cooling": it.point.cooling_margin,
        "rack_power": jnp.log(rack.rack_limit_w(cluster) / (cluster.rack.chips * it.it_peak_w)),
        "rack_cables": rack.cables_margin(cluster),
        "rack_weight": jnp.log(cluster.rack.weight_limit_kg / rack.rack_weight_kg(cluster)),
    }


def running(cluster: Cluster, point: OperatingPoint, *, settles: bool) -> Cluster:
    """The cluster at work, with the distances its racks put between chips.

    **Arguments:** whether kernels settle at clocks of their own, or all run at the point's.
    """
    chip = clock_under_load(cluster.chip, point) if settles else cluster.chip
    return eqx.tree_at(lambda c: (c.chip, c.network), cluster, (chip, rack.spread_out(cluster)))
