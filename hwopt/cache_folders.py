"""User cache folders by operating system."""

import contextlib
import hashlib
import os
import platform
import stat
import sys
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Return hwopt's cache folder: compiled kernels, traced models, stamps of self-tests. It need not exist yet.

    It is `$XDG_CACHE_HOME/hwopt`; else `~/.cache/hwopt`, on macOS `~/Library/Caches/hwopt`, on Windows `%LOCALAPPDATA%/hwopt`.
    Platformdirs ignores relative paths, as the XDG specification requires: otherwise the current folder could supply kernels.

    **Raises:** `RuntimeError` for a user without a home folder.
    """
    return user_cache_path("hwopt", appauthor=False, opinion=False)


def machine_folder() -> Path:
    """Return the folder of compiled kernels and traced models for this processor and JAX version; create it if missing.

    Kernels are specific to both.

    **Raises:** `OSError` as `private_folder` does, and `RuntimeError` for a user without a home folder.
    """
    processor = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine, folder = hashlib.sha256(processor.encode()).hexdigest()[:12], cache_folder()
    return private_folder(folder.parent, folder.name, f"jax-{version('jax')}-{machine}")


class SharedFolder(OSError):
    """Error for a folder to which other users can write."""


def private_folder(base: Path, *inside: str) -> Path:
    """Return a folder that no other user can write to; create it if missing.

    Compiled kernels are native code and stamps are trusted, so a folder that others can write to is neither read nor written.
    Every folder from `base` down must belong to this user or to root and be writable by its owner alone. Only `base` may be
    reached by a symbolic link. Windows permissions are not checked.

    **Arguments:**
    - `base`: the outermost folder that is checked;
    - `inside`: names of nested folders, each inside the one before.

    **Raises:** `SharedFolder`, or another `OSError` if a folder cannot be created.
    """
    place = Path(os.path.realpath(base))
    for name in ("", *inside):
        place = place / name
        place.mkdir(0o700, parents=not name, exist_ok=True)
        status = place.lstat()
        if sys.platform != "win32" and not (
            stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
        ):
            raise SharedFolder(
                f"nothing is cached: {place} is not a folder that you alone can write to; chmod 700 it, or set XDG_CACHE_HOME"
            )
    return place
