"""The full mesh: a link between any two endpoints."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology
from hwopt.types import Scalar


class FullMesh(Topology):
    """A link between any two endpoints, no switch.

    For n endpoints: links `n (n - 1) / 2`, cut `n^2 / 4` (of even n), one hop. Only an all-to-all uses all links of an
    endpoint at once: two endpoints share one.

    **Source:** Dally and Towles, Principles and Practices of Interconnection Networks, 2004.
    """

    ports: Scalar  # links an endpoint has room for

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.ports)

    @property
    def largest(self) -> Scalar:
        return self.ports + 1.0

    @property
    def switched(self) -> Scalar:
        return jnp.zeros_like(self.ports)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.ones_like(self.ports)

    def switches(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        none = 0.0 * endpoints
        return none, endpoints * (endpoints - 1.0) / 2.0, none

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        return endpoints**2 / 4.0

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def mean_hops(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return endpoints - 1.0

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.largest
