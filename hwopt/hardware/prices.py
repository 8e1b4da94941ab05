"""Hardware price list whose prices scale with the design variables."""

import equinox as eqx

from hwopt.quantity import computed, quantity, ratio, switch
from hwopt.types import PerTier, Scalar


class Prices(eqx.Module):
    """Unit prices. Every design variable has a price: memory per B and per B/s, links per B/s."""

    chip_base_usd: Scalar = computed("USD", "chip without memory and links")
    hbm_usd_per_byte: Scalar = quantity("USD/B", "stacks, by capacity", key="hbm_usd_per_byte")
    hbm_usd_per_byte_per_s: Scalar = quantity(
        "USD/(B/s)", "PHY, interposer and stacks' pin speed", key="hbm_usd_per_byte_per_s"
    )
    network_usd_per_byte_per_s: PerTier = quantity(
        "USD/(B/s)", "links, switches, optics and NICs, per chip and direction", follows="price"
    )
    domain_usd_per_chip: Scalar = quantity(
        "USD", "cabling and backplane of the scale-up domain, per chip and per (domain / reference domain)"
    )
    reference_domain: Scalar = quantity(
        "chip", "size of the scale-up domain that the price of domain cabling is stated for"
    )
    host_usd: Scalar = quantity("USD", "server without accelerators, per chip", key="host_usd")
    server_lifetime_s: Scalar = quantity("s", "over which servers are written off")
    spares_fraction: Scalar = ratio("extra machines bought")
    maintenance_per_s: Scalar = quantity("1/s", "share of hardware capex a second for staff, repair, software")
    capital_rate_per_s: Scalar = quantity("1/s", "interest on capital, compounded yearly")
    occupancy: Scalar = ratio("share of its life in which the cluster does paid work; idle time is charged to the work")
    margin: Scalar = ratio("of a landlord on what the cluster costs him; 0 for an owner")
    owned: Scalar = switch("1: capital is the user's own; 0: rented, and none of his capex")
    redesign_usd: Scalar = computed("USD", "masks, design and validation of a redesigned chip, once; 0 as it is sold")
    least_order: Scalar = computed("chip", "that a vendor makes of a redesigned chip at least; 0 as it is sold")
    host_carbon_kg: Scalar = quantity("kg", "of making the server share of a chip")
    network_carbon_kg_per_usd: Scalar = quantity("kg/USD", "of making links, switches, NICs and optics, by their price")
