"""The one look of all figures."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

_SETTINGS: Any = {
    "figure.figsize": (7.2, 4.6),
    "figure.dpi": 110,
    "savefig.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "axes.axisbelow": True,
}


@contextmanager
def figure(rows: int = 1, columns: int = 1, **keywords: Any) -> Iterator[tuple[Figure, list]]:
    """A figure and its axes, drawn off screen in the common look.

    **Arguments:** `rows`, `columns` of axes; `keywords` for `matplotlib.pyplot.subplots`.
    """
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    with plt.rc_context(_SETTINGS):
        drawn, axes = plt.subplots(rows, columns, layout="constrained", squeeze=False, **keywords)
        try:
            yield drawn, list(axes.flat)
        finally:
            plt.close(drawn)


def save(drawn: Figure, path: str | Path) -> None:
    """Write a figure to a file.

    **Raises:** `UserError` where the file cannot be written or its ending names no image format.
    """
    try:
        drawn.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)
    except (OSError, ValueError) as error:
        raise UserError(f"figure {path}: cannot be written ({error})") from None
