"""The page of `sweep --frontier`: certified optima under levels of budgets, and what each budget is worth there."""

from __future__ import annotations

from typing import Any

from hwopt.report.frontier import frontier_document, worth_words
from hwopt.report.page import pieces, sheet
from hwopt.report.page.axis import Axis
from hwopt.report.page.markup import Html, element
from hwopt.report.page.pieces import words
from hwopt.report.page.points import Point, chart
from hwopt.units import pretty

_MOST = 400
_SHOWN = ("chips", "tp", "pp")


def optima_page(dataset: Any, command: str, out: str | None = None, figures: tuple[str, ...] = ()) -> str:
    """One page for `sweep --frontier`; `command` that asked for it, other arguments as in `frontier_document`."""
    found = frontier_document(dataset, out, figures)
    name = str(dataset.attrs["title"])
    goal = found["objective"]
    sources = [each for each in str(dataset.attrs.get("sources", "")).split("\n") if each]
    held = [each for each in found["points"] if each["feasible"]]
    certified = sum(each["certified"] for each in found["points"])
    count = len(found["points"])
    kind = f"hwopt sweep {name} --frontier"
    if held:
        ends = [pretty(f(each["objective"] for each in held), goal["unit"], 4) for f in (min, max)]
        big = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    else:
        big = "No design holds any level of the budgets"
    answer = element(
        "div",
        element(
            "p",
            f"least {words(goal['name'])} over {', '.join(map(pieces.budget_words, found['budgets']))}",
            class_="what",
        ),
        element("p", big, class_="big"),
        element(
            "p",
            element(
                "span",
                "proved" if certified == count else "partly proved",
                class_="badge" if certified == count else "badge open",
            ),
            f"{certified} of {count} points certified, {len(held)} of them feasible",
            class_="proof",
        ),
    )
    return sheet.page(
        kind,
        found["question"],
        sheet.header(kind, found["question"], answer),
        *(_chart(found, budget, held) for budget in found["budgets"] if len(held) > 1),
        _points(found),
        sheet.section(
            "How good is it",
            pieces.terms(
                [
                    (
                        "Proved",
                        "each certified point is within its gap of the least possible, or no design holds its budgets",
                    ),
                    ("Of what", "a statement about the model, not about silicon"),
                ]
            ),
        ),
        sheet.command_section(command),
        sheet.sources_section(sources, name),
    )


def _chart(found: dict[str, Any], budget: str, held: list[dict[str, Any]]) -> Html | None:
    """The objective over one budget; of several budgets the others are told by the points."""
    goal, unit = found["objective"], found["budgets"][budget]
    points = [
        Point(each["budgets"][budget], each["objective"], "var(--within)", True, _said(found, each))
        for each in held[:_MOST]
    ]
    if len({each.x for each in points}) < 2 or min(each.y for each in points) <= 0:
        return None
    across = Axis.over(pieces.budget_words(budget), unit, [each.x for each in points])
    up = Axis.over(words(goal["name"]), goal["unit"], [each.y for each in points])
    title = f"Least {words(goal['name'])} over {pieces.budget_words(budget)}"
    caption = "Hover, touch or use the arrow keys to read a point."
    if len(held) > _MOST:
        caption += f" The first {_MOST} of {len(held):,} points are drawn."
    return sheet.section(title, chart(title, (across, up), points, caption=caption, trace=len(found["budgets"]) == 1))


def _said(found: dict[str, Any], each: dict[str, Any]) -> str:
    goal, units = found["objective"], found["budgets"]
    lines = [f"{words(goal['name'])} {pretty(each['objective'], goal['unit'], 5)}"]
    lines += [f"{pieces.budget_words(name)} {pretty(limit, units[name])}" for name, limit in each["budgets"].items()]
    lines += [worth_words(name, each, goal, unit) for name, unit in units.items()]
    design = ", ".join(f"{name} {each[name]:,.0f}" for name in _SHOWN if each.get(name) is not None)
    return "\n".join([*lines, design])


def _points(found: dict[str, Any]) -> Html:
    goal, units = found["objective"], found["budgets"]
    rows = []
    for each in found["points"][:_MOST]:
        under = [pretty(limit, units[name]) for name, limit in each["budgets"].items()]
        if not each["feasible"]:
            rows.append(
                [*under, "no design: proved" if each["certified"] else "no design found", "", "", *([""] * len(_SHOWN))]
            )
            continue
        prices = "; ".join(worth_words(name, each, goal, unit) for name, unit in units.items())
        gap = each["gap"] if each["certified"] else None
        design = [f"{each[name]:,.0f}" if each.get(name) is not None else "" for name in _SHOWN]
        proof = "not proved" if gap is None else f"{100 * gap:.1g} %"
        rows.append([*under, prices, pretty(each["objective"], goal["unit"], 5), proof, *design])
    heads = (*map(pieces.budget_words, units), "what more is worth", words(goal["name"]), "gap", *_SHOWN)
    return sheet.section(
        "Every point", pieces.table("points", heads, rows, "l" * (len(units) + 1) + "r" * (2 + len(_SHOWN)))
    )
