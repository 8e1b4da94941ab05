"""Power: what servers and racks draw at full load and on average, and what the meter of the facility sees."""

from typing import Any, NamedTuple

import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.facility import Cooling, Facility
from hwopt.model.chip.thermal import OperatingPoint
from hwopt.model.facility.rack import domain_levels, optical_share
from hwopt.types import Scalar


class Activity(NamedTuple):
    """What chips do over a step, mean over chips and time, 1 at full load."""

    core: Array  # power of compute dies over that at full load
    memory: Array  # HBM traffic over the attainable bandwidth
    host: Array  # share of the step in which kernels run


_ONE: Any = np.ones((), np.float32)  # NumPy's: importing starts no backend
FULL_LOAD = Activity(_ONE, _ONE, _ONE)


def network_w(cluster: Cluster) -> Scalar:
    """Power of links, switches and optics outside the chip, per chip; they draw it loaded or not.

    `sum_i B_i e_i` over tiers, by the levels of the domain's switches; optics on the share of scale-up links that leave racks.
    """
    network = cluster.network
    leaving = network.bandwidth_bytes_per_s[0] * optical_share(cluster) * cluster.rack.optics_energy_j_per_byte
    tiers = network.bandwidth_bytes_per_s * network.energy_j_per_byte
    return tiers[0] * domain_levels(cluster) + tiers[1] + tiers[2] + leaving


def pool_w(cluster: Cluster) -> Scalar:
    """Power of a chip's share of the memory pool: what it holds and its link at full rate, loaded or not."""
    pool = cluster.pool
    return pool.capacity_bytes * pool.power_w_per_byte + pool.bandwidth_bytes_per_s * pool.energy_j_per_byte


def storage_w(cluster: Cluster) -> Scalar:
    """Power of a chip's share of storage, in halls of its own, fans and supplies included: what it holds and how fast it may be."""
    storage = cluster.storage
    rate_w = storage.checkpoint_bytes_per_s_per_chip * storage.energy_j_per_byte
    return storage.capacity_bytes * storage.power_w_per_byte + rate_w


def it_w(cluster: Cluster, point: OperatingPoint, activity: Activity) -> Scalar:
    """IT power of one chip with its share of host, network, fans and power supplies, at the rack's inlet.

    `idle + active`. The chip: standby and leakage always, compute dies and HBM by what they do.
    """
    return idle_it_w(cluster, point) + active_it_w(cluster, point, activity)


def idle_it_w(cluster: Cluster, point: OperatingPoint) -> Scalar:
    """What a chip and its share of all else draw whatever they do: `(chip + host + network + pool) / (1 - fans) / efficiency`.

    Leakage is that of the junction at full load, an upper bound.
    """
    facility = cluster.facility
    host = facility.host_power_w * facility.idle_host_fraction
    boards = cluster.chip.standby_power_w + point.leakage_w + host + network_w(cluster) + pool_w(cluster)
    return _at_inlet(cluster, boards)


def active_it_w(cluster: Cluster, point: OperatingPoint, activity: Activity) -> Scalar:
    """What comes on top in proportion to what is done; joules, where `activity` is given in seconds."""
    chip, facility = cluster.chip, cluster.facility
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    host = facility.host_power_w * (1.0 - facility.idle_host_fraction)
    boards = point.core_w * activity.core + memory * activity.memory + host * activity.host
    return _at_inlet(cluster, boards)


def _at_inlet(cluster: Cluster, boards_w: Scalar) -> Scalar:
    return boards_w / ((1.0 - cluster.cooling.fan_fraction) * cluster.facility.supply_efficiency)


def chiller_share(facility: Facility, coolant_k: Scalar, approach_k: Scalar) -> Scalar:
    """Share of the year in which the climate alone does not cool the coolant: `Phi((T_wb + approach - T) / sigma)`.

    The wet bulb is taken as normally distributed over the year. **Not log-log convex** (it saturates at 1).
    """
    return ndtr((facility.wet_bulb_k + approach_k - coolant_k) / facility.wet_bulb_spread_k)


DESIGN_SPREAD_K = 1.0
"""Kelvin within which a design day's wet bulb is known (assumption, 0.5 to 2): chillers that it calls for are bought by then."""


def pue(facility: Facility, cooling: Cooling) -> Scalar:
    """Power at the meter over IT power, mean over the year: cooling by climate and coolant, conversion, the rest of the building.

    `(1 + other + sum_i share_i (plant_i + chiller_i / COP)) / efficiency` over the coolant and the room's air. Warmer
    coolant needs fewer chiller hours, and makes a hotter junction.
    """
    shares = (
        chiller_share(facility, cooling.coolant_temperature_k, cooling.approach_k),
        chiller_share(facility, facility.room_temperature_k, facility.room_approach_k),
    )
    return _pue(facility, cooling, *shares)


def design_pue(facility: Facility, cooling: Cooling) -> Scalar:
    """The same on the design day, which feeders, transformers and chillers are sized for: what a power budget must hold.

    The chiller carries all of its heat where `T_wb,design + approach` is above the coolant; the step is `DESIGN_SPREAD_K` wide.
    """
    wet = facility.design_wet_bulb_k
    shares = (
        ndtr((wet + cooling.approach_k - cooling.coolant_temperature_k) / DESIGN_SPREAD_K),
        ndtr((wet + facility.room_approach_k - facility.room_temperature_k) / DESIGN_SPREAD_K),
    )
    return _pue(facility, cooling, *shares)


def _pue(facility: Facility, cooling: Cooling, liquid_share: Scalar, air_share: Scalar) -> Scalar:
    """**Arguments:** shares of time in which chillers carry the heat of the coolant, and of the room's air."""
    liquid = cooling.plant_fraction + liquid_share / facility.chiller_cop
    air = facility.room_plant_fraction + air_share / facility.chiller_cop
    captured = cooling.captured_fraction
    overhead = facility.other_fraction + captured * liquid + (1.0 - captured) * air
    return (1.0 + overhead) / facility.distribution_efficiency
