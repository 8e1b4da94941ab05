"""Points drawn from nested boxes: where they fall, what each stands for, and that sums of weights have no bias."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from hwopt.sweeps.samplers import Sobol
from hwopt.sweeps.strata import Strata
from hwopt.sweeps.stratified import GROUP, MOST_LEVELS, StratifiedSobol, interleaved_strata

NAMES = ("a", "b", "c")
LOW = np.array([[0.2, 0.0, 0.1], [0.3, 0.5, 0.1], [0.31, 0.6, 0.7]])
HIGH = np.array([[0.8, 1.0, 0.9], [0.5, 0.9, 0.9], [0.35, 0.65, 0.9]])
LEVELS = Strata.nested(NAMES, LOW, HIGH)
COUNT = 1 << 14


def sampler(seed=0, count=COUNT, levels=LEVELS, plain=0.25):
    inner = len(levels) - 1
    shares = np.array([plain, *[(1.0 - plain) / inner] * inner])
    base = Sobol(levels.names, count, seed)
    return StratifiedSobol(base, levels.ends, levels, interleaved_strata(shares, -(-count // GROUP), seed))


@jax.jit
def on_device(tables, start):
    made = sampler()  # any: what differs is in the tables and the start
    columns = made.columns(tables, start[None], np.float32)
    return columns, made.level(tables, columns)


def drawn(made, chunk=1 << 12):
    """Points (coordinate, point) and levels, as a device computes them chunk by chunk."""
    tables = made.tables(chunk)
    starts = made.starts(np.arange(0, made.count, chunk), chunk)
    columns, levels = zip(*(on_device(tables, start) for start in starts), strict=True)
    return np.concatenate([np.stack(x) for x in columns], axis=1)[:, : made.count], np.concatenate(levels)[: made.count]


def innermost(points):
    """The level of each point, box by box."""
    holds = (points[None] >= LEVELS.ends[:, 0, :, None]) & (points[None] <= LEVELS.ends[:, 1, :, None])
    return holds.all(axis=1).sum(axis=0) - 1


def test_boxes_are_nested_and_begin_with_the_cube():
    wild = Strata.nested(("a",), np.array([[0.4], [0.2], [0.3]]), np.array([[0.5], [0.6], [0.7]]))
    np.testing.assert_allclose(wild.low.ravel(), [0.0, 0.2, 0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(wild.high.ravel(), [1.0, 0.7, 0.7, 0.7], rtol=1e-6)


def test_boxes_are_the_same_after_a_file():
    again = Strata.of_document(json.loads(json.dumps(LEVELS.document())))
    assert again.names == NAMES
    np.testing.assert_array_equal(again.ends, LEVELS.ends)
    for broken in (
        {},
        {"coordinates": ["a"], "low": [[0.5]], "high": [[0.5]]},
        {"coordinates": ["a"], "low": [], "high": []},
    ):
        with pytest.raises((KeyError, ValueError)):
            Strata.of_document(broken)


def test_points_fall_into_the_boxes_whose_turn_it_is():
    made = sampler()
    points, level = drawn(made)
    turn = made.turns[np.arange(COUNT) // GROUP]
    assert (level >= turn).all() and (level < MOST_LEVELS).all()
    np.testing.assert_array_equal(level, innermost(points))
    np.testing.assert_array_equal(made.counts, np.bincount(turn, minlength=len(LEVELS)))
    np.testing.assert_allclose(points, made.points(np.arange(COUNT)), atol=1e-6)


def test_points_depend_on_their_number_alone():
    made = sampler(count=3 * 1024 + 77)
    points, level = drawn(made, 1024)
    others, other_level = drawn(made, 4096)
    np.testing.assert_array_equal(points, others)
    np.testing.assert_array_equal(level, other_level)
    assert made.counts.sum() == made.count


def test_the_cube_alone_is_the_plain_sequence():
    made = StratifiedSobol(Sobol(NAMES, 4096, 3), Strata.plain(NAMES).ends, Strata.plain(NAMES), np.zeros(1, int))
    points, level = drawn(made)
    plain = (Sobol(NAMES, 4096, 3).bits(np.arange(4096)) >> 8) * 2.0**-24
    np.testing.assert_array_equal(points, plain.astype(np.float32))
    assert not level.any()
    np.testing.assert_array_equal(made.levels.weights(made.counts), [1.0])


def test_any_run_of_turns_holds_about_what_the_shares_say():
    shares = np.array([0.25, 0.5, 0.125, 0.125])
    turns = interleaved_strata(shares, 1024, 5)
    for run in turns.reshape(-1, 64):
        assert (np.abs(np.bincount(run, minlength=4) / 64 - shares) <= 2 / 64).all()


def test_weights_are_bounded_and_their_mean_is_1_exactly():
    """Over the boxes: what is drawn of each shell, times its weight, is the shell's volume."""
    counts = sampler().counts
    weights, volumes = LEVELS.weights(counts), LEVELS.volumes
    shares = counts / counts.sum()
    assert (weights <= 1.0 / shares[0] + 1e-12).all()
    shells = volumes - np.append(volumes[1:], 0.0)
    of_shell = np.cumsum(shares / volumes) * shells  # how many are drawn there
    assert of_shell.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(of_shell * weights, shells)


CORNERS = {
    "all": lambda u: np.ones(u.shape[1]),
    "deep": lambda u: (
        ((u[0] > 0.32) & (u[0] < 0.34) & (u[1] > 0.61) & (u[1] < 0.64) & (u[2] > 0.8) & (u[2] < 0.85)) * 1.0
    ),
    "across": lambda u: ((u[0] > 0.25) & (u[0] < 0.33) & (u[1] > 0.55)) * 1.0,
    "outside": lambda u: (u[0] > 0.9) * 1.0,
    "smooth": lambda u: u[0] * u[1] ** 2 * np.exp(-u[2]),
}
EXACTLY = {
    "all": 1.0,
    "deep": 0.02 * 0.03 * 0.05,
    "across": 0.08 * 0.45,
    "outside": 0.1,
    "smooth": 0.5 / 3.0 * (1.0 - np.exp(-1.0)),
}


def test_weighted_means_have_no_bias():
    """Forty sweeps of other seeds: their mean is the integral, within four standard errors of it."""
    estimates = {name: [] for name in CORNERS}
    for seed in range(40):
        made = sampler(seed, count=4096)
        points, level = drawn(made)
        weight = made.levels.weights(made.counts)[level]
        for name, function in CORNERS.items():
            estimates[name].append(float((weight * function(points.astype(float))).mean()))
    for name, each in estimates.items():
        error = np.std(each, ddof=1) / np.sqrt(len(each))
        assert abs(np.mean(each) - EXACTLY[name]) <= 4.0 * error + 1e-7, name
    assert np.std(estimates["deep"]) < 0.2 * EXACTLY["deep"]  # plain points would miss by 0.7 and more of it
