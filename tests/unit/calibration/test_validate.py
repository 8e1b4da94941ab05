"""`validate` from end to end on small files: scored rows, reasons, assumptions, the screen."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from types import SimpleNamespace

import equinox as eqx
import pytest

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.validation import SkipReason, models, screen, training, validate
from hwopt.errors import UserError

COLUMNS = (
    "id,source,model_name,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,moe_experts,moe_topk,gpu,num_gpus,gpus_per_node,precision,"
    "tp,pp,vpp,cp,ep,dp,zero_stage,micro_batch,global_batch_sequences,recompute,seq_parallel,measured_metric,measured_value,quality,notes"
)
GOOD = {
    "id": "a", "source": "my cluster", "model_name": "my-13b", "layers": "40", "hidden": "5120", "ffn": "13824", "heads": "40",
    "kv_heads": "40", "vocab": "32000", "seq_len": "4096", "moe_experts": "", "moe_topk": "", "gpu": "H100-SXM-80GB",
    "num_gpus": "64", "gpus_per_node": "8", "precision": "bf16", "tp": "2", "pp": "2", "vpp": "1", "cp": "1", "ep": "1", "dp": "16",
    "zero_stage": "zero1", "micro_batch": "1", "global_batch_sequences": "256", "recompute": "none", "seq_parallel": "yes",
    "measured_metric": "iter_time_s", "measured_value": "4.0", "quality": "A", "notes": "Megatron-LM 2024-05",
}  # fmt: skip


def _file(tmp_path, *changes):
    header = COLUMNS.split(",")
    lines = [",".join((GOOD | {"id": f"r{i}"} | change)[name] for name in header) for i, change in enumerate(changes)]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join((COLUMNS, *lines)) + "\n")
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"measured_value": ""}, SkipReason.NO_MEASUREMENT),
        ({"measured_metric": "loss"}, SkipReason.UNSUPPORTED_METRIC),
        ({"quality": "C"}, SkipReason.HEADLINE),
        ({"model_name": "deepseek-v4-flash"}, SkipReason.HYBRID),
        ({"gpu": "Abacus-9000"}, SkipReason.UNKNOWN_ACCELERATOR),
        ({"layers": "", "model_name": "secret-7b"}, SkipReason.UNKNOWN_SHAPE),
        ({"global_batch_sequences": ""}, SkipReason.INCOMPLETE_PLAN),
        (
            {"tp": "", "dp": "", "num_gpus": "62"},
            SkipReason.INCOMPLETE_PLAN,
        ),  # no plan that is tried divides chips and batch
        ({"dp": "15"}, SkipReason.INCONSISTENT_PLAN),
        ({"micro_batch": "32"}, SkipReason.INCONSISTENT_PLAN),
        ({"vpp": "40"}, SkipReason.INCONSISTENT_PLAN),
    ],
)
def test_a_row_that_cannot_be_scored_says_why(tmp_path, change, reason):
    result = validate(_file(tmp_path, {}, change))
    good, bad = result["rows"]
    assert good["status"] == "scored"
    assert (bad["status"], bad["reason"], bad["predicted"]) == ("skipped", str(reason), None)
    assert result["summary"]["skipped_by_reason"] == {str(reason): 1}


def test_a_row_of_a_hybrid_has_the_kinds_of_layers_of_its_entry():
    cells = dict.fromkeys(("workload", "model_kind", "hidden", "heads", "moe_experts", "vocab", "ffn", "kv_heads"))
    row = SimpleNamespace(**cells | {"model_name": "nemotron-3-super-120b-a12b", "layers": 44})
    own, known = models.shape(row, []), catalog.transformer("nemotron-3-super-120b-a12b")
    assert (float(own.layers), float(own.moe_layers)) == (44, 20)
    assert eqx.tree_equal(own.kinds, known.kinds) and own.expert_hidden == 1024 and own.gate_dim is None


def test_a_file_without_a_scored_row_still_answers(tmp_path):
    result = validate(_file(tmp_path, {"quality": "C"}))
    assert result["summary"]["median_abs_error"] is None
    assert "quality C" in screen(result)


def test_a_row_predicts_its_own_metric(tmp_path):
    rate = {"measured_metric": "tokens_per_s_per_gpu", "measured_value": "4096"}
    time, tokens = validate(_file(tmp_path, {}, rate))["rows"]
    assert tokens["predicted"] == pytest.approx(256 * 4096 / 64 / time["predicted"])
    assert time["error"] == pytest.approx(time["predicted"] / 4.0 - 1.0)
    assert (time["unit"], tokens["unit"]) == ("s", "token/s")


def test_what_a_row_leaves_open_is_assumed_and_said(tmp_path):
    (row,) = validate(
        _file(tmp_path, {"recompute": "", "seq_parallel": "", "precision": "", "dp": "", "zero_stage": ""})
    )["rows"]
    assert set(row["assumed"]) >= {"recompute", "seq_parallel", "precision", "dp", "zero_stage"}


def test_two_dense_expert_shapes_and_a_long_context_are_scored(tmp_path):
    moe = {"moe_experts": "8", "moe_topk": "2", "ep": "8", "model_name": "my-moe"}
    context = {"cp": "4", "dp": "4", "seq_len": "32768"}
    rows = validate(_file(tmp_path, {}, moe, context))["rows"]
    assert [row["status"] for row in rows] == ["scored"] * 3
    assert rows[2]["predicted"] > rows[1]["predicted"] > rows[0]["predicted"]


def test_full_recomputation_takes_longer(tmp_path):
    none, full = validate(_file(tmp_path, {}, {"recompute": "full"}))["rows"]
    assert 1.15 < full["predicted"] / none["predicted"] < 1.4


def test_a_stated_stack_is_used_and_a_wrong_one_refused(tmp_path):
    path = _file(tmp_path, {})
    text = path.read_text().splitlines()
    path.write_text("\n".join([text[0] + ",stack", text[1] + ",megatron-2021"]))
    assert validate(path)["rows"][0]["stack"] == "megatron-2021"
    path.write_text("\n".join([text[0] + ",stack", text[1] + ",megatorn-2021"]))
    with pytest.raises(UserError, match=r"runs\.csv.*line 2.*'stack'.*did you mean 'megatron-2021'"):
        validate(path)


def test_a_minimal_file_of_a_user(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "model_name,gpu,num_gpus,seq_len,global_batch_sequences,measured_metric,measured_value\n"
        "llama-3.1-8b,H100-SXM-80GB,8,8192,128,tokens_per_s_per_gpu,12000\n"
    )
    (row,) = validate(path)["rows"]
    assert row["status"] == "scored", row
    assert {"tp", "pp", "micro_batch", "precision", "stack"} <= set(row["assumed"])


def test_the_answer_is_plain_json(tmp_path):
    result = validate(_file(tmp_path, {}, {"quality": "C"}))
    text = json.dumps(result, allow_nan=False)
    wanted = {
        "rows", "scored", "skipped", "cells", "median_abs_error", "mean_abs_error", "max_abs_error", "mean_error",
        "baseline_abs_error", "interval_coverage", "by_source",
    }  # fmt: skip
    assert wanted <= set(json.loads(text)["summary"])
    assert all(
        {"id", "measured", "predicted", "error", "low", "high", "status", "reason"} <= set(r) for r in result["rows"]
    )


def test_the_same_file_gives_the_same_answer(tmp_path):
    path = _file(tmp_path, {}, {"tp": "4", "dp": "8"})
    assert validate(path) == validate(path)
    assert all(math.isfinite(row["predicted"]) for row in validate(path)["rows"])


def test_memory_is_scored_in_its_unit(tmp_path):
    path = _file(tmp_path, {"measured_metric": "peak_memory_per_gpu", "measured_value": "40"})
    text = path.read_text().splitlines()
    header = text[0].replace("measured_metric", "quantity").replace("measured_value", "value")
    path.write_text("\n".join([header + ",unit", text[1] + ",GB"]))
    (row,) = validate(path)["rows"]
    assert row["predicted"] == pytest.approx(row["memory_per_chip_bytes"] / 1e9)
    path.write_text(path.read_text().replace(",GB", ",gigs"))
    with pytest.raises(UserError, match=r"runs\.csv: row at line 2: unknown unit 'gigs'"):
        validate(path)


def test_a_row_that_stands_twice_counts_once_and_is_said(tmp_path):
    path = _file(tmp_path, {}, {"tp": "4", "dp": "8"})
    once = validate(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1], lines[2]]) + "\n")
    twice = validate(path)
    assert twice["summary"]["skipped_by_reason"] == {str(SkipReason.REPEATED): 2}
    assert [row["detail"] for row in twice["rows"][2:]] == ["line 2", "line 3"]
    assert twice["summary"]["mean_abs_error"] == once["summary"]["mean_abs_error"]
    assert "     2  repeats an earlier row cell for cell" in screen(twice)


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_is_said(path):
    with pytest.raises(UserError, match="named by its path"):
        validate(path)
    with pytest.raises(UserError, match="unknown constants"):
        validate("x.csv", constants=path)


def test_columns_say_what_words_say(tmp_path):
    """The same run in words and in columns is predicted alike, and the answer says which it was."""
    words = {
        "precision": "fp8(blockwise)",
        "zero_stage": "fsdp 8",
        "recompute": "selective(op)",
        "notes": "NeMo 24.07; no p2p overlap",
    }
    path = _file(tmp_path, words)
    inferred = validate(path)
    header, row = path.read_text().splitlines()
    columns = {
        "number_format": "fp8", "scaling": "block", "zero": "3", "zero_ranks": "8", "recompute_layers": "0.4",
        "pp_overlap": "0", "year": "2024", "stack": "nemo-2024", "assumed": "stack",
    }  # fmt: skip
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    for name in ("precision", "zero_stage", "recompute", "notes"):
        del cells[name]
    cells |= columns
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    stated = validate(path)
    assert stated["rows"][0]["predicted"] == inferred["rows"][0]["predicted"]
    assert (stated["summary"]["columns"], stated["summary"]["inferred"]) == ("stated", [])
    assert inferred["summary"]["columns"] == "inferred from text"
    assert set(columns) - {"stack"} <= set(inferred["summary"]["inferred"]) | {"stack"}
    assert "columns: as stated in the file" in screen(stated)
    assert "inferred from text of the file" in screen(inferred)


def test_many_rows_are_worked_off_in_parts(tmp_path, monkeypatch, capsys):
    module = importlib.import_module("hwopt.calibration.validation.validate")
    changes = [{"global_batch_sequences": str(256 + 16 * i)} for i in range(11)] + [{"quality": "C"}]
    path = _file(tmp_path, *changes)
    together = validate(path)
    sizes, real = [], training.KIND.predict
    kind = dataclasses.replace(training.KIND, predict=lambda cases: sizes.append(len(cases)) or real(cases))
    monkeypatch.setitem(module.KINDS, MeasuredRun, kind)
    monkeypatch.setattr(module, "_AT_ONCE", 5)
    assert validate(path) == together
    assert sizes == [5, 5, 1]
    assert capsys.readouterr().err == ""  # no bar where nobody asks


def test_bars_run_where_they_are_asked_for(tmp_path, capsys):
    path = _file(tmp_path, *[{"global_batch_sequences": str(256 + 16 * i)} for i in range(3)])
    assert validate(path, progress=True) == validate(path)
    shown = capsys.readouterr().err
    assert "reading:" in shown and "runs:" in shown and "0/3" in shown
    validate(path)
    assert capsys.readouterr().err == ""


def test_the_screen_names_rows_that_were_skipped_and_what_was_meant(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "model_name,gpu,num_gpus,measured_metric,measured_value,seq_len,global_batch_sequences,tp,pp\n"
        "llama2-7b,h100,8,mfu,0.41,4096,128,1,1\nllama2-7b,h100,8,step_time,9.5,4096,128,1,1\n"
        "llama2-7b,hh100,8,mfu,0.4,4096,128,1,1\n"
    )
    text = screen(validate(path))
    assert "unsupported metric (row-3: 'step_time': did you mean 'step_time_s'" in text
    assert "unknown accelerator (row-4: 'hh100': did you mean" in text
