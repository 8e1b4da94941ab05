"""Conversion of a Hugging Face `config.json` to a transformer's shape or a table of operators."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from hwopt.catalog import config_families as layouts
from hwopt.catalog.config_attention import by_layer, unfolded
from hwopt.catalog.config_counts import multi_token_parameters, tower_parameters
from hwopt.catalog.config_families import (
    LENGTHS,
    MUST_BE_OFF,
    OFF,
    UNKNOWN,
    ConfigFamily,
    composites,
    families,
    refusal,
)
from hwopt.catalog.config_hybrids import hybrid, with_layers
from hwopt.catalog.config_layers import mixture, windows
from hwopt.catalog.config_operators import Built, built_of_config, known_layouts
from hwopt.catalog.config_reader import MOST_LAYERS, MOST_TOKENS, Config, near, short
from hwopt.catalog.fields import ENTRIES, OPERATORS
from hwopt.catalog.layer_kinds import LAYER_KINDS
from hwopt.catalog.text_files import read_text
from hwopt.errors import UserError, suggest
from hwopt.workload.operator_kinds import Operator

_GATED = ("silu", "swish", "swiglu")
_LEVELS = 20  # tables within tables; published configs have up to six
_DEFAULT_LENGTH, _USUAL_LENGTH = 4096.0, 8192.0
"""Sequence length where a config states none (an assumption; 2,048 to 131,072 are usual), and its maximum where it does."""

QUANTIZED = ("quantization_config", "quantization", "compression_config")
"""Keys that state the storage format of weights."""


def config_table(path: Path) -> dict[str, Any]:
    """Return a `config.json` as the table of a catalog entry: shape, sequence length, approximations and source.

    **Raises:** `UserError` for an unreadable file, and for an unsupported model.
    """
    (whole, config), where = read_config(path), str(path)
    stated = [short(whole[key]) for key in ("_name_or_path", "architectures", "model_type") if whole.get(key)]
    source = f"Hugging Face config.json of {', '.join(stated)}, read from {where}"
    length = min(config_length(config, where), _USUAL_LENGTH)
    rows: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    if config.get("model_type") in known_layouts():
        built = built_of_config(config, where)
        length = built.length or length
        rows = {OPERATORS: [_row(each) for each in built.operators]}
        numbers, words = _settings(built)
        texts |= words
    else:
        numbers, kinds = shape_of_config(config, where)
        rows = {LAYER_KINDS: kinds} if kinds else {}
    about = {"kind": "datasheet", "source": "config"}
    units = ENTRIES["workloads"].quantities
    quantities = {key: {"value": value, "unit": units[key], **about} for key, value in numbers.items()}
    quantities["sequence_length"] = {"value": length, "unit": "token", "kind": "assumption", "source": "config"}
    ignored = _ignored(whole, config, where, numbers, rows.get(LAYER_KINDS, []))
    texts |= {"approximations": ignored} if ignored else {}
    texts |= {"checkpoint": [stored, "config"]} if (stored := _stored(whole, config)) else {}
    return {**texts, **quantities, **rows, "sources": {"config": source}}


def _settings(built: Built) -> tuple[dict[str, float], dict[str, str]]:
    """Return the settings of an operator table under the key names of an entry: numbers, then texts."""
    names = {"heads": "tensor_parts"}
    numbers = {names.get(key, key): value for key, value in built.settings.items() if isinstance(value, float)}
    words = {key: value for key, value in built.settings.items() if isinstance(value, str)}
    return numbers, words | ({"predicts": "text"} if built.settings.get("language") else {})


def _row(operator: Operator) -> dict[str, Any]:
    """Return an operator as a row of an entry."""
    own = {each.name: getattr(operator, each.name) for each in fields(operator)}
    return {"op": operator.op} | {
        each.name: own[each.name] for each in fields(operator) if own[each.name] != each.default
    }


def _ignored(
    whole: Mapping[str, Any],
    config: Mapping[str, Any],
    where: str,
    shape: Mapping[str, float],
    kinds: list[dict[str, float]],
) -> list[str]:
    """Return notes on the omissions of an estimate: approximated mechanisms, multi-token prediction, towers.

    **Raises:** `UserError` for a weight format that is not a table of keys.
    """
    family = families().get(str(config.get("model_type")), UNKNOWN)
    said = [family.approximation] if family.approximation else []
    said += [note for key, note in family.left_out.items() if config.get(key) not in OFF]
    ahead = [
        f"{key} {short(value)}" for key, value in config.items() if re.search("nextn|mtp", key) and value not in OFF
    ]
    weights = multi_token_parameters(config, shape, kinds) if ahead and "vocab" in shape else 0.0
    said += [f"ignores multi-token prediction, {', '.join(ahead)}{_words(weights, False)}"] if ahead else []
    for key, value in (*config.items(), *(() if config is whole else whole.items())):
        if key in QUANTIZED and value is not None and not isinstance(value, dict):
            raise UserError(f"{where}: '{key}' must be a table of keys, not {short(value)}")
    towers = {key: tower_parameters(whole, key, shape.get("hidden", 0.0)) for key in _towers(whole, config)}
    return [*said, *(f"ignores {key}{_words(*count)}" for key, count in towers.items())]


def _stored(*parts: Mapping[str, Any]) -> str:
    """Return the weight format in the words of `quantization_config`, such as `compressed-tensors pack-quantized`."""
    tables = {key: part[key] for part in parts for key in QUANTIZED if isinstance(part.get(key), dict) and part[key]}
    words = [table.get(key) for table in tables.values() for key in ("quant_method", "quant_algo", "format")]
    return " ".join(dict.fromkeys(word for word in words if isinstance(word, str))) or " ".join(tables)


def counted_apart(path: Path) -> dict[str, float]:
    """Return the parameters of a `config.json` that its language model does not have: those of `multi_token` layers, and
    of each tower by its key.

    A tower whose keys do not state its layers is left out.

    **Raises:** see `read_config` and `shape_of_config`.
    """
    (whole, config), where = read_config(path), str(path)
    if config.get("model_type") in known_layouts():
        return {}
    shape, rows = shape_of_config(config, where)
    ahead = multi_token_parameters(config, shape, rows)
    towers = {key: tower_parameters(whole, key, shape["hidden"])[0] for key in _towers(whole, config)}
    return {key: count for key, count in {"multi_token": ahead, **towers}.items() if count}


def _towers(whole: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a model's parts besides its language model."""
    return [
        key
        for key, value in whole.items()
        if config is not whole and key not in config and key.endswith("_config") and key != "text_config"
        and key not in QUANTIZED and value not in OFF
    ]  # fmt: skip


def _words(count: float, exact: bool) -> str:
    return f", {'' if exact else 'about '}{1e-9 * count:.2g} B parameters" if count else ""


def read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys of a `config.json`, and those of its text part where the model has several parts and the text part
    is supported.

    **Raises:** `UserError` for a file that cannot be read, that is not a table of keys, or whose parts are not known.
    """
    try:
        config = json.loads(read_text(path), object_pairs_hook=partial(_table, str(path)))
    except RecursionError:
        raise UserError(f"{path} is not a config.json: it is nested too deeply") from None
    except UserError:
        raise
    except ValueError as failure:  # not JSON, or an integer of thousands of digits
        raise UserError(f"{path} is not JSON: {failure}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no JSON object")
    if _deep(config, _LEVELS):
        raise UserError(f"{path} is not a config.json: it is nested too deeply")
    return config, _text_part(config, str(path))


def _table(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table and table[key] != value:
            raise UserError(f"{where}: '{key}' is stated twice, as {short(table[key])} and as {short(value)}")
        table[key] = value
    return table


def _deep(value: Any, levels: int) -> bool:
    """Return whether tables and lists are nested more than `levels` deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deep(each, levels - 1) for each in inside)


def _text_part(config: dict[str, Any], where: str) -> dict[str, Any]:
    inner, kind = config.get("text_config"), str(config.get("model_type"))
    beside = layouts.has_towers(kind) and isinstance(inner, dict) and str(inner.get("model_type")) in families()
    if inner is None or (refusal(kind) and not beside):
        return config
    if not isinstance(inner, dict):
        raise UserError(f"{where}: 'text_config' must be a table of keys, not {short(inner)}")
    if kind not in composites() and not beside:
        raise UserError(
            f"{where}: model_type '{kind}' is unknown and has parts besides its 'text_config': {suggest(kind, composites())}"
        )
    for key in config:
        if near(key, ["tie_word_embeddings"]) not in ([], [key]):
            raise UserError(
                f"{where}: '{key}' is not a key of model_type '{kind}': did you mean 'tie_word_embeddings'?"
            )
    outer = {key: config[key] for key in ("tie_word_embeddings", *MUST_BE_OFF) if config.get(key) is not None}
    return {"model_type": composites().get(kind), **outer, **inner}


def config_length(config: Mapping[str, Any], where: str) -> float:
    """Return the maximum sequence length that a config states; 4,096 tokens where it states none.

    **Raises:** `UserError` for a length that is not a number.
    """
    read = Config(config, UNKNOWN, where)
    for key in LENGTHS:
        if config.get(key) is not None:
            return read.number([key], most=MOST_TOKENS)
    return _DEFAULT_LENGTH


def shape_of_config(config: Mapping[str, Any], where: str) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the fields of `Transformer` that a config states, and its kinds of layers where they differ.

    `hwopt/data/configs` lists the supported layouts, by `model_type`, and the refused ones with the reason. An unknown
    `model_type` is read as Llama's if every key of the config is one that Llama has or that changes no shape.

    **Arguments:** `config`: the text part that `read_config` returns; `where`: the file's name for messages.

    **Raises:** `UserError` for a missing, misspelled or contradictory key, and an implausible value. It is also raised
    for layers that the model has no term for, and an unknown key that may change the shape.
    """
    family = _family_of(config, where)
    read, kinds = unfolded(Config(with_layers(config, family), family, where))
    for key in MUST_BE_OFF:
        if config.get(key) and config[key] != "vision":  # the tokens of an image alone see those after them
            reason = "an encoder" if key == "is_encoder_decoder" else f"'{key}'"
            read.refuse(f"model_type '{read.kind}' has {reason}, which hwopt does not model")
    read.check()
    layers, hidden = read.number(family.layers, most=MOST_LAYERS), read.number(family.hidden)
    tied = read.flag("tie_word_embeddings", family.tied)
    positions = read.number(family.positions, most=MOST_TOKENS) + family.extra_positions if family.positions else 0.0
    shape = {
        "layers": layers, "hidden": hidden, "ffn": _ffn(read, family, hidden), "mlp_matrices": float(family.matrices),
        "vocab": read.number(family.vocab), "tied_embeddings": float(tied),
        "learned_positions": positions, "parallel_layers": float(_parallel(read, family)),
    } | _attention(read, family, hidden)  # fmt: skip
    if family.scan is not None:
        return hybrid(read, family.scan, shape)
    return by_layer(read, shape | mixture(read, family.experts, shape) | windows(read, family.window, layers), kinds)


def _family_of(config: Mapping[str, Any], where: str) -> ConfigFamily:
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise UserError(
            f"{where}: 'model_type' is missing: it determines the meaning of all other keys (such as 'llama')"
        )
    reason = refusal(kind)
    inner = config.get("text_config")
    named = ", ".join(layouts.mechanisms(inner if isinstance(inner, dict) else config))
    if reason:
        reason = (
            named if any(part in named for part in reason.split(", ")) else ", ".join(filter(None, (reason, named)))
        )
        known = isinstance(inner, dict) and str(inner.get("model_type")) in families()
        hint = "; its 'text_config' alone can be read from a file of its own" if known else ""
        raise UserError(f"{where}: model_type '{kind}' has {reason}, which hwopt does not model{hint}")
    if kind in families():
        return families()[kind]
    if kind in composites():
        raise UserError(f"{where}: 'text_config' is missing, but model_type '{kind}' needs it")
    slips = near(kind, [*families(), *layouts.refused_types(), *composites()])
    if slips:
        raise UserError(f"{where}: model_type '{kind}' is unknown: {suggest(kind, slips)}")
    if named:
        raise UserError(f"{where}: model_type '{kind}' is unknown and has {named}, which hwopt does not model")
    act = config.get("hidden_act")
    if act is not None and act not in _GATED:
        raise UserError(f"{where}: model_type '{kind}' is unknown, and 'hidden_act' = {short(act)} does not tell whether "
                        f"its MLP is gated; set model_type to one with the same layers: {suggest(kind, families())}")  # fmt: skip
    return UNKNOWN


def _ffn(read: Config, family: ConfigFamily, hidden: float) -> float:
    if not family.ffn and not family.ffn_multiple:
        return 0.0  # a layer is a mixer alone
    key, value = read.look_up(family.ffn)
    if value is None and family.ffn_multiple:
        multiple = read.value(family.ffn_multiple_key) if family.ffn_multiple_key else None
        return hidden * (
            family.ffn_multiple if multiple is None else read.check_number(family.ffn_multiple_key, multiple, 1.0, 1e3)
        )
    width = read.number(family.ffn, layers=read.number(family.layers, most=MOST_LAYERS))
    if width % family.ffn_divisor:
        read.refuse(f"'{key}' = {width:g} must be a multiple of {family.ffn_divisor:g}")
    return width / family.ffn_divisor


def _parallel(read: Config, family: ConfigFamily) -> bool:
    if isinstance(family.parallel, bool):
        return family.parallel
    return any([read.flag(key) for key in family.parallel])  # a list, so that every switch is checked


def _attention(read: Config, family: ConfigFamily, hidden: float) -> dict[str, float]:
    heads = read.role("heads")
    if family.latent:
        rank, rope = read.number(["q_lora_rank"], null=0.0), read.number(["qk_rope_head_dim"])
        both = read.number(["qk_nope_head_dim"]) + rope
        if read.value("qk_head_dim") is not None and (stated := read.number(["qk_head_dim"])) != both:
            read.refuse(f"'qk_head_dim' = {stated:g} is not 'qk_nope_head_dim' + 'qk_rope_head_dim' = {both:g}")
        return {
            "heads": heads, "kv_heads": heads, "query_rank": rank, "kv_rank": read.number(["kv_lora_rank"]), "rope_dim": rope,
            "qk_dim": both, "v_dim": read.number(["v_head_dim"]),
        }  # fmt: skip
    key, value = read.look_up(family.head_dim)
    if value is not None or family.head_dim_required or any(each in family.absent for each in family.head_dim):
        head = read.number(family.head_dim)
    else:
        head = hidden / heads
        if head != int(head):
            key = read.look_up(family.heads)[0] or family.heads[0]
            read.refuse(
                f"'{key}' = {heads:g} does not divide the hidden size {hidden:g}, and no head dimension is given"
            )
    kv_heads = _kv_heads(read, family, heads)
    if heads % kv_heads:
        key = read.look_up(family.kv_heads)[0]
        read.refuse(f"'{key}' = {kv_heads:g} does not divide the {heads:g} heads")
    value_dim = read.number(family.v_dim) if family.v_dim else head
    return {"heads": heads, "kv_heads": kv_heads, "qk_dim": head, "v_dim": value_dim}


def _kv_heads(read: Config, family: ConfigFamily, heads: float) -> float:
    key, value = read.look_up(family.kv_heads)
    if family.one_kv_head and not (family.grouped_anyway and read.flag(family.grouped_anyway)):
        alone = read.flag(family.one_kv_head)
        if value is not None and read.number(family.kv_heads) not in (1.0 if alone else heads, heads):
            read.refuse(f"'{key}' = {value:g} contradicts '{family.one_kv_head}' = {str(alone).lower()}")
        return 1.0 if alone else heads
    if not family.kv_heads or (family.kv_shared and not read.flag(family.kv_shared)):
        return heads
    return read.number(family.kv_heads)
