"""Executed notebooks as pages: nothing is executed again."""

import base64
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

from writing.markup import fenced, table

NOTEBOOKS = sorted(Path(__file__).parents[2].glob("*.ipynb"))
RESULTS = Path(__file__).parents[3] / "results"


def page(path: Path) -> str:
    """A notebook as Markdown; figures lie beside it."""
    parts, figures = [], 0
    for each in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(each["source"])
        parts.append(_links(text) if each["cell_type"] == "markdown" else fenced(text, "python"))
        for output in each.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![Figure {figures + 1} of {path.stem}]({path.stem}_{figures}.png)")
                figures += 1
            elif said := "".join(output.get("text", data.get("text/plain", ""))):
                parts.append(fenced(said))
    return "\n\n".join(parts)


def figures(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each figure of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    images = (
        out["data"]["image/png"]
        for each in cells
        for out in each.get("outputs", ())
        if "image/png" in out.get("data", {})
    )
    for number, image in enumerate(images):
        yield f"{path.stem}_{number}.png", base64.b64decode("".join(image))


def title(path: Path) -> str:
    """The first heading of a notebook."""
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
    return "".join(first["source"]).splitlines()[0].removeprefix("# ")


def results() -> dict[Path, str]:
    """Files of `results/` and the pages that they are."""
    paths = [*sorted(RESULTS.glob("*.md")), *sorted((RESULTS / "reference").glob("*.txt"))]
    return {path: f"results/{path.relative_to(RESULTS).with_suffix('.md').as_posix()}" for path in paths}


def result_page(path: Path) -> str:
    """A file of results: Markdown as it is, text as a block."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        where = f"`results/{path.relative_to(RESULTS).as_posix()}`, made by a command of [results](../README.md)."
        return f"# {heading(path)}\n\n{where}\n\n{fenced(text)}"
    return _links(text)


def heading(path: Path) -> str:
    """What a file of results is called."""
    first = path.read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# ") if path.suffix == ".md" else path.stem.replace("_", " ").capitalize()


def csv_table(path: Path) -> str:
    """A CSV file as a table."""
    head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    return table(head, rows)


_LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def _links(text: str) -> str:
    """Links between files of the repository as links between pages; where there is no page, the name alone."""

    def page(found: re.Match[str]) -> str:
        target, anchor = found.group(1), found.group(2) or ""
        if target.endswith(".ipynb"):
            return f"]({target.removesuffix('.ipynb')}.md{anchor})"
        if target.endswith(".txt"):
            return f"]({target.removesuffix('.txt')}.md{anchor})"
        if target == "tutorial/README.md":
            return "](../maintain/question.md)"
        return found.group(0)

    return _LINK.sub(page, text)
