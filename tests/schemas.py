"""Answers checked against their schemas, which tests close: a key without a name there is refused.

`python -m tests.schemas` writes the keys of all schemas to `json_keys.txt`, the contract that a test compares.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jsonschema

KEYS = Path(__file__).parent / "reference" / "json_keys.txt"
"""One line per command and per shared definition: its keys, those of an inner object in braces, `@` before a definition."""


@cache
def _validator(command):
    from hwopt.output.schema.commands import schema_of
    from hwopt.output.schema.elements import closed

    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(closed(schema))


def check(command, answer):
    """Fails with the place of the first fault."""
    for error in _validator(command).iter_errors(answer):
        faults = list(_leaves(error))
        words = "; ".join(f"{'/'.join(map(str, each.absolute_path))}: {each.message[:300]}" for each in faults[:4])
        raise AssertionError(f"{command} --json is not as its schema says: {words}")


def _leaves(error):
    """What is wrong in the likeliest of several kinds: the one with the fewest faults."""
    if not error.context:
        yield error
        return
    kinds = {}
    for each in error.context:
        kinds.setdefault(each.schema_path[0], []).append(each)
    for each in min(kinds.values(), key=len):
        yield from _leaves(each)


def _keys(schema):
    """Keys that a schema names, each with the keys of its values."""
    found = {}
    if "$ref" in schema:
        found["@" + schema["$ref"].rpartition("/")[2]] = {}
    for name, inner in schema.get("properties", {}).items():
        found[name] = _keys(inner)
    if isinstance(each := schema.get("additionalProperties"), dict) and _keys(each):
        found["*"] = _keys(each)
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        found = _merged(found, _keys(inner))
    return found


def _merged(some, others):
    return some | {name: _merged(some.get(name, {}), inner) for name, inner in others.items()}


def _text(keys):
    return " ".join(f"{name}{{{_text(inner)}}}" if inner else name for name, inner in sorted(keys.items()))


def keys_text():
    """The text of `json_keys.txt` as the schemas are now."""
    from hwopt.output.schema.commands import COMMANDS, schema_of

    schemas = {command: schema_of(command) for command in COMMANDS}
    lines = {command: _text(_keys(schema)) for command, schema in schemas.items()}
    shared = {name: each for schema in schemas.values() for name, each in schema["$defs"].items()}
    lines |= {f"@{name}": _text(_keys(each)) for name, each in shared.items()}
    return "".join(f"{name}: {text}\n" for name, text in sorted(lines.items()))


if __name__ == "__main__":
    KEYS.write_text(keys_text(), encoding="utf-8")
