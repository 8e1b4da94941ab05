"""Facts beyond its shape that a model's `config.json` fixes, as flags of Megatron-LM: norms, positions, biases, router.

Facts have the keys of `config.json`; a catalog entry states them in its field `config`. What neither states is listed as not
known. Meanings are those of transformers' model code, and of `megatron/core/transformer/transformer_config.py`.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

Flags = dict[str, Any]
Config = Mapping[str, Any]

_PLAIN = {
    "attention_bias": False,
    "mlp_bias": False,
    "use_qk_norm": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
_NORMED = {**_PLAIN, "use_qk_norm": True}

_CODE: dict[str, Config] = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "mixtral": {**_PLAIN, "scoring_func": "softmax", "norm_topk_prob": True},
    "qwen2": {**_PLAIN, "qkv_bias": True},
    "qwen3": _NORMED,
    "qwen3_moe": {**_NORMED, "scoring_func": "softmax"},
    "deepseek_v2": _NORMED,
    "deepseek_v3": {**_NORMED, "scoring_func": "sigmoid"},
    "kimi_k2": {**_NORMED, "scoring_func": "sigmoid"},
}
"""Values that the code of a `model_type` fixes where its config does not state them."""

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Scaling of rotary frequencies that Megatron-LM fixes in its code."""

_YARN = {
    "factor": "--rotary-scaling-factor", "original_max_position_embeddings": "--original-max-position-embeddings",
    "beta_fast": "--beta-fast", "beta_slow": "--beta-slow", "mscale": "--mscale", "mscale_all_dim": "--mscale-all-dim",
}  # fmt: skip
"""Keys of YaRN's scaling -> flags of latent attention."""


class ModelFacts(NamedTuple):
    """Flags of a model's facts, and the names of facts that are not known."""

    flags: Flags
    unknown: list[str]


def _norm(c: Config, w: SimpleNamespace) -> Flags | None:
    kinds = {"rms_norm_eps": "RMSNorm", "layer_norm_eps": "LayerNorm", "layer_norm_epsilon": "LayerNorm"}
    found = [(kind, c[key]) for key, kind in kinds.items() if key in c]
    return {"--normalization": found[0][0], "--norm-epsilon": found[0][1]} if found else None


def _positions(c: Config, w: SimpleNamespace) -> Flags | None:
    if w.learned_positions:
        return {"--position-embedding-type": "learned_absolute"}
    scaling = c.get("rope_scaling") or c.get("rope_parameters") or {}
    theta = c.get("rope_theta", scaling.get("rope_theta"))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if theta is None:
        return None
    flags: Flags = {"--position-embedding-type": "rope", "--rotary-base": round(theta)}
    flags |= {"--rotary-percent": c["partial_rotary_factor"]} if "partial_rotary_factor" in c else {}
    if kind == "default":
        return flags | ({"--rope-type": "rope"} if w.kv_rank else {})
    if kind == "llama3" and all(scaling.get(key) == value for key, value in _LLAMA3.items()):
        return flags | {"--use-rope-scaling": True, "--rope-scaling-factor": scaling["factor"]}
    if kind == "yarn" and w.kv_rank and "factor" in scaling:
        return flags | {"--rope-type": "yarn"} | {flag: scaling[key] for key, flag in _YARN.items() if key in scaling}
    return None


def _biases(c: Config, w: SimpleNamespace) -> Flags | None:
    both = {c.get("attention_bias"), c.get("mlp_bias")}
    if both == {False}:
        return {"--disable-bias-linear": True} | ({"--add-qkv-bias": True} if c.get("qkv_bias") else {})
    return {} if both == {True} else None


def _qk_norm(c: Config, w: SimpleNamespace) -> Flags | None:
    return None if "use_qk_norm" not in c else {"--qk-layernorm": True} if c["use_qk_norm"] else {}


def _dropout(c: Config, w: SimpleNamespace) -> Flags | None:
    keys = {"--attention-dropout": "attention_dropout", "--hidden-dropout": "hidden_dropout"}
    return {flag: c[key] for flag, key in keys.items()} if c.keys() >= set(keys.values()) else None


def _activation(c: Config, w: SimpleNamespace) -> Flags | None:
    gated = {"silu": {}} if w.mlp_matrices == 3 else {"relu2": {"--squared-relu": True}, "gelu": {}}
    return gated.get(c.get("hidden_act", ""))


def _router(c: Config, w: SimpleNamespace) -> Flags | None:
    score, normed = c.get("scoring_func"), c.get("norm_topk_prob")
    if score not in ("softmax", "sigmoid") or normed is None or (score == "sigmoid" and not normed):
        return None
    flags: Flags = {"--moe-router-score-function": score}
    flags |= {} if normed else {"--moe-router-pre-softmax": True}
    if c.get("routed_scaling_factor", 1.0) != 1.0:
        flags["--moe-router-topk-scaling-factor"] = c["routed_scaling_factor"]
    if c.get("n_group", 1) > 1:
        flags |= {"--moe-router-num-groups": c["n_group"], "--moe-router-group-topk": c["topk_group"]}
    return flags | ({"--moe-router-enable-expert-bias": True} if c.get("topk_method") == "noaux_tc" else {})


def _balance(c: Config, w: SimpleNamespace) -> Flags | None:
    weight = c.get("router_aux_loss_coef", c.get("aux_loss_alpha"))
    kind = "seq_aux_loss" if c.get("seq_aux") else "aux_loss"
    return None if weight is None else {"--moe-router-load-balancing-type": kind, "--moe-aux-loss-coeff": weight}


def _order(c: Config, w: SimpleNamespace) -> Flags | None:
    dense = w.layers - w.moe_layers
    return {} if not dense or c.get("first_k_dense_replace") == dense else None


def _windows(c: Config, w: SimpleNamespace) -> Flags | None:
    if not w.local_layers_fraction:
        return {}
    local = [int(each == "sliding_attention") for each in c.get("layer_types") or ()]
    width = {"--window-size": f"({w.window_tokens},0)", "--window-attn-skip-freq": str(local).replace(" ", "")}
    return width if sum(local) == round(w.local_layers_fraction * w.layers) else None


_FACTS: dict[str, Callable[[Config, SimpleNamespace], Flags | None]] = {
    "norms and their epsilon": _norm,
    "position embedding": _positions,
    "biases": _biases,
    "norms of queries and keys": _qk_norm,
    "dropout": _dropout,
    "activation": _activation,
    "layers with windows": _windows,
}
_MOE_FACTS = {"router": _router, "load balancing loss": _balance, "order of dense and MoE layers": _order}


def _read(of: Callable[[Config, SimpleNamespace], Flags | None], c: Config, w: SimpleNamespace) -> Flags | None:
    """Return the flags of a fact; None where the config does not state it, or states it in another form."""
    try:
        return of(c, w)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


def megatron_facts(config: Config, model: SimpleNamespace) -> ModelFacts:
    """Return a model's facts as flags of Megatron-LM.

    **Arguments:** `config`: keys of a `config.json`; `model`: the model's dimensions, which other flags state.
    """
    kind = str(config.get("model_type", "unknown"))
    known = {**_CODE.get(kind, {}), **{k: v for k, v in config.items() if v is not None}}
    found = {name: _read(of, known, model) for name, of in (_FACTS | (_MOE_FACTS if model.moe_layers else {})).items()}
    flags = {flag: value for each in found.values() for flag, value in (each or {}).items()}
    further = [] if kind in _CODE else [f"what the code of model_type {kind} fixes"]
    return ModelFacts(flags, [*(name for name, each in found.items() if each is None), *further])
