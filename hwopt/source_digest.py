"""Digest of the source files that this process runs.

The digest is part of the names of cached files, and a worker process sends it before its first task. A change of the sources thus
invalidates caches and workers, even if file times and sizes stay the same.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
from pathlib import Path

PACKAGES = ("hwopt", "objectives")
"""Packages whose source files the digest covers."""


@functools.cache
def source_digest() -> str:
    """Return the SHA-256 of the names and contents of all source files, in hexadecimal; packages need not be imported yet."""
    whole = hashlib.sha256()
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        for root in (found and found.submodule_search_locations) or ():
            paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
            for path in sorted(path for path in paths if path.endswith(".py")):
                with contextlib.suppress(OSError):  # an unreadable file, such as an editor's lock, is not importable
                    content = Path(path).read_bytes()
                    whole.update(f"{package} {os.path.relpath(path, root)} {len(content)}\n".encode() + content)
    return whole.hexdigest()
