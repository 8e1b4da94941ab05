"""Every number of the catalogue with value, unit, range, kind and source; and the inputs and outputs of the model as declared."""

import math
from collections.abc import Iterator
from importlib import import_module

import equinox as eqx

from hwopt import catalog
from hwopt.catalog.fields import ENTRIES
from hwopt.catalog.schema import Record
from hwopt.design.variables import KNOWN
from hwopt.model.report import Margin
from hwopt.output.text.catalog_cards import stated_words
from hwopt.quantity import Quantity, quantities
from writing.markup import cell, table

_HEAD = ("number", "value", "range", "kind", "source")


def kinds() -> tuple[str, ...]:
    """Kinds of entries."""
    return tuple(catalog.kinds)


def page(kind: str) -> str:
    """All entries of a kind."""
    noun = ENTRIES[kind].noun
    parts = [
        f"# {kind.replace('_', ' ').capitalize()}",
        f"Every number of each {noun}, as its file in `hwopt/data/{kind}` states it: `hwopt catalog {kind} NAME` prints the same. "
        "[What the kinds of sources mean](index.md).",
    ]
    return "\n\n".join([*parts, *(_entry(catalog.record(kind, name)) for name in catalog.names(kind))])


def chosen(text: str) -> str:
    """Some numbers of a kind side by side: `chips: peak.bf16, memory_bandwidth of h100-sxm, b200`."""
    kind, _, rest = text.partition(":")
    keys, _, names = rest.partition(" of ")
    entries = [catalog.record(kind.strip(), name.strip()) for name in names.split(",")]
    wanted = [each.strip() for each in keys.split(",")]
    for key in wanted:
        if not any(key in entry.quantities for entry in entries):
            raise KeyError(f"{kind}: none of {names} states '{key}'")
    rows = [(f"`{entry.slug}`", *_row(entry, key)) for entry in entries for key in wanted if key in entry.quantities]
    return table((kind, *_HEAD), rows)


def inputs(names: str) -> str:
    """Fields of classes: symbol of the model, unit, meaning, key of the data file."""
    return "\n\n".join(_fields(name.strip()) for name in names.split(","))


def outputs(name: str) -> str:
    """Numbers of a report, with units."""
    rows = [(f"`{field}`", each.unit or "1", each.meaning) for field, each in quantities(_class(name)).items()]
    return table(("output", "unit", "meaning"), rows)


def variables() -> str:
    """Design variables that a question may free, with the widest box of each."""
    rows = [
        (
            f"`{each.name}`",
            each.unit or "1",
            ", ".join(each.words) or f"{each.lower:g} .. {each.upper:g}",
            "kinds" if each.words else "integer" if each.integer else "continuous",
            each.category,
            each.box_meaning,
        )
        for each in KNOWN.values()
        if each.category != "lookup"
    ]
    return table(("variable", "unit", "widest box", "values", "belongs to", "why the box ends there"), rows)


def margins(name: str) -> str:
    """Margins of a report: what fails where one is negative."""
    declared = {field: each for field, each in quantities(_class(name)).items() if isinstance(each, Margin)}
    rows = [(f"`{field}`", each.stop, each.meaning.format(over="x %")) for field, each in declared.items()]
    return table(("margin", "what stops a plan", "a plan that exceeds it"), rows)


def _entry(record: Record) -> str:
    said = "; ".join(f"{name} {_words(value)}" for name, value in record.text.items() if value and name != "title")
    rows = [_row(record, key) for key in record.quantities]
    return f"## {record.slug}\n\n<p>{cell(record.title)}{'. ' + cell(said) if said else ''}</p>\n\n{table(_HEAD, rows)}"


def _row(record: Record, key: str) -> tuple[str, str, str, str, str]:
    q = record.quantities[key]
    spread = f"{q.low:g} to {q.high:g}" if q.low is not None and q.high is not None else ""
    note = f" ({q.note})" if q.note else ""
    return f"`{key}`", stated_words(key, q), spread, q.kind, record.citation(key) + note


def _class(path: str) -> type[eqx.Module]:
    module, _, name = path.strip().rpartition(".")
    return getattr(import_module(module), name)


def _fields(path: str) -> str:
    kind = _class(path)
    rows = [(f"`{field}`", each.unit or "1", each.meaning, *_file(each)) for field, each in quantities(kind).items()]
    return f"**`{path}`**\n\n{table(('field', 'unit', 'meaning', 'key in data files', 'at most'), rows)}"


def _file(each: Quantity) -> tuple[str, str]:
    key = f"`{each.key}`" if each.key else "follows from others"
    return key, f"{each.most:g}" if math.isfinite(each.most) else ""


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def stated() -> Iterator[tuple[str, str, str, str]]:
    """Kind, entry, key and citation of every number: what a test looks through."""
    for kind in catalog.kinds:
        for name in catalog.names(kind):
            record = catalog.record(kind, name)
            for key in record.quantities:
                yield kind, name, key, record.citation(key)
