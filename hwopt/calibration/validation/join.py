"""Join of a measured row with the catalog: workload, cluster and plan, with a list of assumptions."""

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
"""Cases per call of the model, which limits the memory of intermediate results."""


@dataclass(frozen=True)
class MeasuredCase:
    """One row as inputs of the model."""

    row: Any  # a `MeasuredRun` or a `MeasuredService` with complete degrees and batch
    workload: Any  # workload as in `estimate`
    cluster: Cluster
    plan: Plan
    accelerator: str  # catalogue slug
    architecture: str  # architecture of the accelerator
    stack: str
    assumed: tuple[str, ...]
    full_if_too_big: bool = False  # recomputation unstated; full recomputation if the plan does not fit otherwise
    alternatives: tuple["RunAlternative", ...] = ()  # alternative completions of unstated settings


class RunAlternative(NamedTuple):
    """One of the complete runs that are consistent with a row."""

    case: MeasuredCase
    opening: CompletedRow


@dataclass(frozen=True)
class Prediction:
    """Prediction of the model for one case."""

    value: float  # in the unit of the row
    step_s: float
    mfu: float  # relative to the peak of the row's formats
    memory_bytes: float
    memory_capacity_bytes: float
    recompute_full: float = 0.0  # share of layers with full recomputation
    spread: float = 0.0  # standard deviation over unstated settings, in log units
    alternative: int = 0  # index of the case's alternative that represents the row


@dataclass(frozen=True)
class WorkKind:
    """Operations that differ between training runs and services."""

    unsupported: Callable[[Any], str]  # metric or phase that cannot be scored, else ""
    completed: Callable[[Any, list[str]], Any]  # fills in degrees and batch, appends to the list of assumptions
    usual_stack: Callable[[Any, str, str], str]  # default stack for a row, accelerator and architecture
    inputs: Callable[[Any, Any, str, str, str, list[str]], tuple]  # workload, machine, plan, `full_if_too_big`
    predict: Callable[[Sequence[MeasuredCase]], list[Prediction]]
    openings: Callable[[Any, MeasuredCase], list[CompletedRow]]  # alternatives to a row and its default case


def join(row: MeasuredRow, kind: WorkKind, constants: Constants) -> MeasuredCase:
    """Join one row with the catalog, as inputs of `estimate`.

    **Arguments:** `row`; `kind`: operations for its type; `constants` of machines.

    **Raises:** `Skip` with one of the reasons in `SkipReason`.
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
        except Skip:  # for example chunks that this software cannot split into stages
            continue
        each = replace(each, assumed=case.assumed, full_if_too_big=opening.least_recomputed or each.full_if_too_big)
        alternatives.append(RunAlternative(each, opening))
    return replace(case, alternatives=tuple(alternatives))


def _case(
    row: MeasuredRow, shape: Any, accelerator: str, kind: WorkKind, constants: Constants, assumed: list[str]
) -> MeasuredCase:
    """Return a row completed by stack defaults; names of the defaulted fields are added to `assumed`."""
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
    """Reject a row that leaves any of the given columns blank.

    **Raises:** `Skip`.
    """
    for name in names:
        if getattr(row, name) is None:
            raise Skip(SkipReason.INCOMPLETE_PLAN, f"{name} not stated")


def stacked(trees: Sequence) -> Any:
    """Stack pytrees of the same structure along a new leading axis."""
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [np.array(column, np.float64) for column in columns])


def evaluate(model: Callable[..., Any], inputs: Sequence[tuple]) -> list[dict[str, float]]:
    """Evaluate a model for many inputs of one structure, in NumPy and float64, without compilation."""
    forms = [input_form(each) for each in inputs]
    if len(set(forms)) > 1:  # operator tables have different structures, depending on their number of rows
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


def input_form(inputs: tuple) -> tuple:
    """Return the structure and the shapes of inputs."""
    leaves, structure = jax.tree.flatten(inputs)
    return structure, tuple(np.shape(leaf) for leaf in leaves)


@cache
def _traced(model: Callable[..., Any], form: Any, shapes: tuple[tuple[int, ...], ...]) -> TracedFunction:
    return cached_trace(model, *jax.tree.unflatten(form, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]))
