"""Symbols: results of scalar operations."""

from dataclasses import dataclass
from typing import Any

from hwopt.trace.interpreter import Origin


@dataclass(frozen=True, eq=False, repr=False)
class Symbol:
    """Result of one scalar operation, or an input (`name` "input")."""

    name: str
    arguments: tuple[Any, ...]  # symbols and NumPy scalars
    primitive: Any = None
    params: tuple[tuple[str, Any], ...] = ()
    origin: Origin | str = ""  # first equation that produced it, or the source location of that equation

    def __repr__(self) -> str:
        return f"Symbol({self.name})"  # without arguments, which would print the whole expression


Element = Any
"""A `Symbol` (unknown), or a NumPy scalar (known constant)."""
