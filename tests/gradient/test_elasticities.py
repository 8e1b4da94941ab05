"""Gradients: equal to differences, between the slopes at kinks, the same in float32, finite everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import one_chip_cases, random_cases, to_vectors
from tests.cases import sampled as sampled_cases
from tests.gradient.elasticity import (
    INPUTS,
    MAIN,
    OUTPUTS,
    elasticities,
    forward,
    input_scale,
    is_structural_zero,
    output_scale,
    reverse,
    slopes,
    values,
)
from tests.rotation import sample

STEP = 1e-3


def moved(x: np.ndarray, step: float) -> np.ndarray:
    """Outputs with each input moved by `step` units of `input_scale`, shape (case, output, input)."""
    n, k = x.shape
    every, own = np.repeat(x[:, None, :], k, 1), np.arange(k)
    every[:, own, own] = np.where(x != 0, x * np.exp(step), step * input_scale(x))
    return values(every.reshape(n * k, k)).reshape(n, k, -1).transpose(0, 2, 1)


@pytest.fixture(scope="module")
def sampled():
    """30 of 100 cases: elasticities, their scaled one-sided and central differences at two steps."""
    x = to_vectors(sampled_cases(random_cases(np.random.default_rng(20), 100), 30))
    y, dy_dx = slopes(x)
    scale = output_scale(y, OUTPUTS)[:, :, None]
    plus, minus, half_plus, half_minus = (
        (moved(x, h) - y[:, :, None]) / scale for h in (STEP, -STEP, STEP / 2, -STEP / 2)
    )
    central, half_central = (plus - minus) / (2 * STEP), (half_plus - half_minus) / STEP
    bend, half_bend = (plus + minus) / (2 * STEP), (half_plus + half_minus) / STEP  # halves with the step where smooth
    return dict(
        x=x,
        dy_dx=dy_dx,
        exact=elasticities(y, dy_dx, x, OUTPUTS),
        difference=(4 * half_central - central) / 3,
        right=2 * half_plus / STEP,
        left=-2 * half_minus / STEP,
        kink_nearby=bends(plus, half_plus) | bends(minus, half_minus),
        kink=(np.abs(bend - 2 * half_bend) > 1e-8) | (np.abs(central - half_central) > 1e-5 * (1 + np.abs(central))),
        absent=np.broadcast_to(is_structural_zero(x)[:, None, :], dy_dx.shape),
        on_bound=np.broadcast_to(((x == 0) | (x == 1))[:, None, :], dy_dx.shape),
    )


def bends(whole: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Where the slope over half a step is not the slope over the whole: a kink lies between."""
    return np.abs(2 * half - whole) > 1e-2 * np.abs(whole) + 1e-6 * STEP


def worst(wrong: np.ndarray, s: dict, other: str) -> str:
    """The first disagreements in words."""
    lines = [f"{wrong.sum()} of {wrong.size}"]
    for i, o, k in np.argwhere(wrong)[:8]:
        lines.append(
            f"case {i}: {OUTPUTS[o]} by {INPUTS[k]} = {s['x'][i, k]:g}: {s['exact'][i, o, k]:.9g}, not {s[other][i, o, k]:.9g}"
        )
    return "\n".join(lines)


@pytest.mark.search
def test_elasticities_equal_central_differences(sampled):
    """To 1e-6 |e| + 1e-8, every output by every input, off the kinks and off bounds such as a degree of 1.

    Kinks that differences see: maxima of times, group sizes, optical links where the domain begins to leave the rack, the
    throttle's threshold and the least of its limits, goodput and activity where they are held, the lesser of a rack's
    limits, and the share of tokens that must be useful.
    """
    s = sampled
    off = ~(s["kink"] | s["absent"] | s["on_bound"])
    # 1 - e^-x of a small x; hot spares, a small part of the chips that follows failures
    cancels = np.array([10.0 if name in ("checkpoint_interval_s", "chip_usd_per_s") else 1.0 for name in OUTPUTS])
    wrong = off & ~(np.abs(s["exact"] - s["difference"]) <= (1e-6 * np.abs(s["exact"]) + 1e-8) * cancels[None, :, None])
    assert not wrong.any(), worst(wrong, s, "difference")
    inside = ~(s["absent"] | s["on_bound"])
    assert (s["kink"] & inside).sum() < 0.01 * inside.sum()


@pytest.mark.search
def test_elasticities_lie_between_the_one_sided_slopes(sampled):
    """On a kink too: a gradient outside the two slopes points nowhere. Curvature widens the slopes a little.

    A few entries stand on two kinks at once (degrees of exactly 1 that are equal), where the pieces that the one-sided
    slopes see are not the one that the gradient belongs to.
    """
    s = sampled
    low, high = np.minimum(s["left"], s["right"]), np.maximum(s["left"], s["right"])
    slack = 0.2 * (high - low) + 1e-3 * np.abs(s["exact"]) + 1e-6
    wrong = ~(s["absent"] | s["kink_nearby"]) & ((s["exact"] < low - slack) | (s["exact"] > high + slack))
    assert wrong.sum() < 3e-4 * wrong.size, worst(wrong, s, "right")


@pytest.mark.search
def test_both_modes_of_jax_say_the_same(sampled):
    """To 1e-8 where a slope is 0: what cancels exactly in one mode leaves rounding in the other (idle time of equal stages)."""
    x = sampled["x"]
    y, pulled = reverse(x)
    np.testing.assert_allclose(elasticities(y, forward(x), x, OUTPUTS), sampled["exact"], rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(elasticities(y, pulled, x, OUTPUTS), sampled["exact"], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(random_cases, marks=pytest.mark.search),
        pytest.param(one_chip_cases, marks=pytest.mark.search),
    ],
)
def test_gradients_are_finite(cases):
    """In float32, degrees of exactly 1 and models without experts included."""
    x = to_vectors(sampled_cases(cases(np.random.default_rng(21), 500), 30))
    y, dy_dx = reverse(x, np.float32)
    assert np.isfinite(y).all()
    wrong = np.argwhere(~np.isfinite(dy_dx))
    assert not len(wrong), [(OUTPUTS[o], INPUTS[k]) for _, o, k in wrong[:8]]


def near_ties(x: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Entries whose elasticity moves more than a tenth of the tolerance when every input moves by about 1e-5.

    Inputs of exactly 0 and 1 stay: they are exact in float32 too, so both precisions take the same branch. Only an overlap
    or an offloaded share of 0 becomes 1e-5, and a single virtual stage (which allows no overlap) 1 + 1e-5: float32 cannot
    tell on which side of the tie a very short communication lies. So do steps of trees: eight chips in three dimensions
    need as many as the ring, whose number is a root.
    """
    overlap = np.array([name.endswith(("overlap", "offloaded")) for name in INPUTS])
    ones = np.array([name.endswith("virtual_stages") or ".tree_step" in name for name in INPUTS])
    rng, near = np.random.default_rng(22), np.zeros(exact.shape, bool)
    for _ in range(10):
        factor = 1 + 1e-5 * rng.uniform(0.5, 1, x.shape) * rng.choice([-1, 1], x.shape)
        other = np.where((x == 0) | (x == 1), x + 1e-5 * ((overlap & (x == 0)) | (ones & (x == 1))), x * factor)
        y, dy_dx = reverse(other, outputs=MAIN)
        near |= np.abs(elasticities(y, dy_dx, other, list(MAIN)) - exact) > 1e-4 * np.abs(exact) + 1e-5
    return near


def float32_errors(n: int, seed: int, of: int) -> tuple[np.ndarray, np.ndarray, dict[str, list[str]]]:
    """(wrong, near a tie) of each entry of n of so many variants, and the wrong ones in words by output."""
    x = (
        to_vectors(sampled_cases(random_cases(np.random.default_rng(seed), of), n))
        .astype(np.float32)
        .astype(np.float64)
    )
    double, single = (elasticities(*reverse(x, dtype, MAIN), x, list(MAIN)) for dtype in (np.float64, np.float32))
    outside = ~(np.abs(single - double) <= 1e-3 * np.abs(double) + 1e-4)
    suspects = np.flatnonzero(outside.any((1, 2)))
    near = np.zeros(outside.shape, bool)
    if len(suspects):
        near[suspects] = near_ties(x[suspects], double[suspects])
    wrong = outside & ~near
    lines = {name: [] for name in MAIN}
    for i, o, k in np.argwhere(wrong):
        lines[MAIN[o]].append(f"by {INPUTS[k]} = {x[i, k]:g}: {single[i, o, k]:.6g}, not {double[i, o, k]:.6g}")
    return wrong, near, lines


@pytest.fixture(scope="module")
def single_precision():
    return float32_errors(340, seed=23, of=3_000)


@pytest.mark.search
@pytest.mark.parametrize("output", MAIN)
def test_float32_elasticities_equal_float64_ones(single_precision, output):
    """To 1e-3 |e| + 1e-4, on variants off ties: on 340 of 3,000, others each turn."""
    wrong, near, lines = single_precision
    assert not wrong[:, MAIN.index(output)].any(), "\n".join(lines[output][:8])
    assert near.any((1, 2)).mean() < 0.1


@pytest.mark.search
def test_float32_elasticities_of_a_hundred_thousand_variants():
    """To 1e-3 |e| + 1e-4 off ties, on all but fifteen variants of 100,000: on 1,000 of them, others each turn, all but one.

    The nudges of `near_ties` can miss a tie: a send of 1e-8 of the work beside an overlap of 1e-3, say, or 1.00000003
    micro-batches, which float32 cannot tell from none and from one.
    """
    seed = 100 + int(sample(10, 1)[0])
    wrong, _, lines = float32_errors(1_000, seed, of=10_000)
    assert wrong.any((1, 2)).sum() <= 1, [(seed, name, found[:2]) for name, found in lines.items() if found]
