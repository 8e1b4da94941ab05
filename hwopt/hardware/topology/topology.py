"""What every topology states, and what follows from it."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp

from hwopt.hardware.topology.parts import Parts
from hwopt.types import Scalar


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
        """Axes of a torus; 1 of anything else."""

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
        host, local, beyond = self.cables_by_level(endpoints)
        cables = host * parts.link_usd(parts.host_copper_share)
        cables += local * parts.link_usd(parts.local_copper_share)
        cables += beyond * parts.link_usd(parts.global_copper_share)
        nics = endpoints * self.links_per_endpoint(endpoints) * parts.nic_usd
        return self.switch_ports(endpoints) * parts.switch_port_usd + cables + nics

    def power_w(self, endpoints: Scalar, parts: Parts) -> Scalar:
        """Power of the whole fabric: `ports port + sum_level cables link + n links NIC`.

        **Arguments:** endpoints; the parts. **Returns:** W.
        """
        host, local, beyond = self.cables_by_level(endpoints)
        cables = host * parts.link_w(parts.host_copper_share)
        cables += local * parts.link_w(parts.local_copper_share)
        cables += beyond * parts.link_w(parts.global_copper_share)
        nics = endpoints * self.links_per_endpoint(endpoints) * parts.nic_w
        return self.switch_ports(endpoints) * parts.switch_port_w + cables + nics

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
