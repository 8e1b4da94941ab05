"""Configs with mechanisms in their attention are read as the cards count them, or refused by the name of the key.

`data/attention_configs.json` holds the keys of published configs, or of a configuration class of transformers 5.24 ("in class
form"), and the counts of their cards: `total` and `active` parameters. `without` names what a card's active count leaves out:
the `embedding`, or both `tables` of tokens. `recalled` says what is from memory of public sources. The counts here are made
in NumPy, layer by layer, from the shape alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.config_counts import multi_token_layers, multi_token_parameters
from hwopt.catalog.huggingface import read_config, shape_of_config
from hwopt.errors import UserError

DATA = Path(__file__).parent / "data"
MODELS = {each["model"]: each for each in json.loads((DATA / "attention_configs.json").read_text(encoding="utf-8"))}
OLDER = {
    each["model"]: each["config"] for each in json.loads((DATA / "experts_configs.json").read_text(encoding="utf-8"))
}
M3, GLM = OLDER["MiniMaxAI/MiniMax-M3"], OLDER["zai-org/GLM-5.1"]
FLAT = {
    key: value
    for key, value in M3.items()
    if key not in ("sparse_attention_config", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace")
} | {
    "model_type": "minimax_m3_vl_text", "index_n_heads": 4, "index_head_dim": 128, "index_topk_blocks": 16, "index_block_size": 128,
    "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57,
}  # fmt: skip
"""MiniMax-M3 with the keys of its configuration class in transformers."""

CONFIGS = {name: each["config"] for name, each in MODELS.items()} | {
    "MiniMax-M3": M3,
    "flat MiniMax-M3": FLAT,
    "GLM-5.1": GLM,
}


def inner(config):
    return config.get("text_config", config)


def with_keys(config, keys):
    return config | {"text_config": keys} if "text_config" in config else keys


def outcome(folder, config):
    """The shape of a config and its kinds of layers, or the line that refuses it."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    try:
        return shape_of_config(read_config(path)[1], str(path))
    except UserError as refusal:
        assert "\n" not in str(refusal) and "config.json" in str(refusal)
        return str(refusal)


def layers_of(shape, kinds):
    """The fields of every layer in a table of NumPy columns: an oracle of counts that shares no code with the model."""
    if not kinds:
        moe = shape.get("moe_layers", 0.0)
        kinds = [{"layers": moe, "moe": 1.0}, {"layers": shape["layers"] - moe, "moe": 0.0}]
    names = {*shape, *(key for row in kinds for key in row)} - {"layers"}
    optional = (
        "index_heads", "index_dim", "gate_dim", "shared_projection", "kv_rank", "query_rank", "rope_dim", "expert_ffn", "experts",
        "shared_experts", "experts_per_token",
    )  # fmt: skip
    usual = dict.fromkeys(optional, 0.0) | {"attends": 1.0} | shape
    rows = [usual | row for row in kinds]
    return {name: np.array([row.get(name, 0.0) for row in rows]) for name in {*names, *usual, "layers", "moe"}}


def count(shape, kinds):
    """All parameters and those a token uses, by hand: attention, indexer, MLP or experts, two norms a layer, tables."""
    c = layers_of(shape, kinds)
    h, a, k, q, v = c["hidden"], c["heads"], c["kv_heads"], c["qk_dim"], c["v_dim"]
    latent = c["kv_rank"] > 0
    source = np.where(c["query_rank"] > 0, c["query_rank"], h)
    down = np.where(latent, h * (c["query_rank"] + c["kv_rank"] + c["rope_dim"]), 0.0)
    keys = np.where(latent, c["kv_rank"] * a * (q - c["rope_dim"]), h * k * q)
    values = np.where(latent, c["kv_rank"] * a * v, h * k * v * (1.0 - c["shared_projection"]))
    attention = down + source * a * q + keys + values + a * v * h + h * a * c["gate_dim"]
    attention += (
        source * c["index_heads"] * c["index_dim"] + h * c["index_dim"] + h * c["index_heads"] * (c["query_rank"] > 0)
    )
    expert = c["mlp_matrices"] * h * c["expert_ffn"]
    mlp = np.where(
        c["moe"] > 0, (c["experts"] + c["shared_experts"]) * expert + h * c["experts"], c["mlp_matrices"] * h * c["ffn"]
    )
    layer = c["attends"] * attention + mlp + h * (c["attends"] + (mlp > 0))
    tables = shape["hidden"] * (shape["vocab"] * (2.0 - shape["tied_embeddings"]) + 1.0)
    idle = c["moe"] * (c["experts"] - c["experts_per_token"]) * expert
    return float(c["layers"] @ layer + tables), float(c["layers"] @ (layer - idle) + tables)


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_those_of_the_card(tmp_path, name):
    entry = MODELS[name]
    shape, kinds = outcome(tmp_path, entry["config"])
    total, active = count(shape, kinds)
    assert total == pytest.approx(entry["total"], rel=0.01 if entry["source"] == "card" else 1e-4)
    table = shape["vocab"] * shape["hidden"]
    without = {"": 0.0, "embedding": table, "tables": table * (2.0 - shape["tied_embeddings"])}[
        entry.get("without", "")
    ]
    assert active - without == pytest.approx(entry["active"], rel=0.05)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_is_built_of_every_config(tmp_path, name):
    shape, kinds = outcome(tmp_path, CONFIGS[name])
    model = catalog.transformer(tmp_path / "config.json")
    assert (model.kinds is None) == (not kinds)
    if kinds:
        assert sum(row["layers"] for row in kinds) == shape["layers"]
        assert sum(row["layers"] * row["moe"] for row in kinds) == shape.get("moe_layers", 0.0)
        assert sum(row["layers"] * row.get("local_layers_fraction", 0.0) for row in kinds) == pytest.approx(
            shape["layers"] * shape.get("local_layers_fraction", 0.0)
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_the_model_counts_as_by_hand(tmp_path, name):
    by_hand = count(*outcome(tmp_path, CONFIGS[name]))
    counts = catalog.parameter_counts(tmp_path / "config.json")
    assert (counts["parameters"], counts["active_parameters"]) == pytest.approx(by_hand, rel=1e-4)


def test_what_layers_state_for_themselves(tmp_path):
    shape, kinds = outcome(tmp_path, CONFIGS["google/gemma-4-26B-A4B"])
    assert (shape["kv_heads"], shape["qk_dim"], shape["shared_experts"], shape["window_tokens"]) == (2, 512, 3, 1024)
    assert kinds == [
        {"layers": 25, "moe": 1, "local_layers_fraction": 1, "kv_heads": 8, "qk_dim": 256, "v_dim": 256},
        {"layers": 5, "moe": 1, "local_layers_fraction": 0, "shared_projection": 1},
    ]
    index = {"index_heads": 4, "index_dim": 128, "index_tokens": 2048}
    for config in (M3, FLAT):
        assert outcome(tmp_path, config)[1] == [{"layers": 3, "moe": 0}, {"layers": 57, "moe": 1, **index}]
    assert outcome(tmp_path, M3)[0] == outcome(tmp_path, FLAT)[0]
    shape, kinds = outcome(tmp_path, CONFIGS["stepfun-ai/Step-3.5-Flash"])
    assert (shape["heads"], shape["gate_dim"]) == (64, 1)
    assert {(row["layers"], row["moe"], row["local_layers_fraction"], row.get("heads", 64)) for row in kinds} == {
        (1, 0, 0, 64), (2, 0, 1, 96), (11, 1, 0, 64), (31, 1, 1, 96),
    }  # fmt: skip
    shape, kinds = outcome(tmp_path, CONFIGS["arcee-ai/Trinity-Mini"])
    assert (shape["gate_dim"], shape["local_layers_fraction"], kinds) == (128, 0.75, [])
    shape, kinds = outcome(tmp_path, CONFIGS["XiaomiMiMo/MiMo-V2-Flash"])
    assert (shape["kv_heads"], shape["qk_dim"], shape["v_dim"]) == (4, 192, 128)
    assert [(row["layers"], row["moe"], row.get("kv_heads")) for row in kinds] == [
        (1, 0, None),
        (39, 1, 8),
        (8, 1, None),
    ]
    shape, kinds = outcome(tmp_path, CONFIGS["deepseek-ai/DeepSeek-V3.2"])
    assert (shape["index_heads"], shape["index_dim"], shape["index_tokens"], kinds) == (64, 128, 2048, [])


def test_blocks_of_all_kinds(tmp_path):
    full = {"attention": {"no_op": False, "n_heads_in_group": 4}, "ffn": {"ffn_mult": 5.25}}
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}
    thin = {"attention": {"no_op": True}, "ffn": {"intermediate_size": 1000, "no_op": False}}
    plain = {"attention": {"n_heads_in_group": 8}, "ffn": {"replace_with_linear": True}}
    base = CONFIGS["nvidia/Llama-3_3-Nemotron-Super-49B-v1"] | {
        "num_hidden_layers": 4,
        "hidden_size": 768,
        "num_attention_heads": 8,
    }
    shape, kinds = outcome(tmp_path, base | {"block_configs": [full, linear, thin, plain]})
    assert (shape["ffn"], shape["kv_heads"]) == (2816, 2)  # 2/3 x 5.25 x 768 = 2688, up to a multiple of 256
    assert kinds == [
        {"layers": 1, "moe": 0, "attends": 1},
        {"layers": 1, "moe": 0, "ffn": 256, "attends": 0},  # 3 x 768 x 256 weights are those of 768 x 768
        {"layers": 1, "moe": 0, "ffn": 1000, "attends": 0},
        {"layers": 1, "moe": 0, "ffn": 256, "attends": 1, "kv_heads": 1},
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"index_topk_freq": 4},
        {"index_topk_freq": 4, "index_skip_topk_offset": 2},
        {"index_topk_pattern": "".join("F" if max(layer - 1, 0) % 4 == 0 else "S" for layer in range(78))},
        {"indexer_types": ["full" if max(layer - 1, 0) % 4 == 0 else "shared" for layer in range(78)], "index_topk_freq": 4},
    ],
)  # fmt: skip
def test_layers_may_keep_the_choice_of_the_layer_before(tmp_path, keys):
    shape, kinds = outcome(tmp_path, GLM | keys)
    assert shape["index_tokens"] == 2048
    own = sum(row["layers"] for row in kinds if row.get("index_heads") != 0)
    kept = sum(row["layers"] for row in kinds if row.get("index_heads") == 0)
    turns = [layer for layer in range(78) if max(layer - 1, 0) % 4 == 0]
    assert (own, kept) == (len(turns), 78 - len(turns))


CONTRADICTIONS = [
    ("deepseek-ai/DeepSeek-V3.2", {"q_lora_rank": None}, "q_lora_rank"),
    ("deepseek-ai/DeepSeek-V3.2", {"index_topk": 0}, "index_topk"),
    ("deepseek-ai/DeepSeek-V3.2", {"index_n_heads": [64, 32]}, "index_n_heads"),
    ("deepseek-ai/DeepSeek-V3.2", {"index_head_dim": None}, "index_head_dim"),
    ("deepseek-ai/DeepSeek-V3.2", {"qk_head_dim": 128}, "qk_head_dim"),
    ("deepseek-ai/DeepSeek-V3.2", {"mlp_layer_types": ["dense"] * 4 + ["sparse"] * 57}, "first_k_dense_replace"),
    ("deepseek-ai/DeepSeek-V3.2", {"layer_types": ["linear_attention"] * 61}, "layer_types"),
    ("deepseek-ai/DeepSeek-V3.2", {"compress_ratios": [4] * 61}, "compressed sparse attention"),
    ("GLM-5.1", {"index_topk_freq": 4, "indexer_types": ["full"] * 78}, "contradict"),
    ("GLM-5.1", {"index_topk_pattern": "FS"}, "index_topk_pattern"),
    ("GLM-5.1", {"index_topk_pattern": "S" * 78}, "index_topk_pattern"),
    ("GLM-5.1", {"indexer_types": ["half"] * 78}, "indexer_types"),
    ("GLM-5.1", {"n_routed_experts": 128, "num_experts": 256}, "num_experts"),
    ("MiniMax-M3", {"layer_types": ["minimax_m3_sparse"] * 60}, "layer_types"),
    ("MiniMax-M3", {"index_n_heads": 8}, "index_n_heads"),
    ("MiniMax-M3", {"sparse_attention_config": None}, "sparse"),
    ("MiniMax-M3", {"sparse_attention_config": M3["sparse_attention_config"] | {"use_sparse_attention": False}}, "use_sparse"),
    ("MiniMax-M3", {"sparse_attention_config": M3["sparse_attention_config"] | {"sparse_disable_index_value": [0] * 60}},
     "sparse_disable_index_value"),
    ("MiniMax-M3", {"sparse_attention_config": M3["sparse_attention_config"] | {"sparse_attention_freq": [1] * 59}},
     "sparse_attention_freq"),
    ("MiniMax-M3", {"sparse_attention_config": M3["sparse_attention_config"] | {"sparse_window": 512}}, "sparse_window"),
    ("MiniMax-M3", {"intermediate_size": 6144}, "intermediate_size"),
    ("MiniMax-M3", {"first_k_dense_replace": 5}, "first_k_dense_replace"),
    ("MiniMax-M3", {"attention_output_gate": True}, "an output gate in its attention"),
    ("google/gemma-4-26B-A4B", {"attention_k_eq_v": False}, "attention_k_eq_v"),
    ("google/gemma-4-26B-A4B", {"num_global_key_value_heads": 3}, "does not divide"),
    ("google/gemma-4-26B-A4B", {"enable_moe_block": False}, "enable_moe_block"),
    ("google/gemma-4-26B-A4B", {"num_kv_shared_layers": 4}, "keys and values that layers share"),
    ("google/gemma-4-26B-A4B", {"hidden_size_per_layer_input": 256}, "embeddings of each layer"),
    ("google/gemma-4-26B-A4B", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
    ("google/gemma-4-26B-A4B", {"layer_types": ["sliding_attention"] * 29}, "layer_types"),
    ("google/gemma-4-26B-A4B", {"sliding_window": None}, "sliding_window"),
    ("stepfun-ai/Step-3.5-Flash", {"num_key_value_heads": 4}, "num_key_value_heads"),
    ("stepfun-ai/Step-3.5-Flash", {"moe_num_experts": 256, "num_experts": 288}, "num_experts"),
    ("stepfun-ai/Step-3.5-Flash", {"use_head_wise_attn_gate": "perhaps"}, "use_head_wise_attn_gate"),
    ("stepfun-ai/Step-3.5-Flash", {"first_k_dense_replace": 4}, "first_k_dense_replace"),
    ("stepfun-ai/Step-3.5-Flash", {"moe_layers_enum": "3;4;5"}, "moe_layers_enum"),
    ("stepfun-ai/Step-3.5-Flash", {"num_sliding_attention_heads": 64}, "num_sliding_attention_heads"),
    ("stepfun-ai/Step-3.5-Flash", {"attention_other_setting": {"attention_type": "full_attention", "num_attention_heads": 96}},
     "attention_type"),
    ("stepfun-ai/Step-3.5-Flash", {"attention_other_setting": {"num_attention_heads": 90}}, "does not divide"),
    ("stepfun-ai/Step-3.7-Flash", {"n_shared_experts": 2}, "n_shared_experts"),
    ("arcee-ai/Trinity-Mini", {"global_attn_every_n_layers": 5}, "global_attn_every_n_layers"),
    ("arcee-ai/Trinity-Mini", {"num_expert_groups": 4}, "num_expert_groups"),
    ("arcee-ai/Trinity-Mini", {"num_key_value_heads": 5}, "num_key_value_heads"),
    ("XiaomiMiMo/MiMo-V2-Flash", {"sliding_window_size": 256}, "sliding_window_size"),
    ("XiaomiMiMo/MiMo-V2-Flash", {"layer_types": ["full_attention"] * 48}, "hybrid_layer_pattern"),
    ("XiaomiMiMo/MiMo-V2-Flash", {"n_shared_experts": 1}, "n_shared_experts"),
    ("XiaomiMiMo/MiMo-V2-Flash", {"swa_num_key_value_heads": 7}, "does not divide"),
    ("poolside/Laguna-XS.2 in class form", {"num_attention_heads": 40}, "num_attention_heads"),
    ("poolside/Laguna-XS.2 in class form", {"num_attention_heads_per_layer": [48] * 39}, "num_attention_heads_per_layer"),
    ("poolside/Laguna-XS.2 in class form", {"gating": "sometimes"}, "gating"),
    ("poolside/Laguna-XS.2 in class form", {"mlp_layer_types": ["thick"] * 40}, "mlp_layer_types"),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"num_hidden_layers": 79}, "block_configs"),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"num_key_value_heads": 4}, "num_key_value_heads"),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"num_key_value_heads_per_layer": [8] * 80}, "both list"),
    ("apple/OpenELM-270M", {"num_kv_heads": [3] * 15}, "num_kv_heads"),
    ("apple/OpenELM-270M", {"ffn_multipliers": [-1.0] * 16}, "ffn_multipliers"),
    ("apple/OpenELM-270M", {"num_query_heads": [12] * 16, "num_kv_heads": [5] * 16}, "does not divide"),
    ("apple/OpenELM-270M", {"ffn_with_glu": False}, "ffn_with_glu"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "named"), CONTRADICTIONS)
def test_keys_that_contradict_each_other_are_named(tmp_path, name, changes, named):
    config = CONFIGS[name]
    text = outcome(tmp_path, with_keys(config, inner(config) | changes))
    assert isinstance(text, str) and named in text, text


def with_block(part, changes, number=0):
    blocks = [
        {name: dict(keys) for name, keys in block.items()}
        for block in CONFIGS["nvidia/Llama-3_3-Nemotron-Super-49B-v1"]["block_configs"]
    ]
    blocks[number][part] = {key: value for key, value in (blocks[number][part] | changes).items() if value != "gone"}
    return CONFIGS["nvidia/Llama-3_3-Nemotron-Super-49B-v1"] | {"block_configs": blocks}


@pytest.mark.parametrize(
    ("part", "changes", "named"),
    [
        ("attention", {"n_heads_in_group": "gone"}, "n_heads_in_group"), ("attention", {"n_heads_in_group": 7}, "n_heads_in_group"),
        ("attention", {"no_op": True}, "no_op"), ("attention", {"replace_with_linear": True}, "replace_with_linear"),
        ("attention", {"no_op": "yes"}, "no_op"), ("attention", {"window_length": 1024}, "window_length"),
        ("attention", {"n_heads_in_group": "gone", "heads_in_group": 8}, "heads_in_group"),
        ("attention", {"mamba": {"state_dim": 128}}, "mamba"),
        ("ffn", {"ffn_mult": "gone"}, "ffn_mult"), ("ffn", {"ffn_mult": "gone", "ffn_multi": 2.625}, "ffn_multi"),
        ("ffn", {"intermediate_size": 1024}, "intermediate_size"), ("ffn", {"no_op": True}, "ffn"),
        ("ffn", {"replace_with_linear": True, "no_op": True}, "both"), ("ffn", {"moe": {"num_local_experts": 8}}, "moe"),
        ("ffn", {"ffn_mult": "large"}, "ffn_mult"),
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_meant_is_named(tmp_path, part, changes, named):
    text = outcome(tmp_path, with_block(part, changes))
    assert isinstance(text, str) and named in text and "block_configs[0]" in text, text


def renamed(key):
    """Ten ways in which a key may be written wrong, or in another release."""
    first, _, rest = key.partition("_")
    return {
        "", key + "s", "x_" + key, key.upper(), key.replace("num_", "n_"), key.replace("_", ""), "my_" + rest, key + "_2",
        key.replace("heads", "head"), key.replace("layer", "block"), first + "_per_" + rest,
    } - {key}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_dropped_or_renamed_key_is_named_or_was_redundant(tmp_path, name):
    """Keys of tables too. A refusal names the key, or the mechanism whose key it is."""
    config = CONFIGS[name]
    read = outcome(tmp_path, config)
    tables = {key: value for key, value in inner(config).items() if isinstance(value, dict)}
    places = [(None, inner(config)), *tables.items()]
    tried = 0
    for table, keys in places:
        for key in keys:
            rest = {each: value for each, value in keys.items() if each != key}
            for new in sorted(renamed(key)):
                other = rest | ({new: keys[key]} if new else {})
                changed = other if table is None else inner(config) | {table: other}
                result = outcome(tmp_path, with_keys(config, changed))
                tried += 1
                if isinstance(result, str):
                    assert key in result or (new and new in result), (key, new, result)
                else:
                    assert result == read, (key, new)
    assert tried > 100


TOWERS = {
    "qwen3_vl_moe": (
        {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "in_channels": 3, "patch_size": 16,
         "temporal_patch_size": 2, "spatial_merge_size": 2, "num_position_embeddings": 2304, "out_hidden_size": 2048,
         "deepstack_visual_indexes": [8, 16, 24]},
        27 * (4 * 1152**2 + 2 * 1152 * 4304) + 3 * 2 * 256 * 1152 + 2304 * 1152 + 4 * (4608**2 + 4608 * 2048),
        0.539e9,  # 31.07 B of the checkpoint less 30.53 B of the language model
    ),
    "gemma4": (
        {"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "head_dim": 72,
         "num_key_value_heads": 16, "num_hidden_layers": 27, "patch_size": 16, "position_embedding_size": 10240},
        27 * (4 * 1152**2 + 3 * 1152 * 4304) + 3 * 256 * 1152 + 2 * 10240 * 1152 + 1152 * 2048,
        0.55e9,  # of the model's card
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOWERS)
def test_an_image_tower_is_counted_from_its_keys(tmp_path, kind):
    keys, exact, published = TOWERS[kind]
    text = {"qwen3_vl_moe": OLDER["Qwen3-30B-A3B"] | {"model_type": "qwen3_vl_moe_text"}}.get(
        kind, inner(CONFIGS["google/gemma-4-26B-A4B"]) | {"hidden_size": 2048}
    )
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, "text_config": text, "vision_config": keys}))
    counts = catalog.parameter_counts(path)
    assert counts["vision_config"] == exact and exact == pytest.approx(published, rel=0.05)
    assert any(
        each == f"ignores vision_config, {1e-9 * exact:.2g} B parameters" for each in catalog.approximations(path)
    )


@pytest.mark.parametrize(
    ("config", "key", "layers"),
    [
        ({}, "", 0), ({"num_nextn_predict_layers": 1}, "num_nextn_predict_layers", 1), ({"num_nextn_predict_layers": 0}, "", 0),
        ({"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 2}, "num_mtp_modules", 6),
        ({"use_mtp": False, "num_mtp_modules": 3}, "", 0),
        ({"num_mtp_modules": 7, "num_nextn_predict_layers": 1}, "num_nextn_predict_layers", 1),
    ],
)  # fmt: skip
def test_multi_token_layers(config, key, layers):
    assert multi_token_layers(config) == (key, layers)


def test_parameters_of_a_multi_token_layer_are_the_published_ones(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(OLDER["DeepSeek-V3"] | {"num_nextn_predict_layers": 1}))
    assert catalog.parameter_counts(path)["multi_token"] == pytest.approx(11.5e9, rel=0.02)  # README_WEIGHTS.md
    path.write_text(json.dumps(CONFIGS["stepfun-ai/Step-3.5-Flash"]))  # its three layers have a dense MLP of 11,264
    assert catalog.parameter_counts(path)["multi_token"] < 1e9


def test_a_pattern_states_the_layers_that_predict_ahead():
    """The order of the letters means nothing; without a pattern, the last kind of layers alone counts."""
    shape = dict(
        layers=4.0, hidden=64.0, ffn=0.0, mlp_matrices=3.0, heads=1.0, kv_heads=1.0, qk_dim=32.0, v_dim=32.0, vocab=100.0,
        tied_embeddings=0.0, moe_layers=2.0, experts=1.0, experts_per_token=1.0, shared_experts=0.0, expert_ffn=32.0,
    )  # fmt: skip
    kinds = [{"layers": 2.0, "moe": 1.0, "attends": 0.0}, {"layers": 2.0, "moe": 0.0, "attends": 1.0}]
    one = multi_token_parameters({"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}, shape, kinds)
    last = multi_token_parameters({"num_nextn_predict_layers": 1}, shape, kinds)
    assert (
        last
        < one
        == multi_token_parameters({"num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "E*"}, shape, kinds)
        / 2
    )
    assert last >= 4 * 64 * 32 + 2 * 64 * 64
    assert multi_token_parameters({}, shape, kinds) == 0


def test_counts_stand_beside_the_card(tmp_path):
    counts = catalog.parameter_counts("gpt-oss-120b")
    assert counts["stated_parameters"] == 116.8e9 and counts["stated_active_parameters"] == 5.1e9
    assert counts["embedding"] == counts["head"] == 201088 * 2880
    assert counts["active_parameters"] - counts["embedding"] == pytest.approx(5.13e9, rel=1e-3)
    assert set(catalog.parameter_counts("deepseek-v4-flash")) == {"stated_parameters"}
    assert set(catalog.parameter_counts("resnet-50")) >= {"parameters", "active_parameters"}
    assert set(catalog.parameter_counts("gpt3-175b")) & {"multi_token", "vision_config"} == set()
