"""Algorithms on topologies: what a fabric makes fastest, tori, full meshes, jitter; bounds hold for all."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.hardware.network import Network
from hwopt.model.network import collectives, route
from tests import cases

KINDS = ("ring_pass_s", "all_reduce_s", "all_to_all_s")


def torus(side: int, dimensions: int, bandwidth: float = 6e11, latency: float = 1e-6) -> Network:
    """A torus of one tier, wide enough for everything, without losses."""
    chips = float(side**dimensions)
    q = np.log(2.0 * dimensions) / np.log(chips / 2.0) if chips > 2.0 else 0.0
    values = {
        "size": [chips, chips],
        "bandwidth_bytes_per_s": [bandwidth] * 3,
        "lane_bytes_per_s": [bandwidth] * 2,
        "efficiency": [1.0] * 3,
        "latency_s": [latency] * 3,
        "ramp": [0.0] * 3,
        "reduction_factor": [1.0] * 3,
        "dimensions": [float(dimensions), 1.0, 1.0],
        "links": [2.0 * dimensions, 1.0],
        "sharing": [q, 0.0],
        "crossings": [dimensions / 4.0, 0.0],
        "tree_step": [1e9] * 3,
        "latency_tail_s": [0.0] * 3,
        "bandwidth_spread": [0.0] * 3,
        "level_chips": 1e9,
        "level_latency_s": 0.0,
        "flat_rings": 0.0,
        "switches_per_port": [0.0, 3 / 64, 2 / 64],
        "switch_price_share": [0.0, 0.3, 0.5],
        "switch_power_share": [0.0, 0.5, 0.6],
        "energy_j_per_byte": [1e-11] * 3,
    }
    return Network(**{name: np.array(value) for name, value in values.items()})


def time(kind: str, network: Network, size: float, group: float, stride: float = 1.0) -> float:
    with jax.enable_x64(True):
        return float(getattr(collectives, kind)(network, *np.array([size, group, stride]), 0.0))


def test_an_all_reduce_on_a_torus_takes_its_bandwidth_bound():
    """8 x 8 x 8: every chip sends and receives 2 (n - 1)/n S over all of its six links, however far."""
    network, n, size = torus(8, 3), 512.0, 1e12
    bound = 2.0 * (1.0 - 1.0 / n) * size / 6e11
    assert time("all_reduce_s", network, size, n) == pytest.approx(bound, rel=1e-4)
    assert time("all_reduce_s", network, size, n) >= bound


def test_rings_along_the_axes_are_what_latency_counts():
    """Small messages: `2 D (n^(1/D) - 1)` steps, not 2 (n - 1)."""
    for side, dimensions in ((8, 3), (16, 2), (64, 1)):
        network = torus(side, dimensions)
        steps = 2.0 * dimensions * (side - 1)
        assert time("all_reduce_s", network, 1e-3, float(side**dimensions)) == pytest.approx(steps * 1e-6, rel=1e-9)


def test_an_all_to_all_on_a_torus_is_bound_by_its_middle():
    """A quarter of all bytes cross the cut of 2 n / n_max links: `S n_max / (8 B_link)`."""
    side, dimensions, size = 16, 3, 1e12
    network = torus(side, dimensions)
    link = 6e11 / (2 * dimensions)
    bound = size * side / (8.0 * link)
    assert time("all_to_all_s", network, size, float(side**dimensions)) == pytest.approx(bound, rel=1e-3)
    switched = torus(2, 1)  # a pair has nothing to cross
    assert time("all_to_all_s", switched, size, 2.0) < bound


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_two_neighbours_share_one_link_and_all_share_all(dimensions):
    network = torus(8, dimensions)
    with jax.enable_x64(True):
        part = lambda n: float(route.links_left_out(network, np.array([n, 1.0, 1.0]))[0])
        assert part(2.0) == pytest.approx(2.0 * dimensions, rel=1e-12)
        assert part(float(8**dimensions)) == pytest.approx(1.0, rel=1e-12)
        assert part(1.0) == 1.0
        between = [part(n) for n in np.linspace(2.0, 8.0**dimensions, 50)]
    assert (np.diff(between) < 0).all()


def test_a_full_mesh_of_eight_gives_a_pair_one_link_of_seven():
    """MI300X: 64 GB/s between two, 448 among eight; measured 47.7 and 312.9 of bus bandwidth."""
    network, size = catalog.network("mi300x"), 8e9
    of = {n: 2.0 * (1.0 - 1.0 / n) * size / time("all_reduce_s", network, size, float(n)) for n in (2, 4, 8)}
    assert of[2] == pytest.approx(47.7e9, rel=0.1)
    assert of[8] == pytest.approx(312.9e9, rel=0.1)
    assert of[2] < of[4] < of[8]


def test_the_faster_algorithm_is_taken_and_depends_on_members_alone():
    network = cases.replace(torus(8, 1), tree_step=2.0, sharing=0.0, crossings=0.0, size=1e6)
    with jax.enable_x64(True):
        for n in (2.0, 4.0, 6.0, 7.0, 64.0, 4096.0):
            steps = float(route.fastest_steps(network, np.full(3, n))[0])
            assert steps == pytest.approx(min(n - 1.0, 2.0 * np.log2(n)), rel=1e-12)
    for size in (1.0, 1e6, 1e12):
        slow = time("all_reduce_s", cases.replace(network, tree_step=1e9), size, 4096.0)
        assert time("all_reduce_s", network, size, 4096.0) <= slow


def test_steps_grow_smoothly_with_the_group():
    network = catalog.network("h100-sxm")
    with jax.enable_x64(True):
        groups = np.geomspace(1.0, 3e4, 4000)
        seconds = jax.vmap(lambda n: collectives.all_reduce_s(network, 1e6, n, 1.0, 0.0))(groups)
    change = np.diff(np.asarray(seconds))
    assert (change >= -1e-15).all() and change.max() < 0.01 * float(seconds[-1])


def test_no_collective_beats_its_bounds_on_any_topology():
    """Received bytes over all links of a chip, one latency: for random networks, groups and messages."""
    rng = np.random.default_rng(11)
    draws = cases.random_cases(rng, 400)[1].network
    draws = cases.replace(draws, size=np.ceil(draws.size))  # part of a chip takes part of a step
    groups, sizes = np.ceil(np.exp(rng.uniform(0.1, 9, 400))), np.exp(rng.uniform(0, 28, 400))
    with jax.enable_x64(True):
        for kind, passes in (("ring_pass_s", 1.0), ("all_reduce_s", 2.0), ("all_to_all_s", 1.0)):
            function = getattr(collectives, kind)
            took = jax.vmap(lambda net, s, n: function(net, s, n, 1.0, 0.0))(draws, sizes, groups)  # noqa: B023
            best = (draws.bandwidth_bytes_per_s * draws.efficiency).sum(1)
            reduced = draws.reduction_factor.min(1) if kind == "all_reduce_s" else 1.0
            assert (np.asarray(took) >= passes * reduced * (1.0 - 1.0 / groups) * sizes / best * (1 - 1e-9)).all()
            assert (np.asarray(took) >= draws.latency_s.min(1)).all()


# Jitter.


def simulated_ring(members: int, steps: int, rng: np.random.Generator, rounds: int = 200) -> float:
    """Mean time of a step of a ring whose messages take 1 + an exponential tail of mean 1, every chip waiting for one."""
    finished = np.zeros((rounds, members))
    for _ in range(steps):
        sent = finished + rng.exponential(size=finished.shape)
        finished = np.maximum(sent, np.roll(sent, 1, axis=1))
    return finished.max(axis=1).mean() / steps


@pytest.mark.parametrize("members", [2, 4, 8, 32, 128])
def test_the_wait_for_late_neighbours_is_that_of_simulated_rings(members):
    network = cases.replace(torus(128, 1), latency_s=0.0, latency_tail_s=1.0)
    steps = max(members - 1, 200)
    with jax.enable_x64(True):
        wait = float(route.waiting_latency_s(network, np.full(3, float(members)))[0])
    assert wait == pytest.approx(simulated_ring(members, steps, np.random.default_rng(3)), rel=0.12)


def test_spread_lets_the_slowest_of_many_links_set_the_pace():
    plain = torus(16, 1, latency=0.0)
    uneven = cases.replace(plain, bandwidth_spread=0.1)
    rng = np.random.default_rng(0)
    for n in (2.0, 8.0, 16.0):
        slowest = (1.0 + 0.1 * rng.normal(size=(20000, int(n)))).max(1).mean()
        ratio = time("ring_pass_s", uneven, 1e12, n) / time("ring_pass_s", plain, 1e12, n)
        assert ratio == pytest.approx(slowest, rel=0.02)


def test_predictable_beats_peak():
    """At some size uniform links win over twice as fast ones that jitter; and the more chips, the surer."""
    uniform = cases.replace(torus(8, 1, bandwidth=5e10), size=1e9, sharing=0.0)
    heroic = cases.replace(uniform, bandwidth_bytes_per_s=1e11, bandwidth_spread=0.3, latency_tail_s=2e-5)
    ratio = [time("all_reduce_s", heroic, 1e8, n) / time("all_reduce_s", uniform, 1e8, n) for n in (8.0, 64.0, 4096.0)]
    assert ratio[0] < 1.0 < ratio[-1]
    assert np.all(np.diff(ratio) > 0)
