"""Power of servers and racks at full load and on average, and power at the facility's meter."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array

from hwopt.hardware.cluster import Cluster
from hwopt.hardware.facility import Cooling, Facility
from hwopt.model.chip.thermal import OperatingPoint
from hwopt.model.facility.rack import domain_levels, optical_share
from hwopt.types import Scalar


class Activity(NamedTuple):
    """Activity of chips during a step, mean over chips and time; 1 at full load."""

    core: Array  # arithmetic over that at full load, weighted by its energy
    memory: Array  # HBM traffic over the attainable bandwidth
    kernels: Array  # share of the time in which kernels run


_ONE: Any = np.ones((), np.float32)  # a NumPy array: importing this module starts no JAX backend
FULL_LOAD = Activity(_ONE, _ONE, _ONE)

KERNEL_SHARE = 0.95
"""Share of the full-load power of compute dies that flows while any kernel runs; the rest follows arithmetic (fitted, 0.85 to 1).

Clocks, instruction issue and caches run at the full clock for a kernel that waits for HBM, and a chip below its power limit does
not lower its clock. The share that fits (`results/reference/power.txt`) is 1.03 for H100 and 1.27 for B200 (ML.ENERGY v3, vLLM),
and 1.1 for an A100 (vLLM). For H100 servers that train it is 0.9 and more (Newkirk et al., arXiv 2506.14551; Sustainable Metal
Cloud, MLPerf Training v4.0), except in a run of two minutes. It is at most 1, as full load draws the TDP.
"""


def network_w(cluster: Cluster) -> Scalar:
    """Return the power of links, switches and optics outside the chip, W per chip; they draw it at any load.

    `sum_i B_i e_i` over tiers, times the levels of the domain's switches; optics on the share of scale-up links that leave
    racks.
    """
    network = cluster.network
    leaving = network.bandwidth_bytes_per_s[0] * optical_share(cluster) * cluster.rack.optics_energy_j_per_byte
    tiers = network.bandwidth_bytes_per_s * network.energy_j_per_byte
    return tiers[0] * domain_levels(cluster) + tiers[1] + tiers[2] + leaving


def pool_w(cluster: Cluster) -> Scalar:
    """Return the power of a chip's share of the memory pool, W: capacity, and its link at full rate, at any load."""
    pool = cluster.pool
    return pool.capacity_bytes * pool.power_w_per_byte + pool.bandwidth_bytes_per_s * pool.energy_j_per_byte


def storage_w(cluster: Cluster) -> Scalar:
    """Return the power of the storage servers, W.

    It is a sum of two terms, one proportional to capacity and one to checkpoint bandwidth. Fans and power supplies of the storage
    are included. The storage is in separate halls, outside the racks of the chips.
    """
    storage = cluster.storage
    rate_w = cluster.chips * storage.checkpoint_bytes_per_s_per_chip * storage.energy_j_per_byte
    return storage.capacity_bytes * storage.power_w_per_byte + rate_w


def it_w(cluster: Cluster, point: OperatingPoint, activity: Activity) -> Scalar:
    """Return the IT power of one chip with its share of host, network, fans and power supplies, at the rack inlet, W.

    `idle + active`. Standby and leakage of the chip are constant; compute dies and HBM draw power by activity.
    """
    return idle_it_w(cluster, point) + active_it_w(cluster, point, activity)


def idle_it_w(cluster: Cluster, point: OperatingPoint) -> Scalar:
    """Return the load-independent IT power of a chip, W: `(chip + host + network + pool) / (1 - fans) / efficiency`.

    Host, network and pool are the chip's shares. Leakage is that at the full-load junction temperature, an upper bound.
    """
    facility = cluster.facility
    host = facility.host_power_w * facility.idle_host_fraction
    boards = cluster.chip.standby_power_w + point.leakage_w + host + network_w(cluster) + pool_w(cluster)
    return _at_inlet(cluster, boards)


def active_it_w(cluster: Cluster, point: OperatingPoint, activity: Activity) -> Scalar:
    """Return the IT power proportional to activity, W; energy in J, where `activity` is given in seconds.

    `core (k kernels + (1 - k) arithmetic) + HBM memory + host kernels`, with k = `KERNEL_SHARE`. So kernels that are bound by HBM
    draw core power for as long as they run, and a slower clock saves energy in them.
    """
    chip, facility = cluster.chip, cluster.facility
    memory = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    host = facility.host_power_w * (1.0 - facility.idle_host_fraction)
    core = KERNEL_SHARE * activity.kernels + (1.0 - KERNEL_SHARE) * activity.core
    boards = point.core_w * core + memory * activity.memory + host * activity.kernels
    return _at_inlet(cluster, boards)


def _at_inlet(cluster: Cluster, boards_w: Scalar) -> Scalar:
    return boards_w / ((1.0 - cluster.cooling.fan_fraction) * cluster.facility.supply_efficiency)


def chiller_share(
    wet_bulb_k: Scalar, spread_k: Scalar | float, approach_k: Scalar, supply_k: Scalar, range_k: Scalar
) -> Scalar:
    """Return the share of the heat that trim chillers carry: `E[clip((T_wb + approach - T_supply) / range, 0, 1)]`.

    Outside air cools the returning coolant from `T_supply + range` down to `T_wb + approach`; chillers do the rest. The wet bulb
    is normally distributed. **Not log-log convex** (it saturates at 1).

    **Arguments:** `wet_bulb_k`, `spread_k`: mean and standard deviation of the wet bulb; `approach_k`: coolant above the wet
    bulb without a chiller; `supply_k`, `range_k`: supply temperature of the coolant, and its rise up to the return.
    """
    warmer = (wet_bulb_k + approach_k - supply_k) / spread_k
    return spread_k / range_k * (_expected_excess(warmer) - _expected_excess(warmer - range_k / spread_k))


def _expected_excess(mean: Scalar) -> Scalar:
    """Return `E[max(X, 0)]` of a normal X with a standard deviation of 1: `m Phi(m) + phi(m)`."""
    return mean * ndtr(mean) + jnp.exp(-0.5 * mean * mean) / math.sqrt(2.0 * math.pi)


DESIGN_SPREAD_K = 1.0
"""Standard deviation of the design day's wet bulb, for which chillers are bought in advance, K (assumption, 0.5 to 2)."""


def pue(facility: Facility, cooling: Cooling) -> Scalar:
    """Return the annual mean PUE, power at the meter over IT power: cooling, conversion, and other loads of the building.

    `(1 + other + sum_i heat_i (plant_i + chiller_i / COP)) / efficiency` over the coolant and the room's air. Warmer
    coolant needs chillers less but makes a hotter junction. Other loads count with the cooling's `other_share`.
    """
    return _pue(facility, cooling, facility.wet_bulb_k, facility.wet_bulb_spread_k)


def design_pue(facility: Facility, cooling: Cooling) -> Scalar:
    """Return the PUE on the design day, for which feeders, transformers and chillers are sized; power budgets must cover it."""
    return _pue(facility, cooling, facility.design_wet_bulb_k, DESIGN_SPREAD_K)


def _pue(facility: Facility, cooling: Cooling, wet_bulb_k: Scalar, spread_k: Scalar | float) -> Scalar:
    """Return the PUE for a wet bulb of given mean and standard deviation."""
    coolant = cooling.approach_k, cooling.coolant_temperature_k, cooling.range_k
    room = facility.room_approach_k, facility.room_temperature_k, facility.room_range_k
    liquid, air = (chiller_share(wet_bulb_k, spread_k, *each) / facility.chiller_cop for each in (coolant, room))
    captured = cooling.captured_fraction
    heat = captured * (cooling.plant_fraction + liquid) + (1.0 - captured) * (facility.room_plant_fraction + air)
    return (1.0 + cooling.other_share * facility.other_fraction + heat) / facility.distribution_efficiency
