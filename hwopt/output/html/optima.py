"""Page of `sweep --frontier`: certified optima at several levels of budgets, and the marginal value of each budget."""

from typing import Any

from hwopt.output.answers.frontier import DESIGN, Point, design_words, frontier_document, gap_of, worths
from hwopt.output.html import components, page, points
from hwopt.output.html.axis import Axis
from hwopt.output.html.components import words
from hwopt.output.html.markup import Child, Html
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.units import pretty

_MOST = 400


def optima_page(dataset: Any, command: str, out: str | None = None, figures: tuple[str, ...] = ()) -> str:
    """Return the page of `sweep --frontier`.

    **Arguments:** `command`: the command that produced it; the others as in `frontier_document`.
    """
    document = frontier_document(dataset, out, figures)
    name, goal, budgets = str(dataset.attrs["title"]), document["objective"], document["budgets"]
    feasible = [each for each in document["points"] if each["feasible"]]
    certified, count = sum(each["certified"] for each in document["points"]), len(document["points"])
    least = [each["objective"] for each in feasible]
    ends = dict.fromkeys(pretty(end, goal["unit"], 4) for end in (min(least), max(least))) if least else {}
    proved = "each certified point is within its gap of the least possible, or no design satisfies its budgets"
    return page.page(
        f"hwopt sweep {name} --frontier",
        name,
        document["question"],
        page.answer(
            f"least {words(goal['name'], goal['unit'])} over {', '.join(map(budget_words, budgets))}",
            " to ".join(ends) or "No design satisfies any level of the budgets",
            "proved" if certified == count else "partly proved",
            certified == count,
            f"{certified} of {count} points certified, {len(feasible)} of them feasible",
        ),
        [
            *(_chart(document, budget, feasible) for budget in budgets if len(feasible) > 1),
            _points(document),
            page.section("How good is it", components.terms([("Proved", proved), ("Of what", MODEL_ONLY)])),
        ],
        command,
        [each for each in str(dataset.attrs.get("sources", "")).split("\n") if each],
    )


def _chart(document: dict[str, Any], budget: str, feasible: list[Point]) -> Html | None:
    """Return a chart of the objective against one budget; tooltips state the levels of the other budgets."""
    goal, unit = document["objective"], document["budgets"][budget]
    drawn = [
        points.Point(each["budgets"][budget], each["objective"], "var(--within)", True, _said(document, each))
        for each in feasible[:_MOST]
    ]
    if len({each.x for each in drawn}) < 2 or min(each.y for each in drawn) <= 0:
        return None
    up = Axis.over(words(goal["name"], goal["unit"]), goal["unit"], [each.y for each in drawn])
    across = Axis.over(budget_words(budget), unit, [each.x for each in drawn])
    title = f"Least {up.words} over {across.words}"
    caption = "Hover, touch or use the arrow keys to read a point."
    if len(feasible) > _MOST:
        caption += f" The first {_MOST} of {len(feasible):,} points are drawn."
    trace = len(document["budgets"]) == 1
    return page.section(title, points.chart(title, (across, up), drawn, caption=caption, trace=trace))


def _said(document: dict[str, Any], each: Point) -> str:
    goal, units = document["objective"], document["budgets"]
    lines = [f"{words(goal['name'], goal['unit'])} {pretty(each['objective'], goal['unit'], 5)}"]
    lines += [f"{budget_words(name)} {pretty(limit, units[name])}" for name, limit in each["budgets"].items()]
    return "\n".join([*lines, *worths(document, each), design_words(each)])


def _points(document: dict[str, Any]) -> Html:
    goal, units = document["objective"], document["budgets"]
    heads = (*map(budget_words, units), "what more is worth", words(goal["name"], goal["unit"]), "gap", *DESIGN)
    rows = [_row(document, each) for each in document["points"][:_MOST]]
    table = components.table("points", heads, rows, "l" * (len(units) + 1) + "r" * (2 + len(DESIGN)))
    return page.section("Every point", table)


def _row(document: dict[str, Any], each: Point) -> list[Child]:
    under = [pretty(limit, document["budgets"][name]) for name, limit in each["budgets"].items()]
    if not each["feasible"]:
        proof = "no design: proved" if each["certified"] else "no design found"
        return [*under, proof, "", "", *([""] * len(DESIGN))]
    gap, value = gap_of(each), pretty(each["objective"], document["objective"]["unit"], 5)
    design = [f"{each[name]:,.0f}" if each.get(name) is not None else "" for name in DESIGN]
    return [
        *under,
        "; ".join(worths(document, each)),
        value,
        "not proved" if gap is None else f"{100 * gap:.1g} %",
        *design,
    ]
