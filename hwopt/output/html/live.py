"""Live part of a page: the model as JavaScript, with sliders around a design. It needs no network and no Python."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwopt.design.live_model import LiveModel, rule
from hwopt.model.report import declared_margins
from hwopt.output.html.components import part_shade, words
from hwopt.output.html.markup import Child, div, element, joined, raw
from hwopt.output.html.page import resource
from hwopt.output.text.customary_units import scale
from hwopt.output.text.layout import budget_words
from hwopt.output.text.parts import step_label
from hwopt.solver.solution import Outcome, Solution
from hwopt.trace.javascript import javascript
from hwopt.trace.scalar_program import NotScalarArithmetic

_PLAN = {
    "tp": "tensor parallel (tp)", "pp": "pipeline stages (pp)", "dp": "data parallel (dp)", "cp": "context parallel (cp)",
    "ep": "expert parallel (ep)", "zero": "ZeRO stage", "recompute": "recomputation", "groups": "tp groups of a domain",
}  # fmt: skip
"""Labels of degrees whose names are symbols."""

_SHARES = ("mfu", "hfu", "goodput")

_LIMITS = {
    "clock": "Asks for a clock {over} above what cooling or the power cap sustains",
    "reticle": "Has a die {over} larger than the reticle",
    "shoreline": "Has interfaces {over} longer than the edge of its dies",
    "package": "Fills its package {over} beyond its area",
}
"""Constraints of a question that no margin of a report declares, in words."""

_SHORT = {
    Outcome.proved: "certified optimum",
    Outcome.infeasible: "nearest design",
    Outcome.not_found: "nearest design",
}


@dataclass(frozen=True)
class LiveMachine:
    """One machine of a live page.

    **Arguments:**

    - `name`: what users choose it by, where there are several.
    - `solution`: its answer, at which the page starts.
    - `command`: the command whose answer it is, and `chosen` its choices: `hwopt estimate` evaluates settings by them.
    """

    name: str
    solution: Solution
    command: str
    chosen: Mapping[str, str]


def live_model(solution: Solution) -> LiveModel | None:
    """Return the model of an answer around its design; None where its integers are relaxed."""
    design = {name: each.value for name, each in solution.design.items()}
    whole = {each.name for each in solution.problem.variables if each.integer}
    if any(value != round(value) for name, value in design.items() if name in whole):
        return None
    return LiveModel(solution.problem, design)


def live(machines: Sequence[LiveMachine]) -> Child:
    """Return the live part of a page; nothing where no machine has a design of whole units, or a form in JavaScript."""
    sources: list[str] = []
    stated: list[dict[str, Any]] = []
    for each in machines:
        model = live_model(each.solution)
        try:
            source = "" if model is None else javascript(model.program, "")
        except NotScalarArithmetic:
            continue
        if model is None:
            continue
        if source not in sources:
            sources.append(source)
        stated.append(_machine(each, model, sources.index(source)))
    if not stated:
        return None
    data = json.dumps(stated, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    script = resource("live.js").replace("/* models */", ",\n".join(sources))
    return joined(
        element("style", raw(resource("live.css"))),
        div(id="live", class_="live"),
        element("script", raw(data), type="application/json", id="live-data"),
        element("script", raw(script)),
    )


def _machine(each: LiveMachine, model: LiveModel, place: int) -> dict[str, Any]:
    short = _SHORT.get(each.solution.outcome, "best design found")
    return {
        "name": each.name, "what": short, "short": short, "model": place, "command": each.command, "chosen": dict(each.chosen),
        "controls": [
            {"name": c.name, "label": _label(c.name, c.label, c.unit), "group": c.group, "unit": c.unit, "value": c.value,
             "lower": c.lower, "upper": c.upper, "integer": c.integer, "values": c.values, "words": c.words,
             "scale": (c.value, "times today's") if len(c.inputs) > 2 else scale(c.unit, c.value, bool(c.inputs))}
            for c in model.controls
        ],
        "inputs": model.inputs, "point": model.point, "rules": [x for x in map(rule, model.system.relations) if x],
        "outputs": [_output(*output) for output in model.outputs],
    }  # fmt: skip


def _label(name: str, label: str, unit: str) -> str:
    if label != name:
        return label
    return _PLAN.get(name) or (budget_words(name) if "budget" in name else words(name, unit))


def _output(group: str, name: str, unit: str) -> dict[str, Any]:
    output = {"group": group, "name": name, "unit": "%" if name in _SHARES else unit, "label": words(name, unit)}
    if group == "constraint":
        part, _, plain = name.rpartition(".")
        margin = declared_margins().get(plain)
        said = margin.meaning if margin else _LIMITS.get(plain, f"exceeds its {plain.replace('_', ' ')} by {{over}}")
        output["words"] = f"{part.capitalize()}: {said}" if part else f"{said[0].upper()}{said[1:]}"
    elif unit in ("s", "B", "") and group not in ("objective", "metric", "budget"):
        plain = name.removesuffix("_s").removesuffix("_bytes")
        output |= {"label": step_label(plain), "shade": part_shade(plain)}
    return output
