"""Discovery of data files of other packages by entry point, so that their chips appear in the catalog."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hwopt.errors import UserError

GROUP = "hwopt.data"
"""Entry-point group under which a distribution offers data files: `any_name = "package"`. The package's folder is laid out
as `hwopt/data`: `chips/my-chip.toml`, `sites/my-site.toml`, ..."""


class Contribution(NamedTuple):
    """A data file of another package, with a description of the distribution that owns it."""

    path: Path
    owner: str


@cache
def contributed(kind: str) -> dict[str, tuple[Contribution, ...]]:
    """Return the files that other packages offer for one type of entry, by file stem. Imports none of the packages.

    **Arguments:** `kind`: the type of entry, one of `fields.KINDS`.

    **Returns:** all files of each stem. There are several where packages disagree (`names.find` then refuses the name).

    **Raises:** `UserError` where an entry point names a package that cannot be found.
    """
    found: dict[str, dict[Path, Contribution]] = {}
    for entry in entry_points(group=GROUP):
        owner = _describe(entry)
        for folder in _folders(entry, owner):
            for path in sorted((folder / kind).glob("*.toml")):
                # A distribution found twice, such as an editable install, offers one file.
                found.setdefault(path.stem.lower(), {}).setdefault(path.resolve(), Contribution(path, owner))
    return {stem: tuple(files.values()) for stem, files in found.items()}


def _folders(entry: EntryPoint, owner: str) -> list[Path]:
    """Return the folders of an entry point's package; its parent package may be imported, the package itself is not."""
    try:
        spec = find_spec(entry.value)
    except Exception as error:  # the parent is a third party's and may fail in any way
        raise UserError(f"data files of {owner} cannot be found: {type(error).__name__}: {error}") from error
    if spec is None or spec.submodule_search_locations is None:
        raise UserError(
            f"data files of {owner} cannot be found: '{entry.value}' is not an installed package; install or uninstall it again"
        )
    return [Path(folder) for folder in spec.submodule_search_locations]


def _describe(entry: EntryPoint) -> str:
    return (
        f"distribution '{entry.dist.name}' ({entry.value})"
        if entry.dist
        else f"an unnamed distribution ({entry.value})"
    )
