"""Names of schemas and their version, which answers carry: apart from the schemas, which cost a second to put together."""

VERSION = 1
"""Of all schemas. It rises where a key goes, or changes its name, type, unit or meaning; new keys leave it as it is."""


def identity(command: str) -> str:
    """The name and version of a command's schema."""
    return f"urn:hwopt:schema:{command}:{VERSION}"
