"""Percentiles of a service beside an event simulation, known queues, and what a proof takes for granted of them.

How far they lie from longer simulations: `results/reference/percentiles.txt`.
"""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving import queueing, slots, tails
from tests.in_numpy import in_numpy
from tests.rotation import picked
from tests.unit.model.simulated_service import Server, apart, beside

LEVELS = tuple(queueing.LEVELS.values())
LONG = Server(empty_s=0.02, each_s=0.00015, prompt_s=0.08, slots=64, tokens=512)
"""As 70 B parameters on four GPUs: a pass of 40 ms at the most, a prompt of 80 ms."""
FEW = Server(empty_s=0.02, each_s=0.0004, prompt_s=0.02, slots=16, tokens=64)


def _closed(numbers):
    first = [tails._first_beside(level, hard_maximum, *numbers) for level in LEVELS]
    return first, [tails._next(level, hard_maximum, *numbers) for level in LEVELS]


def closed(server: Server, load: float, scvs, streams: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rate = load * streams * server.slots / ((server.tokens - 1) * server.full_s)
    numbers = (
        server.full_s,
        server.empty_s,
        server.prompt_s,
        rate,
        server.slots,
        server.tokens - 1.0,
        streams,
        *scvs,
        1.0,
    )
    first, next_ = in_numpy(_closed)([np.array([float(each)]) for each in numbers])
    return np.ravel(first), np.ravel(next_)


def off(server: Server, load: float, scvs, streams: int = 1, count: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Closed form over simulation, less 1: of p50, p95, p99, for the first token and between tokens."""
    found = [np.quantile(each, LEVELS) for each in beside(server, load, scvs, streams, count)]
    return tuple(ours / theirs - 1.0 for ours, theirs in zip(closed(server, load, scvs, streams), found, strict=True))


@pytest.mark.parametrize("at", picked(itertools.product((0.3, 0.5), (1.0, 4.0)), 1))
def test_equals_the_simulation_where_slots_are_free(at):
    load, bursts = at
    first, next_ = off(LONG, load, (bursts, 1.0, 1.0), count=40_000)
    np.testing.assert_allclose(first, 0.0, atol=0.06)
    np.testing.assert_allclose(next_, 0.0, atol=0.06)


@pytest.mark.search
@pytest.mark.parametrize("at", picked(itertools.product((0.7, 0.8, 0.9, 0.95), (1.0, 4.0)), 2))
def test_equals_the_simulation_where_slots_are_short(at):
    load, bursts = at
    first, next_ = off(FEW, load, (bursts, 1.0, 1.0), count=800_000)
    np.testing.assert_allclose(first[1:], 0.0, atol=0.08)
    np.testing.assert_allclose(next_[:2], 0.0, atol=0.07)


def _alone(numbers):
    prompts, requests = tails._Prompts(*numbers[:5]), queueing.Requests(*numbers[5:])
    spread, floor = prompts.alone(requests)
    return [queueing.quantile(spread, level, floor) for level in LEVELS]


def alone(prompt_s: float, load: float, scvs, servers: float = 1.0, together: float = 1.0) -> np.ndarray:
    numbers = (load * servers / prompt_s, prompt_s, prompt_s, 1.0, servers, *scvs, 1.0, together)
    return np.ravel(in_numpy(_alone)([np.array([float(each)]) for each in numbers]))


MACHINES = [(*servers, bursts) for servers in ((1, True), (4, True), (4, False)) for bursts in (1.0, 4.0)]
"""How many, whether they share a queue, and bursts."""


@pytest.mark.parametrize("at", picked(MACHINES, 2))
def test_prompts_alone_equal_the_simulation(at):
    servers, together, bursts = at
    found = np.quantile(apart(0.1, 0.5, (bursts, 1.0), servers, together, 400_000), LEVELS)
    np.testing.assert_allclose(alone(0.1, 0.5, (bursts, 1.0), servers, together), found, rtol=0.09)


@pytest.mark.search
@pytest.mark.parametrize("at", picked(MACHINES, 2))
def test_prompts_alone_equal_the_simulation_at_high_loads(at):
    servers, together, bursts = at
    for load in (0.8, 0.9):
        found = np.quantile(apart(0.1, load, (bursts, 1.0), servers, together, 1_500_000), LEVELS)
        ours = alone(0.1, load, (bursts, 1.0), servers, together)
        np.testing.assert_allclose(ours[0], found[0], rtol=0.09)
        np.testing.assert_allclose(ours[1:], found[1:], rtol=0.05)


def test_poisson_arrivals_wait_as_known_queues_do():
    """M/M/1: `P(W > t) = rho exp(-(1 - rho) t)`; M/D/1 and M/G/1 by Pollaczek and Khinchine."""
    load = np.array([0.05, 0.3, 0.7, 0.95])
    np.testing.assert_allclose(in_numpy(queueing.decay)(load, np.ones(4), np.ones(4)), 1.0 - load, rtol=1e-12)
    for spread in (0.0, 0.5, 1.0, 2.0):
        ones = np.ones(4)
        requests = queueing.Requests(ones, spread * ones, ones, ones)
        wait = in_numpy(lambda r, rho, s, k: queueing.prompt_queue(r, rho, s, k))(requests, load, ones, ones)
        known = 0.5 * (1.0 + spread) * load / (1.0 - load)
        np.testing.assert_allclose(wait.mean_s, known, rtol=1e-12)
        third = (1.0 + spread) * (1.0 + 2.0 * spread)
        np.testing.assert_allclose(wait.variance, known**2 + load * third / (3.0 * (1.0 - load)), rtol=1e-12)


def test_the_cut_of_bursts_solves_its_equation():
    """`1 - u = E exp(-u T)` for hyperexponential times T between arrivals, services of 1."""
    rng = np.random.default_rng(0)
    load, scv = rng.uniform(0.05, 0.98, 50), rng.uniform(1.0, 20.0, 50)
    often = 0.5 * (1.0 + np.sqrt((scv - 1.0) / (scv + 1.0)))
    fast, slow = 2.0 * often * load, 2.0 * (1.0 - often) * load
    u = in_numpy(queueing.decay)(load, scv, np.ones(50))
    np.testing.assert_allclose(1.0 - u, often * fast / (fast + u) + (1.0 - often) * slow / (slow + u), rtol=1e-9)


def test_the_share_that_waits_is_that_of_the_birth_and_death_process():
    """By its own sums, but for what passes do at the edge: one stream, Poisson arrivals, hardly any prompts."""
    for server, loads in ((FEW, (0.7, 0.8, 0.9, 0.95)), (LONG, (0.9, 0.95))):
        server = server._replace(prompt_s=1e-4)
        work = (server.tokens - 1) * (server.full_s - server.empty_s) / server.slots
        for load in loads:
            rate = load * server.slots / ((server.tokens - 1) * server.full_s)
            n = np.arange(1, server.slots + 1)
            chances = np.cumprod(rate * ((server.tokens - 1) * server.empty_s + n * work) / n)
            beyond = chances[-1] / (1.0 - load)
            waits = beyond / (1.0 + chances[:-1].sum() + beyond)
            first, _ = closed(server, load, (1.0, 1.0, 1.0))
            numbers = (server.full_s, server.empty_s, server.prompt_s, rate, server.slots, server.tokens - 1.0, 1.0)
            group, requests = tails._StreamGroup(*numbers), queueing.Requests(1.0, 1.0, 1.0, 1.0)
            at = group.passing(requests)
            share = float(slots.slot_wait(requests, at, load).share)
            edge = slots._EDGE * load**slots._LOADED
            assert share / (1.0 - share) == pytest.approx(edge * waits / (1.0 - waits), rel=0.06), (server, load)
            assert first[2] > first[1] > first[0]


def _drawn(rng, count: int, wide: float, two: bool) -> tuple[list, list]:
    """Boxes of numbers as designs have them."""
    log = lambda low, high: np.exp(rng.uniform(np.log(low), np.log(high), count))
    empty, slots, passes, streams = log(0.003, 0.1), np.round(log(4, 512)), log(16, 4000), np.round(log(1, 300))
    full, load = empty * (1.0 + log(0.02, 5.0)), rng.uniform(0.02, 1.05, count)
    prompt = 0.0 * full if two else rng.uniform(0, 0.99, count) * (full - empty) * passes / slots
    rate = load * slots * streams / (passes * full)
    asked = [
        np.where(rng.uniform(size=count) < 0.4, 1.0, log(0.5, 10)),
        log(0.05, 3),
        log(0.05, 3),
        rng.integers(0, 2, count),
    ]
    batch, latency = np.round(log(1, 16)), log(0.02, 3)
    period = latency * rng.uniform(0.3, 1.0, count)
    replicas = np.maximum(1.0, np.round(rate * period / (batch * rng.uniform(0.02, 1.02, count))))
    points = [full, empty, prompt, rate, slots, passes, streams, *asked]
    points += [period / batch, latency / batch, batch, replicas] if two else []
    fixed = {5, 7, 8, 9, 10}
    low = [x * np.exp(-wide * (i not in fixed) * rng.uniform(size=count)) for i, x in enumerate(points)]
    high = [x * np.exp(wide * (i not in fixed) * rng.uniform(size=count)) for i, x in enumerate(points)]
    high[1] = np.minimum(high[1], low[0])
    low[1] = np.minimum(low[1], high[1])
    return low, high


@pytest.mark.parametrize("wide", [0.01, 0.1, 0.5])
def test_no_design_of_a_box_is_below_what_a_proof_takes_for_its_least(wide):
    rng = np.random.default_rng(3)
    for (function, _), operation in tails._PROVED.items():
        low, high = _drawn(rng, 4_000, wide, function is tails._first_apart)
        least, most = operation.least(*low, *high), operation.most(*low, *high)
        for _ in range(4):
            share = [rng.uniform(size=4_000) for _ in low]
            x = [
                a if (a == 0).all() else a * (b / np.where(a > 0, a, 1.0)) ** s
                for a, b, s in zip(low, high, share, strict=True)
            ]
            real = x[2] * x[4] / x[5] <= x[0] - x[1]  # prompts are a part of what a pass grows by
            value = operation.on_numbers(*x)
            assert (value >= least * (1.0 - 1e-6))[real].all(), operation.name
            assert np.mean((value <= most * (1.0 + 1e-6))[real]) > 0.99, operation.name


@pytest.mark.parametrize("wide", [0.0, 0.1, 0.5])
def test_no_percentile_is_below_its_floor(wide):
    """What a proof takes for a percentile where none waits for a slot: of every point, and of products in a box."""
    rng = np.random.default_rng(6)
    assert [at for at, operation in tails._PROVED.items() if operation.floor] == [
        (tails._first_apart, p) for p in (0.95, 0.99)
    ]
    for operation in (tails._PROVED[tails._first_apart, level] for level in (0.95, 0.99)):
        x, _ = _drawn(rng, 4_000, 0.0, two=True)
        floor, products = operation.floor
        at = [np.prod([x[i] ** power for i, power in each.items()], axis=0) for each in products]
        value = floor.on_numbers(*at)
        assert (operation.on_numbers(*x) >= value * (1.0 - 1e-9)).all(), operation.name
        for _ in range(4):
            sizes = [
                wide * (i < 5) * rng.uniform(size=(2, 4_000)) for i in range(len(at))
            ]  # what requests are is known
            ends = [each * np.exp(-size[0]) for each, size in zip(at, sizes, strict=True)]
            above = [each * np.exp(size[1]) for each, size in zip(at, sizes, strict=True)]
            for i in (3, 4):  # prompts of a pass, and replicas, are one at least
                ends[i] = np.maximum(ends[i], np.minimum(at[i], 1.0))
            assert (floor.least(*ends, *above) <= value * (1.0 + 1e-6)).all(), floor.name


def test_as_an_operation_it_is_what_it_is_written_out():
    rng = np.random.default_rng(4)
    low, _ = _drawn(rng, 5, 0.0, two=False)
    low[3] = 0.5 * low[3]
    for level in LEVELS:
        operation = tails._PROVED[tails._first_beside, level]
        plain = np.array(
            [tails._first_beside(level, hard_maximum, *map(jax.numpy.asarray, row)) for row in zip(*low, strict=True)]
        )
        np.testing.assert_allclose(operation.on_numbers(*low), plain, rtol=1e-4)  # plain in float32
