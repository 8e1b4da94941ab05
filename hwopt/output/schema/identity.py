"""Names and version of the JSON Schemas, separate from the schemas, because deriving those takes a second."""

VERSION = 3
"""Version of all schemas.

It rises when a key is removed, or changes its name, type, unit or meaning. New keys leave it unchanged.
Renamed keys are listed in `results/renames/json_keys.csv`.
"""


def identity(command: str) -> str:
    """Return the name and version of the schema of a command."""
    return f"urn:hwopt:schema:{command}:{VERSION}"
