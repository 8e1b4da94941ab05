"""Memory formats against published peaks of 2025 and 2026, and pairs of runs that differ in one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwopt.calibration.validation import validate
from results.benchmarks.peak_memory import NOT_PRINTED, collected, peaks, score_lines, scored, words_of

TABLE = Path(__file__).parent / "memory_2026.csv"


@pytest.fixture(scope="module")
def rows():
    """Row and answer of each run that is scored, by the end of its id."""
    found = scored(collected(TABLE))
    return {row["id"].removeprefix("blind3-"): (row, answer) for row, answer in found if answer["status"] == "scored"}


def _errors(rows, source=""):
    own = [(row, answer) for row, answer in rows.values() if source in row["source"]]
    return np.abs([answer["error"] for row, answer in own if row["measured_value"] != NOT_PRINTED])


def _without(rows, word, source=""):
    """Errors of the rows with a word: as read, and with that word dropped from their formats."""
    own = [(row, answer) for row, answer in rows.values() if source in row["source"]]
    stated = [(row, answer) for row, answer in own if word in words_of(row).split(",")]
    stated = [each for each in stated if each[0]["measured_value"] != NOT_PRINTED]
    rest = [",".join(each for each in words_of(row).split(",") if each != word) for row, _ in stated]
    dropped = scored([row | {"memory_formats": words} for (row, _), words in zip(stated, rest, strict=True)])
    return np.abs([answer["error"] for _, answer in stated]), np.abs([answer["error"] for _, answer in dropped])


def test_peaks(rows):
    assert len(_errors(rows)) == 131
    assert np.median(_errors(rows)) <= 0.095  # asked: 10 %; 26 % without memory formats
    limits = {
        "prime-rl": 0.07,
        "KempnerForge": 0.12,
        "torchtune": 0.12,
        "Megatron-Bridge perf": 0.13,
        "Megatron-LM": 0.12,
    }
    for source, limit in limits.items():
        assert np.median(_errors(rows, source)) <= limit, source


def test_runs_that_ran_fit(rows):
    fits = [answer["fits"] for row, answer in rows.values() if row["verdict"] == "ran"]
    assert len(fits) == 130
    assert np.mean(fits) >= 0.95  # asked


PAIRS = {
    # setting that differs -> the run before and the run after, of one source
    "torchtune README: +chunked CE": ("m159", "m160"),
    "torchtune README: +optimizer in backward": ("m161", "m162"),
    "torchtune README: +8-bit AdamW": ("m163", "m164"),
    "torchtune README: LoRA": ("m164", "m165"),
    "torchtune README: QLoRA instead of LoRA": ("m165", "m166"),
    "prime-rl: LoRA over fp32 weights, Qwen3-30B-A3B": ("m061", "m064"),
    "prime-rl: RL with a chunked head instead of SFT, Qwen3-0.6B": ("m058", "m045"),
    "prime-rl: RL with a chunked head instead of SFT, Qwen3-4B": ("m088", "m072"),
    "prime-rl: FSDP2 over eight chips instead of one, Qwen3-4B": ("m079", "m076"),
}


@pytest.mark.parametrize("step", PAIRS)
def test_predictions_fall_where_a_source_measured_less(rows, step):
    (before, plain), (after, stated) = (rows[each] for each in PAIRS[step])
    assert words_of(before) != words_of(after) or before["num_gpus"] != after["num_gpus"]
    assert float(after["measured_value"]) < float(before["measured_value"])
    assert stated["predicted"] < plain["predicted"]
    assert abs(stated["error"]) <= 0.25
    assert abs(plain["error"]) <= 0.25


@pytest.mark.parametrize(
    ("word", "source", "least"),
    [
        ("moments=bf16", "torchtune", 1.5),
        ("moments=8bit", "", 5.0),
        ("master=none", "torchtune", 2.0),
        ("weights=fp32", "", 1.1),
        ("loss=chunked", "", 5.0),
        ("accumulation=whole", "", 1.5),
        ("gradients=freed", "", 1.5),
        ("frozen=nf4", "", 3.0),
        ("fsdp2=yes", "prime-rl", 1.1),
    ],
)
def test_predictions_are_worse_without_a_word(rows, word, source, least):
    """Median error of the rows that state a word, with and without it; `least`: the factor between them.

    `moments=bf16` and `master=none` are evaluated on torchtune alone. Predictions for the other sources that state them are low
    by a median of 5 (prime-rl) to 12 % (KempnerForge, Megatron-Bridge), so that a wider format comes nearer there.
    """
    stated, dropped = _without(rows, word, source)
    assert np.median(dropped) > least * np.median(stated)


def test_gradients_in_16_bit_explain_a_single_chip(rows):
    """KempnerForge, Llama 3 8B on one H200 in pure bf16: no reduction, and so no fp32."""
    row, answer = rows["m111"]
    words = words_of(row).replace("gradients=bf16", "gradients=fp32")
    ((_, wide),) = scored([row | {"memory_formats": words}])
    assert abs(answer["error"]) < 0.1 < wide["error"]


def test_state_on_the_host(rows):
    """torchtune: all of Llama 3 70B trains in 14.9 GB of eight A100; 100 GB more are needed without the host."""
    row, answer = rows["m168"]
    ((_, here),) = scored([row | {"offloaded_optimizer": "0", "offloaded_weights": "0"}])
    assert here["predicted"] > 100.0 + answer["predicted"]


def test_a_reserve_excludes_a_run_that_fragments(rows):
    """Megatron-Bridge: Llama 3 70B ran out of 80 GB with 59.6 GB allocated, by fragmentation."""
    row, answer = rows["m016"]
    assert row["verdict"].startswith("OOM")
    assert answer["fits"]
    ((_, reserved),) = scored([row | {"memory_formats": f"{words_of(row)},reserve=20GB"}])
    assert not reserved["fits"]


@pytest.fixture(scope="module")
def printed():
    """Predicted over measured peak of runs that print it, by id."""
    found = scored(peaks(Path(__file__).parent / "long_and_large_2026.csv"))
    return {row["id"]: answer["predicted"] / float(row["measured_value"]) for row, answer in found}


def test_chunked_losses_of_large_and_long_batches(printed):
    """65,536 tokens a chip of Qwen3-30B-A3B, and a sequence of a million of Qwen3-8B: 3.2 and 6.3 times too much before.

    The second has the software of 2026, which reduces gradients in 16 bits: 16 % too little is predicted.
    """
    assert printed["fresh3-0017"] == pytest.approx(1.0, abs=0.15)
    assert printed["fresh3-0029"] == pytest.approx(0.84, abs=0.05)


def test_long_sequences_of_wider_models_need_less_than_predicted(printed):
    """TRL's 30B and 32B on a million tokens: far from explained. Words for MLPs in tiles are missing."""
    assert 2.0 < printed["fresh3-0031"] < printed["fresh3-0030"] < 3.1


def test_deepseek_v3_on_1024_h100():
    """It ran in 16-bit moments and gradients: 6 % above 80 GiB are predicted. Rebuilt up-projections are not counted."""
    rows = {row["id"]: row for row in validate(Path(__file__).parent / "long_and_large_2026.csv")["rows"]}
    assert 80.0 * 2**30 < rows["fresh3-0007"]["memory_per_chip_bytes"] < 1.15 * 80.0 * 2**30


@pytest.mark.slow
def test_the_committed_table_is_the_one_of_today():
    committed = Path("results/reference/memory_2026.txt").read_text(encoding="utf-8")
    assert committed == "\n".join([*score_lines(TABLE), ""])
