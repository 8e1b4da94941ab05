"""The dragonfly: groups of routers, each group joined to each other."""

from __future__ import annotations

import math

import jax.numpy as jnp

from hwopt.errors import UserError
from hwopt.hardware.topology.topology import Topology, others
from hwopt.types import Scalar


class Dragonfly(Topology):
    """Groups of `a` routers with p endpoints, a link to each router of the group and h global links each.

    Ports used: `p + a - 1 + h`. At most `g = a h + 1` groups, one link between any two: `N = a p (a h + 1)` endpoints on
    `N / p` routers, with `N (a - 1)/(2p)` cables inside groups and `N h/(2p)` between them. It is balanced at
    `a = 2p = 2h`. A minimal path passes at most 4 routers (3 cables between them: local, global, local), on average
    `4 - 2/a` between groups of the full size; where fewer groups share more links, that is a bound. Groups cut into halves,
    links spread evenly over groups: `g^2 a h / (4 (g - 1))` links; one group: `(n/p)^2 / 4`.

    **Source:** Kim, Dally, Scott, Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008.
    """

    hosts: Scalar  # p: endpoints of a router
    routers: Scalar  # a: of a group
    global_links: Scalar  # h: of a router
    radix: Scalar  # ports of a router, idle ones included

    @classmethod
    def balanced(cls, radix: float) -> Dragonfly:
        """The largest balanced dragonfly of routers with `radix` ports: `p = h = floor((radix + 1)/4)`, `a = 2p`.

        **Raises:** `UserError` for fewer than 3 ports.
        """
        if radix < 3.0:
            raise UserError(f"a dragonfly needs routers of at least 3 ports, not {radix:g}")
        hosts = jnp.asarray(math.floor((radix + 1.0) / 4.0), float)
        return cls(hosts=hosts, routers=2.0 * hosts, global_links=hosts, radix=jnp.asarray(radix, float))

    @property
    def group(self) -> Scalar:
        """Endpoints of a group, `a p`."""
        return self.routers * self.hosts

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def largest(self) -> Scalar:
        return self.group * (self.routers * self.global_links + 1.0)

    @property
    def switched(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.minimum(self.global_links / self.hosts, 1.0)

    def switches(self, endpoints: Scalar) -> Scalar:
        return endpoints / self.hosts

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return self.switches(endpoints) * self.radix

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Global cables appear where a group is full; a kink there inside groups."""
        routers = self.switches(endpoints)
        local = routers * jnp.maximum(jnp.minimum(routers, self.routers) - 1.0, 0.0) / 2.0
        beyond = jnp.where(endpoints > self.group, routers * self.global_links / 2.0, 0.0)
        return endpoints + 0.0 * routers, local, beyond

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        """Steps where a group is full; counts two groups at least beyond."""
        groups = jnp.maximum(endpoints / self.group, 2.0)
        between = groups**2 * self.routers * self.global_links / (4.0 * (groups - 1.0))
        return jnp.where(endpoints > self.group, between, self.switches(endpoints) ** 2 / 4.0)

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        """1 within a router, 2 within a group, 4 beyond: steps where each is full."""
        beyond = jnp.where(endpoints > self.group, 4.0, 2.0)
        return jnp.where(endpoints > self.hosts, beyond, 1.0)

    def mean_hops(self, endpoints: Scalar) -> Scalar:
        router, group = jnp.minimum(endpoints, self.hosts), jnp.minimum(endpoints, self.group)
        beyond = (4.0 - 2.0 / self.routers) * (endpoints - group)
        return (router - 1.0 + 2.0 * (group - router) + beyond) / others(endpoints)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.group * jnp.ones_like(endpoints)
