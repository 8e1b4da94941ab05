"""What a sweep found, as JSON: counts, the best variants, what binds, the front."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwopt.report.documents import number

_SLOPES = 1 << 16
"""Variants whose elasticities are summed up."""

Document = dict[str, Any]


def sweep_document(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> Document:
    """An answer of `sweep`.

    **Arguments:** `dataset` of `hwopt.sweep`; `out`: folder of its store; `figures`: files drawn from it.
    """
    attrs = dataset.attrs
    feasible = attrs.get("best_are") == "feasible"
    cases = list(_names(dataset["best_case"]).values())
    return {
        "question": attrs["question"],
        "objective": {"name": attrs["objective"], "unit": attrs["objective_unit"]},
        "samples": int(attrs["samples"]),
        "cases": cases,
        "method": attrs["method"],
        "seed": int(attrs["seed"]),
        "dtype": attrs["dtype"],
        "evaluated": int(dataset["evaluated"]),
        "possible": int(dataset["possible_count"]),
        "feasible_count": int(dataset["feasible_count"]),
        "nonfinite": int(dataset["nonfinite_count"]),
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


def _names(array: Any) -> dict[int, str]:
    """Number -> name, by the array's CF attributes."""
    codes = np.ravel(array.attrs["flag_values"])
    return dict(zip(map(int, codes), str(array.attrs["flag_meanings"]).split(), strict=False))


def _listed(dataset: Any, key: str) -> list[str]:
    return str(dataset.attrs.get(key, "")).split()


def _quantities(dataset: Any, prefix: str, names: Sequence[str], place: int, *, boxes: bool = False) -> Document:
    """Numbers of one design with their units; `boxes`: and their bounds."""
    made = {}
    for name in names:
        held = dataset[f"{prefix}_{name}"]
        unit = held.attrs.get("units", "")
        made[name] = {"value": number(held.values[place]), "unit": "" if unit == "1" else unit}
        if boxes:
            made[name] |= {end: number(held.attrs[end]) for end in ("lower", "upper")}
    return made


def _best(dataset: Any, rank: int) -> Document:
    case, variant = int(dataset["best_case"][rank]), int(dataset["best_variant"][rank])
    metrics = _quantities(dataset, "best", _listed(dataset, "metrics"), rank)
    return {
        "variant": variant,
        "case": _names(dataset["best_case"])[case],
        "possible": bool(dataset["best_possible"][rank] > 0),
        "feasible": dataset.attrs["best_are"] == "feasible",
        "violation": number(float(dataset["best_violation"][rank])),
        "objective": metrics[dataset.attrs["objective"]]["value"],
        "design": _quantities(dataset, "best", _listed(dataset, "variables"), rank, boxes=True),
        "metrics": metrics,
        "bottleneck": _names(dataset["best_bottleneck"])[int(dataset["best_bottleneck"][rank])],
        "binding": _names(dataset["best_binding"])[int(dataset["best_binding"][rank])],
        "budgets": [
            {"name": name, "used": number(dataset["best_used"].values[rank, place]), "limit": limit, "unit": unit}
            for place, (name, limit, unit, _) in enumerate(budgets_of(dataset))
        ],
    }


def budgets_of(dataset: Any) -> list[tuple[str, float, str, str]]:
    """Name, limit, unit and metric of each budget."""
    if "budget_limit" not in dataset:
        return []
    held = dataset["budget_limit"]
    units, metrics = (str(held.attrs[key]).split() for key in ("budget_units", "budget_metrics"))
    return list(zip(_names(held).values(), map(float, held.values), units, metrics, strict=True))


def best_breakdown(dataset: Any, rank: int) -> list[tuple[str, float, float]]:
    """Parts of the step of one of the best variants as (name, seconds, share), as `breakdown_shares`; none where not kept."""
    if "best_breakdown_s" not in dataset:
        return []
    held = dataset["best_breakdown_s"]
    seconds = np.asarray(held.values[rank], float)
    step = seconds.sum()
    parts = [
        (name.removesuffix("_s"), float(value)) for name, value in zip(_names(held).values(), seconds, strict=True)
    ]
    return sorted(((n, s, s / step) for n, s in parts if s > 1e-3 * step), key=lambda part: -part[1])


def _by_case(dataset: Any, cases: Sequence[str]) -> list[Document] | None:
    """Counts and the least objective of each combination of choices; None with a single one."""
    if len(cases) < 2:
        return None
    return [
        {
            "case": name,
            "evaluated": int(dataset.attrs["samples"]),
            "possible": int(dataset["possible_by_case"][place]),
            "feasible_count": int(dataset["feasible_by_case"][place]),
            "objective": number(float(dataset["objective_by_case"][place])),
        }
        for place, name in enumerate(cases)
    ]


def _optimum(dataset: Any) -> Document | None:
    """The certified optimum that was sampled around, and how far above it the best variant is; None without one."""
    optima = json.loads(str(dataset.attrs.get("optima", "{}")))
    case = _names(dataset["best_case"])[int(dataset["best_case"][0])] if dataset["best_case"].size else ""
    if case not in optima or not optima[case]["feasible"]:
        return None
    held, best = optima[case], float(dataset[f"best_{dataset.attrs['objective']}"][0])
    return {
        "objective": number(held["objective"]),
        "lower_bound": number(held["lower_bound"]),
        "best_above": number(best / held["objective"] - 1.0) if dataset.attrs["best_are"] == "feasible" else None,
    }


def _front(dataset: Any) -> list[Document]:
    if "front_variant" not in dataset:
        return []
    cases, parts = _names(dataset["front_case"]), _names(dataset["front_bottleneck"])
    feasible, case, part, variant = (
        dataset[f"front_{name}"].values for name in ("feasible", "case", "bottleneck", "variant")
    )
    held = dataset[[each for each in dataset if str(each).startswith("front_")]].load()
    return [
        {
            "variant": int(variant[place]),
            "case": cases[int(case[place])],
            "feasible": bool(feasible[place] > 0),
            "bottleneck": parts[int(part[place])],
            "metrics": _quantities(held, "front", _listed(dataset, "pareto"), place),
            "design": _quantities(held, "front", _listed(dataset, "variables"), place),
        }
        for place in range(len(variant))
    ]


def _shares(counts: Any, outcomes: slice) -> dict[str, float]:
    """Name -> share of the variants of some outcomes, largest first, without those that never occur."""
    counted, names = counts.values[outcomes].sum(axis=0), _names(counts)
    total = counted.sum()
    order = np.argsort(-counted, kind="stable")
    return {names[int(i)]: float(counted[i] / total) for i in order if counted[i]}


def _elasticities(dataset: Any) -> dict[str, Document] | None:
    """Deciles over possible variants of percent of the objective by percent of each input; None where none were asked for."""
    if "elasticity" not in dataset:
        return None
    held = dataset["elasticity"]
    count = min(_SLOPES, held.sizes["variant"])
    some = dataset["possible"][..., :count].values > 0
    slopes = np.moveaxis(held[..., :count].values, -2, 0)[:, some].astype(float)
    made = {}
    for name, own in zip(_names(held).values(), slopes, strict=True):
        own = own[np.isfinite(own)]
        low, median, high = np.quantile(own, (0.1, 0.5, 0.9)) if own.size else (math.nan,) * 3
        made[name] = {"median": number(median), "low": number(low), "high": number(high)}
    return made
