"""Carbon: what making the cluster emitted, by the share of its life a run takes, and what its power emits."""

from __future__ import annotations

from hwopt.hardware.cluster import Cluster
from hwopt.types import Scalar


def embodied_kg(cluster: Cluster, it_peak_w: Scalar) -> tuple[Scalar, Scalar]:
    """Carbon of making equipment (chips, hosts, network, memory pool; spares included) and building.

    **Arguments:** `it_peak_w` of one chip. **Returns:** kgCO2e of equipment, and of the building.
    """
    pool = cluster.pool.capacity_bytes * cluster.pool.carbon_kg_per_byte
    each = cluster.chip.embodied_carbon_kg + cluster.prices.host_carbon_kg + pool
    equipment = cluster.chips * (1.0 + cluster.prices.spares_fraction) * each
    return equipment, cluster.chips * it_peak_w * cluster.facility.construction_carbon_kg_per_w


def carbon_parts(cluster: Cluster, it_peak_w: Scalar, average_power_w: Scalar) -> dict[str, Scalar]:
    """Carbon of one second of the cluster: `P x grid` and `embodied_parts`.

    **Arguments:** as `embodied_kg`; `average_power_w` at the meter. **Returns:** kgCO2e/s by name.
    """
    return {"electricity": average_power_w * cluster.facility.carbon_kg_per_j} | embodied_parts(cluster, it_peak_w)


def embodied_parts(cluster: Cluster, it_peak_w: Scalar) -> dict[str, Scalar]:
    """What making the cluster emitted, by the second of its life in use: `embodied / life / occupancy`."""
    equipment, building = embodied_kg(cluster, it_peak_w)
    occupancy = cluster.prices.occupancy
    return {
        "equipment": equipment / (cluster.prices.server_lifetime_s * occupancy),
        "building": building / (cluster.facility.construction_lifetime_s * occupancy),
    }
