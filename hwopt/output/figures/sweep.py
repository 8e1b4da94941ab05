"""All figures of a sweep."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hwopt.errors import UserError
from hwopt.output.figures.bottleneck_map import plot_bottleneck_map
from hwopt.output.figures.breakdown import plot_breakdown
from hwopt.output.figures.budgets import plot_budgets
from hwopt.output.figures.parallel_coordinates import plot_parallel_coordinates
from hwopt.output.figures.pareto import plot_pareto
from hwopt.output.figures.roofline import plot_roofline
from hwopt.output.figures.style import NothingToDraw

FIGURES: Mapping[str, Callable[[Any, Path], None]] = {
    "pareto": plot_pareto,
    "bottleneck_map": plot_bottleneck_map,
    "parallel_coordinates": plot_parallel_coordinates,
    "roofline": plot_roofline,
    "breakdown": plot_breakdown,
    "budgets": plot_budgets,
}
"""Name of the file -> function that draws it."""


def save_figures(
    dataset: Any, folder: str | Path, figures: Mapping[str, Callable[[Any, Path], None]] = FIGURES
) -> list[Path]:
    """Write each figure for which the dataset has data, as PNG.

    **Arguments:** `dataset` of a sweep; `folder` to write to, created if missing; `figures`: name of the file ->
    function that draws it.

    **Returns:** paths of the files written, in the order of `figures`.

    **Raises:** `UserError` where a file cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder {folder}: cannot be made ({error})") from None
    written = []
    for name, draw in figures.items():
        path = folder / f"{name}.png"
        try:
            draw(dataset, path)
        except NothingToDraw:
            continue
        written.append(path)
    return written
