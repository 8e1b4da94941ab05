"""Runs the commands of pages and writes what they print below them: `python notebooks/guide/renew.py [PAGE ...] [--slow]`.

Writes the numbers that sentences quote from results, too (`writing/quoted.py`); `--quoted` writes these alone.
Without `--slow` only those that tests run. Pages are named as `commands/plan.md`, all where none is.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from writing import quoted
from writing.examples import PAGES, Example, examples, pages, python_output, write_files

_QUIET = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def printed(example: Example, folder: Path) -> str:
    """What the commands of an example print."""
    said = []
    for line in example.commands:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            line, shell=True, cwd=folder, capture_output=True, text=True, env=os.environ | _QUIET | {"PATH": path}
        )
        if done.returncode != int(example.marks.get("exits", "0")):
            sys.exit(f"{example.page}: {line}: exit {done.returncode}\n{done.stderr}")
        said.append(done.stdout + done.stderr)
    return "".join(said)


def renew(path: Path, slow: bool) -> None:
    """Write a page anew where an output changed."""
    text, blocks = path.read_text(encoding="utf-8"), examples(path)
    said = {each: output for each, output in python_output(blocks) if each.printed is not None}
    with tempfile.TemporaryDirectory() as folder:
        write_files(blocks, Path(folder))
        for each in blocks:
            if (
                each.language == "bash"
                and each.printed is not None
                and ("runs" in each.marks or (slow and "slow" in each.marks))
            ):
                said[each] = each.shown(printed(each, Path(folder)))
                print(f"{each.page}: {each.commands[-1]}", flush=True)
    for each in reversed(blocks):
        if each in said:
            low, high = each.span
            text = text[:low] + said[each] + text[high:]
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    quoted.renew()
    named = [each for each in sys.argv[1:] if not each.startswith("--")]
    for page in [] if "--quoted" in sys.argv else [PAGES / each for each in named] or pages():
        renew(page, "--slow" in sys.argv)
