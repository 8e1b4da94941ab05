"""Mechanisms of layers in launch files: flags that exist where software has them, else a refusal that names the mechanism."""

import json
from dataclasses import replace

import pytest

from hwopt import catalog
from hwopt.catalog.load import leaf
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.output.export import megatron, nemo, torchtitan
from hwopt.output.export.limits import refusal
from hwopt.output.export.mechanisms import MECHANISMS, dimensions
from hwopt.output.export.trainer import training_file
from hwopt.quantity import quantities
from hwopt.workload.transformer import LayerKinds, Transformer
from tests.option_lists import options
from tests.unit.output.launches import launch

EXPERTS, LATENT, DENSE = (
    catalog.training_run(name, global_batch=64) for name in ("qwen3-30b-a3b", "deepseek-v3", "qwen3-8b")
)
INDEX = {"index_heads": 64.0, "index_dim": 128.0, "index_tokens": 2048.0}
DELTA = {
    "scan_heads": 32.0, "scan_key_heads": 16.0, "scan_key_dim": 128.0, "scan_value_dim": 64.0, "scan_conv": 4.0,
    "scan_gates": 2.0, "scan_delta": 1.0, "scan_decay_rank": 0.0, "scan_gate_rank": 0.0,
}  # fmt: skip


def with_fields(run, kinds=None, **fields):
    """A run of a model with further mechanisms, in every layer unless `kinds` differ."""
    model = replace(run.model, kinds=kinds, **{name: leaf(value) for name, value in fields.items()})
    return replace(run, model=model)


def hybrid(run, share, scan, moe=1.0, **attention):
    """A run whose layers have scans in a share of them, and attention in the others."""
    columns = {name: leaf([value, 0.0]) for name, value in scan.items()} | {"attends": leaf([0.0, 1.0])}
    kinds = LayerKinds(values=columns, share=leaf([share, 1.0 - share]), moe=leaf([moe, moe]))
    return with_fields(run, kinds, **attention)


def written(trainer, run, config=None, **degrees):
    plan = catalog.plan(run, 8, **({"tp": 2, "sequence_parallel": 1, "zero": 1} | degrees))
    return training_file("", trainer, launch(run, plan, config=config or {}))


ORDERS = {
    "interval": {"full_attention_interval": 4},
    "list": {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 12},
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_gated_delta_hybrids_are_flags_of_megatron(order):
    run = hybrid(EXPERTS, 0.75, DELTA, gate_dim=128.0)
    flags = written(megatron.TRAINER, run, order).file
    pattern = [1, 1, 1, 0] * 12
    assert json.loads(flags["--linear-attention-freq"]) == pattern and flags["--attention-output-gate"] is True
    said = {"--linear-num-value-heads": 32, "--linear-num-key-heads": 16, "--linear-key-head-dim": 128}
    said |= {"--linear-value-head-dim": 64, "--linear-conv-kernel-dim": 4}
    assert said.items() <= flags.items() and flags["--experimental-attention-variant"] == "gated_delta_net"
    assert set(flags) <= set(options("megatron"))
    keys = written(nemo.TRAINER, run, order).file["model"]
    assert keys["linear_attention_freq"] == pattern and keys["experimental_attention_variant"] == "gated_delta_net"
    assert {f"model.{key}" for key in keys} <= set(options("nemo"))


def test_an_order_that_the_config_does_not_state_is_asked_for():
    run = hybrid(EXPERTS, 0.75, DELTA)
    for config in ({}, {"full_attention_interval": 3}, {"layer_types": ["linear_attention"] * 48}):
        with pytest.raises(UserError, match="which 36 of the 48 layers have scans is not known"):
            written(megatron.TRAINER, run, config)


def test_indexers_and_latent_experts_are_flags_of_megatron():
    run = with_fields(LATENT, expert_hidden=2048.0, **INDEX)
    flags = written(megatron.TRAINER, run, cp=2).file
    said = {"--experimental-attention-variant": "dsa", "--dsa-indexer-n-heads": 64, "--dsa-indexer-head-dim": 128,
            "--dsa-indexer-topk": 2048, "--moe-latent-size": 2048, "--cp-comm-type": "allgather"}  # fmt: skip
    assert said.items() <= flags.items() and set(flags) <= set(options("megatron"))
    plain = written(megatron.TRAINER, LATENT, cp=2).file
    assert plain["--cp-comm-type"] == "p2p" and not set(plain) & (set(said) - {"--cp-comm-type"})


REFUSED = {
    "one output gate for each head": with_fields(EXPERTS, gate_dim=1.0),
    "an output gate of each value channel": with_fields(LATENT, gate_dim=128.0),  # Megatron-LM's is of grouped attention
    "keys that are also values": with_fields(DENSE, shared_projection=1.0),
    "block-sparse attention": with_fields(EXPERTS, **INDEX),
    "decays by channel \\(KDA\\)": hybrid(LATENT, 0.75, DELTA | {"scan_decay_rank": 128.0}),
    "Mamba-2 scans, which need pretrain_hybrid.py": hybrid(EXPERTS, 0.5, DELTA | {"scan_delta": 0.0}),
    "layers without attention or without MLP": hybrid(DENSE, 0.5, {"ffn": 12288.0}, moe=0.0),
    "both attention and scan": with_fields(DENSE, **DELTA),
    "layers that differ in heads, window_tokens": with_fields(DENSE, LayerKinds(
        values={"heads": leaf([64.0, 32.0]), "window_tokens": leaf([128.0, 1e9])}, share=leaf([0.5, 0.5]), moe=leaf([0.0, 0.0]))),
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_a_mechanism_without_flags_is_refused_by_name(said):
    for trainer in (megatron.TRAINER, nemo.TRAINER, torchtitan.TRAINER):
        with pytest.raises(UserError, match=f"cannot express .*{said}") as failure:
            trainer.check_model(REFUSED[said].model)
        assert ("checkpoint" in str(failure.value)) == (trainer is nemo.TRAINER)


def test_torchtitan_has_no_mechanism_and_every_mechanism_is_tried_here():
    tried = [*REFUSED.values(), hybrid(EXPERTS, 0.75, DELTA), with_fields(LATENT, expert_hidden=2048.0, **INDEX)]
    seen = set()
    for run in tried:
        with pytest.raises(UserError, match="torchtitan cannot express"):
            torchtitan.TRAINER.check_model(run.model)
        seen |= {each.words for each in MECHANISMS if each.present(dimensions(run.model))}
    assert seen == {each.words for each in MECHANISMS}


def test_plain_models_have_no_mechanism():
    for name in catalog.names("workloads"):
        entry = catalog.record("workloads", name)
        if "unsupported" in entry.text or entry.operators or catalog.transformer(name).mechanisms:
            continue
        w = dimensions(catalog.transformer(name))
        assert not [each.words for each in MECHANISMS if each.present(w)] and not w.differing


def test_tensor_and_context_parallel_ranks_divide_the_heads_of_scans():
    run = hybrid(EXPERTS, 0.75, DELTA | {"scan_key_heads": 2.0})
    plan = catalog.plan(run, 8, tp=2, cp=2, zero=1)
    assert "tp = 2 and cp = 2 with 32 heads of scans in 2 groups" in refusal(megatron.LIMITS, run, plan)
    assert refusal(megatron.LIMITS, run, catalog.plan(run, 8, tp=2, zero=1)) == ""


def test_the_flag_is_refused_before_any_search(tmp_path, capsys):
    """A file whose layers differ is refused by name, without a plan."""
    stated = catalog.record("workloads", "qwen3-8b").quantities
    shape = "\n".join(f"{name} = {stated[name].si:.0f}" for name in quantities(Transformer) if name in stated)
    rows = "".join(f"[[layer_kinds]]\nlayers = 18\nmoe = 0\nheads = {heads}\n" for heads in (32, 16))
    path = tmp_path / "mixed.toml"
    path.write_text(f'title = "mixed"\nfamily = "mixed"\nbase = "qwen3-8b"\n{shape}\n{rows}', encoding="utf-8")
    line = ["plan", "--workload", str(path), "--chip", "h100-sxm", "--chips", "8"]
    assert main([*line, "--export", "megatron"]) == 2
    assert "--export megatron: Megatron-LM cannot express layers that differ in heads" in capsys.readouterr().err
