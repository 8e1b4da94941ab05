"""The crossbar: one switch, or one for each plane."""

from __future__ import annotations

import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology
from hwopt.types import Scalar


class Crossbar(Topology):
    """One switch between all endpoints; with P planes, P switches of `radix P` ports, each for a P-th of the rate.

    For n endpoints: switches `n / k`, cables `n`, cut `n / 2`, one hop.

    **Source:** an NVLink domain: `n links / radix` chips, 72 GPUs of 18 links on 18 switches of 72 (k = 4, P = 18).
    """

    radix: Scalar  # k: ports of an endpoint's whole rate
    planes: Scalar  # P

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def largest(self) -> Scalar:
        return self.radix * self.planes

    @property
    def switched(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.ones_like(self.radix)

    def switches(self, endpoints: Scalar) -> Scalar:
        return endpoints / self.radix

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return endpoints * jnp.ones_like(self.radix)

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        none = 0.0 * endpoints
        return endpoints + none, none, none

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        return endpoints / 2.0

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def mean_hops(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.largest
