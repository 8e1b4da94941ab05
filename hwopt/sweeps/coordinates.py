"""Named coordinates of a sweep dataset, to select and group by: the case and each choice that defines it.

A store contains integer codes, with the names in attributes. Names become coordinates when a store is opened, so that the store
itself never changes.
"""

from typing import Any

import numpy as np

CASE = "case"


def with_names(dataset: Any) -> Any:
    """Return the dataset with a coordinate `case` and one coordinate per choice, for example `chip`, if it has several cases.

    They allow `dataset.sel(case="chip=b200")`, `dataset.swap_dims(case="chip").sel(chip="b200")` and `dataset.groupby("chip")`.
    The best variants get `best_chip` in addition to `best_case`.
    """
    names = str(dataset.attrs.get("cases", "")).split()
    if len(names) < 2:
        return dataset
    chosen = [_choices(name) for name in names]
    fields = [field for field in chosen[0] if all(field in each for each in chosen)]
    along: dict[str, Any] = {}
    if dataset.sizes.get(CASE) == len(names):
        along = {CASE: (CASE, np.array(names))}
        along |= {name: (CASE, np.array([each[name] for each in chosen])) for name in fields if name not in dataset}
    if "best_case" in dataset:
        codes = np.asarray(dataset["best_case"].values)
        within = np.where((codes >= 0) & (codes < len(names)), codes, len(names)).astype(int)  # no such variant: ""
        for name in fields:
            values = np.array([*(each[name] for each in chosen), ""])
            if f"best_{name}" not in dataset:
                along[f"best_{name}"] = (dataset["best_case"].dims, values[within])
    return dataset.assign_coords(along)


def _choices(case: str) -> dict[str, str]:
    """Parse a case name such as `chip=b200,cooling=air` into choices by field."""
    parts = (part.partition("=") for part in case.split(","))
    return {field: value for field, _, value in parts}
