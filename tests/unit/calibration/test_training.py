"""Columns of a training row to stack, plan and workload, and a step as the quantity that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.measured.stacks import habits, training_stack
from hwopt.calibration.validation import join as joining
from hwopt.calibration.validation import training
from hwopt.calibration.validation.join import join
from hwopt.calibration.validation.machines import constants, software
from hwopt.calibration.validation.training import share_that_fits, steps, value
from hwopt.catalog import software_family
from hwopt.quantity import quantities
from hwopt.solver.jit_options import quick_jit
from hwopt.stack import Stack
from tests.cases import random_case
from tests.cases import replace as change
from tests.evidence_cases import RUN, row_of

STACK = catalog.stack("nemo-2025")


def changes(row: MeasuredRun, stack=STACK) -> dict[str, float]:
    """Fields of the stack that the row changes, and their new values."""
    after = software(stack, row, "nemo-2025")
    values = {name: (float(getattr(stack, name)), float(getattr(after, name))) for name in quantities(Stack)}
    return {name: new for name, (old, new) in values.items() if new != old}


def test_a_row_that_states_no_setting_changes_nothing():
    assert changes(MeasuredRun()) == {}
    assert changes(row_of(notes="NeMo container 26.02.01; pretrain", precision="fp8", recompute="full")) == {}


@pytest.mark.parametrize(
    ("columns", "before", "expected"),
    [
        ({"attention_kernel": "fused"}, {"attention_scores_stored": 1.0}, {"attention_scores_stored": 0}),
        ({"attention_kernel": "unfused"}, {"attention_scores_stored": 0.0}, {"attention_scores_stored": 1}),
        ({"tp_overlap": 0.0}, {"tp_overlap": 0.7}, {"tp_overlap": 0}),
        ({"pp_overlap": 0.0}, {"pp_overlap": 0.7}, {"pp_overlap": 0}),
        ({"ep_overlap": 0.8}, {}, {"ep_overlap": 0.8}),
        ({"deduplicated_dispatch": True}, {}, {"dispatch_deduplicated": 1}),
        ({"host_graphs": "step"}, {}, {"host_layer_s": 5e-5, "host_moe_layer_s": 5e-5}),
        ({"host_graphs": "none"}, {}, {"host_layer_s": 1.5e-3, "host_moe_layer_s": 3e-3}),
        ({"host_graphs": "none"}, {"host_layer_s": 2e-3, "host_moe_layer_s": 5e-3}, {}),
        ({"recompute_norms": True}, {"residual_tensors": 4.0}, {"residual_tensors": 2}),
        ({"recompute_activation": True}, {"product_kept": 1.0}, {"product_kept": 0}),
        ({"logit_bytes": 4.0}, {"logit_bytes": 14.0}, {"logit_bytes": 4}),
        ({"number_format": "fp16"}, {"gradient_bytes": 4.0}, {"gradient_bytes": 2.0}),
        (
            {"gradient_bytes": 2.0},
            {"gradient_bytes": 4.0, "gradient_copy_bytes": 2.0},
            {"gradient_bytes": 2.0, "gradient_copy_bytes": 0.0},
        ),
        ({"gathered_inputs": 0.8}, {"gathered_inputs_kept": 0.0}, {"gathered_inputs_kept": 0.8}),
        ({"number_format": "bf16"}, {"gradient_bytes": 4.0}, {}),
    ],
)
def test_a_setting_replaces_the_stacks(columns, before, expected):
    stack = replace(STACK, **{name: np.float64(number) for name, number in before.items()})
    assert changes(MeasuredRun(**columns), stack) == expected


def test_a_graph_of_parts_halves_the_hosts_time_and_narrow_scales_cost_casts():
    host = {name: 0.5 * float(getattr(STACK, name)) for name in ("host_layer_s", "host_moe_layer_s")}
    assert changes(MeasuredRun(host_graphs="parts")) == pytest.approx(host)
    for scaling in ("row", "block"):
        assert changes(MeasuredRun(scaling=scaling)) == pytest.approx({"cast_passes": 2.5 * STACK.cast_passes})
    assert changes(MeasuredRun(scaling="tensor")) == {}


def _plan(**columns):
    row = replace(
        RUN,
        model_name="llama2-7b",
        gpu="H100-SXM-80GB",
        num_gpus=64,
        dp=64,
        tp=1,
        pp=1,
        global_batch_sequences=64.0,
        **columns,
    )
    return join(row, training.KIND, constants(catalog.calibration(catalog.LITERATURE)))


@pytest.mark.parametrize(
    ("columns", "flags", "groups"),
    [
        ({"zero": 1}, (1, 0, 0), 1),
        ({"zero": 1, "zero_ranks": 8}, (1, 0, 0), 8),
        ({"zero": 2}, (1, 1, 0), 1),
        ({"zero": 3, "zero_ranks": 16}, (1, 1, 1), 4),
        ({"zero": 3, "zero_ranks": 4096}, (1, 1, 1), 1),
        ({"zero": 0}, (0, 0, 0), 1),
        ({"stack": "torch-fsdp-2023"}, (1, 1, 1), 1),
    ],
)
def test_sharded_states(columns, flags, groups):
    case = _plan(**columns)
    plan = case.plan
    assert (plan.optimizer_sharded, plan.gradients_sharded, plan.weights_sharded) == flags
    assert plan.shard_groups == groups
    assert ("zero_stage" in case.assumed) == ("zero" not in columns)


@pytest.mark.parametrize(
    ("columns", "shares", "may_be_full"),
    [
        ({"recompute_layers": 0.4, "stack": "torchtitan-2024"}, (0.4, 0), False),
        ({"recompute_layers": 0.0, "recompute_attention": 1.0}, (0, 1), False),
        ({"stack": "megatron-2021"}, (1, 0), False),
        ({"stack": "nemo-2025"}, (0, 0), False),
        ({"stack": "nemo-2025", "zero": 3}, (0, 0), True),
        ({"stack": "torchtitan-2024"}, (0, 0), True),
    ],
)
def test_what_is_recomputed(columns, shares, may_be_full):
    case = _plan(**columns)
    assert (case.plan.recompute_full, case.plan.recompute_attention) == shares
    assert case.full_if_too_big is may_be_full
    assert ("recompute" in case.assumed) == ("recompute_layers" not in columns)


def test_blank_columns_are_filled_and_said():
    case = _plan()
    assert {"precision", "stack", "zero_stage", "recompute"} <= set(case.assumed)
    assert case.stack == "nemo-2024" and case.plan.bubble_fraction == 1.0 and case.workload.causal_fraction == 0.5
    told = _plan(
        number_format="nvfp4", bubble_share=0.25, document_tokens=100.0, trainable_fraction=0.01, scale_out_gbit_per_s=80.0,
        offloaded_activations=0.5, assumed=("stack",), stack="nemo-2025",
    )  # fmt: skip
    assert told.workload.gemm_precision[-1] == 1.0 and told.workload.causal_fraction == pytest.approx(0.05)
    assert (told.plan.bubble_fraction, told.plan.activations_offloaded) == (0.25, 0.5)
    assert told.workload.trainable_fraction == 0.01
    assert told.cluster.network.bandwidth_bytes_per_s[1] == pytest.approx(1e10)
    assert "stack" in told.assumed and "precision" not in told.assumed


@pytest.mark.parametrize(
    ("architecture", "year", "stack"),
    [
        ("hopper", None, "nemo-2024"),
        ("tpu", None, "jax-maxtext-tpu"),
        ("cdna3", None, "rocm-primus-2025"),
        ("trainium", 2023, "neuron"),
        ("ampere", 2021, "megatron-2021"),
        ("blackwell", 2024, "nemo-2025"),
        ("gaudi", None, "optimum-habana"),
        ("unheard-of", None, "nemo-2024"),
    ],
)
def test_a_chip_and_a_year_have_their_usual_stack(architecture, year, stack):
    assert training_stack(architecture, year) == stack


def test_every_stack_has_habits_and_those_that_train_families():
    assert {name: habits(name).zero for name in ("megatron-2021", "nemo-2025", "torchtitan-2024")} == {
        "megatron-2021": 0, "nemo-2025": 1, "torchtitan-2024": 3,
    }  # fmt: skip
    assert all(habits(name).recompute in ("none", "full", "memory") for name in catalog.names("stacks"))
    assert habits("neuron-serving").pads_heads and not habits("tensorrt-llm-2025").pads_heads
    families = {name: software_family(name) for name in catalog.names("stacks")}
    assert families["jax-gpu"] == "JAX" and families["zero-bubble"] == "2021 stacks" and families["neuron"] == "others"
    assert software_family("my own") == "others"


STEP = {
    "step_s": 2.0, "memory_bytes": 1e10, "memory_reserve_bytes": 1e9, "context_bytes": 6e8, "last_stage_bytes": 2e9,
    "products": 600e12, "attention_full": 60e12,
    "repeated": 220e12, "peak_flops_per_s": 100e12,
}  # fmt: skip


def _measured(metric, measured, notes="", **columns):
    row = replace(RUN, measured_metric=metric, measured_value=measured, **columns)
    words = row_of(notes=notes, measured_metric=metric)
    row = replace(row, flops_attention=words.flops_attention, flops_recompute=words.flops_recompute)
    return value(row, STEP)


@pytest.mark.parametrize(
    ("metric", "measured", "notes", "predicted"),
    [
        ("iter_time_s", 2.0, "", 2.0),
        ("step_time_s", 2.0, "", 2.0),
        ("tokens_per_s_per_gpu", 900.0, "", 16 * 1000 / 2.0 / 8),
        ("tokens_per_s", 9e3, "", 16 * 1000 / 2.0),
        ("samples_per_s", 9.0, "", 8.0),
        ("tflops_per_gpu", 40.0, "full attention", 660 / 16),
        ("tflops_per_gpu", 40.0, "causal", 630 / 16),
        ("tflops_per_gpu", 40.0, "hardware FLOPs", 880 / 16),
        ("mfu", 40.0, "full attention", 100 * 660 / 16 / 100),
        ("mfu", 0.4, "full attention", 660 / 16 / 100),
        ("hfu", 0.4, "full attention", 880 / 16 / 100),
        ("peak_memory_per_gpu", 10.0, "", 1e10 / 2**30),
        ("max_memory_allocated", 10.0, "", 9e9 / 2**30),
        ("max_memory_reserved", 10.0, "", 9.4e9 / 2**30),
        ("first_stage_memory_reserved", 10.0, "", 7.4e9 / 2**30),
    ],
)
def test_a_step_becomes_the_measured_quantity(metric, measured, notes, predicted):
    assert _measured(metric, measured, notes) == pytest.approx(predicted)


def test_what_a_rate_counts_where_nobody_says():
    assert _measured("tflops_per_gpu", 40.0) == pytest.approx(660 / 16)
    assert _measured("tflops_per_gpu", 40.0, year=2025) == pytest.approx(630 / 16)


def test_an_mfu_is_divided_by_the_peak_that_the_source_states():
    assert _measured("mfu", 0.4, "full attention", mfu_peak_tflops=50.0) == pytest.approx(660 / 16 / 50)


# Recomputation that a row leaves open is the share of it that just fits.


@dataclass(frozen=True)
class Row:
    """What `steps` reads of a joined case."""

    workload: object
    cluster: object
    plan: object
    full_if_too_big: bool = True


@pytest.fixture(scope="module")
def row():
    """A dense run on eight chips that recomputes nothing."""
    workload, cluster, plan = random_case(np.random.default_rng(3), "dense")
    ones = dict.fromkeys(("pp", "cp", "ep", "expert_tp", "virtual_stages", "fullest_stage", "last_stage"), 1.0)
    plan = change(plan, **ones, tp=1.0, dp=8.0, micro_batch=1.0, shard_groups=1.0, recompute_full=0.0)
    plan = change(plan, recompute_attention=0.0)
    workload = change(workload, global_batch_sequences=64.0, sequence_length=4096.0)
    return Row(workload, change(cluster, chips=8.0), plan)


def with_capacity(row: Row, capacity: float) -> Row:
    return replace(row, cluster=change(row.cluster, chip__hbm_capacity_bytes=capacity))


def recomputing(row: Row, share: float) -> Row:
    return replace(row, plan=change(row.plan, recompute_full=share))


@pytest.fixture(scope="module")
def ends(row):
    """Memory with nothing recomputed, and with everything."""
    roomy = with_capacity(row, 1e18)
    nothing, everything = steps([roomy, recomputing(roomy, 1.0)])
    assert nothing["memory_bytes"] > 1.05 * everything["memory_bytes"]
    return nothing["memory_bytes"], everything["memory_bytes"]


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_the_share_that_fits(row, ends, part):
    """Memory falls linearly with the share, so that it fills the chip."""
    capacity = ends[0] + part * (ends[1] - ends[0])
    (answer,) = steps([with_capacity(row, capacity)])
    assert answer["recompute_full"] == pytest.approx(part, rel=1e-9)
    assert answer["memory_bytes"] == pytest.approx(capacity, rel=1e-9)


def test_more_than_fits_is_all_of_it(row, ends):
    (answer,) = steps([with_capacity(row, 0.9 * ends[1])])
    assert answer["recompute_full"] == 1.0 and answer["memory_bytes"] > answer["memory_capacity_bytes"]


def test_what_fits_repeats_nothing_and_what_is_stated_stays(row, ends):
    stated = replace(with_capacity(row, ends[1]), full_if_too_big=False)
    fits = with_capacity(row, ends[0])
    assert [answer["recompute_full"] for answer in steps([fits, stated])] == [0.0, 0.0]


def test_each_row_gets_its_own_share(row, ends):
    capacities = [ends[0] + part * (ends[1] - ends[0]) for part in (-0.1, 0.25, 0.75, 1.5)]
    answers = steps([with_capacity(row, capacity) for capacity in capacities])
    assert [answer["recompute_full"] for answer in answers] == pytest.approx([0.0, 0.25, 0.75, 1.0], rel=1e-9)
    times = [answer["step_s"] for answer in answers]
    assert times == sorted(times) and times[0] < times[1] < times[2] < times[3]


def test_where_recomputation_saves_nothing_all_of_it_runs(row):
    (answer,) = steps([with_capacity(row, 1e18)])
    short = answer | {"memory_bytes": 2.0, "memory_capacity_bytes": 1.0}
    assert share_that_fits(short, short) == 1.0


def test_many_rows_run_in_chunks(row, monkeypatch):
    """Chunks give what one call gives, and the model is traced once for all of them."""
    rows = [recomputing(with_capacity(row, 1e18), share) for share in np.linspace(0.0, 1.0, 7)]
    together = steps(rows)
    traces, sizes, real = [], [], joining.cached_trace

    def watched(*inputs):
        line = real(*inputs)
        traces.append(line)
        return lambda columns, count: sizes.append(count) or line(columns, count)

    joining._traced.cache_clear()
    monkeypatch.setattr(joining, "cached_trace", watched)
    monkeypatch.setattr(joining, "CHUNK", 3)
    assert steps(rows) == together
    joining._traced.cache_clear()
    assert len(traces) == 1 and sizes == [3, 3, 1]


def test_predictions_are_those_of_the_compiled_model(row):
    """NumPy's numbers are JAX's, to rounding."""
    cases = [recomputing(with_capacity(row, 1e18), share) for share in (0.0, 0.5)]
    inputs = joining.stacked([(case.workload, case.cluster, case.plan) for case in cases])
    with jax.enable_x64(True):
        compiled = quick_jit(jax.vmap(training._step))(*inputs)
    for name, values in compiled.items():
        np.testing.assert_allclose([each[name] for each in steps(cases)], values, rtol=1e-12, err_msg=name)
