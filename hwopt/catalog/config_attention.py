"""Attention of a `config.json` that differs by layer: other heads, output gates, indexers, layers listed one by one."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hwopt.catalog.config_families import OFF, Indexer, OtherHeads, mechanisms
from hwopt.catalog.config_layers import layer_types, sliding_layers, sparse_layers
from hwopt.catalog.config_reader import MOST, MOST_LAYERS, Config, short

Layers = Sequence[dict[str, float]]
"""For each layer, the fields of `Transformer` that it states for itself."""

_ROUND_UP = 256.0
"""MLP widths of `block_configs` are rounded up to a multiple of this (the DeciLM layers of vLLM 0.33)."""

_GATES = {"head": False, "per-head": False, "value": True, "per-element": True}
"""Words for an output gate -> whether it has as many channels as the values."""

_PARTS = {
    "attention": ("no_op", "replace_with_linear", "n_heads_in_group"),
    "ffn": ("no_op", "replace_with_linear", "ffn_mult", "intermediate_size", "hidden_act"),
}
"""Keys that are read in the two parts of a block of `block_configs`."""

_OF_WINDOWS = ("unshifted_sink", "use_prefill_window_in_sink_attention")
"""Keys of a block that describe its window, and mean nothing without one."""


def unfolded(read: Config) -> tuple[Config, Layers]:
    """Return a config whose layers are listed one by one as a plain one, and what its layers state for themselves.

    The plain config has the largest number of each list: of heads, key-value heads and MLP widths. The second part is
    empty for configs without such lists.

    **Raises:** `UserError` for a list of another length than the number of layers, and for kinds of layers that the
    model has no term for.
    """
    family = read.family
    lists = {name: key for name, key in family.lists.items() if read.value(key) is not None}
    blocks = bool(family.blocks) and read.value(family.blocks) is not None
    if family.blocks and not blocks and not lists:
        read.missing(family.blocks)
    if not blocks and not lists:
        return read, ()
    if blocks and lists:
        read.refuse(f"'{family.blocks}' and '{next(iter(lists.values()))}' both list the layers")
    count = read.number(family.layers, most=MOST_LAYERS)
    layers = _blocks(read, count) if blocks else _lists(read, lists, int(count))
    plain: dict[str, Any] = {}
    for name, keys in (("heads", family.heads), ("kv_heads", family.kv_heads), ("ffn", family.ffn)):
        stated = [each[name] for each in layers if each.get(name)]
        key, value = read.look_up(keys)
        listed = isinstance(value, list) and lists.get(name) in keys
        if listed or (value is None and name != "heads"):
            plain |= {keys[0]: max(stated)} if stated and keys else {}
        elif stated and read.number(keys) not in stated:
            read.refuse(f"'{key}' = {short(value)} is in no layer of '{lists.get(name, family.blocks)}'")
    return Config({**read.values, **plain}, family, read.where), layers


def _lists(read: Config, lists: Mapping[str, str], count: int) -> Layers:
    """Return the layers of lists with one number for each; multiples of the hidden size become widths."""
    columns: dict[str, list[float]] = {}
    for name, key in lists.items():
        entries = read.entries(key, count) or read.missing(key)
        if name == "ffn":
            hidden, divisor = read.role("hidden"), read.number(["ffn_dim_divisor"])
            columns[name] = [_divisible(_ratio(read, key, each) * hidden, divisor) for each in entries]
        else:
            columns[name] = [read.check_number(key, each, 1.0, MOST) for each in entries]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _divisible(width: float, divisor: float) -> float:
    """Return the closest multiple of `divisor`, at most 10 % below `width`.

    **Source:** `make_divisible` of OpenELM, from MobileNet.
    """
    rounded = max(divisor, (width + divisor / 2) // divisor * divisor)
    return rounded + divisor * (rounded < 0.9 * width)


def _ratio(read: Config, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < 1e3:
        read.refuse(f"'{key}' must be a number above zero, not {short(value)}")
    return float(value)


def _blocks(read: Config, count: float) -> Layers:
    """Return the layers of `block_configs`: attention or none, and the width of the MLP, 0 for none.

    A linear layer in place of attention or MLP counts as MLP: `h / 3` wide, it has the same weights.
    """
    key = read.family.blocks
    heads, hidden = read.role("heads"), read.role("hidden")
    layers = []
    for number, block in enumerate(read.entries(key, count) or read.missing(key)):
        at = f"{key}[{number}]"
        attention, mlp = (_part(read, block, name, at) for name in _PARTS)
        linear = attention["replace_with_linear"] + mlp["replace_with_linear"]
        width = linear * hidden / read.family.matrices
        if not mlp["no_op"] and not mlp["replace_with_linear"]:
            width += _width(read, mlp, hidden, f"{at}.ffn")
        elif mlp["ffn_mult"] or mlp["intermediate_size"]:
            read.refuse(f"'{at}.ffn' has a width, but is replaced or left out")
        row = {"ffn": width, "attends": 1.0 - max(attention["no_op"], attention["replace_with_linear"])}
        grouped = attention["n_heads_in_group"]
        if bool(row["attends"]) == (grouped is None):
            read.refuse(
                f"'{at}.attention' must state either 'n_heads_in_group', or that 'no_op' or 'replace_with_linear' is true"
            )
        if row["attends"]:
            group = read.check_number(f"{at}.attention.n_heads_in_group", grouped, 1.0, heads)
            if heads % group:
                read.refuse(f"'{at}.attention.n_heads_in_group' = {group:g} does not divide the {heads:g} heads")
            row["kv_heads"] = heads / group
        layers.append(row)
    return layers


def _part(read: Config, block: Any, name: str, at: str) -> dict[str, Any]:
    """Return the keys of one part of a block: switches as 0 or 1, a missing one as 0."""
    part = block.get(name) if isinstance(block, dict) else None
    if not isinstance(part, dict):
        read.refuse(f"'{at}' must be a table with the table '{name}'")
    for key, value in [*part.items(), *((key, block[key]) for key in block if key not in _PARTS)]:
        if key not in _PARTS[name] and key not in _OF_WINDOWS and value not in OFF:
            named = ", ".join(mechanisms({key: 1})) or "another sort of layer"
            read.refuse(f"'{at}.{name}.{key}' = {short(value)} means {named}, which hwopt does not model")
    switches = {key: part.get(key, False) for key in ("no_op", "replace_with_linear")}
    for key, value in switches.items():
        if not isinstance(value, bool):
            read.refuse(f"'{at}.{name}.{key}' must be true or false, not {short(value)}")
    if all(switches.values()):
        read.refuse(f"'{at}.{name}' is both left out and linear")
    return {key: part.get(key) for key in _PARTS[name]} | {key: float(value) for key, value in switches.items()}


def _width(read: Config, mlp: Mapping[str, Any], hidden: float, at: str) -> float:
    stated, multiple = mlp["intermediate_size"], mlp["ffn_mult"]
    if stated is multiple is None:
        read.refuse(f"'{at}' must state 'ffn_mult' or 'intermediate_size', or that 'no_op' is true")
    if multiple is None:
        return read.check_number(f"{at}.intermediate_size", stated, 1.0, MOST)
    width = math.ceil(int(2.0 * _ratio(read, f"{at}.ffn_mult", multiple) * hidden / 3.0) / _ROUND_UP) * _ROUND_UP
    if stated not in (None, width):
        read.refuse(f"'{at}.intermediate_size' = {short(stated)} contradicts 'ffn_mult' = {short(multiple)}")
    return width


def by_layer(read: Config, shape: Mapping[str, float], own: Layers) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the fields of a model, and the kinds of its layers where they differ in more than window and experts.

    **Arguments:** `shape`: the fields that all layers share; `own`: as from `unfolded`.

    **Raises:** `UserError` for keys that contradict each other.
    """
    family, count = read.family, int(shape["layers"])
    local = sliding_layers(read, family.window, count)
    sparse = sparse_layers(read, family.experts, count)
    layers = [dict(each) for each in own or [{}] * count]
    model = dict(shape)
    if family.other:
        model |= _other_heads(read, family.other, shape, local, layers)
    if family.gate:
        _gate(read, model, layers)
    if family.indexer:
        _index(read, family.indexer, layers)
    for each in layers:
        heads, groups = ({**model, **each}[name] for name in ("heads", "kv_heads"))
        if heads % groups:
            read.refuse(
                f"'{(family.kv_heads or ('num_key_value_heads',))[0]}' = {groups:g} does not divide the {heads:g} heads of a layer"
            )
    return _kinds(model, sparse, local, layers)


def _kinds(
    shape: dict[str, float], sparse: Sequence[bool], local: Sequence[bool], layers: Layers
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return what all layers have in common as fields of the model, and the rest as rows, one for each kind of layer."""
    own = [{key: value for key, value in each.items() if value != shape.get(key)} for each in layers]
    common = {key: value for key, value in own[0].items() if all(each.get(key) == value for each in own)}
    own = [{key: value for key, value in each.items() if key not in common} for each in own]
    model = shape | {key: value for key, value in common.items() if (key, value) != ("attends", 1.0)}
    if not any(own):
        return model, []
    rows: Counter[tuple[tuple[str, float], ...]] = Counter()
    for expert, near, each in zip(sparse, local, own, strict=True):
        row = {"moe": float(expert)} | ({"local_layers_fraction": float(near)} if any(local) else {}) | each
        rows[tuple(row.items())] += 1
    return model, [{"layers": float(count), **dict(row)} for row, count in rows.items()]


def _other_heads(
    read: Config, spec: OtherHeads, shape: Mapping[str, float], local: Sequence[bool], layers: Layers
) -> dict[str, float]:
    """Write the heads of layers with a sliding window into `layers`; return those of layers with full attention."""
    if all(local) if spec.full else not any(local):
        return {}
    base = {name: shape[name] for name in ("heads", "kv_heads", "qk_dim", "v_dim")}
    mine = {
        "heads": _or(read, spec.heads, base["heads"]),
        "kv_heads": _or(read, spec.kv_heads, base["kv_heads"]),
        "qk_dim": (head := _or(read, spec.head_dim, base["qk_dim"])),
        "v_dim": _or(read, spec.v_dim, head if spec.head_dim and not spec.v_dim else base["v_dim"]),
    }
    if spec.shared_projection and not read.flag(spec.shared_projection, False):
        if mine["kv_heads"] != base["kv_heads"]:
            read.refuse(f"'{spec.kv_heads[0]}' = {mine['kv_heads']:g} contradicts '{spec.shared_projection}' = false")
    elif spec.shared_projection:
        if not any(key in read.values for key in spec.kv_heads):
            read.missing(spec.kv_heads[0])
        for near, layer in zip(local, layers, strict=True):
            layer |= {} if near else {"shared_projection": 1.0}
    full, near_ones = (mine, base) if spec.full else (base, mine)
    differs = {name: value for name, value in near_ones.items() if value != full[name]}
    for near, layer in zip(local, layers, strict=True):
        layer |= differs if near else {}
    return full


def _or(read: Config, keys: Iterable[str], otherwise: float) -> float:
    """Return a number; `otherwise` where the layout has no key for it, and where its key is null."""
    keys = tuple(keys)
    return read.number(keys, null=otherwise) if keys else otherwise


def _gate(read: Config, model: Mapping[str, float], layers: Layers) -> None:
    """Write the width of the output gate into `layers`."""
    key = read.family.gate_key
    value = read.value(key) if key else None
    if value is False:
        return
    word = read.family.gate if value in (None, True) else value
    if not isinstance(word, str) or word not in _GATES:
        read.refuse(f"'{key}' = {short(value)} means an output gate that hwopt does not model")
    for layer in layers:
        layer["gate_dim"] = layer.get("v_dim", model["v_dim"]) if _GATES[word] else 1.0


def _index(read: Config, spec: Indexer, layers: Layers) -> None:
    """Write the indexer of each layer into `layers`; those that keep another layer's choice have no heads of their own."""
    if spec.switch and read.value(spec.switch) is not None and not read.flag(spec.switch):
        read.refuse(f"'{spec.switch}' is false, but other keys describe an indexer")
    block = read.number(spec.block) if spec.block else 1.0
    sizes = {"index_heads": read.number(spec.heads), "index_dim": read.number(spec.dim)}
    if read.family.latent and not read.number(["q_lora_rank"], null=0.0):
        read.refuse("'q_lora_rank' is null, but the queries of the indexer are made from that latent")
    kept = {"index_tokens": read.number(spec.tokens) * block}
    used = _flagged(read, spec, len(layers))
    for layer, here, own in zip(layers, used, _own_choice(read, spec, len(layers)), strict=True):
        layer |= (sizes if own else dict.fromkeys(sizes, 0.0)) | kept if here else {}


def _flagged(read: Config, spec: Indexer, count: int) -> list[bool]:
    """Return for each layer whether it has an indexer; check that no indexer has values."""
    if not spec.flags:
        return [True] * count
    kinds = layer_types(read, count)
    words = [each in spec.words for each in kinds] if kinds else None
    stated = read.entries(spec.flags, count)
    flags = [bool(each) for each in stated] if stated else words or read.missing(spec.flags, "layer_types")
    if words not in (None, flags):
        read.refuse(f"'{spec.flags}' contradicts 'layer_types'")
    for here, without in zip(flags, read.entries(spec.no_value, count) or flags, strict=True):
        if here and not without:
            read.refuse(
                f"'{spec.no_value}' must be 1 in every layer with block-sparse attention: hwopt does not model values of an indexer"
            )
    return flags


def _own_choice(read: Config, spec: Indexer, count: int) -> list[bool]:
    """Return for each layer whether it chooses tokens itself; in the others the choice of the layer before it stands."""
    if not spec.every:
        return [True] * count
    every = read.number([spec.every], null=1.0) if read.value(spec.every) else 1.0
    first = read.number([spec.offset], least=0.0) if read.value(spec.offset) is not None else 2.0
    ways = {spec.every: [max(layer - first + 1, 0) % every == 0 for layer in range(count)]} if every > 1.0 else {}
    for key in (spec.pattern, spec.modes):
        words = list(value) if isinstance(value := read.value(key), str) else read.entries(key, count)
        if words is not None and (
            len(words) != count or any(each not in ("F", "S", "full", "shared") for each in words)
        ):
            read.refuse(f"'{key}' must state full or shared for each of {count} layers")
        ways |= {key: [each in ("F", "full") for each in words]} if words else {}
    if len({tuple(each) for each in ways.values()}) > 1:
        read.refuse(f"{' and '.join(map(repr, ways))} contradict each other")
    turns = next(iter(ways.values()), [True] * count)
    if not turns[0]:
        read.refuse(f"'{next(iter(ways))}' gives the first layer no indexer of its own")
    return turns
