"""Where a sweep looks more closely: nested boxes of the unit cube, and what a variant drawn from them stands for.

A point is drawn from box `k`, uniformly, `share[k]` of the time; box 0 is the whole cube. Its density is

    q(u) = sum of share[k] / volume[k] over the boxes that hold u,

a constant between one box and the next, and that of the plain space is 1 everywhere. So a variant whose innermost box is `k`
stands for `weight[k] = 1 / (share[0] / volume[0] + ... + share[k] / volume[k])` variants of the plain space, never more than
`1 / share[0]`; sums of weights estimate what plain variants would count to, without bias wherever the boxes are.

**Source:** defensive mixtures of Hesterberg 1995; the balance heuristic of Veach and Guibas 1995, with the shares as they came out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Strata:
    """Nested boxes of the unit cube, from the cube itself to the innermost one.

    **Arguments:** `names` of the coordinates; `low`, `high`: (level, coordinate) ends that float32 holds.
    """

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def plain(names: Sequence[str]) -> "Strata":
        """The cube alone."""
        return Strata(tuple(names), np.zeros((1, len(names))), np.ones((1, len(names))))

    @staticmethod
    def nested(names: Sequence[str], low: np.ndarray, high: np.ndarray) -> "Strata":
        """The cube, then boxes (level, coordinate), each widened until it holds the next."""
        low = np.minimum.accumulate(np.asarray(low, np.float32)[::-1], axis=0)[::-1]
        high = np.maximum.accumulate(np.asarray(high, np.float32)[::-1], axis=0)[::-1]
        cube = np.zeros((1, len(names))), np.ones((1, len(names)))
        return Strata(tuple(names), np.concatenate([cube[0], low]), np.concatenate([cube[1], high]))

    def __len__(self) -> int:
        return len(self.low)

    @property
    def volumes(self) -> np.ndarray:
        """Share of the cube that each box holds."""
        return np.prod(self.high - self.low, axis=1)

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Plain variants that a variant stands for, by its innermost box. **Arguments:** `counts`: variants drawn from each box."""
        return 1.0 / np.cumsum(np.asarray(counts) / np.sum(counts) / self.volumes)

    def document(self) -> dict[str, Any]:
        """The boxes as plain data."""
        return {"coordinates": list(self.names), "low": self.low.tolist(), "high": self.high.tolist()}

    @staticmethod
    def of_document(document: Any) -> "Strata":
        """What `document` wrote. **Raises:** `KeyError`, `TypeError` or `ValueError` for anything else."""
        names = tuple(document["coordinates"])
        low, high = (np.asarray(document[end], float).reshape(-1, len(names)) for end in ("low", "high"))
        if low.shape != high.shape or not len(low) or not (low < high).all():
            raise ValueError("boxes without room")
        return Strata(names, low, high)

    @cached_property
    def ends(self) -> np.ndarray:
        """All boxes as float32, (level, end, coordinate)."""
        return np.stack([self.low, self.high], axis=1).astype(np.float32)
