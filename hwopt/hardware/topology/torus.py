"""The torus: endpoints on a grid whose ends are joined."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology, others
from hwopt.types import Scalar


class Torus(Topology):
    """A torus of D axes and equal sides `m = n^(1/D)`, ends joined, no switch; a ring is D = 1.

    For n endpoints of 2D links each: links `D n`; cut `2 n / m`; farthest pair `D m / 2` links; mean over all pairs
    `D m / 4`, an endpoint with itself included. All exact where m is even; an odd side has `1/2` less of the farthest and
    `1 / (4 m)` less of the mean an axis. A side of 2 has two links between its two endpoints.

    **Source:** Dally and Towles, Principles and Practices of Interconnection Networks, 2004; a TPU v4 pod of 4,096 = 16^3
    has 512 links across the cut.
    """

    axes: Scalar  # D

    @property
    def dimensions(self) -> Scalar:
        return self.axes

    @property
    def largest(self) -> Scalar:
        return jnp.inf * jnp.ones_like(self.axes)

    @property
    def switched(self) -> Scalar:
        return jnp.zeros_like(self.axes)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.ones_like(self.axes)

    def side(self, endpoints: Scalar) -> Scalar:
        """Endpoints along an axis, `n^(1/D)`."""
        return endpoints ** (1.0 / self.axes)

    def switches(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        none = 0.0 * endpoints
        return none, self.axes * endpoints, none

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        return 2.0 * endpoints / self.side(endpoints)

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return self.axes * self.side(endpoints) / 2.0

    def mean_hops(self, endpoints: Scalar) -> Scalar:
        return self.axes * self.side(endpoints) / 4.0 * endpoints / others(endpoints)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return 2.0 * self.axes * jnp.ones_like(endpoints)

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.largest
