"""Formats of published checkpoints: bytes of a weight, shares of GEMM formats, KV cache, and what is refused by name."""

import json

import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.types import PRECISIONS
from hwopt.workload.transformer import embedding_parameters, head_parameters, total_parameters

DENSE = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
MIXTURE = {
    "model_type": "deepseek_v3", "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64,
    "n_shared_experts": 1, "n_routed_experts": 384, "routed_scaling_factor": 2.827, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}  # fmt: skip
MXFP4, NVFP4 = 0.5 + 1 / 32, 0.5 + 1 / 16


def numbers(bits, kind="float", **more):
    return {"num_bits": bits, "type": kind, **more}


def group(weights, inputs=None, targets=("Linear",)):
    return {"weights": weights, "input_activations": inputs, "targets": list(targets)}


def compressed(*groups, **more):
    named = {f"group_{number}": each for number, each in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **more}


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
INT4_EXPERTS = compressed(
    group(numbers(4, "int", group_size=32, symmetric=True)),
    ignore=["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    format="pack-quantized",
)


def formats(tmp_path, table, model=DENSE, chips=(), key="quantization_config", **more):
    (tmp_path / "config.json").write_text(json.dumps(model | {key: table} | more), encoding="utf-8")
    return catalog.stored_formats(tmp_path / "config.json", chips)


QUARK = {"weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4", "group_size": 32}}


@pytest.mark.parametrize(
    ("table", "weight_bytes", "product", "kv"),
    [
        (FP8, 1.0, "fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
         NVFP4, "fp4", "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, 1.0, "fp8", None),
        ({"quant_method": "modelopt", "config_groups": {"group_0": group(numbers(4, group_size=16), numbers(4, group_size=16))},
          "kv_cache_scheme": numbers(8), "ignore": ["lm_head"]}, NVFP4, "fp4", "fp8"),
        (compressed(group(numbers(8, strategy="channel"), numbers(8, strategy="token")), format="float-quantized",
                    kv_cache_scheme=numbers(8)), 1.0, "fp8", "fp8"),
        (compressed(group(numbers(8, "int"), numbers(8, "int"))), 1.0, "int8", None),
        (compressed(group(numbers(4, "int", group_size=128))), 0.5 + 2 / 128, "bf16", None),
        (compressed(group(numbers(4, "int", group_size=128, symmetric=False))), 0.5 + 2.5 / 128, "bf16", None),
        (compressed(group(numbers(4, group_size=32))), MXFP4, "bf16", None),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, MXFP4, "bf16", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 0.5 + 2.5 / 128, "bf16", None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, 1.0, "bf16", None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 0.5625, "bf16", None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0, "int8", None),
        ({"quant_method": "quark", "global_quant_config": QUARK, "exclude": ["lm_head"],
          "kv_cache_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}}, MXFP4, "fp4", "fp8"),
    ],
)  # fmt: skip
def test_one_format_for_all_layers(tmp_path, table, weight_bytes, product, kv):
    found = formats(tmp_path, table)
    assert found is not None and found.precision == product and found.kv == kv
    assert found.weight_bytes == pytest.approx(weight_bytes, rel=1e-9)
    assert found.gemm_precision == tuple(float(each == product) for each in PRECISIONS)
    assert "as in the file's quantization_config" in found.words
    service = catalog.service(tmp_path / "config.json")
    assert float(service.weight_bytes) == pytest.approx(weight_bytes, rel=1e-6)
    narrow = 1.0 if product in ("fp8", "fp4", "int8") else 2.0
    assert float(service.kv_bytes) == (1.0 if kv else narrow)


def test_a_format_without_units_keeps_its_storage_and_runs_in_16_bit(tmp_path):
    found = [formats(tmp_path, FP8, chips=chips) for chips in (("h100-sxm",), ("a100-80",), ("h100-sxm", "a100-80"))]
    assert [each.precision for each in found] == ["fp8", "bf16", "bf16"]
    assert {each.weight_bytes for each in found} == {1.0}


def test_bytes_of_gpt_oss_are_those_of_the_published_files():
    """60.8 and 12.8 GiB in the model card, arXiv 2508.10925, table 1."""
    for name, gib in (("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)):
        shape, found = catalog.transformer(name), catalog.stored_formats(name, ["h200"])
        tables = float(embedding_parameters(shape) + head_parameters(shape))
        total = found.weight_bytes * (float(total_parameters(shape)) - tables) + 2.0 * tables
        assert total == pytest.approx(gib * 2**30, rel=0.005)
        assert found.precision == "bf16" and "mxfp4 in experts, bf16 elsewhere" in found.words
        assert catalog.stored_formats(name, ["b200"]).precision == "fp8"  # activations in MXFP8


def _weights():
    """Weights of all layers of `MIXTURE` by part: attention, dense MLP, shared and routed experts."""
    attention = 7168 * (1536 + 576) + 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * 7168
    expert = 3 * 7168 * 2048
    return np.array([61 * attention, 3 * 7168 * 18432, 60 * expert, 60 * 384 * expert], float)


@pytest.mark.parametrize(
    ("table", "more", "stored"),
    [
        (INT4_EXPERTS, {}, [2.0, 2.0, 2.0, 0.5 + 2 / 32]),
        (FP8, {"expert_dtype": "fp4"}, [1.0, 1.0, 1.0, MXFP4]),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["*self_attn*", "lm_head"]}, {},
         [2.0, NVFP4, NVFP4, NVFP4]),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers":
            {f"model.layers.{i}.mlp.experts.{e}.down_proj": {"quant_algo": "NVFP4"} for i in range(1, 61) for e in range(2)}
            | {f"model.layers.{i}.self_attn.{m}": {"quant_algo": "FP8"} for i in range(61) for m in ("q_b_proj", "o_proj")}}, {},
         [1.0, 2.0, 2.0, NVFP4]),
        ({"quant_method": "fp8", "modules_to_not_convert": [f"model.layers.{i}.self_attn" for i in range(61)] + ["lm_head"]}, {},
         [2.0, 1.0, 1.0, 1.0]),
        ({"quant_method": "quark", "global_quant_config": QUARK, "layer_quant_config":
            {"*self_attn*": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"dtype": "fp8_e4m3"}}}}, {},
         [1.0, MXFP4, MXFP4, MXFP4]),
        (compressed(group(numbers(8), numbers(8), ["re:.*self_attn.*"]), group(numbers(4, group_size=16), numbers(4))), {},
         [1.0, NVFP4, NVFP4, NVFP4]),
    ],
)  # fmt: skip
def test_mixed_formats_are_averaged_by_weights(tmp_path, table, more, stored):
    """The mean by an independent count of weights, and GEMM shares by the weights that a token uses: 8 of 384 experts."""
    found, weights = formats(tmp_path, table, MIXTURE, **more), _weights()
    assert found.weight_bytes == pytest.approx(float(weights @ stored / weights.sum()), rel=1e-9)
    used = weights * [1.0, 1.0, 1.0, 8 / 384]
    wide = float(used[np.array(stored) == 2.0].sum() / used.sum())
    assert sum(found.gemm_precision) == pytest.approx(1.0)
    in_16_bit = 1.0 if table is INT4_EXPERTS else wide  # integers of 4 bit are widened
    assert found.gemm_precision[PRECISIONS.index("bf16")] == pytest.approx(in_16_bit, rel=1e-9)


def test_layers_that_are_listed_one_by_one_count_by_their_share(tmp_path):
    """Attention of 8 of 32 layers in 16 bit; layer 1 in the list is not layers 10 to 19."""
    names = [f"model.layers.{i}.self_attn.{m}_proj" for i in range(1, 9) for m in "qkvo"]
    attention, mlp = 4096 * 128 * (32 + 2 * 8 + 32), 3 * 4096 * 14336
    found = formats(tmp_path, FP8 | {"modules_to_not_convert": names})
    assert found.weight_bytes == pytest.approx((1.25 * attention + mlp) / (attention + mlp), rel=1e-9)


def test_names_behind_another_root_are_found(tmp_path):
    """Models with towers have their layers below `language_model`, in plain names, globs and regular expressions."""
    attention, mlp = 4096 * 128 * (32 + 2 * 8 + 32), 3 * 4096 * 14336
    for pattern in (
        "re:^language_model\\.model\\.layers\\..*self_attn.*",
        "model.language_model.layers.*.self_attn",
        "self_attn",
    ):
        found = formats(tmp_path, FP8 | {"modules_to_not_convert": [pattern]})
        assert found.weight_bytes == pytest.approx((2 * attention + mlp) / (attention + mlp), rel=1e-9)


def test_kinds_of_layers_count_by_their_own_weights(tmp_path):
    """Of 48 layers 12 have experts, each of another width than the dense MLP of the other 36, and 24 have half the heads."""
    shape = {"layers": 48, "hidden": 1024, "ffn": 4096, "mlp_matrices": 3, "heads": 16, "kv_heads": 4, "qk_dim": 64, "v_dim": 64,
             "vocab": 32000, "tied_embeddings": 1, "moe_layers": 12, "experts": 8, "experts_per_token": 2,
             "expert_ffn": 512}  # fmt: skip
    rows = [{"layers": 12, "moe": 1}, {"layers": 12, "moe": 0}, {"layers": 24, "moe": 0, "heads": 8}]
    lines = [
        'base = "mixtral-8x7b"',
        'title = "mixed"',
        'checkpoint = ["mxfp4"]',
        *(f"{key} = {value}" for key, value in shape.items()),
    ]
    lines += [line for row in rows for line in ("[[layer_kinds]]", *(f"{key} = {value}" for key, value in row.items()))]
    (tmp_path / "mixed.toml").write_text("\n".join(lines), encoding="utf-8")
    found = catalog.stored_formats(tmp_path / "mixed.toml", ["b200"])
    attention = 1024 * 64 * (24 * (2 * 16 + 8) + 24 * (2 * 8 + 8))
    rest, experts = attention + 36 * 3 * 1024 * 4096, 12 * 8 * 3 * 1024 * 512
    assert found.weight_bytes == pytest.approx((2 * rest + MXFP4 * experts) / (rest + experts), rel=1e-6)
    narrow = experts / 4 / (rest + experts / 4)
    assert found.gemm_precision[PRECISIONS.index("fp8")] == pytest.approx(narrow, rel=1e-6)


@pytest.mark.parametrize(
    ("table", "key", "said"),
    [
        ({"quant_method": "aqlm"}, "quantization_config", "quant_method 'aqlm'"),
        ({"group_size": 64, "bits": 4}, "quantization", "'quantization' has quant_method None"),
        ({"quant_method": "modelopt", "quant_algo": "W3A3"}, "quantization_config", "quant_algo 'W3A3'"),
        ({"quant_method": "gptq", "bits": 3}, "quantization_config", "weights of 3 bits"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "quantization_config", "no config_groups"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*x": {"bits": 8}}}, "quantization_config", "further formats"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp6_e2m3"}}}, "quantization_config",
         "weights of 0 bits ('fp6_e2m3')"),
        ({"quant_method": "bitsandbytes"}, "quantization_config", "neither load_in_4bit"),
        (FP8 | {"kv_cache_scheme": numbers(3)}, "quantization_config", "KV cache in '3 float'"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused_by_name_unless_formats_are_stated(tmp_path, table, key, said):
    with pytest.raises(UserError) as failure:
        formats(tmp_path, table, key=key)
    assert said in str(failure.value) and "\n" not in str(failure.value)
    assert float(catalog.service(tmp_path / "config.json", precision="fp8").weight_bytes) == 1.0


def test_stated_formats_win_over_the_file(tmp_path):
    table = FP8 | {"kv_cache_scheme": numbers(8)}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE | {"quantization_config": table}), encoding="utf-8")
    bytes_of = lambda **stated: [
        float(getattr(catalog.service(path, **stated), name)) for name in ("weight_bytes", "kv_bytes")
    ]
    assert bytes_of() == [1.0, 1.0]
    assert bytes_of(precision="bf16") == [2.0, 2.0]
    assert bytes_of(weights="fp4", kv="bf16") == [0.5, 2.0]
    assert catalog.stored_formats("llama3.1-8b") is None


def test_questions_have_the_checkpoints_formats_unless_stated():
    asked = lambda **stated: hwopt.objective("serve_cost", chip="h200", **stated).problem()
    published, plain = asked(workload="gpt-oss-120b"), asked(workload="llama3.1-8b")
    own = catalog.stored_formats("gpt-oss-120b", ["h200"])
    assert float(published.template.workload.weight_bytes) == pytest.approx(own.weight_bytes, rel=1e-6)
    assert "in bf16" in published.question and own.words in published.question
    assert float(plain.template.workload.weight_bytes) == 1.0 and "in fp8" in plain.question
    stated = asked(workload="gpt-oss-120b", precision="fp8")
    assert float(stated.template.workload.weight_bytes) == 1.0 and "checkpoint" not in stated.question


@pytest.mark.parametrize(
    ("stated", "precision", "said"),
    [([], "fp8", "1 B per weight, 1 B per key or value; weights fp8, as in the file's quantization_config; GEMMs in fp8"),
     (["--precision", "bf16"], "bf16", "2 B per weight, 2 B per key or value")],
)  # fmt: skip
def test_screens_say_where_formats_come_from(tmp_path, capsys, stated, precision, said):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE | {"quantization_config": FP8}), encoding="utf-8")
    line = [
        "estimate",
        "--workload",
        str(path),
        "--chip",
        "h100-sxm",
        "--chips",
        "1",
        "--mode",
        "serve",
        "--plan",
        "batch=8",
        *stated,
    ]
    assert main(line) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert said in screen and f"h100-sxm, {precision}, site" in screen
    assert ("quantization_config" in screen) == (not stated)
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["precision"] == precision
