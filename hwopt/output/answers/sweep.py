"""Result of a sweep as one screen: the best variants, the constraints that stop the others, the Pareto front, the files."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwopt.design.variables import KNOWN
from hwopt.model.report import declared_margins
from hwopt.output.answers.sweep_document import Document, sweep_document
from hwopt.output.text.layout import bar, budget_line, design_line, heading, kind_line, listed, store_lines, wrapped
from hwopt.output.text.token_prices import TOKENS, Work, counted
from hwopt.units import label, pretty

_METHODS = {
    "sobol": "scrambled Sobol sequence",
    "lhs": "Latin hypercube",
    "grid": "all levels of a grid",
    "table": "a table",
}

_STOPS = {name: each.stop for name, each in declared_margins().items()} | {
    "clock": "clock that cooling or power cap does not sustain",
    "reticle": "die beyond the reticle",
    "shoreline": "interfaces beyond the die's edge",
    "package": "package beyond the largest interposer",
    "bounds": "outside its box, or no integer",
}  # constraint of every design -> description of its failure; budget names explain themselves

_FRACTIONS = frozenset({"mfu", "hfu", "goodput"})
_LINES, _PARTS, _STOPPED, _CASES = 8, 5, 4, 8  # most front points, bottlenecks, constraints, cases shown
_OVER = 1e-6  # relative excess over a budget that still counts as satisfying it

__all__ = ["sweep_document", "sweep_screen"]


def sweep_screen(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> str:
    """Return the answer of `sweep` as text for a terminal; arguments as in `sweep_document`."""
    document = sweep_document(dataset, out, figures)
    lines = [*_evaluated(document), *_cases(document), *_best_lines(document)]
    if not document["feasible"]:
        fields = json.loads(str(dataset.attrs["configuration"]))["fields"]
        to_try = hints(document, str(dataset.attrs["title"]), fields)
        lines += [*heading("What to try"), *(wrapped(hint, "  - ", "    ") for hint in to_try)]
    lines += [*_binding(document), *_slopes(document), *_front_lines(document), *_files(document)]
    return "\n".join(lines)


def _evaluated(document: Document) -> list[str]:
    cases, count = len(document["cases"]), document["evaluated"]
    of_cases = f" in {cases} cases of {document['samples']:,}" if cases > 1 else ""
    rows = {
        "possible": (document["possible"], "all limits but budgets hold"),
        "feasible": (document["feasible_count"], "budgets hold too"),
        **({"not finite": (document["nonfinite"], "counted as impossible")} if document["nonfinite"] else {}),
    }
    asked = document["question"] + (f" (the first of {cases} cases)" if cases > 1 else "")
    what = f"{count:,} variant{'s' * (count != 1)}{of_cases}: {method_words(document)}, {document['dtype']}"
    lines = [
        wrapped(asked, ""),
        *heading(what),
        *(f"  {name:<12} {n:>13,}  {percent(n / count):>9}  {meaning}" for name, (n, meaning) in rows.items()),
    ]
    return [*lines, *(wrapped(words, "  ") for words in sampling_words(document))]


def sampling_words(document: Document) -> list[str]:
    """Return sentences on how variants were sampled.

    After importance sampling they include the feasible shares of the whole design space; for listed variants there are none.
    """
    if document["sampling"] == "plain":
        note = document["sampling_note"]
        drawn = document["method"] in ("sobol", "lhs") and note
        return [f"drawn from the whole space alone: {note}"] if drawn else []
    shares = [
        f"{kind} {percent(document[f'{kind}_share'])} (standard error {percent(document[f'{kind}_share_error'])})"
        for kind in ("possible", "feasible")
    ]
    return [
        "a quarter drawn from the whole space, the others from boxes around good designs, with weights",
        f"of the whole space, by weight: {', '.join(shares)}; shares below are by weight too",
    ]


def known_words(document: Document) -> str:
    """Name the best design of the search that preceded the sweep, with its objective.

    It is called "certified optimum" where its optimality gap is closed, else "best design of a search". The document must have
    such a design (`optimum`).
    """
    optimum = document["optimum"]
    kind = "certified optimum" if optimum["certified"] else "best design of a search"
    return f"{kind} {pretty(optimum['objective'], document['objective']['unit'], 6)}"


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


def _cases(document: Document) -> list[str]:
    ranked = ranked_cases(document)
    if not ranked:
        return []
    width = max(len(case) for case, *_ in ranked[:_CASES])
    lines = heading(f"By case: least {document['objective']['name']} of the feasible variants") + [
        f"  {case:<{width}}  {best:>14}   {possible:>8} possible, {feasible} feasible"
        for case, best, possible, feasible in ranked[:_CASES]
    ]
    return [*lines, f"  and {len(ranked) - _CASES} more cases"] if len(ranked) > _CASES else lines


def _best_lines(document: Document) -> list[str]:
    if not document["best"]:
        return ["", "No variant has finite numbers: nothing to show."]
    best, objective = document["best"][0], document["objective"]
    of_case = f", {best['case']}" if len(document["cases"]) > 1 else ""
    if document["feasible"]:
        lines = heading(f"Best: variant {best['variant']:,}{of_case}")
    else:
        lines = ["", wrapped("No variant satisfies every limit." + broken(best), "")]
        lines += heading(f"Nearest to the limits: variant {best['variant']:,}{of_case}")
    said = lambda value: pretty(*counted(value, objective["unit"], work_of(document)), 6)
    lines.append(f"  {objective['name']} = {said(best['objective'])}")
    if (optimum := document["optimum"]) is not None:
        lower, above = optimum["lower_bound"], above_words(document)
        lines.append(wrapped(above or known_words(document), "  "))
        if lower is not None:
            lines.append(f"  proved: no design of the space is below {said(lower)}")
    for name, each in best["design"].items():
        words = KNOWN[name].words if name in KNOWN else ()
        if words and each["value"] is not None:
            lines.append(kind_line(name, words[round(each["value"]) - 1], words))
        elif each["value"] is not None:
            lines.append(design_line(name, each["value"], each["unit"], each["lower"], each["upper"]))
    lines.append(listed([f"{label(name, unit)} {text}" for name, unit, text in other_metrics(document)]))
    return lines + [
        budget_line(each["name"], each["used"], each["limit"], each["unit"], "<- over" if _is_over(each) else "")
        for each in best["budgets"]
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
    """Return the limits that the nearest infeasible variant violates, in words."""
    over = [
        f"{each['name']} by {100 * (each['used'] / each['limit'] - 1):.3g} %"
        for each in best["budgets"]
        if _is_over(each)
    ]
    words = [*([] if best["possible"] else [stop_words(best["binding"])]), *over]
    return f" The nearest breaks {', '.join(words)}." if words else ""


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
            tries.append(f"looser budgets: this variant is feasible with {' '.join(flags)}")
    drawn = document["method"] in ("sobol", "lhs")
    if drawn:
        tries.append(f"more variants: --samples {10 * document['samples']:,}")
        if document["method"] == "sobol" and document["sampling"] == "plain" and len(document["cases"]) == 1:
            tries.append("--sampling importance: looks for good designs first, and draws most variants near them")
    tries.append(
        f"hwopt optimize {title}, same budgets: proves the best design, or says which budgets conflict"
        + ("; --within 1.1 sweeps the 10 % around it" if drawn else "")
    )
    return tries


def _rounded_up(value: float) -> str:
    """Return a value rounded up to three digits, as the text of a limit's flag."""
    size = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / size * (1 + _OVER)) * size:.3g}"


def _binding(document: Document) -> list[str]:
    lines = []
    if document["bottlenecks"]:
        lines += heading("What bounds a step: share of the possible variants by the largest part")
        largest = list(document["bottlenecks"].items())
        lines += [f"  {name:<20} {bar(share)} {100 * share:5.1f} %" for name, share in largest[:_PARTS]]
    stopped = [listed(parts[:_STOPPED], f"  {outcome}: ", "    ") for outcome, parts in stops(document)]
    return [*lines, *heading(STOPS), *stopped] if stopped else lines


STOPS = "What stops variants: the constraint furthest beyond its limit"


def stops(document: Document) -> list[tuple[str, list[str]]]:
    """Return the outcomes of infeasible variants, each with the constraints that stop them, the most frequent first."""
    return [
        (outcome.replace("_", " "), [f"{stop_words(name)} {100 * share:.3g} %" for name, share in shares.items()])
        for outcome, shares in document["stops"].items()
        if shares and outcome != "feasible"
    ]


def stop_words(constraint: str) -> str:
    """Return the description of the failure of a constraint; its name where there is none."""
    return _STOPS.get(constraint, constraint)


def ranked_slopes(document: Document) -> list[tuple[str, float, float, float]]:
    """Return the inputs with the median, first and last decile of their elasticities, the largest first."""
    known = [
        (name, *each.values()) for name, each in (document["elasticities"] or {}).items() if each["median"] is not None
    ]
    return sorted(known, key=lambda each: -max(map(abs, each[2:])))


def _slopes(document: Document) -> list[str]:
    name = document["objective"]["name"]
    lines = [
        f"  {of:<32} {middle:+.3f}   [{low:+.3f} .. {high:+.3f}]"
        for of, middle, low, high in ranked_slopes(document)[:_PARTS]
    ]
    title = f"% of {name} by % of each input: median [first .. last decile] of possible variants"
    return [*heading(title), *lines] if lines else []


def _front_lines(document: Document) -> list[str]:
    front = document["front"]
    if not front:
        return []
    feasible = [place for place, each in enumerate(front) if each["feasible"]]
    names, count = " and ".join(front[0]["metrics"]), f"{len(front):,} variant{'s' * (len(front) != 1)}"
    lines = heading(f"Pareto front of {names}, budgets on these left out: {count}, {len(feasible):,} of them feasible")
    several = len(document["cases"]) > 1
    for place in chosen(len(front), feasible, _LINES):
        each = front[place]
        metrics = "  ".join(
            f"{shown(name, x['value'], x['unit'], work_of(document)):>11}" for name, x in each["metrics"].items()
        )
        design = ", ".join(
            f"{name} {pretty(each['design'][name]['value'])}"
            for name in ("chips", "tp", "pp")
            if each["design"].get(name, {}).get("value") is not None
        )
        mark = "feasible   " if each["feasible"] else "over budget"
        of_case = f"  {each['case']}" if several else ""
        line = f"  {metrics}  {mark}  {each['bottleneck']:<12}  {design}{of_case}"
        lines.append(line if len(line) <= 120 else line[:117] + "...")
    return lines


def chosen(count: int, feasible: Sequence[int], most: int) -> list[int]:
    """Return the indices of at most `most` points of a Pareto front, spread evenly, with both ends.

    At least half of `most` are feasible points; where the front has fewer, all feasible points are kept.

    **Arguments:** `count`: number of points on the front; `feasible`: indices of the feasible ones.
    """
    if count <= most:
        return list(range(count))
    few = min(len(feasible), most // 2)
    some = {int(feasible[i]) for i in np.linspace(0, len(feasible) - 1, few).round().astype(int)} if few else set()
    others = [place for place in range(count) if place not in some]
    more = np.linspace(0, len(others) - 1, most - len(some)).round().astype(int)
    return sorted(some | {others[i] for i in more})


def work_of(document: Document) -> Work:
    """Return the unit in which the work of the variants is counted, and its number of tokens."""
    return document.get("unit_of_work", TOKENS[0]), document.get("tokens_per_unit", 1.0)


def shown(name: str, value: float | None, unit: str, work: Work = TOKENS) -> str:
    """Return a metric in customary units. **Arguments:** `work`: unit in which work is counted."""
    if value is not None and unit == "USD/token":
        return f"{1e6 * counted(value, unit, work)[0]:.4g} $ a million {work[0]}s"
    if value is not None and unit == "m2" and value < 1e-2:
        return f"{1e6 * value:.4g} mm2"
    own, said = counted(value if value is not None else math.nan, unit, work)
    return pretty(own, "fraction" if name in _FRACTIONS else said)


def _files(document: Document) -> list[str]:
    if not document["out"]:
        return ["", "Nothing is kept: --out DIR writes every variant and figures of them."]
    lines = store_lines(document["out"])
    if document["figures"]:
        folder, _, _ = document["figures"][0].rpartition("/")
        names = ", ".join(path.rpartition("/")[2] for path in document["figures"])
        lines.append(wrapped(f"Figures: {folder}: {names}", ""))
    return lines
