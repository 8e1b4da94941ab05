"""Validation of data files: every number with unit, provenance tag and source, and no unknown key."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NoReturn

import pydantic

from hwopt import escape, renamed
from hwopt.catalog.fields import COUNTS, ENTRIES, NEVER_ZERO, Entry
from hwopt.catalog.layer_kinds import LAYER_KINDS, read_layer_kinds
from hwopt.catalog.operator_rows import read_operators
from hwopt.errors import UserError, collected, suggest
from hwopt.units import COUNTED, MULTIPLIERS, read_amount, to_si
from hwopt.workload.operator_kinds import Operator

Provenance = Literal["datasheet", "measured", "paper", "estimate", "assumption", "derived"]


class StatedQuantity(pydantic.BaseModel):
    """One number as its file states it; `si` converts."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    value: float
    unit: str
    kind: Provenance
    source: str
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def si(self) -> float:
        """Return the value in SI units."""
        return to_si(self.value, self.unit)


class Record(pydantic.BaseModel):
    """One entry of the catalog: texts, quantities, tables of quantities, and the citations behind them."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    slug: str
    title: str
    kind: str
    text: dict[str, str | list[str]]
    quantities: dict[str, StatedQuantity]
    sources: dict[str, str]
    operators: tuple[Operator, ...] = ()
    operator_sources: tuple[str, ...] = ()  # full citations of the operators, or of the layer kinds
    layer_kinds: tuple[dict[str, float], ...] = ()

    def si(self, name: str, default: float | None = None) -> float:
        """Return a quantity in SI units.

        **Arguments:** `name`, with a dot for an entry of a table (`matmul_efficiency.bf16`); `default` where it may be
        absent.

        **Raises:** `UserError` for a quantity that the file lacks and that has no default.
        """
        return default if default is not None and name not in self.quantities else self._quantity(name).si

    def citation(self, name: str) -> str:
        """Return the source of a quantity, as a full citation.

        **Raises:** `UserError` for a quantity that the file lacks.
        """
        return self.sources[self._quantity(name).source]

    def _quantity(self, name: str) -> StatedQuantity:
        if name not in self.quantities:
            raise UserError(f"{self.kind} '{self.slug}' has no '{name}': {suggest(name, self.quantities)}")
        return self.quantities[name]

    def refuse(self, complaint: str) -> NoReturn:
        """Raise a `UserError` about this entry."""
        raise UserError(f"{ENTRIES[self.kind].noun} '{self.slug}': {complaint}")

    def words(self, name: str) -> list[str]:
        """Return a text field as a list: empty where it is absent, one element where the file has a single string."""
        text = self.text.get(name, [])
        return [text] if isinstance(text, str) else list(text)


OWN = "own-file"
"""Source of numbers that a user's own file states without one."""


def parse(
    kind: str, slug: str, table: Mapping[str, object], sources: Mapping[str, str], where: str, *, own: bool = False
) -> Record:
    """Return the record of a parsed file.

    **Arguments:**

    - `kind`: the type of entry.
    - `slug`: its name.
    - `table`: the file's content.
    - `sources`: the shared citations; those of the file's own `[sources]` are added.
    - `where`: the file's name for messages.
    - `own`: whether it is a user's own file, in which numbers may lack provenance and source, as in `"288 GB"`.

    **Raises:** `UserError` with all errors, a line each, with file and key:

    - an unknown or missing key;
    - a number without unit, provenance or source;
    - an unknown unit or source;
    - a value that is negative, infinite or not a number.
    """
    entry = ENTRIES[kind]
    if table.keys() - _keys(kind):
        known = {each: len(table.keys() & _keys(each)) for each in ENTRIES}
        other = max(ENTRIES, key=lambda each: known[each])
        if known[other] > known[kind] + 2:
            raise UserError(f"{where}: is not a {entry.noun}: its keys resemble those of a {ENTRIES[other].noun}")
    cited = table.get("sources", {})
    if not isinstance(cited, Mapping) or not all(isinstance(text, str) for text in cited.values()):
        raise UserError(f"{where}: 'sources' must be a table of texts")
    known = {**sources, **{name: escape.sentence(text) for name, text in cited.items()}}
    known |= {OWN: f"stated in {where}, without a source"} if own else {}
    text: dict[str, str | list[str]] = {}
    quantities: dict[str, StatedQuantity] = {}
    operators: tuple[Operator, ...] = ()
    of_rows: set[str] = set()
    kinds: tuple[dict[str, float], ...] = ()
    wrong: list[str] = []
    for key, value in table.items():
        with collected(wrong):
            if key == "sources":
                continue
            if key in entry.lists:
                operators = read_operators(value, known, Provenance.__args__, where, own)
                of_rows = {str(row["source"]) for row in value if "source" in row}  # pyright: ignore
            elif key == LAYER_KINDS and kind == "workloads":
                kinds = tuple(map(dict, read_layer_kinds(value, known, Provenance.__args__, where, own)))
                of_rows = {str(row["source"]) for row in value if "source" in row}  # pyright: ignore
            elif key in entry.text:
                text[key] = _text(value, where, key)
            elif key in entry.quantities:
                quantities[key] = _quantity(value, entry.quantities[key], known, where, key, own)
            elif key in entry.tables:
                quantities |= _table(value, entry, key, known, where, own)
            else:
                raise UserError(f"{where}: unknown key '{key}': {suggest(key, _keys(kind))}")
    if "unsupported" not in text:
        required = next((names for key, names in entry.lists.items() if key in table), entry.required)
        missing = [f"'{name}'" for name in required if name not in table]
        base = "" if not own else '; base = "NAME" takes it from an entry of the catalog'
        wrong += [f"{where}: {', '.join(missing)} {'are' if missing[1:] else 'is'} missing{base}"] if missing else []
    if wrong:
        raise UserError(*wrong)
    title = text.pop("title", slug)
    used = of_rows | {quantity.source for quantity in quantities.values()}
    return Record(
        slug=slug,
        title=title if isinstance(title, str) else slug,
        kind=kind,
        text=text,
        quantities=quantities,
        sources={name: known[name] for name in sorted(used)},
        operators=operators,
        operator_sources=tuple(known[name] for name in sorted(of_rows)),
        layer_kinds=kinds,
    )


def _keys(kind: str) -> set[str]:
    """Return the keys that an entry file of `kind` may contain."""
    entry = ENTRIES[kind]
    own = {LAYER_KINDS} if kind == "workloads" else set()
    return {*entry.text, *entry.quantities, *entry.tables, *entry.lists, *own, "sources"}


def _text(value: object, where: str, key: str) -> str | list[str]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return escape.sentence(value) if isinstance(value, str) else list(map(escape.sentence, value))
    raise UserError(f"{where}: '{key}' must be text or a list of texts, not {value!r}")


def _table(
    value: object, entry: Entry, key: str, sources: Mapping[str, str], where: str, own: bool
) -> dict[str, StatedQuantity]:
    members, unit = entry.tables[key]
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: '{key}' must be a table with entries such as '{members[0]}'")
    read: dict[str, StatedQuantity] = {}
    wrong: list[str] = []
    for member, number in value.items():
        with collected(wrong):
            if member not in members:
                raise UserError(f"{where}: unknown key '{key}.{member}': {suggest(member, members)}")
            read[f"{key}.{member}"] = _quantity(number, unit, sources, where, f"{key}.{member}", own)
    if wrong:
        raise UserError(*wrong)
    return read


def _is_bare(text: str) -> bool:
    """Return whether a text is only a number."""
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _plain(value: object, unit: str, at: str) -> object:
    """Return a bare number of a user's own file as a table with provenance and source; return anything else unchanged."""
    if isinstance(value, Mapping) and {"value", "unit"} <= value.keys() and not _OWN.keys() & value.keys():
        return {**value, **_OWN}
    if isinstance(value, str):
        if unit not in COUNTED and _is_bare(value):
            raise UserError(f"{at} = '{value}' has no unit: write {unit} or a unit that converts to it")
        try:
            return {"value": read_amount(value, "" if unit == "1" else unit), "unit": unit, **_OWN}
        except UserError as error:
            raise UserError(f"{at} = '{value}': {error}") from None
    if isinstance(value, int | float) and not isinstance(value, bool) and unit in COUNTED:
        return {"value": value, "unit": unit, **_OWN}
    return value


_OWN = {"kind": "assumption", "source": OWN}


def _quantity(value: object, unit: str, sources: Mapping[str, str], where: str, key: str, own: bool) -> StatedQuantity:
    at = f"{where}: '{key}'"
    value = _plain(value, unit, at) if own else value
    if not isinstance(value, Mapping):
        also = f', or text such as "3 {unit}"' if own else ""
        raise UserError(f"{at} must be a table {{ value, unit, kind, source }}{also}, not {value!r}")
    numbers = {name: float(part) if type(part) is int else part for name, part in value.items()}
    try:
        quantity = StatedQuantity.model_validate(numbers)
    except pydantic.ValidationError as failure:
        raise UserError(f"{at} {_explain(failure)}") from None
    if quantity.unit not in MULTIPLIERS:
        raise UserError(f"{at} has the unknown unit '{quantity.unit}': {suggest(quantity.unit, MULTIPLIERS)}")
    if MULTIPLIERS[quantity.unit][1] != unit:
        raise UserError(f"{at} is in '{quantity.unit}', but its SI unit is '{unit}'")
    if quantity.source not in sources:
        raise UserError(f"{at} has the unknown source '{quantity.source}': {suggest(quantity.source, sources)}")
    for name in ("value", "low", "high"):
        part = getattr(quantity, name)
        if part is not None and (not math.isfinite(part) or part < 0.0):
            raise UserError(f"{at} has {name} = {part}: it must be finite and not negative")
        if part == 0.0 and name == "value" and key.split(".")[0] in NEVER_ZERO:
            raise UserError(f"{at} = 0: the model divides by it; remove it if it is unknown")
        if part and not 1e-30 <= to_si(part, quantity.unit) <= 1e30:
            raise UserError(f"{at} has {name} = {part} {quantity.unit}, which is out of range; is the unit right?")
    if key in COUNTS and not quantity.value.is_integer():
        raise UserError(f"{at} = {quantity.value:g} must be an integer")
    low, high = quantity.low, quantity.high
    if low is not None and high is not None and low > high:
        raise UserError(f"{at} has a reversed range {low} .. {high}")
    # A user's own value, put into a copy of an entry, widens the range stated there.
    return quantity.model_copy(
        update={
            "low": None if low is None else min(low, quantity.value),
            "high": None if high is None else max(high, quantity.value),
        }
    )


def _explain(failure: pydantic.ValidationError) -> str:
    """Return the first complaint of pydantic in plain words."""
    first = failure.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"has no '{field}'"
    if first["type"] == "extra_forbidden":
        return f"has the unknown key '{field}': {suggest(field, StatedQuantity.model_fields)}"
    if first["type"] == "literal_error":
        return f"has the unknown kind {first['input']!r}: {suggest(str(first['input']), Provenance.__args__)}"
    return f"has {field} = {first['input']!r}: {first['msg'].lower()}"


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
