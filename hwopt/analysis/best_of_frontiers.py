"""Merging of frontiers: the best of several choices for every combination of budgets, with the least of their lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray


def best_of(frontiers: Sequence[xarray.Dataset], names: Sequence[str]) -> xarray.Dataset:
    """Merge frontiers of several choices over the same budgets into one.

    **Arguments:**

    - `frontiers`: one dataset for each combination of choices.
    - `names`: name of the combination of each dataset.

    **Returns:** a dataset with the same variables, taken from the best frontier at every point. `lower_bound` is the least of
    all bounds. `certified` is true where all frontiers are certified. `choice` names the best; it is empty where none is
    feasible.
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
    # A frontier that is proved infeasible at a point cannot lower the bound there.
    bounds = np.stack([np.where(each["feasible"] > 0, each["lower_bound"], np.inf) for each in frontiers]).min(axis=0)
    bound = np.where(none | ~proved, np.nan, bounds)
    result["certified"][:] = proved
    result["lower_bound"][:] = bound
    result["gap"][:] = result[goal].values / bound - 1.0
    words = np.where(none, "", np.asarray(names, object)[best])
    result["choice"] = (result[goal].dims, words.astype(str), {"long_name": "the choice that is best"})
    return result
