"""Answers held to their schemas, which for tests are closed: no key that they do not name."""

from __future__ import annotations

from functools import cache

import jsonschema


@cache
def _validator(command):
    from hwopt.report.schema.commands import schema_of
    from hwopt.report.schema.kinds import closed

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
