"""Interface of all topologies, and the quantities derived from it: switches, cables, hops, price, power, latency."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from hwopt.quantity import quantity, ratio
from hwopt.types import Scalar


class Parts(eqx.Module):
    """Prices, powers and latencies of a fabric's parts. Ports and links have an endpoint's rate, with all planes together."""

    switch_port_usd: Scalar = quantity("USD", "of a switch, over its ports", key="port_price", default=0.0)
    switch_port_w: Scalar = quantity("W", "of a switch, over its ports", key="port_power", default=0.0)
    copper_cable_usd: Scalar = quantity("USD", "one cable", key="copper_price")
    copper_cable_w: Scalar = quantity("W", "both ends", key="copper_power")
    optical_link_usd: Scalar = quantity("USD", "modules of both ends and the fibre", key="optical_price")
    optical_link_w: Scalar = quantity("W", "modules of both ends", key="optical_power")
    nic_usd: Scalar = quantity("USD", "a link of an endpoint", key="nic_price")
    nic_w: Scalar = quantity("W", "a link of an endpoint", key="nic_power")
    host_copper_share: Scalar = ratio("of links between endpoint and switch, 0 to 1", key="host_copper", most=1.0)
    local_copper_share: Scalar = ratio(
        "of links one level up: leaf to spine, within a group, between direct neighbors", key="local_copper", most=1.0
    )
    global_copper_share: Scalar = ratio("of all links beyond", key="global_copper", most=1.0)
    switch_latency_s: Scalar = quantity("s", "a switch, or an endpoint that passes on, port to port")
    link_latency_s: Scalar = quantity("s", "a cable with the error correction and modules at its ends")
    endpoint_latency_s: Scalar = quantity("s", "one end of a message, in the NIC")

    def link_usd(self, copper_share: Scalar) -> Scalar:
        """Return the mean price of a link: `c copper + (1 - c) optical`, USD."""
        return copper_share * self.copper_cable_usd + (1.0 - copper_share) * self.optical_link_usd

    def link_w(self, copper_share: Scalar) -> Scalar:
        """Return the mean power of a link, both ends: `c copper + (1 - c) optical`, W."""
        return copper_share * self.copper_cable_w + (1.0 - copper_share) * self.optical_link_w


class Topology(eqx.Module):
    """A way to connect endpoints by links of one rate.

    Counts grow in proportion to endpoints, so that they have gradients: a partly used switch counts in part. Ports and
    cables have an endpoint's rate. Where the rate is split into planes, the planes of one cable count as one cable.
    """

    @property
    @abc.abstractmethod
    def dimensions(self) -> Scalar:
        """Return the number of rings that a collective runs through in sequence: axes of a torus; 1 behind switches."""

    @property
    def crossings(self) -> Scalar:
        """Return the factor c of the all-to-all slowdown `max(1, c n^(1/D))` on a torus; 0 behind switches or between
        neighbors.

        The slowdown is the number of links that a byte crosses, relative to a network in which all chips are direct
        neighbors.
        """
        return jnp.zeros_like(self.largest)

    @property
    @abc.abstractmethod
    def largest(self) -> Scalar:
        """Return the maximum number of endpoints; inf where there is no limit."""

    @property
    @abc.abstractmethod
    def switched(self) -> Scalar:
        """Return 1 where switches carry the traffic, 0 where endpoints forward it."""

    @property
    @abc.abstractmethod
    def core_bandwidth_ratio(self) -> Scalar:
        """Return an endpoint's bandwidth out of its inner tier, with all sending at once, over that within the tier; at
        most 1.
        """

    @abc.abstractmethod
    def switches(self, endpoints: Scalar) -> Scalar:
        """Return the number of switches or routers; 0 where endpoints forward traffic."""

    @abc.abstractmethod
    def switch_ports(self, endpoints: Scalar) -> Scalar:
        """Return the number of ports of all switches in use, including idle ports."""

    @abc.abstractmethod
    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Return the cables by length: endpoint to switch; one level up, or between direct neighbors; all others."""

    @abc.abstractmethod
    def bisection_links(self, endpoints: Scalar) -> Scalar:
        """Return the links across the worst cut into equal halves of the endpoints (bisection), counted in one direction."""

    @abc.abstractmethod
    def worst_hops(self, endpoints: Scalar) -> Scalar:
        """Return the switches between the two most distant endpoints; the links where there are no switches."""

    @abc.abstractmethod
    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        """Return the links of one endpoint."""

    @abc.abstractmethod
    def inner(self, endpoints: Scalar) -> Scalar:
        """Return the endpoints of the inner tier, when a fabric over `endpoints` is modeled as two tiers; inf where there
        is only one.
        """

    def cables(self, endpoints: Scalar) -> Scalar:
        """Return the number of all cables, including those to endpoints."""
        host, local, beyond = self.cables_by_level(endpoints)
        return host + local + beyond

    def bisection_bytes_per_s(self, endpoints: Scalar, link_bytes_per_s: Scalar) -> Scalar:
        """Return the bandwidth across the worst cut into equal halves: `bisection_links B`.

        **Arguments:** `endpoints`; `link_bytes_per_s` of one link and direction. **Returns:** B/s, one direction.
        """
        return self.bisection_links(endpoints) * link_bytes_per_s

    def price_usd(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Return the price of the whole fabric: `ports port + sum_level cables link + n links NIC`.

        **Arguments:** `endpoints`; prices of the `parts`. **Returns:** USD.
        """
        return self._sum(endpoints, parts, parts.switch_port_usd, parts.link_usd, parts.nic_usd)

    def power_w(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Return the power of the whole fabric, by the formula of `price_usd`.

        **Arguments:** `endpoints`; powers of the `parts`. **Returns:** W.
        """
        return self._sum(endpoints, parts, parts.switch_port_w, parts.link_w, parts.nic_w)

    def _sum(
        self, endpoints: Scalar, parts: Parts, port: Scalar, link: Callable[[Scalar], Scalar], nic: Scalar
    ) -> Scalar:
        shares = (parts.host_copper_share, parts.local_copper_share, parts.global_copper_share)
        cables = sum(n * link(share) for n, share in zip(self.cables_by_level(endpoints), shares, strict=True))
        return self.switch_ports(endpoints) * port + cables + endpoints * self.links_per_endpoint(endpoints) * nic

    def latency_s(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Return the time of an empty message between the most distant endpoints, on the wire (without software).

        `2 endpoint + h link + (h - 1) pass` over h links; with the h switches of a switched fabric, `2 endpoint + h
        switch + (h + 1) link`.

        **Arguments:** `endpoints`; latencies of the `parts`. **Returns:** s.
        """
        hops = self.worst_hops(endpoints)
        passed = jnp.maximum(hops - (1.0 - self.switched), 0.0)
        links = hops + self.switched
        return 2.0 * parts.endpoint_latency_s + passed * parts.switch_latency_s + links * parts.link_latency_s
