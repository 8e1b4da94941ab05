"""Reading a file of measured runs or services: types, blanks, and faults named by file, row and column."""

from __future__ import annotations

import math

import pytest

from hwopt.calibration.measured.columns import MeasuredRun, MeasuredService, essential
from hwopt.calibration.measured.rows import read
from hwopt.calibration.measured.table import kind_of
from hwopt.errors import UserError

NAMES = ("model_name", "gpu", "num_gpus", "seq_len", "global_batch_sequences", "measured_metric", "measured_value")
HEADER = ",".join(NAMES)
GOOD = "llama2-7b,H100-SXM-80GB,8,4096,128,iter_time_s,5.5"

SERVICE = "model_name,gpu,num_gpus,batch,input_tokens,output_tokens,metric,value"
SERVED = "llama2-7b,A100-SXM-80GB,1,8,128,32,total_latency_ms,500"


def _file(tmp_path, content, name="runs.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_minimal_file_has_only_essential_columns(tmp_path):
    assert set(NAMES) == set(essential(MeasuredRun))
    (row,) = read(_file(tmp_path, f"{HEADER}\n{GOOD}\n")).rows
    assert (row.id, row.num_gpus, row.measured_value, row.tp, row.notes) == ("row-2", 8, 5.5, None, "")


def test_order_of_columns_extra_columns_and_blanks_do_not_matter(tmp_path):
    header = "mood," + ",".join(reversed(NAMES)) + ",tp,recompute,other_metrics"
    cells = "fine," + ",".join(reversed(GOOD.split(","))) + ",,selective,mfu=0.5;hfu=0.6"
    (row,) = read(_file(tmp_path, f"{header}\n{cells}\n\n")).rows
    assert row.tp is None
    assert row.recompute_layers == pytest.approx(0.6)


def test_byte_order_mark_and_windows_line_ends(tmp_path):
    (row,) = read(_file(tmp_path, f"\ufeff{HEADER}\r\n{GOOD}\r\n")).rows
    assert row.model_name == "llama2-7b"


def test_a_comma_inside_quotes_is_text(tmp_path):
    (row,) = read(_file(tmp_path, f'{HEADER},notes\n{GOOD},"a, b"\n')).rows
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
        (f"{HEADER}\n{GOOD}\n{GOOD.replace('5.5', 'nan')}\n", ["line 3", "'measured_value'", "not a number"]),
        (f"{HEADER}\n{GOOD.replace('5.5', 'inf')}\n", ["line 2", "'measured_value'", "not a number"]),
        (f"{HEADER}\n{GOOD.replace('5.5', '-1')}\n", ["'measured_value'", "above zero"]),
        (f"{HEADER}\n{GOOD.replace('5.5', 'fast')}\n", ["'measured_value'", "'fast' is not a number"]),
        (f"{HEADER}\n{GOOD.replace('4096', chr(34) + '4,096' + chr(34))}\n", ["'seq_len'", "write 4096"]),
        (f"{HEADER}\n{GOOD.replace(',8,', ',8.5,')}\n", ["'num_gpus'", "an integer"]),
        (f'{HEADER},notes\n{GOOD},"open\n', ["quotation mark"]),
        (f"{HEADER},notes\n{GOOD},caf\xe9\n".encode("latin-1"), ["line 2", "column 'notes'", "not UTF-8"]),
        (f"{HEADER}\n{GOOD}\n".encode("utf-16"), ["UTF-16"]),
        (b"\x00\x01\x02", ["NUL"]),
        (b"\x89PNG\r\n\x1a\r\x80" + bytes(range(1, 256)), ["not UTF-8"]),
        (b'\x1f\x8b\x08\xff"\r\xfe,\r"\xe9', ["not UTF-8"]),
        (bytes(range(128, 256)) * 9, ["not UTF-8"]),
        (f"{HEADER},zero\n{GOOD},5\n", ["line 2", "'zero'", "at most 3"]),
        (f"{HEADER},recompute_layers\n{GOOD},1.5\n", ["'recompute_layers'", "at most 1"]),
        (f"{HEADER},attention_kernel\n{GOOD},fussed\n", ["'attention_kernel'", "did you mean 'fused'"]),
        (f"{HEADER},interleaved\n{GOOD},perhaps\n", ["'interleaved'", "yes or no"]),
        (f"{HEADER},release\n{GOOD},latest\n", ["'release'", "25.09"]),
        (f"{HEADER},Stack\n{GOOD},megatorn-2021\n", ["'Stack'", "no software stack", "did you mean 'megatron-2021'"]),
        (f"{HEADER},chip\n{GOOD},h100-sxn\n", ["'chip'", "no accelerator", "did you mean 'h100-sxm'"]),
        (f"{HEADER},workload\n{GOOD},llama9\n", ["'workload'", "no model"]),
        (f"id,{HEADER}\na,{GOOD}\na,{GOOD.replace('5.5', '6')}\n", ["line 3", "'id'", "'a' is the row at line 2"]),
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


def test_a_row_that_repeats_another_is_marked_with_its_line(tmp_path):
    rows = read(_file(tmp_path, f"id,{HEADER}\na,{GOOD}\nb,{GOOD}\na,{GOOD}\n")).rows
    assert [row.repeats for row in rows] == [0, 0, 2]
    rows = read(_file(tmp_path, f"{HEADER}\n{GOOD}\n{GOOD}\n")).rows
    assert [(row.id, row.repeats) for row in rows] == [("row-2", 0), ("row-3", 2)]


@pytest.mark.parametrize("path", [None, 3, 3.5, True, ["runs.csv"], b"runs.csv"])
def test_what_is_no_path_is_said(path):
    with pytest.raises(UserError, match="named by its path"):
        read(path)


def test_columns_that_a_file_states_are_read_as_they_stand(tmp_path):
    header = f"{HEADER},zero,attention_kernel,release,assumed,interleaved,stack,number_format,notes"
    cells = f"{GOOD},3,Fused,25.09.1,stack precision,Yes,NeMo_2025,MXFP8,vanilla TP"
    rows = read(_file(tmp_path, f"{header}\n{cells}\n"))
    (row,) = rows.rows
    assert (row.zero, row.attention_kernel, row.release, row.interleaved) == (3, "fused", (25, 9, 1), True)
    assert (row.assumed, row.stack, row.number_format) == (("stack", "precision"), "nemo-2025", "mxfp8")
    assert (row.tp_overlap, rows.inferred) == (0.0, ("tp_overlap",))


def test_latent_attention_has_no_heads_of_keys(tmp_path):
    for header, cells in ((SERVICE, SERVED), (HEADER, GOOD)):
        text = f"{header},KV_Heads\n{cells},MLA\n{cells},8\n{cells},latent 512\n"
        assert [row.kv_heads for row in read(_file(tmp_path, text)).rows] == [None, 8, None]


def test_a_minimal_file_of_services(tmp_path):
    rows = read(_file(tmp_path, f"{SERVICE}\n{SERVED}\n"))
    (row,) = rows.rows
    assert rows.kind is MeasuredService and rows.inferred == ()
    assert (row.id, row.batch, row.largest, row.input_tokens, row.measured_value) == ("row-2", 8.0, False, 128.0, 500.0)


def test_a_batch_that_the_engine_chose(tmp_path):
    (row,) = read(_file(tmp_path, f"{SERVICE}\n{SERVED.replace(',8,', ',max (offline),')}\n")).rows
    assert row.largest and row.batch == math.inf


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{SERVICE}\n", ["no rows"]),
        (SERVICE.replace("value", "valeu") + f"\n{SERVED}\n", ["row 1", "'value'", "did you mean 'valeu'"]),
        (f"{SERVICE}\n{SERVED}\n".replace("batch,", ""), ["'batch'"]),
        (f"{SERVICE}\n{SERVED},9\n", ["line 2", "1 more cells"]),
        (
            f"{SERVICE}\n{SERVED.replace(',8,', ',many,')}\n",
            ["line 2", "'batch'", "'many' is not a number", "write max"],
        ),
        (f"{SERVICE}\n{SERVED.replace(',8,', ',0,')}\n", ["'batch'", "above zero"]),
        (f"{SERVICE}\n{SERVED.replace(',8,', ',0.5,')}\n", ["'batch'", "at least 1"]),
        (f"{SERVICE}\n{SERVED.replace(',128,', ',0.2,')}\n", ["'input_tokens'", "at least 1"]),
        (f"{SERVICE}\n{SERVED.replace('500', 'nan')}\n", ["'value'", "not a number"]),
        (f"{SERVICE}\n{SERVED.replace('500', '1e30')}\n", ["'value'", "beyond anything measured"]),
        (f"{SERVICE}\n{SERVED.replace(',1,', ',1.5,')}\n", ["'num_gpus'", "an integer"]),
        (f"{SERVICE},kv_heads\n{SERVED},few\n", ["'kv_heads'", "'few' is not a number"]),
        (f'{SERVICE},notes\n{SERVED},"open\n', ["quotation mark"]),
    ],
)
def test_a_fault_of_services_is_one_line_too(tmp_path, content, words):
    test_a_fault_is_one_line_that_names_file_row_column_and_intent(tmp_path, content, words)


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (SERVICE, MeasuredService),
        ("model_name,gpu,Input_Tokens", MeasuredService),
        (HEADER, MeasuredRun),
        ("model_name,gpu,quantity,value", MeasuredRun),
    ],
)
def test_the_header_tells_services_from_training_runs(header, kind):
    assert kind_of(header.split(",")) is kind
