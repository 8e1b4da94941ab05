"""Specification of a sweep: design problem, choices, variants and metrics. Stored as plain text, so that it can be rerun."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from hwopt import escape
from hwopt._version import __version__
from hwopt.design.choices import combinations
from hwopt.design.lattices import reason_without_lattice
from hwopt.design.metrics import Metric, metric_of
from hwopt.design.problem import Problem
from hwopt.design.template_inputs import Input, template_inputs
from hwopt.design.variables import Variable
from hwopt.errors import UserError, suggest
from hwopt.model.estimate import report_type
from hwopt.model.report import ServingReport, TrainingReport
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.sweeps.evaluator import chunk_of, memory_of, tile_of
from hwopt.sweeps.program import SweepProgram
from hwopt.sweeps.program_cache import program_of
from hwopt.sweeps.samplers import DesignTable, Grid, LatinHypercube, Sampler, Sobol
from hwopt.sweeps.space import Space
from hwopt.sweeps.strata import Strata
from hwopt.sweeps.stratified import GROUP, StratifiedSobol, interleaved_strata
from hwopt.sweeps.user_points import checked_levels, table_columns
from hwopt.validation import boxes_of, check_question, names_of, number_of

METHODS = ("sobol", "lhs", "grid", "table")

DTYPES = ("float32", "float64")

SAMPLINGS = ("importance", "plain")

_TURNS = 1 << 16
"""Number of point groups after which the sequence of sampling levels repeats."""

_USUAL: dict[type, tuple[str, ...]] = {
    TrainingReport: (
        "run_cost_usd", "run_time_s", "capex_usd", "peak_power_w", "step_time_s", "mfu", "memory_per_chip_bytes", "goodput",
        "energy_per_token_j", "cost_per_token_usd",
    ),
    ServingReport: (
        "cost_per_token_usd", "time_per_output_token_s", "time_to_first_token_s", "capex_usd", "peak_power_w", "tokens_per_s",
        "users", "memory_per_chip_bytes", "energy_per_token_j", "mfu",
    ),
}  # fmt: skip
"""Default metrics, by report type, in addition to the objective and the budgeted metrics."""

_FRONTS = ("run_time_s", "run_cost_usd", "time_per_output_token_s", "cost_per_token_usd", "capex_usd")
"""Candidates for the second metric of the default front; the first one that is not the objective is used."""

_MAPS = ("chips", "scale_up_bandwidth_bytes_per_s", "hbm_bandwidth_bytes_per_s")
"""Preferred variables of the bottleneck map; the first two that vary are used, before any others."""

_DECIDING = (
    "method", "sampling", "samples", "seed", "grid", "bounds", "freeze", "within", "pareto", "map", "gradients", "rows", "dtype",
    "block", "tile", "chunk", "platform", "as_sold",
)  # fmt: skip
"""Attributes of the specification that are stored unchanged in its document."""

BLOCK = 1 << 19
"""Variants per block if rows are stored; a killed sweep loses at most one block."""

REDUCED_BLOCK = {"cpu": 1 << 22, "gpu": 1 << 26}
"""Variants per block without rows, by backend: takes a fraction of a second."""

MOST_ROWS = 1 << 24
"""Maximum number of variants for which rows are stored by default: about 2 GB."""

MOST_CASES = 100
"""Maximum number of combinations of choices: the store has one byte for the case number."""


class KnownOptimum(NamedTuple):
    """The solution of `optimize` for a design problem, with its certificate."""

    design: dict[str, float]
    objective: float
    lower_bound: float  # NaN without a certificate
    feasible: bool


@dataclass(frozen=True)
class SweepCase:
    """One combination of choices."""

    chosen: tuple[tuple[str, str], ...]
    problem: Problem
    optimum: KnownOptimum | None = None  # sampling is centered here, if `within` is given

    @property
    def name(self) -> str:
        return escape.line(",".join(f"{field}={value}" for field, value in self.chosen)) or "all"


class Specification:
    """A validated and complete specification of a sweep.

    **Arguments:**

    - those of `hwopt.sweep`.
    - `optima`: solver of a design problem, used if only the neighborhood of its optimum is sampled (`within`).

    **Raises:** `UserError` for invalid or contradictory arguments.
    """

    def __init__(
        self,
        objective: Any,
        samples: int | None = None,
        *,
        method: str | None = None,
        sampling: str | None = None,
        seed: int = 0,
        grid: Mapping[str, Sequence[float]] | None = None,
        table: str | Path | Mapping[str, Sequence[float]] | None = None,
        choices: Mapping[str, Sequence[str]] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        freeze: Sequence[str] = (),
        within: float | None = None,
        optima: Callable[[str, Problem], KnownOptimum] | None = None,
        metrics: Sequence[str] = (),
        pareto: Sequence[str] | None = None,
        map_of: Sequence[str] | None = None,
        gradients: Sequence[str] | bool = (),
        rows: bool | None = None,
        dtype: str = "float32",
        block: int | None = None,
        as_sold: bool = False,
        options: SearchOptions = SEARCH,
    ):
        self.options, self.as_sold = options, as_sold
        check_question(objective, "sweep")
        self.objective, self.bounds, self.freeze = objective, boxes_of(bounds or {}), names_of("freeze", freeze)
        metrics = names_of("metrics", metrics)
        for what, asked in (("grid", grid), ("choices", choices)):
            if asked is not None and not isinstance(asked, Mapping):
                raise UserError(f"{what}: pass a dictionary, such as {{'chip': ['h100-sxm', 'b200']}}, not {asked!r}")
        if method is None:
            method = "table" if table is not None else "grid" if grid else "sobol"
        self.method, self.dtype = _one_of("method", method, METHODS), _one_of("dtype", dtype, DTYPES)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise UserError(f"seed {seed!r}: must be an integer of 0 or more")
        self.seed = int(seed)
        if (method == "grid") != bool(grid) or (method == "table") != (table is not None):
            raise UserError(
                f"method {method}: a grid needs levels, a table needs columns, and other methods take neither"
            )
        if within is not None and not 1.0 < number_of("within", within) < math.inf:
            raise UserError(
                f"within {within}: must be a ratio above 1, such as 1.1 for 10 % on both sides of the optimum"
            )
        if within is not None and method in ("grid", "table"):
            raise UserError(f"within {within}: a {method} states its points itself; remove within")
        self.within = float(within or 0.0)
        self.cases = _cases(objective, choices or {}, self.bounds, self.freeze, as_sold)
        if within is not None and optima is not None:
            self.cases = tuple(_near(case, optima(case.name, case.problem), within) for case in self.cases)
        spaces = [Space(case.problem) for case in self.cases]
        self.metrics = _metrics(self.problem, metrics, {name for each in spaces for name in each.variables})
        self.grid = {name: checked_levels(name, x) for name, x in (grid or {}).items()}
        self.table = table_columns(table) if table is not None else {}
        spaces[0].completed(self.columns)  # rejects unknown names
        if self.columns:
            sizes = [len(x) for x in self.columns.values()]
            count = math.prod(sizes) if self.grid else sizes[0]
            if samples not in (None, count):
                raise UserError(f"samples {samples}: the {method} has {count:,} variants; remove samples")
            samples = count
        self.samples = _count("samples", samples)
        self.rows = self.samples * len(self.cases) <= MOST_ROWS if rows is None else bool(rows)
        self.sampling = self._sampling(
            None if sampling is None else _one_of("sampling", sampling, SAMPLINGS), spaces[0]
        )
        self.platform = jax.default_backend()
        memory_bytes = min(map(memory_of, jax.local_devices()))
        self.tile = tile_of(self.platform, memory_bytes, np.dtype(dtype).itemsize)
        self.chunk = chunk_of(self.platform, self.tile)
        reduced = REDUCED_BLOCK.get(self.platform, REDUCED_BLOCK["gpu"])
        usual = min(BLOCK if self.rows else reduced, self.samples)
        self.block = self.tile * math.ceil((usual if block is None else _count("block", block)) / self.tile)
        self.pareto = _pareto([each.name for each in self.metrics], pareto)
        self.map = _map(spaces, self.columns, map_of)
        self.gradients = tuple(spaces[0].coordinates) if gradients is True else names_of("gradients", gradients or ())
        if self.gradients:
            if not self.rows:
                raise UserError(
                    f"gradients: they need the rows of all variants, which are not kept for {samples:,} samples: add rows"
                )
            for case in range(len(self.cases)):
                self.inputs(case)  # rejects unknown names before anything is computed

    def _sampling(self, asked: str | None, space: Space) -> str:
        """Return the requested sampling, by default importance sampling if possible; set `why_plain` to the obstacle.

        **Raises:** `UserError` if importance sampling is requested but impossible.
        """
        self.why_plain = why = self._unfocused(space)
        if asked == "importance" and why:
            raise UserError(f"sampling importance: {why}; remove it")
        if asked is None and not why and self.samples < self.options.sweep.least_samples:
            self.why_plain = f"fewer than {self.options.sweep.least_samples:,}"
        elif asked == "plain":
            self.why_plain = "as asked"
        return "plain" if self.why_plain else "importance"

    def _unfocused(self, space: Space) -> str:
        """Return why importance sampling is impossible; empty if it is possible."""
        if self.method in ("grid", "table"):
            return f"a {self.method} says itself where it looks"
        if self.method != "sobol":
            return "a Latin hypercube is of the whole space"
        if len(self.cases) > 1:
            return "choices are swept, each over its whole space"
        if self.within:
            return "the neighbourhood of the optimum is sampled alone"
        if not space.coordinates:
            return "nothing varies"
        return reason_without_lattice(self.problem)

    @property
    def focuses(self) -> bool:
        """Whether importance sampling is used."""
        return self.sampling == "importance"

    @property
    def problem(self) -> Problem:
        """Design problem of the first case; all cases ask the same question about different machines."""
        return self.cases[0].problem

    @property
    def columns(self) -> Mapping[str, Sequence[float]]:
        """User-specified variables: levels of a grid, or columns of a table."""
        return self.grid or self.table

    @cached_property
    def programs(self) -> tuple[SweepProgram, ...]:
        programs = (SweepProgram(case.problem, self.metrics, self.pareto, self.constraints) for case in self.cases)
        return tuple(program_of(each, self.dtype) for each in programs)

    def sampler(self, case: int) -> Sampler:
        """Return the sequence of variants of a case; all cases share the same points of the unit cube."""
        space = self.programs[case].space
        if self.focuses:
            return self.focused(Strata.plain(space.coordinates))
        if self.method == "sobol":
            return Sobol(space.coordinates, self.samples, self.seed)
        if self.method == "lhs":
            return LatinHypercube(space.coordinates, self.samples, self.seed)
        columns = {name: np.atleast_1d(x) for name, x in space.completed(self.columns).items()}
        if self.method == "grid":
            return Grid(columns)
        return DesignTable({name: np.broadcast_to(x, self.samples) for name, x in columns.items()})

    def focused(self, levels: Strata) -> StratifiedSobol:
        """Return the sequence of variants of a sweep with importance sampling from nested boxes (`levels`)."""
        base = Sobol(levels.names, self.samples, self.seed)
        inner, plain = len(levels) - 1, self.options.sweep.plain_share
        shares = np.array([plain, *[(1.0 - plain) / inner] * inner]) if inner else np.ones(1)
        groups = min(math.ceil(self.samples / GROUP), _TURNS)
        return StratifiedSobol(base, levels.ends, levels, interleaved_strata(shares, groups, self.seed))

    def inputs(self, case: int) -> tuple[str | Input, ...]:
        """Return the variables and inputs for differentiation of the objective, in the order of `gradients`.

        **Raises:** `UserError` for unknown names.
        """
        own = self.programs[case].space.variables
        others: dict[str, Input] = {}
        if set(self.gradients) - set(own):
            others = {each.name: each for each in template_inputs(self.cases[case].problem)}
        for name in self.gradients:
            if name not in own and name not in others:
                raise UserError(
                    f"gradients: '{name}' is neither a variable nor an input: {suggest(name, [*own, *others])}"
                )
        return tuple(name if name in own else others[name] for name in self.gradients)

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables of all cases, by name."""
        return {name: each for program in self.programs for name, each in program.space.variables.items()}

    @cached_property
    def constraints(self) -> tuple[str, ...]:
        """Constraint names of all cases; the constraint numbers in a store are indices of this list."""
        return tuple(dict.fromkeys(n for case in self.cases for n in SweepProgram(case.problem, ()).constraints))

    @property
    def blocks_per_case(self) -> int:
        return math.ceil(self.samples / self.block)

    @property
    def blocks(self) -> int:
        return len(self.cases) * self.blocks_per_case

    def place(self, block: int) -> tuple[int, int, int]:
        """Return the case, the first variant, and the number of variants of a block."""
        case, number = divmod(block, self.blocks_per_case)
        first = number * self.block
        return case, first, min(self.block, self.samples - first)

    def document(self) -> dict[str, Any]:
        """Return everything that determines the results of the sweep, as plain data."""
        fields = dataclasses.asdict(self.objective) if dataclasses.is_dataclass(self.objective) else {}  # pyright: ignore
        chosen = [dict(case.chosen) for case in self.cases]
        usual = {} if self.options == SEARCH else {"options": dataclasses.asdict(self.options)}
        return (
            {name: getattr(self, name) for name in _DECIDING}
            | usual
            | {
                "objective": self.problem.name,
                "fields": {name: x for name, x in fields.items() if x != math.inf},  # an unlimited budget
                "choices": {field: list(dict.fromkeys(each[field] for each in chosen)) for field in chosen[0]},
                "table": _digest(self.table),
                "metrics": [each.name for each in self.metrics],
                "question": _digest({case.name: _numbers(case.problem) for case in self.cases}),
            }
        )

    @staticmethod
    def versions() -> dict[str, str]:
        return {"hwopt": __version__, "jax": jax.__version__, "numpy": np.__version__}


def _numbers(problem: Problem) -> list[float]:
    """Return every number of a design problem, to detect changes of user files between two runs."""
    numbers = [float(x) for leaf in jax.tree.leaves(problem.template) for x in np.ravel(leaf)]
    boxes = [x for each in problem.variables for x in (each.lower, each.upper)]
    return [*numbers, *boxes, *(each.limit for each in problem.budgets)]


def _digest(columns: Mapping[str, Sequence[float]]) -> str:
    if not columns:
        return ""
    digest = hashlib.sha256()
    for name, column in columns.items():
        digest.update(name.encode())
        digest.update(np.asarray(column, np.float64).tobytes())
    return digest.hexdigest()


def _count(what: str, value: Any) -> int:
    """Return a number of variants as an integer of 1 or more.

    **Raises:** `UserError` for anything else.
    """
    try:
        if not isinstance(value, bool) and value == int(value) and value >= 1:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(f"{what} {value}: must be a number of variants, an integer of 1 or more")


def _one_of(what: str, name: Any, known: Sequence[str]) -> str:
    if not isinstance(name, str):
        raise UserError(f"{what} {name!r}: must be text, one of {', '.join(known)}")
    if name not in known:
        raise UserError(f"{what} '{name}': {suggest(name, known)}")
    return name


def usual_metrics(problem: Problem) -> tuple[str, ...]:
    """Return the default metrics of a sweep of a problem, in addition to the objective and the budgeted metrics.

    **Raises:** `UserError` for a problem with two machines.
    """
    kind = report_type(problem.template.workload)
    if kind not in _USUAL:
        raise UserError(
            f"sweep: '{problem.name}' has two machines, but a sweep supports one: sweep a question about training or serving alone"
        )
    return _USUAL[kind]


def _metrics(problem: Problem, asked: Sequence[str], variables: Collection[str]) -> tuple[Metric, ...]:
    """Return the objective, the budgeted metrics, and the requested or else the default metrics.

    A metric with the name of a variable is left out. Its column holds the variable, which designs are read from.
    """
    shown = [name for name in asked or usual_metrics(problem) if name not in variables]
    own = {each.name: each for each in (problem.objective, *(budget.metric for budget in problem.budgets))}
    names = dict.fromkeys([*own, *shown])
    return tuple(own.get(name) or metric_of(name, problem.template.workload) for name in names)


def _cases(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    bounds: Mapping[str, tuple[float, float]],
    freeze: Sequence[str],
    as_sold: bool,
) -> tuple[SweepCase, ...]:
    """Return the cases of a sweep; over continuous hardware, a redesign, the stock part and slices of a torus are one case."""
    cases = {}
    if not as_sold and (getattr(objective, "slice", "") or "slice" in choices):
        raise UserError("slice: a sweep over free hardware has domains of any size: add --as-sold, or remove it")
    for each in combinations(objective, choices, MOST_CASES):
        problem = each.objective.problem() if as_sold else each.objective.problem().continuous
        chosen = tuple(
            pair for pair in each.chosen if as_sold or pair[0] not in ("free", "slice") or pair[0] in choices
        )
        cases.setdefault(chosen, SweepCase(chosen, problem.frozen(freeze).narrowed(bounds)))
    return tuple(cases.values())


def _near(case: SweepCase, optimum: KnownOptimum, within: float) -> SweepCase:
    """Restrict a case to a neighborhood of its optimum, clipped to the existing bounds."""
    boxes = {}
    for each in case.problem.variables:
        if each.name in optimum.design:
            value = min(max(optimum.design[each.name], each.lower), each.upper)
            boxes[each.name] = max(each.lower, value / within), min(each.upper, value * within)
    return dataclasses.replace(case, problem=case.problem.narrowed(boxes), optimum=optimum)


def _pareto(metrics: Sequence[str], asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the metrics of the front: the requested ones, or else the objective (the first metric) and a time or cost."""
    if asked is not None:
        for name in names_of("pareto", asked):
            _one_of("pareto: metric", name, metrics)
        if len(set(asked)) < len(asked) or len(asked) == 1:
            raise UserError(f"pareto {','.join(asked)}: must be two or more different metrics, all minimized")
        return tuple(asked)
    other = next((name for name in _FRONTS if name in metrics[1:]), "")
    return (metrics[0], other) if other else ()


def _map(spaces: Sequence[Space], columns: Mapping[str, Any], asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the x and y variables of the bottleneck map, common to all cases; empty if fewer than two vary."""
    free = [name for name, x in columns.items() if len(set(np.ravel(x))) > 1] if columns else spaces[0].coordinates
    free = [name for name in free if all(name in space.variables for space in spaces)]
    if asked is not None:
        asked = names_of("map", asked)
        if len(asked) != 2 or asked[0] == asked[1]:
            raise UserError(f"map {','.join(asked)}: must be two different variables, x and y")
        return tuple(_one_of("map: variable", name, free) for name in asked)
    usual = dict.fromkeys([*(name for name in _MAPS if name in free), *free])
    return tuple(usual)[:2] if len(usual) > 1 else ()


def canonical(document: Mapping[str, Any]) -> str:
    """Serialize a document as JSON, identical for equal documents; non-finite numbers become null."""
    return json.dumps(_strict(document), sort_keys=True, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _strict(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
