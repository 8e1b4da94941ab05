"""What a sweep found, as one screen: the best variants, what stops the others, the front, where files are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwopt.report.layout import bar, budget_line, design_line, heading, listed, wrapped
from hwopt.report.sweep_document import Document, sweep_document
from hwopt.study.sweep.attributes import words
from hwopt.units import pretty

_METHODS = {
    "sobol": "scrambled Sobol sequence",
    "lhs": "Latin hypercube",
    "grid": "all levels of a grid",
    "table": "a table",
}

_STOPS = {
    "memory": "memory of a chip",
    "stages": "pipeline chunks beyond layers",
    "tensor_parallel": "tensor parallelism beyond heads",
    "experts": "expert parallelism beyond experts",
    "replicas": "chips too few for a copy of the experts",
    "batch": "global batch too small to fill every replica",
    "context": "sequence split beyond its tokens",
    "cooling": "chip hotter than its cooling allows at the lowest clock",
    "rack_power": "rack power",
    "rack_weight": "rack weight",
    "failures": "failures: the run does not get ahead",
    "clock": "clock that cooling or power cap does not sustain",
    "reticle": "die beyond the reticle",
    "shoreline": "interfaces beyond the die's edge",
    "bounds": "outside its box, or not whole",
}  # constraint of every design -> what fails; budgets speak for themselves

_FRACTIONS = frozenset({"mfu", "hfu", "goodput"})
_LINES, _PARTS, _STOPPED, _CASES = 8, 5, 4, 8  # of front, bottlenecks, constraints, cases on a screen
_OVER = 1e-6  # a share of a budget so little above one is one

__all__ = ["sweep_document", "sweep_screen"]


def sweep_screen(dataset: Any, out: str | None = None, figures: Sequence[str] = ()) -> str:
    """One screen for `sweep`; arguments as in `sweep_document`."""
    found = sweep_document(dataset, out, figures)
    lines = [*_evaluated(found), *_cases(found), *_best_lines(found)]
    if not found["feasible"]:
        fields = json.loads(str(dataset.attrs["configuration"]))["fields"]
        lines += _what_to_try(found, str(dataset.attrs["title"]), fields)
    lines += [*_binding(found), *_slopes(found), *_front_lines(found), *_files(found)]
    return "\n".join(lines)


def _evaluated(found: Document) -> list[str]:
    cases, count = len(found["cases"]), found["evaluated"]
    of_cases = f" in {cases} cases of {found['samples']:,}" if cases > 1 else ""
    rows = [
        ("possible", found["possible"], "all but budgets holds"),
        ("feasible", found["feasible_count"], "budgets hold too"),
    ]
    if found["nonfinite"]:
        rows.append(("not finite", found["nonfinite"], "counted as impossible"))
    asked = found["question"] + (f" (the first of {cases} cases)" if cases > 1 else "")
    what = f"{count:,} variant{'s' * (count != 1)}{of_cases}: {method_words(found)}, {found['dtype']}"
    return [
        wrapped(asked, ""),
        *heading(what),
        *(f"  {name:<12} {value:>13,}  {percent(value / count):>9}  {meaning}" for name, value, meaning in rows),
    ]


def method_words(found: Document) -> str:
    """How variants were chosen."""
    drawn = f", seed {found['seed']}" if found["method"] in ("sobol", "lhs") else ""
    return f"{_METHODS[found['method']]}{drawn}"


def percent(share: float) -> str:
    """A share that is never shown as none when there is some."""
    return f"{100 * share:.2f} %" if share == 0 or share >= 1e-4 else f"{100 * share:.2g} %"


def _cases(found: Document) -> list[str]:
    if not found["by_case"]:
        return []
    objective = found["objective"]
    ranked = sorted(found["by_case"], key=lambda each: math.inf if each["objective"] is None else each["objective"])
    width = max(len(each["case"]) for each in ranked[:_CASES])
    lines = heading(f"By case: least {objective['name']} of the feasible variants")
    for each in ranked[:_CASES]:
        best = "none feasible" if each["objective"] is None else shown("", each["objective"], objective["unit"])
        lines.append(
            f"  {each['case']:<{width}}  {best:>14}   {percent(each['possible'] / each['evaluated']):>8} possible, "
            f"{each['feasible_count']:,} feasible"
        )
    return [*lines, f"  and {len(ranked) - _CASES} more cases"] if len(ranked) > _CASES else lines


def _best_lines(found: Document) -> list[str]:
    if not found["best"]:
        return ["", "No variant has finite numbers: nothing to show."]
    best, objective = found["best"][0], found["objective"]
    of_case = f", {best['case']}" if len(found["cases"]) > 1 else ""
    if found["feasible"]:
        lines = heading(f"Best: variant {best['variant']:,}{of_case}")
    else:
        lines = ["", wrapped("No variant holds every limit." + broken(best), "")]
        lines += heading(f"Nearest to the limits: variant {best['variant']:,}{of_case}")
    lines.append(f"  {objective['name']} = {pretty(best['objective'], objective['unit'], 6)}")
    if (held := found["optimum"]) is not None:
        above = "" if held["best_above"] is None else f"; this is {100 * held['best_above']:.2g} % above"
        bound = (
            ""
            if held["lower_bound"] is None
            else f", proved: not below {pretty(held['lower_bound'], objective['unit'], 6)}"
        )
        lines.append(f"  certified optimum {pretty(held['objective'], objective['unit'], 6)}{bound}{above}")
    for name, each in best["design"].items():
        if each["value"] is not None:
            lines.append(design_line(name, each["value"], each["unit"], each["lower"], each["upper"]))
    others = [
        f"{words(name)} {shown(name, each['value'], each['unit'])}"
        for name, each in best["metrics"].items()
        if name != objective["name"] and each["value"] is not None
    ]
    lines.append(listed(others))
    for each in best["budgets"]:
        over = "<- over" if each["used"] > each["limit"] * (1 + _OVER) else ""
        lines.append(budget_line(each["name"], each["used"], each["limit"], each["unit"], over))
    return lines


def broken(best: Document) -> str:
    """What the nearest variant breaks, in words."""
    over = [
        f"{each['name']} by {_excess(each)}" for each in best["budgets"] if each["used"] > each["limit"] * (1 + _OVER)
    ]
    if not best["possible"]:
        over.insert(0, _STOPS.get(str(best["binding"]), str(best["binding"])))
    return " The nearest breaks " + ", ".join(over) + "." if over else ""


def _excess(each: Document) -> str:
    return f"{100 * (each['used'] / each['limit'] - 1):.3g} %"


def hints(found: Document, title: str, fields: Mapping[str, Any]) -> list[str]:
    """What to try where no variant holds every limit. **Arguments:** name of the question and its fields."""
    near = found["best"][0] if found["best"] and found["best"][0]["possible"] else None
    made = []
    if near:
        over = [each for each in near["budgets"] if each["used"] > each["limit"] * (1 + _OVER)]
        flags = [
            f"--{each['name'].replace('_', '-')} {_rounded_up(each['used'])}" for each in over if each["name"] in fields
        ]
        if flags and len(flags) == len(over):
            made.append(f"looser budgets: this variant is feasible with {' '.join(flags)}")
    drawn = found["method"] in ("sobol", "lhs")
    if drawn:
        made.append(f"more variants: --samples {10 * found['samples']:,}".replace(",", "_"))
    made.append(
        f"hwopt optimize {title}, same budgets: proves the best design, or says which budgets clash"
        + ("; --within 1.1 sweeps the 10 % around it" if drawn else "")
    )
    return made


def _what_to_try(found: Document, title: str, fields: Mapping[str, Any]) -> list[str]:
    return [*heading("What to try"), *(wrapped(hint, "  - ", "    ") for hint in hints(found, title, fields))]


def _rounded_up(value: float) -> str:
    """A limit of three digits that holds a value, in the words of a flag."""
    size = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / size * (1 + _OVER)) * size:.3g}"


def _binding(found: Document) -> list[str]:
    lines = []
    if found["bottlenecks"]:
        lines += heading("What bounds a step: share of the possible variants by the largest part")
        largest = list(found["bottlenecks"].items())
        lines += [f"  {name:<20} {bar(share)} {100 * share:5.1f} %" for name, share in largest[:_PARTS]]
    stops = [text for outcome in ("impossible", "over_budget") if (text := _stops(found, outcome))]
    return lines + heading("What stops variants: the constraint furthest beyond its limit") + stops if stops else lines


def _stops(found: Document, outcome: str) -> str:
    """The most frequent limits of the variants of an outcome, in words."""
    shares = list(found["stops"][outcome].items())
    parts = [f"{stop_words(name)} {100 * share:.3g} %" for name, share in shares[:_STOPPED]]
    return listed(parts, f"  {outcome.replace('_', ' ')}: ", "    ") if parts else ""


def stop_words(constraint: str) -> str:
    """What fails where a constraint does not hold."""
    return _STOPS.get(constraint, constraint)


def _slopes(found: Document) -> list[str]:
    slopes = {name: each for name, each in (found["elasticities"] or {}).items() if each["median"] is not None}
    if not slopes:
        return []
    ranked = sorted(slopes.items(), key=lambda each: -max(abs(each[1]["low"]), abs(each[1]["high"])))
    lines = heading(
        f"% of {found['objective']['name']} by % of each input: median [first .. last decile] of possible variants"
    )
    return lines + [
        f"  {name:<32} {x['median']:+.3f}   [{x['low']:+.3f} .. {x['high']:+.3f}]" for name, x in ranked[:_PARTS]
    ]


def _front_lines(found: Document) -> list[str]:
    front = found["front"]
    if not front:
        return []
    held = [place for place, each in enumerate(front) if each["feasible"]]
    names = list(front[0]["metrics"])
    lines = heading(
        f"Pareto front of {' and '.join(names)}, budgets on these left out: {len(front):,} variant{'s' * (len(front) != 1)}, "
        f"{len(held):,} of them feasible"
    )
    several = len(found["cases"]) > 1
    for place in chosen(len(front), held, _LINES):
        each = front[place]
        metrics = "  ".join(f"{shown(name, x['value'], x['unit']):>11}" for name, x in each["metrics"].items())
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
    """At most so many places on a front of `count` points, evenly; half of them feasible ones where there are enough."""
    if count <= most:
        return list(range(count))
    few = min(len(feasible), most // 2)
    some = {int(feasible[i]) for i in np.linspace(0, len(feasible) - 1, few).round().astype(int)} if few else set()
    others = [place for place in range(count) if place not in some]
    more = np.linspace(0, len(others) - 1, most - len(some)).round().astype(int)
    return sorted(some | {others[i] for i in more})


def shown(name: str, value: float | None, unit: str) -> str:
    """A metric as people read it."""
    if value is not None and unit == "USD/token":
        return f"{1e6 * value:.4g} $ a million tokens"
    if value is not None and unit == "m2" and value < 1e-2:
        return f"{1e6 * value:.4g} mm2"
    return pretty(value if value is not None else math.nan, "fraction" if name in _FRACTIONS else unit)


def _files(found: Document) -> list[str]:
    if not found["out"]:
        return ["", "Nothing is kept: --out DIR writes every variant and figures of them."]
    lines = [
        "",
        f'Store: {found["out"]}, which xarray.open_zarr("{found["out"]}") opens; the same command goes on or reads it.',
    ]
    if found["figures"]:
        folder, _, _ = found["figures"][0].rpartition("/")
        names = ", ".join(path.rpartition("/")[2] for path in found["figures"])
        lines.append(wrapped(f"Figures: {folder}: {names}", ""))
    return lines
