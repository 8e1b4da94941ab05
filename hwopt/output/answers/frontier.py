"""Frontier of certified optima over levels of budgets, as text for a terminal and as JSON."""

from typing import Any

import numpy as np

from hwopt.output.text.layout import heading, store_lines, wrapped
from hwopt.output.text.parts import number
from hwopt.units import pretty

DESIGN = ("chips", "tp", "pp")
"""Design variables that text output shows for each point of a frontier: chips, tensor and pipeline parallel degree."""

_MOST_LINES = 40
_NOTHING = 1e-6  # Normalized shadow price (elasticity) below which a budget counts as not binding

Point = dict[str, Any]


def frontier_document(dataset: Any, out: str | None = None, figures: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the answer of `frontier` as JSON: one entry a point, budget levels ascending.

    **Arguments:**

    - `dataset`: the result of `hwopt.frontier`.
    - `out`: folder of its store.
    - `figures`: files drawn from it.
    """
    budgets, objective = list(dataset.sizes), str(dataset.attrs["objective"])
    names = [str(name) for name in dataset.data_vars if name not in ("feasible", "certified", "choice", objective)]
    points = []
    for place in np.ndindex(*dataset.sizes.values()):
        values = dataset.isel(dict(zip(budgets, place, strict=True)))
        points.append(
            {
                "budgets": {name: float(values[name]) for name in budgets},
                "feasible": bool(values["feasible"] > 0),
                "certified": bool(values["certified"] > 0),
                "objective": number(values[objective]),
                **{name: number(values[name]) for name in names},
                **({"choice": str(values["choice"].item())} if "choice" in dataset else {}),
            }
        )
    return {
        "question": dataset.attrs["question"],
        "objective": {"name": objective, "unit": dataset.attrs["objective_unit"]},
        "budgets": {name: dataset[name].attrs.get("units", "") for name in budgets},
        "feasible": any(each["feasible"] for each in points),
        "points": points,
        "out": out,
        "figures": list(figures),
    }


def frontier_screen(dataset: Any, out: str | None = None, figures: tuple[str, ...] = ()) -> str:
    """Return a frontier as text for a terminal; arguments as in `frontier_document`."""
    document = frontier_document(dataset, out, figures)
    objective, units, points = document["objective"], document["budgets"], document["points"]
    lines = [wrapped(document["question"], ""), *heading(f"Least {objective['name']} under each budget, proved")]
    for each in points[:_MOST_LINES]:
        under = "  ".join(f"{pretty(limit, units[name]):>10}" for name, limit in each["budgets"].items())
        if not each["feasible"]:
            lines.append(f"  {under}   {'proved: no design holds it' if each['certified'] else 'no design found'}")
            continue
        gap = gap_of(each)
        proof = "not proved" if gap is None else f"gap {100 * gap:.1g} %"
        worth, design = "  ".join(worths(document, each)), design_words(each)
        lines.append(f"  {under}   {pretty(each['objective'], objective['unit'], 5):>10}  {proof}  {worth}  {design}")
    if len(points) > _MOST_LINES:
        lines.append(f"  and {len(points) - _MOST_LINES} more points")
    if out and "choice" in dataset:
        lines += ["", f"Stores: a folder for each choice in {out}; the same command goes on or reads them."]
    elif out:
        lines += store_lines(out)
    if figures:
        lines.append(wrapped(f"Figures: {', '.join(figures)}", ""))
    return "\n".join(lines)


def gap_of(point: Point) -> float | None:
    """Return the certified optimality gap of a point; None where it is not certified."""
    return point["gap"] if point["certified"] else None


def design_words(point: Point) -> str:
    """Return the design of a point of the frontier in words."""
    words = [f"{name} {point[name]:,.0f}" for name in DESIGN if point.get(name) is not None]
    return ", ".join([*words, *filter(None, [point.get("choice")])])


def worths(document: dict[str, Any], point: Point) -> list[str]:
    """Return the saving from one more unit of each budget at a point of the frontier, in words."""
    return [_worth(name, point, document["objective"]["unit"], unit) for name, unit in document["budgets"].items()]


def _worth(name: str, point: Point, objective_unit: str, unit: str) -> str:
    price = point[f"shadow_price_{name}"]
    if price is None:
        return f"price of {name} not known"
    if price * point["budgets"][name] < _NOTHING * point["objective"]:
        return f"{name} does not bind"
    return f"one more {unit} saves {pretty(price, f'{objective_unit}/{unit}')}"
