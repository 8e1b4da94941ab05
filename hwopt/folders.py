"""Where a user's programs keep what they can make again, on each system."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(system: str = sys.platform, variables: Mapping[str, str] = os.environ) -> Path:
    """Hwopt's folder of what can be made again: compiled kernels, traced models, stamps of checks. It need not exist yet.

    `XDG_CACHE_HOME` counts everywhere; else `~/.cache`, on macOS `~/Library/Caches`, on Windows `%LOCALAPPDATA%`.

    **Raises:** `RuntimeError` for a user without a home.
    """
    stated = variables.get("XDG_CACHE_HOME") or (variables.get("LOCALAPPDATA") if system == "win32" else None)
    if stated:
        return Path(stated) / "hwopt"
    home = {"win32": ("AppData", "Local"), "darwin": ("Library", "Caches")}.get(system, (".cache",))
    return Path.home().joinpath(*home, "hwopt")
