"""Source locations of the model code that produced an equation of a jaxpr."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from jax._src import source_info_util

_PACKAGE = PurePath(__file__).parents[1]
"""Root folder of the package; files in it are reported relative to its parent."""

_LIBRARIES = frozenset({"equinox", "jaxtyping", "optax", "numpy"})
"""Packages that create equations on behalf of their caller; JAX already excludes its own frames."""


def author_frame(origin: Any) -> Any:
    """Return the innermost stack frame of the model's author for an equation, skipping library frames.

    If there are only library frames, the first is returned; if there is none, None.

    **Arguments:** `origin`: the equation and, innermost first, the calls that contain it. A function that JAX itself
    calls has no author frame of its own.
    """
    first = None
    for equation in origin or ():
        for frame in source_info_util.user_frames(equation.source_info.traceback):
            if not _LIBRARIES.intersection(PurePath(frame.file_name).parts):
                return frame
            first = first or frame
    return first


def source_location(origin: Any) -> str:
    """Return file, line and function of the code behind an equation.

    **Arguments:** `origin`: see `author_frame`, or a string that already is such a location.
    """
    if isinstance(origin, str):
        return origin or "an unknown line"
    frame = author_frame(origin)
    if not frame:
        return "an unknown line"
    path = PurePath(frame.file_name)
    path = path.relative_to(_PACKAGE.parent) if path.is_relative_to(_PACKAGE) else path
    return f"{path}:{frame.start_line} ({frame.function_name})"
