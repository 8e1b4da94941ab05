"""Logs of training software and of serving benchmarks: stated settings, steady steps, refused logs."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from hwopt.calibration.measured.logs import log_table
from hwopt.calibration.measured.rows import read
from hwopt.calibration.validation import validate
from hwopt.cli.app import main
from hwopt.errors import UserError

LOGS = Path(__file__).parent / "logs"

EXPECTED = {
    "megatron_lm.log": ("iter_time_s", 19.88, {"num_gpus": "64", "tp": "4", "pp": "4", "vpp": "5", "kv_heads": "8", "zero": "1",
                                               "number_format": "bf16", "global_batch_sequences": "128", "seq_len": "8192"}),
    "megatron_bridge_restart.log": ("iter_time_s", 5.02, {"cp": "2", "layers": "32", "vpp": "1", "micro_batch": "1"}),
    "torchtitan.log": ("tokens_per_s_per_gpu", 7050.0, {"num_gpus": "8", "dp": "8", "global_batch_sequences": "8",
                                                        "gpu": "NVIDIA H100 80GB HBM3", "model_name": "llama3 8B"}),
    "torchtitan_truncated.log": ("tokens_per_s_per_gpu", 876.0, {"micro_batch": "16", "seq_len": "8192"}),
    "maxtext.log": ("step_time_s", 2.41, {"num_gpus": "32", "model_name": "llama2-7b", "number_format": "bf16"}),
    "maxtext_restart.log": ("step_time_s", 31.2, {"num_gpus": "64", "recompute": "full"}),
    "hf_trainer.log": ("iter_time_s", 11.9, {"global_batch_sequences": "64", "micro_batch": "2"}),
    "trainer_state.json": ("samples_per_s", 5.363, {}),
    "vllm_bench.log": ("output_tokens_per_s", 3546.32, {"batch": "64", "input_tokens": "1024", "output_tokens": "512"}),
    "vllm_bench.json": ("output_tokens_per_s", 1105.5, {"batch": "32", "model_name": "meta-llama/Llama-3.1-70B-Instruct"}),
    "sglang_bench.log": ("output_tokens_per_s", 5521.15, {"batch": "126.91", "requests": "1280"}),
    "sglang_bench.jsonl": ("output_tokens_per_s", 2474.92, {"batch": "15.84", "input_tokens": "1024"}),
}  # fmt: skip


def step(number: int, seconds: float) -> str:
    return f"completed step: {number}, seconds: {seconds:.3f}, TFLOP/s/device: 1.0, loss: 2.0\n"


@pytest.mark.parametrize("name", EXPECTED)
def test_settings_and_value_of_each_log(name):
    metric, value, facts = EXPECTED[name]
    table = log_table((LOGS / name).read_text(encoding="utf-8"))
    assert table is not None
    cells = table[1][0][1]
    assert cells["measured_metric"] == metric
    assert float(cells["measured_value"]) == pytest.approx(value, rel=3e-3)
    assert facts.items() <= cells.items()


def test_each_result_of_a_serving_benchmark_is_a_row_and_an_unfinished_one_is_none():
    table = log_table((LOGS / "sglang_bench.jsonl").read_text(encoding="utf-8"))
    assert table is not None and [cells["requests"] for _, cells in table[1]] == ["160", "640"]


def test_every_format_has_two_logs():
    formats = [log_table(path.read_text(encoding="utf-8")) for path in LOGS.iterdir() if path.suffix != ".md"]
    names = [each[0].name for each in formats if each is not None]
    assert len(names) == len(formats) == 12 and all(names.count(name) == 2 for name in names)


def test_steady_steps_by_hand():
    # 20 steps: two of warm-up; a checkpoint at step 10. Then a restart at step 15: 15 to 19 count once, the last time.
    times = [9.0, 4.0, *(2.0 + 0.01 * (i % 3) for i in range(2, 20))]
    times[10] = 7.0
    text = "".join(step(i, each) for i, each in enumerate(times))
    text += "".join(step(i, 8.0 if i == 15 else 2.5 if i == 16 else 2.01) for i in range(15, 25))
    table = log_table(text)
    assert table is not None
    kept = [*(times[i] for i in range(2, 15) if i != 10), *[2.01] * 8]
    assert float(table[1][0][1]["measured_value"]) == pytest.approx(statistics.median(kept), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("".join(step(i, 2.0) for i in range(6)), "4 steady steps"),
        ("".join(step(i, 2.0) for i in range(9)).replace("loss: 2.0", "loss: nan", 1), "line 1: the loss is not a number"),
        ("".join(step(i, 0.0) for i in range(9)), "'0.000' is not a measured time"),
        ("".join(step(i, 2.0) for i in range(9)).replace("seconds: 2.000", "seconds: nan"), "'nan' is not a measured time"),
        ("Config param ici_tensor_parallelism: 4\nConfig param ici_tensor_parallelism: 8\n" + step(1, 2.0), "tp is 4, then 8"),
        ("============ Serving Benchmark Result ============\nSuccessful requests: 5\n", "no throughput of output tokens"),
        ("Serving Benchmark Result\nSuccessful requests: abc\nTotal input tokens: 1.2.3\n", "no throughput"),
        ("completed step: 1, seconds: 2.0" + "9" * 5000 + "\n" + step(1, 2.0), "steady steps"),
        ("completed step: " + "9" * 5000 + ", seconds: 2.0\n" + step(1, 2.0), "steady steps"),
    ],
)  # fmt: skip
def test_refused_logs(text, words):
    with pytest.raises(UserError) as refused:
        log_table(text)
    assert words in str(refused.value) and len(refused.value.lines) == 1


@pytest.mark.parametrize(
    "text", ["", "hello\n", "{" * 100_000, "[" * 5000, "a,b\n1,2\n", '{"a": [1, 2]}\n', "\x1b[31m\n"]
)
def test_texts_of_other_kinds(text):
    assert log_table(text) is None


def test_absurd_settings_state_nothing():
    steps = "".join(f"step: {i}  loss: 2.0  tps: 100  tflops: 1\n" for i in range(9))
    sizes = ",".join(f" {name}={'9' * 300}" for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp"))
    table = log_table(f"parallelism:{sizes}\nTrainer: 8 tokens per DP rank, sequence length 0\n{steps}")
    assert table is not None and "num_gpus" not in table[1][0][1]


def test_missing_columns_are_requested_in_one_line():
    with pytest.raises(UserError, match=r"without model_name, gpu: --facts model_name=\.\.\.,gpu=\.\.\.$"):
        read(LOGS / "megatron_lm.log")
    rows = read(LOGS / "megatron_lm.log", facts={"gpu": "h100-sxm", "model_name": "llama3-70b"}).rows
    assert rows[0].tp == 4 and rows[0].micro_batch == 1.0 and rows[0].gpu == "h100-sxm"


def test_facts_fill_blanks_and_contradict_nothing(tmp_path):
    path = tmp_path / "runs.csv"
    head = "model_name,gpu,num_gpus,seq_len,global_batch_sequences,tp,measured_metric,measured_value"
    path.write_text(
        f"{head}\nllama3-8b,h100-sxm,8,8192,8,,iter_time_s,1\nllama3-8b,h100-sxm,8,8192,8,2,iter_time_s,1\n"
    )
    assert [row.tp for row in read(path, facts={"tp": "4", "pp": "1"}).rows] == [4, 2]
    with pytest.raises(UserError, match="states num_gpus"):
        read(path, facts={"num_gpus": "16"})
    with pytest.raises(UserError, match="is not a column"):
        read(path, facts={"gpus": "16"})
    assert read(path, defaults={"num_gpus": "16"}).rows[0].num_gpus == 8


def test_a_log_is_validated_like_a_table(capsys):
    facts = {"gpu": "h100-sxm", "model_name": "llama3-70b", "stack": "nemo-2025"}
    result = validate(LOGS / "megatron_lm.log", facts=facts)
    assert result["summary"]["scored"] == 1 and result["rows"][0]["measured"] == pytest.approx(19.88, rel=3e-3)
    assert main(["validate", str(LOGS / "torchtitan.log"), "--facts", "gpus=8"]) == 2
    assert main(["validate", str(LOGS / "torchtitan.log"), "--facts", "gpu"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 2 and "is not a column" in error[0] and "write column=value" in error[1]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe" + b"completed step: 1, seconds: 2.0\n" * 9, b"completed step: 1, seconds: 2\xff\n"]
)
def test_logs_in_other_encodings_are_refused_in_a_line(content, tmp_path, capsys):
    path = tmp_path / "run.log"
    path.write_bytes(content)
    assert main(["validate", str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
