"""Executes notebooks and writes what readers see on the web: `python tests/notebooks/execute.py [NAME ...]`, all by default.

With `HWOPT_FAST=1` they ask smaller questions, and nothing is written.
"""

from __future__ import annotations

import base64
import io
import os
import resource
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks"
SECONDS = 1800.0
"""A cell's, at most, on a busy machine."""

_JAXLIB = tuple(map(int, version("jaxlib").split(".")[:2]))

_QUIET = {
    "JAX_PLATFORMS": "cpu",  # committed numbers are those of a processor that everyone has
    # compiles the model in half the time, where there is a choice: a process that is told an unknown flag ends
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false" if _JAXLIB < (0, 12) else "",
    "PYTHONWARNINGS": "ignore",
    "TF_CPP_MIN_LOG_LEVEL": "3",  # cached kernels log pages of processor features
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}


def chosen(names: Sequence[str]) -> list[Path]:
    """Notebooks by name, with or without ending; all of them where none is named.

    **Raises:** `SystemExit` for one that is not there.
    """
    known = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    wanted = [Path(name).stem for name in names]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"no notebook {', '.join(unknown)}: there are {', '.join(known)}")
    return [known[name] for name in wanted or known]


def smaller(image: str) -> str:
    """A PNG, base64, with a palette of 128 colours: figures look the same in half the bytes."""
    from PIL import Image

    held = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
        held, "PNG", optimize=True
    )
    return min(base64.b64encode(held.getvalue()).decode(), image.replace("\n", ""), key=len)


def executed(path: Path):
    """A notebook with the outputs of its cells: figures and printed text, without progress bars or other noise."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(path)
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same file from the same notebook
        cell["metadata"].pop("execution", None)
        if cell["cell_type"] == "code":
            cell["outputs"] = [each for each in cell["outputs"] if each.get("name") != "stderr"]
            for output in cell["outputs"]:
                if "image/png" in output.get("data", {}):
                    output["data"]["image/png"] = smaller(output["data"]["image/png"])
    notebook.metadata["language_info"] = {"name": "python"}  # not the version that happened to run it
    return notebook


def main(names: Sequence[str]) -> None:
    """Execute and write."""
    import nbformat

    cache = Path(__file__).parents[2] / ".pytest_cache" / "jax" / "notebooks"
    for name, value in (_QUIET | {"JAX_COMPILATION_CACHE_DIR": str(cache)}).items():
        os.environ.setdefault(name, value)
    for path in chosen(names):
        begun, worked = time.perf_counter(), _kernels_s()
        notebook = executed(path)
        if not os.environ.get("HWOPT_FAST"):
            nbformat.write(notebook, path.with_suffix(".ipynb"))
        size = len(nbformat.writes(notebook).encode())
        seconds = f"{time.perf_counter() - begun:.0f} s, {_kernels_s() - worked:.0f} s of processors"
        print(f"{path.stem}: {seconds}, {size / 1e3:.0f} kB", flush=True)


def _kernels_s() -> float:
    """Processor time of the kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
