"""`validate` on small files of serving runs: what is predicted, reasons, assumptions, intervals."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hwopt import catalog
from hwopt.calibration.intervals import SERVING_FLOORS, UNKNOWN, PredictionContext, interval, serving_terms
from hwopt.calibration.measured.collected_text import complete
from hwopt.calibration.measured.columns import MeasuredService
from hwopt.calibration.validation import SkipReason, screen, validate
from hwopt.errors import UserError
from results.benchmarks.serving_widths import WidthError, half_widths

COLUMNS = (
    "id,source,model_name,gpu,num_gpus,tp,pp,ep,weight_precision,kv_precision,batch,input_tokens,output_tokens,metric,value,"
    "unit,quality,notes,stack,closed_loop"
)
GOOD = {
    "id": "a", "source": "my rack", "model_name": "llama2-7b", "gpu": "A100-SXM-80GB", "num_gpus": "1", "tp": "1", "pp": "1",
    "ep": "", "weight_precision": "fp16", "kv_precision": "fp16", "batch": "8", "input_tokens": "512", "output_tokens": "64",
    "metric": "total_latency_ms", "value": "1500", "unit": "ms", "quality": "A", "notes": "", "stack": "", "closed_loop": "",
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
    unseen = interval(catalog.service("llama2-7b"), "maia", "", held)
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
    dense = (0.0,) * len(SERVING_FLOORS)
    of = lambda model, terms, size: WidthError(("S", model, "c"), "vllm-2026", "hopper", terms, size)
    found = [of("m", dense, 0.1)] * 90 + [of("n", dense, 0.5)] * 10
    widths = half_widths(found)
    assert math.exp(widths["base"]) == pytest.approx(0.5, rel=1e-3)
    assert all(widths[name] >= least for name, least in SERVING_FLOORS.items())
    with pytest.raises(ValueError, match="dense"):
        half_widths([of("m", (1.0, 0.0, 0.0, 0.0), 0.1)])


def test_the_interval_of_a_service_follows_what_is_known():
    held = catalog.calibration()
    width = lambda model, chip, stack, sequences=32.0, without="": (
        interval(catalog.service(model), chip, stack, held, without, PredictionContext(sequences=sequences)).time
    )
    usual = width("llama2-7b", "hopper", "vllm-2026")
    assert width("llama2-7b", "hopper", "vllm-2026", 2.0) > usual < width("llama2-7b", "hopper", "vllm-2026", 128.0)
    assert width("llama2-7b", "maia", "vllm-2026") == pytest.approx(usual * math.exp(UNKNOWN["new_family"]))
    assert width("llama2-7b", "hopper", "ideal") == pytest.approx(usual * math.exp(UNKNOWN["new_stack"]))
    assert width("llama2-7b", "hopper", "tensorrt-llm-2026") == pytest.approx(usual * math.exp(UNKNOWN["one_study"]))
    assert width("qwen3.5-397b-a17b", "hopper", "vllm-2026") > width("mixtral-8x7b", "hopper", "vllm-2026") > usual
    only = "sgl-project/sglang-jax benchmarks"
    assert serving_terms(catalog.service("llama2-7b"), "tpu", "jax-serving-2026", only)["new_stack"] == 1.0


def test_in_a_closed_loop_prompts_share_passes(answer):
    tpot = {"metric": "tpot_ms", "batch": "32", "input_tokens": "2048", "output_tokens": "256"}
    rate = tpot | {"metric": "output_tokens_per_s"}
    (static, mixed, tokens), (long_static, long_mixed) = (
        [row["predicted"] for row in answer(*rows)["rows"]]
        for rows in (
            (tpot, tpot | {"closed_loop": "yes"}, rate | {"closed_loop": "yes"}),
            [tpot | {"output_tokens": "60000", "closed_loop": each} for each in ("no", "yes")],
        )
    )
    assert mixed > 1.2 * static
    # Little's law: each of 32 users gets 255 tokens from passes and the first from the prompt's.
    assert tokens == pytest.approx(32 / mixed * 1e3 * 256 / 255, rel=1e-6)
    assert long_mixed == pytest.approx(long_static, rel=0.02)


@pytest.mark.parametrize(
    ("framework", "notes", "metric", "stack", "loop"),
    [
        ("vLLM 0.19.0", "concurrency 4", "tpot_ms", "vllm-2026", "yes"),
        ("SGLang nightly-dev", "", "output_tokens_per_s", "sglang-2026", "yes"),
        ("TensorRT-LLM 1.2.0rc6.post2", "", "ttft_ms", "tensorrt-llm-2026", "yes"),
        ("TensorRT-LLM 1.0", "", "tpot_ms", "tensorrt-llm-2025", "yes"),
        ("TensorRT-LLM 0.9", "", "tpot_ms", "tensorrt-llm-2023", ""),
        ("SGLang-JAX", "inter-token latency", "tpot_ms", "jax-serving-2026", "no"),
        ("vLLM TPU", "", "tpot_ms", "jax-serving-2026", "yes"),
        ("", "vLLM benchmark_latency", "total_latency_ms", "vllm-2026", "no"),
        ("", "optimum-habana static batch", "output_tokens_per_s", "", "no"),
    ],
)
def test_text_names_the_engine_and_how_requests_follow(framework, notes, metric, stack, loop):
    cells = GOOD | {"framework": framework, "notes": notes, "metric": metric}
    del cells["stack"], cells["closed_loop"]
    complete(cells, MeasuredService, cells)
    assert (cells.get("stack", ""), cells.get("closed_loop", "")) == (stack, loop)


def test_engines_store_keys_and_values_in_their_usual_format(answer):
    rows = [{"metric": "tpot_ms", "gpu": "H100-SXM-80GB", "weight_precision": "fp8", "kv_precision": kv, "stack": stack}
            for stack in ("vllm-2026", "tensorrt-llm-2026") for kv in ("", "fp16", "fp8")]  # fmt: skip
    blank, wide, narrow, own, own_wide, own_narrow = (row["predicted"] for row in answer(*rows)["rows"])
    assert blank == wide > narrow
    assert own == own_narrow < own_wide


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
