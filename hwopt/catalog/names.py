"""Names of catalogue entries: the slug rule, the aliases, and the look-up that refuses with a suggestion."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from hwopt.catalog.contributed import contributed
from hwopt.catalog.fields import KINDS
from hwopt.errors import UserError, suggest

_ALIASES = "aliases.toml"


def slug(name: str) -> str:
    """A name as a file is called: lower case, no brackets, `-` for blanks, underscores and slashes.

    **Arguments:** `name` as printed anywhere, such as `meta-llama/Llama-3.1-405B` or `MI250X GCD`.

    **Returns:** the slug, such as `meta-llama-llama-3.1-405b` or `mi250x-gcd`.
    """
    text = re.sub(r"\([^)]*\)", " ", name).strip().lower()
    text = re.sub(r"[\s_/,;:+]+", "-", text)
    return re.sub(r"-{2,}", "-", text).strip("-")


def data_root() -> Traversable:
    """The folder of data files that ships with the package."""
    return files("hwopt") / "data"


def check_kind(kind: str) -> str:
    """`kind`, or an error that names the kinds.

    **Raises:** `UserError` for a kind that is not in `KINDS`.
    """
    if kind not in KINDS:
        raise UserError(f"unknown kind of catalogue entry '{kind}': {suggest(kind, KINDS)}")
    return kind


@cache
def names(kind: str) -> list[str]:
    """The slugs of all entries of a kind, those of other packages among them, sorted; reads file names only.

    **Returns:** each name once, even if several packages claim it (`find` then refuses it).

    **Raises:** `UserError` for an unknown kind.
    """
    return sorted({*shipped(kind), *contributed(kind)})


@cache
def shipped(kind: str) -> frozenset[str]:
    """The slugs of a kind that come with hwopt.

    **Raises:** `UserError` for an unknown kind.
    """
    folder = data_root() / check_kind(kind)
    return frozenset(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


@cache
def aliases(kind: str) -> dict[str, str]:
    """Slug of each alias -> slug of its entry, from `hwopt/data/aliases.toml`.

    **Raises:** `UserError` for an unknown kind.
    """
    check_kind(kind)
    table = tomllib.loads((data_root() / _ALIASES).read_text(encoding="utf-8"))
    return {slug(alias): target for alias, target in table.get(kind, {}).items()}


def find(kind: str, name: str) -> str:
    """The entry's slug for any spelling of its name: itself, its slug, or an alias.

    **Arguments:** `kind` one of `KINDS`; `name` as a user or a table prints it.

    **Raises:** `UserError` with the closest names, or where several packages claim the name.

    **Example:**

        >>> find("chips", "H100-SXM-80GB")
        'h100-sxm'
    """
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"the name of an entry of '{kind}' is empty: {suggest('', names(kind))}")
    known, other = names(kind), aliases(kind)
    # Brackets may tell two entries apart ("2 per chip"): they are ignored only where the whole spelling is unknown.
    for wanted in (name.strip().lower(), slug(re.sub(r"[()]", " ", name)), slug(name)):
        if wanted in known:
            _check_rivals(kind, wanted)
            return wanted
        if wanted in other:
            return other[wanted]
    spellings = {*known, *other}
    raise UserError(f"unknown name '{name}' in the catalogue's {kind}: {suggest(slug(name) or name, spellings)}")


def _check_rivals(kind: str, name: str) -> None:
    """Refuses a name that another package claims too: picking one would let an installation change an unchanged script's answer."""
    files = contributed(kind).get(name, ())
    owners = [each.owner for each in files]
    if name in shipped(kind):
        owners.append("hwopt")
    elif name in aliases(kind):
        owners.append(f"hwopt (another name of '{aliases(kind)[name]}')")
    if files and len(owners) > 1:
        raise UserError(
            f"'{name}' of the catalogue's {kind} is offered by {' and by '.join(sorted(owners))}: uninstall one, or ask its "
            "authors to rename the file"
        )
    for each in files:
        if each.path.stem != slug(name):
            raise UserError(f"{each.path}: call the file {slug(name)}.toml, as names of the catalogue are written")
