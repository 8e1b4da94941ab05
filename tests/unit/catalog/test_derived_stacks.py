"""Stacks of 2026: entries derived from older ones, and the direction in which their constants differ."""

import tomllib

import pytest

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.errors import UserError
from hwopt.quantity import quantities
from hwopt.stack import Capabilities

OWN = {
    name: tomllib.loads((data_root() / "stacks" / f"{name}.toml").read_text("utf-8"))
    for name in catalog.names("stacks")
}
DERIVED = sorted(name for name, table in OWN.items() if "base" in table)
NEW = (
    "pytorch-fsdp2-2026", "pytorch-fsdp2-eager-2026", "torchtitan-2026", "prime-rl-2026", "verl-2026", "megatron-bridge-2026",
    "maxtext-2026", "primus-2026", "vllm-2026", "sglang-2026", "jax-serving-2026",
)  # fmt: skip


def test_the_stacks_of_2026_are_derived_from_shipped_ones():
    assert set(NEW) <= set(DERIVED)
    for name in DERIVED:
        record = catalog.record("stacks", name)
        assert OWN[name]["base"] in OWN and "base" not in record.text, name
        assert OWN[name]["title"] != OWN[OWN[name]["base"]]["title"]


@pytest.mark.parametrize("name", NEW)
def test_a_derived_stack_has_its_own_values_and_inherits_the_others(name):
    record, base = catalog.record("stacks", name), catalog.record("stacks", OWN[name]["base"])
    assert set(base.quantities) <= set(record.quantities)
    own = {k for k, v in OWN[name].items() if isinstance(v, dict) and "value" in v}
    for key, quantity in record.quantities.items():
        top, _, rest = key.partition(".")
        stated = key in own or (rest and rest in OWN[name].get(top, {}))
        assert stated or quantity == base.quantities[key], key
        assert record.citation(key), key
        assert quantity.low is None or quantity.low <= quantity.value <= quantity.high, key


@pytest.mark.parametrize(
    ("name", "key", "older", "sign"),
    [
        ("pytorch-fsdp2-2026", "attention_forward_efficiency.hopper", "torchtitan-2024", 1),
        ("torchtitan-2026", "attention_backward_efficiency.blackwell", "torchtitan-2024", 1),
        ("pytorch-fsdp2-eager-2026", "elementwise_passes", "pytorch-fsdp2-2026", 1),
        ("megatron-bridge-2026", "routing_passes", "nemo-2025", -1),
        ("primus-2026", "attention_forward_efficiency.cdna4", "rocm-primus-2025", 1),
        ("vllm-2026", "step_overhead", "tensorrt-llm-2026", 1),
        ("jax-serving-2026", "step_overhead", "jax-serving-tpu", 1),
    ],
)  # fmt: skip
def test_constants_differ_in_the_documented_direction(name, key, older, sign):
    new, old = (catalog.record("stacks", of).quantities[key].value for of in (name, older))
    assert sign * (new - old) > 0


def test_undocumented_capabilities_are_absent():
    for name, absent in {
        "prime-rl-2026": {"tensor_parallelism", "pipeline_parallelism", "interleaving", "weight_streaming"},
        "verl-2026": {"tensor_parallelism", "pipeline_parallelism", "interleaving"},
    }.items():
        found = catalog.stack(name).capabilities
        assert {key for key in quantities(Capabilities) if float(getattr(found, key)) == 0.0} >= absent, name


def test_a_base_that_does_not_exist_is_refused_in_one_line(tmp_path):
    (tmp_path / "own.toml").write_text('base = "torchtitan-2062"\n')
    with pytest.raises(UserError, match="torchtitan-2062") as error:
        catalog.stack(tmp_path / "own.toml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chip", ["h100-sxm", "h200", "b200", "gb200", "mi300x", "tpu-v6e"])
def test_no_stack_of_2026_without_measurements_becomes_a_default(chip):
    assert catalog.default_stack(chip) not in NEW and catalog.serving_stack(chip) not in NEW
