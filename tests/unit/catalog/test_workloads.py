"""Parameter counts in closed form equal the published ones; runs have sound defaults."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.workload.transformer import Transformer, active_parameters, total_parameters

RECORDS = {name: catalog.record("workloads", name) for name in catalog.names("workloads")}
SUPPORTED = [name for name, held in RECORDS.items() if "unsupported" not in held.text]
UNSUPPORTED = sorted(set(RECORDS) - set(SUPPORTED))
COUNTED = [name for name in SUPPORTED if "parameters" in RECORDS[name].quantities]
ROUTED = [name for name in SUPPORTED if "active_parameters" in RECORDS[name].quantities]

# The published number of active parameters follows another rule or is rounded.
ACTIVE_ELSEWHERE = {
    "deepseek-v2": 21.4,  # published as 21
    "deepseek-v2-lite": 2.66,  # 2.4 without the embedding
    "deepseek-v3": 37.6,  # published as 37
    "deepseek-v3.2": 38.4,  # published as 37; the indexer has 0.9
    "gemma4-26b-a4b": 3.82,  # published as 3.8
    "gpt-oss-120b": 5.71,  # 5.1 without the embedding
    "gpt-oss-20b": 4.19,  # 3.6 without the embedding
    "grok-1": 83.8,  # published as 86
    "kimi-k2": 32.9,  # published as 32.6
    "kimi-k3": 105.4,  # 104 without the embedding
    "kimi-linear-48b-a3b": 3.48,  # published as 3
    "llama4-maverick": 17.2,  # published as 17
    "llama4-scout": 17.2,  # published as 17
    "nemotron-3-nano-30b-a3b": 3.58,  # published as 3.6
    "nemotron-3-super-120b-a12b": 12.77,  # published as 12.7
    "qwen3-coder-480b-a35b": 35.5,  # published as 35
    "step-3.7-flash": 10.88,  # published as 11
    "trinity-mini": 3.47,  # 3 without the embedding
    "qwen3-next-80b-a3b": 3.87,  # published as 3
    "qwen3.5-122b-a10b": 9.77,  # published as 10
    "qwen3.5-397b-a17b": 17.35,  # published as 17
}


def count(function, name: str) -> float:
    with jax.enable_x64(True):
        return float(function(catalog.model_of(name)))


@pytest.mark.parametrize("name", COUNTED)
def test_closed_form_equals_the_published_count(name):
    published = RECORDS[name].si("parameters")
    error = count(total_parameters, name) / published - 1.0
    reason = RECORDS[name].text.get("parameter_count_reason")
    if reason:
        assert abs(error) < 0.08
    else:
        assert abs(error) < 0.005
    assert bool(reason) == (abs(error) > 0.005) or name == "llama4-maverick", "a reason stands where it is needed"


@pytest.mark.parametrize("name", ROUTED)
def test_active_parameters(name):
    wanted = ACTIVE_ELSEWHERE.get(name, RECORDS[name].si("active_parameters") / 1e9)
    assert count(active_parameters, name) / 1e9 == pytest.approx(wanted, rel=5e-3)


def test_llama_405b_exactly():
    assert (
        count(total_parameters, "llama3.1-405b") == 405_853_388_800
    )  # the tensors of the published checkpoint, summed


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_run_is_float64_and_plausible(name):
    run = catalog.training_run(name)
    for part in jax.tree.leaves(run):
        assert isinstance(part, np.ndarray) and part.dtype == np.float64 and part.ndim <= 1
        assert np.isfinite(part).all() and (part >= 0).all()
    assert run.gemm_precision.sum() == 1.0
    if RECORDS[name].operators:  # of images and clicks a sample may be one token
        assert run.sequence_length >= 1.0
        return
    assert 512 <= run.sequence_length <= 131072
    assert 1e5 <= run.sequence_length * run.global_batch_sequences <= 1e8
    assert run.tokens >= 1e9


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_the_model_lacks_is_said(name):
    with pytest.raises(UserError) as caught:
        catalog.transformer(name)
    assert name in str(caught.value) and "cannot be modeled" in str(caught.value)


@pytest.mark.parametrize(
    ("precision", "place", "weight", "master"),
    [
        ("bf16", 2, 2, 4),
        ("fp16", 2, 2, 4),
        ("fp32", 0, 4, 0),
        ("tf32", 1, 4, 0),
        ("mxfp8", 3, 2, 4),
        ("nvfp4", 5, 2, 4),
    ],
)
def test_precision_fills_one_slot(precision, place, weight, master):
    run = catalog.training_run("llama3-8b", precision=precision)
    assert run.gemm_precision.tolist() == [float(i == place) for i in range(6)]
    assert (run.weight_bytes, run.master_bytes) == (weight, master)


def test_published_batch_and_tokens():
    run = catalog.training_run("meta-llama/Llama-3.1-405B")
    assert (run.sequence_length, run.global_batch_sequences, run.tokens) == (8192, 2048, 15.6e12)
    shorter = catalog.training_run("llama3.1-405b", sequence_length=4096)
    assert shorter.global_batch_sequences == 4096  # the tokens of a step stay
    asked = catalog.training_run("llama3.1-405b", sequence_length=4096, global_batch=7, tokens=1e12)
    assert (asked.sequence_length, asked.global_batch_sequences, asked.tokens) == (4096, 7, 1e12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sequence_length": 0}, {"global_batch": -1}, {"tokens": float("nan")}, {"causal_fraction": 2.0},
        {"trainable_fraction": 0.0}, {"routing_imbalance": 0.5}, {"precision": "bf61"}, {"sequence_length": "many"},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(UserError):
        catalog.training_run("llama3-8b", **wrong)


def _own(tmp_path, **changes):
    def number(value, unit="1"):
        return f'{{ value = {value}, unit = "{unit}", kind = "assumption", source = "hwopt-assumption" }}'

    fields = dict(layers=4, hidden=256, ffn=1024, mlp_matrices=3, heads=4, kv_heads=2, qk_dim=64, v_dim=64, vocab=1000,
                  tied_embeddings=1) | changes  # fmt: skip
    lines = [f"{key} = {number(value)}" for key, value in fields.items()]
    path = tmp_path / "small.toml"
    path.write_text("\n".join([*lines, f"sequence_length = {number(2048, 'token')}"]))
    return path


def test_a_workload_of_ones_own(tmp_path):
    run = catalog.training_run(_own(tmp_path))
    assert isinstance(run.model, Transformer) and run.model.layers == 4
    assert run.global_batch_sequences == 2048  # 4 M tokens a step
    with jax.enable_x64(True):
        # NumPy's count leaves norms out.
        assert run.tokens == pytest.approx(20 * float(total_parameters(run.model)), rel=2e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 0},
        {"kv_heads": 8},
        {"tied_embeddings": 2},
        {"moe_layers": 5},
        {"moe_layers": 2, "experts": 4, "experts_per_token": 8},
    ],
)
def test_an_impossible_shape_is_refused(tmp_path, changes):
    with pytest.raises(UserError):
        catalog.transformer(_own(tmp_path, **changes))


@pytest.mark.parametrize(
    ("chip", "stack"),
    [
        ("trainium2", "neuron-serving"),
        ("tpu-v5p", "jax-serving-tpu"),
        ("h200", "tensorrt-llm-2026"),
        ("wse-3", "ideal"),
    ],
)
def test_software_that_serves_on_a_chip(chip, stack):
    assert catalog.serving_stack(chip) == stack
