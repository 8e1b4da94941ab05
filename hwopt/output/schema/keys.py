"""Keys of JSON objects, each declared once with its schema and the function that computes its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hwopt.declared import plain
from hwopt.output.schema.elements import TEXT, Schema, listed, record
from hwopt.output.schema.machines import FEASIBLE

Key = tuple[Schema, Callable[..., Any]]
"""Schema of a key, and the function that computes its value from a result."""


@dataclass(frozen=True)
class Keys:
    """Declaration of a JSON object whose values are computed from a result. Document and schema follow from it.

    Results whose fields are the keys are declared on the fields instead (`hwopt.declared`).

    **Arguments:**

    - `keys`: keys that are always present.
    - `optional`: keys that are absent where their value is None.
    """

    keys: Mapping[str, Key]
    optional: Mapping[str, Key] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """Return the JSON Schema of the object."""
        schemas = [{name: schema for name, (schema, _) in each.items()} for each in (self.keys, self.optional)]
        return record(*schemas)

    def document(self, *found: Any) -> dict[str, Any]:
        """Return the object for a result. **Arguments:** `found`: the arguments of the functions."""
        values = {name: of(*found) for name, (_, of) in {**self.keys, **self.optional}.items()}
        return {name: plain(value) for name, value in values.items() if name in self.keys or value is not None}


def goal_of(problem: Any, **value: float) -> dict[str, Any]:
    """Return name and unit of a problem's objective. **Arguments:** `value`: the objective, where it belongs to the key."""
    return {"name": problem.objective.name, "unit": problem.objective.unit, **value}


OF_START: dict[str, Key] = {
    "question": (TEXT, lambda found, *_: found.start.problem.question),
    "approximations": (listed(TEXT), lambda found, *_: found.start.problem.provenance.approximations),
    "feasible": (FEASIBLE, lambda found, *_: found.start.feasible),
    "message": (TEXT, lambda found, *_: found.start.infeasibility or found.start.headline),
}
"""Keys of an analysis that begins with the answer of a design question, `start`."""
