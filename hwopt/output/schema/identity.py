"""Names and version of the JSON Schemas, apart from the schemas themselves, which take a second to derive."""

VERSION = 3
"""Version of all schemas. It rises where a key disappears, or changes its name, type, unit or meaning; new keys leave it as it is.
Renamed keys are listed in `results/renames/json_keys.csv`."""


def identity(command: str) -> str:
    """Return the name and version of the schema of a command."""
    return f"urn:hwopt:schema:{command}:{VERSION}"
