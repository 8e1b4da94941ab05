"""`hwopt schema`: the JSON Schema of what a command prints with `--json`."""

import argparse
import json

from hwopt.cli.flags import Flag
from hwopt.cli.kinds import TEXT
from hwopt.cli.output import say
from hwopt.errors import UserError, suggest

FLAGS = (Flag("of", "a command; without it, names of all schemas", TEXT),)


def schema(options: argparse.Namespace) -> int:
    """Print a schema as it is committed; nothing is computed for it."""
    from hwopt.report.schema.files import FOLDER

    known = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
    if options.of is None:
        names = {name: json.loads(path.read_text(encoding="utf-8"))["$id"] for name, path in known.items()}
        say(json.dumps(names, indent=2) if options.json else "\n".join(f"{a:<12} {b}" for a, b in names.items()))
    elif options.of not in known:
        raise UserError(f"no schema of '{options.of}': {suggest(options.of, known)}")
    else:
        say(known[options.of].read_text(encoding="utf-8").rstrip())
    return 0
