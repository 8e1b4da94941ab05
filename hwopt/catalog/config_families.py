"""Table of Hugging Face layouts: the meaning of the keys of a `config.json`, by its `model_type`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from hwopt import renamed
from hwopt.catalog.names import data_root

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)
"""Keys that state the maximum sequence length."""


@dataclass(frozen=True)
class Window:
    """Keys that state which layers have sliding-window attention, where the config has no `layer_types`."""

    size: str  # key of the window's width in tokens; null: none
    optional: bool = False  # a missing width means none
    switch: str = ""  # key that must be true for windows to be used
    every: int = 0  # every so many-th layer has full attention
    every_key: str = ""  # key that states `every`
    after: str = ""  # key of the number of first layers with full attention
    flags: str = ""  # key of a list, 1 for a layer with a window
    kinds: str = ""  # key of a list, "local" for a layer with a window
    blocks: str = ""  # key of such a list in blocks, such as [[["global", "local"], 12]]
    needs: tuple[str, ...] = ()  # keys that must be stated where a layer has a window
    last_full: bool = False  # the last layer has full attention even if a list says otherwise


@dataclass(frozen=True)
class OtherHeads:
    """Keys of the heads of layers of one sort, full or sliding, where they are not those of the layout."""

    full: bool = False  # of layers with full attention; else of those with a sliding window
    heads: tuple[str, ...] = ()
    kv_heads: tuple[str, ...] = ()
    head_dim: tuple[str, ...] = ()
    v_dim: tuple[str, ...] = ()
    shared_projection: str = ""  # key: true means that keys are also values, and that `kv_heads` applies


@dataclass(frozen=True)
class Indexer:
    """Keys of an indexer: heads that score all keys, of which those with the highest scores are attended."""

    heads: tuple[str, ...]
    dim: tuple[str, ...]
    tokens: tuple[str, ...]  # keys, or blocks of keys, that are attended
    block: tuple[str, ...] = ()  # tokens in a block
    words: tuple[str, ...] = ()  # of `layer_types`, for a layer with an indexer
    switch: str = ""  # key that must not be false
    flags: str = ""  # key of a list, 1 for a layer with an indexer; empty: every layer
    no_value: str = ""  # key of a list that must be 1 in those layers: an indexer without values
    modes: str = ""  # key of a list, "full" or "shared": a layer that keeps the choice of the layer before it
    pattern: str = ""  # key of the same as letters F and S
    every: str = ""  # key: every so many-th layer has an indexer, the others keep its choice
    offset: str = ""  # key of the number of first layers with an indexer


@dataclass(frozen=True)
class ExpertKeys:
    """Keys that state which layers are a mixture of experts, and the number and width of the experts."""

    count: tuple[str, ...]
    per_token: tuple[str, ...] = ("num_experts_per_tok",)
    width: tuple[str, ...] = ()  # of one expert; empty: the MLP's
    optional: bool = False  # the same `model_type` has dense models, which leave `count` out
    first: str = ""  # key of the first MoE layer, counted from 0
    last: str = ""  # key of the last one; -1: the last layer
    step: str = ""  # key: layers whose number, counted from 1, is a multiple of its value are MoE
    frequency: str = ""  # key: as `step`, but counted from 0; a list has 1 for each MoE layer
    dense_layers: str = ""  # key of the numbers of layers that are dense despite the rules above
    layer_lists: tuple[str, ...] = ()  # keys of a list with one entry per layer, which overrides all other rules
    dense_width: str = ""  # key of a dense layer's MLP, where `ffn` is an expert's
    shared: str = ""  # key of the number of shared experts
    shared_width: str = ""  # key of the width of all shared experts together
    shared_constant: float = 0.0  # shared experts, where no key states their number
    switch: str = ""  # key that must be true for experts to be used
    beside: bool = False  # every layer also has its dense MLP, which counts as a shared expert
    inputs: str = ""  # key of the width of the routed experts' inputs, where it is not the hidden size
    none_width: str = ""  # key of the MLP's width where `count` is 0: the model is dense


@dataclass(frozen=True)
class ScanKeys:
    """Keys that state which layers are recurrent scans, their shape, and what else differs by layer.

    Without a key of layers, every layer is a scan. Several keys of layers must agree.
    """

    heads: tuple[str, ...]  # of values
    key_dim: tuple[str, ...]  # width of a query or key; of Mamba-2 the size of a state
    value_dim: tuple[str, ...]  # width of a value; "auto": that of all heads together / `heads`
    key_heads: tuple[str, ...] = ()  # heads of queries and keys, or groups; empty: one for each head
    conv: tuple[str, ...] = ()  # tokens of the short convolution; empty: there is none
    width: str = ""  # key of the width of all heads together
    expand: str = ""  # key of that width as a multiple of the hidden size
    gates: float = 0.0  # gates and decays per head, computed from the layer's input
    delta: float = 0.0  # 1: delta rule
    low_rank: bool = False  # one decay per channel; it and the output gate have a rank of one head's width
    full_gate: str = ""  # key: true means an output gate of full rank all the same
    attention_gate: str = ""  # key: true means that attention has an output gate
    beside: bool = False  # every layer has attention, too
    alone: bool = False  # a layer has one mixer or one MLP
    layer_lists: tuple[str, ...] = ()  # keys of a list with one word per layer
    letters: str = ""  # key of a text with one letter per layer
    flags: str = ""  # key of a list, 1 for a layer with attention, 0 for a scan
    every: str = ""  # key: every so many-th layer has attention
    indices: str = ""  # key of the numbers of layers with attention, counted from 0; null: none
    numbers: tuple[str, ...] = ()  # keys of the numbers of layers with attention and of scans, counted from 1


@dataclass(frozen=True)
class ConfigFamily:
    """One layout of `config.json`; its defaults are Llama's.

    Tuples list alternative spellings of one key. A dot leads into a table, as in `attn_config.kv_n_heads`.
    """

    types: tuple[str, ...]
    layers: tuple[str, ...] = ("num_hidden_layers",)
    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)  # empty: one for each head
    one_kv_head: str = ""  # key: true means one for all heads
    grouped_anyway: str = ""  # key: true overrules `one_kv_head`
    kv_shared: str = ""  # key: false means one for each head, regardless of `kv_heads`
    head_dim: tuple[str, ...] = ("head_dim",)
    head_dim_required: bool = False  # else a missing one means hidden size / heads
    ffn: tuple[str, ...] = ("intermediate_size",)
    ffn_multiple: float = 0.0  # of the hidden size, where `ffn` is missing; 0: it must be stated
    ffn_multiple_key: str = ""  # key that states `ffn_multiple`
    ffn_divisor: float = 1.0  # `ffn` counts this many matrices side by side
    vocab: tuple[str, ...] = ("vocab_size",)
    matrices: float = 3.0  # 3: gated MLP, 2: plain
    tied: bool | None = False  # meaning of a missing `tie_word_embeddings`; None ("stated"): it must be stated
    parallel: bool | tuple[str, ...] = False  # attention in parallel with the MLP; or keys, any of which enables it
    positions: tuple[str, ...] = ()  # rows of a learned table
    extra_positions: float = 0.0  # rows in addition to those
    latent: bool = False  # latent attention (MLA)
    v_dim: tuple[str, ...] = ()  # empty: as `head_dim`
    gate: str = ""  # attention's output gate, of each "head" or each "value" channel
    gate_key: str = ""  # key that states it: true or missing means `gate`, false none
    lists: Mapping[str, str] = field(
        default_factory=dict
    )  # field of `Transformer` -> key of a list, a number per layer
    blocks: str = ""  # key of a list of tables, one per layer, with its attention and its MLP
    dense_ahead: bool = False  # layers that predict several tokens ahead have a dense MLP
    window: Window | None = None
    experts: ExpertKeys | None = None
    other: OtherHeads | None = None
    indexer: Indexer | None = None
    scan: ScanKeys | None = None
    # Meaning of a missing key: a value, or "heads", "hidden", "ffn"
    absent: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)  # the only supported values, stated or not
    equal: Mapping[str, str] = field(default_factory=dict)  # keys that must equal another key, "hidden" or "ffn"
    needs: Mapping[str, str] = field(default_factory=dict)  # key -> another one that is stated with it, even if null
    harmless: tuple[str, ...] = ()  # keys that change no shape in this layout
    inner_harmless: tuple[str, ...] = ()  # such keys inside the tables that the layout reads
    approximation: str = ""  # note on a mechanism that is approximated by another one
    left_out: Mapping[str, str] = field(default_factory=dict)  # such notes by the key that enables the mechanism

    def keys(self) -> frozenset[str]:
        """Return every key that this layout reads."""
        own = [
            *self.absent,
            *self.fixed,
            *self.equal,
            *self.lists.values(),
            *self.left_out,
            *self.needs,
            "model_type",
            "tie_word_embeddings",
            "layer_types",
            *LENGTHS,
            *MUST_BE_OFF,
        ]
        own += LATENT if self.latent else ()
        for part in (self, *(getattr(self, name) for name in _PARTS)):
            for each in fields(part) if part else ():
                value = getattr(part, each.name)
                if each.name not in ("types", "harmless", "inner_harmless", "approximation", "words", "gate"):
                    own += [value] if isinstance(value, str) else value if isinstance(value, tuple) else ()
        return frozenset(own) - {""}


_PARTS = {"window": Window, "experts": ExpertKeys, "scan": ScanKeys, "other": OtherHeads, "indexer": Indexer}
"""Fields of a layout that are tables of keys."""

LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Keys of multi-head latent attention (MLA)."""

MUST_BE_OFF = ("is_encoder_decoder", "add_cross_attention", "use_bidirectional_attention", "pruned_heads")
"""Keys of every layout that change the architecture when they are set."""

OFF: tuple[Any, ...] = (None, 0, False, [], {})
"""Values of a key that disable its feature."""

UNKNOWN = ConfigFamily(types=(), tied=None)
"""Layout for unknown values of `model_type`: Llama's, if nothing in the config contradicts it."""


@cache
def families() -> Mapping[str, ConfigFamily]:
    """Return the supported layouts, by `model_type`."""
    tables = {**_table("dense"), **_table("experts"), **_table("hybrids")}
    return {kind: family for family in map(_family, tables.values()) for kind in family.types}


@cache
def towers() -> Mapping[str, Mapping[str, Any]]:
    """Return what the keys of image towers mean, by `model_type`."""
    return {kind: tower for tower in _table("towers").values() for kind in tower["types"]}


@cache
def harmless() -> frozenset[str]:
    """Return the keys that change no shape in any layout."""
    return frozenset(key for group in _table("harmless").values() for key in group)


def refusal(kind: str) -> str | None:
    """Return why a `model_type` cannot be modeled; None if there is no known reason."""
    for group in _table("refused").values():
        if any(fnmatchcase(kind, pattern) for pattern in group["types"]):
            return group["reason"]
    return None


def mechanisms(config: Mapping[str, Any]) -> list[str]:
    """Return the unsupported mechanisms that the keys of a config name; keys with a value in `OFF` are ignored."""
    tables = {f"{key}.": value for key, value in config.items() if isinstance(value, dict)}
    stated = [
        prefix + key for prefix, table in {"": config, **tables}.items() for key in table if table[key] not in OFF
    ]
    return [
        mechanism
        for mechanism, patterns in _table("mechanisms").items()
        if any(fnmatchcase(key, pattern) for key in stated for pattern in patterns)
    ]


@cache
def refused_types() -> tuple[str, ...]:
    """Return every `model_type` that is refused by name."""
    return tuple(kind for group in _table("refused").values() for kind in group["types"] if "*" not in kind)


@cache
def composites() -> Mapping[str, str]:
    """Return each multi-part `model_type` of which only the text part is read -> the text part's `model_type` where it
    states none.
    """
    return _table("composites")


def has_towers(kind: str) -> bool:
    """Return whether a `model_type` combines a language model and image or audio towers, each with its own table."""
    return kind in _table("refused")["several"]["types"]


@cache
def _table(name: str) -> Mapping[str, Any]:
    return tomllib.loads((data_root() / "configs" / f"{name}.toml").read_text(encoding="utf-8"))


def _family(entry: Mapping[str, Any]) -> ConfigFamily:
    values = {key: _frozen(value) for key, value in entry.items()}
    for name, form in _PARTS.items():
        if name in entry:
            values[name] = form(**{key: _frozen(value) for key, value in entry[name].items()})
    return ConfigFamily(**values)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else None if value == "stated" else value


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
