"""The content of the source files that this process runs, as one digest.

What is cached on disk is named by it, and a worker process states it before its first task: neither survives a change of the
sources, whatever the files' times and sizes say.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
from pathlib import Path

PACKAGES = ("hwopt", "objectives")
"""Packages whose source files count."""


@functools.cache
def digest() -> str:
    """Return the SHA-256 of the names and contents of all source files, in hexadecimal; packages need not be imported yet."""
    whole = hashlib.sha256()
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        for root in (found and found.submodule_search_locations) or ():
            paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
            for path in sorted(path for path in paths if path.endswith(".py")):
                with contextlib.suppress(
                    OSError
                ):  # what cannot be read, such as an editor's lock, cannot be imported either
                    content = Path(path).read_bytes()
                    whole.update(f"{package} {os.path.relpath(path, root)} {len(content)}\n".encode() + content)
    return whole.hexdigest()
