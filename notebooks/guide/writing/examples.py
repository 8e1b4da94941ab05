"""Examples of pages: commands with what they print, Python with what it prints, files of a reader's own.

A line `<!-- runs: 1-14 30 -->` before a block of commands says which lines of the output stand below it, all where it names none;
`<!-- slow: ... -->` likewise of commands that take more than some seconds, which the default tests only parse. Before them,
`<!-- exits: 1 -->` says that the last command does not exit with 0, and `<!-- file: my-chip.toml -->` which file a block is.
`<!-- json: a, b.c -->` names keys of the JSON that the first command of the page prints with `--json`.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).parents[1] / "pages"

_BLOCK = re.compile(
    r"((?:^<!-- (?:runs|slow|exits|file)(?::[^\n]*)? -->\n)*)^```(\w+)\n(.*?)^```\n(?:\n?^```(text)\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
LEFT_OUT = "..."


@dataclass(frozen=True, eq=False)
class Example:
    """A block of a page: its language, what stands in it, and what it prints."""

    page: str
    language: str
    code: str
    printed: str | None
    marks: dict[str, str]
    span: tuple[int, int]  # of what is printed, in the page

    @property
    def commands(self) -> list[str]:
        """Lines of a block of commands, continued ones joined."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [
            shlex.join(shlex.split(line, comments=True)) for line in lines if line.strip() and not line.startswith("#")
        ]

    @property
    def runs(self) -> bool:
        """Whether tests run it."""
        return self.language == "python" or "runs" in self.marks

    def shown(self, output: str) -> str:
        """Lines of an output that stand in the page."""
        lines, ranges = output.rstrip().splitlines(), (self.marks.get("runs") or self.marks.get("slow") or "").split()
        if not ranges:
            return "\n".join(lines) + "\n"
        kept: list[str] = []
        last = 0
        for each in ranges:
            low, _, high = each.partition("-")
            first, end = int(low), min(int(high or low), len(lines))
            kept += [LEFT_OUT] * (first > last + 1) + lines[first - 1 : end]
            last = end
        return "\n".join(kept + [LEFT_OUT] * (last < len(lines))) + "\n"


def examples(path: Path) -> list[Example]:
    """Blocks of a page in their order."""
    text = path.read_text(encoding="utf-8")
    found = []
    for each in _BLOCK.finditer(text):
        marks = dict(re.findall(r"<!-- (\w+):? ?([^\n]*?) ?-->", each.group(1)))
        found.append(
            Example(
                path.relative_to(PAGES).as_posix(), each.group(2), each.group(3), each.group(5), marks, each.span(5)
            )
        )
    return found


def python_output(blocks: Iterable[Example]) -> list[tuple[Example, str]]:
    """What each block of Python of a page prints, all in one namespace."""
    printed, names = [], {}
    for each in blocks:
        if each.language == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(each.code, each.page, "exec"), names)
            printed.append((each, said.getvalue()))
    return printed


def pages() -> list[Path]:
    """Pages written by hand."""
    return sorted(PAGES.rglob("*.md"))


def json_keys(path: Path) -> list[str]:
    """Keys that a page says the JSON of its first command has."""
    return [
        key.strip()
        for each in re.findall(r"^<!-- json: (.*) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for key in each.split(",")
    ]


def write_files(blocks: Iterable[Example], folder: Path) -> None:
    """Files of a reader's own that a page shows, and measured runs by the name that examples use."""
    import hwopt

    for each in blocks:
        if "file" in each.marks:
            (folder / each.marks["file"]).write_text(each.code, encoding="utf-8")
    runs = (Path(hwopt.__file__).parent / "data/runs/train.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "my_runs.csv").write_text("".join(runs[:12]), encoding="utf-8")
