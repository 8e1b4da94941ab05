"""Training measurements: workload, cluster and plan of a row, and prediction of its measured quantity."""

# Blanks are filled or the row is skipped before this point; the type checker cannot know that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt import catalog
from hwopt.calibration.measured.columns import ATTENTION, TRAINING, MeasuredRun
from hwopt.calibration.measured.stacks import habits, training_stack
from hwopt.calibration.validation.imputation import WeightedAlternative, impute, weights
from hwopt.calibration.validation.join import MeasuredCase, Prediction, WorkKind, evaluate, require
from hwopt.calibration.validation.machines import MeasuredMachine, Settings
from hwopt.calibration.validation.missing_settings import MOST, CompletedRow, completed_rows, usual_expert_tp
from hwopt.calibration.validation.plan_priors import possible_plans, states_no_plan
from hwopt.calibration.validation.skip import Skip, SkipReason
from hwopt.catalog import leaf
from hwopt.catalog.chips import slot
from hwopt.catalog.memory_formats import formats_of, memory_numbers, parse_memory
from hwopt.errors import suggest
from hwopt.hardware.cluster import Cluster
from hwopt.model.estimate import estimate
from hwopt.model.layers import work
from hwopt.model.numerics.maximum import several
from hwopt.model.report import TrainingReport
from hwopt.model.training.footprint import Footprint
from hwopt.plan import Plan, stage_layers, stage_layers_by_cost
from hwopt.types import PRECISIONS
from hwopt.units import to_si
from hwopt.workload.operators import Operators, most_chunks
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, attention_parameters, dense_mlp_parameters, mean_layer


def _unsupported(row: MeasuredRun) -> str:
    if row.measured_metric not in TRAINING:
        return f"'{row.measured_metric}': {suggest(row.measured_metric, TRAINING)}"
    return "" if row.phase.lower() in ("", "train", "training") else f"'{row.measured_metric}' {row.phase}"


def completed(row: MeasuredRun, assumed: list[str]) -> MeasuredRun:
    """Fill the blank parallel degrees and the blank micro-batch of a measured training run.

    A dp that is not stated follows from the chips and the other degrees. A cp or ep that is not stated becomes 1. A micro-batch
    that is not stated gets a usual size.

    A blank tp or pp becomes 1 where every chip is a replica, as does one without a column. Otherwise the row gets the possible plan
    with the smallest `tp x pp x cp`. That plan is only a placeholder: the prediction later averages over all possible plans.

    **Arguments:**

    - `row`: the measured run.
    - `assumed`: list to which the names of the filled settings are added.

    **Raises:** `Skip` if chips, sequence length or global batch are missing, or the degrees contradict each other.
    """
    require(row, "num_gpus", "seq_len", "global_batch_sequences")
    if states_no_plan(row):
        assumed += [name for name in ("tp", "pp", "cp", "ep", "dp") if getattr(row, name) is None]
        possible = possible_plans(row)
        if not possible:
            require(row, *(name for name in ("tp", "pp") if name in row.columns))
        row = possible[0][0]
    open_ = [name for name in ("tp", "pp", "cp", "ep") if getattr(row, name) is None]
    assumed += [*open_, *(["dp"] if row.dp is None and "dp" in row.columns else [])]
    row = replace(row, **dict.fromkeys(open_, 1))
    split = row.tp * row.pp * row.cp
    if row.dp is None and row.num_gpus % split:
        raise _inconsistent(f"tp x pp x cp = {split} does not divide {row.num_gpus} chips")
    dp = row.num_gpus // split if row.dp is None else row.dp
    if dp * split != row.num_gpus:
        raise _inconsistent(f"tp x pp x cp x dp = {dp * split} on {row.num_gpus} chips")
    ranks, experts = row.tp * row.cp * dp, row.moe_experts or 0
    if row.ep > 1 and ranks % row.ep:
        raise _inconsistent(f"ep = {row.ep} does not divide tp x cp x dp = {ranks}")
    if experts and row.expert_tp and ranks % (row.ep * row.expert_tp):
        raise _inconsistent(f"ep x expert_tp = {row.ep * row.expert_tp} does not divide tp x cp x dp = {ranks}")
    if experts and row.ep > experts:
        raise _inconsistent(f"ep = {row.ep} with {experts} experts")
    each = row.global_batch_sequences / dp
    micro_batch = row.micro_batch or _usual_micro_batch(each, row, assumed)
    if micro_batch > each * (1.0 + 1e-9):
        raise _inconsistent(f"micro-batch {micro_batch:g} above the replica's {each:g} sequences")
    return replace(row, dp=dp, micro_batch=micro_batch)


def _inconsistent(what: str) -> Skip:
    return Skip(SkipReason.INCONSISTENT_PLAN, what)


def _usual_micro_batch(each: float, row: MeasuredRun, assumed: list[str]) -> float:
    """Return the micro-batch, in sequences, to assume for a run that does not state one, and add it to `assumed`.

    With pipeline parallelism it is one sequence. Without it, it is the largest power of two that divides `each`, the sequences
    per replica, with at most 8,192 tokens per chip of the tensor-parallel group.
    """
    assumed.append("micro_batch")
    size = 1.0
    while row.pp == 1 and each % (2.0 * size) == 0 and 2.0 * size * row.seq_len / row.cp <= 8192.0 * row.tp:
        size *= 2.0
    return min(size, each)


def _inputs(
    row: MeasuredRun, shape: Any, accelerator: str, architecture: str, stack: str, assumed: list[str]
) -> tuple[TrainingRun, MeasuredMachine, Plan, bool]:
    if row.gpus_per_node is None:
        assumed.append("gpus_per_node")
    domain = float(row.gpus_per_node or catalog.record("chips", accelerator).si("scale_up_domain", 8.0))
    settings = Settings(*(getattr(row, name) for name in Settings._fields))
    operation = row.operation or catalog.BENCHMARK
    machine = MeasuredMachine(accelerator, architecture, domain, row.scale_out_gbit_per_s, stack, settings, operation)
    plan, full_if_too_big = _plan(row, shape, stack, assumed)
    workload = _workload(row, shape, assumed)
    metric = TRAINING[row.measured_metric]
    if metric.flops and row.flops_attention is None:
        assumed.append("flop_convention")
    if metric.memory:
        to_si(1.0, row.unit or metric.unit)  # rejects an unknown unit here, where the row's line is known
    return workload, machine, plan, full_if_too_big


_law = cache(catalog.loss_law)


def _workload(row: MeasuredRun, shape: Any, assumed: list[str]) -> TrainingRun:
    if row.number_format is None:
        assumed.append("precision")
    name = slot(row.number_format or "bf16")
    wide = name in ("fp32", "tf32")
    tokens = row.global_batch_sequences * row.seq_len
    stored = 4.0 if wide else 2.0
    kept = memory_numbers(parse_memory(row.memory_formats)) if row.memory_formats else {}
    return TrainingRun(
        model=shape,
        law=_law(),
        sequence_length=leaf(row.seq_len),
        global_batch_sequences=leaf(row.global_batch_sequences),
        tokens=leaf(tokens),
        unique_tokens=leaf(tokens),
        gemm_precision=leaf([float(entry == name) for entry in PRECISIONS]),
        weight_bytes=leaf(kept.get("weight_bytes", stored)),
        master_bytes=leaf(kept.get("master_bytes", 0.0 if wide else 4.0)),
        moment_bytes=leaf(kept.get("moment_bytes", 8.0)),
        formats=formats_of(kept),
        activation_bytes=leaf(stored),
        causal_fraction=leaf(0.5 * min((row.document_tokens or row.seq_len) / row.seq_len, 1.0)),
        trainable_fraction=leaf(1.0 if row.trainable_fraction is None else row.trainable_fraction),
        routing_imbalance=leaf(1.0),
        routing=catalog.routed(shape, {"tuning": row.tuning, "expert_routing": row.expert_routing}),
        checkpoint_interval_s=leaf(0.0),
        input_bytes_per_token=leaf(4.0),
    )


def _plan(row: MeasuredRun, shape: Any, stack: str, assumed: list[str]) -> tuple[Plan, bool]:
    """Return the plan, and whether full recomputation is used if memory is short."""
    habit, layers = habits(stack), int(shape.layers)
    # Interleaved schedules: one layer per chunk; embedding and head count as one layer each.
    usual = max((layers + 2) // row.pp, 1) if row.interleaved else 1
    vpp = 1 if row.pp == 1 else row.vpp or usual
    assumed += ["vpp"] if row.pp > 1 and row.vpp is None else []
    if row.pp * vpp > most_chunks(shape):
        raise _inconsistent(f"{row.pp} stages x {vpp} chunks for {layers} layers")
    if habit.stages == "cost" and vpp == 1 and isinstance(shape, Transformer):
        attention, mlp = (mean_layer(shape, of) for of in (attention_parameters, dense_mlp_parameters))
        head = float(shape.vocab * shape.hidden / (attention + mlp))
        fullest, last, filled = stage_layers_by_cost(layers, row.pp, head)
        if filled < row.pp:
            raise _inconsistent(f"{row.pp} stages, of which {row.pp - filled} have no block")
    else:
        fullest, last = stage_layers(layers, row.pp, vpp)
    open_ = {
        "zero_stage": row.zero,
        "recompute": row.recompute_layers,
        "seq_parallel": row.seq_parallel if row.tp > 1 else 0,
    }
    assumed += [name for name, cell in open_.items() if cell is None]
    zero = habit.zero if row.zero is None else row.zero
    again = float(habit.recompute == "full") if row.recompute_layers is None else row.recompute_layers
    parallel = habit.sequence_parallel if row.seq_parallel is None else row.seq_parallel
    values = {
        "tp": row.tp, "pp": row.pp, "dp": row.dp, "cp": row.cp, "ep": row.ep,
        "expert_tp": _expert_tp(row, shape, assumed),
        "virtual_stages": vpp, "micro_batch": row.micro_batch, "fullest_stage": fullest, "last_stage": last,
        "sequence_parallel": float(parallel and row.tp > 1),
        "optimizer_sharded": zero >= 1, "gradients_sharded": zero >= 2, "weights_sharded": zero >= 3,
        "shard_groups": max(row.dp * row.cp / (row.zero_ranks or row.dp * row.cp), 1.0),
        "recompute_full": again, "recompute_attention": row.recompute_attention or 0.0,
        "bubble_fraction": 1.0 if row.bubble_share is None else row.bubble_share,
        "weights_offloaded": row.offloaded_weights or 0.0, "optimizer_offloaded": row.offloaded_optimizer or 0.0,
        "local_steps": 1.0,
        "activations_offloaded": row.offloaded_activations or 0.0,
    }  # fmt: skip
    # Users that shard weights to save memory have enabled recomputation before.
    may_be_full = row.recompute_layers is None and (habit.recompute == "memory" or zero >= 3)
    return Plan(**{key: leaf(value) for key, value in values.items()}), may_be_full


def _expert_tp(row: MeasuredRun, shape: Any, assumed: list[str]) -> int:
    """Return the tensor-parallel degree inside experts."""
    if not float(shape.experts):
        return 1
    if row.expert_tp or row.tp == 1:
        return row.expert_tp or 1
    assumed.append("expert_tp")
    return usual_expert_tp(row)


# Predictions ---------------------------------------------------------------------------------------------------------

_FROZEN_ALLOWANCE = math.log(2.0)
"""Log ratio by which the model's memory may exceed the capacity for adapter training. The model counts frozen weights and the
inputs of their products in 16 bit, but 8 bit are enough for a forward pass."""

_FEWEST = 6
"""Minimum number of alternatives per candidate plan, for a row without a plan."""

Step = dict[str, float]
"""Results for one step: time, MFU, memory, and FLOPs over all chips by category, including the head."""


def _step(workload: TrainingRun, cluster: Cluster, plan: Plan) -> dict[str, Array]:
    report = estimate(workload, cluster, plan)
    tokens, shape = workload.global_batch_sequences * workload.sequence_length, workload.model
    if isinstance(shape, Operators):
        return _common(report, cluster, plan) | {
            "products": work.model_flops(shape, workload),
            "attention_full": jnp.zeros_like(report.step_time_s),  # included in `products`
            "repeated": work.repeated_flops(shape, workload, plan, cluster.stack),
        }
    matrix = work.matrix_parameters(shape)
    attention = work.layer_core_flops(workload, jnp.ones_like(workload.causal_fraction)) * shape.layers
    layers = matrix - shape.vocab * shape.hidden
    partly = (1.0 - plan.recompute_full) * plan.recompute_attention * attention
    return _common(report, cluster, plan) | {
        "products": tokens * 2.0 * (2.0 + workload.trainable_fraction) * matrix,
        "attention_full": tokens * 3.0 * attention,  # for the full score matrix
        "repeated": tokens * (plan.recompute_full * (2.0 * layers + attention) + partly),
    }


def _common(report: TrainingReport, cluster: Cluster, plan: Plan) -> dict[str, Array]:
    """Return the results of a step that are common to all models."""
    memory = cast(Footprint, report.memory)
    return {
        "step_s": report.step_time_s,
        "mfu": report.mfu,
        "memory_bytes": report.memory_per_chip_bytes,
        "memory_capacity_bytes": report.memory_capacity_bytes,
        "memory_reserve_bytes": memory.reserve_bytes,  # part of memory_bytes: context, buffers, fragmentation
        "context_bytes": cluster.stack.memory_reserve_bytes,  # part of the reserve: context and buffers
        "last_stage_bytes": several(plan.pp) * memory.logits_bytes,  # additional memory of the last stage
        "peak_flops_per_s": cluster.chip.peak_flops_per_s[PRECISIONS.index("bf16")],  # per chip
        "recompute_full": plan.recompute_full,
    }


def steps(cases: Sequence[MeasuredCase]) -> list[Step]:
    """Evaluate a step of each case.

    Some rows do not state recomputation, on stacks that use it if memory is short. They are evaluated without it first. If they
    do not fit, they are evaluated with full recomputation, then with the smallest share that fits.
    """
    inputs = [(case.workload, case.cluster, case.plan) for case in cases]
    answers = evaluate(_step, inputs)
    short = [i for i, case in enumerate(cases) if case.full_if_too_big and _missing(answers[i]) > 0.0]

    def again(shares: Sequence[float]) -> list[Step]:
        plans = [replace(cases[i].plan, recompute_full=leaf(share)) for i, share in zip(short, shares, strict=True)]
        return evaluate(_step, [(*inputs[i][:2], plan) for i, plan in zip(short, plans, strict=True)])

    everything = again([1.0] * len(short))
    shares = [share_that_fits(answers[i], most) for i, most in zip(short, everything, strict=True)]
    for i, answer in zip(short, again(shares), strict=True):
        answers[i] = answer
    return answers


def _missing(step: Step) -> float:
    return step["memory_bytes"] - step["memory_capacity_bytes"]


def share_that_fits(nothing: Step, everything: Step) -> float:
    """Return the share of layers to recompute, with memory linear between `nothing` and `everything` recomputed."""
    saved = nothing["memory_bytes"] - everything["memory_bytes"]
    return min(_missing(nothing) / saved, 1.0) if saved > 0.0 else 1.0


def flops_counted(row: MeasuredRun, step: Step) -> float:
    """Return the FLOPs of a step as the source counts them.

    The default is full attention until 2024 and causal attention since, as in NVIDIA's stacks.
    """
    attention = ATTENTION[row.flops_attention or ("causal" if (row.year or 2024) >= 2025 else "full")]
    repeated = step["repeated"] if row.flops_recompute or row.measured_metric == "hfu" else 0.0
    return step["products"] + attention * step["attention_full"] + repeated


def _unread(metric: str, step: Step) -> float:
    """Return the bytes of the fullest chip that a memory metric excludes.

    Allocated memory excludes context and fragmentation; reserved memory excludes the context. For the first stage, the
    additional memory of the last stage is excluded too.
    """
    if metric == "max_memory_allocated":
        return step["memory_reserve_bytes"]
    if metric == "max_memory_reserved":
        return step["context_bytes"]
    return step["context_bytes"] + step["last_stage_bytes"] if metric == "first_stage_memory_reserved" else 0.0


def value(row: MeasuredRun, step: Step) -> float:
    """Convert a predicted step to the measured quantity of a row, in its unit.

    If the source states no peak for its MFU, the chip's 16-bit peak is used.
    """
    metric, kind, sequences = row.measured_metric, TRAINING[row.measured_metric], row.global_batch_sequences
    tokens = sequences * row.seq_len
    rates = {"tokens_per_s_per_gpu": tokens / row.num_gpus, "tokens_per_s": tokens, "samples_per_s": sequences}
    if metric in rates:
        return rates[metric] / step["step_s"]
    if kind.memory:
        return (step["memory_bytes"] - _unread(metric, step)) / to_si(1.0, row.unit or kind.unit)
    if not kind.flops:
        return step["step_s"]
    rate = flops_counted(row, step) / step["step_s"] / row.num_gpus
    if metric == "tflops_per_gpu":
        return rate / 1e12
    fraction = rate / (row.mfu_peak_tflops * 1e12 if row.mfu_peak_tflops else step["peak_flops_per_s"])
    return 100.0 * fraction if row.measured_value > 1.5 else fraction


def _predict(cases: Sequence[MeasuredCase]) -> list[Prediction]:
    """Predict each case; for unstated settings, by the weighted median over the alternatives of the row."""
    parts = [tuple(each.case for each in case.alternatives) or (case,) for case in cases]
    answers = iter(steps([each for part in parts for each in part]))
    return [_mixed(case, part, [next(answers) for _ in part]) for case, part in zip(cases, parts, strict=True)]


def _mixed(case: MeasuredCase, parts: Sequence[MeasuredCase], answers: Sequence[Step]) -> Prediction:
    """Return the weighted median over alternatives; other results come from the representative alternative, rescaled to the
    median.
    """
    names = ("step_s", "mfu", "memory_bytes", "memory_capacity_bytes", "recompute_full")
    values = [value(part.row, step) for part, step in zip(parts, answers, strict=True)]
    if len(parts) == 1:
        return Prediction(values[0], **{name: answers[0][name] for name in names})
    allowed = _FROZEN_ALLOWANCE if (case.row.trainable_fraction or 1.0) < 1.0 else 0.0
    over = [math.log(step["memory_bytes"] / step["memory_capacity_bytes"]) - allowed for step in answers]
    weighed = [
        WeightedAlternative(
            each.opening.circumstances, each.opening.likely, each.opening.usual, step["step_s"], too_much
        )
        for each, step, too_much in zip(case.alternatives, answers, over, strict=True)
    ]
    of = impute(np.array(values), weights(weighed))
    ratio, metric = of.value / values[of.chosen], TRAINING[case.row.measured_metric]
    slower = 1.0 if metric.memory else 1.0 / ratio if metric.rate else ratio
    own = {name: answers[of.chosen][name] for name in names}
    own |= {"step_s": own["step_s"] * slower, "mfu": own["mfu"] / slower}
    own["memory_bytes"] *= ratio if metric.memory else 1.0
    return Prediction(of.value, **own, spread=of.spread, alternative=of.chosen)


def _openings(row: MeasuredRun, case: MeasuredCase) -> list[CompletedRow]:
    """Return the alternatives of a row; empty if no weighted setting is unstated."""
    if isinstance(case.workload.model, Operators):  # no statistics of common settings exist for operator tables
        return []
    if states_no_plan(row):
        own = possible_plans(row)
    else:
        own = [(replace(case.row, micro_batch=row.micro_batch), 1.0)]
    most = max(MOST // len(own), _FEWEST)
    found = [
        opening._replace(usual=opening.usual * weight)
        for each, weight in own
        for opening in completed_rows(each, case.accelerator, case.architecture, case.workload.model, most)
    ]
    return found if len(found) > 1 else []


KIND = WorkKind(
    unsupported=_unsupported,
    completed=completed,
    usual_stack=lambda row, accelerator, architecture: training_stack(architecture, row.year),
    inputs=_inputs,
    predict=_predict,
    openings=_openings,
)
