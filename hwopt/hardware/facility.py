"""The building and the servers around the chips: power, electricity, carbon."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Facility(eqx.Module):
    """What turns chip power into power at the meter, and energy into money and carbon."""

    pue: Scalar  # facility power over IT power
    host_power_w: Scalar  # CPU, memory, NIC, fans, conversion per chip at full load
    idle_host_fraction: Scalar  # share of host power drawn without work
    electricity_usd_per_j: Scalar
    carbon_kg_per_j: Scalar
    construction_usd_per_w: Scalar  # facility capex per watt of IT load
    construction_lifetime_s: Scalar
