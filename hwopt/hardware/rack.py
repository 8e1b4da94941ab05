"""The rack: how many chips stand together, and what limits that."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Rack(eqx.Module):
    """A rack of servers. Links within it are copper; those of a scale-up domain that leave it are optical."""

    chips: Scalar  # in one rack
    busbar_limit_w: Scalar  # IT power the rack's busbar and supplies carry
    chip_weight_kg: Scalar  # one chip with its share of server, switches and cold plates
    empty_weight_kg: Scalar
    weight_limit_kg: Scalar  # what the floor carries
    floor_area_m2: Scalar  # with its share of aisles
    price_usd: Scalar  # frame, busbar, power shelves, manifold
    cable_area_m2_per_byte_per_s: Scalar  # cross-section of the copper cables of a scale-up link
    cable_limit_m2: Scalar  # cross-section of cables that the rack has room to bend
    cable_weight_kg_per_byte_per_s: Scalar
    optics_energy_j_per_byte: Scalar  # both ends of a link that leaves the rack
    optics_usd_per_byte_per_s: Scalar
