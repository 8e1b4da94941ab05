"""Answer of `hwopt sweep`: the best variant, the constraints that stop the others, the Pareto front, the files."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwopt import escape
from hwopt.model.report import declared_margins
from hwopt.output.answer import (
    Answer,
    Breakdown,
    Budgets,
    Lines,
    Listed,
    Named,
    OnPage,
    Part,
    Section,
    Sentences,
    Table,
)
from hwopt.output.answers.sweep_document import Document, best_breakdown, sweep_document
from hwopt.output.answers.sweep_front import design_text, front_sections, shown, work_of
from hwopt.output.html import components
from hwopt.output.html.components import words
from hwopt.output.text.layout import MODEL_ONLY, budget_words
from hwopt.units import pretty

_METHODS = {
    "sobol": "scrambled Sobol sequence",
    "lhs": "Latin hypercube",
    "grid": "every combination of levels",
    "table": "designs of a table",
}

_STOPS = {name: each.stop for name, each in declared_margins().items()} | {
    "clock": "clock above what cooling or the power cap sustains",
    "reticle": "die larger than the reticle",
    "shoreline": "more interfaces than the die edge holds",
    "package": "package larger than the largest interposer",
    "bounds": "a variable outside its search range, or not whole where it must be",
}
"""Constraint -> description of its violation. Budgets are named without their unit."""

_CASES, _SLOPES = 8, 5
"""Maximum number of cases and of elasticities on a screen."""

_DIGITS = {"value": 4, "lower": 3, "upper": 3}
"""Columns of the table of design variables, with their number of digits."""

_NOT_KEPT = "Nothing is saved; --out DIR saves every design and figures."

_NOTES = {
    "as asked": "as requested",
    "a Latin hypercube is of the whole space": "importance sampling needs a Sobol sequence",
    "choices are swept, each over its whole space": "importance sampling takes a single case, no --choices",
}
"""Reason for uniform sampling, as a store has it -> reason in words."""

_OUTCOMES = {"impossible": "not buildable", "over_budget": "over a budget"}

_LEAST = 5e-4
"""Share from which a bottleneck is listed: smaller ones would print as 0.0 %."""

_OVER = 1e-6
"""Relative excess over a budget that still counts as satisfying it."""


def sweep_answer(
    dataset: Any, out: str | None = None, figures: Sequence[str] = (), tables: Sequence[Path] = ()
) -> Answer:
    """Return the answer of `hwopt sweep`. **Arguments:** as in `sweep_document`; `tables`: other files with every design."""
    document, attrs = sweep_document(dataset, out, figures), dataset.attrs
    title, goal, several = str(attrs["title"]), document["objective"], len(document["cases"]) > 1
    cases = f" (the first of {len(document['cases'])} cases)" if several else ""
    asked, lowest = json.loads(str(attrs["configuration"])), words(goal["name"], goal["unit"])
    bottleneck = "Bottleneck: share of buildable designs by the largest part of the step time"
    parts = [(name, "", share) for name, share in document["bottlenecks"].items() if share >= _LEAST]
    written = [Lines([escape.line(f"Every design as a row: {path}") for path in tables], "")]
    sections = (
        _evaluated(document, float(asked.get("within", 0.0)), asked.get("grid") or {}),
        Section(f"Lowest {lowest} of each case", _cases(document)),
        *_best_sections(document, best_breakdown(dataset, 0) if document["best"] else []),
        Section(
            "What to try", [] if document["feasible"] else [Sentences(hints(document, title, asked["fields"]), "  - ")]
        ),
        Section(bottleneck, [Breakdown(bottleneck, parts)] if parts else [], wide=False),
        Section(
            f"Infeasible designs by their most violated constraint: {document['evaluated'] - document['feasible_count']:,}",
            [Named(stops(document))],
            wide=False,
        ),
        Section(
            f"Elasticity: % change of {lowest} for 1 % more of each input, over buildable designs", _slopes(document)
        ),
        *front_sections(dataset, document),
        Section("Certificate and scope", [Named(_proof(document, str(asked["fields"].get("constants", ""))))]),
        Section(
            "Files", [*written, *(file_parts(out, figures) or [Lines([] if tables else [_NOT_KEPT], "")])], titled=False
        ),
    )
    return Answer(
        "sweep",
        document,
        document["question"] + cases,
        verdict(document),
        (f"lowest {lowest} of {document['evaluated']:,} designs", _goal(document) if document["feasible"] else ""),
        ("not certified", False, "the best design of a sample; hwopt optimize certifies an optimum"),
        sections,
        [each for each in str(attrs.get("sources", "")).split("\n") if each],
        document["feasible"],
        question=title,
    )


_FREE = "all hardware free"
"""Words of a question over continuous hardware."""


def verdict(document: Document) -> str:
    """Return the result in a sentence: the best variant, or the limits that the nearest variant violates."""
    if not document["best"]:
        return "No result: the model has no finite numbers for any of these designs."
    best = document["best"][0]
    if not document["feasible"]:
        return f"No feasible design among {document['evaluated']:,}.{broken(best)}"
    goal, above = words(document["objective"]["name"], document["objective"]["unit"]), above_words(document)
    which = f"{goal} {_goal(document)} (variant {best['variant']:,}{_of_case(document)}; the first is 0)"
    free = " over free hardware, not as sold" if _FREE in document["question"] else ""
    return f"Best of {document['evaluated']:,} designs{free}: {which}{f', {above}' if above else ''}."


def _of_case(document: Document) -> str:
    """Return the case of the best variant, behind a comma; empty in a sweep of a single case."""
    return f", {document['best'][0]['case']}" if len(document["cases"]) > 1 else ""


def _goal(document: Document) -> str:
    """Return the objective of the best variant in its customary unit."""
    return shown("", document["best"][0]["objective"], document["objective"]["unit"], work_of(document))


def _evaluated(document: Document, within: float, grid: Mapping[str, Sequence[float]]) -> Section:
    cases, count = len(document["cases"]), document["evaluated"]
    of_cases = f", {document['samples']:,} in each of {cases} cases" if cases > 1 else ""
    kinds = {
        "buildable": (document["possible"], "satisfy every constraint except budgets"),
        "feasible": (document["feasible_count"], "satisfy the budgets too"),
        **({"undefined": (document["nonfinite"], "no finite result; not buildable")} if document["nonfinite"] else {}),
    }
    rows = [[name, f"{n:,}", percent(n / count), meaning] for name, (n, meaning) in kinds.items()]
    table = Table("designs", ("", "designs", "share", "meaning"), rows, "lrrl")
    known = document["best"][0]["design"] if document["best"] else {}
    unit_of = lambda name: known.get(name, {}).get("unit", "")
    levels = [
        f"{name} {', '.join(design_text(name, x, unit_of(name), 6) for x in values)}" for name, values in grid.items()
    ]
    levels = [f"Levels: {'; '.join(levels)}. Bounds of variables below are those of the question."] if levels else []
    title = f"{count:,} design{'s' * (count != 1)} evaluated{of_cases}: {method_words(document)}, {document['dtype']}"
    return Section(title, [table, Sentences([*levels, *sampling_words(document, within)], later="  ")])


def sampling_words(document: Document, within: float) -> list[str]:
    """Return sentences on how variants were sampled.

    After importance sampling they include the feasible shares of the whole design space; for listed variants there are none.

    **Arguments:** `within`: ratio to both sides of the certified optimum that was sampled; 0 for the whole design space.
    """
    if within:
        of_case = " of each case" if len(document["cases"]) > 1 else ""
        return [f"Sampled uniformly up to a ratio of {within:g} to both sides of the certified optimum{of_case}."]
    if document["sampling"] == "plain":
        note = document["sampling_note"]
        if document["method"] not in ("sobol", "lhs") or not note:
            return []
        fewer = f"importance sampling, mostly near good designs, is the default from {note.removeprefix('fewer than ')} samples"
        why = fewer if note.startswith("fewer than ") else _NOTES.get(note, note)
        return [f"Sampled uniformly over the search space: {why}."]
    shares = [
        f"{name} {percent(document[f'{key}_share'])} (standard error {percent(document[f'{key}_share_error'])})"
        for name, key in (("buildable", "possible"), ("feasible", "feasible"))
    ]
    return [
        "A quarter of the designs are sampled from the whole search space, the others near good designs.",
        f"Weighted to the whole space: {', '.join(shares)}. The shares below are weighted too.",
    ]


def known_words(document: Document) -> str:
    """Name the best design of the search that preceded the sweep, with its objective.

    It is called "certified optimum" where its optimality gap is closed, else "best design of a search". The document must have
    such a design (`optimum`).
    """
    optimum = document["optimum"]
    kind = "certified optimum" if optimum["certified"] else "best design of a preceding search"
    return f"{kind} ({shown('', optimum['objective'], document['objective']['unit'], work_of(document))})"


def above_words(document: Document) -> str:
    """Return how far the best variant is above or below the best design of the preceding search, in percent and words.

    The sweep sampled around that design. The text is empty without a search, or without a feasible variant.
    """
    optimum = document["optimum"]
    if optimum is None or optimum["best_above"] is None:
        return ""
    above = optimum["best_above"]
    return f"{100 * abs(above):.2g} % {'above' if above >= 0 else 'below'} the {known_words(document)}"


def method_words(document: Document) -> str:
    """Return the sampling method of the variants in words."""
    drawn = f", seed {document['seed']}" if document["method"] in ("sobol", "lhs") else ""
    return f"{_METHODS[document['method']]}{drawn}"


def percent(share: float) -> str:
    """Return a share in percent; a small share keeps two digits and never prints as zero."""
    return f"{100 * share:.2f} %" if share == 0 or share >= 1e-4 else f"{100 * share:.2g} %"


def ranked_cases(document: Document) -> list[tuple[str, str, str, str]]:
    """Return the cases with their minimum objective, share of possible variants and number of feasible ones, the best first."""
    ranked = sorted(document["by_case"] or [], key=lambda each: (each["objective"] is None, each["objective"] or 0.0))
    least = lambda value: (
        "none feasible" if value is None else shown("", value, document["objective"]["unit"], work_of(document))
    )
    possible = lambda each: percent(each["possible"] / each["evaluated"])
    return [(each["case"], least(each["objective"]), possible(each), f"{each['feasible_count']:,}") for each in ranked]


def _cases(document: Document) -> list[Table]:
    rows = ranked_cases(document)
    goal = document["objective"]
    heads = ("case", words(goal["name"], goal["unit"]), "buildable", "feasible designs")
    return [Table("cases", heads, rows, most=_CASES)] if rows else []


def _best_sections(document: Document, parts: Sequence[tuple[str, float, float]]) -> list[Section]:
    """Return the sections on the best variant: design, metrics, use of the budgets and step-time breakdown."""
    if not document["best"]:
        return []
    best, which = document["best"][0], "Best design" if document["feasible"] else "Closest to feasible"
    optimum = document["optimum"]
    known = [] if optimum is None or above_words(document) else [f"For comparison: {known_words(document)}."]
    rows = [
        [name, *(design_text(name, each[key], each["unit"], digits) for key, digits in _DIGITS.items())]
        for name, each in best["design"].items()
        if each["value"] is not None
    ]
    metrics = [f"{words(name, unit)} {text}" for name, unit, text in other_metrics(document)]
    step = f"Step-time breakdown ({pretty(sum(seconds for _, seconds, _ in parts), 's', 3)})"
    shares = [(name, pretty(seconds, "s"), share) for name, seconds, share in parts]
    return [
        Section(
            f"{which}: variant {best['variant']:,}{_of_case(document)}",
            [
                Sentences(known),
                Listed(metrics),
                Table("the design", ("variable", "value", "lower bound", "upper bound"), rows),
            ],
        ),
        Section(
            "Use of each budget",
            [Budgets([components.Bar(**each) for each in best["budgets"]])],
            note="The mark on each bar is the limit. hwopt optimize adds shadow prices.",
            wide=False,
        ),
        Section(step, [OnPage(components.parts(step, shares))] if shares else [], wide=False),
    ]


def other_metrics(document: Document) -> list[tuple[str, str, str]]:
    """Return name, unit and formatted value of the best variant's metrics other than the objective."""
    return [
        (name, each["unit"], shown(name, each["value"], each["unit"], work_of(document)))
        for name, each in document["best"][0]["metrics"].items()
        if name != document["objective"]["name"] and each["value"] is not None
    ]


def _is_over(budget: Document) -> bool:
    return budget["used"] > budget["limit"] * (1 + _OVER)


def broken(best: Document) -> str:
    """Return the constraints that the infeasible variant closest to feasibility violates, in words."""
    over = [
        f"{budget_words(each['name'])} by {100 * (each['used'] / each['limit'] - 1):.3g} %"
        for each in best["budgets"]
        if _is_over(each)
    ]
    violated = [*([] if best["possible"] else [stop_words(best["binding"])]), *over]
    return f" The closest one violates: {', '.join(violated)}." if violated else ""


def hints(document: Document, title: str, fields: Mapping[str, Any]) -> list[str]:
    """Return suggestions where no variant satisfies every limit.

    **Arguments:**

    - `title`: name of the question.
    - `fields`: its fields.
    """
    near = document["best"][0] if document["best"] and document["best"][0]["possible"] else None
    tries = []
    if near:
        over = {each["name"]: each["used"] for each in near["budgets"] if _is_over(each)}
        flags = [f"--{name.replace('_', '-')} {_rounded_up(used)}" for name, used in over.items()]
        if over and all(name in fields for name in over):
            tries.append(f"Looser budgets: the design above is feasible with {' '.join(flags)}")
    if document["method"] in ("sobol", "lhs"):
        tries.append(f"More designs: --samples {10 * document['samples']:,}")
        if document["method"] == "sobol" and document["sampling"] == "plain" and len(document["cases"]) == 1:
            tries.append("More samples near good designs: --sampling importance")
        tries.append("Samples within 10 % of the certified optimum: --within 1.1")
    return [
        *tries,
        f"hwopt optimize {title} with the same budgets: the certified optimum, or the budgets that conflict",
    ]


def _rounded_up(value: float) -> str:
    """Return a value rounded up to three digits, as the text of a limit's flag."""
    size = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / size * (1 + _OVER)) * size:.3g}"


def stops(document: Document) -> list[tuple[str, str]]:
    """Return the outcomes of infeasible variants, each with the constraints that stop them, the most frequent first."""
    return [
        (
            _OUTCOMES[outcome],
            ", ".join(f"{stop_words(name)} {100 * share:.3g} %" for name, share in shares.items()),
        )
        for outcome, shares in document["stops"].items()
        if shares and outcome in _OUTCOMES
    ]


def stop_words(constraint: str) -> str:
    """Return the description of the violation of a constraint; the name of a budget without its unit."""
    return _STOPS.get(constraint, budget_words(constraint))


def ranked_slopes(document: Document) -> list[tuple[str, float, float, float]]:
    """Return the inputs with the median, first and last decile of their elasticities, the largest first."""
    known = [
        (name, *each.values()) for name, each in (document["elasticities"] or {}).items() if each["median"] is not None
    ]
    return sorted(known, key=lambda each: -max(map(abs, each[2:])))


def _slopes(document: Document) -> list[Table]:
    rows = [[name, *(f"{slope:+.3f}" for slope in slopes)] for name, *slopes in ranked_slopes(document)]
    heads = ("input", "median", "10th percentile", "90th percentile")
    return [Table("elasticities", heads, rows, most=_SLOPES)] if rows else []


def _proof(document: Document, constants: str) -> list[tuple[str, str]]:
    """Return statements on what is certified, and on the model behind the numbers."""
    optimum, goal = document["optimum"], document["objective"]
    proof = ("Not certified", "the best of the designs evaluated; hwopt optimize certifies the best integer design")
    if optimum is not None and optimum["lower_bound"] is not None:
        bound = shown("", optimum["lower_bound"], goal["unit"], work_of(document))
        proof = (
            "Certified lower bound",
            f"no design of the search space{_of_case(document)} has {words(goal['name'], goal['unit'])} below {bound}",
        )
    stated = [("Model constants", constants)] if constants else []
    return [proof, ("Scope", MODEL_ONLY), *stated]


def file_parts(out: str | None, figures: Sequence[str], choices: bool = False) -> list[Part]:
    """Return where the store and the figures of a study are.

    **Arguments:** `out`: folder of the store, if any. `choices`: whether that folder has a store for each choice.
    """
    if not out:
        return []
    store = (
        f'Results in the folder {out}; open it with xarray.open_zarr("{out}"). The same command resumes or rereads it.'
    )
    if choices:
        store = f"Stores: one folder for each choice in {out}. The same command resumes or rereads them."
    folder, names = (figures[0] if figures else "").rpartition("/")[0], [path.rpartition("/")[2] for path in figures]
    drawn = [f"Figures in the folder {folder}: {', '.join(names)}"] if figures else []
    return [Lines([escape.line(store)], ""), Sentences(drawn, "", "")]
