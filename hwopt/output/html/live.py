"""Live part of a page: the model as JavaScript, with sliders around designs. It needs no network and no Python."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from hwopt.design.live_model import LiveModel, live_program
from hwopt.model.report import declared_margins
from hwopt.output.html.components import words
from hwopt.output.html.markup import Child, div, element, joined, raw
from hwopt.output.html.page import resource
from hwopt.output.text.parts import STEP
from hwopt.solver.solution import Solution
from hwopt.trace.javascript import javascript
from hwopt.trace.scalar_program import NotScalarArithmetic
from hwopt.trace.simplify import simplified

LiveMachine: TypeAlias = tuple[str, Solution, str, Mapping[str, str]]
"""One machine of a live page: its name, its answer, and the command and choices that `hwopt estimate` evaluates settings by."""


NOTE = (
    "The model itself at the setting of the sliders: plan and hardware as they can be built, assumptions and limits as stated. "
    "It does not search; the answer of the command is shown for comparison."
)
"""Note on the live part of a page."""

_MOST = 8
"""Maximum number of machines on a page, for its size."""


def live_model(solution: Solution) -> LiveModel | None:
    """Return the model of an answer around its design; None where its integers are relaxed."""
    design = {name: each.value for name, each in solution.design.items()}
    whole = (design[each.name] for each in solution.problem.variables if each.integer)
    return LiveModel(solution.problem, design | solution.lookups) if all(x % 1.0 == 0.0 for x in whole) else None


def live(machines: Sequence[LiveMachine]) -> Child:
    """Return the live part of a page; nothing without a design of whole units. Machines of one trace share a program."""
    stated, programs, groups = list[Any](), list[str](), dict[Any, list[tuple[LiveMachine, LiveModel]]]()
    for each in machines[:_MOST]:
        if model := live_model(each[1]):
            groups.setdefault(model.key, []).append((each, model))
    for group in groups.values():
        program, names, places = live_program([model for _, model in group])
        try:
            programs.append(javascript(simplified(program)))
        except NotScalarArithmetic:  # an objective of a user's own
            continue
        stated += [_machine(*pair, len(programs) - 1, names, places) for pair in group]
    if not stated:
        return None
    data = json.dumps(stated, default=_of_relation, separators=(",", ":")).replace("<", "\\u003c")
    script = resource("live.js").replace("/* machines */", data).replace("/* models */", ",\n".join(programs))
    style = element("style", raw(resource("live.css")))
    return joined(style, div(id="live", class_="live"), element("script", raw(script)))


def _of_relation(value: Any) -> Any:
    """Return a relation between integers for JSON; None for a limit that is a function, which the model itself measures."""
    return None if callable(value) else {each.name: getattr(value, each.name) for each in fields(value)}


def _machine(machine: LiveMachine, model: LiveModel, program: int, inputs: Any, places: Any) -> dict[str, Any]:
    name, solution, command, chosen = machine
    moved = {place: c["name"] for c in model.controls for place in c["places"]}
    meanings = {name: each.meaning for name, each in declared_margins().items()}
    labels = [
        meanings.get(name.rpartition(".")[2], "") if group == "constraint" else STEP.get(name.removesuffix("_s"), words(name, unit))
        for group, name, unit in model.outputs
    ]  # fmt: skip
    return {
        "name": name, "command": command, "chosen": dict(chosen), "outcome": solution.outcome.status,
        "program": program, "inputs": inputs, "point": model.point, "rules": model.system.relations,
        "numbers": [(float(model.numbers[leaf][i]), moved.get((leaf, i), "")) for leaf, i in places],
        "controls": [c | {"label": c["label"] or words(c["name"], c["unit"])} for c in model.controls],
        "outputs": [(*output, label) for output, label in zip(model.outputs, labels, strict=True)],
    }  # fmt: skip
