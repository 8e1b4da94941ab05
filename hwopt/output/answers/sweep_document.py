"""Result of a sweep as JSON: counts, the best variants, binding constraints, the Pareto front."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwopt.output.text.layout import budget_words
from hwopt.output.text.parts import number, numbers, shares
from hwopt.workload.transformer import TOKEN

_SLOPES = 1 << 16
"""Maximum number of variants whose elasticities enter the deciles."""

CERTIFIED = 1e-3
"""Relative gap up to which the design of a search is called a certified optimum."""

Document = dict[str, Any]


def sweep_document(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> Document:
    """Return the answer of `sweep` as JSON.

    **Arguments:**

    - `dataset`: the result of `hwopt.sweep`.
    - `out`: folder of its store.
    - `figures`: files drawn from it.
    """
    attrs = dataset.attrs
    feasible = attrs.get("best_are") == "feasible"
    cases = list(names_of(dataset["best_case"]).values())
    return {
        "question": attrs["question"],
        "objective": {"name": attrs["objective"], "unit": attrs["objective_unit"]},
        "unit_of_work": str(attrs.get("unit_of_work", TOKEN)),
        "tokens_per_unit": float(attrs.get("tokens_per_unit", 1.0)),
        "samples": int(attrs["samples"]),
        "cases": cases,
        "method": attrs["method"],
        "seed": int(attrs["seed"]),
        "dtype": attrs["dtype"],
        "evaluated": int(dataset["evaluated"]),
        "possible": int(dataset["possible_count"]),
        "feasible_count": int(dataset["feasible_count"]),
        "nonfinite": int(dataset["nonfinite_count"]),
        **_sampling(dataset),
        "feasible": feasible,
        "best": [_best(dataset, rank) for rank in range(dataset["best_variant"].size)],
        "optimum": _optimum(dataset),
        "by_case": _by_case(dataset, cases),
        "front": _front(dataset),
        "bottlenecks": _shares(dataset["bottleneck_count"], slice(1, 3)),
        "stops": {
            outcome: _shares(dataset["binding_count"], slice(place, place + 1))
            for place, outcome in enumerate(("impossible", "over_budget", "feasible"))
        },
        "elasticities": _elasticities(dataset),
        "out": out,
        "figures": list(figures),
    }


def _sampling(dataset: Any) -> Document:
    """Return how variants were sampled, and the estimated shares of the whole design space.

    The shares are null in stores of older versions.
    """
    shares = ("possible_share", "possible_share_error", "feasible_share", "feasible_share_error")
    known = {name: number(dataset[name].values) if name in dataset else None for name in shares}
    return {
        "sampling": str(dataset.attrs.get("sampling", "plain")),
        "sampling_note": str(dataset.attrs.get("sampling_note", "")),
        **known,
    }


def names_of(array: Any) -> dict[int, str]:
    """Return the names of coded values by number, from the array's CF attributes."""
    return dict(zip(map(int, np.ravel(array.attrs["flag_values"])), listed(array, "flag_meanings"), strict=False))


def _named(dataset: Any, key: str, place: int) -> str:
    """Return the name of a coded variable's value at a place."""
    return names_of(dataset[key])[int(dataset[key].values[place])]


def listed(of: Any, key: str) -> list[str]:
    """Return the names in a space-separated attribute of a dataset or an array."""
    return str(of.attrs.get(key, "")).split()


def _quantities(dataset: Any, prefix: str, names: Sequence[str], place: int, *, boxes: bool = False) -> Document:
    """Return the numbers of one design with their units. **Arguments:** `boxes`: whether to include lower and upper bounds."""
    quantities = {}
    for name in names:
        array = dataset[f"{prefix}_{name}"]
        unit, ends = array.attrs.get("units", ""), ("lower", "upper") if boxes else ()
        value = {"value": number(array.values[place]), "unit": "" if unit == "1" else unit}
        quantities[name] = value | {end: number(array.attrs[end]) for end in ends}
    return quantities


def _best(dataset: Any, rank: int) -> Document:
    metrics = _quantities(dataset, "best", listed(dataset, "metrics"), rank)
    return {
        "variant": int(dataset["best_variant"][rank]),
        "case": _named(dataset, "best_case", rank),
        "possible": bool(dataset["best_possible"][rank] > 0),
        "feasible": dataset.attrs["best_are"] == "feasible",
        "violation": number(dataset["best_violation"][rank]),
        "objective": metrics[dataset.attrs["objective"]]["value"],
        "design": _quantities(dataset, "best", listed(dataset, "variables"), rank, boxes=True),
        "metrics": metrics,
        "bottleneck": _named(dataset, "best_bottleneck", rank),
        "binding": _named(dataset, "best_binding", rank),
        "budgets": [
            {"name": each.name, "used": number(each.used[rank]), "limit": each.limit, "unit": each.unit}
            for each in budgets_of(dataset)
        ],
    }


class SweepBudget(NamedTuple):
    """A budget of a sweep's question.

    **Arguments:**

    - `limit`: in SI units.
    - `metric`: name of the metric that it limits.
    - `used`: amount used by each of the best designs.
    """

    name: str
    limit: float
    unit: str
    metric: str
    used: np.ndarray

    @property
    def words(self) -> str:
        return budget_words(self.name)


def budgets_of(dataset: Any) -> list[SweepBudget]:
    """Return the budgets of a sweep's question; an empty list where there are none or no best designs."""
    if not all(name in dataset and dataset[name].size for name in ("budget_limit", "best_used")):
        return []
    limits, used = dataset["budget_limit"], np.asarray(dataset["best_used"].values, float).T
    units = (
        "" if unit == "1" else unit for unit in listed(limits, "budget_units")
    )  # CF writes "1" for a ratio or a count
    columns = names_of(limits).values(), map(float, limits.values), units, listed(limits, "budget_metrics"), used
    return [SweepBudget(*each) for each in zip(*columns, strict=True)]


def best_breakdown(dataset: Any, rank: int) -> list[tuple[str, float, float]]:
    """Return the step-time breakdown of one of the best variants as (name, seconds, share), like `breakdown_shares`.

    Empty for a dataset that does not have it.
    """
    if "best_breakdown_s" not in dataset:
        return []
    breakdown = dataset["best_breakdown_s"]
    seconds = np.asarray(breakdown.values[rank], float)
    return shares(dict(zip(names_of(breakdown).values(), seconds, strict=True)), seconds.sum(), 1e-3)


def _by_case(dataset: Any, cases: Sequence[str]) -> list[Document] | None:
    """Return counts and the minimum objective of each combination of categorical choices; None for a single one."""
    if len(cases) < 2:
        return None
    return [
        {
            "case": name,
            "evaluated": int(dataset.attrs["samples"]),
            "possible": int(dataset["possible_by_case"][place]),
            "feasible_count": int(dataset["feasible_by_case"][place]),
            "objective": number(dataset["objective_by_case"][place]),
        }
        for place, name in enumerate(cases)
    ]


def _optimum(dataset: Any) -> Document | None:
    """Return the reference design as JSON, and the excess of the best variant over it; None without one.

    The reference is the design from a previous search around which the sweep sampled.
    """
    optima = json.loads(str(dataset.attrs.get("optima", "{}")))
    optimum = optima.get(_named(dataset, "best_case", 0)) if dataset["best_case"].size else None
    if optimum is None or not optimum["feasible"]:
        return None
    best = float(dataset[f"best_{dataset.attrs['objective']}"][0])
    bound = optimum["lower_bound"]
    return {
        "objective": number(optimum["objective"]),
        "lower_bound": number(bound),
        "certified": bound is not None and optimum["objective"] <= bound * (1.0 + CERTIFIED),
        "best_above": number(best / optimum["objective"] - 1.0) if dataset.attrs["best_are"] == "feasible" else None,
    }


def _front(dataset: Any) -> list[Document]:
    if "front_variant" not in dataset:
        return []
    front = dataset[[each for each in dataset if str(each).startswith("front_")]].load()
    cases, parts = names_of(front["front_case"]), names_of(front["front_bottleneck"])
    columns = (front[f"front_{name}"].values for name in ("variant", "case", "feasible", "bottleneck"))
    return [
        {
            "variant": int(variant),
            "case": cases[int(case)],
            "feasible": bool(feasible > 0),
            "bottleneck": parts[int(part)],
            "metrics": _quantities(front, "front", listed(dataset, "pareto"), place),
            "design": _quantities(front, "front", listed(dataset, "variables"), place),
        }
        for place, (variant, case, feasible, part) in enumerate(zip(*columns, strict=True))
    ]


def _shares(counts: Any, outcomes: slice) -> dict[str, float]:
    """Return the share of each name among the variants of some outcomes, the largest first, without zeros."""
    counted, names = counts.values[outcomes].sum(axis=0), names_of(counts)
    total = counted.sum()
    order = np.argsort(-counted, kind="stable")
    return {names[int(i)]: float(counted[i] / total) for i in order if counted[i]}


def _quantiles(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the first decile, the median and the last decile of values.

    **Arguments:** `weights`: number of variants that each represents.
    """
    levels = np.array([0.1, 0.5, 0.9])
    if not values.size:
        return np.full(3, math.nan)
    if weights is None:
        return np.quantile(values, levels)
    return np.quantile(values, levels, weights=weights, method="inverted_cdf")


def _elasticities(dataset: Any) -> dict[str, Document] | None:
    """Return deciles, over possible variants, of the elasticities of the objective to each input.

    None where none were requested.
    """
    if "elasticity" not in dataset:
        return None
    elasticity = dataset["elasticity"]
    count = min(_SLOPES, elasticity.sizes["variant"])
    possible = dataset["possible"][..., :count].values > 0
    slopes = np.moveaxis(elasticity[..., :count].values, -2, 0)[:, possible].astype(float)
    weights = dataset["weight"].values[:count][possible].astype(float) if "weight" in dataset else None
    deciles = {}
    for name, own in zip(names_of(elasticity).values(), slopes, strict=True):
        finite = np.isfinite(own)
        low, median, high = _quantiles(own[finite], None if weights is None else weights[finite])
        deciles[name] = numbers({"median": median, "low": low, "high": high})
    return deciles
