"""Topologies: published closed forms, small graphs walked and cut by brute force, gradients and maps."""

from __future__ import annotations

from collections import deque
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.hardware.topology import Crossbar, Dragonfly, FatTree, FullMesh, Parts, Torus
from hwopt.hardware.topology.switched import MOST_LEVELS


def real(value) -> jax.Array:
    return jnp.asarray(value, float)


def fat_tree(radix, oversubscription=1.0, rails=1.0, planes=1.0) -> FatTree:
    return FatTree(radix=real(radix), oversubscription=real(oversubscription), rails=real(rails), planes=real(planes))


def torus(axes) -> Torus:
    return Torus(axes=real(axes))


def dragonfly(hosts, routers, global_links) -> Dragonfly:
    radix = hosts + routers - 1 + global_links
    return Dragonfly(*(real(value) for value in (hosts, routers, global_links, radix)))


def parts(**changed) -> Parts:
    fields = {name: real(1.0) for name in Parts.__dataclass_fields__}
    shares = {name: real(0.5) for name in fields if name.endswith("share")}
    return Parts(**{**fields, **shares, **{name: real(value) for name, value in changed.items()}})


EVERY = {
    "crossbar": Crossbar(radix=real(64.0), planes=real(4.0)),
    "dragonfly": dragonfly(4, 8, 4),
    "fat tree": fat_tree(8.0),
    "oversubscribed": fat_tree(16.0, oversubscription=3.0, rails=2.0, planes=2.0),
    "full mesh": FullMesh(ports=real(300.0)),
    "torus": torus(3.0),
}
COUNTS = (
    "switches", "switch_ports", "cables", "bisection_links", "worst_hops", "links_per_endpoint", "inner",
)  # fmt: skip


class Graph:
    """Nodes by name, cables between them; endpoints among the nodes."""

    def __init__(self, endpoints, cables):
        self.endpoints = list(endpoints)
        self.cables = [tuple(cable) for cable in cables]
        self.near: dict = {}
        for one, other in self.cables:
            self.near.setdefault(one, []).append(other)
            self.near.setdefault(other, []).append(one)

    def hops(self, start):
        """Cables from `start` to every node."""
        reached, ahead = {start: 0}, deque([start])
        while ahead:
            here = ahead.popleft()
            for node in self.near[here]:
                if node not in reached:
                    reached[node] = reached[here] + 1
                    ahead.append(node)
        return reached

    def pair_hops(self):
        return [hops[b] for a in self.endpoints for hops in [self.hops(a)] for b in self.endpoints if a != b]

    def bisection(self):
        """Least cables cut over all equal halves of the endpoints and all places of the switches."""
        switches = [node for node in self.near if node not in set(self.endpoints)]
        first, *rest = self.endpoints
        best = len(self.cables)
        for half in combinations(rest, len(self.endpoints) // 2 - 1):
            sides = dict.fromkeys(self.endpoints, 1) | dict.fromkeys((first, *half), 0)
            for placed in product((0, 1), repeat=len(switches)):
                sides.update(zip(switches, placed, strict=True))
                best = min(best, sum(sides[a] != sides[b] for a, b in self.cables))
        return best


def leaf_and_spine(leaves, spines, hosts) -> Graph:
    cables = [((leaf, host), f"leaf {leaf}") for leaf in range(leaves) for host in range(hosts)]
    return Graph(
        [end for end, _ in cables],
        cables + [(f"leaf {leaf}", f"spine {spine}") for leaf in range(leaves) for spine in range(spines)],
    )


def three_level_tree(k) -> Graph:
    cables: list[tuple] = []
    ends: list[tuple] = []
    half = k // 2
    for pod, edge in product(range(k), range(half)):
        for host in range(half):
            ends.append(("host", pod, edge, host))
            cables.append((ends[-1], ("edge", pod, edge)))
        cables += [(("edge", pod, edge), ("aggregation", pod, up)) for up in range(half)]
    for pod, up, core in product(range(k), range(half), range(half)):
        cables.append((("aggregation", pod, up), ("core", up, core)))
    return Graph(ends, cables)


def torus_graph(side, axes) -> Graph:
    nodes = list(product(range(side), repeat=axes))
    step = lambda node, axis: (*node[:axis], (node[axis] + 1) % side, *node[axis + 1 :])
    return Graph(nodes, [(node, step(node, axis)) for node in nodes for axis in range(axes)])


def dragonfly_graph(p, a, h) -> Graph:
    """Groups of full size: one global link between any two."""
    groups = a * h + 1
    ends = [(group, router, host) for group, router, host in product(range(groups), range(a), range(p))]
    cables: list[tuple] = [(end, end[:2]) for end in ends]
    for group in range(groups):
        cables += [((group, one), (group, other)) for one, other in combinations(range(a), 2)]
    # Link i of a group, at router i // h, leads to group + i + 1; there it is link groups - 2 - i.
    for group, link in product(range(groups), range(a * h)):
        other = (group + link + 1) % groups
        if group < other:
            cables.append(((group, link // h), (other, (groups - 2 - link) // h)))
    return Graph(ends, cables)


@pytest.mark.parametrize("k", [4, 8, 16, 32, 64])
def test_k_ary_fat_trees(k):
    """Al-Fares et al. 2008; Leiserson 1985."""
    tree = fat_tree(k)
    three, two = real(k**3 / 4), real(k**2 / 2)
    assert tree.levels(three) == 3 and tree.levels(three + 1) == 4
    assert tree.levels(two) == 2 and tree.levels(two + 1) == 3
    assert tree.levels(real(k)) == 1 and tree.levels(real(k + 1)) == 2
    assert (tree.reach(3), tree.reach(2), tree.reach(1)) == (three, two, k)
    assert (tree.pod(1), tree.pod(2), tree.pod()) == (k / 2, k**2 / 4, k**2 / 4)
    assert tree.switches(three) == pytest.approx(5 * k**2 / 4, rel=1e-6)
    assert tree.switches(two) == pytest.approx(3 * k / 2, rel=1e-6)
    assert (tree.cables(three), tree.cables(two)) == (3 * three, 2 * two)
    assert tree.cables_by_level(two) == (two, k**2 / 2, 0)
    assert tree.bisection_links(three) == three / 2
    assert (tree.worst_hops(three), tree.worst_hops(two), tree.worst_hops(real(2.0))) == (5, 3, 1)
    for full, levels in ((two, 2), (three, 3)):
        assert tree.levels_smooth(full) == pytest.approx(levels, rel=1e-5)
    assert tree.levels_smooth(real(2.0)) == 1


def test_fat_trees_of_radix_64():
    tree = fat_tree(64)
    assert tree.switches(real(1024.0)) == 48
    assert tree.switches(real(32768.0)) == 2560
    assert tree.switches(real(65536.0)) == 5120
    assert fat_tree(144).reach(3) == 746_496


def test_rails_and_planes_spare_levels():
    rails, planes = fat_tree(64, rails=8), fat_tree(128, planes=4)
    assert (rails.reach(2), planes.reach(2)) == (16_384, 131_072)
    assert [float(rails.levels(real(n))) for n in (512, 513, 16_384, 16_385)] == [1, 2, 2, 3]
    assert [float(planes.levels(real(n))) for n in (512, 513, 131_072, 131_073)] == [1, 2, 2, 3]
    assert rails.switches(real(512.0)) == 8
    assert rails.switches(real(16_384.0)) == 768
    assert planes.switches(real(131_072.0)) == 3 * 131_072 / 128
    assert (rails.pod(2), rails.inner(real(16_384.0)), rails.inner(real(16_385.0))) == (8192, 16_384, 8192)
    assert rails.bisection_links(real(16_384.0)) == 8192


def test_an_oversubscribed_leaf():
    tree = fat_tree(64, oversubscription=3)  # 48 down, 16 up: 64 leaves, 16 spines
    full = real(3072.0)
    assert tree.reach(2) == full and tree.levels(full) == 2 and tree.levels(full + 1) == 3
    assert tree.switches(full) == 80
    assert tree.cables_by_level(full) == (3072, 1024, 0)
    assert tree.bisection_links(full) == 512
    assert tree.levels_smooth(full) == pytest.approx(2, rel=1e-5)
    assert (tree.inner(full), tree.inner(real(64.0))) == (48, 64)
    graph = leaf_and_spine(4, 1, 3)  # radix 4
    assert fat_tree(4, oversubscription=3).bisection_links(real(12.0)) == graph.bisection()


def test_leaf_and_spine_walked_and_cut():
    graph, tree, n = leaf_and_spine(4, 2, 2), fat_tree(4), real(8.0)
    assert tree.cables(n) == len(graph.cables)
    assert tree.bisection_links(n) == graph.bisection()
    assert tree.worst_hops(n) == max(graph.pair_hops()) - 1


@pytest.mark.parametrize("k", [4, 6])
def test_three_levels_walked(k):
    graph, tree = three_level_tree(k), fat_tree(k)
    n = real(len(graph.endpoints))
    assert tree.cables(n) == len(graph.cables)
    assert tree.switches(n) == pytest.approx(len(graph.near) - len(graph.endpoints))
    assert tree.worst_hops(n) == max(graph.pair_hops()) - 1


def test_the_published_dragonfly():
    """Kim et al. 2008: 63 ports used, 262,656 endpoints."""
    fly = Dragonfly(hosts=real(16.0), global_links=real(16.0), routers=real(32.0), radix=real(64.0))
    assert fly.largest == 262_656
    assert fly.largest / fly.group == 513
    assert (fly.worst_hops(fly.largest), fly.worst_hops(real(512.0)), fly.worst_hops(real(16.0))) == (4, 2, 1)
    assert fly.core_bandwidth_ratio == 1
    # about half of a fat tree's cables leave the row: L - 1 levels of N cables each against N/2
    assert fly.cables_by_level(fly.largest)[2] == fly.largest / 2


@pytest.mark.parametrize(("p", "a", "h"), [(2, 4, 2), (1, 2, 1), (1, 3, 1), (3, 4, 1)])
def test_dragonflies_counted_and_walked(p, a, h):
    graph, fly = dragonfly_graph(p, a, h), dragonfly(p, a, h)
    n = real(len(graph.endpoints))
    assert fly.largest == n
    assert fly.switches(n) == pytest.approx(len(graph.near) - len(graph.endpoints))
    assert fly.cables(n) == pytest.approx(len(graph.cables))
    assert max(graph.pair_hops()) - 1 <= fly.worst_hops(n)


def test_cut_of_a_dragonfly():
    """Of 12 routers in 4 groups, each with one endpoint."""
    graph, fly = dragonfly_graph(1, 3, 1), dragonfly(1, 3, 1)
    routers = Graph([end[:2] for end in graph.endpoints], [cable for cable in graph.cables if len(cable[0]) == 2])
    assert fly.bisection_links(real(12.0)) == routers.bisection() == 4
    assert dragonfly(2, 4, 2).bisection_links(real(8.0)) == 4  # one group: 2 x 2 routers


@pytest.mark.parametrize(("side", "axes"), [(8, 1), (4, 2), (6, 2), (4, 3)])
def test_tori_walked(side, axes):
    """Dally and Towles 2004."""
    graph, n = torus_graph(side, axes), real(float(side**axes))
    shape = torus(axes)
    assert shape.cables(n) == len(graph.cables)
    assert shape.worst_hops(n) == pytest.approx(max(graph.pair_hops()), rel=1e-5)
    assert shape.links_per_endpoint(n) == 2 * axes == len(graph.near[graph.endpoints[0]])
    if len(graph.endpoints) <= 16:
        assert shape.bisection_links(n) == pytest.approx(graph.bisection(), rel=1e-5)


@pytest.mark.parametrize(("side", "axes"), [(5, 1), (3, 2), (5, 2), (3, 3)])
def test_odd_tori_are_a_little_closer(side, axes):
    graph, n = torus_graph(side, axes), real(float(side**axes))
    assert torus(axes).worst_hops(n) - max(graph.pair_hops()) == pytest.approx(axes / 2, rel=1e-4)


def test_a_pod_of_tpu_v4():
    """4,096 = 16^3: 512 links of 45 to 50 GB/s; 24 TB/s on record."""
    shape, n = torus(3.0), real(4096.0)
    assert shape.bisection_links(n) == pytest.approx(512, rel=1e-5)
    assert shape.bisection_bytes_per_s(n, real(45e9)) < 24e12 < shape.bisection_bytes_per_s(n, real(50e9))


def test_full_mesh_and_crossbar():
    mesh, n = FullMesh(ports=real(7.0)), real(8.0)
    graph = Graph(range(8), combinations(range(8), 2))
    assert (mesh.cables(n), mesh.bisection_links(n)) == (len(graph.cables), graph.bisection())
    assert (mesh.links_per_endpoint(n), mesh.largest, mesh.worst_hops(n)) == (7, 8, 1)
    assert mesh.switched == mesh.switches(n) == 0
    cross, n = Crossbar(radix=real(4.0), planes=real(18.0)), real(72.0)  # NVLink 5: 18 links, switches of 72 ports
    assert (cross.switches(n), cross.largest, cross.cables(n), cross.bisection_links(n)) == (18, 72, 72, 36)


def test_prices_powers_and_latencies_add_up():
    tree, n = fat_tree(64), real(1024.0)
    bought = parts(switch_port_usd=10, copper_cable_usd=2, optical_link_usd=6, nic_usd=5)
    half = 4.0  # of copper and optics
    assert tree.price_usd(n, bought) == pytest.approx(1024 * (3 * 10 + 2 * half + 5))
    run = parts(switch_port_w=10, copper_cable_w=0, optical_link_w=8, nic_w=0, host_copper_share=1)
    assert tree.power_w(n, run) == pytest.approx(1024 * (3 * 10 + 0 + 4))
    slow = parts(switch_latency_s=3, link_latency_s=20, endpoint_latency_s=100)
    assert tree.latency_s(n, slow) == 2 * 100 + 3 * 3 + 4 * 20
    assert torus(1.0).latency_s(real(8.0), slow) == 2 * 100 + 3 * 3 + 4 * 20  # 4 links, 3 endpoints between
    assert torus(3.0).price_usd(real(64.0), parts(nic_usd=5)) == pytest.approx(64 * (3 * 1.0 + 6 * 5))


@pytest.mark.parametrize("name", EVERY)
def test_jit_map_and_gradients(name):
    """Counts grow with endpoints, map over them, and have finite gradients to every field."""
    shape, ends = EVERY[name], jnp.asarray([1.0, 2.0, 5.0, 64.0, 65.0, 200.0])
    mapped = jax.jit(jax.vmap(lambda n: {count: getattr(shape, count)(n) for count in COUNTS}))(ends)
    for count in COUNTS:
        single = [getattr(shape, count)(end) for end in ends]
        np.testing.assert_allclose(mapped[count], single, rtol=1e-5)
    values = jax.vmap(lambda n: shape.cables(n))(ends)
    assert np.all(np.diff(values) > 0)

    def all_in(held, n):
        shape, bought = held
        sums = sum(getattr(shape, count)(n) for count in COUNTS if count != "inner")
        return sums + shape.price_usd(n, bought) + shape.power_w(n, bought) + shape.latency_s(n, bought)

    slopes = jax.jit(jax.vmap(jax.grad(all_in, argnums=(0, 1)), in_axes=(None, 0)))
    by_held, by_end = slopes((shape, parts()), ends)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((by_held, by_end)))
    assert np.all(by_end > 0)


def test_levels_look_far_enough():
    assert fat_tree(8).levels(real(1e9)) == 15 < MOST_LEVELS
    gradient = jax.grad(lambda n: fat_tree(64).levels_smooth(n))(real(1e4))
    assert gradient == pytest.approx(1 / (1e4 * np.log(32)), rel=1e-4)
