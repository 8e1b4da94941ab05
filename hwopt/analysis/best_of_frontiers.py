"""Frontiers of several choices as one: at every combination of budgets the best of them, under the least of their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray


def best_of(frontiers: Sequence[xarray.Dataset], names: Sequence[str]) -> xarray.Dataset:
    """One frontier of several over the same budgets.

    **Arguments:** `names` of the choices that each is of.

    **Returns:** a dataset as each of them, of the best at every point; `lower_bound` is the least of all, and `certified` says
    that all are; `choice`: the name of the best, empty where none satisfies the budgets.
    """
    first = frontiers[0]
    goal = str(first.attrs["objective"])
    values = np.stack([np.where(each["feasible"] > 0, each[goal], np.inf) for each in frontiers])
    best, none = values.argmin(axis=0), np.isinf(values.min(axis=0))
    result = first.copy(deep=True)
    for name in dict.fromkeys(str(name) for each in frontiers for name in each.data_vars):
        of = next(each[name] for each in frontiers if name in each)
        table = np.stack([each[name] if name in each else np.full(of.shape, np.nan) for each in frontiers])
        taken = np.take_along_axis(table, best[None], axis=0)[0]
        result[name] = (of.dims, taken.astype(of.dtype) if of.dtype.kind == "i" else taken, of.attrs)
    proved = np.stack([each["certified"] > 0 for each in frontiers]).all(axis=0)
    # Where one is proved to hold nothing, nothing of it is below any bound.
    bounds = np.stack([np.where(each["feasible"] > 0, each["lower_bound"], np.inf) for each in frontiers]).min(axis=0)
    bound = np.where(none | ~proved, np.nan, bounds)
    result["certified"][:] = proved
    result["lower_bound"][:] = bound
    result["gap"][:] = result[goal].values / bound - 1.0
    words = np.where(none, "", np.asarray(names, object)[best])
    result["choice"] = (result[goal].dims, words.astype(str), {"long_name": "the choice that is best"})
    return result
