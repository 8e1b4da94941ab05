"""What a store's numbers stand for, as coordinates to select and group by: cases and each of their choices.

A store holds integer codes and names in attributes; the names are put along axes when it is opened, so that no store changes.
"""

from typing import Any

import numpy as np

CASE = "case"


def with_names(dataset: Any) -> Any:
    """The dataset with a coordinate `case` and one a choice, `chip` for example, where there are several cases.

    `dataset.sel(case="chip=b200")`, `dataset.swap_dims(case="chip").sel(chip="b200")`, `dataset.groupby("chip")`. Best variants
    have `best_chip` beside `best_case`.
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
        within = np.where((codes >= 0) & (codes < len(names)), codes, len(names)).astype(int)  # none met: ""
        for name in fields:
            values = np.array([*(each[name] for each in chosen), ""])
            if f"best_{name}" not in dataset:
                along[f"best_{name}"] = (dataset["best_case"].dims, values[within])
    return dataset.assign_coords(along)


def _choices(case: str) -> dict[str, str]:
    """`chip=b200,cooling=air` by field."""
    parts = (part.partition("=") for part in case.split(","))
    return {field: value for field, _, value in parts}
