"""Output paths of commands (pages, figures, stores), checked before any long computation starts."""

import argparse
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hwopt.cli.flags import Flag
from hwopt.cli.value_types import PATH
from hwopt.errors import UserError

if TYPE_CHECKING:
    from upath import UPath

REPORT = Flag(
    "--report",
    "also write the answer as one self-contained HTML page: design, budgets, certificate, sources",
    PATH._replace(metavar="FILE.html"),
)

_IMAGES = (".png", ".pdf", ".svg", ".svgz", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps", ".ps")
_FIGURES = ".figures"


def page_path(options: argparse.Namespace) -> Path | None:
    """Return the file of `--report` after checking that it can be written; None without the flag."""
    from hwopt.output.html.files import writable

    return None if options.report is None else writable("--report", options.report)


def open_page(path: Path) -> None:
    """Open a page in the user's browser; do nothing without a display or a browser."""
    if sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(path.as_uri())


def figure_path(options: argparse.Namespace) -> Path | None:
    """Return the image file of `--figure` after checking that it can be written; None without the flag."""
    from hwopt.output.html.files import writable

    path = None if options.figure is None else writable("--figure", options.figure, "figure.png")
    if path is not None and path.suffix and path.suffix.lower() not in _IMAGES:
        raise UserError(
            f"--figure {options.figure}: use the extension {', '.join(_IMAGES[:3])} or another image format"
        )
    return path


@dataclass(frozen=True)
class Outputs:
    """Store of a study of many designs, and the folder of its figures; None for those not requested.

    **Arguments:**

    - `out`: the store as the user wrote it, from `--out`.
    - `folder`: the same as a path.
    - `figures`: folder of figures, next to the store, with its name plus a suffix.

    **Raises:** `UserError`, from `of`, in any of these cases:

    - `--out` names no folder, as `/` does, or a place that cannot be reached;
    - a file has the name of the figures folder.
    """

    out: str | None = None
    folder: "Path | UPath | None" = None
    figures: "Path | UPath | None" = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Outputs":
        """Return the outputs that `--out` and `--no-figures` name."""
        from hwopt.sweeps.storage import as_os_errors, place_of

        if options.out is None:
            return cls()
        folder = place_of("--out", options.out, room=len(_FIGURES))
        if not folder.name:
            raise UserError(f"--out '{options.out}': must name a new folder, such as runs/first")
        out = str(Path(options.out) if isinstance(folder, Path) else folder)
        if not options.figures:
            return cls(out, folder)
        figures = folder.with_name(folder.name + _FIGURES)
        try:
            with as_os_errors(figures):
                in_the_way = figures.exists() and not figures.is_dir()
        except OSError as error:
            raise UserError(f"--out {options.out}: cannot be reached ({error})") from None
        if in_the_way:
            raise UserError(
                f"--out {options.out}: figures are written to {figures}, which is a file; move it, or add --no-figures"
            )
        return cls(out, folder, figures)

    def drawn(self, draw: Callable[[Path], Sequence[Path]]) -> tuple[str, ...]:
        """Draw the figures, those of an object store in a temporary folder first, and return their paths.

        **Arguments:** `draw`: writes the figures to a local folder and returns their paths.
        """
        if self.out is None or self.figures is None:
            return ()
        if isinstance(self.figures, Path):
            beside = Path(self.out).parent / self.figures.name
            return tuple(str(beside / path.name) for path in draw(self.figures))
        from hwopt.sweeps.storage import uploaded
        from hwopt.sweeps.store import writing

        unfinished = lambda: "the store is complete, the figures are not"
        with tempfile.TemporaryDirectory() as here, writing(self.figures, unfinished):
            draw(Path(here))
            return tuple(map(str, uploaded(Path(here), self.figures)))
