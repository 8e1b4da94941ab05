"""Common style of all figures."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt import escape
from hwopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure


class NothingToDraw(UserError):
    """Error for a figure whose data is missing or empty. **Arguments:** `why`."""

    def __init__(self, why: str):
        super().__init__(f"nothing to draw: {why}")


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
def figure(
    rows: int = 1, columns: int = 1, *, figsize: tuple[float, float] | None = None, **keywords: Any
) -> Iterator[tuple[Figure, list]]:
    """Create a figure and its axes in the common style, drawn off screen, so that a notebook does not also show them.

    All other settings are Matplotlib's defaults. The current folder's `matplotlibrc` is ignored, since it may execute
    LaTeX.

    **Arguments:** `rows`, `columns` of axes; `figsize` in inches; `keywords` for `matplotlib.figure.Figure.subplots`.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context(defaults | _SETTINGS):
        drawn = Figure(figsize=figsize, layout="constrained")
        FigureCanvasAgg(drawn)
        yield drawn, list(drawn.subplots(rows, columns, squeeze=False, **keywords).flat)


def set_bars(axes: Any, count: int, least: int) -> None:
    """Set up horizontal bars at 0, 1, ... from the top down, at most as thick as `least` bars would be."""
    middle, half = 0.5 * (count - 1), 0.5 * max(count, least)
    axes.set_ylim(middle + half, middle - half)
    axes.grid(axis="y", visible=False)


def plain(text: str) -> str:
    """Return a text as printable characters, with dollar signs escaped so that they start no formula."""
    return escape.terminal(text).replace("$", r"\$")


def plain_powers(axes: Any) -> None:
    """Show the numbers of a logarithmic y axis without powers: 20, not 2 x 10^1."""
    from matplotlib.ticker import LogFormatter

    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2.0, 0.6)))


def save(drawn: Figure, path: str | Path) -> None:
    """Write a figure to a file.

    **Raises:** `UserError` where the file cannot be written or its ending names no image format.
    """
    try:
        drawn.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)
    except (OSError, ValueError) as error:
        raise UserError(f"figure {path}: cannot be written ({error})") from None
