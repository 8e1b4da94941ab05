"""What a fabric is built of: price, power and latency of each part."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Parts(eqx.Module):
    """Parts of a fabric. Ports and links are those of an endpoint's rate, planes together."""

    switch_port_usd: Scalar  # of a switch, over its ports
    switch_port_w: Scalar
    copper_cable_usd: Scalar
    copper_cable_w: Scalar
    optical_link_usd: Scalar  # modules of both ends and the fibre
    optical_link_w: Scalar
    nic_usd: Scalar  # a link of an endpoint
    nic_w: Scalar
    host_copper_share: Scalar  # of links between endpoint and switch, 0 to 1
    local_copper_share: Scalar  # of links one level up: leaf to spine, within a group, between direct neighbours
    global_copper_share: Scalar  # of all links beyond
    switch_latency_s: Scalar  # a switch, or an endpoint that passes on, port to port
    link_latency_s: Scalar  # a cable with the error correction and modules at its ends
    endpoint_latency_s: Scalar  # one end of a message, in the NIC

    def link_usd(self, copper_share: Scalar) -> Scalar:
        """Mean price of a link: `c copper + (1 - c) optical`, USD."""
        return copper_share * self.copper_cable_usd + (1.0 - copper_share) * self.optical_link_usd

    def link_w(self, copper_share: Scalar) -> Scalar:
        """Mean power of a link, both ends: `c copper + (1 - c) optical`, W."""
        return copper_share * self.copper_cable_w + (1.0 - copper_share) * self.optical_link_w
