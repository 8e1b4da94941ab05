"""`validate` on small files of serving runs: what is predicted, reasons, assumptions, intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hwopt import catalog
from hwopt.calibration.intervals import interval
from hwopt.calibration.validation import SkipReason, screen, validate
from hwopt.errors import UserError
from results.benchmarks.serving_widths import half_widths

COLUMNS = (
    "id,source,model_name,gpu,num_gpus,tp,pp,ep,weight_precision,kv_precision,batch,input_tokens,output_tokens,metric,value,"
    "unit,quality,notes,stack"
)
GOOD = {
    "id": "a", "source": "my rack", "model_name": "llama2-7b", "gpu": "A100-SXM-80GB", "num_gpus": "1", "tp": "1", "pp": "1",
    "ep": "", "weight_precision": "fp16", "kv_precision": "fp16", "batch": "8", "input_tokens": "512", "output_tokens": "64",
    "metric": "total_latency_ms", "value": "1500", "unit": "ms", "quality": "A", "notes": "", "stack": "",
}  # fmt: skip
RATE = {"metric": "output_tokens_per_s_per_gpu", "value": "1000", "unit": "tok/s/GPU"}


@pytest.fixture
def answer(tmp_path):
    def run(*changes, constants="calibrated"):
        header = COLUMNS.split(",")
        lines = [
            ",".join((GOOD | {"id": f"r{i}"} | change)[name] for name in header) for i, change in enumerate(changes)
        ]
        path = tmp_path / "serving.csv"
        path.write_text("\n".join((COLUMNS, *lines)) + "\n")
        return validate(path, constants=constants)

    return run


def test_a_latency_is_a_pass_of_prompts_and_a_pass_for_each_further_token(answer):
    first, each, total, rate = answer(
        {"metric": "ttft_ms"}, {"metric": "tpot_ms"}, {}, RATE | {"metric": "output_tokens_per_s"}
    )["rows"]
    assert total["predicted"] == pytest.approx(first["predicted"] + 63 * each["predicted"])
    assert rate["predicted"] == pytest.approx(8 * 64 / total["predicted"] * 1e3)


def test_an_engine_takes_the_best_batch_that_fits(answer):
    batches = [RATE | {"batch": str(size)} for size in (1, 8, 32)]
    largest, *fixed = answer(RATE | {"batch": "max"}, *batches)["rows"]
    assert largest["predicted"] > max(row["predicted"] for row in fixed)
    assert largest["fits"] and "largest_batch" in largest["assumed"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": ""}, SkipReason.NO_MEASUREMENT),
        ({"metric": "joy"}, SkipReason.UNSUPPORTED_METRIC),
        ({"batch": "max"}, SkipReason.UNSUPPORTED_METRIC),
        ({"quality": "C"}, SkipReason.HEADLINE),
        ({"notes": "the text says 8 GPUs: inconsistent in source"}, SkipReason.HEADLINE),
        ({"gpu": "Abacus-9000"}, SkipReason.UNKNOWN_ACCELERATOR),
        ({"gpu": "Groq LPU", "quality": "C"}, SkipReason.HEADLINE),
        ({"model_name": "secret-7b"}, SkipReason.UNKNOWN_SHAPE),
        ({"batch": ""}, SkipReason.INCOMPLETE_PLAN),
        ({"input_tokens": ""}, SkipReason.INCOMPLETE_PLAN),
        ({"num_gpus": "8", "tp": ""}, SkipReason.INCOMPLETE_PLAN),
        ({"num_gpus": "8", "tp": "3"}, SkipReason.INCONSISTENT_PLAN),
        ({"num_gpus": "7", "tp": "7"}, SkipReason.INCONSISTENT_PLAN),
    ],
)
def test_a_row_that_cannot_be_scored_says_why(answer, change, reason):
    result = answer({}, change)
    good, bad = result["rows"]
    assert good["status"] == "scored"
    assert (bad["status"], bad["reason"], bad["predicted"]) == ("skipped", str(reason), None)
    assert result["summary"]["skipped_by_reason"] == {str(reason): 1}


def test_the_shape_of_the_answer_is_that_of_training_runs(answer):
    result = answer({}, {"gpu": "Abacus-9000"})
    assert {"rows", "summary"} == set(result)
    assert result["summary"]["by_source"]["my rack"]["rows"] == 1
    assert "my rack" in screen(result)
    json.dumps(result, allow_nan=False)


def test_phases_are_told_apart(answer):
    rows = ({"metric": "ttft_ms"}, {"metric": "tpot_ms"}, {}, {"output_tokens": "1"}, RATE | {"batch": "max"}, RATE)
    result = answer(*(row | {"model_name": name} for row in rows for name in ("llama2-7b", "llama2-13b")))
    found = {name: (of["cells"], of["rows"]) for name, of in result["summary"]["by_group"]["phase"].items()}
    both = found.pop("both, batch stated")
    assert found == {"decode": (2, 2), "prefill": (2, 4), "both, largest rate": (2, 2)} and both[0] == 2
    text = screen(result)
    assert "by software" in text and "both, largest rate" in text and "a100-80" in text


def test_software_follows_source_column_and_chip(answer):
    named = {"source": "NVIDIA/FasterTransformer gpt_guide"}
    rows = answer({}, named, {"stack": "tensorrt-llm-2025"})["rows"]
    assert [row["stack"] for row in rows] == ["tensorrt-llm-2023", "fastertransformer", "tensorrt-llm-2025"]
    assert ["stack" in row["assumed"] for row in rows] == [True, False, False]
    with pytest.raises(UserError, match="column 'stack': 'tensort' is no software stack"):
        answer({"stack": "tensort"})


def test_formats_that_a_chip_lacks_are_weights_alone(answer):
    half, eighth = answer(
        {"metric": "tpot_ms", "batch": "1"}, {"metric": "tpot_ms", "batch": "1", "weight_precision": "fp8"}
    )["rows"]
    assert 0.4 < eighth["predicted"] / half["predicted"] < 0.9


def test_experts_and_attention_apart_are_stated(answer):
    row = answer(
        RATE | {"model_name": "qwen3-30b-a3b", "gpu": "H100-SXM-80GB", "num_gpus": "4", "tp": "", "ep": "4", "batch": "max",
                "weight_precision": "fp8", "kv_precision": "", "notes": "attention data parallel + expert parallel"}
    )["rows"][0]  # fmt: skip
    assert row["status"] == "scored"
    assert {"kv_precision", "routing_imbalance"} <= set(row["assumed"])


@pytest.mark.parametrize("constants", ["literature", "speed-of-light"])
def test_no_interval_without_calibrated_constants(answer, constants):
    row = answer({}, constants=constants)["rows"][0]
    assert (row["low"], row["high"]) == (None, None)


def test_the_interval_holds_the_prediction_and_is_wider_with_experts():
    held = catalog.calibration()
    dense = interval(catalog.service("llama2-7b"), "ampere", "", held)
    moe = interval(catalog.service("mixtral-8x7b"), "ampere", "", held)
    unseen = interval(catalog.service("llama2-7b"), "cdna3", "", held)
    assert dense is not None and moe is not None and unseen is not None
    assert 0.05 < dense.time < moe.time < 1.0
    assert unseen.time > dense.time
    assert interval(catalog.service("llama2-7b"), "ampere", "", None) is None


def test_serving_stacks_move_with_chips_alone():
    moved, held = (
        catalog.cluster("h100-sxm", 8, stack="tensorrt-llm-2025", constants=c) for c in ("calibrated", "literature")
    )
    assert float(moved.stack.gemm_half_size) == float(held.stack.gemm_half_size)
    assert np.any(np.asarray(moved.chip.matmul_efficiency) != np.asarray(held.chip.matmul_efficiency))


def test_half_widths_count_cells_equally():
    found = [("S", ("S", "m", "c"), False, 0.1)] * 90 + [("S", ("S", "n", "c"), False, 0.5)] * 10
    assert half_widths(found)["dense"] == pytest.approx(0.5)
    assert half_widths(found)["experts"] > 0.5
    with pytest.raises(ValueError, match="dense"):
        half_widths([("S", ("S", "m", "c"), True, 0.1)])


@pytest.mark.parametrize(
    "change",
    [
        {"batch": "1e15"},
        {"input_tokens": "1e15"},
        {"output_tokens": "1e15"},
        {"value": "1e-15"},
        {"num_gpus": "1000000000000000"},
        {"pp": "1000000000000000"},
        {"ep": "64"},
        {"weight_precision": "banana"},
        RATE | {"batch": "max", "output_tokens": "1"},
        RATE | {"batch": "max", "input_tokens": "1e9"},
    ],
)
def test_whatever_numbers_a_row_holds_the_answer_is_finite(answer, change):
    document = answer(change)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
