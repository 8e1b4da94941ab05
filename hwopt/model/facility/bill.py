"""Bill of materials of a cluster: count, unit price and full-load power of each part.

Every price and every watt of `hwopt.model.facility.cost` and `hwopt.model.facility.power` appears in exactly one line. The sums
are thus capital cost and peak power at the meter.
"""

from typing import NamedTuple

import jax.numpy as jnp

from hwopt.hardware.cluster import Cluster
from hwopt.model import machine
from hwopt.model.facility import cost, power, rack
from hwopt.model.network import switch_counts
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun

_PER_TB = 1e-12
"""Terabytes per byte."""


class BillLine(NamedTuple):
    """One line of the bill of materials. **Units:** USD and W per part, at full load."""

    count: Scalar
    unit_usd: Scalar
    unit_w: Scalar


def bill_lines(cluster: Cluster, workload: TrainingRun | Service | None = None) -> dict[str, BillLine]:
    """Return the bill of materials of a cluster by part name; a count may be 0.

    **Arguments:** `workload`: the workload that the storage is sized for.

    Sums of `count x unit` are `capex_usd` and `peak_power_w`. Spares are equipment on shelves, without power. Power of fans,
    supplies, cooling and conversion is counted per watt that they serve. All prices are 0 for a user who rents.
    """
    chip, network, prices, facility = cluster.chip, cluster.network, cluster.prices, cluster.facility
    n, servers, stands = cluster.chips, cluster.chips / cluster.rack.server_chips, rack.racks(cluster)
    it = machine.machine(cluster, None, workload)
    storage = it.cluster.storage
    stored_tb, rate = storage.capacity_bytes * _PER_TB, storage.checkpoint_bytes_per_s_per_chip
    point, it_w, built = it.point, it.it_peak_w, it.capital
    boards_w = it_w * (1.0 - cluster.cooling.fan_fraction) * facility.supply_efficiency
    pool_usd, paid = cost.pool_usd(cluster), prices.owned
    bandwidth, watts = network.bandwidth_bytes_per_s, network.bandwidth_bytes_per_s * network.energy_j_per_byte
    dollars = bandwidth * prices.network_usd_per_byte_per_s
    levels = rack.domain_levels(cluster)
    lanes, ports = switch_counts.lanes_per_chip(cluster), switch_counts.ports_per_chip(cluster)
    switches = switch_counts.switches_per_chip(cluster)
    switched, each_switch = jnp.where(switches > 0.0, 1.0, 0.0), jnp.where(switches > 0.0, switches, 1.0)
    switch_usd = switched * jnp.sum((dollars * network.switch_price_share)[1:])
    switch_w = switched * jnp.sum((watts * network.switch_power_share)[1:])
    stacks = jnp.where(chip.hbm_stacks > 0.0, chip.hbm_stacks, 1.0)  # unstated: counts as one stack
    memory_usd, memory_w = (
        cost.chip_usd(cluster) - prices.chip_base_usd,
        chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte,
    )
    bought, spare = it.powered + n * prices.spares_fraction, it.powered - n
    # The racks of the working chips hold those that a job leaves idle, which therefore pay for no rack.
    in_racks = (rack.chips_in_racks(cluster) - n) / rack.built_chips(cluster) * cluster.rack.price_usd
    ordered = cost.ordered_chips(cluster, bought)
    each_usd = (built.equipment - built.storage - built.redesign - (ordered - bought) * cost.chip_usd(cluster)) / bought
    own_w = chip.standby_power_w + point.leakage_w + point.core_w
    none = jnp.zeros_like(n)
    lines = {
        "chips": BillLine(n, prices.chip_base_usd, own_w),
        "HBM stacks": BillLine(n * stacks, memory_usd / stacks, memory_w / stacks),
        "scale-up lanes": BillLine(n * lanes, levels * dollars[0] / lanes, levels * watts[0] / lanes),
        "domain cabling": BillLine(n, prices.domain_usd_per_chip * network.size[0] / prices.reference_domain, none),
        "optics beyond racks": BillLine(
            n * rack.optical_share(cluster),
            bandwidth[0] * cluster.rack.optics_usd_per_byte_per_s,
            bandwidth[0] * cluster.rack.optics_energy_j_per_byte,
        ),
        "NICs and cables": BillLine(
            n * ports, (dollars[1] + dollars[2] - switch_usd) / ports, (watts[1] + watts[2] - switch_w) / ports
        ),
        "switches": BillLine(n * switches, switch_usd / each_switch, switch_w / each_switch),
        "hosts": BillLine(
            servers, prices.host_usd * cluster.rack.server_chips, facility.host_power_w * cluster.rack.server_chips
        ),
        "memory pool": BillLine(n, pool_usd, power.pool_w(cluster)),
        "racks": BillLine(stands, cluster.rack.price_usd, none),
        "spares": BillLine(n * prices.spares_fraction, each_usd, none),
        "hot spares": BillLine(spare, each_usd - in_racks / jnp.where(spare > 0.0, spare, 1.0), it_w),
        "chips of the minimum order unused": BillLine(ordered - bought, cost.chip_usd(cluster), none),
        "redesign of the chip": BillLine(jnp.ones_like(n), prices.redesign_usd, none),
        "storage, TB": BillLine(
            stored_tb, storage.usd_per_byte / _PER_TB, storage.power_w_per_byte / _PER_TB
        ),
        "storage bandwidth, per chip": BillLine(
            n, rate * storage.usd_per_byte_per_s, rate * storage.energy_j_per_byte
        ),
        "fans and supplies": BillLine(stands, none, cluster.rack.chips * (it_w - boards_w)),
        "building, W of IT": BillLine(
            it.fed_w,
            cost.building_usd_per_w(cluster),
            power.design_pue(facility, cluster.cooling) - 1.0,
        ),
        "further sites": BillLine(cluster.sites.count - 1.0, cluster.sites.fixed_usd, none),
    }  # fmt: skip
    return {name: line._replace(unit_usd=paid * line.unit_usd) for name, line in lines.items()}
