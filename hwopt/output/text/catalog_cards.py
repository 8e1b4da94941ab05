"""Catalog as lists and cards: every number with its unit, type of source, and citation."""

from dataclasses import fields
from typing import Any

import numpy as np

from hwopt import catalog, escape
from hwopt.catalog.fields import ENTRIES
from hwopt.catalog.schema import Record, StatedQuantity
from hwopt.errors import UserError, suggest
from hwopt.quantity import quantities
from hwopt.units import pretty
from hwopt.workload.operator_kinds import Operator


def kinds() -> tuple[dict[str, Any], str]:
    """Return all types of catalog entries with their counts, as JSON and as text."""
    counts = {kind: len(catalog.names(kind)) for kind in catalog.kinds}
    lines = [f"  {kind:<12} {count:>4}  {ENTRIES[kind].meaning}" for kind, count in counts.items()]
    return {"kinds": counts}, "\n".join(
        [
            "Catalog entries by kind; hwopt catalog KIND lists them, hwopt catalog KIND NAME shows one.",
            *lines,
            "hwopt catalog evidence counts the measured runs behind the features of plans.",
        ]
    )


def entries(kind: str) -> tuple[dict[str, Any], str]:
    """Return the entries of one type with their titles, as JSON and as text."""
    if kind not in catalog.kinds:
        raise UserError(f"unknown kind '{kind}' of catalog entry: {suggest(kind, (*catalog.kinds, 'evidence'))}")
    titles = {name: catalog.record(kind, name).title for name in catalog.names(kind)}
    width = max(map(len, titles), default=0)
    return {"kind": kind, "entries": titles}, "\n".join(f"{name:<{width}}  {title}" for name, title in titles.items())


def entry(record: Record, asked: str) -> tuple[dict[str, Any], str]:
    """Return one catalog entry as JSON and as text: its text, then a row for each number.

    **Arguments:** `record`: its content; `asked`: its name, or the path of a file.
    """
    stated = {name: _quantity(q, record.citation(name)) for name, q in record.quantities.items()}
    document = {"slug": record.slug, "title": record.title, "text": dict(record.text), "quantities": stated}
    operators = [_operator(each) for each in record.operators]
    document |= {"operators": operators} if operators else {}
    document |= {"layer_kinds": list(record.layer_kinds)} if record.layer_kinds else {}
    lines = [f"{record.title}  ({record.kind} {record.slug})"]
    lines += [f"  {name}: {_words(value)}" for name, value in record.text.items() if value and name != "title"]
    lines.append("")
    width = max(map(len, record.quantities), default=0)
    for name, q in record.quantities.items():
        spread = f" [{q.low:g} .. {q.high:g}]" if q.low is not None and q.high is not None else ""
        lines.append(f"  {name:<{width}}  {stated_words(name, q)}{spread}  {q.kind}: {record.citation(name)}")
    if operators:
        said = (
            ", ".join(f"{key} {_number(value)}" for key, value in each.items() if key != "op") for each in operators
        )
        lines += ["", "Operators of a sample (rows: number of times in a sample; otherwise once per token)"]
        lines += [f"  {each['op']:<12} {words}" for each, words in zip(operators, said, strict=True)]
    lines += _kind_lines(record)
    lines += [f"  from {source}" for source in record.operator_sources]
    if record.kind == "workloads" and (counts := catalog.parameter_counts(asked)):
        document["counts"] = counts
        lines += ["", f"Parameters in closed form: {_count_words(counts)}"]
    return document, "\n".join(lines)


def stated_words(name: str, q: StatedQuantity) -> str:
    """Return a number as its file states it: a year without a comma, a ratio or a count without a unit."""
    return (
        f"{q.value:.0f}" if name == "year" else f"{pretty(q.value, '', 6)} {q.unit if q.unit != '1' else ''}".rstrip()
    )


def _operator(operator: Operator) -> dict[str, Any]:
    """Return the fields of an operator, without those at their default."""
    own = {each.name: (getattr(operator, each.name), each.default) for each in fields(operator)}
    return {"op": operator.op} | {name: value for name, (value, usual) in own.items() if value != usual}


def _number(value: Any) -> str:
    return f"{value:,.12g}" if isinstance(value, float) else str(value)


def _kind_lines(record: Record) -> list[str]:
    rows = [f"  {', '.join(f'{key} {_number(value)}' for key, value in each.items())}" for each in record.layer_kinds]
    return ["", "Kinds of layers, with the fields in which they differ", *rows] if rows else []


def _count_words(counts: dict[str, float]) -> str:
    """Return the parameters of a model in words: all and active, tables of tokens, parts left out, the card's numbers."""
    said = {key: f"{1e-9 * count:,.4g} B" for key, count in counts.items() if count}
    parts = [f"{said['parameters']}, {said['active_parameters']} per token"] if "parameters" in said else []
    tables = [f"{said[key]} of the {key}" for key in ("embedding", "head") if key in said]
    parts += [f"both include {' and '.join(tables)}"] if tables else []
    known = ("parameters", "active_parameters", "embedding", "head", "stated_parameters", "stated_active_parameters")
    names = {"multi_token": "multi-token layers"}
    parts += [f"both leave out {said[key]} of {names.get(key, key)}" for key in said if key not in known]
    stated = [said[key] for key in ("stated_parameters", "stated_active_parameters") if key in said]
    return "; ".join(parts + ([f"its card states {' and '.join(stated)}"] if stated else []))


def shape(path: str) -> tuple[dict[str, Any], str]:
    """Return the shape read from a model's `config.json`, with its parameter counts, as JSON and as text."""
    model = catalog.model_of(path)
    every = {
        name: (np.asarray(value), each)
        for name, each in quantities(type(model)).items()
        if (value := getattr(model, name)) is not None
    }
    numbers = {name: (float(value), each) for name, (value, each) in every.items() if value.ndim == 0}  # scalars only
    counts = catalog.parameter_counts(path)
    record = catalog.record("workloads", path)
    lines = [
        f"{escape.line(path)}, a model of {pretty(counts['parameters'])} parameters, "
        f"{pretty(counts['active_parameters'])} active per token",
        f"  {_count_words(counts)}",
        *(f"  {escape.line(each)}" for each in (*record.words("approximations"), *record.sources.values())),
        "",
    ]
    width = max(map(len, numbers))
    lines += [
        f"  {name:<{width}}  {pretty(value, each.unit, 6):>14}  {each.meaning}"
        for name, (value, each) in numbers.items()
    ]
    lines += _kind_lines(record)
    shape = {name: value for name, (value, _) in numbers.items()}
    said: dict[str, Any] = {"approximations": record.words("approximations")}
    said |= {"layer_kinds": list(record.layer_kinds)} if record.layer_kinds else {}
    counted = {key: counts[key] for key in ("parameters", "active_parameters")}
    return {"file": path, "shape": shape, **counted, "counts": counts, **said}, "\n".join(lines)


def _quantity(q: StatedQuantity, source: str) -> dict[str, Any]:
    """Return the stated fields of a number: value, unit, range, type, source and note."""
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
