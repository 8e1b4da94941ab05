"""Errors for people: what was wrong, where it stands, what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Bad input. Its text is one line: what, where, likely intent. The command line exits with 2."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


def suggest(wrong: str, known: Iterable[str], *, show: int = 8) -> str:
    """A clause that names the closest known spellings, or some of the known ones.

    **Arguments:** `wrong` as the user wrote it; `known` spellings; `show`: how many to list when none is close.

    **Returns:** text such as `did you mean 'h100-sxm'?`.
    """
    known = sorted(known)
    by_lower = {name.lower(): name for name in known}
    containing = [name for name in known if wrong and wrong.lower() in name.lower()]
    similar = [by_lower[name] for name in get_close_matches(wrong.lower(), by_lower, n=3, cutoff=0.6)]
    same = [name for name in known if name.lower() == wrong.lower() != ""]
    close = same or containing[:3] or similar
    if close:
        return "did you mean " + " or ".join(f"'{name}'" for name in close) + "?"
    listed = ", ".join(known[:show]) + (f" and {len(known) - show} more" if len(known) > show else "")
    return f"known: {listed}" if listed else "none is known"
