"""Peak memory against measured runs, and whether plans fit: those that ran, and those that did not."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from hwopt.calibration.validation import validate
from hwopt.plan import stage_layers_by_cost
from results.benchmarks import peak_memory
from tests.measured import RUNS, validated


def table(name):
    with (RUNS / name).open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def memory():
    return validated("memory.csv")


@pytest.fixture(scope="module")
def fits():
    """Row id -> whether the model says that it fits, of a table."""
    return lambda name: {
        row["id"]: row["fits"] for row in validated(name)["rows"] if row["status"] == "scored"
    }  # fmt: skip


def test_peak_memory(memory):
    assert memory["summary"]["skipped"] == 0
    assert memory["summary"]["cells"] == 8
    assert memory["summary"]["median_abs_error"] <= 0.025  # 2.0 %
    assert memory["summary"]["mean_abs_error"] <= 0.04  # 3.2 %
    assert np.median([abs(row["error"]) for row in memory["rows"]]) <= 0.02


def test_peak_memory_of_each_source(memory):
    for source, of in memory["summary"]["by_source"].items():
        assert of["median_abs_error"] <= 0.05, source


def test_what_the_allocator_has_handed_out(memory):
    """Megatron-LM without what the allocator adds: nothing but weights, states and activations."""
    rows = [row for row in memory["rows"] if row["metric"] == "max_memory_allocated"]
    assert len(rows) == 43
    assert max(abs(row["error"]) for row in rows) <= 0.05  # a slice of 405 B with 16 heads of keys on one chip
    assert np.median([abs(row["error"]) for row in rows]) <= 0.01


def test_what_the_allocator_holds(memory):
    """The same runs with what it reserves: no context of the driver's, and holes in proportion to activations."""
    rows = [row for row in memory["rows"] if row["metric"] == "max_memory_reserved"]
    assert len(rows) == 43
    assert max(abs(row["error"]) for row in rows) <= 0.065
    assert np.median([abs(row["error"]) for row in rows]) <= 0.03


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Rows of a made table, by id: what validation says, and the row's cells."""

    def of(rows):
        path = tmp_path_factory.mktemp("peaks") / "rows.csv"
        peak_memory.write(rows, path)
        cells = {row["id"]: row for row in rows}
        return [(row, cells[row["id"]]) for row in validate(path)["rows"]]

    return of


@pytest.fixture(scope="module")
def sweep(answers):
    """Nanotron's 1,620 plans that went through."""
    return answers(peak_memory.peaks(RUNS / "nanotron.csv"))


def _errors(rows, **cells):
    chosen = [row for row, own in rows if all(own[name] == value for name, value in cells.items())]
    return np.array([row["error"] for row in chosen if row["status"] == "scored"])


def test_nanotrons_sweep(sweep):
    """What the first rank reserved. Runs of more than one micro-batch and tensor group keep what they gather or gather again,
    and the source does not say which: five in six of the errors above 15 % are of tensor groups of 8 or more."""
    errors = _errors(sweep)
    assert len(sweep) == 1620 and len(errors) >= 1618
    assert np.median(np.abs(errors)) <= 0.06
    assert abs(np.median(errors)) <= 0.03
    assert np.percentile(np.abs(errors), 75) <= 0.15
    assert np.median(np.abs(_errors(sweep, tp="1"))) <= 0.055
    for pp, limit in (("1", 0.06), ("2", 0.06), ("4", 0.1), ("8", 0.08), ("16", 0.08)):
        assert np.median(np.abs(_errors(sweep, pp=pp))) <= limit, pp


def test_nanotrons_sweep_fits(sweep):
    assert np.mean([row["fits"] for row, _ in sweep if row["status"] == "scored"]) >= 0.98


def test_nanotrons_failures(answers, sweep):
    """Crashed or out of memory, the source does not say: 22 of the plans are among those that ran, and 55 of those said to fit
    need less than six tenths of the memory, most of micro-batches of one."""
    rows = answers(peak_memory.failures(RUNS / "nanotron.csv", RUNS / "nanotron_failed.csv"))
    assert len(rows) == 865
    cannot = [row["status"] == "skipped" for row, _ in rows]
    assert all(row["reason"].startswith("inconsistent plan") for row, _ in rows if row["status"] == "skipped")
    fits = [bool(row.get("fits")) for row, _ in rows]
    assert sum(cannot) == 170  # more stages than blocks
    assert np.mean(fits) <= 0.17  # asked: 0.15
    keeping = answers(
        peak_memory.failures(RUNS / "nanotron.csv", RUNS / "nanotron_failed.csv", pipelined_keep=True)
    )  # as a third of the pipelined runs did that went through
    fit_keeping = np.mean([bool(row.get("fits")) for row, _ in keeping])
    share = np.mean(fits) + peak_memory.PIPELINED_KEEP * (fit_keeping - np.mean(fits))
    assert 0.1 < fit_keeping < share < 0.15
    plan = lambda own: tuple(own[name] for name in ("model_name", "tp", "pp", "dp", "zero_stage", "micro_batch"))
    ran = {plan(own) for _, own in sweep}
    assert sum(plan(own) in ran for _, own in rows) == 22


def test_a_third_of_pipelined_runs_keep_what_they_gather(answers, sweep):
    """The share of gathered inputs that explains a reading lies at nothing or about four in seven, hardly between: a switch."""
    wide = lambda own: own["pp"] != "1" and int(own["tp"]) >= 8 and float(own["measured_value"]) > 8.0
    whole = answers([own | {"gathered_inputs": "1"} for _, own in sweep if wide(own)])
    none = {row["id"]: row for row, own in sweep if wide(own)}
    pairs = [(none[row["id"]], row) for row, _ in whole if row["status"] == "scored"]
    predicted = np.array([[a["predicted"], b["predicted"], a["measured"]] for a, b in pairs])
    told = predicted[:, 1] - predicted[:, 0] > 0.5
    kept = ((predicted[:, 2] - predicted[:, 0]) / (predicted[:, 1] - predicted[:, 0]))[told].clip(0.0, 1.0)
    keep = kept > 0.25
    assert len(kept) == 291
    assert np.mean(keep) == pytest.approx(peak_memory.PIPELINED_KEEP, abs=0.01)
    assert np.mean(kept[keep]) == pytest.approx(peak_memory.PIPELINED_KEPT, abs=0.01)
    assert np.mean(kept < 0.1) > 0.5


def test_blooms_trials(answers):
    """What nvidia-smi printed, in whole GB, of 90 plans; gradients in 16 bit until layers were rebalanced."""
    rows = answers(peak_memory.peaks(RUNS / "train_round2.csv"))
    errors = _errors(rows)
    assert len(errors) == 90
    assert np.median(np.abs(errors)) <= 0.04
    assert np.percentile(np.abs(errors), 95) <= 0.12
    assert np.mean([row["fits"] for row, _ in rows]) == 1.0


def test_blooms_trials_that_ran_out(answers):
    """Three plans that the same page prints as OOM, which no constant has seen: 112, 105 and 85 % of an A100."""
    rows = peak_memory.peaks(RUNS / "train_round2.csv")
    like = next(row for row in rows if row["gradient_bytes"] == "" and row["source"].endswith("prequel"))
    names = ("params_B", "layers", "hidden", "ffn", "heads", "dp", "tp", "pp", "micro_batch")
    plans = [
        ("184", "100", "12288", "49152", "64", "16", "4", "6", "2"),
        ("184", "100", "12288", "49152", "64", "16", "4", "6", "1"),
        ("206", "82", "14336", "57344", "128", "8", "4", "12", "2"),
    ]
    own = [like | dict(zip(names, plan, strict=True)) | {"id": f"oom-{plan[0]}-{plan[-1]}"} for plan in plans]
    shared = {"model_name": "BLOOM-proto", "kv_heads": "", "num_gpus": "384", "measured_value": "80"}
    shares = [row["predicted"] / 85.9 for row, _ in answers([row | shared for row in own])]
    assert min(shares[:2]) > 1.0
    assert shares[2] > 0.8


@pytest.mark.parametrize(
    ("layers", "head", "pp", "fullest", "last", "filled"),
    [
        (16, 4.0, 1, 16, 16, 1),
        (16, 4.0, 2, 11, 5, 2),  # ten layers are half of the cost, the eleventh exceeds it
        (16, 4.0, 4, 6, 0, 4),  # the head alone
        (16, 4.0, 8, 3, 0, 8),  # cast and loss alone
        (16, 4.0, 16, 2, 0, 15),  # no block is left for the sixteenth
        (32, 32 / 14.5, 4, 9, 6, 4),
    ],
)
def test_stages_by_cost(layers, head, pp, fullest, last, filled):
    most, end, used = stage_layers_by_cost(layers, pp, head)
    assert (round(most * layers / pp), round(end * layers / pp), used) == (fullest, last, filled)


def test_runs_that_were_run_fit(fits):
    answers = fits("train.csv")
    assert np.mean(list(answers.values())) >= 0.97


def test_plans_that_ran_out_of_memory_do_not_fit(fits):
    rows, answers = table("out_of_memory.csv"), fits("out_of_memory.csv")
    assert set(rows) == set(answers)
    assert all(row["reason"] and row["source"] for row in rows.values())
    assert np.mean(list(answers.values())) <= 0.02
    printed = [answers[name] for name, row in rows.items() if row["reason"].startswith("printed")]
    assert len(printed) == 3
    assert sum(printed) <= 1  # Llama 3 8B at 1,024 K tokens without context parallelism: 92 % of a B200
