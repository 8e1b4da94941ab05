"""A row joined with the catalogue: workload, cluster and plan, and what had to be assumed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRow, entry
from hwopt.calibration.validation import models
from hwopt.calibration.validation.machines import Constants
from hwopt.calibration.validation.missing_settings import CompletedRow
from hwopt.calibration.validation.skip import Skip, SkipReason
from hwopt.catalog.chips import architecture
from hwopt.errors import suggest
from hwopt.hardware.cluster import Cluster
from hwopt.plan import Plan
from hwopt.trace.cache import TracedFunction, cached_trace

CHUNK = 512
"""Cases that one call of the model takes, so that what it works out on the way stays small."""


@dataclass(frozen=True)
class MeasuredCase:
    """One row, ready for the model."""

    row: Any  # a `MeasuredRun` or a `MeasuredService`, its degrees and batch complete
    workload: Any  # what `estimate` takes for it
    cluster: Cluster
    plan: Plan
    accelerator: str  # catalogue slug
    architecture: str  # of the accelerator
    stack: str
    assumed: tuple[str, ...]
    full_if_too_big: bool = False  # recomputation not stated, and the stack's users turn it on when memory is short
    alternatives: tuple["RunAlternative", ...] = ()  # what the row may stand for where it leaves something open


class RunAlternative(NamedTuple):
    """One of the runs that a row may stand for."""

    case: MeasuredCase
    opening: CompletedRow


@dataclass(frozen=True)
class Prediction:
    """What the model says about one case."""

    value: float  # in the row's unit
    step_s: float
    mfu: float  # of the peak of the row's formats
    memory_bytes: float
    memory_capacity_bytes: float
    recompute_full: float = 0.0  # share of layers
    spread: float = 0.0  # standard deviation, in the logarithm, over what the row leaves open
    alternative: int = 0  # of the case's, that stands for the row


@dataclass(frozen=True)
class WorkKind:
    """What training runs and services do differently."""

    unsupported: Callable[[Any], str]  # what was measured, where that cannot be scored; else ""
    completed: Callable[[Any, list[str]], Any]  # the row with degrees and batch filled in, and what was assumed
    usual_stack: Callable[[Any, str, str], str]  # of a row on an accelerator of an architecture
    inputs: Callable[[Any, Any, str, str, str, list[str]], tuple]  # workload, machine, plan, `full_if_too_big`
    predict: Callable[[Sequence[MeasuredCase]], list[Prediction]]
    openings: Callable[[Any, MeasuredCase], list[CompletedRow]]  # of a row, with the case that habits alone make of it


def join(row: MeasuredRow, kind: WorkKind, constants: Constants) -> MeasuredCase:
    """The inputs of `estimate` for one row.

    **Arguments:** `row`; its `kind`; `constants` of machines.

    **Raises:** `Skip` with one of the closed list of reasons.
    """
    if row.repeats:
        raise Skip(SkipReason.REPEATED, f"line {row.repeats}")
    if row.quality.upper().startswith("C"):
        raise Skip(SkipReason.HEADLINE)
    if row.measured_value is None:
        raise Skip(SkipReason.NO_MEASUREMENT)
    if what := kind.unsupported(row):
        raise Skip(SkipReason.UNSUPPORTED_METRIC, what)
    accelerator = row.chip or entry("chips", row.gpu)
    if accelerator is None:
        raise Skip(SkipReason.UNKNOWN_ACCELERATOR, f"'{row.gpu}': {suggest(row.gpu, catalog.names('chips'))}")
    record = catalog.record("chips", accelerator)
    if "unsupported" in record.text:
        raise Skip(SkipReason.UNKNOWN_ACCELERATOR, f"'{row.gpu}' has no model yet")
    assumed: list[str] = []
    shape = models.shape(row, assumed)
    case = _case(row, shape, accelerator, kind, constants, assumed)
    alternatives = []
    for opening in kind.openings(row, case):
        try:
            each = _case(opening.row, shape, accelerator, kind, constants, [])
        except Skip:  # chunks, say, that this software makes no stages of
            continue
        each = replace(each, assumed=case.assumed, full_if_too_big=opening.least_recomputed or each.full_if_too_big)
        alternatives.append(RunAlternative(each, opening))
    return replace(case, alternatives=tuple(alternatives))


def _case(
    row: MeasuredRow, shape: Any, accelerator: str, kind: WorkKind, constants: Constants, assumed: list[str]
) -> MeasuredCase:
    """A row as habits fill it; names of what they fill are added to `assumed`."""
    family = architecture(catalog.record("chips", accelerator))
    row = kind.completed(row, assumed)
    assumed += [*row.assumed, *(["stack"] if row.stack is None else [])]
    stack = row.stack or kind.usual_stack(row, accelerator, family)
    workload, machine, plan, full_if_too_big = kind.inputs(row, shape, accelerator, family, stack, assumed)
    cluster = replace(constants(machine, row.source), chips=np.float64(row.num_gpus or 1))
    return MeasuredCase(
        row, workload, cluster, plan, accelerator, family, stack, tuple(dict.fromkeys(assumed)), full_if_too_big
    )


def require(row: MeasuredRow, *names: str) -> None:
    """Refuses a row that leaves one of some columns blank.

    **Raises:** `Skip`.
    """
    for name in names:
        if getattr(row, name) is None:
            raise Skip(SkipReason.INCOMPLETE_PLAN, f"{name} not stated")


def stacked(trees: Sequence) -> Any:
    """Pytrees of the same structure as one with a leading axis."""
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [np.array(column, np.float64) for column in columns])


def evaluate(model: Callable[..., Any], inputs: Sequence[tuple]) -> list[dict[str, float]]:
    """A model's values for each of many inputs of one form, in NumPy and float64, compiled by nobody."""
    forms = [_form(each) for each in inputs]
    if len(set(forms)) > 1:  # tables of operators are of as many forms as they have rows
        answers: list[dict[str, float]] = [{} for _ in inputs]
        for form in dict.fromkeys(forms):
            own = [i for i, each in enumerate(forms) if each == form]
            for i, answer in zip(own, evaluate(model, [inputs[i] for i in own]), strict=True):
                answers[i] = answer
        return answers
    answers = []
    for start in range(0, len(inputs), CHUNK):
        part = inputs[start : start + CHUNK]
        leaves, form = jax.tree.flatten(stacked(part))
        line = _traced(model, form, tuple(leaf.shape[1:] for leaf in leaves))
        columns = [column for leaf in leaves for column in leaf.reshape(len(part), -1).T]
        values = {name: value.tolist() for name, value in line(columns, len(part)).items()}
        answers += [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return answers


def _form(inputs: tuple) -> tuple:
    """Structure and shapes of inputs."""
    leaves, structure = jax.tree.flatten(inputs)
    return structure, tuple(np.shape(leaf) for leaf in leaves)


@cache
def _traced(model: Callable[..., Any], form: Any, shapes: tuple[tuple[int, ...], ...]) -> TracedFunction:
    return cached_trace(model, *jax.tree.unflatten(form, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]))
