"""Parameters of a `config.json` that its language model does not have: multi-token layers, image and audio towers."""

from collections.abc import Mapping, Sequence
from typing import Any

from hwopt.catalog.config_families import UNKNOWN, families, towers
from hwopt.catalog.config_reader import MOST
from hwopt.quantity import quantities
from hwopt.workload.transformer import Transformer, total_parameters

_AHEAD = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Keys of the number of layers that predict several tokens ahead."""

_KEYS = {
    "layers": ("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers"),
    "width": ("hidden_size", "vt_hidden_size", "width"),
    "inner": ("intermediate_size", "vt_intermediate_size"),
    "heads": ("num_attention_heads", "num_heads", "vt_num_attention_heads", "heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "patch": ("patch_size",),
    "channels": ("in_channels", "num_channels"),
    "frames": ("temporal_patch_size",),
    "out": ("out_hidden_size", "text_hidden_size"),
}
"""Spellings of a tower's keys."""


def multi_token_layers(config: Mapping[str, Any]) -> tuple[str, float]:
    """Return the key and number of layers that predict several tokens ahead; "" and 0 if there are none.

    Of several keys the first counts: number of layers, before number of predicted tokens.
    """
    if config.get("use_mtp") is False:
        return "", 0.0
    stated = {key: value for key in _AHEAD if (value := number(config, key))}
    key = next(iter(stated), "")
    each = number(config, "mtp_transformer_layers") or 1.0
    return key, stated.get(key, 0.0) * (each if key == "num_mtp_modules" else 1.0)


def multi_token_parameters(
    config: Mapping[str, Any], shape: Mapping[str, float], rows: Sequence[Mapping[str, float]]
) -> float:
    """Return the weights of the layers that predict several tokens ahead, in parameters.

    Each is a decoder layer of the model's last kind, or the layers that `mtp_hybrid_override_pattern` lists, with two
    norms and a projection of `2 h` to `h`. Tables of tokens and output heads are the model's own.

    **Source:** DeepSeek-AI, DeepSeek-V3, arXiv 2412.19437, section 2.2; README_WEIGHTS.md (11.5 B of one layer).
    """
    _, count = multi_token_layers(config)
    if not count:
        return 0.0
    kinds = rows or [{"moe": float(shape.get("moe_layers", 0.0) > 0.0)}]
    letters = config.get("mtp_hybrid_override_pattern")
    chosen = [_kind_of(each, kinds) for each in letters] if isinstance(letters, str) else [kinds[-1]]
    dense = families().get(str(config.get("model_type")), UNKNOWN).dense_ahead
    unstated = {name: each.default or 0.0 for name, each in quantities(Transformer).items() if not each.absent}
    alone = {"layers": 1.0, "vocab": 0.0, "learned_positions": 0.0}
    weights = 0.0
    for row in chosen:
        own = {key: value for key, value in row.items() if key not in ("layers", "moe")}
        moe = {"moe_layers": 0.0 if dense else row["moe"]}
        weights += float(total_parameters(Transformer(**{**unstated, **shape, **own, **alone, **moe})))  # pyright: ignore
    return count * (weights + 2.0 * shape["hidden"] * (shape["hidden"] + 1.0))


def _kind_of(letter: str, kinds: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the kind of layers that a letter means: * attention, E experts, M a scan, else an MLP; the last if none is."""
    tests = {
        "*": lambda row: row.get("attends", 1.0) > 0.0 and not row["moe"],
        "E": lambda row: row["moe"] > 0.0,
        "M": lambda row: row.get("scan_heads", 0.0) > 0.0,
    }
    test = tests.get(letter, lambda row: row.get("ffn", 0.0) > 0.0)
    return next((row for row in kinds if test(row)), kinds[-1])


def tower_parameters(whole: Mapping[str, Any], key: str, hidden: float) -> tuple[float, bool]:
    """Return the weights of an image or audio tower without biases and norms, and whether all its parts are counted.

    **Arguments:**

    - `whole`: the config of the whole model.
    - `key`: key of the tower's table in it.
    - `hidden`: hidden size `h` of the language model.

    **Formula:** `L w (2 a + 2 k + n f) + (c p^2 t + P) w + join`, with hidden size `w`, query heads `a` and key-value
    heads `k` wide, `n` MLP matrices, MLP width `f`, images of `c` channels, patches of `p^2` pixels in `t` frames, `P`
    positions. For a tower that `hwopt/data/configs/towers.toml` does not list it is the layers alone, with a plain MLP.
    It is 0 where the keys do not state the layers.
    """
    tower = whole[key] if isinstance(whole[key], dict) else {}
    read = {
        name: next((n for each in spellings if (n := number(tower, each))), 0.0) for name, spellings in _KEYS.items()
    }
    width, inner = read["width"], read["inner"] or read["width"] * number(tower, "mlp_ratio")
    known = towers().get(str(tower.get("model_type")), towers().get(str(whole.get("model_type")), {}))
    queries = read["heads"] * read["head_dim"] or width
    keys = (read["kv_heads"] or read["heads"]) * read["head_dim"] or width
    layers = read["layers"] * width * (2.0 * (queries + keys) + known.get("matrices", 2.0) * inner)
    if not known or not layers:
        return layers, False
    patch = (read["channels"] or 3.0) * read["patch"] ** 2 * (read["frames"] or 1.0)
    positions = {
        "": 0.0,
        "stated": number(tower, "num_position_embeddings"),
        "pair": 2.0 * number(tower, "position_embedding_size"),
        "square": number(tower, "init_pos_emb_height") * number(tower, "init_pos_emb_width"),
        "image": (number(tower, "image_size") // (read["patch"] or 1.0)) ** 2,
    }[known.get("positions", "")]
    join = _join(known["join"], {**whole, **tower}, width, read["out"] or hidden)
    return layers + (patch + positions) * width + join, all((patch, join, positions or "positions" not in known))


def _join(way: str, keys: Mapping[str, Any], width: float, out: float) -> float:
    """Return the weights between a tower and the language model, in one of the ways of `towers.toml`; 0 if unknown."""
    merge = number(keys, "spatial_merge_size") or next(iter(_list(keys, "merge_kernel_size")), 0.0)
    merged, middle = width * merge**2, number(keys, "projector_hidden_size")
    return {
        "merger": (merged * merged + merged * out) * (1.0 + len(_list(keys, "deepstack_visual_indexes"))),
        "linear": width * out,
        "merged": (merged * width + width * out + out * out) * bool(merge),
        "convolutions": 9.0 * width * 2.0 * width * 5.0 + 4.0 * width * out,
        "projector": middle * (width + 2.0 * out + out * merge**2) * bool(merge),
    }[way]


def number(keys: Mapping[str, Any], key: str) -> float:
    """Return a number above zero and below 1e8; 0 for any other value."""
    value = keys.get(key)
    return float(value) if isinstance(value, int | float) and value is not True and 0 < value < MOST else 0.0


def _list(keys: Mapping[str, Any], key: str) -> list[Any]:
    value = keys.get(key)
    return [each for each in value if isinstance(each, int)] if isinstance(value, list) else []
