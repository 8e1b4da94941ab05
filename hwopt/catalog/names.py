"""Names of catalog entries: the slug rule, the aliases, and a lookup that suggests close names for unknown ones."""

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
    """Return the file-name form of a name: lower case, no brackets, `-` for blanks, underscores and slashes.

    **Arguments:** `name` in any printed form, such as `meta-llama/Llama-3.1-405B` or `MI250X GCD`.

    **Returns:** the slug, such as `meta-llama-llama-3.1-405b` or `mi250x-gcd`.
    """
    text = re.sub(r"\([^)]*\)", " ", name).strip().lower()
    text = re.sub(r"[\s_/,;:+]+", "-", text)
    return re.sub(r"-{2,}", "-", text).strip("-")


def data_root() -> Traversable:
    """Return the folder of data files that ships with the package."""
    return files("hwopt") / "data"


def check_kind(kind: str) -> str:
    """Return `kind` if it is a type of catalog entry.

    **Raises:** `UserError` that suggests the types of `KINDS`, for any other word.
    """
    if kind not in KINDS:
        raise UserError(f"unknown kind of catalog entry '{kind}': {suggest(kind, KINDS)}")
    return kind


@cache
def names(kind: str) -> list[str]:
    """Return the sorted slugs of all entries of a type, including those of other packages. Reads file names only.

    **Returns:** each name once, even if several packages claim it (`find` then refuses it).

    **Raises:** `UserError` for an unknown type of entry.
    """
    return sorted({*shipped(kind), *contributed(kind)})


@cache
def shipped(kind: str) -> frozenset[str]:
    """Return the slugs of a type of entry that ship with hwopt.

    **Raises:** `UserError` for an unknown type of entry.
    """
    folder = data_root() / check_kind(kind)
    return frozenset(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


@cache
def aliases(kind: str) -> dict[str, str]:
    """Return the aliases of a type of entry, as slug of the alias -> slug of the entry, from `hwopt/data/aliases.toml`.

    **Raises:** `UserError` for an unknown type of entry.
    """
    check_kind(kind)
    table = tomllib.loads((data_root() / _ALIASES).read_text(encoding="utf-8"))
    return {slug(alias): target for alias, target in table.get(kind, {}).items()}


def find(kind: str, name: str) -> str:
    """Return the slug of the entry that a name means: the entry's slug, another spelling, or an alias.

    **Arguments:** `kind`: the type of entry, one of `KINDS`; `name` as a user or a table writes it.

    **Raises:** `UserError` with the closest names, or where several packages claim the name.

    **Example:**

        >>> find("chips", "H100-SXM-80GB")
        'h100-sxm'
    """
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"the name of an entry of '{kind}' is empty: {suggest('', names(kind))}")
    known, other = names(kind), aliases(kind)
    # Brackets may distinguish two entries ("2 per chip"): they are ignored only where the whole spelling is unknown.
    for wanted in (name.strip().lower(), slug(re.sub(r"[()]", " ", name)), slug(name)):
        if wanted in known:
            _check_rivals(kind, wanted)
            return wanted
        if wanted in other:
            return other[wanted]
    spellings = {*known, *other}
    raise UserError(f"unknown name '{name}' in the catalog's {kind}: {suggest(slug(name) or name, spellings)}")


def _check_rivals(kind: str, name: str) -> None:
    """Refuse a name that several packages claim, so that an installation cannot change the results of an unchanged script.

    **Raises:** `UserError` for such a name, and for a contributed file whose name is not a slug.
    """
    files = contributed(kind).get(name, ())
    owners = [each.owner for each in files]
    if name in shipped(kind):
        owners.append("hwopt")
    elif name in aliases(kind):
        owners.append(f"hwopt (another name of '{aliases(kind)[name]}')")
    if files and len(owners) > 1:
        raise UserError(
            f"'{name}' in the catalog's {kind} is offered by {' and by '.join(sorted(owners))}: uninstall one, or ask its "
            "authors to rename the file"
        )
    for each in files:
        if each.path.stem != slug(name):
            raise UserError(f"{each.path}: rename the file to {slug(name)}.toml, the spelling of catalog names")
