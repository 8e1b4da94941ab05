"""What the hardware costs, as a price list that follows the design variables."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import PerTier, Scalar


class Prices(eqx.Module):
    """Unit prices. No design variable is free of charge: memory has $/B and $/(B/s), links $/(B/s)."""

    chip_base_usd: Scalar  # chip without memory and links
    hbm_usd_per_byte: Scalar
    hbm_usd_per_byte_per_s: Scalar  # PHY, interposer and stacks' pin speed
    network_usd_per_byte_per_s: PerTier  # links, switches, optics and NICs, per chip and direction
    domain_usd_per_chip: (
        Scalar  # cabling and backplane of the scale-up domain, per chip and per (domain / reference domain)
    )
    reference_domain: Scalar  # chips of the domain whose cabling the price above is for
    host_usd: Scalar  # server without accelerators, per chip
    server_lifetime_s: Scalar
    spares_fraction: Scalar  # extra machines bought
    maintenance_per_s: Scalar  # share of hardware capex a second for staff, repair, software
    capital_rate_per_s: Scalar  # interest on the capital bound, which is half the price on average
    occupancy: Scalar  # share of its life in which the cluster earns its keep
    margin: Scalar  # of a landlord on what the cluster costs him; 0 for an owner
    owned: Scalar  # 1: capital is the user's own; 0: rented, and none of his capex
    host_carbon_kg: Scalar  # of making the server and network share of a chip
