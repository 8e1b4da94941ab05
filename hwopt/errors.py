"""Errors in user input: the problem, its location, and the probably intended value."""

import contextlib
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches

from hwopt import escape

_AS_CLOSE = 0.1
"""Similarity below the best match up to which further spellings are suggested, if there are many known ones."""


class UserError(ValueError):
    """Invalid input. The message is one line: problem, location, probable intent. The command line exits with 2.

    **Arguments:** `message`; `others`: further messages where all errors of a file are reported together, one line each.
    """

    def __init__(self, message: str, *others: str):
        self.lines = tuple(map(escape.sentence, (message, *others)))
        super().__init__("; ".join(self.lines))


@contextlib.contextmanager
def collected(complaints: list[str]) -> Iterator[None]:
    """Append the messages of a `UserError` in this context to `complaints`, so that one run reports all errors."""
    try:
        yield
    except UserError as error:
        complaints += error.lines


def suggest(wrong: object, known: Iterable[str], *, show: int = 8) -> str:
    """Return a clause that names the closest known spellings, or some of the known ones if none is close.

    **Arguments:** `wrong`: the user's input, text or not; `known`: valid spellings; `show`: number to list when none is close.

    **Returns:** text such as `did you mean 'h100-sxm'?`.
    """
    known, wrong = sorted(known), wrong if isinstance(wrong, str) else ""
    by_lower = {name.lower(): name for name in known}
    containing = [name for name in known if wrong and wrong.lower() in name.lower()]
    similar = get_close_matches(wrong.lower(), by_lower, n=3, cutoff=0.6)
    likeness = [SequenceMatcher(None, wrong.lower(), name).ratio() for name in similar]
    least = likeness[0] - _AS_CLOSE if likeness and len(known) > show else 0.0
    similar = [by_lower[name] for name, each in zip(similar, likeness, strict=True) if each > least]
    same = [name for name in known if name.lower() == wrong.lower() != ""]
    close = same or containing[:3] or similar
    if close:
        return "did you mean " + " or ".join(f"'{name}'" for name in close) + "?"
    listed = ", ".join(known[:show]) + (f" and {len(known) - show} more" if len(known) > show else "")
    return f"known: {listed}" if listed else "none exists"
