"""Layers of a `config.json` that differ in kind: recurrent scans, attention, an MLP or experts alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hwopt.catalog.config_families import ConfigFamily, ScanKeys
from hwopt.catalog.config_layers import mixture, sparse_layers
from hwopt.catalog.config_reader import Config, short

_LETTERS = _SCAN, _ATTENTION, _MLP, _EXPERTS = "M", "*", "-", "E"
"""Letters of `hybrid_override_pattern` for the kinds of layers."""

_WORDS = {"linear_attention": _SCAN, "mamba": _SCAN, "full_attention": _ATTENTION, "attention": _ATTENTION}
_ALONE = {"mlp": _MLP, "moe": _EXPERTS}
"""Words of a list of layers, and those of layers with one mixer or one MLP."""


def with_layers(config: Mapping[str, Any], family: ConfigFamily) -> Mapping[str, Any]:
    """Return a config with its number of layers where a text or list of layers alone states it."""
    spec, key = family.scan, family.layers[0]
    if spec is None or not spec.letters or config.get(key) is not None:
        return config
    stated = [config[each] for each in (spec.letters, *spec.layer_lists) if isinstance(config.get(each), str | list)]
    return {**config, key: len(stated[0])} if stated else config


def hybrid(read: Config, spec: ScanKeys, shape: Mapping[str, float]) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the fields of `Transformer` of a model with scans, and its kinds of layers where they differ.

    **Arguments:** `read`: the config; `spec`: the family's keys for scans; `shape`: the fields read so far.

    **Raises:** `UserError` for numbers or lists of layers that contradict each other.
    """
    fields, layers, experts = dict(shape), int(shape["layers"]), read.family.experts
    kinds = _kinds(read, spec, layers)
    if experts and experts.none_width and read.number(experts.count, least=0.0) == 0.0:
        fields["ffn"], experts = read.number([experts.none_width]), None
    sparse = [kind == _EXPERTS for kind in kinds]
    if experts and not spec.alone:
        sparse = sparse_layers(read, experts, layers)
    if experts and any(sparse):
        fields |= mixture(read, experts, fields) | {"moe_layers": float(sum(sparse))}
    gate = {"gate_dim": shape["v_dim"]} if spec.attention_gate and read.flag(spec.attention_gate) else {}
    own = {
        _SCAN: _scan(read, spec, shape["hidden"]) if _SCAN in kinds else {}, _ATTENTION: gate, _MLP: {}, _EXPERTS: {},
    }  # fmt: skip
    rows = [
        {"layers": float(count), "moe": float(moe), "attends": float(kind == _ATTENTION or spec.beside)} | own[kind]
        | ({"ffn": 0.0} if spec.alone and kind in (_SCAN, _ATTENTION) else {})
        for (kind, moe), count in Counter(zip(kinds, sparse, strict=True)).items()
    ]  # fmt: skip
    if len(rows) > 1 or spec.alone:
        return fields, rows
    alike = {key: value for key, value in rows[0].items() if key not in ("layers", "moe")}
    if alike["attends"]:
        del alike["attends"]
    return fields | alike, []


def _scan(read: Config, spec: ScanKeys, hidden: float) -> dict[str, float]:
    """Return the fields of a scan.

    **Raises:** `UserError` for heads that do not divide their width or differ from it, and groups that do not divide heads.
    """
    heads = read.number(spec.heads)
    by = spec.width if spec.width and read.value(spec.width) is not None else spec.expand
    width = read.number([by]) * (hidden if by == spec.expand else 1.0) if by else 0.0
    key, value = read.look_up(spec.value_dim)
    if value == "auto" and width and width % heads == 0:
        value_dim = width / heads
    else:
        value_dim = read.number(spec.value_dim)
    if width and heads * value_dim != width:
        read.refuse(f"'{spec.heads[0]}' x '{key or spec.value_dim[0]}' = {heads * value_dim:g} is not {width:g}, the width that "
                    f"'{by}' states")  # fmt: skip
    groups = read.number(spec.key_heads) if spec.key_heads else heads
    if heads % groups:
        read.refuse(
            f"'{read.look_up(spec.key_heads)[0]}' = {groups:g} does not divide the {heads:g} heads of its scans"
        )
    rank = value_dim if spec.low_rank else 0.0
    full = bool(spec.full_gate) and read.flag(spec.full_gate, False)
    return {
        "scan_heads": heads, "scan_key_heads": groups, "scan_key_dim": read.number(spec.key_dim), "scan_value_dim": value_dim,
        "scan_conv": read.number(spec.conv) if spec.conv else 0.0, "scan_gates": float(spec.gates), "scan_delta": float(spec.delta),
        "scan_decay_rank": rank, "scan_gate_rank": 0.0 if full else rank,
    }  # fmt: skip


def _kinds(read: Config, spec: ScanKeys, layers: int) -> str:
    """Return a letter for each layer, from every key that states them.

    **Raises:** `UserError` for an unknown word or letter, keys that contradict each other, and if all are missing.
    """
    words = _WORDS | (_ALONE if spec.alone else {})
    stated: dict[str, str] = {}
    for key in spec.layer_lists:
        if entries := read.entries(key, layers):
            stated[key] = _translated(read, key, entries, words)
    if spec.letters and (letters := read.value(spec.letters)) is not None:
        if not isinstance(letters, str) or len(letters) != layers:
            read.refuse(f"'{spec.letters}' must have a letter for each of the {layers} layers, not {short(letters)}")
        stated[spec.letters] = _translated(read, spec.letters, letters, {each: each for each in _LETTERS})
    if spec.flags and (flags := read.entries(spec.flags, layers)):
        stated[spec.flags] = _translated(read, spec.flags, flags, {0: _SCAN, 1: _ATTENTION})
    if spec.every and (read.value(spec.every) is not None or not stated):
        every = int(read.number([spec.every], most=layers))
        stated[spec.every] = _chosen(layers, range(every - 1, layers, every))
    if spec.indices and spec.indices in read.values:
        stated[spec.indices] = _chosen(layers, _numbers(read, spec.indices, layers, first=0))
    if spec.numbers and any(read.value(key) is not None for key in spec.numbers):
        attention, scans = (_numbers(read, key, layers, first=1) for key in spec.numbers)
        if sorted(attention + scans) != list(range(layers)):
            both = " and ".join(map(repr, spec.numbers))
            read.refuse(f"{both} must name each of the {layers} layers once, counted from 1")
        stated[spec.numbers[0]] = _chosen(layers, attention)
    if not stated:
        key = next(filter(None, (spec.letters, spec.flags, spec.indices, *spec.numbers, *spec.layer_lists)), None)
        return read.missing(key) if key else _SCAN * layers
    first, *others = stated
    for key in others:
        if stated[key] != stated[first]:
            layer = next(i for i in range(layers) if stated[key][i] != stated[first][i])
            read.refuse(f"'{first}' contradicts '{key}' on layer {layer}, counted from 0")
    return stated[first]


def _translated(read: Config, key: str, entries: Iterable[Any], letters: Mapping[Any, str]) -> str:
    for each in entries:
        if isinstance(each, bool | list | dict) or each not in letters:
            known = ", ".join(map(str, letters))
            read.refuse(f"'{key}' has a layer {short(each)}, which hwopt does not model (only {known})")
    return "".join(letters[each] for each in entries)


def _chosen(layers: int, attention: Iterable[float]) -> str:
    """Return the letters of layers that are scans, but for those with the given numbers."""
    chosen = set(attention)
    return "".join(_ATTENTION if layer in chosen else _SCAN for layer in range(layers))


def _numbers(read: Config, key: str, layers: int, first: int) -> list[float]:
    """Return the numbers of layers of a list, from 0; the list counts from `first`. Refuse a layer that it names twice."""
    numbers = [read.check_number(key, each, first, layers + first - 1.0) - first for each in read.entries(key) or ()]
    if len(set(numbers)) < len(numbers):
        read.refuse(f"'{key}' names a layer twice")
    return numbers
