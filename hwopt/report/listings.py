"""The catalogue as lists and cards: every number with its unit, kind and source."""

from typing import Any

from hwopt import catalog
from hwopt.catalog.schema import Quantity, Record
from hwopt.errors import UserError, suggest
from hwopt.quantity import quantities
from hwopt.units import pretty
from hwopt.workload.transformer import active_parameters, total_parameters


def kinds() -> tuple[dict[str, Any], str]:
    """All kinds of entries, with how many there are."""
    counts = {kind: len(catalog.names(kind)) for kind in catalog.kinds}
    lines = [f"  {kind:<12} {count:>3} entries   hwopt catalog {kind}" for kind, count in counts.items()]
    return {"kinds": counts}, "\n".join(["The catalogue:", *lines])


def entries(kind: str) -> tuple[dict[str, Any], str]:
    """Entries of one kind, with their titles."""
    if kind not in catalog.kinds:
        raise UserError(f"unknown kind '{kind}' of catalogue entry: {suggest(kind, catalog.kinds)}")
    titles = {name: catalog.record(kind, name).title for name in catalog.names(kind)}
    width = max(map(len, titles), default=0)
    return {"kind": kind, "entries": titles}, "\n".join(f"{name:<{width}}  {title}" for name, title in titles.items())


def entry(record: Record) -> tuple[dict[str, Any], str]:
    """One entry: text, then a row a number."""
    quantities = {name: _quantity(q, record.citation(name)) for name, q in record.quantities.items()}
    document = {"slug": record.slug, "title": record.title, "text": dict(record.text), "quantities": quantities}
    lines = [f"{record.title}  ({record.kind} {record.slug})"]
    lines += [f"  {name}: {_words(value)}" for name, value in record.text.items() if value and name != "title"]
    lines.append("")
    width = max(map(len, record.quantities), default=0)
    for name, q in record.quantities.items():
        spread = f" [{q.low:g} .. {q.high:g}]" if q.low is not None and q.high is not None else ""
        lines.append(f"  {name:<{width}}  {pretty(q.value, '', 6)} {q.unit}{spread}  {q.kind}: {record.citation(name)}")
    return document, "\n".join(lines)


def shape(path: str) -> tuple[dict[str, Any], str]:
    """What is read of a model's `config.json`: its shape, and the parameters that follow."""
    model = catalog.transformer(path)
    fields = {name: (float(getattr(model, name)), each) for name, each in quantities(type(model)).items()}
    counts = {"parameters": float(total_parameters(model)), "active_parameters": float(active_parameters(model))}
    lines = [
        f"{path}, a model of {pretty(counts['parameters'])} parameters, {pretty(counts['active_parameters'])} a token",
        "",
    ]
    width = max(map(len, fields))
    lines += [
        f"  {name:<{width}}  {pretty(value, each.unit, 6):>14}  {each.meaning}"
        for name, (value, each) in fields.items()
    ]
    return {"file": path, "shape": {name: value for name, (value, _) in fields.items()}, **counts}, "\n".join(lines)


def _quantity(q: Quantity, source: str) -> dict[str, Any]:
    """What is known of a number."""
    said = {
        "value": q.value,
        "unit": q.unit,
        "low": q.low,
        "high": q.high,
        "kind": q.kind,
        "source": source,
        "note": q.note,
    }
    return {key: value for key, value in said.items() if value not in (None, "")}


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
