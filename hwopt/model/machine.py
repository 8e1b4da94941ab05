"""What a machine is whatever runs on it, as every report states it; and the operating state it is in, found or given."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import cost, export, fabric, power, rack, reliability
from hwopt.model.footprint import Footprint
from hwopt.model.pace import at_work
from hwopt.model.report import FEASIBILITY_TOLERANCE, ServingMargins, TrainingMargins
from hwopt.model.roofline import fastest_peak
from hwopt.model.schedule import Breakdown
from hwopt.model.serving.footprint import ServingFootprint
from hwopt.model.thermal import OperatingPoint, lifted_point, operating_point
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun


class Lifted(eqx.Module):
    """What the model finds as roots and as a minimum, given."""

    junction_k: Scalar  # at full load
    useful_tokens: Scalar  # what vanishing batches would need for the run's loss
    checkpoint_interval_s: Scalar


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


def outputs(
    it: Machine,
    workload: TrainingRun | Service,
    *,
    clock_ratio: Scalar,
    parameters: Scalar,
    active_parameters: Scalar,
    tokens_per_s: Scalar,
    useful_flops_per_s: Scalar,
    executed_over_useful: Scalar,
    memory: Footprint | ServingFootprint,
    breakdown: Breakdown,
    margins: TrainingMargins | ServingMargins,
) -> dict[str, Any]:
    """What every report states in the same way. **Arguments:** `clock_ratio`, mean; `useful_flops_per_s` of a chip."""
    cluster, point, chip = it.cluster, it.point, it.cluster.chip
    mfu = useful_flops_per_s / fastest_peak(chip, workload)
    parts = jnp.stack(list(breakdown))
    fits = jnp.stack([value >= -FEASIBILITY_TOLERANCE for value in jax.tree.leaves(margins)])
    return {
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_chip": tokens_per_s / cluster.chips,
        "mfu": mfu,
        "hfu": mfu * executed_over_useful,
        "model_flops_per_chip_per_s": useful_flops_per_s,
        "memory": memory,
        "memory_per_chip_bytes": memory.total_bytes,
        "memory_capacity_bytes": chip.hbm_capacity_bytes,
        "clock_ratio": clock_ratio,
        "clock_margin": point.clock_margin,
        "junction_temperature_k": point.junction_k,
        "heat_flux_w_per_m2": point.power_w / chip.heat_area_m2,
        "chip_power_w": point.power_w,
        "rack_power_w": cluster.rack.chips * it.it_peak_w,
        "racks": rack.racks(cluster),
        "servers": cluster.chips / cluster.rack.server_chips,
        "lanes": cluster.chips * fabric.lanes_per_chip(cluster),
        "nics": cluster.chips * fabric.ports_per_chip(cluster),
        "switches": cluster.chips * fabric.switches_per_chip(cluster),
        "floor_area_m2": rack.floor_area_m2(cluster),
        "pue": it.pue,
        "design_pue": it.design_pue,
        "hot_spares": it.hot_spares,
        "peak_power_w": it.design_pue * it.fed_w,
        "site_power_w": it.design_pue * it.fed_w / cluster.sites.count,
        "capex_usd": cost.capex_usd(cluster, it.capital),
        "silicon_area_m2": chip.silicon_area_m2,
        "total_processing_performance": export.total_processing_performance(chip),
        "performance_density_per_m2": export.performance_density_per_m2(chip),
        "io_rate_bytes_per_s": export.io_rate_bytes_per_s(chip, cluster.network),
        "hbm_stacks": cluster.chips * chip.hbm_stacks,
        "package_area_m2": cluster.chips * chip.package_area_m2,
        "wafers": cluster.chips * chip.wafers,
        "parameters": parameters,
        "active_parameters": active_parameters,
        "breakdown": breakdown,
        "bottleneck": jnp.argmax(parts, axis=0).astype(parts.dtype),
        "margins": margins,
        "feasible": jnp.all(fits).astype(parts.dtype),
    }


def margins(it: Machine) -> dict[str, Scalar]:
    """The margins of a machine that say nothing of the work."""
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
    chip = at_work(cluster.chip, point) if settles else cluster.chip
    return eqx.tree_at(lambda c: (c.chip, c.network), cluster, (chip, rack.spread_out(cluster)))
