"""Hugging Face `config.json` as a transformer's shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwopt.catalog.load import read_text
from hwopt.errors import UserError, suggest

_PLAIN_MLP = ("gpt2", "gpt_neo", "gpt_neox", "gptj", "gpt_bigcode", "codegen", "opt", "bloom", "falcon", "RefinedWeb",
              "RefinedWebModel", "mpt", "phi", "nemotron", "starcoder2", "persimmon")  # fmt: skip
_TIED = ("gpt2", "gpt_neo", "gpt_bigcode", "opt", "bloom", "falcon", "RefinedWeb", "RefinedWebModel", "mpt", "gemma",
         "gemma2", "gemma3", "gemma3_text", "cohere", "starcoder2")  # fmt: skip
_REFUSED = {
    "mamba": "state-space layers", "mamba2": "state-space layers", "falcon_mamba": "state-space layers",
    "jamba": "state-space layers", "bamba": "state-space layers", "zamba2": "state-space layers",
    "nemotron_h": "state-space layers", "granitemoehybrid": "state-space layers", "rwkv": "recurrent layers",
    "recurrent_gemma": "recurrent layers", "qwen3_next": "linear-attention layers", "qwen3_5": "linear-attention layers",
    "qwen3_5_moe": "linear-attention layers", "minimax": "linear-attention layers", "kimi_linear": "linear-attention layers",
    "deepseek_v4": "compressed sparse attention", "bert": "an encoder", "t5": "an encoder and a decoder",
}  # fmt: skip

_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"),
    "positions": ("n_positions", "max_position_embeddings", "max_seq_len"),
}


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a `config.json`; those of the text part where the model has several.

    **Raises:** `UserError` for a file that cannot be read or holds no table of keys.
    """
    try:
        config = json.loads(read_text(path))
    except RecursionError:
        raise UserError(f"{path} is not a config.json: it is nested too deeply") from None
    except json.JSONDecodeError as failure:
        raise UserError(f"{path} is not JSON: {failure}") from None
    except UserError:
        raise
    except ValueError as failure:  # an integer of thousands of digits
        raise UserError(f"{path} is not JSON: {failure}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} holds no table of keys")
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def config_length(config: Mapping[str, Any], where: str) -> float:
    """The longest sequence that a config states, 4,096 tokens where it states none.

    **Raises:** `UserError` for a length that is no number.
    """
    return _Reader(config, where).maybe("positions", 4096.0)


def shape_of_config(config: Mapping[str, Any], where: str) -> dict[str, float]:
    """The fields of `Transformer` that a config states.

    Decoders of the usual kinds are known: Llama, Mistral, Mixtral, Qwen 2 and 3 with and without experts, DeepSeek V2
    and V3, Gemma, GPT-2, OPT, BLOOM, Falcon, MPT, Phi, gpt-oss; unknown ones are read as Llama-like.

    **Arguments:** `config` as `read_config` returns it; `where`: the file's name for messages.

    **Raises:** `UserError` for a missing key or layers the model has no term for.
    """
    family = str(config.get("model_type", "llama"))
    if family in _REFUSED or config.get("is_encoder_decoder"):
        raise UserError(
            f"{where}: model_type '{family}' has {_REFUSED.get(family, 'an encoder')}, which the model has no term for"
        )
    read = _Reader(config, where)
    hidden, heads = read.need("hidden"), read.need("heads")
    if read.number("word_embed_proj_dim", hidden) != hidden:
        raise UserError(
            f"{where}: 'word_embed_proj_dim' differs from the hidden size, which the closed form has no term for"
        )
    head = read.number("head_dim", 0.0) or read.number("kv_channels", 0.0) or hidden / heads
    ffn = read.maybe("ffn", read.number("expansion_ratio", 4.0) * hidden)
    if family not in _PLAIN_MLP and not read.holds("ffn"):
        read.need("ffn")
    shape = {
        "layers": read.need("layers"), "hidden": hidden, "ffn": ffn,
        "mlp_matrices": 2.0 if family in _PLAIN_MLP else 3.0,
        "heads": heads, "kv_heads": _kv_heads(read, family, heads), "qk_dim": head, "v_dim": head,
        "vocab": read.number("vocab_size"),
        "tied_embeddings": float(bool(config.get("tie_word_embeddings", family in _TIED))),
        "learned_positions": _positions(read, family), "parallel_layers": _parallel(config, family),
    }  # fmt: skip
    if read.number("kv_lora_rank", 0.0):
        rope = read.number("qk_rope_head_dim")
        shape |= {
            "kv_heads": heads, "qk_dim": read.number("qk_nope_head_dim") + rope, "v_dim": read.number("v_head_dim"),
            "query_rank": read.number("q_lora_rank", 0.0), "kv_rank": read.number("kv_lora_rank"), "rope_dim": rope,
        }  # fmt: skip
    return shape | _experts(read, family, shape) | _windows(read, family, shape["layers"])


class _Reader:
    """Keys of a config under their several spellings."""

    def __init__(self, config: Mapping[str, Any], where: str):
        self.config, self.where = config, where

    def number(self, key: str, default: float | None = None) -> float:
        value = self.config.get(key)
        if value is None:
            if default is None:
                raise UserError(f"{self.where}: '{key}' is missing: {suggest(key, self._stated())}")
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise UserError(f"{self.where}: '{key}' must be a number that is not negative, not {value!r}")
        return float(value)

    def _stated(self) -> list[str]:
        return [key for key, value in self.config.items() if value is not None]

    def inner(self, key: str) -> _Reader:
        """The keys of a table inside; none where there is no such table."""
        value = self.config.get(key)
        if value is not None and not isinstance(value, dict):
            raise UserError(f"{self.where}: '{key}' must be a table of keys, not {value!r}")
        return _Reader(value or {}, f"{self.where}: '{key}'")

    def holds(self, field: str) -> bool:
        return any(self.config.get(key) is not None for key in _KEYS[field])

    def maybe(self, field: str, default: float) -> float:
        held = [key for key in _KEYS[field] if self.config.get(key) is not None]
        return self.number(held[0]) if held else default

    def need(self, field: str) -> float:
        if not self.holds(field):
            key = _KEYS[field][0]
            raise UserError(f"{self.where}: '{key}' is missing: {suggest(key, self._stated())}")
        return self.maybe(field, 0.0)


def _parallel(config: Mapping[str, Any], family: str) -> float:
    """Whether attention and MLP read the same input: always in GPT-J and its like, a choice in Falcon and GPT-NeoX."""
    if family in ("gptj", "codegen", "phi", "cohere"):
        return 1.0
    chosen = {"falcon": "parallel_attn", "RefinedWeb": "parallel_attn", "RefinedWebModel": "parallel_attn",
              "gpt_neox": "use_parallel_residual"}  # fmt: skip
    return float(bool(config.get(chosen[family], True))) if family in chosen else 0.0


def _kv_heads(read: _Reader, family: str, heads: float) -> float:
    config = read.config
    if family in ("falcon", "RefinedWeb", "RefinedWebModel"):
        if config.get("new_decoder_architecture"):
            return read.maybe("kv_heads", heads)
        return 1.0 if config.get("multi_query", True) else heads
    if family == "gpt_bigcode":
        return 1.0 if config.get("multi_query", True) else heads
    if family == "mpt":
        return read.inner("attn_config").number("kv_n_heads", heads)
    return read.maybe("kv_heads", heads)


def _positions(read: _Reader, family: str) -> float:
    """Rows of a learned position table."""
    if family in ("gpt2", "gpt_neo", "gpt_bigcode"):
        return read.need("positions")
    if family == "opt":
        return read.need("positions") + 2.0  # OPT keeps two rows for padding
    if family == "mpt" and not read.inner("attn_config").config.get("alibi", True):
        return read.need("positions")
    return 0.0


def _experts(read: _Reader, family: str, shape: Mapping[str, float]) -> dict[str, float]:
    config, layers = read.config, shape["layers"]
    experts = read.maybe("experts", 0.0)
    if experts <= 1.0:
        return {}
    expert_ffn = read.number("moe_intermediate_size", shape["ffn"])
    shared = read.number("n_shared_experts", 1.0 if family.startswith("llama4") else 0.0)
    if config.get("shared_expert_intermediate_size"):
        shared = read.number("shared_expert_intermediate_size") / (
            expert_ffn or 1.0
        )  # an empty expert is refused later
    if isinstance(config.get("mlp_only_layers"), list) and config["mlp_only_layers"]:
        sparse = layers - len(config["mlp_only_layers"])
    else:
        step = read.number("interleave_moe_layer_step", 0.0) or read.number("decoder_sparse_step", 0.0)
        every = step or (
            read.number("moe_layer_freq", 1.0) if not isinstance(config.get("moe_layer_freq"), list) else 1.0
        )
        sparse = (layers - read.number("first_k_dense_replace", 0.0)) / max(every, 1.0)
    if isinstance(config.get("moe_layer_freq"), list):
        sparse = float(sum(1 for each in config["moe_layer_freq"] if each))
    dense = read.number("intermediate_size_mlp", shape["ffn"]) if family.startswith("llama4") else shape["ffn"]
    return {
        "ffn": dense, "moe_layers": float(sparse), "experts": experts, "experts_per_token": read.need("experts_per_token"),
        "shared_experts": shared, "expert_ffn": expert_ffn,
    }  # fmt: skip


def _windows(read: _Reader, family: str, layers: float) -> dict[str, float]:
    config = read.config
    chunk = read.number("attention_chunk_size", 0.0)
    window = chunk or read.number("sliding_window", 0.0)
    if not window or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        share = sum(1 for kind in kinds if kind in ("sliding_attention", "chunked_attention")) / len(kinds)
    elif family.startswith("gemma2") or family == "gpt_oss":
        share = 0.5
    elif family.startswith("gemma3"):
        pattern = read.number("sliding_window_pattern", 6.0)
        share = 1.0 - (layers // max(pattern, 1.0)) / max(layers, 1.0)
    else:
        share = 0.75 if chunk else 1.0
    return {"local_layers_fraction": share, "window_tokens": window}
