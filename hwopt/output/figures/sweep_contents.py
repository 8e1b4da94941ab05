"""Access to a sweep's dataset for figures: names of codes, budgets with their metrics, the best designs."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.output.figures.style import NothingToDraw, plain
from hwopt.output.text.layout import budget_words


@dataclass(frozen=True)
class BudgetLimit:
    """A budget of a sweep's question.

    **Arguments:**

    - `limit`: in SI units.
    - `used`: amount used by each of the best designs.
    - `metric`: name of the metric that it limits; empty if unknown.
    """

    name: str
    unit: str
    limit: float
    used: np.ndarray
    metric: str

    @property
    def words(self) -> str:
        return budget_words(self.name)


def values(dataset: Any, name: str, missing: str | None = None) -> np.ndarray:
    """Return the numbers of a variable.

    **Raises:** `NothingToDraw` where the variable is missing or empty, with the message `missing` if given.
    """
    if name not in dataset or 0 in dataset[name].shape:
        raise NothingToDraw(missing or f"the dataset holds no {name}")
    return np.asarray(dataset[name].values)


def listed(of: Any, key: str) -> list[str]:
    """Return the names in a space-separated attribute of a dataset or an array."""
    return str(of.attrs.get(key, "")).split()


def meanings(dataset: Any, *names: str) -> dict[int, str]:
    """Return code -> name, from the CF attributes of the first variable that has them."""
    for name in names:
        words = listed(dataset[name], "flag_meanings") if name in dataset else []
        if words:
            codes = np.ravel(dataset[name].attrs.get("flag_values", range(len(words))))
            return dict(zip(map(int, codes), words, strict=False))
    return {}


def parts(dataset: Any, name: str) -> dict[int, str]:
    """Return code -> part of the step, for a variable of bottlenecks."""
    return meanings(dataset, name, "bottleneck", "front_bottleneck", "map_bottleneck", "best_breakdown_s")


def cases(dataset: Any, name: str) -> dict[int, str]:
    """Return code -> combination of choices in words, for a variable of cases; empty unless the sweep covers several."""
    known = meanings(dataset, name) if name in dataset else {}
    return {code: case_words(text) for code, text in known.items()} if len(known) > 1 else {}


def case_words(text: str) -> str:
    """Return the values of a case, such as `b200, direct-liquid` for `chip=b200,cooling=direct-liquid`."""
    return plain(", ".join(part.partition("=")[2] or part for part in text.split(",")))


def limits(dataset: Any) -> list[BudgetLimit]:
    """Return the question's budgets; an empty list where there are none or the dataset does not state them."""
    if not all(name in dataset and dataset[name].size for name in ("budget_limit", "best_used")):
        return []
    bounds, used = dataset["budget_limit"], values(dataset, "best_used").astype(float).T
    names = meanings(dataset, "budget_limit", "best_used").values()
    metrics = listed(bounds, "budget_metrics") or [_metric_of(dataset, each) for each in used]
    units = ("" if unit == "1" else unit for unit in listed(bounds, "budget_units"))
    columns = zip(names, units, bounds.values.astype(float), used, metrics, strict=True)
    return [BudgetLimit(name, unit, float(bound), each, metric) for name, unit, bound, each, metric in columns]


def _metric_of(dataset: Any, used: np.ndarray) -> str:
    """Return the metric whose values in the best designs equal the used amounts of a budget; empty if there is none."""
    for name in listed(dataset, "metrics"):
        own = dataset[f"best_{name}"].values if f"best_{name}" in dataset and np.isfinite(used).any() else None
        if own is not None and np.allclose(own, used, rtol=1e-6, atol=0.0, equal_nan=True):
            return name
    return ""


def best_is_feasible(dataset: Any) -> bool:
    """Return whether the designs along the dimension `rank` satisfy every constraint."""
    return dataset.attrs.get("best_are", "feasible") == "feasible"


def best_words(dataset: Any, count: int) -> str:
    """Describe the designs along the dimension `rank`, for titles."""
    if best_is_feasible(dataset):
        return "the best design" if count == 1 else f"the {count} best designs"
    return f"the {'design' if count == 1 else f'{count} designs'} nearest to the limits (none satisfies all)"


def heading(dataset: Any, text: str, width: int = 76) -> str:
    """Return the title of a figure, in lines of `width` letters."""
    whole = f"{dataset.attrs['title']}: {text}" if dataset.attrs.get("title") else text
    return plain(textwrap.fill(whole, width, break_long_words=False))


def spread(count: int, most: int) -> Sequence[int] | np.ndarray:
    """Return at most `most` of `count` positions, spread evenly.

    Positions follow a golden rotation. Even steps could coincide with the period of a Sobol sequence and sample only
    one corner of the search space.
    """
    if count <= most:
        return np.arange(count)
    golden = 0.5 * (5.0**0.5 - 1.0)
    return np.unique(((np.arange(most) + 0.5) * golden % 1.0 * count).astype(np.int64))
