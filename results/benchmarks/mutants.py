"""Measures what the tests notice: sixty small faults, drawn with a fixed seed, each put into the code alone.

`python -m results.benchmarks.mutants draw` writes the faults to `results/reference/mutants.json`. In a clone, `run LIST N ... --
TESTS` puts each of the faults N in, runs these tests until one fails, takes the fault out and adds the test that failed to the
fault's list of that name: `noticed_before` or `noticed_after` a change of the tests. Without a command it prints the table.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "results/reference/mutants.json"
SEED = 63
PACKAGES = {"model": 14, "convex": 8, "integers": 7, "optim": 10, "study/sweep": 8, "evidence": 7, "report": 6}
"""Number of faults in each package, 60 in total."""

SWAPPED = {ast.Lt: ">", ast.Gt: "<", ast.LtE: ">=", ast.GtE: "<=", ast.Eq: "!=", ast.NotEq: "=="}
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
Site = tuple[ast.AST, str]
"""A node, and the text that takes its place."""


def is_number(node: ast.AST) -> bool:
    """Whether an operand of a sum can be a number: neither text nor a list."""
    return not any(
        isinstance(each, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp))
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def comparisons(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[Site]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        yield node, f"{text(node.left)} {SWAPPED[type(node.ops[0])]} {text(node.comparators[0])}"


def constants(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[Site]:
    """Floats, and integers that multiply or divide."""
    if isinstance(node, ast.Constant) and type(node.value) is float and node.value:
        yield node, f"({text(node)} * 1.05)"
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        for each in (node.left, node.right):
            if isinstance(each, ast.Constant) and type(each.value) in (int, float) and each.value:
                yield each, f"({text(each)} * 1.05)"


def terms(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[Site]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and is_number(node):
        yield node, f"({text(node.left)})"


def axes(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[Site]:
    if isinstance(node, ast.keyword) and node.arg == "axis" and text(node.value) in ("0", "1", "-1"):
        yield node, f"axis={'-1' if text(node.value) == '0' else '0'}"
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield node, text(node.value)
    if isinstance(node, ast.Subscript) and text(node.slice) in (":, None", "None, :"):
        yield node, f"{text(node.value)}[{'None, :' if text(node.slice) == ':, None' else ':, None'}]"


def guards(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[Site]:
    if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], LEAVES) and not node.orelse:
        yield node.test, f"False and ({text(node.test)})"


OPERATORS = {
    "swap a comparison": comparisons,
    "scale a constant by 1.05": constants,
    "drop a term of a sum": terms,
    "swap two axes": axes,
    "skip a guard": guards,
}


def sites(package: str, operator: Callable) -> list[dict]:
    """Every place of a package where an operator applies, in the order of files and lines."""
    found = []
    for path in sorted((ROOT / "hwopt" / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)

        def text(node: ast.AST, source=source) -> str:
            return ast.get_source_segment(source, node) or ""

        for node in ast.walk(ast.parse(source)):
            for where, instead in operator(node, text):
                first, last = where.lineno - 1, where.end_lineno
                before = "".join(lines[first:last])
                rest = lines[last - 1].encode()[where.end_col_offset :].decode()
                after = lines[first].encode()[: where.col_offset].decode() + instead + rest
                at = {"file": path.relative_to(ROOT).as_posix(), "line": where.lineno, "column": where.col_offset}
                found.append({**at, "before": before, "after": after})
    return sorted(found, key=lambda each: (each["file"], each["line"], each["column"], each["after"]))


def draw() -> list[dict]:
    """Sixty faults: the operators in turn, a place of the package each; a package without a place has the next operator's."""
    rng = random.Random(SEED)
    drawn: list[dict] = []
    for package, count in PACKAGES.items():
        places = {name: sites(package, operator) for name, operator in OPERATORS.items()}
        for name in places:
            rng.shuffle(places[name])
        turn = 0
        while count:
            name = list(OPERATORS)[turn % len(OPERATORS)]
            turn += 1
            if places[name]:
                drawn.append({"package": package, "operator": name, **places[name].pop()})
                count -= 1
    return [{"number": number, **each} for number, each in enumerate(drawn)]


def place(mutant: dict, source: str, there: str) -> int:
    """Where a text stands, nearest to the line where it stood when it was drawn."""
    starts = [n for n in range(len(source)) if source.startswith(mutant[there], n)] if mutant[there] in source else []
    if not starts:
        raise SystemExit(f"mutant {mutant['number']}: {mutant['file']} no longer has the line {mutant[there]!r}")
    return min(starts, key=lambda start: abs(source.count("\n", 0, start) + 1 - mutant["line"]))


def exchange(mutant: dict, there: str, instead: str) -> None:
    path = ROOT / mutant["file"]
    source = path.read_text(encoding="utf-8")
    start = place(mutant, source, there)
    path.write_text(source[:start] + mutant[instead] + source[start + len(mutant[there]) :], encoding="utf-8")


def run(drawn: list[dict], when: str, numbers: list[int], tests: list[str]) -> None:
    """Run the tests with each fault in the code, and write down which failed first."""
    for number in numbers:
        exchange(drawn[number], "before", "after")
        try:
            command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "--tb=no", "-rfE", *tests]
            said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
        finally:
            exchange(drawn[number], "after", "before")
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, flags=re.MULTILINE)
        drawn[number].setdefault(when, []).extend(failed)
        write(drawn)


def write(drawn: list[dict]) -> None:
    DRAWN.write_text(json.dumps(drawn, indent=1) + "\n", encoding="utf-8")


def table(drawn: list[dict]) -> str:
    """Return one line per fault: its place, its operator, and the test that noticed it before and after."""
    lines = [f"{'':3} {'file':50} {'fault':25} {'before':8} after"]
    for each in drawn:
        named = [", ".join(each.get(when) or ["no"]) for when in ("noticed_before", "noticed_after")]
        noticed = ["no" if name == "no" else "yes" for name in named]
        lines.append(
            f"{each['number']:3} {each['file'] + ':' + str(each['line']):50} {each['operator']:25} {noticed[0]:8} {named[1]}"
        )
    counts = [sum(bool(each.get(when)) for each in drawn) for when in ("noticed_before", "noticed_after")]
    return "\n".join([*lines, f"noticed: {counts[0]} of {len(drawn)} before, {counts[1]} after"])


def main(command: str = "table", *arguments: str) -> None:
    if command == "draw":
        return write(draw())
    drawn = json.loads(DRAWN.read_text(encoding="utf-8"))
    if command == "run":
        when, *rest = arguments
        cut = rest.index("--") if "--" in rest else len(rest)
        return run(drawn, when, list(map(int, rest[:cut])), rest[cut + 1 :])
    print(table(drawn))


if __name__ == "__main__":
    main(*sys.argv[1:])
