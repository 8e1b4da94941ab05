"""Pareto frontiers: the certified optimum and the shadow prices for every combination of levels of some budgets.

Let F(b) be the least objective under budgets b. Then

    b <= b' in every budget   =>   F(b) >= F(b').

Three rules follow. A design feasible at b is feasible at b'. A lower bound of F(b') is a lower bound of F(b). If b' is
infeasible, so is b.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwopt.analysis.best_of_frontiers import best_of
from hwopt.design.choices import combinations, refusal, refuse_strange
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.metrics import Metric
from hwopt.design.problem import Problem
from hwopt.errors import UserError, suggest
from hwopt.options import options_of
from hwopt.solver.optimize import optimize
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution
from hwopt.sweeps import Progress
from hwopt.sweeps.attributes import number, of_metric, of_root, of_variable
from hwopt.sweeps.entry import stored
from hwopt.sweeps.integrity import open_to_resume
from hwopt.sweeps.specification import Specification, canonical, usual_metrics
from hwopt.sweeps.storage import Place, place_of
from hwopt.sweeps.store import Store, Summary, writing
from hwopt.units import label
from hwopt.validation import boxes_of, check_question, check_seconds, names_of, number_of

if TYPE_CHECKING:
    import xarray

MOST_POINTS = 10_000
"""Maximum number of combinations of budget levels; each takes seconds."""

MOST_CHOICES = 64
"""Maximum number of combinations of choices; each takes a frontier of its own."""

_SAME = 1e-9
"""Relative difference below which two optima of one convex program count as equal."""


def frontier(
    objective: Any,
    budgets: Mapping[str, Sequence[float]],
    *,
    out: str | Place | None = None,
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    progress: Callable[[Progress], None] | None = None,
    options: SearchOptions | None = None,
) -> xarray.Dataset:
    """Compute the certified optimum of a design question for every combination of levels of some of its budgets.

    Optima never get worse with a looser budget. Designs found at one level are therefore tried at all others. Lower bounds and
    proofs of infeasibility are passed on to tighter levels.

    **Arguments:**

    - `objective`: a design question.
    - `budgets`: levels (SI units) of each budget, by the name of the question's field.
    - `out`: folder of the Zarr store. The same call again resumes an interrupted one; at most one point is lost, and the final
      store is identical bit for bit. A finished store is returned at once. Without `out` the dataset stays in memory.
    - `seconds`: time limit of each search. A search that reaches it keeps its gap, and results then depend on the machine's
      speed.
    - `freeze`, `bounds`, `options`: as in `optimize`.
    - `choices`: as in `optimize`. Each point gets the best combination, named in the variable `choice`. Each combination is
      stored in its own folder below `out`.
    - `progress`: function called after every point.

    **Returns:** an `xarray.Dataset` with one dimension for each budget, levels ascending. Where no design is feasible, values
    are NaN. Its variables:

    - the objective, its `lower_bound` and `gap`;
    - `feasible`: whether a feasible design was found;
    - `certified`: whether the bound is proved, or that no design is feasible;
    - `shadow_price_<budget>` and `used_<budget>` for all budgets of the question;
    - the design's variables, and the usual metrics of sweeps.

    **Raises:** `UserError` for contradictory arguments, for a folder with other contents, and for a disk that fails.
    """
    if choices:
        return _of_choices(
            objective,
            budgets,
            choices,
            out,
            seconds=seconds,
            freeze=freeze,
            bounds=bounds,
            progress=progress,
            options=options,
        )
    with jax.enable_x64(True):
        search = options_of("frontier", options, SearchOptions)
        grid = _Grid(objective, budgets, seconds, names_of("freeze", freeze), boxes_of(bounds or {}), search)

        def complete(store: Store) -> None:
            if jax.process_index() == 0:
                _solve(grid, store, progress)

        return stored(out, grid.store, complete)[list(grid.columns)]


def _of_choices(
    objective: Any,
    budgets: Mapping[str, Sequence[float]],
    choices: Mapping[str, Sequence[str]],
    out: str | Place | None,
    **same: Any,
) -> xarray.Dataset:
    """Compute a frontier for each combination of choices and merge them into the best at every point."""
    check_question(objective, "frontier")
    asked = combinations(objective, choices, MOST_CHOICES)
    refused = {each.name: refusal(each.objective.problem) for each in asked}
    refuse_strange([(each.chosen, refused[each.name]) for each in asked], choices)
    stated = [each for each in asked if not refused[each.name]]
    folders = [None if out is None else place_of("frontier: out", out) / each.name for each in stated]
    frontiers = [frontier(x.objective, budgets, out=folder, **same) for x, folder in zip(stated, folders, strict=True)]
    return best_of(frontiers, [each.name for each in stated])


class _Grid:
    """All combinations of budget levels, validated. Points are numbered so that every looser point precedes the tighter ones.

    **Arguments:** as in `frontier`.

    **Raises:** `UserError` for invalid arguments.
    """

    def __init__(
        self,
        objective: Any,
        budgets: Mapping[str, Sequence[float]],
        seconds: float,
        freeze: tuple[str, ...],
        bounds: Mapping[str, tuple[float, float]],
        options: SearchOptions = SEARCH,
    ):
        self.options = options
        self.seconds = check_seconds(seconds, "frontier")
        check_question(objective, "frontier")
        if not dataclasses.is_dataclass(objective) or isinstance(objective, Problem):
            raise UserError(
                "frontier: name a design question with budgets as fields, such as hwopt.objective('train_cost')"
            )
        if not isinstance(budgets, Mapping):
            raise UserError("frontier: pass budgets as a dictionary, such as {'power_budget_w': [30e6, 60e6]}")
        fields = {each.name for each in dataclasses.fields(objective)}
        self.levels = {name: _levels(name, levels) for name, levels in budgets.items()}  # ascending
        if not self.levels:
            raise UserError("frontier: name a budget and its levels, such as power_budget_w")
        for name in self.levels:
            if name not in fields:
                known = [field for field in fields if "budget" in field]
                raise UserError(f"frontier: '{name}' is not a field of the question: {suggest(name, known)}")
        self.shape = tuple(len(x) for x in self.levels.values())
        count = math.prod(self.shape)
        if count > MOST_POINTS:
            raise UserError(f"frontier: {count:,} combinations of levels; at most {MOST_POINTS:,}")
        loosest: Any = dataclasses.replace(objective, **{name: x[-1] for name, x in self.levels.items()})  # pyright: ignore
        self.spec = Specification(loosest, 1, bounds=bounds, freeze=freeze, dtype="float64", options=options)
        self.loosest = self.spec.problem
        limits = {each.name: each.limit for each in self.loosest.budgets}
        for name, x in self.levels.items():
            if limits.get(name) != x[-1]:
                raise UserError(f"frontier: '{name}' is not a budget of the question: {suggest(name, limits)}")
        # Index into `levels` of each point and budget (point, budget), from the loosest point to the tightest.
        self.places = np.stack(np.unravel_index(np.arange(count)[::-1], self.shape), axis=1)

    def limits(self, point: int) -> dict[str, float]:
        return {name: x[at] for (name, x), at in zip(self.levels.items(), self.places[point], strict=True)}

    def problem(self, point: int) -> Problem:
        """Return the question at a point. Only the limits of its budgets differ."""
        limits = self.limits(point)
        budgets = (dataclasses.replace(each, limit=limits.get(each.name, each.limit)) for each in self.loosest.budgets)
        return dataclasses.replace(self.loosest, budgets=tuple(budgets))

    def looser(self, point: int) -> np.ndarray:
        """Return the earlier points whose budgets are all at least as loose."""
        return np.flatnonzero((self.places[:point] >= self.places[point]).all(axis=1))

    def tighter(self, point: int) -> np.ndarray:
        """Return the later points whose budgets are all at least as tight."""
        return point + 1 + np.flatnonzero((self.places[point + 1 :] <= self.places[point]).all(axis=1))

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The objective, then the usual metrics of sweeps."""
        named = {each.name: each for each in self.spec.metrics}
        return tuple(named[n] for n in dict.fromkeys((self.loosest.objective.name, *usual_metrics(self.loosest))))

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Attributes of each stored number of a point, by name."""
        goal, *others = self.metrics
        unit = goal.unit or "1"
        columns = {
            goal.name: of_metric(goal),
            "lower_bound": number(f"lower bound of {label(goal.name, goal.unit)}", unit),
            "gap": number("relative distance from the lower bound"),
            "feasible": number("a design that satisfies all constraints was found"),
            "certified": number("the bound is proved, or that no design satisfies all constraints"),
        }
        for each in self.loosest.budgets:
            metric, words = each.metric, label(each.name, each.metric.unit)
            used = f"{label(metric.name, metric.unit)} used of {words}"
            columns[f"shadow_price_{each.name}"] = number(f"shadow price of {words}", f"{unit}/{metric.unit}")
            columns[f"used_{each.name}"] = number(used, metric.unit)
        for name, each in self.spec.variables.items():
            columns.setdefault(name, of_variable(each))
        return columns | {each.name: of_metric(each) for each in others}

    def numbers(self, solution: Solution) -> np.ndarray:
        """Return the stored numbers of a solution, in the order of `columns`."""
        numbers = dict.fromkeys(self.columns, math.nan)
        proof = solution.certificate
        proved = proof.lower_bound is not None if solution.feasible else solution.outcome is Outcome.infeasible
        numbers |= {"feasible": float(solution.feasible), "certified": float(proved)}
        if solution.feasible:
            numbers |= {name: each.value for name, each in solution.design.items()}
            for each in solution.budgets:
                numbers |= {f"shadow_price_{each.name}": each.shadow_price, f"used_{each.name}": each.used}
            numbers |= {each.name: float(each.value(solution.report)) for each in self.metrics}
            if proof.lower_bound is not None:
                numbers |= {"lower_bound": proof.lower_bound, "gap": proof.gap}
        return np.array([numbers[name] for name in self.columns])

    def column(self, numbers: np.ndarray, name: str) -> np.ndarray:
        """Return one number of all points, shape (point,), as a writable view."""
        return numbers[:, list(self.columns).index(name)]

    def store(self, folder: Place | None) -> Store:
        """Create the store of the frontier, or open one to resume."""
        whole, problem = self.spec.document(), self.loosest
        kept = ("objective", "fields", "bounds", "freeze", "metrics", "platform", "question")
        document = {name: whole[name] for name in kept}
        document |= {name: whole[name] for name in ("options",) if name in whole}
        document |= {"method": "frontier", "budgets": self.levels, "seconds": self.seconds}
        if store := open_to_resume(folder, canonical(document), canonical(self.spec.versions())):
            return store
        attrs = of_root(
            self.spec,
            document,
            question=f"{problem.question}; and within less: {', '.join(self.levels)}",
            metrics=" ".join(each.name for each in self.metrics),
            budgets=" ".join(each.name for each in problem.budgets),
            method="frontier",
        )
        integers = np.zeros(len(lattice_of(problem).names), np.int64)
        example = {"numbers": np.zeros(len(self.columns)), "point": integers}
        return Store.created(folder, attrs, {}, example, len(self.places))


def _levels(name: str, levels: Sequence[float]) -> list[float]:
    """Return the levels as sorted floats. Raise `UserError` where one is not positive and finite, or repeated."""
    values = sorted(number_of(f"frontier: {name}", x) for x in np.ravel(np.asarray(levels, object)))
    if not values or not all(math.isfinite(x) and x > 0 for x in values):
        raise UserError(f"frontier: levels of '{name}' must be positive, finite numbers, at least one")
    if len(set(values)) < len(values):
        raise UserError(f"frontier: level listed twice for '{name}'")
    return values


def _solve(grid: _Grid, store: Store, tell: Callable[[Progress], None] | None) -> None:
    """Solve the points that are not done, in order, and write the summary.

    A point depends only on the points before it, so that an interruption changes no result.
    """
    todo = np.flatnonzero(~store.done())
    partials = store.partials()
    numbers, points = partials["numbers"], partials["point"]
    goal, begun = grid.column(numbers, grid.metrics[0].name), time.monotonic()

    def kept() -> str:
        return f"{int(store.done().sum())} of {len(numbers)} points are kept"

    with writing(store.folder, kept):
        for count, at in enumerate(map(int, todo), 1):
            numbers[at], points[at] = _answer(grid, at, numbers[:at], points[:at])
            store.write(at, (), {}, {"numbers": numbers[at], "point": points[at]})
            if tell is not None:
                best = float(np.nanmin(goal[: at + 1], initial=math.inf))
                tell(Progress(count, len(todo), time.monotonic() - begun, best))
        _improve(grid, numbers, points)
        _hand_down(grid, numbers)
        store.finish(_summary(grid, numbers), {"finished": 1})


def _answer(grid: _Grid, at: int, numbers: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and integers of a point, given those of all earlier points.

    If a looser point is proved infeasible, so is this one. If the optimum of a looser point is feasible here, it is the optimum
    here. Otherwise a search runs, warm-started from all known designs.
    """
    feasible, certified = (grid.column(numbers, name) > 0 for name in ("feasible", "certified"))
    looser = grid.looser(at)
    proved = looser[certified[looser]]
    impossible = proved[~feasible[proved]]
    if len(impossible):
        return numbers[impossible[0]].copy(), points[impossible[0]].copy()
    limits = grid.limits(at)
    used = np.stack([grid.column(numbers, f"used_{name}") for name in limits], axis=1)
    same = grid.places[proved] == grid.places[at]  # a binding budget may be used up to the last bit, or slightly beyond
    holding = proved[(same | (used[proved] <= list(limits.values()))).all(axis=1)]
    if len(holding):
        best = holding[np.argmin(grid.column(numbers, grid.metrics[0].name)[holding])]
        return numbers[best].copy(), points[best].copy()
    problem = grid.problem(at)
    solution = optimize(problem, seconds=grid.seconds, designs=_designs(points), explain=False, options=grid.options)
    return _stored(grid, problem, solution)


def _stored(grid: _Grid, problem: Problem, solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and integers of a solution. Without a design, the integers are zeros."""
    lattice = lattice_of(problem)
    if solution.feasible and not reason_without_lattice(problem):
        return grid.numbers(solution), lattice.point(design_values(solution))
    return grid.numbers(solution), np.zeros(len(lattice.names), np.int64)


def _designs(points: np.ndarray) -> list[np.ndarray]:
    """Return the distinct designs among points."""
    return list(np.unique(points[points.any(axis=1)], axis=0))


def _improve(grid: _Grid, numbers: np.ndarray, points: np.ndarray) -> None:
    """Replace the design of a point where a tighter point has a better one, which can happen within the optimality gap.

    The tighter point's design is then re-solved with its integers fixed, under the looser budgets.
    """
    goal, bound, proved = (grid.column(numbers, n) for n in (grid.metrics[0].name, "lower_bound", "certified"))
    for at in range(len(numbers) - 1, -1, -1):
        tighter = grid.tighter(at)
        tighter = tighter[points[tighter].any(axis=1) & (proved[tighter] > 0)]
        if not len(tighter) or not goal[tighter].min() < np.nan_to_num(goal[at], nan=math.inf) * (1.0 - _SAME):
            continue
        problem, old = grid.problem(at), bound[at]
        # A node limit of 0: only the given designs are evaluated.
        solution = solve_global(
            problem, designs=_designs(points[tighter]), most_boxes=0, explain=False, options=grid.options
        )
        if solution.feasible and not solution.objective > goal[at]:
            numbers[at], points[at] = _stored(grid, problem, solution)
            bound[at] = np.fmax(bound[at], old)


def _hand_down(grid: _Grid, numbers: np.ndarray) -> None:
    """Give every point the best lower bound of all looser points; update its gap and whether it is certified."""
    goal, bound = (grid.column(numbers, name) for name in (grid.metrics[0].name, "lower_bound"))
    certified = grid.column(numbers, "certified")
    for at in map(int, np.flatnonzero(np.isfinite(goal))):
        best = np.fmax.reduce(bound[[*grid.looser(at), at]])
        bound[at] = min(best, goal[at]) if np.isfinite(best) else best
        certified[at] = float(np.isfinite(best))
    grid.column(numbers, "gap")[:] = goal / bound - 1.0


def _summary(grid: _Grid, numbers: np.ndarray) -> Summary:
    """Return the arrays of the store's root: the levels, and the answer at each point."""
    metrics = {each.name: each.metric for each in grid.loosest.budgets}
    arrays: Summary = {}
    for name, x in grid.levels.items():
        unit = metrics[name].unit
        arrays[name] = (name, x, number(label(name, unit), unit) | {"meaning": metrics[name].meaning})
    for name, attrs in grid.columns.items():
        values = grid.column(numbers, name)[::-1].reshape(grid.shape)
        flag = name in ("feasible", "certified")
        arrays[name] = (" ".join(grid.levels), values.astype(np.int8) if flag else values, attrs)
    return arrays
