"""The fat tree: levels of switches of one radix, as many as the endpoints need."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hwopt.hardware.topology.topology import Topology, others
from hwopt.types import Scalar

MOST_LEVELS = 16
"""Levels looked at: 16 of radix 8 reach 8.6e9 endpoints. An assumption no fabric comes near."""

_FAR = 1e30  # stands for any number of endpoints beyond float32's comfort


class FatTree(Topology):
    """A folded Clos of L levels of k-port switches, `s` times more bandwidth down than up at the leaf.

    With s = 1 and L levels: at most `N_L = 2 (k/2)^L` endpoints, `(2L - 1) (k/2)^(L-1)` switches, `L N_L` cables, a cut of
    `N_L / 2`, `2L - 1` switches on the longest path. Three levels are the k-ary fat tree: `k^3/4` endpoints on `5 k^2/4`
    switches; two are leaf and spine: `k^2/2` on `3k/2`. In general a leaf has `d = k s/(1 + s)` endpoints and `d/s` links
    up, so `N_L = 2s/(1 + s) 2 (k/2)^L` (`N_1 = k`), and n endpoints take

        switches  n (s + 2L - 2) / (s k)     cables  n (1 + (L - 1)/s)     cut  n / (2s)

    (`n/k`, `n` and `n/2` at L = 1). P planes cut each link into P of a P-th of the rate: P trees, each of `k P` ports a
    switch over all endpoints; the radix in all reaches is `k P`, the number of switches is as before. R rails are R trees,
    each over `n/R` endpoints, so reaches grow by R; what goes from rail to rail changes rails inside a server, and the cut
    is through the servers' halves, not between rails.

    **Source:** Leiserson, Fat-Trees, IEEE Trans. Computers 1985; Al-Fares, Loukissas, Vahdat, SIGCOMM 2008 (k-ary);
    planes: DeepSeek-AI, Insights into DeepSeek-V3, ISCA 2025; rails: NVIDIA, DGX SuperPOD reference architecture (recalled).
    """

    radix: Scalar  # k: ports of an endpoint's whole rate
    oversubscription: Scalar  # s
    rails: Scalar  # R
    planes: Scalar  # P

    @property
    def dimensions(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def largest(self) -> Scalar:
        return jnp.inf * jnp.ones_like(self.radix)

    @property
    def switched(self) -> Scalar:
        return jnp.ones_like(self.radix)

    @property
    def core_bandwidth_ratio(self) -> Scalar:
        return 1.0 / self.oversubscription

    def reach(self, levels: int) -> Scalar:
        """Most endpoints that so many levels connect: `R 2s/(1 + s) 2 (k P/2)^L`, at one level `R k P`."""
        if levels == 1:
            return self.rails * self.radix * self.planes
        return 2.0 * self.pod(levels)

    def pod(self, levels: int = 2) -> Scalar:
        """Endpoints below one switch of the level above: `R d P (k P/2)^(levels - 1)`, half of `reach` from two on."""
        leaf = self.radix * self.planes * self.oversubscription / (1.0 + self.oversubscription)
        below = self.rails * leaf
        for _ in range(levels - 1):
            below = below * (self.radix * self.planes / 2.0)
        return below

    def levels(self, endpoints: Scalar) -> Scalar:
        """The least whole number of levels that reaches `endpoints`, up to `MOST_LEVELS`.

        Steps up where a level is full; its gradient is zero. `levels_smooth` is its twin.
        """
        half = jax.lax.stop_gradient(self.radix * self.planes / 2.0)
        needed = jnp.ones_like(endpoints)
        reach = jax.lax.stop_gradient(self.reach(1))
        for level in range(1, MOST_LEVELS):
            needed = needed + jnp.where(endpoints > reach, 1.0, 0.0)
            reach = jax.lax.stop_gradient(self.reach(2)) if level == 1 else jnp.minimum(reach * half, _FAR)
        return needed

    def levels_smooth(self, endpoints: Scalar) -> Scalar:
        """Levels as a smooth number: `ln(n/R (1 + s)/(4s)) / ln(k P/2)`, `ln(n/2) / ln(k/2)` of a plain tree; at least 1.

        Equals `levels` where levels are just full (from two on), lies below it elsewhere. Kinks at 1.
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

    def mean_hops(self, endpoints: Scalar) -> Scalar:
        """`sum_l (2l - 1) (S_l - S_(l-1)) / (n - 1)`, S_l the endpoints that meet at level l or below; of one rail."""
        rail, levels = endpoints / self.rails, self.levels(endpoints)
        half = self.radix * self.planes / 2.0
        leaf = jnp.minimum(self.pod(1) / self.rails, rail)
        inside = jnp.where(levels > 1.0, leaf, rail)
        total = inside - 1.0
        for level in range(2, MOST_LEVELS + 1):
            meets = jnp.where(levels > level, jnp.minimum(inside * half, rail), rail)
            total = total + (2.0 * level - 1.0) * (meets - inside)
            inside = meets
        return total / others(rail)

    def links_per_endpoint(self, endpoints: Scalar) -> Scalar:
        return jnp.ones_like(endpoints)

    def inner(self, endpoints: Scalar) -> Scalar:
        """What has full bandwidth: two levels of a tree with s = 1, a leaf of each rail where s is more.

        Two levels connect `reach(2)` where that is all, half of it, `pod(2)`, where a third level is above; a leaf
        `reach(1)` where it is alone, `pod(1)` where it has links up. Steps there.
        """
        full = jnp.where(endpoints > self.reach(2), self.pod(2), self.reach(2))
        leaf = jnp.where(endpoints > self.reach(1), self.pod(1), self.reach(1))
        return jnp.where(self.oversubscription > 1.0, leaf, full)
