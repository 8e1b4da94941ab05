"""Where a model's author wrote what an equation of its jaxpr does."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from jax._src import source_info_util

_PACKAGE = PurePath(__file__).parents[1]
"""Files in it are named from its top."""

_LIBRARIES = frozenset({"equinox", "jaxtyping", "optax", "numpy"})
"""Packages that write equations in an author's name; JAX leaves itself out."""


def author_frame(origin: Any) -> Any:
    """The innermost frame of the author of an equation, rather than of the libraries below; None where there is none.

    **Arguments:** `origin`: the equation and, innermost first, the calls it is in: what JAX itself calls has no author.
    """
    first = None
    for equation in origin or ():
        for frame in source_info_util.user_frames(equation.source_info.traceback):
            if not _LIBRARIES.intersection(PurePath(frame.file_name).parts):
                return frame
            first = first or frame
    return first


def source_location(origin: Any) -> str:
    """File, line and function of what an author wrote. **Arguments:** `origin`: as of `author_frame`, or these words already."""
    if isinstance(origin, str):
        return origin or "an unknown line"
    frame = author_frame(origin)
    if not frame:
        return "an unknown line"
    path = PurePath(frame.file_name)
    path = path.relative_to(_PACKAGE.parent) if path.is_relative_to(_PACKAGE) else path
    return f"{path}:{frame.start_line} ({frame.function_name})"
