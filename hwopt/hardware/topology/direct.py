"""Direct topologies, in which endpoints forward traffic: the torus and the full mesh."""

import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology
from hwopt.quantity import ratio
from hwopt.types import Scalar


class Direct(Topology):
    """A topology of one tier without switches: endpoints forward traffic."""

    @property
    def switched(self) -> Scalar:
        return jnp.zeros_like(self.largest)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.ones_like(self.largest)

    def switches(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return jnp.zeros_like(endpoints)

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.largest


class Torus(Direct):
    """A torus of D axes with equal sides `m = n^(1/D)`, wrapped around, without switches; a ring is D = 1.

    For n endpoints of 2D links each: links `D n`; bisection `2 n / m`; largest distance `D m / 2` links. All are exact
    where m is even. An odd side reduces the largest distance by `1/2` per axis. A side of 2 has two links between its
    two endpoints.

    **Source:** Dally and Towles, Principles and Practices of Interconnection Networks, 2004; a TPU v4 pod of 4,096 =
    16^3 has 512 links across the bisection.
    """

    axes: Scalar = ratio("D", key="dimensions")

    @property
    def dimensions(self) -> Scalar:
        return self.axes

    @property
    def crossings(self) -> Scalar:
        return self.axes / 4.0

    @property
    def largest(self) -> Scalar:
        return jnp.inf * jnp.ones_like(self.axes)

    def side(self, endpoints: Scalar) -> Scalar:
        """Return the endpoints along an axis, `n^(1/D)`."""
        return endpoints ** (1.0 / self.axes)

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        none = 0.0 * endpoints
        return none, self.axes * endpoints, none

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        return 2.0 * endpoints / self.side(endpoints)

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return self.axes * self.side(endpoints) / 2.0

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return 2.0 * self.axes * jnp.ones_like(endpoints)


class FullMesh(Direct):
    """A direct link between any two endpoints, without switches.

    For n endpoints: links `n (n - 1) / 2`, bisection `n^2 / 4` (for even n), one hop. Two endpoints share one link, so
    that only an all-to-all uses all links of an endpoint at once.

    **Source:** Dally and Towles, Principles and Practices of Interconnection Networks, 2004.
    """

    ports: Scalar = ratio("links an endpoint has room for")

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.ports)

    @property
    def largest(self) -> Scalar:
        return self.ports + 1.0

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        none = 0.0 * endpoints
        return none, endpoints * (endpoints - 1.0) / 2.0, none

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        return endpoints**2 / 4.0

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return endpoints - 1.0
