"""The public names: `hwopt` and `hwopt.catalog`, and what they return."""

from collections.abc import Iterator
from types import ModuleType

import hwopt
from hwopt import catalog

_ROOTS = {"hwopt": hwopt, "hwopt.catalog": catalog}


def public(room: str) -> Iterator[tuple[str, str]]:
    """Public names of a package, and the module that defines each."""
    root: ModuleType = _ROOTS[room]
    for name in root.__all__:
        value = getattr(root, name)
        if not isinstance(value, ModuleType | str | tuple | dict | list) and hasattr(value, "__module__"):
            yield name, f"{value.__module__}.{getattr(value, '__qualname__', name)}"


def reference(room: str) -> str:
    """An entry for each public name."""
    return "\n\n".join(
        f"## `{room}.{name}` {{ #{room}.{name} }}\n\n::: {path}\n    options: {{show_root_heading: true, heading_level: 3}}"
        for name, path in sorted(public(room), key=lambda each: each[0].lower())
    )
