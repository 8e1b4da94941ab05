"""The user guide: its pages by topic, as `hwopt docs` prints them, and references to a page in screens, HTML and errors.

Pages ship as their Markdown sources, so that they can be read offline. A line `<!-- word: arguments -->` marks content that the
site generates from code and data; in a terminal it is replaced by the command that prints the same content.
"""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from pathlib import Path

from hwopt.errors import UserError, suggest

_SECTIONS = ("", "tutorial", "commands", "physics", "maintain", "api", "architecture")
"""Folders of pages, in the order in which a topic is searched."""

_MARKER = re.compile(r"^<!-- (\w+)(?:: (.*?))? -->$", re.MULTILINE)

_ELSEWHERE = {
    "flags": "Flags and exit codes: `hwopt {0} --help`.",
    "json": "`--json` prints one object with, among others: {0}.",
    "questions": "Questions and their fields: `hwopt optimize QUESTION --help`.",
    "numbers": "Numbers with their sources: `hwopt catalog {0}`.",
    "outputs": "Numbers with their units: `python -m pydoc {0}`.",
    "margins": "Margins: `python -m pydoc {0}`.",
    "variables": "All of them: `python -m pydoc hwopt.design.variables`.",
    "object": "`python -m pydoc {0}`.",
    "result": "The file `{0}` of the repository.",
    "csv": "The file `{0}` of the repository.",
    "source": "The file `{0}` of the repository.",
    "inputs": "Fields with their units: `python -m pydoc {0}`.",
    "module": "Formulas with their sources: `python -m pydoc {0}`.",
    "reference": "Names with their types: `python -m pydoc {0}`.",
}
"""Word of a marker -> its replacement in a terminal; markers with other words are removed."""


@cache
def folder() -> Path:
    """Return the folder of the guide's pages: in the installed package, or in the checkout that hwopt runs from.

    **Raises:** `UserError` where neither has them.
    """
    package = Path(str(files("hwopt")))
    for place in (package / "data" / "guide", package.parent / "notebooks" / "guide" / "pages"):
        if (place / "index.md").is_file():
            return place
    raise UserError(f"the guide is not there: neither {package / 'data' / 'guide'} nor a checkout beside it has it")


@cache
def topics() -> dict[str, Path]:
    """Return the pages by topic, the name that a user types: the file's name, preceded by its folder where names collide."""
    by_topic: dict[str, Path] = {}
    for section in _SECTIONS:
        for path in sorted((folder() / section).glob("*.md"), key=lambda each: (each.stem != "index", each.stem)):
            name = (section or "start") if path.stem == "index" else path.stem
            by_topic[f"{section}/{name}" if name in by_topic else name] = path
    return by_topic


def title(path: Path) -> str:
    """Return the heading of a page of the guide."""
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def text(topic: str) -> str:
    """Return the text of a page, with its markers replaced.

    **Raises:** `UserError` for an unknown topic.
    """
    if topic not in topics():
        raise UserError(f"unknown topic '{topic}': {suggest(topic, topics())} (hwopt docs lists all)")
    page = topics()[topic].read_text(encoding="utf-8")
    return re.sub(r"\n{3,}", "\n\n", _MARKER.sub(_elsewhere, page)).rstrip()


def see(topic: str) -> str:
    """Return the command that prints a page of the guide."""
    return f"hwopt docs {topic}"


def address(topic: str) -> str | None:
    """Return the address of a page on the website; None where this installation names no website.

    A site's operator states it as `Documentation` in `[project.urls]` of `pyproject.toml` before building the wheel.
    """
    try:
        urls = metadata("hwopt").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    stated = dict(each.split(", ", 1) for each in urls if ", " in each)
    if "Documentation" not in stated or topic not in topics():
        return None
    page = topics()[topic].relative_to(folder()).with_suffix(".html").as_posix()
    return f"{stated['Documentation'].rstrip('/')}/{page}"


def _elsewhere(found: re.Match[str]) -> str:
    word, arguments = found.group(1), found.group(2) or ""
    if word != "json":
        arguments = arguments.split(":")[0].split(",")[0]
    return _ELSEWHERE.get(word, "").format(arguments)
