"""A row joined with the catalogue: workload, cluster and plan, and what had to be assumed."""

# Rows that come this far have their blanks filled or were skipped; the checker cannot see that.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from hwopt import catalog
from hwopt.evidence.validation import models, sharding, stacks
from hwopt.evidence.validation.conventions import METRICS
from hwopt.evidence.validation.declared import declared, offloaded_activations
from hwopt.evidence.validation.reasons import Reason, Skip
from hwopt.evidence.validation.rows import MeasuredRun
from hwopt.hardware.cluster import Cluster
from hwopt.plan import Plan, stage_layers
from hwopt.types import PRECISIONS
from hwopt.workload.training import TrainingRun


@dataclass(frozen=True)
class Case:
    """One row, ready for the model."""

    row: MeasuredRun
    workload: TrainingRun
    cluster: Cluster
    plan: Plan
    accelerator: str  # catalogue slug
    architecture: str  # of the accelerator
    stack: str
    assumed: tuple[str, ...]
    full_if_too_big: bool  # recomputation not stated and the framework's users turn it on when memory is short


def join(row: MeasuredRun) -> Case:
    """The inputs of `estimate` for one row.

    **Raises:** `Skip` with one of the closed list of reasons.
    """
    _check_measurement(row)
    assumed: list[str] = []
    accelerator = models.accelerator(row.gpu)
    if accelerator is None:
        raise Skip(Reason.UNKNOWN_ACCELERATOR, f"'{row.gpu}'")
    record = catalog.record("chips", accelerator)
    architecture = str(record.text.get("architecture", ""))
    if "unsupported" in record.text:
        raise Skip(Reason.UNKNOWN_ACCELERATOR, f"'{row.gpu}' has no model yet")
    shape = models.shape(row, assumed)
    row = _completed(row, assumed)
    stack, guessed = stacks.stack(row, architecture)
    if guessed:
        assumed.append("stack")
    domain = float(row.gpus_per_node or _default_domain(accelerator, assumed))
    cluster = _cluster(accelerator, domain, _links(row, domain), stack, row.num_gpus)
    cluster = replace(cluster, stack=declared(cluster.stack, row))
    plan, may_be_full = _plan(row, shape, stack, cluster, domain, assumed)
    return Case(
        row,
        _workload(row, shape, assumed),
        cluster,
        plan,
        accelerator,
        architecture,
        stack,
        tuple(dict.fromkeys(assumed)),
        may_be_full,
    )


def _check_measurement(row: MeasuredRun) -> None:
    if row.quality.upper().startswith("C"):
        raise Skip(Reason.HEADLINE)
    if row.measured_value is None:
        raise Skip(Reason.NO_MEASUREMENT)
    if row.measured_metric not in METRICS or row.phase.lower() not in ("", "train", "training"):
        raise Skip(Reason.UNSUPPORTED_METRIC, f"'{row.measured_metric}' {row.phase}".strip())


def _completed(row: MeasuredRun, assumed: list[str]) -> MeasuredRun:
    """The row with every degree and batch filled, or `Skip`.

    A column that the file lacks was not used (degree 1); a blank cell is an open question, answered where degrees,
    chips and batch leave one answer.
    """
    for name in ("num_gpus", "seq_len", "global_batch_sequences"):
        if getattr(row, name) is None:
            raise Skip(Reason.INCOMPLETE_PLAN, f"{name} not stated")
    filled: dict[str, float | int] = {}
    for name in ("tp", "pp", "cp", "ep"):
        if getattr(row, name) is None:
            if name in ("tp", "pp") and name in row.columns and row.num_gpus > 1 and row.dp != row.num_gpus:
                raise Skip(Reason.INCOMPLETE_PLAN, f"{name} not stated")
            filled[name] = 1
            assumed.append(name)
    row = replace(row, **filled)
    split = row.tp * row.pp * row.cp
    dp = row.dp
    if dp is None:
        if row.num_gpus % split:
            raise Skip(Reason.INCONSISTENT_PLAN, f"tp x pp x cp = {split} does not divide {row.num_gpus} chips")
        dp = row.num_gpus // split
        if "dp" in row.columns:
            assumed.append("dp")
    if dp * split != row.num_gpus:
        raise Skip(Reason.INCONSISTENT_PLAN, f"tp x pp x cp x dp = {dp * split} on {row.num_gpus} chips")
    experts = row.moe_experts or 0
    if row.ep > 1 and (row.tp * row.cp * dp) % row.ep:
        raise Skip(Reason.INCONSISTENT_PLAN, f"ep = {row.ep} does not divide tp x cp x dp = {row.tp * row.cp * dp}")
    if experts and row.expert_tp and (row.tp * row.cp * dp) % (row.ep * row.expert_tp):
        split = f"ep x expert_tp = {row.ep * row.expert_tp}"
        raise Skip(Reason.INCONSISTENT_PLAN, f"{split} does not divide tp x cp x dp = {row.tp * row.cp * dp}")
    if experts and row.ep > experts:
        raise Skip(Reason.INCONSISTENT_PLAN, f"ep = {row.ep} with {experts} experts")
    each = row.global_batch_sequences / dp
    stated = None if re.search(r"micro-?batch size not stated", row.notes, re.I) else row.micro_batch
    micro_batch = stated or _default_micro_batch(each, row, assumed)
    if micro_batch > each * (1.0 + 1e-9):
        raise Skip(Reason.INCONSISTENT_PLAN, f"micro-batch {micro_batch:g} above the replica's {each:g} sequences")
    return replace(row, dp=dp, micro_batch=micro_batch)


def _default_micro_batch(each: float, row: MeasuredRun, assumed: list[str]) -> float:
    """One sequence in a pipeline; without one, the largest power of two within 8,192 tokens a chip of the tensor group."""
    assumed.append("micro_batch")
    size = 1.0
    while row.pp == 1 and each % (2.0 * size) == 0 and 2.0 * size * row.seq_len / row.cp <= 8192.0 * row.tp:
        size *= 2.0
    return min(size, each)


def _default_domain(accelerator: str, assumed: list[str]) -> float:
    assumed.append("gpus_per_node")
    return catalog.record("chips", accelerator).si("scale_up_domain", 8.0)


def _links(row: MeasuredRun, domain: float) -> float | None:
    """Scale-out bytes/s a chip that the notes state."""
    gbit = sharding.links_gbit_per_s(row.notes, int(min(domain, 8.0)))
    return gbit * 1e9 / 8.0 if gbit else None


@cache
def _parts(accelerator: str, domain: float, links: float | None, stack: str) -> Cluster:
    return catalog.cluster(
        accelerator, 8, domain=domain, stack=stack, scale_out_bytes_per_s=links, constants=catalog.LITERATURE
    )


def _cluster(accelerator: str, domain: float, links: float | None, stack: str, chips: int) -> Cluster:
    return replace(_parts(accelerator, domain, links, stack), chips=np.float64(chips))


_PACKED_DOCUMENT_TOKENS = 700.0
"""Mean length of a document in packed fine-tuning sequences (assumption; 300 to 1,500: questions with their passage and
answer, instructions with their reply)."""


def _met_within_documents(row: MeasuredRun) -> float:
    """Share of a sequence that a token's own document fills: attention stays inside documents packed for fine-tuning."""
    packed = re.search(r"packed sequences", row.notes, re.I) and models.is_fine_tuning(row)
    return min(_PACKED_DOCUMENT_TOKENS / row.seq_len, 1.0) if packed else 1.0


def _workload(row: MeasuredRun, shape: models.Transformer, assumed: list[str]) -> TrainingRun:
    name, guessed = sharding.number_format(row.precision, row.notes)
    if guessed:
        assumed.append("precision")
    wide = name in ("fp32", "tf32")
    values = {
        "sequence_length": row.seq_len,
        "global_batch_sequences": row.global_batch_sequences,
        "tokens": row.global_batch_sequences * row.seq_len,
        "unique_tokens": row.global_batch_sequences * row.seq_len,
        "weight_bytes": 4.0 if wide else 2.0,
        "master_bytes": 0.0 if wide else 4.0,
        "moment_bytes": 8.0,
        "activation_bytes": 4.0 if wide else 2.0,
        "causal_fraction": 0.5 * _met_within_documents(row),
        "trainable_fraction": models.trainable_fraction(row),
        "routing_imbalance": 1.0,
        "input_bytes_per_token": 4.0,
    }
    leaves = {key: np.float64(value) for key, value in values.items()}
    share = np.array([float(entry == name) for entry in PRECISIONS])
    return TrainingRun(model=shape, law=catalog.loss_law(), gemm_precision=share, **leaves)


def _plan(
    row: MeasuredRun, shape: models.Transformer, stack: str, cluster: Cluster, domain: float, assumed: list[str]
) -> tuple[Plan, bool]:
    habit = stacks.habits(stack)
    layers = int(shape.layers)
    vpp = _virtual_stages(row, layers, assumed)
    if row.pp * vpp > layers + 2:
        raise Skip(Reason.INCONSISTENT_PLAN, f"{row.pp} stages x {vpp} chunks for {layers} layers")
    fullest, last = stage_layers(layers, row.pp, vpp)
    if not row.zero_stage:
        assumed.append("zero_stage")
    shards = sharding.sharding(row.zero_stage, row.dp * row.cp, row.tp, int(domain), habit.zero_stage)
    flash = float(cluster.stack.attention_scores_stored) == 0.0
    again = _recompute(row, layers, flash)
    # Who shards weights to save memory turns recomputation on before anything else.
    may_be_full = again is None and (habit.recompute == "memory" or shards.weights > 0.0)
    if again is None:
        assumed.append("recompute")
        again = (1.0, 0.0) if habit.recompute == "full" else (0.0, 0.0)
    sequence_parallel = _yes(row.seq_parallel)
    if sequence_parallel is None:
        sequence_parallel = habit.sequence_parallel
        if row.tp > 1:
            assumed.append("seq_parallel")
    bubble = sharding.bubble_fraction(f"{row.schedule} {row.notes}")
    values = {
        "tp": row.tp, "pp": row.pp, "dp": row.dp, "cp": row.cp, "ep": row.ep,
        "expert_tp": _expert_tp(row, shape, assumed),
        "virtual_stages": vpp, "micro_batch": row.micro_batch, "fullest_stage": fullest, "last_stage": last,
        "sequence_parallel": float(sequence_parallel and row.tp > 1),
        "optimizer_sharded": shards.optimizer, "gradients_sharded": shards.gradients, "weights_sharded": shards.weights,
        "shard_groups": shards.groups, "recompute_full": again[0], "recompute_attention": again[1],
        "bubble_fraction": 1.0 if bubble is None else bubble,
        "weights_offloaded": 0.0, "optimizer_offloaded": 0.0, "local_steps": 1.0,
        "activations_offloaded": offloaded_activations(row),
    }  # fmt: skip
    return Plan(**{key: np.float64(value) for key, value in values.items()}), may_be_full


def _virtual_stages(row: MeasuredRun, layers: int, assumed: list[str]) -> int:
    if row.pp == 1:
        return 1
    if row.vpp is not None:
        return row.vpp
    assumed.append("vpp")
    if re.search(r"1f1b-i\b|interleav", f"{row.schedule} {row.notes}", re.I):
        # As many chunks as there are layers; the embedding and the head stand for one each.
        return max((layers + 2) // row.pp, 1)
    return 1


def _recompute(row: MeasuredRun, layers: int, flash: bool) -> tuple[float, float] | None:
    """Shares of a `recompute` cell; a bare "selective" with both MFU and HFU printed gives its share away."""
    if row.recompute.lower() == "selective":
        try:
            ratio = float(row.other_metrics["hfu"]) / float(row.other_metrics["mfu"])
        except (KeyError, ValueError, ZeroDivisionError):
            pass
        else:
            return min(max(3.0 * (ratio - 1.0), 0.0), 1.0), 0.0
    return sharding.recompute(row.recompute, layers, row.pp, flash=flash)


def _expert_tp(row: MeasuredRun, shape: models.Transformer, assumed: list[str]) -> int:
    """Tensor parallel degree inside experts: the whole tensor group until parallel folding (Megatron-Core 0.9,
    arXiv 2504.14960), one since, as far as the group has room.
    """
    if not float(shape.experts):
        return 1
    if row.expert_tp:
        return row.expert_tp
    if row.tp == 1:
        return 1
    assumed.append("expert_tp")
    fits = (row.tp * row.cp * row.dp) % (row.ep * row.tp) == 0
    return row.tp if fits and (stacks.year(row) or 2025) < 2025 else 1


def _yes(text: str) -> bool | None:
    said = text.lower()
    if said.startswith(("y", "true", "on", "1")):
        return True
    return False if said.startswith(("n", "false", "off", "0")) else None
