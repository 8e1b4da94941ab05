"""Configs of models with recurrent scans are read layer by layer: counts of the cards, one meaning of each key, refusals.

`data/hybrid_configs.json` holds the keys of published configs and rounded counts of cards, names and reports: `total`, and
`active` without the `embedding` that a card leaves out. `recalled` says what of an entry is from memory and was not read again.
Counts leave out multi-token layers and towers for images. Other tests of the same data: `test_huggingface.py` drops, misspells
and garbles every key, and compares configs with entries of the catalog.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwopt import catalog
from hwopt.catalog.huggingface import read_config, shape_of_config
from hwopt.errors import UserError

MODELS = {
    each["model"]: each
    for each in json.loads((Path(__file__).parent / "data" / "hybrid_configs.json").read_text(encoding="utf-8"))
}


def text(name: str) -> dict:
    """The text part of a config."""
    config = MODELS[name]["config"]
    return {"tie_word_embeddings": config.get("tie_word_embeddings")} | config.get("text_config", config)


NEXT, DENSE, EXPERTS = text("Qwen3-Next-80B-A3B"), text("Qwen/Qwen3.5-27B"), text("Qwen/Qwen3.5-122B-A10B")
LINEAR, K3 = text("Kimi-Linear-48B-A3B"), text("moonshotai/Kimi-K3")
NANO, SUPER, HALVES = (
    text(f"nvidia/{each}")
    for each in ("Nemotron-3-Nano-30B-A3B", "Nemotron-3-Super-120B-A12B", "Nemotron-H-56B-Base-8K")
)
GRANITE, MICRO = text("granite-4.0-h-small"), text("granite-4.0-h-micro")
BAMBA, FALCON, LIGHTNING, PURE = text("Bamba-9B"), text("Falcon-H1-34B"), text("MiniMax-Text-01"), text("mamba2-2.7b")


def counts(fields, rows):
    """Total and active parameters, by plain loops over the products of every kind of layers."""
    one = {"layers": fields["layers"], "moe": float(fields.get("moe_layers", 0.0) == fields["layers"])}
    total = active = fields["hidden"] * (1.0 + fields["vocab"] * (2.0 - fields["tied_embeddings"]))
    for row in rows or [one]:
        has = {key: 0.0 for each in rows for key in each} | {"attends": float(not rows)} | fields | row
        get = lambda key, has=has: has.get(key, 0.0)
        hidden, width = get("hidden"), get("expert_hidden") or get("hidden")
        heads, queries, values = get("heads"), get("heads") * get("qk_dim"), get("heads") * get("v_dim")
        products = []
        if get("attends"):
            if get("query_rank"):
                products += [(hidden, get("query_rank")), (get("query_rank"), queries)]
            else:
                products += [(hidden, queries)]
            if get("kv_rank"):
                nope = get("qk_dim") - get("rope_dim")
                products += [(hidden, get("kv_rank") + get("rope_dim")), (get("kv_rank"), heads * nope + values)]
            else:
                products += [(hidden, get("kv_heads") * (get("qk_dim") + get("v_dim")))]
            products += [(values, hidden), (hidden, heads * get("gate_dim"))]
        if get("scan_heads"):
            keys, wide = get("scan_key_heads") * get("scan_key_dim"), get("scan_heads") * get("scan_value_dim")
            decays = get("scan_heads") * get("scan_key_dim")
            products += [(hidden, 2 * keys + wide), (get("scan_conv"), 2 * keys + wide), (wide, hidden)]
            products += [(hidden, get("scan_gates") * get("scan_heads"))]
            rank = get("scan_gate_rank")
            products += [(hidden, rank), (rank, wide)] if rank else [(hidden, wide)]
            products += [(hidden, get("scan_decay_rank")), (get("scan_decay_rank"), decays)]
        expert = get("mlp_matrices") * width * get("expert_ffn")
        if row["moe"]:
            products += [(hidden, get("experts")), (2.0 * hidden, width if width != hidden else 0.0)]
            products += [(get("shared_experts") * get("mlp_matrices") * hidden, get("expert_ffn"))]
        elif get("ffn"):
            products += [(get("mlp_matrices") * hidden, get("ffn"))]
        norms = hidden * (bool(get("attends") or get("scan_heads")) + bool(row["moe"] or get("ffn")))
        every = norms + sum(a * b for a, b in products)
        total += row["layers"] * (every + row["moe"] * get("experts") * expert)
        active += row["layers"] * (every + row["moe"] * get("experts_per_token") * expert)
    return total, active


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def shape(config):
    return shape_of_config(config, "config.json")


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_the_cards(name, tmp_path):
    entry, path = MODELS[name], tmp_path / "config.json"
    path.write_text(json.dumps(entry["config"]))
    fields, rows = shape(read_config(path)[1])
    assert not rows or sum(row["layers"] for row in rows) == fields["layers"]
    assert not rows or sum(row["moe"] * row["layers"] for row in rows) == fields.get("moe_layers", 0.0)
    total, active = counts(fields, rows)
    assert total == pytest.approx(entry["total"], rel=0.01)
    if "active" in entry:
        assert active - entry.get("embedding", 0) == pytest.approx(entry["active"], rel=0.01)
    own = catalog.transformer(path)  # the same as a model
    assert (own.kinds is None) == (not rows) and float(own.layers) == fields["layers"]


DELTA = {"scan_gates": 2, "scan_delta": 1, "scan_decay_rank": 0, "scan_gate_rank": 0, "scan_conv": 4}
MAMBA = {"scan_gates": 1, "scan_delta": 0, "scan_decay_rank": 0, "scan_gate_rank": 0, "scan_conv": 4}
KDA = {"scan_gates": 1, "scan_delta": 1, "scan_decay_rank": 128, "scan_conv": 4}


def scan(heads, value_dim, key_heads, key_dim, **more):
    own = {"scan_heads": heads, "scan_value_dim": value_dim, "scan_key_heads": key_heads, "scan_key_dim": key_dim}
    return {"attends": 0} | own | more


@pytest.mark.parametrize(
    ("config", "fields", "rows"),
    [
        (NEXT, {"moe_layers": 48, "shared_experts": 1, "qk_dim": 256},
         [(36, 1, scan(32, 128, 16, 128, **DELTA)), (12, 1, {"attends": 1, "gate_dim": 256})]),
        (DENSE, {"ffn": 17408, "kv_heads": 4},
         [(48, 0, scan(48, 128, 16, 128, **DELTA)), (16, 0, {"attends": 1, "gate_dim": 256})]),
        (LINEAR, {"query_rank": 0, "kv_rank": 512, "qk_dim": 192, "moe_layers": 26, "ffn": 9216},
         [(1, 0, scan(32, 128, 32, 128, **KDA, scan_gate_rank=128)), (19, 1, scan(32, 128, 32, 128, **KDA, scan_gate_rank=128)),
          (7, 1, {"attends": 1})]),
        (K3, {"expert_hidden": 3584, "shared_experts": 2, "query_rank": 1536, "moe_layers": 92},
         [(1, 0, scan(96, 128, 96, 128, **KDA, scan_gate_rank=0)), (68, 1, scan(96, 128, 96, 128, **KDA, scan_gate_rank=0)),
          (24, 1, {"attends": 1, "gate_dim": 128})]),
        (HALVES, {"ffn": 32768, "mlp_matrices": 2, "heads": 64},
         [(54, 0, scan(256, 64, 8, 256, **MAMBA, ffn=0)), (54, 0, {"attends": 0}), (10, 0, {"attends": 1, "ffn": 0})]),
        (SUPER, {"expert_hidden": 1024, "shared_experts": 2, "moe_layers": 40, "experts_per_token": 22},
         [(40, 0, scan(128, 64, 8, 128, **MAMBA, ffn=0)), (40, 1, {"attends": 0}), (8, 0, {"attends": 1, "ffn": 0})]),
        (PURE, {"ffn": 0, "heads": 80, "tied_embeddings": 1}, [(64, 0, scan(80, 64, 1, 128, **MAMBA, ffn=0))]),
        (GRANITE, {"expert_ffn": 768, "shared_experts": 2, "moe_layers": 40},
         [(36, 1, scan(128, 64, 1, 128, **MAMBA)), (4, 1, {"attends": 1})]),
        (MICRO, {"ffn": 8192}, [(36, 0, scan(64, 64, 1, 128, **MAMBA)), (4, 0, {"attends": 1})]),
        (BAMBA, {"ffn": 14336}, [(29, 0, scan(128, 64, 1, 128, **MAMBA)), (3, 0, {"attends": 1})]),
        (LIGHTNING, {"moe_layers": 80},
         [(70, 1, scan(64, 128, 64, 128, **MAMBA | {"scan_gates": 0, "scan_conv": 0})), (10, 1, {"attends": 1})]),
    ],
)  # fmt: skip
def test_kinds_of_layers(config, fields, rows):
    found, kinds = shape(config)
    assert {key: found[key] for key in fields} == fields
    assert kinds == [{"layers": layers, "moe": moe} | own for layers, moe, own in rows]


def test_layers_of_one_kind_have_no_list():
    both, rows = shape(FALCON)  # attention and a scan in every layer
    assert rows == [] and "attends" not in both
    wanted = without(scan(32, 128, 2, 256, **MAMBA), "attends")
    assert {key: both[key] for key in wanted} == wanted
    plain, rows = shape(MICRO | {"layer_types": ["attention"] * 40})
    assert rows == [] and not any(key.startswith("scan") for key in plain) and "attends" not in plain
    scans, rows = shape(BAMBA | {"attn_layer_indices": None})
    assert rows == [] and scans["attends"] == 0 and scans["scan_heads"] == 128


PATTERN = SUPER["hybrid_override_pattern"]
WORDS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
OLDER = WORDS | {"M": "mamba", "*": "attention"}


def inside(config, **changes):
    return config | {"linear_attn_config": without(config["linear_attn_config"], *changes)
                     | {key: value for key, value in changes.items() if value is not None}}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "same"),
    [
        (EXPERTS, without(EXPERTS, "layer_types")),
        (EXPERTS, without(EXPERTS, "full_attention_interval")),
        (EXPERTS, without(EXPERTS, "full_attention_interval", "layer_types")),  # every 4th by default
        (EXPERTS, without(EXPERTS, "attn_output_gate")),
        (EXPERTS, EXPERTS | {"mlp_only_layers": [], "decoder_sparse_step": 1, "intermediate_size": 5}),
        (NEXT, NEXT | {"layer_types": EXPERTS["layer_types"], "attn_output_gate": True}),
        (NEXT, without(NEXT, "decoder_sparse_step", "mlp_only_layers")),
        (SUPER, without(SUPER, "num_hidden_layers")),
        *[
            (SUPER, without(SUPER, "hybrid_override_pattern", *gone) | {"layers_block_type": [names[each] for each in PATTERN]})
            for names in (WORDS, OLDER) for gone in ((), ("num_hidden_layers",))
        ],
        (SUPER, without(SUPER, "mtp_hybrid_override_pattern", "num_nextn_predict_layers", "expand", "chunk_size")),
        (HALVES, without(HALVES, "conv_kernel") | {"mamba_d_conv": 4}),
        (HALVES, HALVES | {"n_routed_experts": 8, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688}),
        (K3, K3 | {"linear_num_heads": 96, "linear_head_dim": 128, "num_experts_per_tok": 16}),
        (LINEAR, without(LINEAR, "linear_attn_config") | {
            "linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4,
            "layer_types": [WORDS["*" if layer in (4, 8, 12, 16, 20, 24, 27) else "M"] for layer in range(1, 28)]}),
        (LINEAR, without(LINEAR, "first_k_dense_replace") | {"mlp_layer_types": ["dense"] + ["sparse"] * 26}),
        (GRANITE, GRANITE | {"mamba_d_head": "auto"}),
        (GRANITE, GRANITE | {"layer_types": [WORDS["M" if each == "mamba" else "*"] for each in GRANITE["layer_types"]]}),
        (FALCON, FALCON | {"mamba_d_head": "auto"}),
        (LIGHTNING, without(LIGHTNING, "attn_type_list") | {
            "layer_types": [WORDS["*" if each else "M"] for each in LIGHTNING["attn_type_list"]]}),
    ],
)  # fmt: skip
def test_two_ways_to_say_the_same(config, same):
    assert shape(config) == shape(same)


SWAPPED = ["full_attention", *EXPERTS["layer_types"][1:]]
FULL, SCANS = (K3["linear_attn_config"][key] for key in ("full_attn_layers", "kda_layers"))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        # gated delta net
        (without(EXPERTS, "linear_num_value_heads"), "'linear_num_value_heads' is missing"),
        (without(EXPERTS, "linear_num_key_heads"), "'linear_num_key_heads' is missing"),
        (without(EXPERTS, "linear_conv_kernel_dim"), "'linear_conv_kernel_dim' is missing"),
        (EXPERTS | {"linear_num_key_heads": 24}, "'linear_num_key_heads' = 24 does not divide the 64 heads"),
        (EXPERTS | {"layer_types": SWAPPED}, "'layer_types' contradicts 'full_attention_interval' on layer 0"),
        (EXPERTS | {"full_attention_interval": 3}, "'layer_types' contradicts 'full_attention_interval' on layer 2"),
        (EXPERTS | {"full_attention_interval": 49}, "'full_attention_interval' = 49 exceeds the maximum of 48"),
        (EXPERTS | {"layer_types": SWAPPED[1:]}, "'layer_types' has 47 entries for 48 layers"),
        (EXPERTS | {"layer_types": ["sliding_attention"] * 48}, "'layer_types' has a layer 'sliding_attention'"),
        (EXPERTS | {"layer_types": ["mlp"] * 48}, "'layer_types' has a layer 'mlp'"),
        (EXPERTS | {"num_hidden_layers": 40}, "'layer_types' has 48 entries for 40 layers"),
        (EXPERTS | {"linear_value_head_dim": "auto"}, "'linear_value_head_dim' must be a number"),
        (PURE | {"intermediate_size": 4096}, "is not 4096, the width that 'intermediate_size' states"),
        (EXPERTS | {"linear_value_head_dims": 64}, "did you mean 'linear_value_head_dim'"),
        (EXPERTS | {"linear_gate_rank": 64}, "'linear_gate_rank' may change the shape"),
        (EXPERTS | {"mlp_only_layers": [0]}, "'mlp_only_layers' = [0] means layers that hwopt does not model"),
        (EXPERTS | {"decoder_sparse_step": 2}, "'decoder_sparse_step' = 2 means layers"),
        (NEXT | {"use_sliding_window": True}, "'use_sliding_window' = True means layers"),
        (without(DENSE, "tie_word_embeddings"), "'tie_word_embeddings' is missing"),
        # output gates
        (without(EXPERTS, "attn_output_gate") | {"attention_output_gate": True}, "an output gate in its attention"),
        (without(EXPERTS, "attn_output_gate") | {"attention_output_gate": False}, "did you mean 'attn_output_gate'"),
        (EXPERTS | {"attn_output_gate": "sigmoid"}, "'attn_output_gate' must be true or false"),
        (EXPERTS | {"attn_output_gate": 1}, "'attn_output_gate' must be true or false"),
        (without(K3, "mla_use_output_gate"), "'mla_use_output_gate' is missing"),
        (K3 | {"mla_use_output_gates": True}, "may change the shape|did you mean 'mla_use_output_gate'"),
        (K3 | {"use_output_gate": True}, "an output gate in its attention"),
        (K3 | {"mla_use_output_gate": "yes"}, "'mla_use_output_gate' must be true or false"),
        (inside(K3, use_full_rank_gate=None), "'linear_attn_config.use_full_rank_gate' is missing"),
        (inside(K3, use_full_rank_gate=1), "'linear_attn_config.use_full_rank_gate' must be true or false"),
        # KDA
        (without(K3, "linear_attn_config"), "'linear_attn_config"),
        (inside(K3, kda_layers=None), "'linear_attn_config.full_attn_layers' and 'linear_attn_config.kda_layers' must name"),
        (inside(K3, full_attn_layers=None), "must name each of the 93 layers once, counted from 1"),
        (inside(K3, kda_layers=SCANS[:-1]), "must name each of the 93 layers once"),
        (inside(K3, kda_layers=[*SCANS, 93]), "must name each of the 93 layers once"),
        (inside(K3, full_attn_layers=[*FULL, 93]), "'linear_attn_config.full_attn_layers' names a layer twice"),
        (inside(K3, kda_layers=[each - 1 for each in SCANS]), "'linear_attn_config.kda_layers' must be above zero"),
        (inside(K3, full_attn_layers=[*FULL[:-1], 94]), "'linear_attn_config.full_attn_layers' = 94 exceeds the maximum of 93"),
        (K3 | {"num_hidden_layers": 92}, "= 93 exceeds the maximum of 92"),
        (K3 | {"layer_types": ["linear_attention"] * 93},
         "'layer_types' contradicts 'linear_attn_config.full_attn_layers' on layer 3"),
        (inside(K3, num_heads=None), "'linear_attn_config.num_heads' is missing"),
        (inside(K3, head_dim=None, headdim=128), "did you mean 'head_dim'"),
        (inside(K3, short_conv_kernel_size=None), "'linear_attn_config.short_conv_kernel_size' is missing"),
        (K3 | {"linear_num_heads": 64}, "'linear_attn_config.num_heads' = 96 contradicts 'linear_num_heads' = 64"),
        (inside(K3, value_head_dim=256), "'linear_attn_config.value_head_dim' may change the shape"),
        (K3 | {"linear_attn_config": 5}, "'linear_attn_config' must be a table of keys"),
        (K3 | {"num_key_value_heads": 8}, "'num_key_value_heads' = 8 is not 96"),
        (LINEAR | {"mlp_layer_types": ["sparse"] * 27}, "'first_k_dense_replace' = 1 contradicts 'mlp_layer_types'"),
        (without(LINEAR, "q_lora_rank"), "'q_lora_rank' is missing"),
        # latent experts
        (without(K3, "routed_expert_hidden_size"), "'routed_expert_hidden_size' is missing"),
        (K3 | {"routed_expert_hidden_size": 0}, "'routed_expert_hidden_size' must be above zero"),
        (K3 | {"routed_expert_hidden_size": "half"}, "'routed_expert_hidden_size' must be a number"),
        (K3 | {"moe_latent_size": 3584}, "latent experts"),
        (without(SUPER, "moe_latent_size"), "'moe_latent_size' is missing"),
        (SUPER | {"moe_latent_size": 0}, "'moe_latent_size' must be above zero"),
        (SUPER | {"moe_latent_size": 1024.5}, "'moe_latent_size' must be an integer"),
        (without(SUPER, "moe_latent_size") | {"moe_latent": 1024}, "moe_latent"),
        (SUPER | {"routed_expert_hidden_size": 512}, "latent experts"),
        (without(SUPER, "moe_shared_expert_intermediate_size"), "'moe_shared_expert_intermediate_size' is missing"),
        (SUPER | {"n_shared_experts": 2}, "'n_shared_experts' = 2 means layers"),
        (SUPER | {"num_experts_per_tok": 600}, "'num_experts_per_tok' = 600 is more than 'n_routed_experts' = 512"),
        (SUPER | {"num_local_experts": 256}, "'n_routed_experts' = 512 contradicts 'num_local_experts' = 256"),
        # Mamba-2
        (without(SUPER, "hybrid_override_pattern"), "'hybrid_override_pattern' is missing"),
        (SUPER | {"hybrid_override_pattern": PATTERN[1:]}, "must have a letter for each of the 88 layers"),
        (SUPER | {"hybrid_override_pattern": PATTERN[:-1] + "X"}, "'hybrid_override_pattern' has a layer 'X'"),
        (SUPER | {"hybrid_override_pattern": list(PATTERN)}, "'hybrid_override_pattern' must have a letter"),
        (SUPER | {"layers_block_type": [WORDS[each] for each in PATTERN[::-1]]},
         "'layers_block_type' contradicts 'hybrid_override_pattern'"),
        (SUPER | {"num_hidden_layers": 52}, "a letter for each of the 52 layers"),
        (SUPER | {"n_groups": 48}, "'n_groups' = 48 does not divide the 128 heads"),
        (without(SUPER, "n_groups"), "'n_groups' is missing"),
        (SUPER | {"mamba_n_groups": 4}, "'n_groups' = 8 contradicts 'mamba_n_groups' = 4"),
        (without(SUPER, "ssm_state_size"), "'ssm_state_size' is missing"),
        (without(SUPER, "mamba_head_dim") | {"mamba_headdim": 64}, "mamba_headdim"),
        (SUPER | {"mlp_hidden_act": "silu"}, "'mlp_hidden_act' = 'silu' means layers"),
        (SUPER | {"sliding_window": 4096}, "'sliding_window' may change the shape"),
        (PURE | {"num_heads": 64}, "'num_heads' x 'head_dim' = 4096 is not 5120, the width that 'expand' states"),
        (without(PURE, "n_groups"), "'n_groups' is missing"),
        (GRANITE | {"mamba_d_head": 32}, "'mamba_n_heads' x 'mamba_d_head' = 4096 is not 8192"),
        (GRANITE | {"mamba_expand": 4}, "is not 16384, the width that 'mamba_expand' states"),
        (GRANITE | {"layer_types": None}, "'layer_types' is missing"),
        (GRANITE | {"mamba_d_head": "wide"}, "'mamba_d_head' must be a number"),
        (BAMBA | {"attn_layer_indices": [9, 9]}, "'attn_layer_indices' names a layer twice"),
        (BAMBA | {"attn_layer_indices": [32]}, "'attn_layer_indices' = 32 exceeds the maximum of 31"),
        (without(BAMBA, "attn_layer_indices"), "'attn_layer_indices' is missing"),
        # attention beside a scan, lightning attention
        (FALCON | {"attn_layer_indices": [3]}, "'attn_layer_indices' = [3] means layers"),
        (FALCON | {"mamba_use_mlp": False}, "'mamba_use_mlp' = False means layers"),
        (FALCON | {"mamba_d_ssm": 8192}, "is not 8192, the width that 'mamba_d_ssm' states"),
        (LIGHTNING | {"attn_type_list": [2] * 80}, "'attn_type_list' has a layer 2, which hwopt does not model (only 0, 1)"),
        (LIGHTNING | {"attn_type_list": [1] * 79}, "'attn_type_list' has 79 entries for 80 layers"),
        (without(LIGHTNING, "attn_type_list"), "'attn_type_list' is missing"),
        (LIGHTNING | {"shared_intermediate_size": 9216}, "'shared_intermediate_size' = 9216 means layers"),
    ],
)  # fmt: skip
def test_a_config_that_contradicts_itself_is_refused_by_name(config, says):
    with pytest.raises(UserError) as refused:
        shape(config)
    text = str(refused.value)
    assert any(each in text for each in says.split("|")), text
    assert "\n" not in text and len(text) < 500


@pytest.mark.parametrize(
    ("config", "meant"),
    [
        (EXPERTS | {"attn_output_gate": False}, "gate_dim"),
        (K3 | {"mla_use_output_gate": False}, "gate_dim"),
        (SUPER | {"moe_latent_size": None}, "expert_hidden"),
        (K3 | {"routed_expert_hidden_size": None}, "expert_hidden"),
    ],
)
def test_a_mechanism_that_is_off_is_absent(config, meant):
    fields, rows = shape(config)
    assert meant not in fields and not any(meant in row for row in rows)


def test_what_is_left_out_of_an_estimate_is_said(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(K3))
    assert "leaves out attention residuals: their weights are below 0.01 %" in catalog.approximations(path)
    path.write_text(json.dumps(LINEAR))
    assert catalog.approximations(path) == []
