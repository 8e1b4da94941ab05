"""Collectives: closed forms at the ends, bounds, monotone, free for one chip, and the plain reference at every size."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.hardware.network import Network
from hwopt.model.network import collectives
from tests.reference.plain import collectives as plain

KINDS = ("ring_pass_s", "all_reduce_s", "all_to_all_s")
PLAIN = {"ring_pass_s": plain.ring_pass, "all_reduce_s": plain.all_reduce, "all_to_all_s": plain.all_to_all}


def network(**changed) -> Network:
    fields = {
        "size": [8.0, 256.0],
        "bandwidth_bytes_per_s": [4e11, 5e10, 2e10],
        "lane_bytes_per_s": [2.5e10, 5e10],
        "efficiency": [0.8, 0.9, 0.9],
        "latency_s": [1e-6, 4e-6, 9e-6],
        "ramp": [1.0, 1.0, 0.5],
        "reduction_factor": [0.75, 1.0, 1.0],
        "dimensions": [1.0, 1.0, 1.0],
        "links": [1.0, 1.0],
        "sharing": [0.0, 0.0],
        "crossings": [0.0, 0.0],
        "tree_step": [1e9, 1e9, 1e9],
        "latency_tail_s": [0.0, 0.0, 0.0],
        "bandwidth_spread": [0.0, 0.0, 0.0],
        "level_chips": 1e9,
        "level_latency_s": 0.0,
        "flat_rings": 0.0,
        "switches_per_port": [0.0, 3 / 64, 2 / 64],
        "switch_price_share": [0.0, 0.3, 0.5],
        "switch_power_share": [0.0, 0.5, 0.6],
        "energy_j_per_byte": [1e-11, 1e-10, 1e-10],
    }
    return Network(**{name: np.array(value) for name, value in {**fields, **changed}.items()})


def time(kind: str, size: float, group: float, stride: float = 1.0, launch: float = 0.0, links: Network | None = None):
    held = network() if links is None else links
    with jax.enable_x64(True):
        return float(getattr(collectives, kind)(held, *np.array([size, group, stride]), launch))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [1.0, 1.3, 2.0, 5.5, 8.0, 8.4, 24.0, 700.0])
@pytest.mark.parametrize("stride", [1.0, 2.5, 16.0])
def test_equals_the_plain_reference(kind, group, stride):
    cluster = SimpleNamespace(
        network=network(), stack=SimpleNamespace(collective_launch_s=7e-6, logarithmic_passes=0.0)
    )
    for size in (10.0, 1e6, 1e10):
        expected = PLAIN[kind](cluster, size, group, stride)
        assert time(kind, size, group, stride, 7e-6) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("group", [1.0, 1.3, 8.0, 8.4, 24.0, 700.0])
def test_a_send_equals_the_plain_reference(group):
    with jax.enable_x64(True):
        sent = float(collectives.neighbour_send_s(network(), *np.array([1e6, group, 2.0])))
    assert sent == pytest.approx(plain.send(SimpleNamespace(network=network()), 1e6, group, 2.0), rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_chip_is_free_and_two_are_reached_without_a_step(kind):
    assert time(kind, 1e9, 1.0, 3.0, 1e-5) == 0.0
    assert time(kind, 1e9, 1.0 + 1e-9, 3.0, 1e-5) < 1e-8
    for edge in (2.0, 8.0, 256.0):  # a second chip, a full domain, a full pod
        assert time(kind, 1e9, edge * (1 + 1e-9), 1.0, 1e-5) == pytest.approx(
            time(kind, 1e9, edge, 1.0, 1e-5), rel=1e-6
        )


def test_small_messages_cost_launch_and_latency():
    # 8 chips of one domain: seven steps of a ring; of an all-to-all, one and six gaps.
    assert time("ring_pass_s", 1e-9, 8.0, launch=5e-6) == pytest.approx(5e-6 + 7e-6, rel=1e-6)
    assert time("all_reduce_s", 1e-9, 8.0, launch=5e-6) == pytest.approx(5e-6 + 14e-6, rel=1e-6)
    assert time("all_to_all_s", 1e-9, 8.0, launch=5e-6) == pytest.approx(5e-6 + 4e-6, rel=1e-6)


def test_large_messages_run_at_bus_bandwidth():
    size, bus = 1e18, 4e11 * 0.8
    for kind in ("ring_pass_s", "all_to_all_s"):
        assert time(kind, size, 8.0) == pytest.approx((7 / 8 + 0.5 / 8) * size / bus, rel=1e-4)
    assert time("all_reduce_s", size, 8.0) == pytest.approx(2 * 0.75 * 7 / 8 * size / bus, rel=1e-4)


def test_tiers_of_a_ring_run_at_once():
    """The slowest tier sets the pace: eight links of 45 GB/s outwards outrun one of 320 GB/s inside, or they do not."""
    size = 1e18
    outside = (1 / 8 - 1 / 16) * size / (5e10 * 0.9)
    inside = (1 - 1 / 16) * size / (4e11 * 0.8)
    own = 0.5 / 16 * size / (4e11 * 0.8)
    assert inside > outside
    assert time("ring_pass_s", size, 16.0) == pytest.approx(inside + own, rel=1e-4)
    slow = network(bandwidth_bytes_per_s=[4e11, 1e10, 1e10])
    assert time("ring_pass_s", size, 16.0, links=slow) == pytest.approx(5 * outside + own, rel=1e-4)


def test_tiers_of_an_all_to_all_send_at_once():
    """16 chips on two domains: 8 of 16 parts leave over 45 GB/s, 7 of 16 stay inside at 320 GB/s, the longer decides."""
    size = 1e18
    outside, inside, own = 8 / 16 * size / 4.5e10, 7 / 16 * size / 3.2e11, 0.5 / 16 * size / 3.2e11
    assert time("all_to_all_s", size, 16.0) == pytest.approx(outside + own, rel=1e-4)
    fast = network(bandwidth_bytes_per_s=[4e11, 4e12, 4e12])
    assert time("all_to_all_s", size, 16.0, links=fast) == pytest.approx(inside + own, rel=1e-4)


def test_an_all_reduce_over_many_large_domains_is_one_ring():
    """n - 1 steps a pass over three domains and more, each of an n-th of the message; two domains as everywhere else."""
    flat = network(flat_rings=1.0, ramp=[0.0, 0.0, 0.0], reduction_factor=[1.0, 1.0, 1.0])
    nested = network(ramp=[0.0, 0.0, 0.0], reduction_factor=[1.0, 1.0, 1.0])
    for group in (1.0, 8.0, 16.0):
        assert time("all_reduce_s", 1e6, group, links=flat) == time("all_reduce_s", 1e6, group, links=nested)
    # 24 chips in three domains: 7 steps in each, and two between them.
    assert time("all_reduce_s", 1e-9, 24.0, links=flat) == pytest.approx(2 * (21 * 1e-6 + 2 * 4e-6), rel=1e-6)
    # 512 in two pods of 32 domains: 64 domains, 31 ways between domains in each pod, one between pods.
    steps_s = 64 * 7 * 1e-6 + 2 * 31 * 4e-6 + 9e-6
    assert time("all_reduce_s", 1e-9, 512.0, links=flat) == pytest.approx(2 * steps_s, rel=1e-6)
    # A step's ramp is that of an n-th of the message.
    ramped = network(flat_rings=1.0, ramp=[1.0, 0.0, 0.0], reduction_factor=[1.0, 1.0, 1.0])
    more = time("all_reduce_s", 1e8, 24.0, links=ramped) - time("all_reduce_s", 1e8, 24.0, links=flat)
    assert more == pytest.approx(2 * 21 * 2 * np.sqrt(1e-6 * 1e8 / 24 / 3.2e11), rel=1e-9)
    # Between two domains and three it grows in.
    groups = np.linspace(16.0, 24.0, 81)
    assert (np.diff([time("all_reduce_s", 1e6, group, links=flat) for group in groups]) > 0.0).all()


@pytest.mark.parametrize("group", [1.0, 9.0, 16.0, 20.5, 24.0, 700.0])
@pytest.mark.parametrize("stride", [1.0, 2.5, 16.0])
def test_one_ring_equals_the_plain_reference(group, stride):
    links = network(flat_rings=1.0, tree_step=[2.0, 2.0, 2.0])
    stack = SimpleNamespace(collective_launch_s=7e-6, logarithmic_passes=0.0)
    cluster = SimpleNamespace(network=links, stack=stack)
    for size in (10.0, 1e6, 1e10):
        expected = plain.all_reduce(cluster, size, group, stride)
        assert time("all_reduce_s", size, group, stride, 7e-6, links) == pytest.approx(expected, rel=1e-12, abs=0)


def test_racks_of_a_catalogue_chip_are_passed_by_one_ring():
    assert float(catalog.network("gb200").flat_rings) == float(catalog.network("gb300").flat_rings) == 1.0
    assert float(catalog.network("b200").flat_rings) == float(catalog.network("h100-sxm").flat_rings) == 0.0


def test_a_step_is_that_of_the_best_chunks():
    """At ramp 1 a step of alpha and x is the least over k chunks of `(1 + 1/k) x + k alpha`, less what bounds k."""
    alpha, x = 1e-6, 4e-5
    links = network(ramp=[1.0, 1.0, 1.0])
    with jax.enable_x64(True):
        step = alpha + x + float(collectives.ramp_s(links, links.latency_s * 0 + alpha, np.array([x, x, x]))[0])
    chunks = np.linspace(1, 100, 100_000)
    assert step == pytest.approx((alpha + x + chunks * alpha + x / chunks).min(), rel=1e-6)
    assert step == pytest.approx((np.sqrt(alpha) + np.sqrt(x)) ** 2, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_more_bytes_latency_or_ramp_take_longer_and_bandwidth_shortens(kind):
    base = time(kind, 1e7, 24.0)
    assert time(kind, 2e7, 24.0) > base > time(kind, 1e7, 12.0)
    assert time(kind, 1e7, 24.0, links=network(latency_s=[2e-6, 8e-6, 9e-6])) > base
    assert time(kind, 1e7, 24.0, links=network(ramp=[0.0, 0.0, 0.0])) < base
    assert time(kind, 1e7, 24.0, links=network(bandwidth_bytes_per_s=[8e11, 1e11, 4e10])) < base


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_in_single_precision_where_nothing_is_sent(kind):
    for size, group in ((0.0, 8.0), (1e9, 1.0), (0.0, 1.0), (1e-3, 64.0)):
        inputs = np.array([size, group, 2.0], np.float32)
        held = jax.tree.map(lambda leaf: leaf.astype(np.float32), network())
        of = getattr(collectives, kind)
        slopes = jax.grad(lambda h, s, of=of: of(h, s[0], s[1], s[2], np.float32(1e-5)), argnums=(0, 1))(held, inputs)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


def test_links_without_measurements_send_messages_whole():
    assert catalog.network("tpu-v5p").ramp.tolist() == [0, 0, 0]
    assert catalog.network("h100-sxm").ramp.tolist() == [1, 0, 0]
    assert catalog.network("h100-sxm", scale_out="efa").ramp.tolist() == [1, 1, 1]
