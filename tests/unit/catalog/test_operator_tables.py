"""Tables of operators from data files and from Hugging Face configs: what is read, what is refused and how."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.config_operators import known_layouts
from hwopt.errors import UserError
from hwopt.model.layers import work
from hwopt.model.operators import work as _work  # noqa: F401 (registers what tables of operators are)
from hwopt.workload.operator_kinds import (
    KINDS,
    Convolution,
    Experts,
    Fft,
    Gemm,
    Lookup,
    Recurrence,
    Scan,
    operator_table,
)
from hwopt.workload.operators import most_chunks
from hwopt.workload.transformer import active_parameters, tensor_degrees, total_parameters

CONFIGS = {
    "mamba-2.8b": {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280, "time_step_rank": 160},
    "jamba-v0.1": {"model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 65536,
                   "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_dt_rank": 256},
    "vit-b-16": {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                 "intermediate_size": 3072, "image_size": 224, "patch_size": 16},
    "bert-large": {"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                   "intermediate_size": 4096, "vocab_size": 30522},
    "resnet-50": {"model_type": "resnet"},
}  # fmt: skip
"""Entries of the catalogue as the hub states them."""


def written(tmp_path, config) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_is_the_entry_of_the_catalogue(name, tmp_path):
    own, entry = catalog.model_of(written(tmp_path, CONFIGS[name])), catalog.model_of(name)
    for field, value in vars(entry).items():
        if isinstance(value, np.ndarray):
            assert getattr(own, field) == pytest.approx(value, rel=1e-12), field
    assert (
        own.language == entry.language
        and own.unit_of_work == entry.unit_of_work
        and set(known_layouts()) == {each["model_type"] for each in CONFIGS.values()}
    )
    if name in ("resnet-50", "vit-b-16", "bert-large"):  # a config of images knows how long a sample is
        length = {"resnet-50": 1.0, "vit-b-16": 197.0, "bert-large": 512.0}[name]
        assert float(catalog.training_run(written(tmp_path, CONFIGS[name])).sequence_length) == length


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("mamba-2.8b", {"hidden_sise": 3}, "did you mean 'hidden_size'?"),
        ("mamba-2.8b", {"use_bias": True}, "'use_bias' = True means layers"),
        ("mamba-2.8b", {"sparse_experts": 3}, "'sparse_experts' may change the shape"),
        ("jamba-v0.1", {"attn_layer_period": 0}, "must be above zero"),
        ("vit-b-16", {"patch_size": 15}, "does not divide 'image_size'"),
        ("bert-large", {"num_attention_heads": 15}, "does not divide the hidden size"),
        ("resnet-50", {"depths": [3, 4]}, "must be lists of equal length"),
        ("resnet-50", {"layer_type": "basic"}, "only 'bottleneck'"),
    ],
)
def test_what_a_config_must_not_say(name, change, says, tmp_path):
    with pytest.raises(UserError, match=says.replace("(", r"\(")):
        catalog.model_of(written(tmp_path, CONFIGS[name] | change))


def test_a_file_says_all_that_is_wrong_with_its_rows(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("""
hidden = 512
sequence_length = "1 token"
operators = [
  { op = "gem", inputs = 512, outputs = 2048 },
  { op = "gemm", inputs = 0, outputs = 2048 },
  { op = "gemm", inputs = 10, outpust = 2048 },
  { op = "gemm", inputs = 1, outputs = 2, split = "rows" },
  { op = "lookup", entries = 1e30, width = 5 },
  5,
]
""")
    with pytest.raises(UserError) as refused:
        catalog.model_of(str(path))
    text = str(refused.value)
    for says in ("operator 1 has the unknown op 'gem': did you mean 'gemm'?", "operator 2 (gemm): 'inputs' = 0 must be above zero",
                 "unknown key 'outpust'", "'split' = 'rows'", "operator 5 (lookup): 'entries' = 1e+30",
                 "operator 6 must be a table with an 'op'"):  # fmt: skip
        assert says in text
    path.write_text(
        'hidden = 5\nsequence_length = "1 token"\noperators = [{op = "lookup", entries = 9, width = 5, spread = 1}]'
    )
    with pytest.raises(UserError, match="'table_shards' must state"):
        catalog.model_of(str(path))
    path.write_text('hidden = 5\nsequence_length = "1 token"\noperators = []')
    with pytest.raises(UserError, match="must be a list of rows"):
        catalog.model_of(str(path))


@pytest.mark.parametrize(
    ("workload", "plan", "says"),
    [
        ("resnet-50", {"tp": 2}, "not all operators of this model can be split"),
        ("resnet-50", {"pp": 2}, "it cannot be pipelined"),
        ("resnet-50", {"cp": 2}, "context parallelism needs a transformer"),
        ("resnet-50", {"ep": 2}, "no embedding tables"),
        ("dlrm-dcnv2", {"ep": 3}, "does not divide the 4096 parts of the tables"),
        ("dlrm-dcnv2", {"ep": 16}, "does not divide the 8 chips of a stage"),
    ],
)
def test_plans_that_the_operators_do_not_allow(workload, plan, says):
    run = catalog.training_run(workload, global_batch=4096)
    with pytest.raises(UserError, match=says):
        catalog.plan(run, 8, **plan)


def test_a_table_made_in_python_is_a_workload():
    table = operator_table(
        [Convolution(inputs=3.0, outputs=64.0, size=32.0, kernel=3.0), Gemm(inputs=64.0, outputs=10.0, wide=1.0)],
        layers=1, hidden=64, kept_inputs=3 * 32**2, sample="small image",
    )  # fmt: skip
    run = catalog.training_run(table, sequence_length=1, global_batch=1024, tokens=1e6)
    assert run.model is table and float(run.tokens) == 1e6
    assert float(catalog.plan(run, 8, micro_batch=128).dp) == 8
    with pytest.raises(UserError, match="must state the tokens per sample"):
        catalog.training_run(table)


def test_what_is_a_transformer_s_alone():
    with pytest.raises(UserError, match="it can be trained, but not served"):
        catalog.service("resnet-50")
    with pytest.raises(UserError, match="it has no sequence_length"):
        catalog.training_run("resnet-50", sequence_length=512)
    resnet = catalog.model_of("resnet-50")
    assert (tensor_degrees(resnet), most_chunks(resnet)) == ([1], 1.0)
    scan = Scan(channels=128.0, state=16.0, heads=8.0, groups=4.0, chunk=8.0, split="channels")
    block = [Gemm(inputs=64.0, outputs=320.0, split="columns"), scan]
    split = operator_table(block, layers=6, hidden=64, kept_inputs=6 * 64, heads=4, sample="text", language=True)
    assert (tensor_degrees(split), most_chunks(split)) == ([1, 2, 4], 6.0)
    run = catalog.training_run(split, sequence_length=64, global_batch=4096, tokens=1e6)
    with pytest.raises(UserError, match="does not divide the 4 parts that all operators split into"):
        catalog.plan(run, 8, tp=3)


def test_rows_by_hand():
    """FLOPs, traffic and weights of single operators as one writes them on paper."""

    def row(operator, number=0):
        return operator.table_rows()[number]

    conv = row(Convolution(inputs=64.0, outputs=128.0, size=28.0, kernel=3.0, stride=2.0))
    assert 2 * conv["per_sample"] * conv["columns"] * conv["inner"] == 2 * 28**2 * 128 * 64 * 9
    assert (conv["inner_read"], conv["stored"], conv["weights"]) == (64 * 4, 64 * 4, 64 * 9 * 128)
    depthwise = row(Convolution(inputs=64.0, outputs=64.0, size=28.0, kernel=7.0, groups=64.0))
    assert "columns" not in depthwise and depthwise["vector_flops"] == 2 * 49 * 64 and depthwise["weights"] == 49 * 64
    fft = row(Fft(points=1024.0, channels=2.0))
    assert (fft["vector_flops"], fft["streamed"], fft["per_sample"]) == (5 * 2048 * 10, 8 * 2048, 1.0)
    lstm = Recurrence(inputs=256.0, hidden=512.0).table_rows()
    assert sum(each["weights"] for each in lstm) == 4 * 512 * (256 + 512) and lstm[1]["sequential"] == 1.0
    scan = row(Scan(channels=256.0, state=16.0))
    assert scan["vector_flops"] == 9 * 256 * 16 and "core_flops" not in scan
    chunked = row(Scan(channels=256.0, state=16.0, heads=4.0, groups=2.0, chunk=64.0))
    assert chunked["core_flops"] == 2 * 64 * (2 * 16 + 256) + 4 * 256 * 16
    experts = operator_table(
        [Experts(inputs=8.0, outputs=4.0, experts=16.0, chosen=2.0)], layers=1, hidden=8, kept_inputs=8
    )
    assert float(total_parameters(experts)) == 512 and float(active_parameters(experts)) == 64
    table = operator_table([Lookup(entries=100.0, width=4.0, pooled=3.0, spread=1.0, rows=1.0), Gemm(inputs=4.0, outputs=2.0)],
                           layers=1, hidden=4, kept_inputs=4, shards=8)  # fmt: skip
    assert float(total_parameters(table)) == 408 and float(active_parameters(table)) == 20
    assert all(kind.op == name for name, kind in KINDS.items())


def test_a_spectral_model_counts_as_published():
    """GFNet-S: 25 M weights and 4.5 G multiply-adds an image (table of raoyongming/GFNet); transforms are outside matrix units."""
    run = catalog.training_run("gfnet-s")
    assert round(float(total_parameters(run.model)) / 1e6) == 25
    images = float(run.global_batch_sequences)
    assert (
        round(float(work.model_flops(run.model, run)) / images / 6e9, 1) == 4.5
    )  # forward and backward, two FLOPs each
    (transforms,) = Fft(points=196, channels=192, rows=1, count=38).table_rows()
    assert transforms["vector_flops"] == pytest.approx(5.0 * 196 * 192 * math.log2(196))
