"""The page of `sweep`: the best variant, what it uses of each budget, the front to hover over, what stops the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hwopt.report import sweep
from hwopt.report.page import pieces, sheet
from hwopt.report.page.front import front_section
from hwopt.report.page.markup import Html, element
from hwopt.report.page.pieces import words
from hwopt.report.sweep_document import Document, best_breakdown, sweep_document
from hwopt.units import pretty

_BOX = ("value", "lower", "upper")


def variants_page(dataset: Any, command: str, out: str | None = None, figures: Sequence[str] = ()) -> str:
    """One page for `sweep`; `command` that asked for it, other arguments as in `sweep_document`."""
    found = sweep_document(dataset, out, figures)
    name = str(dataset.attrs["title"])
    fields = json.loads(str(dataset.attrs["configuration"]))["fields"]
    sources = str(dataset.attrs.get("sources", "")).split("\n")
    return sheet.page(
        f"hwopt sweep {name}",
        found["question"],
        sheet.header(f"hwopt sweep {name}", found["question"], _answer(found, name, fields), _tiles(found)),
        *(_best(found, best_breakdown(dataset, 0)) if found["best"] else ()),
        _binding(found),
        front_section(dataset, found),
        _cases(found),
        _slopes(found),
        _proof(found, str(fields.get("constants", ""))),
        sheet.command_section(command),
        sheet.sources_section([each for each in sources if each], name),
    )


def _answer(found: Document, name: str, fields: dict[str, Any]) -> Html:
    objective, counted = found["objective"], f"{found['evaluated']:,} variants"
    if not found["best"]:
        return element("p", "No variant has finite numbers", class_="big")
    best = found["best"][0]
    shown = pretty(best["objective"], objective["unit"], 4)
    if not found["feasible"]:
        return element(
            "div",
            element("p", "No variant holds every limit", class_="big"),
            element(
                "div",
                element("p", sweep.broken(best).strip() or "The nearest one is shown below."),
                element("ul", *(element("li", hint) for hint in sweep.hints(found, name, fields)), class_="plain"),
                class_="mend",
                role="note",
            ),
        )
    held = found["optimum"]
    proof: list[Html | str] = [element("span", "best of a sample, not proved", class_="badge open")]
    if held is not None and held["best_above"] is not None:
        proof.append(
            f"{100 * held['best_above']:.2g} % above the certified optimum {pretty(held['objective'], objective['unit'], 6)}; "
        )
    case = f", {best['case']}" if len(found["cases"]) > 1 else ""
    return element(
        "div",
        element("p", f"least {words(objective['name'])} of {counted}", class_="what"),
        element("p", shown, class_="big"),
        element(
            "p",
            *proof,
            f"variant {best['variant']:,}{case}; its largest part of a step: {best['bottleneck'].replace('_', ' ')}",
            class_="proof",
        ),
    )


def _tiles(found: Document) -> Html:
    count = max(found["evaluated"], 1)
    pairs = [
        ("evaluated", f"{found['evaluated']:,}"),
        ("possible but for budgets", sweep.percent(found["possible"] / count)),
        ("hold every budget", sweep.percent(found["feasible_count"] / count)),
    ]
    if found["best"]:
        metrics = found["best"][0]["metrics"]
        pairs += [
            (words(name), sweep.shown(name, each["value"], each["unit"]))
            for name, each in metrics.items()
            if name != found["objective"]["name"] and each["value"] is not None
        ]
    return pieces.tiles(pairs)


def _best(found: Document, parts: Sequence[tuple[str, float, float]]) -> list[Html]:
    """Budgets, design and time of the best variant."""
    best = found["best"][0]
    which = "the best variant" if found["feasible"] else "the variant nearest to the limits"
    bars = [pieces.Bar(each["name"], each["used"], each["limit"], each["unit"]) for each in best["budgets"]]
    rows = [
        [words(name), *(pieces.amount(each[key], each["unit"], 4 if key == "value" else 3) for key in _BOX)]
        for name, each in best["design"].items()
        if each["value"] is not None
    ]
    step = sum(seconds for _, seconds, _ in parts)
    where = f"Where a step of {pretty(step, 's')} goes"
    made = [
        sheet.section(
            f"What {which} uses of each budget",
            pieces.budgets(bars),
            note="The mark is the limit. What a budget is worth: hwopt optimize.",
            wide=False,
        ),
        sheet.section("The design", pieces.table("the design", ("variable", *_BOX), rows), wide=False),
    ]
    if parts:
        shown = [(name, pretty(seconds, "s"), share) for name, seconds, share in parts]
        made.append(sheet.section(where, pieces.parts(where, shown), wide=False))
    return made


def _cases(found: Document) -> Html | None:
    if not found["by_case"]:
        return None
    objective = found["objective"]
    ranked = sorted(found["by_case"], key=lambda each: np.inf if each["objective"] is None else each["objective"])
    rows = [
        [
            each["case"],
            "none feasible" if each["objective"] is None else sweep.shown("", each["objective"], objective["unit"]),
            sweep.percent(each["possible"] / each["evaluated"]),
            f"{each['feasible_count']:,}",
        ]
        for each in ranked
    ]
    heads = ("case", f"least {words(objective['name'])}", "possible", "feasible variants")
    return sheet.section("By case", pieces.table("cases", heads, rows[:100]))


def _binding(found: Document) -> Html | None:
    rows = [(name, "", share) for name, share in found["bottlenecks"].items()]
    stops = [
        (
            outcome.replace("_", " "),
            ", ".join(f"{sweep.stop_words(n)} {100 * share:.3g} %" for n, share in held.items()),
        )
        for outcome, held in found["stops"].items()
        if held and outcome != "feasible"
    ]
    if not rows and not stops:
        return None
    label = "Share of the possible variants by the largest part of a step"
    return sheet.section(
        "What bounds the variants",
        pieces.parts(label, rows) if rows else None,
        element("h3", "What stops variants: the constraint furthest beyond its limit") if stops else None,
        pieces.terms(stops) if stops else None,
        note=f"{label}." if rows else "",
        wide=False,
    )


def _slopes(found: Document) -> Html | None:
    slopes = {name: each for name, each in (found["elasticities"] or {}).items() if each["median"] is not None}
    if not slopes:
        return None
    ranked = sorted(slopes.items(), key=lambda each: -max(abs(each[1]["low"]), abs(each[1]["high"])))
    rows = [
        [name.replace("_", " "), *(f"{each[key]:+.3f}" for key in ("median", "low", "high"))] for name, each in ranked
    ]
    title = f"% of {words(found['objective']['name'])} by % of each input"
    return sheet.section(
        title,
        pieces.table(title, ("input", "median", "first decile", "last decile"), rows),
        note="Of possible variants.",
    )


def _proof(found: Document, constants: str) -> Html:
    """What a sample can say, in plain words."""
    objective, held = found["objective"], found["optimum"]
    pairs = [("How looked", f"{sweep.method_words(found)}; {found['samples']:,} variants a case, {found['dtype']}")]
    if held is not None and held["lower_bound"] is not None:
        pairs.append(
            (
                "Proved",
                f"no design is below {pretty(held['lower_bound'], objective['unit'], 6)}, the certified optimum sampled around",
            )
        )
    else:
        pairs.append(
            ("Not proved", "the best of what was evaluated; hwopt optimize proves the best of all whole-number designs")
        )
    pairs += [
        ("Of what", "a statement about the model, not about silicon"),
        *([("Constants", constants)] if constants else []),
    ]
    if found["out"]:
        pairs.append(("Store", f"{found['out']}: every variant, as xarray.open_zarr opens it"))
    return sheet.section("How good is it", pieces.terms(pairs))
