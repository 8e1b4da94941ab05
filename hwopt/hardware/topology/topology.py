"""What every topology states, and what follows from it: switches, cables, hops, price, power, latency."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from hwopt.quantity import quantity, ratio
from hwopt.types import Scalar


class Parts(eqx.Module):
    """Parts of a fabric. Ports and links are those of an endpoint's rate, planes together."""

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
        "of links one level up: leaf to spine, within a group, between direct neighbours", key="local_copper", most=1.0
    )
    global_copper_share: Scalar = ratio("of all links beyond", key="global_copper", most=1.0)
    switch_latency_s: Scalar = quantity("s", "a switch, or an endpoint that passes on, port to port")
    link_latency_s: Scalar = quantity("s", "a cable with the error correction and modules at its ends")
    endpoint_latency_s: Scalar = quantity("s", "one end of a message, in the NIC")

    def link_usd(self, copper_share: Scalar) -> Scalar:
        """Mean price of a link: `c copper + (1 - c) optical`, USD."""
        return copper_share * self.copper_cable_usd + (1.0 - copper_share) * self.optical_link_usd

    def link_w(self, copper_share: Scalar) -> Scalar:
        """Mean power of a link, both ends: `c copper + (1 - c) optical`, W."""
        return copper_share * self.copper_cable_w + (1.0 - copper_share) * self.optical_link_w


def others(endpoints: Scalar) -> Scalar:
    """Endpoints that an endpoint may talk to, `n - 1`; 1 where there is none, so that a mean over them stays finite."""
    return jnp.where(endpoints > 1.0, endpoints - 1.0, 1.0)


class Topology(eqx.Module):
    """A way to connect `endpoints`, each by links of one rate.

    Counts grow in proportion to endpoints, so that they have gradients: a switch used in part counts in part. Ports and
    cables are those of an endpoint's rate: where the rate is cut into planes, the planes of one cable count as one.
    """

    @property
    @abc.abstractmethod
    def dimensions(self) -> Scalar:
        """Rings that a collective runs through one after the other: axes of a torus; 1 behind switches."""

    @property
    def crossings(self) -> Scalar:
        """The c of `max(1, c n^(1/D))`: over how many of its links a byte of an all-to-all goes for each one that it would take
        up if all chips were neighbours; 0 where they are, or switches carry it.
        """
        return jnp.zeros_like(self.largest)

    @property
    @abc.abstractmethod
    def largest(self) -> Scalar:
        """Most endpoints it connects; inf where nothing limits it."""

    @property
    @abc.abstractmethod
    def switched(self) -> Scalar:
        """1 where switches carry the traffic, 0 where endpoints pass it on."""

    @property
    @abc.abstractmethod
    def core_bandwidth_ratio(self) -> Scalar:
        """Bandwidth of an endpoint out of its inner tier, all sending at once, over that within; at most 1."""

    @abc.abstractmethod
    def switches(self, endpoints: Scalar) -> Scalar:
        """Switches or routers; 0 where endpoints pass traffic on."""

    @abc.abstractmethod
    def switch_ports(self, endpoints: Scalar) -> Scalar:
        """Ports of all switches, idle ones of a switch in use included."""

    @abc.abstractmethod
    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Cables of three lengths: endpoint to switch; one level up, or direct neighbours; all beyond."""

    @abc.abstractmethod
    def bisection_links(self, endpoints: Scalar) -> Scalar:
        """Links that the worst cut into equal halves of the endpoints crosses, counted in one direction."""

    @abc.abstractmethod
    def worst_hops(self, endpoints: Scalar) -> Scalar:
        """Switches passed between the two endpoints farthest apart; links crossed where there are none."""

    @abc.abstractmethod
    def mean_hops(self, endpoints: Scalar) -> Scalar:
        """As `worst_hops`, the mean over all pairs of different endpoints."""

    @abc.abstractmethod
    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        """Links of one endpoint."""

    @abc.abstractmethod
    def inner(self, endpoints: Scalar) -> Scalar:
        """Endpoints of the inner of the two tiers that a fabric over `endpoints` is seen as; inf where there is but one."""

    def cables(self, endpoints: Scalar) -> Scalar:
        """All cables, those to endpoints included."""
        host, local, beyond = self.cables_by_level(endpoints)
        return host + local + beyond

    def bisection_bytes_per_s(self, endpoints: Scalar, link_bytes_per_s: Scalar) -> Scalar:
        """Bandwidth across the worst cut into equal halves: `bisection_links B`.

        **Arguments:** endpoints; `link_bytes_per_s` of one link and direction. **Returns:** B/s, one direction.
        """
        return self.bisection_links(endpoints) * link_bytes_per_s

    def price_usd(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Price of the whole fabric: `ports port + sum_level cables link + n links NIC`.

        **Arguments:** endpoints; the parts. **Returns:** USD.
        """
        return self._sum(endpoints, parts, parts.switch_port_usd, parts.link_usd, parts.nic_usd)

    def power_w(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Power of the whole fabric, by the formula of `price_usd`.

        **Arguments:** endpoints; the parts. **Returns:** W.
        """
        return self._sum(endpoints, parts, parts.switch_port_w, parts.link_w, parts.nic_w)

    def _sum(
        self, endpoints: Scalar, parts: Parts, port: Scalar, link: Callable[[Scalar], Scalar], nic: Scalar
    ) -> Scalar:
        shares = (parts.host_copper_share, parts.local_copper_share, parts.global_copper_share)
        cables = sum(n * link(share) for n, share in zip(self.cables_by_level(endpoints), shares, strict=True))
        return self.switch_ports(endpoints) * port + cables + endpoints * self.links_per_endpoint(endpoints) * nic

    def latency_s(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Time of an empty message between the endpoints farthest apart, on the wire: no software.

        `2 endpoint + h link + (h - 1) pass` over h links; of a switched fabric's h switches, `2 endpoint + h switch +
        (h + 1) link`.

        **Arguments:** endpoints; the parts. **Returns:** s.
        """
        hops = self.worst_hops(endpoints)
        passed = jnp.maximum(hops - (1.0 - self.switched), 0.0)
        links = hops + self.switched
        return 2.0 * parts.endpoint_latency_s + passed * parts.switch_latency_s + links * parts.link_latency_s
