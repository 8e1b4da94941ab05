"""A Sobol sequence for importance sampling from boxes of the unit cube, with the innermost box of each point."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.sweeps.samplers import Sampler, Sobol
from hwopt.sweeps.strata import Strata

GROUP = 1 << 8
"""Consecutive points drawn from the same box: an aligned group of a Sobol sequence fills it evenly by itself."""

MOST_BOXES = 64
"""Maximum number of boxes to draw points from."""

MOST_LEVELS = 8
"""Maximum number of nested boxes that are distinguished, including the cube: each costs a few operations per point."""


class StratifiedSobol(Sampler):
    """Points of a Sobol sequence, with each group of points mapped into one of several boxes.

    The box of a group depends only on the group's number, so that any tile can be computed independently.

    **Arguments:**

    - `base`: Sobol sequence of the unit cube.
    - `boxes`: boxes (box, end, coordinate) from which groups are drawn.
    - `levels`: nested boxes by which points are classified.
    - `turns`: box number of each group, repeated cyclically.
    """

    kind = "cube"

    def __init__(self, base: Sobol, boxes: np.ndarray, levels: Strata, turns: np.ndarray):
        self.base, self.names, self.count = base, base.names, base.count
        self.boxes, self.levels, self.turns = np.asarray(boxes, np.float32), levels, np.asarray(turns, np.uint32)

    @property
    def counts(self) -> np.ndarray:
        """Number of points drawn from each box."""
        groups = np.arange(-(-self.count // GROUP))
        sizes = np.minimum(self.count - groups * GROUP, GROUP)
        return np.bincount(self.turns[groups % len(self.turns)], sizes, len(self.boxes)).astype(np.int64)

    def tables(self, tile: int) -> Any:
        boxes = np.zeros((MOST_BOXES, *self.boxes.shape[1:]), np.float32)
        boxes[: len(self.boxes)] = self.boxes
        nowhere = np.full((MOST_LEVELS, *self.boxes.shape[1:]), np.float32(2.0))
        nowhere[: len(self.levels)] = self.levels.ends
        return self.base.tables(tile), boxes, nowhere

    def starts(self, firsts: np.ndarray, tile: int) -> np.ndarray:
        groups = (firsts // GROUP)[:, None] + np.arange(tile // GROUP)
        return np.concatenate([self.base.starts(firsts, tile), self.turns[groups % len(self.turns)]], axis=1)

    def columns(self, tables: Any, starts: Array, kind: Any) -> list[Array]:
        bits, boxes, _ = tables
        axes = len(self.names)
        own = boxes[starts[:, axes:].reshape(-1)]  # (group, end, coordinate)

        def moved(axis: int, column: Array) -> Array:
            low, high = own[:, 0, axis, None].astype(kind), own[:, 1, axis, None].astype(kind)
            inside = low + column.reshape(-1, GROUP) * (high - low)
            return jnp.minimum(inside, high).reshape(-1)

        columns = self.base.columns(bits, starts[:, :axes], kind)
        return [moved(axis, column) for axis, column in enumerate(columns)]

    def level(self, tables: Any, columns: Sequence[Array]) -> Array:
        """Return the innermost level that contains each point; unused levels contain none."""
        levels = tables[2]
        inside = jnp.zeros(columns[0].shape, jnp.int8)
        for level in range(1, MOST_LEVELS):
            low, high = levels[level]
            holds = jnp.ones(columns[0].shape, bool)
            for axis, column in enumerate(columns):
                holds = holds & (column >= low[axis]) & (column <= high[axis])
            inside = inside + holds.astype(jnp.int8)
        return inside

    def points(self, numbers: np.ndarray) -> np.ndarray:
        """Return points by number, (coordinate, point), up to rounding."""
        own = self.boxes[self.turns[numbers // GROUP % len(self.turns)]]
        cube = (self.base.bits(numbers) >> 8) * 2.0**-24
        return own[:, 0].T + cube * (own[:, 1] - own[:, 0]).T


def interleaved_strata(shares: np.ndarray, groups: int, seed: int) -> np.ndarray:
    """Return a sequence of box numbers in which every run of groups has the proportions `shares`, approximately.

    A van der Corput sequence, shifted by the seed.
    """
    places = np.arange(groups, dtype=np.uint64)
    reversed_ = np.zeros(groups)
    for bit in range(32):
        reversed_ += (places >> np.uint64(bit) & np.uint64(1)) * 2.0 ** -(bit + 1)
    shift = np.random.default_rng((seed, 1)).random()
    ends = np.cumsum(shares)[:-1] / np.sum(shares)
    return np.searchsorted(ends, (reversed_ + shift) % 1.0, side="right")
