"""Fills the markers of pages, `<!-- word: arguments -->`, and adds the pages that are made as a whole."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from writing import api, commands, numbers, studies
from writing.markup import fenced

from hwopt.output.schema import commands as schemas

ROOT = Path(__file__).parents[2]

MARKERS: dict[str, Callable[[str], str]] = {
    "flags": lambda name: commands.flags(name) + schema_of(name),
    "questions": lambda _: commands.questions(),
    "numbers": numbers.chosen,
    "inputs": numbers.inputs,
    "reference": api.reference,
    "json": lambda keys: (
        f"`--json` prints one object with, among others: {', '.join(f'`{each.strip()}`' for each in keys.split(','))}.\n"
    ),
    "outputs": numbers.outputs,
    "margins": numbers.margins,
    "variables": lambda _: numbers.variables(),
    "csv": lambda path: studies.csv_table(ROOT / path),
    "source": lambda path: (
        f"`{path}`\n\n{fenced((ROOT / path).read_text(encoding='utf-8'), Path(path).suffix.lstrip('.'))}"
    ),
    "result": lambda path: fenced((ROOT / path).read_text(encoding="utf-8")),
    "object": lambda name: f"::: {name}\n    options: {{show_root_heading: true, heading_level: 3}}\n",
    "module": lambda name: f"::: {name}\n    options: {{show_root_heading: true, heading_level: 2}}\n",
    "gallery": lambda _: gallery(),
}
"""Word of a marker -> what stands there."""

_MARKER = re.compile(r"^<!-- (\w+)(?:: (.*?))? -->$", re.MULTILINE)

FIGURES = ("accuracy.png", "bottleneck_map.png", "sensitivity.png", "serving.png")


def schema_of(name: str) -> str:
    """A link to the JSON Schema of a command's answer, for commands that have one."""
    if name not in schemas.COMMANDS:
        return ""
    return f"\n**JSON Schema** of the answer with `--json`: [{name}.json](../schemas/{name}.json) ([how to read it](schema.md)).\n"


def filled(markdown: str) -> str:
    """A page with its markers filled; a marker that nobody knows stays, a comment."""

    def fill(found: re.Match[str]) -> str:
        word, arguments = found.groups()
        return MARKERS[word](arguments or "") if word in MARKERS else found.group(0)

    return _MARKER.sub(fill, markdown)


def gallery() -> str:
    """All figures of the studies, under the study's title."""
    parts = []
    for path in studies.NOTEBOOKS:
        shown = "\n".join(
            f"[![{studies.title(path)}]({name}){{ width=360 }}]({path.stem}.md)" for name, _ in studies.figures(path)
        )
        parts.append(f"### {studies.title(path)}\n\n{shown}")
    return "\n\n".join(parts)


def on_config(config: Any) -> Any:
    """The navigation of pages that are made as a whole."""
    for section in config.nav:
        for title, pages in section.items():
            if title == "Numbers":
                pages += [{kind.replace("_", " ").capitalize(): f"numbers/{kind}.md"} for kind in numbers.kinds()]
            if title == "Studies":
                pages += [{studies.title(path): f"studies/{path.stem}.md"} for path in studies.NOTEBOOKS]
                pages.append(
                    {"Results": [{studies.heading(path): target} for path, target in studies.results().items()]}
                )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Pages that are made as a whole, and figures."""
    for kind in numbers.kinds():
        files.append(File.generated(config, f"numbers/{kind}.md", content=numbers.page(kind)))
    for path in studies.NOTEBOOKS:
        files.append(File.generated(config, f"studies/{path.stem}.md", content=studies.page(path)))
        for name, content in studies.figures(path):
            files.append(File.generated(config, f"studies/{name}", content=content))
    for path, target in studies.results().items():
        files.append(File.generated(config, target, content=studies.result_page(path)))
    for name in schemas.COMMANDS:
        content = json.dumps(schemas.schema_of(name), indent=1) + "\n"
        files.append(File.generated(config, f"schemas/{name}.json", content=content))
    for name in ("iframe-worker.js", "site.css"):
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(Path(__file__).with_name(name))))
    for name in FIGURES:
        files.append(File.generated(config, f"figures/{name}", abs_src_path=str(ROOT / "results" / "figures" / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the markers of pages that are written by hand."""
    return filled(markdown) if page.file.generated_by is None else markdown
