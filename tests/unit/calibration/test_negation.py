"""Affirmed and denied mentions in notes, for every column that is inferred from text."""

from __future__ import annotations

import re

import pytest

from hwopt.calibration.measured import text_rules as words
from hwopt.calibration.measured.negation import affirms
from tests.evidence_cases import inferred_columns

AFFIRMED = (
    "x", "with x", "x on", "x and y", "x: on", "x=1", "x=true", "x=0.8", "not only x but y", "y, no z, x", "no z, x on", "x; y off",
    "x, y off", "without y; x", "no z. x", "no difference with x", "x not stated", "y and z not printed, x", "unlike x", "x (no y)",
    "x, not y", "y=none/x", "x removed the gap", "x missing from y's list", "x 0.5", "x - on", "x -> y", "x: on, y: off", "x=[y]",
    "x still on", "x must be on", "y had to be off, x",
)  # fmt: skip
DENIED = (
    "no x", "not x", "without x", "w/o x", "non-x", "nonx", "un-x", "unx", "never x", "x off", "x: off", "x disabled", "disable x",
    "x is disabled", "disabled x", "x=false", "x=0", "x = 0.0", "x=none", "x: none", "x: no", "x='false'", "x not used", "x unused",
    "x is not used", "xs are turned off", "not using x", "no fused x", "no async fused x", "lacks x", "y instead of x", "x (off)",
    "y rather than x", "neither x nor y", "neither y nor x", "without y or x", "without x or y", "no y and x", "without y, x or z",
    "without x, y or z", "x and y off", "x or y disabled", "x/y off", "x kernels disabled", "x (not used)", "y off, no z, x off",
    "x [off]", "x - off", "x \u2014 disabled", "x -> off", "x \u2192 off", "x=[]", "x='off'", 'x: ["none"]', "x none", "x false; y",
    "x 0",
    "x currently off", "xs completely disabled", "x had to be disabled", "x must be off", "xs aren't used", "x can not be used",
    "x cannot be enabled", "x did not work", "x unsupported", "x unavailable", "x left out", "x removed", "x omitted; y",
    "x no longer used",
    "don't use x", "didn't enable x", "turned off x", "switch off x", "deactivated x", "off: x", "disabled: x", "no use of x",
    "not with x",
    "missing x", "x + y off", "x, and y off", "x not in use", "x never enabled",
)  # fmt: skip
NEITHER = ("", "y", "not without x", "no x off", "x off is not used; x", "x here, no x there", "never without x")


@pytest.mark.parametrize("text", AFFIRMED)
def test_affirmed(text):
    assert affirms("x", text) is True


@pytest.mark.parametrize("text", DENIED)
def test_denied(text):
    assert affirms("x", text) is False


@pytest.mark.parametrize("text", NEITHER)
def test_nothing_is_said_where_nothing_is_clear(text):
    assert affirms("x", text) is None


@pytest.mark.parametrize(
    ("column", "notes", "on", "off"),
    [
        ("host_graphs", "CUDA graphs", "parts", "none"),
        ("host_graphs", "cudagraph", "parts", "none"),
        ("host_graphs", "full-iteration CUDA graphs", "step", "none"),
        ("attention_kernel", "flash attention", "fused", "unfused"),
        ("attention_kernel", "FA3", "fused", None),
        ("tp_overlap", "TP overlap", None, "0"),
        ("tp_overlap", "tp_comm_overlap", None, "0"),
        ("pp_overlap", "P2P overlap", None, "0"),
        ("ep_overlap", "a2a overlap", "0.8", "0"),
        ("ep_overlap", "all-to-all overlap", "0.8", "0"),
        ("ep_overlap", "EP overlap", "0.8", "0"),
        ("deduplicated_dispatch", "DeepEP", "yes", "no"),
        ("deduplicated_dispatch", "alltoall dispatcher", "no", None),
        ("deduplicated_dispatch", "HybridEP", "yes", None),
        ("interleaved", "interleaving", "yes", "no"),
        ("bubble_share", "ZB-H1", repr(1 / 3), None),
        ("trainable_fraction", "LoRA", "0.003", None),
        ("number_format", "AQT int8", "int8", None),
        ("scaling", "rowwise", "row", None),
        ("operation", "production", "production", None),
        ("regression", "regression of that release", "yes", None),
        ("dense_layers", "first layer dense", "1", None),
        ("model_kind", "Mamba layers", "hybrid", None),
    ],
)
def test_every_flag_of_a_training_run(column, notes, on, off):
    place = {"schedule": notes} if column in ("interleaved", "bubble_share") else {"notes": notes}
    (cell,) = place
    assert inferred_columns(**place).get(column) == on
    for form in (
        "no {}",
        "without {}",
        "w/o {}",
        "{} off",
        "{} disabled",
        "{}=false",
        "{}: none",
        "neither Muon nor {}",
        "{} turned off",
        "{} is not used",
        "{} currently disabled",
        "{} -> off",
        "{} (off)",
        "didn't use {}",
        "mock data, no permute fusion, {} off; seq 4096",
    ):
        assert inferred_columns(**{cell: form.format(notes)}).get(column) == off, form


def test_the_rest_of_the_columns_in_words():
    compiled = {
        "source": "TorchTitan",
        "notes": "compile",
        "source_locator": "docs/llama3_h100_202512_torchtitan.md",
        "year": "2025",
    }
    for notes in (
        "compile off",
        "not compiled",
        "uncompiled",
        "no compile",
        "torch.compile disabled",
        "eager",
        "compile=False",
    ):
        told = inferred_columns(**compiled | {"notes": notes})
        assert told["stack"] == "torchtitan-eager" and "logit_bytes" not in told
    assert (
        inferred_columns(**compiled)["stack"] == "torchtitan-2024"
        and inferred_columns(**compiled)["logit_bytes"] == "4"
    )
    for notes in ("not eager, compile", "compile; no MTP"):
        assert inferred_columns(**compiled | {"notes": notes})["stack"] == "torchtitan-2024"
    unfused = {"stack": "megatron-2021"}
    tokens = lambda notes: inferred_columns(model_name="llama3-8b SFT", notes=notes).get("document_tokens")
    assert (tokens("packed sequences"), tokens("no packed sequences"), tokens("packed sequences off")) == (
        "700",
        None,
        None,
    )
    for recompute in ("no recompute", "none", "off", "w/o recompute", "without activation checkpointing", "recomputation disabled",
                      "activation checkpointing: none", "not used", "selective recompute off"):  # fmt: skip
        told = inferred_columns(recompute=recompute, **unfused)
        assert (told["recompute_layers"], told.get("recompute_attention")) == ("0", None), recompute
    assert inferred_columns(recompute="selective, norms not recomputed").get("recompute_norms") is None
    assert inferred_columns(recompute="full, no attention")["recompute_layers"] == "1"
    assert inferred_columns(precision="bf16 (no fp8)")["number_format"] == "bf16"
    assert inferred_columns(zero_stage="zero1, not zero3")["zero"] == "1"
    assert "zero_ranks" not in inferred_columns(zero_stage="fsdp, no hsdp", gpu="H100-SXM-80GB")
    flops = lambda notes: inferred_columns(notes=notes, measured_metric="mfu")
    assert flops("not causal")["flops_attention"] == "full" and "flops_recompute" not in flops("MFU, not HFU")
    assert flops("HFU")["flops_recompute"] == "yes"


@pytest.mark.parametrize(
    ("framework", "notes", "name"),
    [
        ("KempnerForge (PyTorch FSDP2, torch.compile)", "", "pytorch-fsdp2-2026"),
        ("KempnerForge (PyTorch FSDP2, no compile for MoE)", "", "pytorch-fsdp2-eager-2026"),
        ("PyTorch FSDP2", "torch.compile off", "pytorch-fsdp2-eager-2026"),
        ("PyTorch FSDP2", "eager", "pytorch-fsdp2-eager-2026"),
        ("PyTorch FSDP2", "", "pytorch-fsdp2-2026"),
    ],
)
def test_pytorch_without_compilation_is_not_read_as_compiled(framework, notes, name):
    assert inferred_columns(framework=framework, notes=notes, year="2026", gpu="H200-SXM-141GB")["stack"] == name


def test_settings_name_their_software_also_where_they_are_off():
    for notes in ("tp_comm_overlap=False", "tp_comm_overlap=True"):
        assert inferred_columns(notes=notes, gpu="H100-SXM-80GB", year="2024")["stack"] == "nemo-2024"


def test_no_rule_looks_back_for_denials_of_its_own():
    """One matcher knows them all."""
    patterns = [rule.words for rules in (words.ANY, words.RUN, words.SERVICE) for rule in rules]
    assert not [
        each for each in patterns if re.search(r"\(\?<!(no|without) |\b(no|without) \w+ overlap|overlap off", each)
    ]
