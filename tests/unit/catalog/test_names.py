"""Names as tables and model hubs print them lead to entries; others are refused with the closest ones."""

from __future__ import annotations

import pytest

from hwopt import catalog
from hwopt.catalog.names import slug
from hwopt.errors import UserError

PRINTED_CHIPS = {  # every accelerator in the tables of measured runs and of peak memory
    "H100-SXM-80GB": "h100-sxm",
    "A100-SXM-80GB": "a100-80",
    "A100-SXM (memory size not stated)": "a100-80",
    "GB200-NVL72": "gb200",
    "B200-SXM": "b200",
    "H100-96GB-HBM2e-500W": "h100-96gb-hbm2e-500w",
    "TPU-v5e": "tpu-v5e",
    "TPU-v5p": "tpu-v5p",
    "TPU-v3": "tpu-v3",
    "MI355X": "mi355x",
    "TPU-v4": "tpu-v4",
    "MI300X": "mi300x",
    "MI250X GCD": "mi250x-gcd",
    "MI325X": "mi325x",
    "Trainium1 (NeuronCore-v2; 2 per chip)": "trainium1-core",
    "H200-SXM": "h200",
    "A100-SXM-40GB": "a100-40",
    "GB300-NVL72": "gb300",
    "V100": "v100",
    "A800-80GB": "a800",
    "B200-SXM (printed H200)": "b200",
    "A100-SXM-80GB (Ampere)": "a100-80",
    "H100-SXM-80GB (Grand Teton, 700W)": "h100-sxm",
    "H200-NVL(PCIe)": "h200-nvl",
    "H100 NVL 94GB": "h100-nvl",
    "RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
    "H20": "h20",
    "A40-48GB-PCIe": "a40",
    "L40S": "l40s",
    "A100-PCIe-80GB": "a100-pcie",
    "Gaudi": "gaudi1",
    "Gaudi1": "gaudi1",
    "Ascend 910B": "ascend-910b",
    "MI350X": "mi350x",
}
PRINTED_MODELS = {
    "llama3.1-405b": "llama3.1-405b",
    "Llama-3.1-405B": "llama3.1-405b",
    "LLAMA3.1_405B": "llama3.1-405b",
    "meta-llama/Llama-3.1-405B": "llama3.1-405b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA2-70B": "llama2-70b",
    "llama2-34b": "llama2-34b",
    "gpt3-175b": "gpt3-175b",
    "GPT3-175B": "gpt3-175b",
    "GPT-3 175B": "gpt3-175b",
    "GPT-175B (GPT-3)": "gpt3-175b",
    "GPT-3 5B": "gpt3-5b",
    "nemotron4-340b": "nemotron4-340b",
    "grok1-314b": "grok-1",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "llama4-maverick": "llama4-maverick",
    "mixtral-8x22b": "mixtral-8x22b",
    "MT-NLG 530B": "mt-nlg-530b",
    "GPT-530B (MT-NLG)": "mt-nlg-530b",
    "Gopher 280B": "gopher-280b",
    "TinyLlama-1.1B": "tinyllama-1.1b",
    "InternLM-7B": "internlm-7b",
    "MPT-7b": "mpt-7b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "gpt2": "gpt2-small",
}


@pytest.mark.parametrize(("printed", "name"), PRINTED_CHIPS.items())
def test_chips_as_printed(printed, name):
    assert catalog.find("chips", printed) == name


@pytest.mark.parametrize(("printed", "name"), PRINTED_MODELS.items())
def test_models_as_printed(printed, name):
    assert catalog.find("workloads", printed) == name


@pytest.mark.parametrize("kind", catalog.kinds)
def test_every_entry_finds_itself(kind):
    for name in catalog.names(kind):
        assert catalog.find(kind, name) == slug(name) == name
        assert catalog.find(kind, name.upper()) == name


@pytest.mark.parametrize(
    ("wrong", "meant"), [("h100-sxn", "h100-sxm"), ("mi300", "mi300x"), ("gb20", "gb200"), ("tpu v5", "tpu-v5")]
)
def test_a_wrong_name_is_answered_with_a_close_one(wrong, meant):
    with pytest.raises(UserError) as caught:
        catalog.find("chips", wrong)
    assert f"'{wrong}'" in str(caught.value) and meant in str(caught.value) and "did you mean" in str(caught.value)


@pytest.mark.parametrize("empty", ["", "  ", "()"])
def test_an_empty_name_is_refused(empty):
    with pytest.raises(UserError):
        catalog.find("chips", empty)


@pytest.mark.parametrize("escape", ["../sites/norway", "..", "/etc/passwd", "a" * 300])
def test_a_name_cannot_leave_the_catalogue(escape):
    with pytest.raises(UserError):
        catalog.record("chips", escape)
