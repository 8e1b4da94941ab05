"""What a row leaves open: its alternatives, and its prediction over them."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import pytest

from hwopt import catalog
from hwopt.calibration.holdout import in_test_set
from hwopt.calibration.intervals import Interval
from hwopt.calibration.measured.collected_text import stack
from hwopt.calibration.measured.stacks import likely_stacks, runs_on, training_stack
from hwopt.calibration.validation import training
from hwopt.calibration.validation.join import join
from hwopt.calibration.validation.machines import constants
from hwopt.calibration.validation.missing_settings import MOST
from hwopt.calibration.validation.plan_priors import states_no_plan
from tests.evidence_cases import RUN, inferred_columns
from tests.measured import RUNS, timed

STATED = replace(
    RUN, model_name="llama2-7b", gpu="H100-SXM-80GB", num_gpus=64, tp=2, pp=2, dp=16, cp=1, ep=1, seq_len=4096,
    global_batch_sequences=256.0, micro_batch=1.0, vpp=1, number_format="bf16", stack="nemo-2024", year=2024, zero=1,
    recompute_layers=0.0, seq_parallel=True,
)  # fmt: skip
BLANK = {
    "micro_batch": None, "vpp": None, "number_format": None, "stack": None, "zero": None, "recompute_layers": None,
    "seq_parallel": None,
}  # fmt: skip


def joined(**columns):
    row = replace(STATED, **columns)
    return join(row, training.KIND, constants(catalog.calibration(catalog.LITERATURE)))


def filled(case, name):
    """What alternatives put into a column."""
    return {getattr(each.opening.row, name) for each in case.alternatives}


def test_a_complete_row_stands_for_itself():
    case = joined()
    assert case.alternatives == ()
    (prediction,) = training.KIND.predict([case])
    assert prediction.spread == 0.0


@pytest.mark.parametrize("name", BLANK)
def test_a_stated_field_is_never_integrated(name):
    case = joined(**(BLANK | {name: getattr(STATED, name)}))
    assert 1 < len(case.alternatives) <= MOST
    assert filled(case, name) == {getattr(STATED, name)}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("micro_batch", {1.0, 2.0, 4.0, 8.0}),
        ("vpp", {1, 2, 4, 8, 16}),
        ("number_format", {"bf16", "fp8"}),
        ("stack", {"nemo-2024", "megatron-2023", "nemo-2025"}),
        ("zero", {0, 1, 3}),
        ("recompute_layers", {0.0, 1.0}),
        ("seq_parallel", {True, False}),
    ],
)
def test_an_open_field_has_what_people_use(name, values):
    case = joined(**{name: None})
    assert values <= filled(case, name)
    assert all(filled(case, other) == {getattr(STATED, other)} for other in BLANK if other != name)
    said = {"number_format": "precision", "zero": "zero_stage", "recompute_layers": "recompute"}.get(name, name)
    assert said in case.assumed


def test_micro_batches_are_even_parts_of_the_replicas_batch():
    assert filled(joined(micro_batch=None, global_batch_sequences=96.0), "micro_batch") == {1.0, 2.0, 3.0, 6.0}
    parts = filled(joined(micro_batch=None, pp=1, dp=32, global_batch_sequences=264.0), "micro_batch")
    assert parts == {8.25, 4.125, 2.0625, 1.03125}


def test_chunks_need_as_many_micro_batches_as_stages():
    case = joined(vpp=None, micro_batch=None)
    assert all(each.opening.row.vpp == 1 or 256 / 16 / each.opening.row.micro_batch >= 2 for each in case.alternatives)
    few = joined(vpp=None, global_batch_sequences=16.0)
    assert few.alternatives == () and few.plan.virtual_stages == 1.0


def test_experts_have_the_tensor_group_or_not():
    case = joined(model_name="mixtral-8x7b", ep=8, expert_tp=None)
    assert filled(case, "expert_tp") == {1, 2} and "expert_tp" in case.assumed
    assert joined(model_name="mixtral-8x7b", ep=8, expert_tp=1).alternatives == ()


def test_eight_bit_needs_a_chip_and_a_year():
    assert filled(joined(number_format=None, gpu="A100-SXM-80GB", vpp=None), "number_format") == {"bf16"}
    early = joined(number_format=None, stack="megatron-2021", year=2022, vpp=None)
    assert filled(early, "number_format") == {"bf16"}


@pytest.mark.parametrize(
    ("gpu", "allowed"),
    [
        ("TPU-v5p", {"jax-maxtext-tpu"}),
        ("Trainium2", {"neuron"}),
        ("Gaudi2", {"optimum-habana"}),
        ("MI300X", {"rocm-primus-2025", "torch-fsdp-2023", "torchtitan-2024", "torchtitan-eager", "jax-gpu"}),
    ],
)
@pytest.mark.parametrize("zero", [1, 3])
def test_a_chip_never_gets_another_makers_software(gpu, allowed, zero):
    case = joined(stack=None, gpu=gpu, zero=zero, vpp=None, recompute_layers=None)
    assert {each.case.stack for each in case.alternatives} <= allowed
    assert case.stack in allowed


def test_a_tpu_whose_states_are_sharded_is_not_run_by_pytorch():
    cells = {"source": "my own", "zero_stage": "fsdp", "notes": "torch-like sharding"}
    assert stack(cells, "tpu") == ("", False)
    assert stack(cells, "hopper") == ("torchtitan-2024", True)
    assert stack({"source": "MaxText", "zero_stage": "fsdp"}, "tpu") == ("jax-maxtext-tpu", False)
    assert stack({"framework": "NeMo"}, "trainium") == ("", False)


def test_every_family_of_chips_has_software_that_runs_on_it():
    for name in catalog.names("chips"):
        family = str(catalog.record("chips", name).text["architecture"])
        for year in (None, 2021, 2023, 2025):
            weights = likely_stacks(family, year)
            assert all(runs_on(each, family) for each in weights)
            assert sum(weights.values()) == pytest.approx(1.0)
            assert max(weights, key=weights.__getitem__) == training_stack(family, year)
    assert not runs_on("torchtitan-2024", "tpu") and runs_on("torchtitan-2024", "hopper") and runs_on("nemo-2025", "")


def test_a_guessed_stack_is_the_likeliest_of_several():
    case = joined(stack="torch-fsdp-2023", assumed=("stack",), zero=3, vpp=None)
    likely = {each.case.stack: each.opening.likely for each in case.alternatives}
    assert max(likely, key=likely.__getitem__) == "torch-fsdp-2023" and len(likely) > 1


def test_a_guessed_format_is_weighed_against_16_bit():
    case = joined(number_format="fp8", assumed=("precision",))
    likely = {each.opening.row.number_format: each.opening.likely for each in case.alternatives}
    assert likely["fp8"] > likely["bf16"] > 0.0 and "precision" in case.assumed


def test_mlperf_multiplies_in_eight_bit_where_the_chip_can():
    of = lambda gpu, source: inferred_columns(source=source, gpu=gpu)
    hopper = of("H100-SXM-80GB", "MLPerf Training v4.0")
    assert hopper["number_format"] == "fp8" and "precision" in hopper["assumed"]
    assert "number_format" not in of("A100-SXM-80GB", "MLPerf Training v2.1")
    assert "number_format" not in of("H100-SXM-80GB", "my own")
    stated = inferred_columns(source="MLPerf Training v4.0", gpu="H100-SXM-80GB", precision="bf16")
    assert stated["number_format"] == "bf16" and "assumed" not in stated


NO_PLAN = {"tp": None, "pp": None, "dp": None, "cp": None, "ep": None, "columns": frozenset({"tp", "pp", "dp"})}


def test_a_row_without_a_plan_is_weighed_over_those_that_divide_it():
    case = joined(**NO_PLAN)
    assert {"tp", "pp", "dp"} <= set(case.assumed)
    for each in case.alternatives:
        row = each.opening.row
        assert row.tp * row.pp * row.cp * row.dp == 64 and 256 % row.dp == 0
    assert filled(case, "tp") == {1, 2, 4, 8} and {1, 2, 4} <= filled(case, "pp") and filled(case, "cp") == {1}
    (of,) = training.KIND.predict([case])
    assert of.memory_bytes <= of.memory_capacity_bytes and of.spread > 0.0
    assert filled(joined(**(NO_PLAN | {"tp": 4})), "tp") == {4}


def test_a_plan_that_is_open_does_not_make_a_row_complete():
    case = joined(**NO_PLAN)
    assert not case.row.config_complete
    assert states_no_plan(replace(STATED, **NO_PLAN)) and not states_no_plan(STATED)
    assert not states_no_plan(replace(STATED, **(NO_PLAN | {"dp": 64})))  # as many replicas as chips


def test_predictions_move_with_what_is_open():
    cases = [joined(), joined(recompute_layers=1.0), joined(recompute_layers=None)]
    none, full, between = training.KIND.predict(cases)
    assert none.step_s <= between.step_s < full.step_s
    assert between.spread > 0.0 and between.alternative < len(cases[2].alternatives)


def test_what_stands_for_a_row_has_the_rows_pace():
    """A step's time and its value keep the ratio that the alternative has, so that fits see the measured time of its plan."""
    case = joined(stack=None, measured_metric="tokens_per_s_per_gpu", measured_value=1e4)
    (of,) = training.KIND.predict([case])
    assert of.value == pytest.approx(256 * 4096 / 64 / of.step_s)


def test_intervals_hold_the_spread():
    assert Interval(0.3, 0.1).widened(0.0) == Interval(0.3, 0.1)
    wider = Interval(0.3, 0.1).widened(0.4)
    assert wider.time == pytest.approx(math.hypot(0.3, 1.2816 * 0.4), rel=1e-4) and wider.memory > 0.5


@pytest.fixture(scope="module")
def second_round():
    result, seconds = timed("train_round2.csv")
    return result["rows"], seconds


def table():
    with (RUNS / "train_round2.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_without_a_micro_batch(second_round):
    """OPT-175B: one sequence at a time, gathering 175 B weights for each, would be five times as slow."""
    ((row, cells),) = [
        pair for pair in zip(second_round[0], table(), strict=True) if pair[1]["model_name"] == "OPT-175B"
    ]
    assert not in_test_set(cells["source"]) and not cells["micro_batch"]
    assert {"micro_batch", "stack"} <= set(row["assumed"]) and row["spread"] > 0.1
    assert 1.0 / 1.5 <= row["predicted"] / row["measured"] <= 1.5


def test_rows_with_nothing_open_have_no_spread(second_round):
    weighed = {"micro_batch", "vpp", "recompute", "precision", "zero_stage", "seq_parallel", "expert_tp", "stack"}
    scored = [row for row in second_round[0] if row["status"] == "scored"]
    assert all(row["spread"] == 0.0 for row in scored if not weighed & set(row["assumed"]))
    assert sum(row["spread"] > 0.0 for row in scored) > 100


def test_alternatives_are_predicted_together(second_round):
    assert second_round[1] < 60.0  # 8 on two idle cores of 2026
