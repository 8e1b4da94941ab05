"""Configs of a hundred published models are read to the parameter, and what has no term is refused by name.

`data/dense_configs.json` and `data/experts_configs.json` hold the keys of published configs and two counts: `total`, all
parameters, and `active`, those that a token meets (routed experts count `k` of `E`). Their `source`:

- `both`: the total of the published checkpoint, and the tensors of transformers 5.23's own model of that config, summed
  without memory; they are equal;
- `reference`: the second alone;
- `checkpoint`: the first alone, for layouts that transformers does not ship;
- `card`: a rounded number of at least three digits from the model's card or report (Arctic: 10 B and 128 x
  3.66 B; MiniCPM-MoE: 13.6 B and its token table).

`stated_active` is a count of the card, without the `embedding` where that is given. `recalled` says what of an entry is from
memory of public sources and was not read again: the config's keys, the published total, or both. Counts leave out layers that
predict several tokens ahead and towers for images, as the cards do. One entry, in "class form", is no published model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import pytest

from hwopt import catalog
from hwopt.catalog.config_families import composites, families, harmless, refusal, refused_types
from hwopt.catalog.huggingface import QUANTIZED, config_length, shape_of_config
from hwopt.errors import UserError
from hwopt.workload.transformer import active_parameters, total_parameters

DATA = Path(__file__).parent / "data"
MODELS = {
    each["model"]: each
    for name in ("dense_configs.json", "experts_configs.json")
    for each in json.loads((DATA / name).read_text(encoding="utf-8"))
}
PLAIN = dict(
    model_type="llama", hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, vocab_size=32000, max_position_embeddings=4096, tie_word_embeddings=False, hidden_act="silu",
)  # fmt: skip
EXPERTS = MODELS["Qwen3-30B-A3B"]["config"]
LATENT = MODELS["DeepSeek-V3"]["config"]
ERNIE = MODELS["ERNIE-4.5-21B-A3B"]["config"]


def read(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return catalog.transformer(path)


def refusal_text(tmp_path, config) -> str:
    with pytest.raises(UserError) as caught:
        read(tmp_path, config)
    text = str(caught.value)
    assert "\n" not in text and "config.json" in text and len(text) < 500
    return text


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_ones(tmp_path, name):
    entry = MODELS[name]
    shape = read(tmp_path, entry["config"])
    with jax.enable_x64(True):
        total, active = float(total_parameters(shape)), float(active_parameters(shape))
    limit = 0.01 if entry["source"] == "card" else 0.001
    assert total == pytest.approx(entry["total"], rel=limit)
    assert active == pytest.approx(entry.get("active", entry["total"] if shape.experts == 0 else active), rel=limit)
    if "stated_active" in entry:
        assert active - entry.get("embedding", 0) == pytest.approx(entry["stated_active"], rel=0.005)


def test_every_layout_of_the_table_is_compared():
    data = [json.loads((DATA / f"{name}_configs.json").read_text(encoding="utf-8")) for name in ("attention", "hybrid")]
    compared = {id(families()[_kind(entry["config"])]) for entry in (*MODELS.values(), *data[0], *data[1])}
    assert {family.types[0] for family in families().values() if id(family) not in compared} == set()
    assert len(compared) >= 40 and len(MODELS) >= 100


def _kind(config):
    return config["text_config"].get("model_type") if "text_config" in config else config["model_type"]


def test_the_tables_do_not_contradict_each_other():
    for kind, family in families().items():
        assert kind in family.types and refusal(kind) is None
        assert not family.keys() & harmless(), kind
        assert not family.keys() & set(family.harmless), kind
    assert not set(refused_types()) & set(families())
    assert set(composites().values()) <= set(families()) and not set(composites()) & set(refused_types())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("jamba", "state-space"), ("hymba", "state-space"), ("plamo2", "state-space"), ("zamba2", "state-space"),
        ("rwkv6", "recurrent"), ("rwkv7", "recurrent"), ("recurrent_gemma", "recurrent"), ("lfm2", "convolution"),
        ("gated_deltanet", "gated-delta-net"), ("bailing_moe_linear", "linear-attention"), ("hy_v4", "hyper-connections"),
        ("deepseek_v4", "compressed sparse attention, hyper-connections"), ("phi3small", "block-sparse"),
        ("gemma4_assistant", "heads that differ"), ("gemma3n", "layers share"), ("hunyuan", "layers share"),
        ("jetmoe", "experts of its"),
        ("longcat_flash", "experts that do nothing"), ("axk2", "gated norms"), ("muse_spark_text", "gated residuals"),
        ("blt", "bytes"), ("llada", "denoising"),
        ("bert", "an encoder"), ("roberta", "an encoder"), ("modernbert", "an encoder"), ("t5", "an encoder and a decoder"),
        ("clip_vision_model", "image"), ("siglip_vision_model", "image"), ("some_vision_model", "image"), ("whisper", "audio"),
        ("llava", "parts besides"), ("qwen2_vl", "parts besides"), ("mllama", "parts besides"), ("internvl_chat", "parts besides"),
    ],
)  # fmt: skip
def test_what_has_no_term_is_refused_by_name(tmp_path, kind, reason):
    with pytest.raises(UserError, match=reason) as caught:
        shape_of_config(PLAIN | {"model_type": kind}, "config.json")
    assert f"'{kind}'" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "changes", "complaint"),
    [
        (PLAIN, {"num_attention_heads": 33}, "'num_attention_heads' = 33 does not divide the hidden size 4096"),
        (PLAIN, {"num_key_value_heads": 5}, "'num_key_value_heads' = 5 does not divide the 32 heads"),
        (PLAIN, {"num_attention_heads": 0}, "'num_attention_heads' must be above zero"),
        (PLAIN, {"num_hidden_layers": 1e14}, "'num_hidden_layers' = 100000000000000.0 exceeds the maximum"),
        (PLAIN, {"num_hidden_layers": 10**400}, "'num_hidden_layers' = 1000"),
        (PLAIN, {"num_hidden_layers": 32.5}, "an integer"),
        (PLAIN, {"num_hidden_layers": True}, "must be a number, not True"),
        (PLAIN, {"vocab_size": float("nan")}, "'vocab_size' must be a non-negative number"),
        (PLAIN, {"vocab_size": None}, "'vocab_size' is null"),
        (PLAIN, {"tie_word_embeddings": "false"}, "must be true or false, not 'false'"),
        (PLAIN, {"layer_types": ["full_attention"]}, "'layer_types' has 1 entries for 32 layers"),
        (PLAIN, {"layer_types": ["linear_attention"] * 32}, "'layer_types' has a layer 'linear_attention'"),
        (PLAIN, {"layer_types": ["sliding_attention"] * 32}, "no key states the window size"),
        (PLAIN, {"layer_types": "full_attention"}, "'layer_types' must be a list"),
        (PLAIN, {"num_local_experts": 8}, "'num_local_experts' may change the shape"),
        (PLAIN, {"mamba_d_state": 16}, "'mamba_d_state' may change the shape"),
        (PLAIN, {"kv_lora_rank": 512}, "'kv_lora_rank' may change the shape"),
        (PLAIN, {"conv_kernel": 4}, "'conv_kernel' may change the shape"),
        (PLAIN, {"attn_layer_period": 8}, "'attn_layer_period' may change the shape"),
        (PLAIN, {"add_cross_attention": True}, "add_cross_attention"),
        (PLAIN, {"model_type": ""}, "'model_type' is missing"),
        (PLAIN, {"model_type": 7}, "'model_type' is missing"),
        (PLAIN, {"model_type": "lama"}, "did you mean 'llama'"),
        (PLAIN, {"model_type": "brandnew", "num_experts": 8}, "'num_experts' may change its shape"),
        (PLAIN, {"model_type": "brandnew", "wormholes": 8}, "'wormholes' may change its shape"),
        (PLAIN, {"model_type": "brandnew", "hidden_act": "relu2"}, "does not tell whether its MLP is gated"),
        (PLAIN, {"model_type": "brandnew", "tie_word_embeddings": None}, "'tie_word_embeddings' is missing"),
        (PLAIN, {"model_type": "brandnew", "num_key_value_heads": None}, "'num_key_value_heads' is null"),
        (PLAIN, {"model_type": "brandnew", "text_config": {}}, "has parts besides its 'text_config'"),
        (PLAIN, {"model_type": "llama4"}, "'text_config' is missing"),
        (PLAIN, {"model_type": "llama4", "text_config": "llama4_text"}, "'text_config' must be a table"),
        (EXPERTS, {"num_experts_per_tok": 129}, "'num_experts_per_tok' = 129 is more than 'num_experts' = 128"),
        (EXPERTS, {"mlp_only_layers": [48]}, "'mlp_only_layers' = 48 exceeds"),
        (EXPERTS, {"mlp_only_layers": [3, 3]}, "'mlp_only_layers' names a layer twice"),
        (EXPERTS, {"decoder_sparse_step": 0}, "'decoder_sparse_step' must be above zero"),
        (EXPERTS, {"mlp_only_layers": list(range(48))}, "no layer uses the"),
        (EXPERTS, {"num_local_experts": 64}, "'num_experts' = 128 contradicts 'num_local_experts' = 64"),
        (LATENT, {"first_k_dense_replace": 62}, "'first_k_dense_replace' = 62 exceeds"),
        (LATENT, {"moe_layer_freq": [2] * 61}, "'moe_layer_freq' must hold 0 or 1"),
        (LATENT, {"mlp_layer_types": ["dense"]}, "'mlp_layer_types' has 1 entries for 61 layers"),
        (LATENT, {"mlp_layer_types": ["hash_moe"] * 61}, "'mlp_layer_types' has a layer 'hash_moe'"),
        (LATENT, {"index_topk": 2048}, "'index_topk' may change the shape"),
        (ERNIE, {"moe_layer_end_index": 28}, "'moe_layer_end_index' = 28 exceeds"),
        (ERNIE, {"moe_num_experts": [64, 64]}, "must be a number"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_meant_is_refusal_text(tmp_path, base, changes, complaint):
    assert complaint in refusal_text(tmp_path, base | changes)


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("Snowflake Arctic", {"parallel_attn_mlp_res": False}, "'parallel_attn_mlp_res' = False"),
        ("MiniMax-M2.5", {"attn_type_list": [1] * 61 + [0]}, "'attn_type_list'"),
        ("Hunyuan-A13B", {"use_cla": True}, "'use_cla' = True"),
        ("Hunyuan-A13B", {"moe_topk": [8] * 31 + [4]}, "'moe_topk' must be a number"),
        ("MPT-7B", {"attn_config": {"alibi": False}}, "'attn_config.alibi' = False"),
        ("MPT-7B", {"attn_config": {"alibi": True, "kv_n_head": 8}}, "did you mean 'kv_n_heads'"),
        ("MPT-7B", {"attn_config": 3}, "'attn_config' must be a table of keys"),
        ("DBRX", {"ffn_config": {"moe_num_expert": 16}}, "did you mean 'moe_num_experts'"),
        ("OPT-6.7B", {"word_embed_proj_dim": 512}, "'word_embed_proj_dim' = 512 is not 4096"),
        ("Falcon-40B", {"new_decoder_architecture": False}, "'num_kv_heads' = 8 contradicts 'multi_query' = true"),
        ("Ling-mini-2.0", {"moe_shared_expert_intermediate_size": 1024}, "is not 512"),
        ("StarCoder2-7B", {"mlp_type": "gated"}, "'mlp_type' = 'gated'"),
        ("GPT-Neo-1.3B", {"attention_layers": ["global"]}, "'attention_layers' must state 'local' or 'global'"),
        ("Qwen1.5-MoE-A2.7B", {"use_sliding_window": True}, "'use_sliding_window' = True"),
        ("Qwen-7B", {"intermediate_size": 22017}, "must be a multiple of 2"),
    ],
)
def test_a_variant_that_a_layout_does_not_cover_is_refusal_text(tmp_path, name, changes, complaint):
    assert complaint in refusal_text(tmp_path, MODELS[name]["config"] | changes)


@pytest.mark.parametrize("key", ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "tie_word_embeddings"])
def test_a_misspelt_key_is_refused_with_the_right_one(tmp_path, key):
    config = {name: value for name, value in EXPERTS.items() if name != key} | {key[:-1]: EXPERTS[key]}
    assert f"did you mean '{key}'" in refusal_text(tmp_path, config)


def test_a_key_stated_twice_is_refusal_text(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN)[:-1] + ', "num_hidden_layers": 64}')
    with pytest.raises(UserError, match=re.escape("'num_hidden_layers' is stated twice, as 32 and as 64")):
        catalog.transformer(path)


def test_a_config_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN)[:-1] + ', "id2label": ' + "[" * 900 + "]" * 900 + "}")
    with pytest.raises(UserError, match="nested too deeply"):
        catalog.transformer(path)


def test_harmless_keys_change_nothing(tmp_path):
    plain = read(tmp_path, PLAIN)
    decorated = read(
        tmp_path,
        dict.fromkeys(sorted(harmless() - set(QUANTIZED)), 3) | PLAIN | {"wormholes": 8, "attn_output_gate": False},
    )
    assert all(getattr(plain, field) == getattr(decorated, field) for field in plain.__dataclass_fields__)


@pytest.mark.parametrize(
    ("name", "share", "window"),
    [
        ("Mistral-7B-v0.1", 1.0, 4096), ("Gemma-2-9B", 0.5, 4096), ("Gemma-3-1B", 22 / 26, 512), ("Command R7B", 0.75, 4096),
        ("OLMo-3-7B", 0.75, 4096), ("EXAONE-4.0-32B", 0.75, 4096), ("gpt-oss-20b", 0.5, 128), ("GPT-Neo-1.3B", 0.5, 256),
        ("Llama-4-Scout (text part)", 0.75, 8192), ("Qwen2.5-7B", 0.0, 1e9), ("Phi-3-mini-4k", 1.0, 2047),
    ],
)  # fmt: skip
def test_windows(tmp_path, name, share, window):
    shape = read(tmp_path, MODELS[name]["config"])
    assert (shape.local_layers_fraction, shape.window_tokens) == (pytest.approx(share), window)


def test_windows_of_the_last_layers(tmp_path):
    shape = read(tmp_path, MODELS["Qwen2.5-7B"]["config"] | {"use_sliding_window": True, "max_window_layers": 21})
    assert shape.local_layers_fraction == 0.25


def test_the_part_of_a_multimodal_config_that_can_be_read_is_named(tmp_path):
    text = refusal_text(tmp_path, {"model_type": "voxtral", "text_config": PLAIN})
    assert "its 'text_config' alone can be read" in text


def test_the_longest_sequence():
    assert config_length({"n_positions": 1024}, "x") == 1024 and config_length({}, "x") == 4096
    with pytest.raises(UserError, match="'max_position_embeddings' must be above zero"):
        config_length({"max_position_embeddings": 0}, "x")


@pytest.mark.parametrize(
    ("kind", "keys", "reasons"),
    [
        ("gated_deltanet", {"linear_num_value_heads": 48, "attn_output_gate": True}, ["gated-delta-net", "output gate"]),
        ("newest", {"linear_key_head_dim": 128}, ["is unknown and has gated-delta-net"]),
        ("newest", {"linear_attn_config": {"kda_layers": [1]}, "mla_use_output_gate": True, "routed_expert_hidden_size": 3584},
         ["KDA", "output gate", "latent experts"]),
        ("newest", {"index_topk": 2048, "compress_ratios": [0, 4], "hc_mult": 4},
         ["indexer sparse attention", "compressed sparse attention", "hyper-connections"]),
        ("newest", {"sparse_attention_config": {"sparse_block_size": 128}}, ["block-sparse attention"]),
        ("newest", {"mamba_num_heads": 64, "moe_latent_size": 1024}, ["Mamba-2 state-space layers", "latent experts"]),
        ("gemma4_assistant", {"global_head_dim": 512}, ["heads that differ by layer"]),
        ("newest", {"block_configs": [{}]}, ["heads that differ by layer"]),
        ("axk2", {"index_topk": 2048}, ["gated norms and an output gate", "indexer sparse attention"]),
        ("mistral_large4_text", {"kv_lora_rank": 512}, ["latent keys and values that layers share"]),
        ("gemma4_text", {"hidden_size_per_layer_input": 256}, ["embeddings of each layer"]),
        ("gemma4_text", {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 20}, ["keys and values that layers share"]),
        ("llama", {"attention_output_gate": True}, ["'attention_output_gate' may change the shape (an output gate"]),
        ("deepseek_v3", {"index_topk": 2048}, ["'index_topk' may change the shape (indexer sparse attention)"]),
    ],
)  # fmt: skip
def test_a_refusal_names_the_mechanisms_that_keys_speak_of(tmp_path, kind, keys, reasons):
    base = LATENT if kind == "deepseek_v3" else PLAIN
    flat = base | {"model_type": kind} | keys
    for config in (flat, {"model_type": kind, "text_config": flat}) if refusal(kind) else (flat,):
        text = refusal_text(tmp_path, config)
        assert all(each in text for each in reasons), text


def test_keys_that_are_off_speak_of_no_mechanism(tmp_path):
    off = {
        "attn_output_gate": False,
        "index_topk": None,
        "hc_mult": 0,
        "hidden_size_per_layer_input": 0,
        "kda_layers": [],
    }
    assert read(tmp_path, PLAIN | off).layers == 32


FORMAT = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
VISION = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304}
MOON = {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152, "vt_intermediate_size": 4304}
AHEAD = {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 1}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (PLAIN, []),
        (PLAIN | {"quantization_config": None, "num_nextn_predict_layers": 0}, []),
        (PLAIN | FORMAT, []),  # services have the file's formats
        (PLAIN | {"quantization": {"group_size": 64, "bits": 4}}, []),
        (LATENT | {"num_nextn_predict_layers": 1}, ["ignores multi-token prediction, num_nextn_predict_layers 1"]),
        (MODELS["MiniMax-M2.5"]["config"] | AHEAD, ["ignores multi-token prediction"]),
        ({"model_type": "kimi_k25", "text_config": LATENT | {"model_type": "kimi_k2"} | FORMAT, "vision_config": MOON},
         ["ignores multi-token prediction", "ignores vision_config, about 0.41 B parameters"]),
        ({"model_type": "qwen3_vl_moe", "text_config": EXPERTS | {"model_type": "qwen3_vl_moe_text"}, "vision_config": VISION},
         ["ignores vision_config, about 0.41 B parameters"]),
        ({"model_type": "llava", "text_config": PLAIN, "vision_config": {"model_type": "pixtral"}, **FORMAT},
         ["ignores vision_config"]),
    ],
)  # fmt: skip
def test_what_an_estimate_leaves_out_of_a_config_is_said(tmp_path, config, said):
    read(tmp_path, config)
    found = catalog.approximations(tmp_path / "config.json")
    assert len(found) == len(said) and all(any(each.startswith(word) for each in found) for word in said), found


@pytest.mark.parametrize("value", ["fp8", 8, True, ["fp8"]])
@pytest.mark.parametrize("key", QUANTIZED)
def test_a_format_that_is_no_table_is_refused(tmp_path, key, value):
    mamba = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    for config in (PLAIN, {"model_type": "llava", "text_config": PLAIN}, mamba):
        assert f"'{key}' must be a table of keys, not {value!r}" in refusal_text(tmp_path, config | {key: value})


@pytest.mark.parametrize(
    ("name", "active", "embedding"),
    [
        ("tencent/Hy3-preview-Base", 21e9, 0),
        ("mistralai/Mistral-Small-4-119B", 6.5e9, 0),
        ("sarvamai/sarvam-30b", 2.4e9, 2 * 262144 * 4096),
    ],
)
def test_active_parameters_are_those_of_the_cards(tmp_path, name, active, embedding):
    """Model cards state two digits; Sarvam's count excludes the embedding."""
    found = float(active_parameters(read(tmp_path, MODELS[name]["config"]))) - embedding
    assert found == pytest.approx(active, rel=0.025)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"n_group": 8, "topk_group": None}, "must be given together"),
        ({"n_group": None, "topk_group": 4}, "must be given together"),
        ({"n_group": 2, "topk_group": 4}, "'topk_group' = 4 is more than 'n_group' = 2"),
    ],
)
def test_groups_of_experts(tmp_path, changes, complaint):
    assert read(tmp_path, LATENT | {"n_group": 8, "topk_group": 3}).routed_groups == 3
    assert read(tmp_path, LATENT | {"n_group": 8, "topk_group": 3, "topk_method": "greedy"}).routed_groups == 0
    assert read(tmp_path, LATENT | {"n_group": 1, "topk_group": 1}).routed_groups == 0
    assert complaint in refusal_text(tmp_path, LATENT | changes)


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("tencent/Hy3-preview-Base", {"expert_hidden_dim": 1024}, "contradicts"),
        ("tencent/Hy3-preview-Base", {"num_shared_expert": 2}, "did you mean 'num_shared_experts'"),
        ("tencent/Hy3-preview-Base", {"use_cla_attention": True}, "may change the shape"),
        ("sarvamai/sarvam-30b", {"moe_shared_expert_intermediate_size": 2048}, "is not 1024"),
        ("sarvamai/sarvam-30b", {"layer_types": ["sliding_attention"] * 19}, "no key states the window size"),
        ("MiniMaxAI/MiniMax-M3", {"attention_output_gate": True}, "'attention_output_gate' = True"),
        ("MiniMaxAI/MiniMax-M3", {"n_shared_experts": 2}, "'n_shared_experts' = 2"),
        ("zai-org/GLM-5.1", {"compress_ratios": [4]}, "compressed sparse attention"),
    ],
)
def test_a_new_layout_is_not_misread(tmp_path, name, changes, complaint):
    assert complaint in refusal_text(tmp_path, MODELS[name]["config"] | changes)


@pytest.mark.parametrize("inner", [["llama"], {"llama": 1}, 5, None, "unheard-of"])
def test_a_text_part_of_no_known_layout_is_refused(tmp_path, inner):
    for kind in ("llava", "kimi_k25", "voxtral"):
        refusal_text(tmp_path, {"model_type": kind, "text_config": PLAIN | {"model_type": inner, "kv_lora_rank": 512}})
