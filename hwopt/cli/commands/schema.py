"""`hwopt schema`: the JSON Schema of a command's `--json` output."""

import argparse
import json

from hwopt.cli.flags import Flag
from hwopt.cli.output import say
from hwopt.cli.value_types import TEXT
from hwopt.errors import UserError, suggest
from hwopt.output.schema.identity import identity

FLAGS = (Flag("of", "a command (default: list the names of all schemas)", TEXT),)

NO_ANSWER = ("schema", "completion")
"""Commands whose output is text for other programs, not an answer."""


def schema(options: argparse.Namespace) -> int:
    """Print a schema, derived from the declared answers; the list of names is printed without deriving any."""
    names = {name: identity(name) for name in sorted(options.cli.commands) if name not in NO_ANSWER}
    if options.of is None:
        say(json.dumps(names, indent=2) if options.json else "\n".join(f"{a:<12} {b}" for a, b in names.items()))
    elif options.of not in names:
        raise UserError(f"no schema of '{options.of}': {suggest(options.of, names)}")
    else:
        from hwopt.output.schema.commands import schema_of

        say(json.dumps(schema_of(options.of), indent=1))
    return 0
