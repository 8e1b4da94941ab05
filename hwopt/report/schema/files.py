"""Schemas as they are committed: a release's contract, and a diff that shows when it changes."""

import json
from pathlib import Path

import hwopt

FOLDER = Path(hwopt.__file__).parent / "data" / "schemas"


def text_of(command: str) -> str:
    """The file of a command's schema."""
    from hwopt.report.schema.commands import schema_of

    return json.dumps(schema_of(command), indent=1) + "\n"


def write() -> None:
    """Write all schemas anew."""
    from hwopt.report.schema.commands import COMMANDS

    FOLDER.mkdir(exist_ok=True)
    for command in COMMANDS:
        (FOLDER / f"{command}.json").write_text(text_of(command), encoding="utf-8")
