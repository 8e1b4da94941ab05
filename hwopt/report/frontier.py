"""A frontier of certified optima, as one screen and as JSON."""

from __future__ import annotations

import itertools
from typing import Any

from hwopt.report.documents import number
from hwopt.report.layout import heading, wrapped
from hwopt.units import pretty

_DESIGN = ("chips", "tp", "pp")
_MOST_LINES = 40
_NOTHING = 1e-6  # elasticity of a budget that does not bind


def frontier_document(dataset: Any, out: str | None = None, figures: tuple[str, ...] = ()) -> dict[str, Any]:
    """An answer of `frontier`: one entry a point, levels ascending.

    **Arguments:** `dataset` of `hwopt.frontier`; `out`: folder of its store; `figures`: files drawn from it.
    """
    budgets, objective = list(dataset.sizes), str(dataset.attrs["objective"])
    names = [str(name) for name in dataset.data_vars if name not in ("feasible", "certified")]
    points = []
    for place in itertools.product(*(range(count) for count in dataset.sizes.values())):
        at = dict(zip(budgets, place, strict=True))
        held = dataset.isel(at)
        points.append(
            {
                "budgets": {name: float(dataset[name][i]) for name, i in at.items()},
                "feasible": bool(held["feasible"] > 0),
                "certified": bool(held["certified"] > 0),
                "objective": number(float(held[objective])),
                **{name: number(float(held[name])) for name in names if name != objective},
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
    """One screen for a frontier; arguments as in `frontier_document`."""
    found = frontier_document(dataset, out, figures)
    objective, units = found["objective"], found["budgets"]
    lines = [wrapped(found["question"], ""), *heading(f"Least {objective['name']} under each budget, proved")]
    for each in found["points"][:_MOST_LINES]:
        under = "  ".join(f"{pretty(limit, units[name]):>10}" for name, limit in each["budgets"].items())
        if not each["feasible"]:
            proof = "proved: no design holds it" if each["certified"] else "no design found"
            lines.append(f"  {under}   {proof}")
            continue
        worth = "  ".join(worth_words(name, each, objective, unit) for name, unit in units.items())
        gap = each["gap"] if each["certified"] else None
        proof = "not proved" if gap is None else f"gap {100 * gap:.1g} %"
        design = ", ".join(f"{name} {each[name]:,.0f}" for name in _DESIGN if each.get(name) is not None)
        lines.append(f"  {under}   {pretty(each['objective'], objective['unit'], 5):>10}  {proof}  {worth}  {design}")
    if len(found["points"]) > _MOST_LINES:
        lines.append(f"  and {len(found['points']) - _MOST_LINES} more points")
    if out:
        lines += ["", f'Store: {out}, which xarray.open_zarr("{out}") opens; the same command goes on or reads it.']
    if figures:
        lines.append(wrapped(f"Figures: {', '.join(figures)}", ""))
    return "\n".join(lines)


def worth_words(name: str, point: dict[str, Any], objective: dict[str, str], unit: str) -> str:
    """What one more unit of a budget saves."""
    price = point[f"shadow_price_{name}"]
    if price * point["budgets"][name] < _NOTHING * point["objective"]:
        return f"{name} does not bind"
    return f"one more {unit} saves {pretty(price, objective['unit'] + '/' + unit)}"
