"""Reading a file of measured serving runs: types, batches in words, and faults named by file, row and column."""

from __future__ import annotations

import pytest

from hwopt.errors import UserError
from hwopt.evidence.validation.serving_rows import ESSENTIAL, is_serving, read
from hwopt.evidence.validation.table import Table

HEADER = ",".join(ESSENTIAL)
GOOD = "llama2-7b,A100-SXM-80GB,1,8,128,32,total_latency_ms,500"


def _file(tmp_path, content):
    path = tmp_path / "serving.csv"
    path.write_text(content)
    return path


def test_minimal_file_has_only_essential_columns(tmp_path):
    (row,) = read(_file(tmp_path, f"{HEADER}\n{GOOD}\n"))
    assert (row.id, row.sequences, row.largest, row.input_tokens, row.value) == ("row-2", 8.0, False, 128.0, 500.0)


def test_a_batch_that_the_engine_chose(tmp_path):
    (row,) = read(_file(tmp_path, f"{HEADER}\n{GOOD.replace(',8,', ',max (offline),')}\n"))
    assert row.largest and row.sequences is None


def test_latent_attention_has_no_heads_of_keys(tmp_path):
    header, cells = f"{HEADER},KV_Heads", f"{GOOD},MLA\n{GOOD},8"
    assert [row.kv_heads for row in read(_file(tmp_path, f"{header}\n{cells}\n"))] == [None, 8]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["empty"]),
        (f"{HEADER}\n", ["no rows"]),
        (HEADER.replace("value", "valeu") + f"\n{GOOD}\n", ["row 1", "'value'", "did you mean 'valeu'"]),
        (f"{HEADER}\n{GOOD}\n".replace("batch,", ""), ["'batch'"]),
        (f"{HEADER}\n{GOOD},9\n", ["line 2", "1 more cells"]),
        (f"{HEADER}\n{GOOD.replace(',8,', ',many,')}\n", ["line 2", "'batch'", "'many' is not a number", "write max"]),
        (f"{HEADER}\n{GOOD.replace(',8,', ',0,')}\n", ["'batch'", "above zero"]),
        (f"{HEADER}\n{GOOD.replace(',8,', ',0.5,')}\n", ["'batch'", "at least 1"]),
        (f"{HEADER}\n{GOOD.replace(',128,', ',0.2,')}\n", ["'input_tokens'", "at least 1"]),
        (f"{HEADER}\n{GOOD.replace('500', 'nan')}\n", ["'value'", "not finite"]),
        (f"{HEADER}\n{GOOD.replace('500', '1e30')}\n", ["'value'", "beyond anything measured"]),
        (f"{HEADER}\n{GOOD.replace(',1,', ',1.5,')}\n", ["'num_gpus'", "whole number"]),
        (f"{HEADER},kv_heads\n{GOOD},few\n", ["'kv_heads'", "'few' is not a number"]),
        (f'{HEADER},notes\n{GOOD},"open\n', ["quotation mark"]),
    ],
)
def test_a_fault_is_one_line_that_names_file_row_column_and_intent(tmp_path, content, words):
    path = _file(tmp_path, content)
    with pytest.raises(UserError) as raised:
        read(path)
    text = str(raised.value)
    assert "\n" not in text
    assert str(path) in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("header", "serving"),
    [
        (HEADER, True),
        ("model_name,gpu,Input_Tokens", True),
        ("model_name,gpu,num_gpus,seq_len,global_batch_sequences,measured_metric,measured_value", False),
        ("model_name,gpu,quantity,value", False),
    ],
)
def test_the_header_tells_services_from_training_runs(tmp_path, header, serving):
    assert is_serving(Table(tmp_path, header.split(","), [])) is serving
