"""The one look of all figures."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure


class NothingToDraw(UserError):
    """The data that a figure shows is missing or empty."""


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


def set_bars(axes: Any, count: int, least: int) -> None:
    """Horizontal bars at 0, 1, ... from the top down, as thick as `least` of them where there are fewer."""
    middle, half = 0.5 * (count - 1), 0.5 * max(count, least)
    axes.set_ylim(middle + half, middle - half)
    axes.grid(axis="y", visible=False)


def plain(text: str) -> str:
    """Text in which a dollar is a dollar and opens no formula."""
    return text.replace("$", r"\$")


def save(drawn: Figure, path: str | Path) -> None:
    """Write a figure to a file.

    **Raises:** `UserError` where the file cannot be written or its ending names no image format.
    """
    try:
        drawn.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)
    except (OSError, ValueError) as error:
        raise UserError(f"figure {path}: cannot be written ({error})") from None
