"""JSON Schema of each command's `--json` output, with its version."""

from __future__ import annotations

from typing import Any

from hwopt.output.answers import binding_budgets, comparison, marginal_value, sensitivity
from hwopt.output.schema import answers, machines, studies
from hwopt.output.schema.elements import TEXT, Schema, either, listed, references, said
from hwopt.output.schema.identity import VERSION, identity

COMMANDS: dict[str, Schema] = {
    "optimize": either(*answers.OPTIMIZE["anyOf"], *studies.LAUNCH["anyOf"]),
    "explore": answers.OPTIMIZE,
    "compare": comparison.COMPARE.schema,
    "walls": binding_budgets.WALLS.schema,
    "sources": answers.SOURCES,
    "sensitivity": either(sensitivity.SENSITIVITY.schema, sensitivity.NO_OPTIMUM.schema),
    "invest": marginal_value.INVEST.schema,
    "sweep": studies.SWEEP,
    "estimate": studies.ESTIMATE,
    "plan": studies.PLAN,
    "scale": studies.SCALE,
    "fabrics": studies.FABRICS,
    "fleet": studies.FLEET,
    "check": studies.CHECK,
    "deploy": studies.DEPLOY,
    "validate": studies.VALIDATE,
    "calibrate": studies.CALIBRATE,
    "catalog": studies.CATALOG,
    "docs": studies.DOCS,
}

_DEFINITIONS = machines.DEFINITIONS | answers.DEFINITIONS

_ENDS = (
    "One object on standard output at exit codes 0 and 1 (infeasible). No output at 2 (invalid input) and 3 (internal error): "
    "the message is on standard error. Numbers are in SI units; null stands for infinite or unknown values. Ignore keys "
    "that are not listed here: keys may be added without a new version."
)


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a command's `--json` output."""
    answer, needed = COMMANDS[command], set[str]()
    missing = references(answer)
    while missing:
        needed |= missing
        missing = set[str]().union(*(references(_DEFINITIONS[name]) for name in missing)) - needed
    mark = {
        "schema": said({"const": identity(command)}, "the schema of this answer"),
        "schema_version": said({"const": VERSION}, "its version"),
        "command": said(TEXT, "the command line"),
        "date": said(TEXT, "month of the question; not in answers that depend on no software, or that compare months"),
        "verdict": said(TEXT, "the answer in a sentence; in every answer of a study"),
        "evidence": machines.EVIDENCE,
        "approximations": said(listed(TEXT), "parts of the workload that the model omits; not in every answer"),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identity(command),
        "title": f"hwopt {command} --json",
        "description": _ENDS,
        **_marked(answer, mark),
        "$defs": {name: _DEFINITIONS[name] for name in sorted(needed)},
    }


def _marked(answer: Schema, mark: dict[str, Schema]) -> Schema:
    """Return an answer's schema with the keys that name the schema and its version, also for alternatives and references."""
    if "anyOf" in answer:
        return answer | {"anyOf": [_marked(each, mark) for each in answer["anyOf"]]}
    if "$ref" in answer:
        return _marked(_DEFINITIONS[answer["$ref"].rpartition("/")[2]], mark)
    required = ["schema", "schema_version", "command", *answer["required"]]
    return answer | {"properties": mark | answer["properties"], "required": required}
