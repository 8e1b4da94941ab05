"""Data of a fit: model inputs of measured runs, the logarithm of their step times, and the shifts that apply to each run.

A shift adjusts a model constant in log or log-odds units, for all machines or for some (its scope).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt import catalog
from hwopt.calibration.holdout import study_of
from hwopt.calibration.intervals import PredictionContext
from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.calibration.validation.join import input_form, stacked
from hwopt.calibration.validation.score import Cell, CellErrors, Scored, cell_errors, cells_of, mark_repeats
from hwopt.calibration.validation.validate import score
from hwopt.errors import UserError
from hwopt.hardware.calibration import CONSTANTS, Scopes, family_of, moved
from hwopt.model.layers.parameters import chip_weights
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.training.footprint import footprint
from hwopt.model.training.schedule import step_time

COUNTED_QUALITY = ("A", "A-", "B+")
"""Quality grades of rows that are fitted; rows of lower quality and incomplete plans are scored, but not fitted."""


@jax.jit
def _log_step_time(inputs: Any, totals: Array) -> Array:
    """Return the logarithm of the step time of every run with shifted constants, shape (run,)."""

    def one(inputs: Any, total: Array) -> Array:
        workload, cluster, plan = inputs
        shifted = moved(cluster, {constant.name: total[i] for i, constant in enumerate(CONSTANTS)})
        sharded = chip_weights(workload.model, plan)
        _, outside = footprint(workload, plan, shifted.stack, sharded, hard_maximum)
        return jnp.log(step_time(workload, shifted, plan, sharded, outside, hard_maximum).step_s)

    return jax.vmap(one)(inputs, totals)


@jax.jit
def _totals(membership: Array, shifts: Array) -> Array:
    return jnp.einsum("rcs,s->rc", membership, shifts)


@jax.jit
def _slopes(inputs: Any, totals: Array, membership: Array) -> Array:
    """Return derivatives of the log step times with respect to every shift, by the chain rule through each constant's total
    shift.
    """
    basis = jnp.eye(totals.shape[1])
    along = jax.vmap(lambda e: jax.jvp(lambda t: _log_step_time(inputs, t), (totals,), (totals * 0 + e,))[1])
    return jnp.einsum("cr,rcs->rs", along(basis), membership)


def complete(scored: Scored) -> bool:
    """Return whether a row's plan is complete and its quality high; published accuracy figures use these rows."""
    return bool(scored.row.config_complete) and scored.row.quality in COUNTED_QUALITY


def timed_runs(path: str | Path, *, facts: Mapping[str, str] | None = None, progress: bool = False) -> list[Scored]:
    """Read the rows of a file with a measured time, predicted with literature constants; `facts` as in `score`, `progress`
    shows a bar on standard error.

    **Raises:** `UserError` for a file that cannot be read, or that is a table of serving measurements.
    """
    scoring = score(path, catalog.calibration(catalog.LITERATURE), facts=facts, progress=progress)
    if scoring.measurements.kind is not MeasuredRun:
        raise UserError(f"{path}: is a table of services; constants are fitted to training runs")
    rows = [row for row in scoring.scored if not row.metric.memory]
    mark_repeats(rows)
    return rows


class RunGroup(NamedTuple):
    """Runs whose model inputs have the same structure and shapes: for example models with the same number of layer types."""

    runs: np.ndarray  # indices
    inputs: Any  # (workload, cluster of literature constants, plan), leading axis: run


def _groups(inputs: Sequence[tuple]) -> tuple[RunGroup, ...]:
    """Stack the inputs of runs, by structure and shapes."""
    members: dict[tuple, list[int]] = defaultdict(list)
    for i, each in enumerate(inputs):
        members[input_form(each)].append(i)
    return tuple(RunGroup(np.array(runs), stacked([inputs[i] for i in runs])) for runs in members.values())


@dataclass(frozen=True)
class Observations:
    """Runs with a measured time, in the order of the file."""

    rows: tuple[Scored, ...]
    families: tuple[str, ...]  # chip families
    scopes: Scopes
    groups: tuple[RunGroup, ...]  # every run in one of them
    membership: np.ndarray  # shape (run, constant, shift)
    log_measured_s: np.ndarray
    weights: np.ndarray  # weights in a fit

    @staticmethod
    def of(
        rows: Sequence[Scored], *, by_cell: bool = True, scopes: Scopes | None = None, least_studies: int = 1
    ) -> Observations:
        """Prepare rows for a fit.

        **Arguments:**

        - `rows`: rows scored with literature constants.
        - `by_cell`: every cell of complete rows has weight 1 (published runs); otherwise every row has weight 1 (user runs).
        - `scopes`: scopes of the constants, by default those of the rows' machines.
        - `least_studies`: minimum number of studies with a chip family, stack or software family for it to get its own shifts.
        """
        cases = [row.case for row in rows if row.case is not None]
        families, stacks = tuple(family_of(case.architecture) for case in cases), [case.stack for case in cases]
        software = [catalog.software_family(stack) for stack in stacks]
        studies = [study_of(row.row.source) for row in rows] if by_cell else [""] * len(rows)
        weights = _cell_weights(rows) if by_cell else np.array([float(not row.left_out) for row in rows])
        if by_cell:  # functional runs are a condition of their own, which no constant is fitted to
            weights = np.where([row.functional for row in rows], 0.0, weights)
        known = lambda of: _run_by(of, studies, weights, least_studies)
        sources = [
            (study, f"{study}, experts") if float(case.workload.model.experts) > 1.0 else (study,)
            for study, case in zip(studies, cases, strict=True)
        ]
        named = sorted({name for each in sources for name in each}) if by_cell else ()
        scopes = scopes or Scopes.of(known(families), known(stacks), known(software), named, own=not by_cell)
        lines = [catalog.line_of(stack) for stack in stacks]
        membership = np.stack(list(map(cache(scopes.membership), families, lines, software, sources)))
        groups = _groups([
            (case.workload, case.cluster, replace(case.plan, recompute_full=np.float64(row.prediction.recompute_full)))
            for row, case in zip(rows, cases, strict=True)
        ])  # fmt: skip
        measured = [math.log(row.prediction.step_s) - math.log(row.time_ratio) for row in rows]
        return Observations(tuple(rows), families, scopes, groups, membership, np.array(measured), weights)

    @property
    def sources(self) -> np.ndarray:
        """Study of each run; fits hold out whole studies."""
        return np.array([study_of(row.row.source) for row in self.rows])

    @property
    def functional(self) -> np.ndarray:
        """Whether each run is functional (`Scored.functional`)."""
        return np.array([row.functional for row in self.rows])

    @property
    def stacks(self) -> np.ndarray:
        return np.array([row.stack for row in self.rows])

    @cached_property
    def cells(self) -> dict[Cell, list[int]]:
        """Cell (source, model, accelerator) -> indices of the runs that count in it."""
        return cells_of(self.rows)

    def log_predicted_s(self, shifts: np.ndarray) -> np.ndarray:
        """Return the logarithm of every run's predicted step time."""
        answer = np.zeros(len(self.rows))
        with jax.enable_x64(True):
            for runs, inputs in self.groups:
                answer[runs] = _log_step_time(inputs, _totals(self.membership[runs], shifts))
        return answer

    def slopes(self, shifts: np.ndarray) -> np.ndarray:
        """Return the derivatives of the log predicted step times with respect to the shifts, shape (run, shift).

        A shift changes a model constant, in log or log-odds units, for all machines or for those of its scope.
        """
        answer = np.zeros((len(self.rows), len(shifts)))
        with jax.enable_x64(True):
            for runs, inputs in self.groups:
                members = self.membership[runs]
                answer[runs] = _slopes(inputs, _totals(members, shifts), members)
        return answer

    def circumstances(self, log_predicted_s: np.ndarray) -> list[PredictionContext]:
        """Return the prediction context (MFU, chips) of every run, with literature constants for non-finite predictions."""
        slower = log_predicted_s - self._log_literature_s
        utilisation = np.exp(-np.where(np.isfinite(slower), slower, 0.0)) * [row.prediction.mfu for row in self.rows]
        chips = [float(row.case.cluster.chips) for row in self.rows if row.case is not None]
        return [PredictionContext(float(mfu), of) for mfu, of in zip(utilisation, chips, strict=True)]

    @cached_property
    def _log_literature_s(self) -> np.ndarray:
        return self.log_predicted_s(np.zeros(len(self.scopes.entries)))

    def errors(self, log_predicted_s: np.ndarray) -> np.ndarray:
        """Return (predicted - measured) / measured of the quantity that each row measures."""
        ratio = np.exp(log_predicted_s - self.log_measured_s)
        rate = np.array([row.metric.rate for row in self.rows])
        return np.where(rate, 1.0 / ratio, ratio) - 1.0

    def over_cells(
        self, log_predicted_s: np.ndarray, of: Sequence[bool] | None = None, *, every: bool = False
    ) -> CellErrors:
        """Return error statistics in which every group of similar runs counts once.

        A group has the same source, model and chip. Errors are averaged within each group, then over the groups. Runs without a
        prediction (NaN) are left out.

        **Arguments:**

        - `log_predicted_s`: natural logarithm of each run's predicted step time in seconds.
        - `of`: for each run, whether to include it; None includes all.
        - `every`: whether to include runs with an incomplete plan or of low quality as well.

        **Returns:** statistics of the relative errors, (predicted - measured) / measured.
        """
        chosen = [
            [i for i in members if (every or complete(self.rows[i])) and (of is None or of[i])]
            for members in self.cells.values()
        ]
        return cell_errors(chosen, self.errors(log_predicted_s), log_predicted_s - self.log_measured_s)


def _run_by(names: Sequence[str], studies: Sequence[str], weights: np.ndarray, least: int) -> list[str]:
    """Return the names that occur in at least `least` studies with counting runs, sorted."""
    by: dict[str, set[str]] = defaultdict(set)
    for name, each, weight in zip(names, studies, weights, strict=True):
        if weight > 0.0 or least <= 1:
            by[name].add(each)
    return sorted(name for name, ran in by.items() if len(ran) >= least)


def _cell_weights(rows: Sequence[Scored]) -> np.ndarray:
    """Return row weights that give every cell (source, model, accelerator) a total weight of 1, regardless of its number of
    rows.
    """
    judged = any(complete(row) for row in rows)  # user files may lack columns for completeness and quality
    members: dict[tuple, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if not row.left_out:
            members[(*row.cell, complete(row) or not judged)].append(i)
    weights = np.zeros(len(rows))
    for (*_, is_complete), indices in members.items():
        weights[indices] = float(is_complete) / len(indices)
    return weights
