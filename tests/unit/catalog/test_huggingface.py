"""Configs of model hubs give the catalogue's shapes."""

from __future__ import annotations

import json
import string
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwopt import catalog
from hwopt.catalog.config_families import mechanisms
from hwopt.catalog.huggingface import read_config, shape_of_config
from hwopt.errors import UserError

LLAMA = dict(model_type="llama", hidden_size=16384, intermediate_size=53248, num_hidden_layers=126, num_attention_heads=128,
             num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072, tie_word_embeddings=False)  # fmt: skip
CONFIGS = {
    "llama3.1-405b": LLAMA,
    "mistral-7b": dict(
        model_type="mistral", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=32000, sliding_window=4096,
    ),
    "mixtral-8x7b": dict(
        model_type="mixtral", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=32000, num_local_experts=8,
        num_experts_per_tok=2, sliding_window=None,
    ),
    "qwen2.5-7b": dict(
        model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4, vocab_size=152064, use_sliding_window=False,
        sliding_window=131072,
    ),
    "qwen3-8b": dict(
        model_type="qwen3", hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=151936,
        tie_word_embeddings=False,
    ),
    "qwen3-30b-a3b": dict(
        model_type="qwen3_moe", hidden_size=2048, intermediate_size=768, num_hidden_layers=48,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, vocab_size=151936, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
    ),
    "deepseek-v3": dict(
        model_type="deepseek_v3", hidden_size=7168, intermediate_size=18432, num_hidden_layers=61,
        num_attention_heads=128, num_key_value_heads=128, vocab_size=129280, n_routed_experts=256,
        n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3,
        moe_layer_freq=1, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128,
    ),
    "deepseek-v2-lite": dict(
        model_type="deepseek_v2", hidden_size=2048, intermediate_size=10944, num_hidden_layers=27,
        num_attention_heads=16, num_key_value_heads=16, vocab_size=102400, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1,
        moe_layer_freq=1, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128,
    ),
    "gemma-7b": dict(
        model_type="gemma", hidden_size=3072, intermediate_size=24576, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=16, head_dim=256, vocab_size=256000,
    ),
    "gemma2-9b": dict(
        model_type="gemma2", hidden_size=3584, intermediate_size=14336, num_hidden_layers=42,
        num_attention_heads=16, num_key_value_heads=8, head_dim=256, vocab_size=256000, sliding_window=4096,
    ),
    "gemma3-27b": dict(
        model_type="gemma3", text_config=dict(model_type="gemma3_text", hidden_size=5376,
        intermediate_size=21504, num_hidden_layers=62, num_attention_heads=32, num_key_value_heads=16,
        head_dim=128, vocab_size=262144, sliding_window=1024, sliding_window_pattern=6),
    ),
    "gpt2-xl": dict(
        model_type="gpt2", n_embd=1600, n_layer=48, n_head=25, n_positions=1024, vocab_size=50257, n_inner=None,
    ),
    "opt-30b": dict(
        model_type="opt", hidden_size=7168, ffn_dim=28672, num_hidden_layers=48, num_attention_heads=56,
        vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=7168,
    ),
    "bloom-176b": dict(
        model_type="bloom", hidden_size=14336, n_layer=70, n_head=112, vocab_size=250880,
    ),
    "falcon-40b": dict(
        model_type="falcon", hidden_size=8192, num_hidden_layers=60, num_attention_heads=128, num_kv_heads=8,
        new_decoder_architecture=True, multi_query=True, vocab_size=65024,
    ),
    "falcon-7b": dict(
        model_type="falcon", hidden_size=4544, num_hidden_layers=32, num_attention_heads=71, multi_query=True,
        vocab_size=65024,
    ),
    "mpt-30b": dict(
        model_type="mpt", d_model=7168, n_layers=48, n_heads=64, expansion_ratio=4, vocab_size=50432,
        max_seq_len=8192, attn_config=dict(alibi=True),
    ),
    "phi-4": dict(
        model_type="phi3", hidden_size=5120, intermediate_size=17920, num_hidden_layers=40,
        num_attention_heads=40, num_key_value_heads=10, vocab_size=100352, sliding_window=None,
        tie_word_embeddings=False,
    ),
    "gpt-oss-20b": dict(
        model_type="gpt_oss", hidden_size=2880, intermediate_size=2880, num_hidden_layers=24,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, vocab_size=201088, num_local_experts=32,
        num_experts_per_tok=4, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "llama4-maverick": dict(
        model_type="llama4", text_config=dict(model_type="llama4_text", hidden_size=5120,
        intermediate_size=8192, intermediate_size_mlp=16384, num_hidden_layers=48, num_attention_heads=40,
        num_key_value_heads=8, head_dim=128, vocab_size=202048, num_local_experts=128, num_experts_per_tok=1,
        interleave_moe_layer_step=2, attention_chunk_size=8192),
    ),
    "nemotron4-340b": dict(
        model_type="nemotron", hidden_size=18432, intermediate_size=73728, num_hidden_layers=96,
        num_attention_heads=96, num_key_value_heads=8, vocab_size=256000,
    ),
}  # fmt: skip


def write(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


PUBLISHED = {
    each["model"]: each["config"]
    for name in ("dense_configs.json", "experts_configs.json", "attention_configs.json", "hybrid_configs.json")
    for each in json.loads((Path(__file__).parent / "data" / name).read_text(encoding="utf-8"))
}
"""Keys of published configs; `test_config_families.py` and `test_config_hybrids.py` compare their parameter counts."""

ENTRIES = CONFIGS | {
    entry: PUBLISHED[model]
    for entry, model in {
        "bloom-7.1b": "BLOOM-7.1B", "deepseek-v2": "DeepSeek-V2", "deepseek-v2-lite": "DeepSeek-V2-Lite",
        "deepseek-v3": "DeepSeek-V3", "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
        "gemma4-26b-a4b": "google/gemma-4-26B-A4B", "step-3.7-flash": "stepfun-ai/Step-3.7-Flash",
        "trinity-mini": "arcee-ai/Trinity-Mini",
        "glm-5": "zai-org/GLM-5.1", "gpt-oss-120b": "gpt-oss-120b", "gpt2-small": "GPT-2", "grok-1": "Grok-1",
        "internlm-7b": "InternLM-7B", "kimi-k2": "Kimi-K2", "llama3.1-8b": "Llama-3.1-8B",
        "llama4-scout": "Llama-4-Scout (text part)",
        "minimax-m3": "MiniMaxAI/MiniMax-M3", "mpt-7b": "MPT-7B", "olmo2-13b": "OLMo-2-13B", "opt-6.7b": "OPT-6.7B",
        "qwen3-235b-a22b": "Qwen3-235B-A22B", "qwen3-next-80b-a3b": "Qwen3-Next-80B-A3B", "qwen3.5-397b-a17b": "Qwen3.5-397B-A17B",
        "qwen3.5-122b-a10b": "Qwen/Qwen3.5-122B-A10B", "qwen3.5-27b": "Qwen/Qwen3.5-27B", "mamba2-2.7b": "mamba2-2.7b",
        "kimi-linear-48b-a3b": "Kimi-Linear-48B-A3B", "kimi-k3": "moonshotai/Kimi-K3", "nemotron-h-8b": "Nemotron-H-8B",
        "nemotron-h-56b": "nvidia/Nemotron-H-56B-Base-8K", "nemotron-3-nano-30b-a3b": "nvidia/Nemotron-3-Nano-30B-A3B",
        "nemotron-3-super-120b-a12b": "nvidia/Nemotron-3-Super-120B-A12B",
    }.items()
}  # fmt: skip
"""Entries of the catalogue whose config is here."""


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_and_its_config_are_one_run(tmp_path, name):
    asked = dict(sequence_length=4096, global_batch=512, tokens=1e12, batch_ramp="none")
    path = write(tmp_path, ENTRIES[name])
    ours, theirs = catalog.training_run(name, **asked), catalog.training_run(path, **asked)
    for field in ours.model.__dataclass_fields__:
        mine, read = getattr(ours.model, field), getattr(theirs.model, field)
        if field == "kinds" and mine is not None:
            assert eqx.tree_equal(mine, read, rtol=1e-12)
            continue
        if mine is None or read is None:
            assert mine is read, field
            continue
        if field == "ffn" and ours.model.moe_layers == ours.model.layers:
            continue  # no dense layer uses it
        if field == "kinds":
            assert eqx.tree_equal(mine, read, rtol=1e-12)
            continue
        assert read == pytest.approx(mine, rel=1e-12), field
    assert eqx.tree_equal(ours, eqx.tree_at(lambda run: run.model, theirs, ours.model), rtol=1e-12)
    said = [each for each in catalog.approximations(path) if not each.startswith("ignores")]
    assert catalog.approximations(name) == said and bool(said) == (name == "kimi-k3")


def test_every_entry_with_an_approximation_has_its_config_here():
    assert {name for name in catalog.names("workloads") if catalog.approximations(name)} == {"kimi-k3"}


def test_starcoder_is_plain_multi_query_with_learned_positions(tmp_path):
    config = dict(model_type="gpt_bigcode", n_embd=6144, n_head=48, n_inner=24576, n_layer=40, n_positions=8192,
                  vocab_size=49152, multi_query=True)  # fmt: skip
    shape = catalog.transformer(write(tmp_path, config))
    assert (shape.mlp_matrices, shape.kv_heads, shape.learned_positions, shape.tied_embeddings) == (2, 1, 8192, 1)
    every_head = catalog.transformer(write(tmp_path, config | {"multi_query": False}))
    assert every_head.kv_heads == 48


def test_starcoder2_is_plain_without_a_position_table(tmp_path):
    config = dict(model_type="starcoder2", hidden_size=6144, intermediate_size=24576, num_hidden_layers=40, num_attention_heads=48,
                  num_key_value_heads=4, vocab_size=49152, max_position_embeddings=16384, sliding_window=4096)  # fmt: skip
    shape = catalog.transformer(write(tmp_path, config))
    assert (shape.mlp_matrices, shape.kv_heads, shape.learned_positions) == (2, 4, 0)


def test_an_unknown_family_is_read_as_llama_like(tmp_path):
    shape = catalog.transformer(write(tmp_path, LLAMA | {"model_type": "brandnew"}))
    assert shape.mlp_matrices == 3 and shape.heads == 128


def test_a_run_of_a_config(tmp_path):
    run = catalog.training_run(str(write(tmp_path, LLAMA)), precision="fp8")
    assert (run.sequence_length, run.global_batch_sequences) == (8192, 512)
    assert run.tokens == pytest.approx(20 * 405.85e9, rel=1e-3)
    assert all(isinstance(part, np.ndarray) for part in jax.tree.leaves(run))


@pytest.mark.parametrize(
    "missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"]
)
def test_a_missing_key_is_named(tmp_path, missing):
    config = {key: value for key, value in LLAMA.items() if key != missing}
    with pytest.raises(UserError, match=f"'{missing}' is missing"):
        catalog.transformer(write(tmp_path, config))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "zamba2"}, "Mamba-2 state-space"),
        ({"model_type": "bailing_hybrid"}, "linear-attention"),
        ({"is_encoder_decoder": True}, "encoder"),
        ({"hidden_size": "wide"}, "must be a number"),
        ({"hidden_size": -1}, "non-negative"),
        ({"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        ({"num_hidden_layers": 0}, "above zero"),
    ],
)
def test_a_config_that_cannot_be_modelled_is_refused(tmp_path, changes, complaint):
    with pytest.raises(UserError, match=complaint):
        catalog.transformer(write(tmp_path, LLAMA | changes))


def test_a_broken_file_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        catalog.transformer(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="no JSON object"):
        catalog.transformer(path)
    with pytest.raises(UserError, match="cannot read"):
        catalog.transformer(tmp_path / "none.json")


TIED = {
    "biogpt", "bloom", "cohere", "cohere2", "ctrl", "ernie4_5", "ernie4_5_moe", "falcon", "RefinedWeb", "gemma", "gemma2",
    "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "grok-1", "minicpm", "minicpm3", "mpt", "openai-gpt", "opt", "smollm3",
    "starcoder2", "vaultgemma", "xglm", "youtu", "gemma4_text", "gemma4_unified_text", "openelm",
}  # fmt: skip
"""Whose head is the embedding where the config does not say."""


def meaning_of_a_missing_key(config, key):
    """What the software that reads a config takes for a key that published configs leave out; None: it must be there."""
    kind = config["model_type"]
    if key == "tie_word_embeddings":
        return kind in TIED
    if key == "num_key_value_heads" and kind in ("llama", "phi", "olmo", "olmo2"):
        return config["num_attention_heads"]
    own = {
        "falcon": {"multi_query": True, "parallel_attn": True, "new_decoder_architecture": False},
        "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
    }
    return own.get(kind, {}).get(key)


NULL_IS_NONE = (
    "sliding_window", "attention_chunk_size", "window_size", "q_lora_rank", "attn_layer_indices", "mla_use_output_gate",
    "routed_expert_hidden_size", "moe_latent_size",
)  # fmt: skip
"""Keys whose null means that a model lacks the mechanism."""

NULL_IS_AS_ELSEWHERE = ("global_head_dim", "num_global_key_value_heads", "swa_num_key_value_heads")
"""Keys whose null means the number of the other layers."""


def says_something_else(key, value):
    """Whether a value means another model, and no mistake."""
    if value is None:
        return key in NULL_IS_NONE + NULL_IS_AS_ELSEWHERE or "shared_expert" in key
    if value == []:
        return key in ("attn_layer_indices", "mlp_only_layers")
    none = (
        "first_k_dense_replace",
        "moe_layer_start_index",
        "num_dense_layers",
        "num_local_experts",
        "share_expert_dim",
    )
    return value == 0 and (key in none or "shared" in key)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("configs")


def outcome(folder, config):
    """The shape of a config with its kinds of layers, or the one line that refuses it."""
    path = write(folder, config)
    try:
        fields, kinds = shape_of_config(read_config(path)[1], str(path))
        return fields | {"kinds": kinds}
    except UserError as refusal:
        assert "\n" not in str(refusal) and "config.json" in str(refusal)
        return str(refusal)


def inner(config):
    return config.get("text_config", config)


def with_keys(config, keys):
    return config | {"text_config": keys} if "text_config" in config else keys


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_a_key_a_config_has_the_same_shape_or_is_refused(folder, name):
    config = PUBLISHED[name]
    shape = outcome(folder, config)
    assert isinstance(shape, dict)
    for key in inner(config):
        rest = {each: value for each, value in inner(config).items() if each != key}
        result = outcome(folder, with_keys(config, rest))
        if isinstance(result, dict) and result != shape:
            meant = meaning_of_a_missing_key(inner(config), key)
            assert meant is not None, f"{key} is missed in silence"
            assert result == outcome(folder, with_keys(config, rest | {key: meant})), key


COUNTS = [80, pytest.param(600, marks=pytest.mark.search)]


@pytest.mark.parametrize("count", COUNTS)
def test_a_letter_off_in_a_key_changes_no_shape_in_silence(count, folder):
    @settings(max_examples=count, deadline=None)
    @given(st.data())
    def holds(data):
        config = PUBLISHED[data.draw(st.sampled_from(sorted(PUBLISHED)))]
        key = data.draw(st.sampled_from(sorted(inner(config))))
        place, letter = (
            data.draw(st.integers(0, len(key) - 1)),
            data.draw(st.sampled_from(string.ascii_lowercase + "_")),
        )
        slips = [
            key[:place] + key[place + 1 :],
            key[:place] + letter + key[place + 1 :],
            key[:place] + letter + key[place:],
        ]
        slip = data.draw(st.sampled_from(slips))
        renamed = {slip if each == key else each: value for each, value in inner(config).items()}
        result = outcome(folder, with_keys(config, renamed))
        assert isinstance(result, str) or result == outcome(folder, config), f"{key} as {slip}"

    holds()


@pytest.mark.parametrize("count", COUNTS)
def test_a_value_that_makes_no_sense_changes_no_shape_in_silence(count, folder):
    @settings(max_examples=count, deadline=None)
    @given(st.data())
    def holds(data):
        config = PUBLISHED[data.draw(st.sampled_from(sorted(PUBLISHED)))]
        key = data.draw(st.sampled_from(sorted(inner(config))))
        old = inner(config)[key]
        odd = [0, -1, 1e14, 10**400, 1.5, float("nan"), "many", "", None, [], {}, [old], {"value": old}]
        value = data.draw(st.sampled_from(odd + ([] if isinstance(old, bool) else [True])))
        result = outcome(folder, with_keys(config, inner(config) | {key: value}))
        shape = outcome(folder, config)
        if isinstance(result, dict) and result != shape and not says_something_else(key, value):
            meant = meaning_of_a_missing_key(inner(config), key) if value is None else None
            assert meant is not None, f"{key} = {value}"
            assert result == outcome(folder, with_keys(config, inner(config) | {key: meant}))

    holds()


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("deepseek-v4-flash", {"model_type": "deepseek_v4", "index_topk": 512, "compress_ratios": [0, 4], "hc_mult": 4}),
        ("deepseek-v4-pro", {"model_type": "deepseek_v4", "index_topk": 512, "compress_ratios": [0, 4], "hc_mult": 4}),
    ],
)  # fmt: skip
def test_an_entry_and_its_config_are_refused_for_the_same_mechanisms(tmp_path, name, config):
    with pytest.raises(UserError) as entry:
        catalog.model_of(name)
    with pytest.raises(UserError) as own:
        catalog.model_of(write(tmp_path, config))
    text = config.get("text_config", config)
    for mechanism in mechanisms(text):
        assert mechanism in str(entry.value) and mechanism in str(own.value)
    assert len(mechanisms(text)) >= 2
