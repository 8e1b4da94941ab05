"""Mixture-of-experts layers and sliding-window attention layers of a `config.json`."""

from collections.abc import Mapping
from typing import Any

from hwopt.catalog.config_families import ExpertKeys, Window, mechanisms
from hwopt.catalog.config_reader import MOST_LAYERS, MOST_TOKENS, Config, short

_SLIDING = ("sliding_attention", "chunked_attention")


def mixture(read: Config, spec: ExpertKeys | None, shape: Mapping[str, float]) -> dict[str, float]:
    """Return the fields of `Transformer` that describe a mixture of experts; an empty table for a dense model.

    **Arguments:** `read`: the config; `spec`: the family's keys for experts; `shape`: the fields read so far.

    **Raises:** `UserError` for numbers that contradict each other.
    """
    if spec is None:
        return {}
    stated = [key for key in (*spec.count, *spec.per_token, *spec.width) if read.value(key) is not None]
    if (spec.optional and not stated) or (spec.switch and not read.flag(spec.switch, False)):
        if spec.switch and stated:
            read.refuse(f"'{stated[0]}' states experts, but '{spec.switch}' is not true")
        return {}
    layers = shape["layers"]
    experts = read.number(spec.count, layers=layers)
    per_token = read.number(spec.per_token, layers=layers)
    if per_token > experts:
        keys = [read.look_up(keys)[0] or keys[0] for keys in (spec.per_token, spec.count)]
        read.refuse(f"'{keys[0]}' = {per_token:g} is more than '{keys[1]}' = {experts:g}")
    width = read.number(spec.width, layers=layers) if spec.width else shape["ffn"]
    shared = spec.shared_constant
    if spec.shared:
        shared = read.number([spec.shared], least=0.0, null=0.0, layers=layers)
    elif spec.shared_width:
        shared = read.number([spec.shared_width], least=0.0) / width
    elif spec.beside:
        shared = shape["ffn"] / width
    sparse = sum(sparse_layers(read, spec, int(layers)))
    if not sparse:
        read.refuse(f"no layer uses the {experts:g} experts that '{read.look_up(spec.count)[0]}' states")
    return {
        "ffn": read.number([spec.dense_width]) if spec.dense_width else shape["ffn"], "expert_ffn": width,
        "moe_layers": float(sparse), "experts": experts, "experts_per_token": per_token,
        "shared_experts": shared, "routed_groups": _groups(read),
    } | ({"expert_hidden": read.number([spec.inputs])} if read.value(spec.inputs) is not None else {})  # fmt: skip


def _groups(read: Config) -> float:
    """Return the maximum number of expert groups per token; 0 if routing is not limited to groups."""
    count, most = (
        read.look_up(keys)[1] and read.number(keys) for keys in (("n_group", "num_expert_group"), ("topk_group",))
    )
    if not count or not most:
        if most or (count or 1.0) > 1.0:
            read.refuse(
                "'n_group' (or 'num_expert_group') and 'topk_group' must be given together: one of them is missing"
            )
        return 0.0
    if most > count:
        read.refuse(f"'topk_group' = {most:g} is more than 'n_group' = {count:g}")
    return most if most < count and read.value("topk_method") != "greedy" else 0.0


def sparse_layers(read: Config, spec: ExpertKeys | None, layers: int) -> list[bool]:
    """Return for each layer whether it is a mixture of experts.

    **Raises:** `UserError` for lists and numbers that contradict each other.
    """
    if spec is None or (spec.switch and not read.flag(spec.switch, False)):
        return [False] * layers
    for key in spec.layer_lists:
        entries = _entries(read, key)
        if entries is not None:
            return _after_first(read, spec, key, _sparse_in_list(read, key, entries, layers))
    turn = _turns(read, spec.frequency, layers)
    if isinstance(read.value(spec.frequency), list):
        _after_first(read, spec, spec.frequency, turn)
    elif spec.layer_lists and spec.first not in {"", *read.values, *read.family.absent}:
        read.refuse(
            f"'{spec.first}' is missing, or another key of the layers with experts: {', '.join(spec.layer_lists)}"
        )
    listed = isinstance(read.value(spec.frequency), list) and spec.first not in read.values
    first = read.number([spec.first], least=0.0, most=layers) if spec.first and not listed else 0.0
    last = _last(read, spec.last, layers) if spec.last else layers - 1.0
    step = read.number([spec.step], most=layers) if spec.step else 1.0
    dense = _numbers(read, spec.dense_layers, layers) if spec.dense_layers else set()
    return [
        first <= layer <= last and (layer + 1) % step == 0 and turn[layer] and layer not in dense
        for layer in range(layers)
    ]


def _after_first(read: Config, spec: ExpertKeys, key: str, turns: list[bool]) -> list[bool]:
    """Return a list of MoE layers; refuse it if its first one is not the first that another key states."""
    if spec.first and read.value(spec.first) is not None and any(turns):
        first = read.number([spec.first], least=0.0, most=len(turns))
        if turns.index(True) != first:
            read.refuse(f"'{spec.first}' = {first:g} contradicts '{key}', whose first MoE layer is {turns.index(True)}")
    return turns


def _turns(read: Config, key: str, layers: int) -> list[bool]:
    """Return for each layer whether `key`, a frequency or a list of 0 and 1, allows it to be a mixture of experts."""
    if not key:
        return [True] * layers
    if not isinstance(read.value(key), list):
        frequency = read.number([key], most=layers)
        return [layer % frequency == 0 for layer in range(layers)]
    return [bool(each) for each in _bits(read, key, layers) or read.missing(key)]


def _bits(read: Config, key: str, layers: int) -> list[int]:
    """Return a list of 0 or 1 for each layer; an empty list where the key is missing."""
    entries = read.entries(key, layers) or []
    if any(each not in (0, 1) for each in entries):
        read.refuse(f"'{key}' must hold 0 or 1 for each layer")
    return entries


def _last(read: Config, key: str, layers: int) -> float:
    if read.value(key) in (None, -1) and key in read.values:
        return layers - 1.0
    return read.number([key], least=0.0, most=layers - 1.0)


def _entries(read: Config, key: str) -> list[Any] | None:
    """Return a list, which may be written as numbers between commas."""
    words = read.value(key)
    if not isinstance(words, str):
        return read.entries(key)
    if not all(each.strip().isdigit() for each in words.split(",")):
        read.refuse(f"'{key}' must be a list of layers, not {short(words)}")
    return [int(each) for each in words.split(",")]


def _numbers(read: Config, key: str, layers: int) -> set[float]:
    """Return the set of layer numbers listed under `key`; refuse numbers out of range or listed twice."""
    numbers = [read.check_number(key, each, 0.0, layers - 1.0) for each in _entries(read, key) or ()]
    if len(set(numbers)) < len(numbers):
        read.refuse(f"'{key}' names a layer twice")
    return set(numbers)


def _sparse_in_list(read: Config, key: str, entries: list[Any], layers: int) -> list[bool]:
    """Return the MoE layers of a list: of layer numbers, or of one "dense", "sparse", true or false per layer."""
    if not all(isinstance(each, (bool, str)) for each in entries):
        numbers = _numbers(read, key, layers)
        return [layer in numbers for layer in range(layers)]
    read.entries(key, layers)
    for each in entries:
        if each not in ("dense", "sparse", True, False):
            read.refuse(f"'{key}' has a layer {short(each)}, which hwopt does not model")
    return [each in ("sparse", True) for each in entries]


def layer_types(read: Config, layers: float) -> list[str] | None:
    """Return the words of `layer_types`, one for each layer, without those of layers that predict several tokens ahead.

    **Raises:** `UserError` for a word that the layout does not know.
    """
    words = read.entries("layer_types")
    ahead = read.value("num_nextn_predict_layers")
    if words and ahead and len(words) == layers + read.number(["num_nextn_predict_layers"]):
        words = words[: int(layers)]
    elif words and len(words) != layers:
        more = "" if ahead else ", and no 'num_nextn_predict_layers' states more layers"
        read.refuse(f"'layer_types' has {len(words)} entries for {layers:g} layers{more}")
    known = (*_SLIDING, "full_attention", *(read.family.indexer.words if read.family.indexer else ()))
    for each in words or ():
        if each not in known:
            named = "".join(f" ({mechanism})" for mechanism in mechanisms({str(each): 1}))
            read.refuse(f"'layer_types' has a layer {short(each)}{named}, which hwopt does not model")
    return words


def windows(read: Config, window: Window | None, layers: float) -> dict[str, float]:
    """Return the share of layers with sliding-window attention and the window's width; an empty table if there are none.

    **Raises:** `UserError` for layer types that the model has no term for.
    """
    local = sum(sliding_layers(read, window, layers))
    return {"local_layers_fraction": local / layers, "window_tokens": _width(read, window)} if window and local else {}


def _width(read: Config, window: Window) -> float:
    return read.number([window.size], most=MOST_TOKENS)


def sliding_layers(read: Config, window: Window | None, layers: float) -> list[bool]:
    """Return for each layer whether its attention has a sliding window.

    **Raises:** `UserError` for layer types that the model has no term for, and for keys that contradict each other.
    """
    kinds = layer_types(read, layers)
    local = [each in _SLIDING for each in kinds] if kinds else None
    off = window is None or (window.switch and not read.flag(window.switch, False))
    missing = window is not None and read.value(window.size) is None and (window.optional or window.size in read.values)
    if window is None or off or missing:
        if local and any(local):
            read.refuse(
                f"'layer_types' has {sum(local)} layers with sliding-window attention, but no key states the window size"
                + (f", such as '{window.size}'" if window else "")
            )
        return [False] * int(layers)
    _width(read, window)
    if local is None:
        local = _local_layers(read, window, int(layers))
    else:
        _agree(read, window, local)
    for key in window.needs if any(local) else ():
        if not read.value(key):
            read.missing(key)
    return [*local[:-1], local[-1] and not window.last_full]


def _agree(read: Config, window: Window, local: list[bool]) -> None:
    """Refuse a second statement of the layers with a window that differs from `layer_types`."""
    key = next((key for key in (window.flags, window.every_key) if key and read.value(key)), "")
    if key and _local_layers(read, window, len(local)) != local:
        read.refuse(f"'{key}' = {short(read.value(key))} contradicts 'layer_types'")


def _local_layers(read: Config, window: Window, layers: int) -> list[bool]:
    for key in (window.kinds, window.blocks):
        if key and read.value(key) is not None:
            return _local_in_list(read, key, layers)
    if window.kinds:
        read.missing(window.kinds)
    flags = _bits(read, window.flags, layers) if window.flags else []
    if flags:
        return [bool(each) for each in flags]
    if window.flags and not window.every:
        read.missing(window.flags)
    if window.after:
        first = min(read.number([window.after], least=0.0, most=MOST_LAYERS), layers)
        return [layer >= first for layer in range(layers)]
    every = _every(read, window) if window.every else layers + 1
    return [bool((layer + 1) % every) for layer in range(layers)]


def _every(read: Config, window: Window) -> int:
    pattern = read.value(window.every_key) if window.every_key else None
    if pattern is None or (pattern == 0 and not isinstance(pattern, bool)):  # 0: the family's default pattern
        return window.every
    if isinstance(pattern, str) and pattern and set(pattern[:-1]) <= {"L"} and pattern[-1] == "G":
        return len(pattern)
    return int(read.check_number(window.every_key, pattern, 1.0, MOST_LAYERS))


def _local_in_list(read: Config, key: str, layers: int) -> list[bool]:
    """Return the local layers of a list with one word per layer, or in blocks such as `[[["global", "local"], 12]]`."""
    kinds: list[Any] = []
    for each in read.entries(key) or ():
        if isinstance(each, list) and len(each) == 2 and isinstance(each[0], list):
            kinds += each[0] * int(read.check_number(key, each[1], 1.0, float(layers)))
        else:
            kinds.append(each)
    if len(kinds) != layers or any(each not in ("local", "global") for each in kinds):
        read.refuse(f"'{key}' must state 'local' or 'global' for each of {layers} layers")
    return [each == "local" for each in kinds]
