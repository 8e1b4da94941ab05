"""Page of `sweep`: the best variant, its use of each budget, the interactive front, reasons why others fail."""

import json
from collections.abc import Sequence
from typing import Any

from hwopt.output.answers import sweep
from hwopt.output.answers.sweep_document import Document, best_breakdown, sweep_document
from hwopt.output.html import components, page
from hwopt.output.html.components import words
from hwopt.output.html.front import front_section
from hwopt.output.html.markup import Html, element, li, p
from hwopt.output.text.layout import MODEL_ONLY
from hwopt.units import pretty

_BOX = {"value": 4, "lower": 3, "upper": 3}
"""Columns of the table of design variables -> number of digits."""


def variants_page(dataset: Any, command: str, out: str | None = None, figures: Sequence[str] = ()) -> str:
    """Return the page of `sweep`. **Arguments:** `command`: the command that produced it; the others as in `sweep_document`."""
    document = sweep_document(dataset, out, figures)
    name = str(dataset.attrs["title"])
    fields = json.loads(str(dataset.attrs["configuration"]))["fields"]
    return page.page(
        f"hwopt sweep {name}",
        name,
        document["question"],
        [_answer(document, name, fields), _tiles(document)],
        [
            *(_best(document, best_breakdown(dataset, 0)) if document["best"] else ()),
            _binding(document),
            front_section(dataset, document),
            _cases(document),
            _slopes(document),
            _proof(document, str(fields.get("constants", ""))),
        ],
        command,
        [each for each in str(dataset.attrs.get("sources", "")).split("\n") if each],
    )


def _answer(document: Document, name: str, fields: dict[str, Any]) -> Html:
    objective = document["objective"]
    if not document["best"]:
        return page.refusal("No variant has finite numbers")
    best = document["best"][0]
    if not document["feasible"]:
        hints = element("ul", map(li, sweep.hints(document, name, fields)), class_="plain")
        broken = sweep.broken(best).strip() or "The nearest one is shown below."
        return page.refusal("No variant satisfies every limit", p(broken), hints)
    above = f"{known}; " if (known := sweep.above_words(document)) else ""
    case = f", {best['case']}" if len(document["cases"]) > 1 else ""
    part = best["bottleneck"].replace("_", " ")
    return page.answer(
        f"least {words(objective['name'], objective['unit'])} of {document['evaluated']:,} variants",
        pretty(best["objective"], objective["unit"], 4),
        "best of a sample, not proved",
        False,
        f"{above}variant {best['variant']:,}{case}; its largest part of a step: {part}",
    )


def _tiles(document: Document) -> Html:
    count, focused = max(document["evaluated"], 1), document["sampling"] == "importance"
    metrics = sweep.other_metrics(document) if document["best"] else []
    pairs = [
        ("evaluated", f"{document['evaluated']:,}"),
        ("possible but for budgets", sweep.percent(document["possible"] / count)),
        ("satisfy every budget", sweep.percent(document["feasible_count"] / count)),
        *(("of the whole space", sweep.percent(document["feasible_share"])) for _ in range(focused)),
        *((words(name, unit), text) for name, unit, text in metrics),
    ]
    return components.tiles(pairs)


def _best(document: Document, parts: Sequence[tuple[str, float, float]]) -> list[Html]:
    """Return the sections on the best variant: budgets, design and step-time breakdown."""
    best = document["best"][0]
    which = "the best variant" if document["feasible"] else "the variant nearest to the limits"
    bars = [components.Bar(**each) for each in best["budgets"]]
    rows = [
        [
            words(name, each["unit"]),
            *(components.amount(each[key], each["unit"], digits) for key, digits in _BOX.items()),
        ]
        for name, each in best["design"].items()
        if each["value"] is not None
    ]
    note = "The mark is the limit. What a budget is worth: hwopt optimize."
    sections = [
        page.section(f"What {which} uses of each budget", components.budgets(bars), note=note, wide=False),
        page.section("The design", components.table("the design", ("variable", *_BOX), rows), wide=False),
    ]
    if parts:
        where = f"Where a step of {pretty(sum(seconds for _, seconds, _ in parts), 's')} goes"
        shown = [(name, pretty(seconds, "s"), share) for name, seconds, share in parts]
        sections.append(page.section(where, components.parts(where, shown), wide=False))
    return sections


def _cases(document: Document) -> Html | None:
    rows, objective = sweep.ranked_cases(document)[:100], document["objective"]
    heads = ("case", f"least {words(objective['name'], objective['unit'])}", "possible", "feasible variants")
    return page.section("By case", components.table("cases", heads, rows)) if rows else None


def _binding(document: Document) -> Html | None:
    rows = [(name, "", share) for name, share in document["bottlenecks"].items()]
    stops = [(outcome, ", ".join(parts)) for outcome, parts in sweep.stops(document)]
    if not rows and not stops:
        return None
    label = "Share of the possible variants by the largest part of a step"
    return page.section(
        "What bounds the variants",
        components.parts(label, rows) if rows else None,
        [element("h3", sweep.STOPS), components.terms(stops)] if stops else None,
        note=f"{label}." if rows else "",
        wide=False,
    )


def _slopes(document: Document) -> Html | None:
    objective = document["objective"]
    rows = [[name.replace("_", " "), *(f"{x:+.3f}" for x in slopes)] for name, *slopes in sweep.ranked_slopes(document)]
    title = f"% of {words(objective['name'], objective['unit'])} by % of each input"
    table = components.table(title, ("input", "median", "first decile", "last decile"), rows)
    return page.section(title, table, note="Of possible variants.") if rows else None


def _proof(document: Document, constants: str) -> Html:
    """Return the section on what a sample can prove, with its method and precision."""
    optimum, unit = document["optimum"], document["objective"]["unit"]
    proof = ("Not proved", "the best of what was evaluated; hwopt optimize proves the best of all integer designs")
    if optimum is not None and optimum["lower_bound"] is not None:
        proof = ("Proved", f"no design of the space is below {pretty(optimum['lower_bound'], unit, 6)}")
    searched = f"{sweep.method_words(document)}; {document['samples']:,} variants a case, {document['dtype']}"
    pairs = [("How looked", searched), proof, ("Of what", MODEL_ONLY)]
    if constants:
        pairs.append(("Constants", constants))
    if document["out"]:
        pairs.append(("Store", f"{document['out']}: every variant, as xarray.open_zarr opens it"))
    return page.section("How good is it", components.terms(pairs))
