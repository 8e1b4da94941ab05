"""Executes the notebooks and writes what readers see on the web: `python tests/notebooks/execute.py`."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks"


def main() -> None:
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore"  # of progress bars without widgets
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # cached kernels log pages of processor features
    for path in sorted(FOLDER.glob("*.py")):
        notebook = jupytext.read(path)
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"  # the same file from the same notebook
            cell["metadata"].pop("execution", None)
        nbformat.write(notebook, path.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
