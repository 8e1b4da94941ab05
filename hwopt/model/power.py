"""Power: what a chip may draw, what it draws on average, and what the meter of the facility sees.

For catalogue chips the law below returns the datasheet's TDP at nominal clock; the full activity-based model will
take its place behind the same three functions.
"""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.chip import Chip
from hwopt.hardware.cluster import Cluster
from hwopt.types import Scalar


def voltage_ratio(chip: Chip) -> Scalar:
    """Supply voltage over nominal: `V = V_t + kappa f`, i.e. `v + (1 - v) f/f_0` with v = V_t/V_0.

    **Source:** the linear upper bound of the alpha-power law (Sakurai and Newton 1990); keeps log-log convexity.
    """
    v = chip.threshold_voltage_fraction
    return v + (1.0 - v) * chip.clock_ratio


def core_full_load_w(chip: Chip) -> Scalar:
    """Dynamic power of the compute die at full load: `P_0 (V/V_0)^2 f/f_0`."""
    return chip.core_power_w * voltage_ratio(chip) ** 2 * chip.clock_ratio


def chip_peak_w(chip: Chip) -> Scalar:
    """What one chip may draw: idle + core at full load + HBM at full bandwidth."""
    hbm = chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
    return chip.idle_power_w + core_full_load_w(chip) + hbm


def network_w(cluster: Cluster) -> Scalar:
    """Power of links, switches and optics outside the chip, per chip; they draw it loaded or not.

    `sum_i B_i e_i` over tiers.
    """
    network = cluster.network
    return jnp.sum(network.bandwidth_bytes_per_s * network.energy_j_per_byte)


def it_peak_w(cluster: Cluster) -> Scalar:
    """IT power to provide for one chip: the chip, its share of the host and of the network."""
    return chip_peak_w(cluster.chip) + cluster.facility.host_power_w + network_w(cluster)


def it_average_w(cluster: Cluster, busy_fraction: Scalar) -> Scalar:
    """IT power of one chip averaged over a step: idle parts always, dynamic parts while kernels run."""
    chip, facility = cluster.chip, cluster.facility
    dynamic = chip_peak_w(chip) - chip.idle_power_w
    host = facility.host_power_w * (facility.idle_host_fraction + (1.0 - facility.idle_host_fraction) * busy_fraction)
    return chip.idle_power_w + dynamic * busy_fraction + host + network_w(cluster)


def facility_peak_w(cluster: Cluster) -> Scalar:
    """Power at the meter with every chip at full load: `N PUE IT`. The budget of a site."""
    return cluster.chips * cluster.facility.pue * it_peak_w(cluster)


def facility_average_w(cluster: Cluster, busy_fraction: Scalar) -> Scalar:
    """Power at the meter averaged over a step: what the electricity bill counts."""
    return cluster.chips * cluster.facility.pue * it_average_w(cluster, busy_fraction)
