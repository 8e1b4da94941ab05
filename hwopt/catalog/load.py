"""On-demand reading of data files: catalog entries by name, a user's own files by path."""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hwopt import escape
from hwopt.catalog.contributed import contributed
from hwopt.catalog.fields import ENTRIES
from hwopt.catalog.huggingface import config_table
from hwopt.catalog.names import aliases, check_kind, data_root, find, names, slug
from hwopt.catalog.schema import Record, parse
from hwopt.catalog.text_files import read_text
from hwopt.errors import UserError
from hwopt.quantity import quantities
from hwopt.units import ZERO_CELSIUS_K, read_number

Module = TypeVar("Module")


def leaf(value: object) -> Any:
    """Return a number or a short list of numbers as a model input: a NumPy float64 array, cast at the model's boundary."""
    return np.asarray(value, np.float64)


def is_path(name: object) -> bool:
    """Return whether a name means a user's own file: it is a `Path`, or ends in `.toml` or `.json`."""
    return isinstance(name, Path) or (isinstance(name, str) and name.lower().endswith((".toml", ".json")))


def config_file(kind: str, name: str | Path) -> Path | None:
    """Return the Hugging Face `config.json` of a workload: the named file itself, or the one in the named folder; else None.

    A bare name that is in the catalog means the catalog entry, even if a folder has the same name.
    """
    if kind != "workloads" or not isinstance(name, str | os.PathLike):
        return None
    path = Path(name)
    if path.suffix.lower() == ".json":
        return path
    known = path.name == name and slug(str(name)) in {*names(kind), *aliases(kind)}
    return path / "config.json" if str(name).strip() and os.path.isdir(path) and not known else None


@cache
def sources() -> Mapping[str, str]:
    """Return the citations of the shipped data, by id."""
    return tomllib.loads((data_root() / "sources.toml").read_text(encoding="utf-8"))


def record(kind: str, name: str | Path) -> Record:
    """Return one entry of the catalog, or a user's own file of the same form.

    **Arguments:** `kind`: the type of entry, one of `kinds`; `name`: any spelling that `find` knows, or the path of a
    `.toml` file. Such a file may cite the catalog's sources and add its own in a table `[sources]`. A workload may be a
    Hugging Face `config.json`, or a folder that contains one.

    **Returns:** its texts and quantities, unconverted; `Record.si` converts.

    **Raises:** `UserError`, one line, for an unknown name, an unreadable file, or a file that violates the schema.
    """
    check_kind(kind)
    if is_path(name) or config_file(kind, name):
        return _read(kind, Path(name), own=True)
    return _entry(kind, find(kind, str(name)))


def supported(kind: str, name: str | Path) -> Record:
    """Return an entry like `record`, but refuse one that only documents why it cannot be modeled.

    **Raises:** `UserError` as in `record`, and with the entry's own reason.
    """
    entry = record(kind, name)
    if "unsupported" in entry.text:
        raise UserError(f"{ENTRIES[kind].noun} '{entry.slug}' cannot be modeled: {entry.text['unsupported']}")
    return entry


@cache
def _entry(kind: str, slug: str) -> Record:
    """Return an entry by its slug, from another package if one contributes it. There, too, numbers need sources."""
    for each in contributed(kind).get(slug, ()):
        return _read(kind, each.path, own=False)
    return parse(kind, slug, _shipped(kind, slug), sources(), f"{kind}/{slug}.toml")


def _shipped(kind: str, slug: str) -> dict[str, Any]:
    """Return the content of a shipped file, merged over the shipped entry that it names as `base`, if any."""
    table = tomllib.loads((data_root() / kind / f"{slug}.toml").read_text(encoding="utf-8"))
    return _over(_shipped(kind, table.pop("base")), table) if "base" in table else table


def _read(kind: str, path: Path, *, own: bool) -> Record:
    return parse(kind, escape.line(path.stem), _on_its_base(kind, path, ()), sources(), escape.line(str(path)), own=own)


def _on_its_base(kind: str, path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Return a user's file, merged over the entry that it names as `base`, if any.

    The base supplies everything that the file leaves out, except the title and the stack that it follows.
    """
    if config := config_file(kind, path):
        return config_table(config)
    if path.suffix.lower() != ".toml":
        raise UserError(f"{path}: a {ENTRIES[kind].noun} must be a .toml file")
    table = read_toml(path)  # refuses impossible file names
    if path.resolve() in above:
        raise UserError(f"{path}: 'base' refers back to the file itself")
    if "base" not in table:
        return table
    name = table.pop("base")
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{path}: 'base' must name a {ENTRIES[kind].noun} of the catalog or a .toml file")
    if is_path(name):
        base = _on_its_base(kind, path.parent / name, (*above, path.resolve()))
    else:
        try:
            slug = find(kind, name)
        except UserError as error:
            raise UserError(f"{path}: 'base': {error}") from None
        other = contributed(kind).get(slug, ())
        base = _on_its_base(kind, other[0].path, (*above, path.resolve())) if other else _shipped(kind, slug)
    return _over(base, table)


def _over(base: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's content merged over that of its base: key by key, also within a table of numbers."""
    merged: dict[str, Any] = {key: value for key, value in base.items() if key not in ("title", "follows")}
    for key, value in table.items():
        under = merged.get(key)
        own_table = isinstance(under, dict) and isinstance(value, dict) and "value" not in value
        merged[key] = {**under, **value} if own_table else value  # pyright: ignore[reportGeneralTypeIssues]
    return merged


def read_toml(path: Path) -> dict[str, object]:
    """Return the content of a user's TOML file.

    **Raises:** `UserError` for a file that cannot be read or is not TOML.
    """
    text = read_text(path)
    if _ENDLESS.search(text):
        raise UserError(
            f"{path} holds a number of more than 255 digits, outside the range of 64-bit floating-point numbers"
        )
    try:
        return tomllib.loads(text, parse_float=_number)
    except ValueError as failure:
        raise UserError(f"{path} is not TOML: {failure}") from None
    except RecursionError:
        raise UserError(f"{path} is not valid TOML: it is nested too deeply") from None


_ENDLESS = re.compile("[0-9a-fA-F](?:_?[0-9a-fA-F]){255}")


def _number(text: str) -> float:
    """Read a number as on the command line, or in a form of TOML's own: with _ between digits, inf, nan."""
    return read_number(text.replace("_", "")) if text[-1].isdigit() else float(text)


def built(kind: type[Module], entries: Record | Mapping[str, Record], **computed: Any) -> Module:
    """Return a module of the model, built from catalog entries.

    **Arguments:**

    - `kind`: class of the module.
    - `entries`: the entry that states its fields; or several, by the `of` of the fields' declarations.
    - `computed`: values, in SI units, of fields that no file states, or that replace the stated ones.

    **Raises:** `UserError` for a number that the entry lacks, or that is outside its declared bounds.
    """
    records = {"": entries} if isinstance(entries, Record) else entries
    declared, values = quantities(kind), dict(computed)
    for name, each in declared.items():
        if name in computed:
            continue
        record, key = records[each.of], str(each.key)
        if each.elements:
            values[name] = [record.si(f"{key}.{element}") for element in each.elements]
            continue
        shift = ZERO_CELSIUS_K if each.stated == "degC" else 0.0
        values[name] = record.si(key, each.default) + shift
        if not each.least <= values[name] <= each.most:
            over = (
                f"not exceed {each.most - shift:g}"
                if values[name] > each.most
                else f"be at least {each.least - shift:g}"
            )
            record.refuse(f"'{key}' = {values[name] - shift:.6g} must {over}")
    return kind(**{name: leaf(value) if name in declared else value for name, value in values.items()})


def sources_of(*records: Record) -> list[str]:
    """Return the citations of records, each once, sorted.

    **Arguments:** `records` as returned by `record`.
    """
    return sorted({citation for each in records for citation in each.sources.values()})


SMALLEST, LARGEST = 1e-30, 1e30
"""Range of numbers that a user may state, in SI units. Beyond it products overflow float64, and no physical quantity is
there."""


def positive(value: float | str, name: str, *, least: float = 0.0, most: float = LARGEST) -> float:
    """Return `value` as a float, checked.

    **Raises:** `UserError` unless it is finite and above zero (not below `least`, not above `most`).
    """
    try:
        number = read_number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a number, not {value!r}") from None
    if not np.isfinite(number) or number <= 0.0 or number < least:
        bound = "above zero" + (f", at least {least:g}" if least > 0.0 else "")
        raise UserError(f"{name} must be finite and {bound}, not {number:g}")
    if not SMALLEST <= number <= most:
        raise UserError(f"{name} = {number:g} lies outside {max(least, SMALLEST):g} .. {most:g}; is the unit right?")
    return number
