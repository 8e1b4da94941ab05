"""Reading a file of measured runs: types, blanks, and faults named by file, row and column."""

from __future__ import annotations

import pytest

from hwopt.errors import UserError
from hwopt.evidence.validation.rows import ESSENTIAL, read

HEADER = ",".join(ESSENTIAL)
GOOD = "llama2-7b,H100-SXM-80GB,8,4096,128,iter_time_s,5.5"


def _file(tmp_path, content, name="runs.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_minimal_file_has_only_essential_columns(tmp_path):
    (row,) = read(_file(tmp_path, f"{HEADER}\n{GOOD}\n"))
    assert (row.id, row.num_gpus, row.measured_value, row.tp, row.notes) == ("row-2", 8, 5.5, None, "")


def test_order_of_columns_extra_columns_and_blanks_do_not_matter(tmp_path):
    header = "mood," + ",".join(reversed(ESSENTIAL)) + ",tp,other_metrics"
    cells = "fine," + ",".join(reversed(GOOD.split(","))) + ",,mfu=0.5;hfu=0.6"
    (row,) = read(_file(tmp_path, f"{header}\n{cells}\n\n"))
    assert row.tp is None
    assert row.other_metrics == {"mfu": "0.5", "hfu": "0.6"}


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    (row,) = read(_file(tmp_path, f"\ufeff{HEADER}\r\n{GOOD}\r\n"))
    assert row.model_name == "llama2-7b"


def test_a_comma_inside_quotes_is_text(tmp_path):
    (row,) = read(_file(tmp_path, f'{HEADER},notes\n{GOOD},"a, b"\n'))
    assert row.notes == "a, b"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["empty"]),
        ("\n\n", ["empty"]),
        (f"{HEADER}\n", ["no rows"]),
        (HEADER.replace("seq_len", "seqlen") + f"\n{GOOD}\n", ["row 1", "'seq_len'", "did you mean 'seqlen'"]),
        (f"{HEADER}\n{GOOD}\n".replace(",", ";"), ["semicolons"]),
        (f"{HEADER}\n{GOOD},9,9\n", ["line 2", "2 more cells"]),
        (f"{HEADER},tp,tp\n{GOOD},1,1\n", ["'tp' stands twice"]),
        (f"{HEADER}\n{GOOD}\n{GOOD.replace('5.5', 'nan')}\n", ["line 3", "'measured_value'", "not finite"]),
        (f"{HEADER}\n{GOOD.replace('5.5', 'inf')}\n", ["line 2", "'measured_value'", "not finite"]),
        (f"{HEADER}\n{GOOD.replace('5.5', '-1')}\n", ["'measured_value'", "above zero"]),
        (f"{HEADER}\n{GOOD.replace('5.5', 'fast')}\n", ["'measured_value'", "'fast' is not a number"]),
        (f"{HEADER}\n{GOOD.replace('4096', chr(34) + '4,096' + chr(34))}\n", ["'seq_len'", "write 4096"]),
        (f"{HEADER}\n{GOOD.replace(',8,', ',8.5,')}\n", ["'num_gpus'", "whole number"]),
        (f'{HEADER},notes\n{GOOD},"open\n', ["quotation mark"]),
        (f"{HEADER},notes\n{GOOD},caf\xe9\n".encode("latin-1"), ["line 2", "column 'notes'", "not UTF-8"]),
        (f"{HEADER}\n{GOOD}\n".encode("utf-16"), ["UTF-16"]),
        (b"\x00\x01\x02", ["NUL"]),
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


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    _file(tmp_path, "x", "train.csv")
    with pytest.raises(UserError, match=r"did you mean 'train\.csv'"):
        read(tmp_path / "trian.csv")


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(UserError, match="folder"):
        read(tmp_path)
