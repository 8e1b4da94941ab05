"""What a sweep is asked: question, choices, variants, metrics. As plain text in a store, so that it can be run again."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import hwopt
from hwopt.design.metrics import METRICS, Metric, numbers
from hwopt.design.problem import Problem
from hwopt.errors import UserError, suggest
from hwopt.study.sensitivity.elasticities import metric_unit
from hwopt.study.sensitivity.inputs import Input, template_inputs
from hwopt.study.sweep.evaluator import tile_of
from hwopt.study.sweep.given import checked_levels, table_columns
from hwopt.study.sweep.program import Program
from hwopt.study.sweep.samplers import Grid, LatinHypercube, Sampler, Sobol, Table
from hwopt.study.sweep.spaces import space_of
from hwopt.workload.service import Service

METHODS = ("sobol", "lhs", "grid", "table")

KINDS = ("float32", "float64")

_OF_TRAINING = (
    "run_cost_usd", "run_time_s", "capex_usd", "peak_power_w", "step_time_s", "mfu", "memory_per_chip_bytes", "goodput",
    "energy_per_token_j", "cost_per_token_usd",
)  # fmt: skip
_OF_SERVING = (
    "cost_per_token_usd", "time_per_output_token_s", "time_to_first_token_s", "capex_usd", "peak_power_w", "tokens_per_s",
    "users", "memory_per_chip_bytes", "energy_per_token_j", "mfu",
)  # fmt: skip


_FRONTS = ("run_time_s", "run_cost_usd", "time_per_output_token_s", "cost_per_token_usd", "capex_usd")
"""Metrics of a front beside the objective, the first that is another."""


def usual_metrics(workload: Any) -> tuple[str, ...]:
    """Metrics of every sweep of a workload, besides the objective and what budgets limit."""
    return _OF_SERVING if isinstance(workload, Service) else _OF_TRAINING


BLOCK, REDUCED_BLOCK = 1 << 18, 1 << 22
"""Variants of a block with rows and without: what a killed sweep loses at most."""

MOST_ROWS = 1 << 24
"""Variants up to which rows are kept unless asked otherwise: about 2 GB."""

MOST_CASES = 100
"""Combinations of choices: a case is a byte in the store."""


class Optimum(NamedTuple):
    """What `optimize` found and proved of a question."""

    design: dict[str, float]
    objective: float
    lower_bound: float  # NaN where nothing is proved
    feasible: bool


@dataclass(frozen=True)
class Case:
    """One combination of choices."""

    chosen: tuple[tuple[str, str], ...]
    problem: Problem
    optimum: Optimum | None = None  # around which it is sampled

    @property
    def name(self) -> str:
        return ",".join(f"{field}={value}" for field, value in self.chosen) or "all"


@dataclass(frozen=True)
class Specification:
    """A sweep, checked and complete. Build one by `specification`."""

    objective: Any
    fields: Mapping[str, Any]  # of the objective
    cases: tuple[Case, ...]
    method: str
    samples: int
    seed: int
    levels: Mapping[str, Sequence[float]]  # of a grid
    table: Mapping[str, Sequence[float]]
    bounds: Mapping[str, tuple[float, float]]
    freeze: tuple[str, ...]
    within: float  # ratio to both sides of the optimum; 0: the whole box
    metrics: tuple[Metric, ...]
    pareto: tuple[str, ...]
    map: tuple[str, str] | None
    gradients: tuple[str, ...]
    rows: bool
    kind: str
    block: int
    tile: int
    platform: str

    @property
    def problem(self) -> Problem:
        """The question of the first case: all ask the same of other machines."""
        return self.cases[0].problem

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        return tuple(Program(case.problem, self.metrics, self.pareto, self.constraints) for case in self.cases)

    def sampler(self, case: int) -> Sampler:
        """The sequence of variants of a case: the same points of the unit cube for all cases."""
        space = self.programs[case].space
        if self.method == "sobol":
            return Sobol(space.coordinates, self.samples, self.seed)
        if self.method == "lhs":
            return LatinHypercube(space.coordinates, self.samples, self.seed)
        if self.method == "grid":
            wide = space.completed(self.levels)
            return Grid({name: x if name in self.levels else [x] for name, x in wide.items()})
        wide = space.completed(self.table)
        return Table({name: x if name in self.table else [x] * self.samples for name, x in wide.items()})

    def inputs(self, case: int) -> tuple[str | Input, ...]:
        """What the objective is differentiated by, in the order of `gradients`."""
        problem = self.cases[case].problem
        own = self.programs[case].space.variables
        others = {each.name: each for each in template_inputs(problem)} if set(self.gradients) - set(own) else {}
        for name in self.gradients:
            if name not in own and name not in others:
                raise UserError(f"gradients: '{name}' is no variable and no input: {suggest(name, [*own, *others])}")
        return tuple(name if name in own else others[name] for name in self.gradients)

    @cached_property
    def variables(self) -> dict[str, Any]:
        """Variables of all cases, by name."""
        return {name: each for program in self.programs for name, each in program.space.variables.items()}

    @cached_property
    def constraints(self) -> tuple[str, ...]:
        """Constraints of all cases; a number in the store is a place in this list."""
        return tuple(dict.fromkeys(n for case in self.cases for n in Program(case.problem, ()).constraints))

    @property
    def blocks_per_case(self) -> int:
        return math.ceil(self.samples / self.block)

    @property
    def blocks(self) -> int:
        return len(self.cases) * self.blocks_per_case

    def place(self, block: int) -> tuple[int, int, int]:
        """Case, first variant, and number of variants of a block."""
        case, number = divmod(block, self.blocks_per_case)
        first = number * self.block
        return case, first, min(self.block, self.samples - first)

    def document(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain data."""
        return {
            "objective": self.problem.name,
            "fields": {name: x for name, x in self.fields.items() if x != math.inf},  # a budget that is not asked for
            "choices": {
                field: list(dict.fromkeys(dict(case.chosen)[field] for case in self.cases))
                for field, _ in self.cases[0].chosen
            },
            "method": self.method,
            "samples": self.samples,
            "seed": self.seed,
            "grid": {name: list(map(float, x)) for name, x in self.levels.items()},
            "table": _digest(self.table),
            "bounds": {name: list(map(float, x)) for name, x in self.bounds.items()},
            "freeze": list(self.freeze),
            "within": self.within,
            "metrics": [each.name for each in self.metrics],
            "pareto": list(self.pareto),
            "map": list(self.map) if self.map else [],
            "gradients": list(self.gradients),
            "rows": self.rows,
            "dtype": self.kind,
            "block": self.block,
            "tile": self.tile,
            "platform": self.platform,
            "question": _digest({case.name: _numbers(case.problem) for case in self.cases}),
        }

    @staticmethod
    def versions() -> dict[str, str]:
        return {"hwopt": hwopt.__version__, "jax": jax.__version__, "numpy": np.__version__}


def _numbers(problem: Problem) -> list[float]:
    """Every number of a question: files of one's own may change between two runs."""
    numbers = [float(x) for leaf in jax.tree.leaves(problem.template) for x in np.ravel(leaf)]
    return [
        *numbers,
        *(x for each in problem.variables for x in (each.lower, each.upper)),
        *(b.limit for b in problem.budgets),
    ]


def _digest(columns: Mapping[str, Sequence[float]]) -> str:
    if not columns:
        return ""
    made = hashlib.sha256()
    for name, column in columns.items():
        made.update(name.encode())
        made.update(np.asarray(column, np.float64).tobytes())
    return made.hexdigest()


def specification(
    objective: Any,
    samples: int | None = None,
    *,
    method: str | None = None,
    seed: int = 0,
    grid: Mapping[str, Sequence[float]] | None = None,
    table: str | Path | Mapping[str, Sequence[float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    freeze: Sequence[str] = (),
    within: float | None = None,
    optima: Callable[[str, Problem], Optimum] | None = None,
    metrics: Sequence[str] = (),
    pareto: Sequence[str] | None = None,
    map_of: Sequence[str] | None = None,
    gradients: Sequence[str] | bool = (),
    rows: bool | None = None,
    dtype: str = "float32",
    block: int | None = None,
) -> Specification:
    """A sweep from what its caller says; see `hwopt.sweep`.

    **Arguments:** `optima`: how the optimum of a question is found, where only its surroundings are sampled (`within`).

    **Raises:** `UserError` for whatever cannot be meant.
    """
    if method is None:
        method = "table" if table is not None else "grid" if grid else "sobol"
    _one_of("method", method, METHODS)
    _one_of("dtype", dtype, KINDS)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UserError(f"seed {seed!r}: must be a whole number, 0 or more")
    if (method == "grid") != bool(grid) or (method == "table") != (table is not None):
        raise UserError(f"method {method}: a grid needs levels, a table its columns, and other methods neither")
    if within is not None and not 1.0 < within < math.inf:
        raise UserError(f"within {within}: a ratio above 1, such as 1.1 for 10 % to both sides of the optimum")
    if within is not None and method in ("grid", "table"):
        raise UserError(f"within {within}: a {method} says itself where it looks")
    cases = _cases(objective, choices or {}, bounds or {}, freeze)
    if within is not None and optima is not None:
        cases = tuple(_near(case, optima(case.name, case.problem), within) for case in cases)
    problem = cases[0].problem
    space = space_of(problem)
    columns = table_columns(table) if table is not None else {}
    held = {name: checked_levels(name, x) for name, x in (grid or {}).items()}
    space.completed(held or columns)  # refuses unknown names
    count = math.prod(len(x) for x in held.values()) if held else len(next(iter(columns.values()), ()))
    if method in ("grid", "table"):
        if samples not in (None, count):
            raise UserError(f"samples {samples}: the {method} has {count:,} variants; leave samples out")
        samples = count
    samples = _count("samples", samples)
    rows = samples * len(cases) <= MOST_ROWS if rows is None else rows
    platform = jax.default_backend()
    tile = tile_of(platform)
    usual = REDUCED_BLOCK if not rows else BLOCK
    size = min(usual, -(-samples // tile) * tile) if block is None else -(-_count("block", block) // tile) * tile
    shown = metrics or usual_metrics(problem.template.workload)
    named = tuple(dict.fromkeys((problem.objective.name, *(b.metric.name for b in problem.budgets), *shown)))
    own = {each.name: each for each in (problem.objective, *(budget.metric for budget in problem.budgets))}
    wanted = tuple(own.get(name) or metric_of(name, problem.template.workload) for name in named)
    made = Specification(
        objective=objective,
        fields=dataclasses.asdict(objective) if dataclasses.is_dataclass(objective) else {},  # pyright: ignore
        cases=cases,
        method=method,
        samples=samples,
        seed=int(seed),
        levels=held,
        table=columns,
        bounds=dict(bounds or {}),
        freeze=tuple(freeze),
        within=float(within or 0.0),
        metrics=wanted,
        pareto=_pareto(problem, named, pareto),
        map=_map(cases, held or columns, map_of),
        gradients=tuple(space.coordinates) if gradients is True else tuple(gradients or ()),
        rows=bool(rows),
        kind=dtype,
        block=size,
        tile=tile,
        platform=platform,
    )
    if made.gradients:
        if not made.rows:
            raise UserError(
                f"gradients: they are kept for every variant, and of {samples:,} no rows are kept: ask for rows too"
            )
        for case in range(len(cases)):
            made.inputs(case)  # refuses unknown names before anything is computed
    return made


def _count(what: str, given: Any) -> int:
    """A whole number of 1 or more."""
    try:
        if not isinstance(given, bool) and given == int(given) and given >= 1:
            return int(given)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"{what} {given}: how many variants, a whole number of 1 or more")


def _one_of(what: str, name: Any, known: Sequence[str]) -> None:
    if not isinstance(name, str):
        raise UserError(f"{what} {name!r}: must be text, one of {', '.join(known)}")
    if name not in known:
        raise UserError(f"{what} '{name}': {suggest(name, known)}")


def metric_of(name: str, workload: Any) -> Metric:
    """A number of a workload's report as a metric.

    **Raises:** `UserError` for an unknown name.
    """
    _one_of("metric", name, numbers(workload))
    if name in METRICS:
        return METRICS[name]
    return Metric(name, metric_unit(name), lambda report: getattr(report, name), name.replace("_", " "))


def _cases(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    bounds: Mapping[str, tuple[float, float]],
    freeze: Sequence[str],
) -> tuple[Case, ...]:
    known = {field.name for field in dataclasses.fields(objective)} if dataclasses.is_dataclass(objective) else set()
    for field, values in choices.items():
        if field not in known:
            raise UserError(f"choices: '{field}' is no field of the question: {suggest(field, known)}")
        if not isinstance(getattr(objective, field), str):
            raise UserError(
                f"choices: '{field}' is a number, not a choice: sweep each apart, or ask hwopt.frontier about budgets"
            )
        if not values or len(set(values)) < len(values):
            raise UserError(f"choices: {field}={'|'.join(map(str, values))}: name each value once")
    count = math.prod(len(values) for values in choices.values())
    if count > MOST_CASES:
        raise UserError(f"choices: {count} combinations; at most {MOST_CASES}: sweep them apart")
    made = []
    for combination in itertools.product(*choices.values()):
        chosen = tuple(zip(choices, combination, strict=True))
        asked: Any = dataclasses.replace(objective, **dict(chosen)) if chosen else objective  # pyright: ignore
        problem = asked.problem().narrowed(bounds).frozen(freeze)
        made.append(Case(tuple((field, str(value)) for field, value in chosen), problem))
    return tuple(made)


def _near(case: Case, optimum: Optimum, within: float) -> Case:
    """A case in a box around its optimum, clipped to the box it has."""
    boxes = {}
    for each in case.problem.variables:
        if each.name in optimum.design:
            value = min(max(optimum.design[each.name], each.lower), each.upper)
            boxes[each.name] = max(each.lower, value / within), min(each.upper, value * within)
    return dataclasses.replace(case, problem=case.problem.narrowed(boxes), optimum=optimum)


def _pareto(problem: Problem, metrics: Sequence[str], asked: Sequence[str] | None) -> tuple[str, ...]:
    """Metrics of the front: as asked, else the objective against time or cost."""
    if asked is not None:
        for name in asked:
            _one_of("pareto: metric", name, metrics)
        if len(set(asked)) < len(asked) or len(asked) == 1:
            raise UserError(f"pareto {','.join(asked)}: two or more different metrics, all made small")
        return tuple(asked)
    other = next((n for n in _FRONTS if n in metrics and n != problem.objective.name), "")
    return (problem.objective.name, other) if other else ()


def _map(cases: Sequence[Case], given: Mapping[str, Any], asked: Sequence[str] | None) -> tuple[str, str] | None:
    """Variables of the bottleneck map, (x, y), which all cases have."""
    spaces = [space_of(case.problem) for case in cases]
    free = [name for name in (given or spaces[0].coordinates) if not given or len(set(np.ravel(given[name]))) > 1]
    free = [name for name in free if all(name in space.variables for space in spaces)]
    if asked is not None:
        if len(asked) != 2 or asked[0] == asked[1]:
            raise UserError(f"map {','.join(asked)}: two different variables, x and y")
        for name in asked:
            _one_of("map: variable", name, free)
        return asked[0], asked[1]
    usual = [n for n in ("chips", "scale_up_bandwidth_bytes_per_s", "hbm_bandwidth_bytes_per_s") if n in free]
    chosen = list(dict.fromkeys([*usual, *free]))[:2]
    return (chosen[0], chosen[1]) if len(chosen) == 2 else None


def canonical(document: Mapping[str, Any]) -> str:
    """A document as JSON, the same for equal ones; what is not finite is null."""
    return json.dumps(_strict(document), sort_keys=True, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _strict(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
