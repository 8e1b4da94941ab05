"""Switched topologies: the crossbar, the fat tree, the dragonfly."""

import jax
import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology
from hwopt.quantity import ratio
from hwopt.types import Scalar

MOST_LEVELS = 16
"""Maximum number of levels considered: 16 levels of radix 8 reach 8.6e9 endpoints, more than any fabric (assumption)."""

_FAR = 1e30  # cap on the number of endpoints, within the range of float32


class Switched(Topology):
    """A topology whose switches carry the traffic; an endpoint has one link."""

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.largest)

    @property
    def switched(self) -> Scalar:
        return jnp.ones_like(self.largest)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)


class Crossbar(Switched):
    """One switch between all endpoints; with P planes, P switches of `radix P` ports, each for a P-th of the rate.

    For n endpoints: switches `n / k`, cables `n`, bisection `n / 2`, one hop.

    **Source:** an NVLink domain: `n links / radix` chips, 72 GPUs of 18 links on 18 switches of 72 (k = 4, P = 18).
    """

    radix: Scalar = ratio("k: ports of an endpoint's whole rate")
    planes: Scalar = ratio("P", default=1.0)

    @property
    def largest(self) -> Scalar:
        return self.radix * self.planes

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

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.largest


class FatTree(Switched):
    """A folded Clos network of L levels of k-port switches, with `s` times more bandwidth down than up at the leaf.

    With s = 1 and L levels: at most `N_L = 2 (k/2)^L` endpoints, `(2L - 1) (k/2)^(L-1)` switches, `L N_L` cables, a
    bisection of `N_L / 2`, `2L - 1` switches on the longest path. Three levels are the k-ary fat tree: `k^3/4`
    endpoints on `5 k^2/4` switches. Two levels are leaf and spine: `k^2/2` endpoints on `3k/2` switches. In general a
    leaf has `d = k s/(1 + s)` endpoints and `d/s` links up, so `N_L = 2s/(1 + s) 2 (k/2)^L` (`N_1 = k`), and n
    endpoints take

        switches  n (s + 2L - 2) / (s k)     cables  n (1 + (L - 1)/s)     bisection  n / (2s)

    (`n/k`, `n` and `n/2` at L = 1).

    P planes split each link into P links of a P-th of the rate. They are P trees over all endpoints with `k P` ports
    per switch. Maximum sizes grow as if the radix were `k P`; the number of switches does not change. R rails are R
    trees, each over `n/R` endpoints, so maximum sizes grow by R. Traffic between rails changes rails inside a server.
    The bisection separates the servers into halves, not the rails.

    **Source:** Leiserson, Fat-Trees, IEEE Trans. Computers 1985; Al-Fares, Loukissas, Vahdat, SIGCOMM 2008 (k-ary);
    planes: DeepSeek-AI, Insights into DeepSeek-V3, ISCA 2025; rails: NVIDIA, DGX SuperPOD reference architecture
    (recalled).
    """

    radix: Scalar = ratio("k: ports of an endpoint's whole rate")
    oversubscription: Scalar = ratio("s", default=1.0)
    rails: Scalar = ratio("R", default=1.0)
    planes: Scalar = ratio("P", default=1.0)

    @property
    def largest(self) -> Scalar:
        return jnp.inf * jnp.ones_like(self.radix)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return 1.0 / self.oversubscription

    def reach(self, levels: int) -> Scalar:
        """Return the maximum number of endpoints of a tree with `levels` levels: `R 2s/(1 + s) 2 (k P/2)^L`, at one level
        `R k P`.
        """
        if levels == 1:
            return self.rails * self.radix * self.planes
        return 2.0 * self.pod(levels)

    def pod(self, levels: int = 2) -> Scalar:
        """Return the endpoints below one switch of the next level: `R d P (k P/2)^(levels - 1)`, half of `reach` from two
        levels on.
        """
        leaf = self.radix * self.planes * self.oversubscription / (1.0 + self.oversubscription)
        below = self.rails * leaf
        for _ in range(levels - 1):
            below = below * (self.radix * self.planes / 2.0)
        return below

    def levels(self, endpoints: Scalar) -> Scalar:
        """Return the smallest integer number of levels that reaches `endpoints`, up to `MOST_LEVELS`.

        It steps up where a level is full, and its gradient is zero. `levels_smooth` is the smooth approximation.
        """
        half = jax.lax.stop_gradient(self.radix * self.planes / 2.0)
        needed = jnp.ones_like(endpoints)
        reach = jax.lax.stop_gradient(self.reach(1))
        for level in range(1, MOST_LEVELS):
            needed = needed + jnp.where(endpoints > reach, 1.0, 0.0)
            reach = jax.lax.stop_gradient(self.reach(2)) if level == 1 else jnp.minimum(reach * half, _FAR)
        return needed

    def levels_smooth(self, endpoints: Scalar) -> Scalar:
        """Return a smooth number of levels: `ln(n/R (1 + s)/(4s)) / ln(k P/2)`, `ln(n/2) / ln(k/2)` for a plain tree; at
        least 1.

        It equals `levels` where the levels are exactly full (from two on) and is smaller elsewhere. It has a kink at 1.
        """
        share = endpoints / self.rails * (1.0 + self.oversubscription) / (4.0 * self.oversubscription)
        return jnp.maximum(jnp.log(share) / jnp.log(self.radix * self.planes / 2.0), 1.0)

    def switches(self, endpoints: Scalar) -> Scalar:
        return self.switch_ports(endpoints) / self.radix

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        above = self.levels(endpoints) - 1.0
        return endpoints * jnp.where(above > 0.0, 1.0 + 2.0 * above / self.oversubscription, 1.0)

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        above = self.levels(endpoints) - 1.0
        up = endpoints / self.oversubscription
        return endpoints + 0.0 * up, up * jnp.minimum(above, 1.0), up * jnp.maximum(above - 1.0, 0.0)

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        half = endpoints / 2.0
        return jnp.where(self.levels(endpoints) > 1.0, half / self.oversubscription, half)

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        return 2.0 * self.levels(endpoints) - 1.0

    def inner(self, endpoints: Scalar) -> Scalar:
        """Return the endpoints within full bandwidth: two levels of a tree with s = 1, a leaf of each rail for larger s.

        Two levels connect `reach(2)` endpoints where there is no third level, else half as many, `pod(2)`. A leaf
        connects `reach(1)` where it is the only switch, `pod(1)` where it has links up. The result jumps there.
        """
        full = jnp.where(endpoints > self.reach(2), self.pod(2), self.reach(2))
        leaf = jnp.where(endpoints > self.reach(1), self.pod(1), self.reach(1))
        return jnp.where(self.oversubscription > 1.0, leaf, full)


class Dragonfly(Switched):
    """Groups of `a` routers; a router has p endpoints, a link to each router of its group, and h global links.

    Ports used: `p + a - 1 + h`. At most `g = a h + 1` groups, one link between any two: `N = a p (a h + 1)` endpoints
    on `N / p` routers, with `N (a - 1)/(2p)` cables inside groups and `N h/(2p)` between them. It is balanced at `a =
    2p = 2h`. A minimal path passes at most 4 routers (3 cables between them: local, global, local). The
    bisection separates the groups into halves, with links spread evenly over groups: `g^2 a h / (4 (g - 1))` links;
    within one group: `(n/p)^2 / 4`.

    **Source:** Kim, Dally, Scott, Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008.
    """

    hosts: Scalar = ratio("p: endpoints of a router")
    routers: Scalar = ratio("a: of a group")
    global_links: Scalar = ratio("h: of a router")
    radix: Scalar = ratio("ports of a router, idle ones included")

    @property
    def group(self) -> Scalar:
        """Return the endpoints of a group, `a p`."""
        return self.routers * self.hosts

    @property
    def largest(self) -> Scalar:
        return self.group * (self.routers * self.global_links + 1.0)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return jnp.minimum(self.global_links / self.hosts, 1.0)

    def switches(self, endpoints: Scalar) -> Scalar:
        return endpoints / self.hosts

    def switch_ports(self, endpoints: Scalar) -> Scalar:
        return self.switches(endpoints) * self.radix

    def cables_by_level(self, endpoints: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Return the cables by length. Global cables appear where a group is full; the local count has a kink at that
        size.
        """
        routers = self.switches(endpoints)
        local = routers * jnp.maximum(jnp.minimum(routers, self.routers) - 1.0, 0.0) / 2.0
        beyond = jnp.where(endpoints > self.group, routers * self.global_links / 2.0, 0.0)
        return endpoints + 0.0 * routers, local, beyond

    def bisection_links(self, endpoints: Scalar) -> Scalar:
        """Return the links across the bisection. It jumps where a group is full; above, at least two groups are counted."""
        groups = jnp.maximum(endpoints / self.group, 2.0)
        between = groups**2 * self.routers * self.global_links / (4.0 * (groups - 1.0))
        return jnp.where(endpoints > self.group, between, self.switches(endpoints) ** 2 / 4.0)

    def worst_hops(self, endpoints: Scalar) -> Scalar:
        """Return the switches between the two most distant endpoints: 1 within a router, 2 within a group, 4 beyond; it
        jumps where each is full.
        """
        beyond = jnp.where(endpoints > self.group, 4.0, 2.0)
        return jnp.where(endpoints > self.hosts, beyond, 1.0)

    def inner(self, endpoints: Scalar) -> Scalar:
        return self.group * jnp.ones_like(endpoints)
