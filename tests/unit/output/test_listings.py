"""What is read of a user's own files, as `hwopt catalog` lists it."""

import json

import pytest

from hwopt import catalog
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.output.text import catalog_cards
from hwopt.units import read_amount

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
    "hidden_act": "silu",
}  # fmt: skip


def test_the_shape_of_a_config_is_listed_with_its_parameters(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert main(["catalog", "workloads", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["shape"]["kv_heads"] == 8 and document["parameters"] == document["active_parameters"]
    assert document["parameters"] == pytest.approx(8.03e9, rel=1e-3)
    text = catalog_cards.shape(str(path))[1]
    assert "8,030,261,248 parameters" in text and "query heads" in text
    path.write_text(json.dumps({**CONFIG, "num_key_value_heeds": 8}))
    assert main(["catalog", "workloads", str(path)]) == 2
    assert "'num_key_value_heads'" in capsys.readouterr().err


def test_a_config_that_is_a_table_of_operators_is_listed_too(tmp_path):
    path = tmp_path / "config.json"
    shape = {"hidden_size": 2560, "num_hidden_layers": 64, "state_size": 16, "vocab_size": 50280, "conv_kernel": 4}
    path.write_text(json.dumps({"model_type": "mamba", "intermediate_size": 5120, "time_step_rank": 160} | shape))
    document, text = catalog_cards.shape(str(path))
    assert document["shape"]["layers"] == 64 and document["parameters"] == pytest.approx(2.77e9, rel=1e-3)
    assert "2,768,345,600 parameters" in text


def test_a_number_of_ones_own_may_be_a_table_without_kind_and_source(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "b200"\nmemory_capacity = { value = 288, unit = "GB" }\nmemory_bandwidth = "10 TB/s"\n')
    entry = catalog.record("chips", path)
    assert entry.si("memory_capacity") == 288e9 and entry.si("memory_bandwidth") == 10e12
    assert (
        entry.citation("memory_capacity") == entry.citation("memory_bandwidth") == f"stated in {path}, without a source"
    )
    path.write_text('base = "b200"\nmemory_capacity = { value = 288, unit = "GB", kind = "estimate" }\n')
    with pytest.raises(UserError, match="has no 'source'"):
        catalog.record("chips", path)


def test_prices_per_unit_are_read_with_a_dollar():
    assert read_amount("0.04 $/kWh", "USD/J") == read_amount("0.04 USD/kWh", "USD/J") == pytest.approx(0.04 / 3.6e6)
