"""Answer of `hwopt sweep --frontier`: certified optima at several levels of budgets, and the marginal value of each budget."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwopt.output.answer import Answer, Named, OnPage, Section, Table
from hwopt.output.answers.sweep import file_parts
from hwopt.output.html import points
from hwopt.output.html.axis import Axis
from hwopt.output.html.components import words
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.output.text.parts import number
from hwopt.units import fitting, pretty

_DESIGN = ("chips", "tp", "pp")
"""Design variables that are shown for each point of a frontier: chips, tensor and pipeline parallel degree."""

_ROWS, _POINTS = 40, 400
"""Maximum number of points in the table on a screen, and in a chart."""

_NOTHING = 1e-6  # Normalized shadow price (elasticity) below which a budget counts as not binding

Point = dict[str, Any]


def frontier_document(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> dict[str, Any]:
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


def frontier_answer(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> Answer:
    """Return the answer of `hwopt sweep --frontier`; arguments as in `frontier_document`."""
    document, name = frontier_document(dataset, out, figures), str(dataset.attrs["title"])
    goal, budgets = document["objective"], document["budgets"]
    feasible = [each for each in document["points"] if each["feasible"]]
    certified, count = sum(each["certified"] for each in document["points"]), len(document["points"])
    least = [each["objective"] for each in feasible]
    ends = dict.fromkeys(pretty(end, goal["unit"], 4) for end in (min(least), max(least))) if least else {}
    lowest, limits = words(goal["name"], goal["unit"]), " and ".join(map(budget_words, budgets))
    found = f"{len(feasible)} of {count} budget levels feasible, {certified} certified"
    proved = "a certified level is within its gap of the optimum, or proved infeasible"
    heads = [*map(budget_words, budgets), lowest, "optimality gap", "value of a larger budget", *_DESIGN]
    choice = ["choice"] if any("choice" in each for each in document["points"]) else []
    rows = [_row(document, each) for each in document["points"]]
    align = "r" * (len(budgets) + 2) + "l" + "r" * len(_DESIGN) + "l" * len(choice)
    return Answer(
        "sweep",
        document,
        document["question"],
        f"Lowest {lowest} by {limits}: {' to '.join(ends)}; {found}." if feasible else f"No feasible design: {found}.",
        (f"lowest {lowest} by {limits}", " to ".join(ends)),
        ("certified" if certified == count else "partly certified", certified == count, found),
        (
            *(_chart(document, budget, feasible) for budget in budgets),
            Section(
                f"Lowest {lowest} at each level of the {limits}",
                [Table("points", [*heads, *choice], rows, align, most=_ROWS)],
            ),
            Section("Certificate and scope", [Named([("Certificate", proved), ("Scope", MODEL_ONLY)])]),
            Section("Files", file_parts(out, figures, choices=bool(choice)), titled=False),
        ),
        [each for each in str(dataset.attrs.get("sources", "")).split("\n") if each],
        document["feasible"],
        question=name,
    )


def _chart(document: dict[str, Any], budget: str, feasible: list[Point]) -> Section:
    """Return a chart of the objective against one budget; tooltips state the levels of the other budgets."""
    goal, unit = document["objective"], document["budgets"][budget]
    up, across = words(goal["name"], goal["unit"]), budget_words(budget)
    title = f"Lowest {up} by {across}"
    drawn = [
        points.Point(each["budgets"][budget], each["objective"], "var(--within)", True, _said(document, each))
        for each in feasible[:_POINTS]
    ]
    if len({each.x for each in drawn}) < 2 or min(each.y for each in drawn) <= 0:
        return Section(title, [])
    axes = (
        Axis.over(across, unit, [each.x for each in drawn]),
        Axis.over(up, goal["unit"], [each.y for each in drawn]),
    )
    caption = "Hover, touch or use the arrow keys to read a point."
    if len(feasible) > _POINTS:
        caption += f" The first {_POINTS} of {len(feasible):,} points are drawn."
    trace = len(document["budgets"]) == 1
    return Section(title, [OnPage(points.chart(title, axes, drawn, caption=caption, trace=trace))])


def _said(document: dict[str, Any], each: Point) -> str:
    """Return the tooltip of a point: objective, budgets and their marginal values, design."""
    goal, units = document["objective"], document["budgets"]
    lines = [f"{words(goal['name'], goal['unit'])} {pretty(each['objective'], goal['unit'], 5)}"]
    lines += [f"{budget_words(name)} {pretty(limit, units[name])}" for name, limit in each["budgets"].items()]
    design = [f"{name} {value}" for name, value in zip(_DESIGN, _design(each), strict=True) if value]
    return "\n".join([*lines, *worths(document, each), ", ".join([*design, *filter(None, [each.get("choice")])])])


def _design(each: Point) -> list[str]:
    return ["" if each.get(name) is None else f"{each[name]:,.0f}" for name in _DESIGN]


def _row(document: dict[str, Any], each: Point) -> list[str]:
    under = [pretty(limit, document["budgets"][name]) for name, limit in each["budgets"].items()]
    choice = [each["choice"]] if "choice" in each else []
    if not each["feasible"]:
        proof = "infeasible (certified)" if each["certified"] else "no feasible design found"
        return [*under, "", "", proof, *([""] * len(_DESIGN)), *choice]
    gap = f"{100 * each['gap']:.1g} %" if each["certified"] else "not certified"
    value = pretty(each["objective"], document["objective"]["unit"], 5)
    return [*under, value, gap, "; ".join(worths(document, each)), *_design(each), *choice]


def worths(document: dict[str, Any], point: Point) -> list[str]:
    """Return the shadow price of each budget at a point of the frontier, in words."""
    return [_worth(name, point, document["objective"]["unit"], unit) for name, unit in document["budgets"].items()]


def _worth(name: str, point: Point, objective_unit: str, unit: str) -> str:
    price, limit = point[f"shadow_price_{name}"], point["budgets"][name]
    if price is None:
        return f"{budget_words(name)}: shadow price unknown"
    if price * limit < _NOTHING * point["objective"]:
        return f"{budget_words(name)} not binding"
    size, shown = fitting(unit, [limit])
    return f"saves {pretty(price * size, objective_unit)} per {shown} of {budget_words(name)}"
