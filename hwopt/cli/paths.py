"""Output paths of commands (pages, figures, stores), checked before any long computation starts."""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt.cli.flags import Flag
from hwopt.cli.output import show
from hwopt.cli.value_types import PATH
from hwopt.errors import UserError

if TYPE_CHECKING:
    from upath import UPath

REPORT = Flag(
    "--report",
    "also write the answer as one self-contained HTML page: design, budgets, front, proof, sources",
    PATH._replace(metavar="FILE.html"),
)

_IMAGES = (".png", ".pdf", ".svg", ".svgz", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps", ".ps")
_FIGURES = ".figures"


def page_path(options: argparse.Namespace) -> Path | None:
    """Return the file of `--report` after checking that it can be written; None without the flag."""
    from hwopt.output.html.files import writable

    return None if options.report is None else writable("--report", options.report)


def figure_path(options: argparse.Namespace) -> Path | None:
    """Return the image file of `--figure` after checking that it can be written; None without the flag."""
    from hwopt.output.html.files import writable

    path = None if options.figure is None else writable("--figure", options.figure, "figure.png")
    if path is not None and path.suffix and path.suffix.lower() not in _IMAGES:
        raise UserError(
            f"--figure {options.figure}: end its name in {', '.join(_IMAGES[:3])} or another format of images"
        )
    return path


def _drawn_there(place: "UPath", draw: Callable[[Path], Any]) -> tuple[str, ...]:
    """Draw figures for an object store: in a temporary local folder, then uploaded. Return their addresses."""
    from hwopt.sweeps.storage import uploaded
    from hwopt.sweeps.store import writing

    with tempfile.TemporaryDirectory() as here, writing(place, lambda: "the store is complete, figures are not"):
        draw(Path(here))
        return tuple(map(str, uploaded(Path(here), place)))


@dataclass(frozen=True)
class Outputs:
    """Outputs of a study of many designs: its store, figures next to it, its page; None for those not requested.

    **Raises:** `UserError` for a path without a folder name of its own, and where a file blocks the folder of figures.
    """

    options: argparse.Namespace
    folder: "Path | UPath | None"
    figures: "Path | UPath | None"
    page: Path | None

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Outputs":
        """Return the outputs that `--out`, `--no-figures` and `--report` name."""
        from hwopt.sweeps.storage import as_os_errors, place_of

        folder = figures = None
        if options.out is not None:
            folder = place_of("--out", options.out, room=len(_FIGURES))
            if not folder.name:
                raise UserError(f"--out '{options.out}': name a folder of its own, such as runs/first")
        if folder is not None and options.figures:
            figures = folder.with_name(folder.name + _FIGURES)
            try:
                with as_os_errors(figures):
                    in_the_way = figures.exists() and not figures.is_dir()
            except OSError as error:
                raise UserError(f"--out {options.out}: cannot be reached ({error})") from None
            if in_the_way:
                raise UserError(
                    f"--out {options.out}: figures go to {figures}, which is a file; move it, or add --no-figures"
                )
        return cls(options, folder, figures, page_path(options))

    def write(
        self,
        dataset: Any,
        draw: Callable[[Any, Path], Sequence[Path]],
        page_of: Callable[..., str],
        document_of: Callable[..., Any],
        screen_of: Callable[..., str],
    ) -> None:
        """Write figures and page of a study's dataset, then print its screen or JSON. Paths appear as the user wrote them."""
        from hwopt.output.html.files import write

        remote = self.folder is not None and not isinstance(self.folder, Path)
        drawn, out = (), None if self.options.out is None else str(self.folder if remote else Path(self.options.out))
        if self.figures is not None and not isinstance(self.figures, Path):
            drawn = _drawn_there(self.figures, partial(draw, dataset))
        elif self.figures is not None and out is not None:
            beside = Path(out).parent / self.figures.name
            drawn = tuple(str(beside / path.name) for path in draw(dataset, self.figures))
        if self.page is not None:
            write(self.page, page_of(dataset, self.options.command_line, out, drawn))
        show(self.options, lambda: document_of(dataset, out, drawn), lambda: screen_of(dataset, out, drawn))
