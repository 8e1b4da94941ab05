"""Names of options that frameworks accept, from the dated lists in `tests/export_options`."""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "export_options"


@cache
def options(framework: str) -> frozenset[str]:
    """Names in a list; its first line states software, version or commit, and date."""
    first, *names = (FOLDER / f"{framework}.txt").read_text(encoding="utf-8").splitlines()
    assert first.startswith("# ") and any(letter.isdigit() for letter in first)
    return frozenset(names)
