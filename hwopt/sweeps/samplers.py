"""Samplers of sweep variants: numbered sequences of points, any tile of which can be computed independently.

A point depends only on its number. Blocks, devices, processes and interruptions therefore do not change the sequence.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from hwopt.errors import UserError

MOST_SOBOL = 2**32
"""Number of points of a 32-bit Sobol sequence."""


class Sampler(abc.ABC):
    """Base class of point sequences. `columns(tables, starts)` runs on the device, the other methods on the host."""

    names: tuple[str, ...]  # column names
    count: int
    kind: str  # "cube": points of the unit cube; "wanted": targets, rounded to designs; "values": designs as given

    @abc.abstractmethod
    def tables(self, tile: int) -> Any:
        """Return the arrays that all tiles of `tile` points share."""

    @abc.abstractmethod
    def starts(self, firsts: np.ndarray, tile: int) -> np.ndarray:
        """Return the additional data of the tiles that start at points `firsts` (multiples of `tile`), (tile, ...)."""

    @abc.abstractmethod
    def columns(self, tables: Any, starts: Array, kind: Any) -> list[Array]:
        """Return the points of tiles (device, ...) as columns of floating-point type `kind`, tiles concatenated."""


class Sobol(Sampler):
    """A scrambled Sobol sequence: covers the cube and all its projections evenly at every power of two.

    The bits of points combine by exclusive or. In every aligned tile, point `first + j` is point `first` xor point `j` xor
    point 0. On the device a tile thus costs one operation per number.

    **Source:** Sobol 1967; direction numbers of Joe and Kuo 2008 and scrambling of Matousek 1998, as in SciPy.
    """

    kind = "cube"

    def __init__(self, names: Sequence[str], count: int, seed: int | Sequence[int]):
        if count > MOST_SOBOL:
            raise UserError(f"samples {count:,}: a Sobol sequence of 32 bits has {MOST_SOBOL:,} points")
        self.names, self.count = tuple(names), count
        from scipy.stats import qmc  # imported here: takes half a second

        sampler: Any = qmc.Sobol(max(1, len(self.names)), scramble=True, bits=32, rng=np.random.default_rng(seed))
        # Private attributes: SciPy's public interface can only step to a point. A test compares the sequences.
        self._directions = sampler._sv.astype(np.uint32)[: len(self.names)]
        self._shift = sampler._shift.astype(np.uint32)[: len(self.names)]

    def bits(self, numbers: np.ndarray) -> np.ndarray:
        """Return points by number, (dimension, point), in units of 2^-32."""
        return self._bits(numbers) ^ self._shift[:, None]

    def _bits(self, numbers: np.ndarray) -> np.ndarray:
        """Return unscrambled points (without the digital shift) by number, (dimension, point)."""
        gray = numbers ^ (numbers >> 1)
        points = np.zeros((len(self.names), len(numbers)), np.uint32)
        for bit in range(32):
            chosen = (gray >> bit & 1).astype(bool)
            points[:, chosen] ^= self._directions[:, bit : bit + 1]
        return points

    def tables(self, tile: int) -> np.ndarray:
        return self._bits(np.arange(tile, dtype=np.int64))

    def starts(self, firsts: np.ndarray, tile: int) -> np.ndarray:
        return self._bits(firsts).T ^ self._shift

    def columns(self, tables: Any, starts: Array, kind: Any) -> list[Array]:
        drop = 8 if np.finfo(kind).nmant < 32 else 0  # float32 represents 24 bits below 1
        scale = np.asarray(2.0 ** (drop - 32), kind)
        bits = [(starts[:, d, None] ^ tables[d][None, :]).reshape(-1) for d in range(len(self.names))]
        return [(each >> drop if drop else each).astype(kind) * scale for each in bits]


class _OnHost(Sampler):
    """Base class of samplers that compute points in NumPy, a tile at a time."""

    def tables(self, tile: int) -> np.ndarray:
        return np.zeros(0, np.float32)

    def columns(self, tables: Any, starts: Array, kind: Any) -> list[Array]:
        return [starts[:, d, :].reshape(-1).astype(kind) for d in range(len(self.names))]

    @abc.abstractmethod
    def points(self, numbers: np.ndarray) -> np.ndarray:
        """Return points by number, (column, point)."""

    def starts(self, firsts: np.ndarray, tile: int) -> np.ndarray:
        # The last point is repeated, so that every tile is full.
        numbers = np.minimum(firsts[:, None] + np.arange(tile), self.count - 1)
        return self.points(numbers.ravel()).reshape(len(self.names), len(firsts), tile).swapaxes(0, 1)


class LatinHypercube(_OnHost):
    """A Latin hypercube: each coordinate has as many strata as there are points, with one point in each stratum.

    Strata are shuffled by a keyed permutation of numbers, so that no list of all points is stored. The permutation is a Feistel
    network, applied repeatedly until the result is below the number of points (cycle walking).

    **Source:** McKay, Beckman and Conover 1979; Black and Rogaway 2002 for permutations of any size.
    """

    kind = "cube"

    def __init__(self, names: Sequence[str], count: int, seed: int):
        self.names, self.count = tuple(names), count
        self._keys = np.random.default_rng(seed).integers(0, 2**63, (len(self.names), 5), dtype=np.uint64)

    def points(self, numbers: np.ndarray) -> np.ndarray:
        points = np.empty((len(self.names), len(numbers)))
        for row, keys in zip(points, self._keys, strict=True):
            jitter = (_mixed(numbers.astype(np.uint64) ^ keys[4]) >> np.uint64(11)).astype(float) * 2.0**-53
            row[:] = (permuted(numbers, self.count, keys[:4]) + jitter) / self.count
        return np.minimum(points, np.nextafter(np.float32(1.0), np.float32(0.0)))


def permuted(numbers: np.ndarray, count: int, keys: np.ndarray) -> np.ndarray:
    """Evaluate a keyed pseudorandom permutation of 0 to count - 1 at some numbers."""
    half = np.uint64(max(1, math.ceil((count - 1).bit_length() / 2)))
    mask = (np.uint64(1) << half) - np.uint64(1)
    places = numbers.astype(np.uint64)
    todo = np.arange(len(places))
    while len(todo):
        left, right = places[todo] >> half, places[todo] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        places[todo] = (left << half) | right
        todo = todo[places[todo] >= count]
    return places.astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hash 64-bit numbers. **Source:** the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Grid(_OnHost):
    """A full factorial grid of levels; the last variable changes fastest."""

    kind = "wanted"

    def __init__(self, levels: Mapping[str, ArrayLike]):
        self.names = tuple(levels)
        self._levels = [np.asarray(each, float) for each in levels.values()]
        self.count = math.prod(len(each) for each in self._levels)

    def points(self, numbers: np.ndarray) -> np.ndarray:
        places = np.unravel_index(numbers, [len(each) for each in self._levels])
        return np.stack([levels[place] for levels, place in zip(self._levels, places, strict=True)])


class DesignTable(_OnHost):
    """Designs listed by the user, evaluated as given."""

    kind = "values"

    def __init__(self, columns: Mapping[str, ArrayLike]):
        self.names = tuple(columns)
        self._columns = np.stack([np.asarray(each, float) for each in columns.values()])
        self.count = self._columns.shape[1]

    def points(self, numbers: np.ndarray) -> np.ndarray:
        return self._columns[:, numbers]
