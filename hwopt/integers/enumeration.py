"""Enumeration of all points of an integer system, as columns: coordinate by coordinate, a row per value that the
relations allow.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hwopt.errors import UserError
from hwopt.integers.relations import LARGEST, ProductLimit
from hwopt.integers.system import Integer, System


def divisors(number: int) -> list[int]:
    """Return all divisors of a number in ascending order."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def enumerate_points(system: System, most: float = np.inf, too_many: str = "") -> dict[str, np.ndarray]:
    """Return all valid points as columns of 32-bit integers, by coordinate; the last coordinate varies fastest.

    **Arguments:** `most`: maximum number of rows, also while coordinates are still being added; `too_many`: text of the
    error.

    **Raises:** `UserError` with the text `too_many` if there are more than `most`.
    """
    rows: dict[str, np.ndarray] = {}
    count = 1
    for each in system.coordinates:
        row, value = _candidates(system, each, rows, count)
        rows = {name: column[row] for name, column in rows.items()} | {each.name: value}
        keep = np.ones(len(row), bool)
        with np.errstate(all="ignore"):
            for relation in system.relations:
                if each.name in relation.needs and rows.keys() >= set(relation.needs):
                    keep &= relation.holds({name: rows[name].astype(float) for name in relation.needs})
        if not keep.all():
            rows = {name: column[keep] for name, column in rows.items()}
        count = int(keep.sum())
        if count > most:
            raise UserError(too_many)
    return rows


def _candidates(
    system: System, each: Integer, rows: Mapping[str, np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidate values of a coordinate for each row: row indices, and the values."""
    met = [relation for relation in system.relations if each.name in relation.names]
    ends = {name: system.by_name[name].ends for name in {each.name}.union(*(relation.needs for relation in met))}
    lows, highs = (
        {name: rows[name].astype(float) if name in rows else np.full(count, float(x[end])) for name, x in ends.items()}
        for end in (0, 1)
    )
    divided = np.zeros(count, np.int64)
    with np.errstate(all="ignore"):
        least, most = system.bounds(each.name, lows, highs)
        for relation in met:
            if isinstance(relation, ProductLimit) and relation.is_fixed and each.name in relation.factors:
                quotient = np.full(count, relation.high) / relation.coefficient
                for name in (factor for factor in relation.factors if factor in rows):
                    quotient = quotient / rows[name]
                divided = np.gcd(divided, np.rint(quotient).astype(np.int64))
    keys = [least.astype(np.int64), np.minimum(most, LARGEST).astype(np.int64), divided]
    first, which = _distinct(keys)
    lists = [_values(each, *(int(key[i]) for key in keys)) for i in first]
    lengths = np.array([len(x) for x in lists], np.int64)
    starts = np.cumsum(lengths) - lengths
    sizes = lengths[which]
    row = np.repeat(np.arange(count), sizes)
    place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts[which], sizes)
    return row, np.concatenate([*lists, np.zeros(0, np.int64)])[place].astype(np.int32)


def _values(each: Integer, least: int, most: int, divided: int) -> np.ndarray:
    """Return the values between two ends.

    If a product of coordinates is fixed, only divisors of the remaining quotient `divided`.
    """
    if least > most:
        return np.zeros(0, np.int64)
    if each.values is not None:
        values = np.asarray(each.values, np.int64)
    elif divided:
        values = np.asarray(divisors(divided), np.int64)
    else:
        return np.arange(least, most + 1)
    if divided:
        values = values[divided % np.maximum(values, 1) == 0]
    return values[(values >= least) & (values <= most)]


def _distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first index of each distinct row of a table, and for each row the index of its distinct row.

    Sorting column by column takes a third of the time of sorting whole rows.
    """
    first, codes = np.zeros(0, np.int64), np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        _, first, codes = np.unique(codes * len(values) + place.ravel(), return_index=True, return_inverse=True)
    return first, codes.ravel()
