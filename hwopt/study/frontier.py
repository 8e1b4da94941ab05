"""Frontiers: the certified optimum of a question under every combination of some budgets, and what each budget is worth there.

With F(b) the least objective under budgets b,

    b <= b' in every budget   =>   F(b) >= F(b'),

so that a design that holds b holds b' too, a lower bound of F(b') is one of F(b), and where nothing holds b' nothing holds b.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwopt.design.metrics import Metric
from hwopt.design.problem import Problem
from hwopt.errors import UserError, suggest
from hwopt.optim.certified import PROVED
from hwopt.optim.lattices import lattice_of, without_lattice
from hwopt.optim.optimize import optimize
from hwopt.optim.solution import Solution
from hwopt.study.sweep import Progress, attributes, opened
from hwopt.study.sweep.specification import Specification, canonical, specification, usual_metrics
from hwopt.study.sweep.store import Store, alone, same_sweep, writing
from hwopt.study.sweep.summary import Summary, as_columns

if TYPE_CHECKING:
    import xarray

MOST_POINTS = 10_000
"""Combinations of levels: seconds each."""

_SAME = 1e-9
"""Relative difference of two optima of one programme."""


def frontier(
    objective: Any,
    budgets: Mapping[str, Sequence[float]],
    *,
    out: str | Path | None = None,
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> xarray.Dataset:
    """The certified optimum of a design question under every combination of levels of some of its budgets.

    Optima never grow worse with a looser budget: designs found under one are tried under all others, and bounds and proofs of
    infeasibility are handed down to tighter ones.

    **Arguments:**

    - `objective`: a design question; `budgets`: field of the question -> levels, SI.
    - `out`: folder of the Zarr store; the same call again goes on where a killed one stopped, one point lost at most, and
      ends in the same store bit for bit; a finished store is returned at once. Without it the dataset stays in memory.
    - `seconds` for each search, after which its gap is what it is; then numbers depend on the machine's speed.
    - `freeze`, `bounds`: as in `optimize`. `progress`: called after every point.

    **Returns:** an `xarray.Dataset` with a dimension for each budget, levels ascending: the objective, its `lower_bound` and
    `gap`; `feasible`; `certified`: the bound is proved, or that no design holds; `shadow_price_<budget>` and `used_<budget>`
    for all budgets of the question; the design's variables, and the usual metrics of sweeps. NaN where no design holds.

    **Raises:** `UserError` for what cannot be meant, a folder that holds something else, or a disk that fails.
    """
    with jax.enable_x64(True):
        made = _frontier(objective, budgets, seconds, tuple(freeze), bounds or {})
        if out is None:
            store = _prepared(made, None)
            _solve(made, store, progress)
            return _loaded(store)[list(made.columns)]
        folder = Path(out).expanduser().absolute()
        with alone(folder):
            store = _prepared(made, folder)
            if not store.finished:
                _solve(made, store, progress)
        return opened(folder)[list(made.columns)]


@dataclass(frozen=True)
class _Frontier:
    """A frontier, checked and complete. Points are numbered so that all looser ones come before any tighter one."""

    spec: Specification  # of the question with its loosest budgets
    levels: Mapping[str, list[float]]  # ascending
    seconds: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(x) for x in self.levels.values())

    @cached_property
    def places(self) -> np.ndarray:
        """Levels of each point (point, budget), as places in `levels`: from the loosest to the tightest."""
        return np.stack(np.unravel_index(np.arange(math.prod(self.shape))[::-1], self.shape), axis=1)

    def limits(self, point: int) -> dict[str, float]:
        return {name: x[at] for (name, x), at in zip(self.levels.items(), self.places[point], strict=True)}

    def problem(self, point: int) -> Problem:
        """The question at a point: other limits and nothing else."""
        problem, limits = self.spec.problem, self.limits(point)
        return dataclasses.replace(
            problem,
            budgets=tuple(dataclasses.replace(b, limit=limits.get(b.name, b.limit)) for b in problem.budgets),
        )

    def looser(self, point: int) -> np.ndarray:
        """Points before one whose budgets are nowhere tighter."""
        return np.flatnonzero((self.places[:point] >= self.places[point]).all(axis=1))

    def tighter(self, point: int) -> np.ndarray:
        """Points after one whose budgets are nowhere looser."""
        return point + 1 + np.flatnonzero((self.places[point + 1 :] <= self.places[point]).all(axis=1))

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The objective, then the usual ones."""
        named = {each.name: each for each in self.spec.metrics}
        problem = self.spec.problem
        names = dict.fromkeys((problem.objective.name, *usual_metrics(problem.template.workload)))
        return tuple(named[name] for name in names)

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Attributes of each number of a point, by name."""
        problem = self.spec.problem
        goal, *others = self.metrics
        unit = goal.unit or "1"
        bound = {"units": unit, "long_name": f"lower bound of {attributes.words(goal.name)}"}
        made: dict[str, dict[str, Any]] = {
            goal.name: attributes.of_metric(goal),
            "lower_bound": bound,
            "gap": {"units": "1", "long_name": "relative distance from the lower bound"},
            "feasible": {"units": "1", "long_name": "a design that holds all constraints was found"},
            "certified": {"units": "1", "long_name": "the bound is proved, or that no design holds all constraints"},
        }
        for each in problem.budgets:
            words = attributes.words(each.name)
            price = {"units": f"{unit}/{each.metric.unit}", "long_name": f"shadow price of {words}"}
            made[f"shadow_price_{each.name}"] = price
            used = {"units": each.metric.unit, "long_name": f"{attributes.words(each.metric.name)} used of {words}"}
            made[f"used_{each.name}"] = used
        kept = (each for each in problem.variables if each.category != "rounding")
        made |= {each.name: attributes.of_variable(each) for each in kept if each.name not in made}
        return made | {each.name: attributes.of_metric(each) for each in others}

    def numbers(self, solution: Solution) -> np.ndarray:
        """What is kept of an answer, in the order of `columns`."""
        made = dict.fromkeys(self.columns, math.nan)
        proof = solution.certificate
        proved = proof.lower_bound is not None if solution.feasible else solution.clash.startswith(PROVED)
        made |= {"feasible": float(solution.feasible), "certified": float(proved)}
        if solution.feasible:
            made |= {name: each.value for name, each in solution.design.items()}
            for each in solution.budgets:
                made |= {f"shadow_price_{each.name}": each.shadow_price, f"used_{each.name}": each.used}
            made |= {each.name: float(each.value(solution.report)) for each in self.metrics}
            if proof.lower_bound is not None:
                made |= {"lower_bound": proof.lower_bound, "gap": proof.gap}
        return np.array([made[name] for name in self.columns])

    def column(self, numbers: np.ndarray, name: str) -> np.ndarray:
        """A number of all points (point,), where it can be changed."""
        return numbers[:, list(self.columns).index(name)]

    def document(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain data."""
        whole = self.spec.document()
        kept = ("objective", "fields", "bounds", "freeze", "metrics", "platform", "question")
        return {name: whole[name] for name in kept} | {
            "method": "frontier",
            "budgets": dict(self.levels),
            "seconds": self.seconds,
        }

    def attributes(self) -> dict[str, Any]:
        """Attributes of the dataset."""
        problem = self.spec.problem
        return {
            "title": problem.name,
            "question": f"{problem.question}; and within less: {', '.join(self.levels)}",
            "objective": problem.objective.name,
            "objective_unit": problem.objective.unit,
            "metrics": " ".join(each.name for each in self.metrics),
            "variables": " ".join(v.name for v in problem.variables if v.category != "rounding"),
            "budgets": " ".join(each.name for each in problem.budgets),
            "method": "frontier",
            "configuration": canonical(self.document()),
            "versions": canonical(self.spec.versions()),
            "sources": "\n".join(dict.fromkeys(problem.sources)),
        }


def _frontier(
    objective: Any,
    budgets: Mapping[str, Sequence[float]],
    seconds: float,
    freeze: tuple[str, ...],
    bounds: Mapping[str, tuple[float, float]],
) -> _Frontier:
    """A frontier from what its caller says.

    **Raises:** `UserError` for whatever cannot be meant.
    """
    if not seconds > 0:
        raise UserError(f"frontier: seconds = {seconds} for each search must be positive")
    if not dataclasses.is_dataclass(objective) or isinstance(objective, Problem):
        raise UserError(
            "frontier: name a design question with budgets as fields, such as hwopt.objective('train_cost')"
        )
    fields = {each.name for each in dataclasses.fields(objective)}
    levels = {name: _levels(name, given) for name, given in budgets.items()}
    if not levels:
        raise UserError("frontier: name a budget and its levels, such as power_budget_w")
    for name in levels:
        if name not in fields:
            known = [field for field in fields if "budget" in field]
            raise UserError(f"frontier: '{name}' is no field of the question: {suggest(name, known)}")
    count = math.prod(len(x) for x in levels.values())
    if count > MOST_POINTS:
        raise UserError(f"frontier: {count:,} combinations of levels; at most {MOST_POINTS:,}")
    asked: Any = dataclasses.replace(objective, **{name: x[-1] for name, x in levels.items()})  # pyright: ignore
    spec = specification(asked, 1, bounds=bounds, freeze=freeze, dtype="float64")
    limits = {each.name: each.limit for each in spec.problem.budgets}
    for name, x in levels.items():
        if limits.get(name) != x[-1]:
            raise UserError(f"frontier: '{name}' is no budget of the question: {suggest(name, limits)}")
    return _Frontier(spec, levels, float(seconds))


def _levels(name: str, given: Sequence[float]) -> list[float]:
    """Levels, ascending."""
    values = sorted(float(x) for x in np.ravel(given))
    if not values or not all(math.isfinite(x) and x > 0 for x in values):
        raise UserError(f"frontier: levels of '{name}' must be positive, finite numbers, one at least")
    if len(set(values)) < len(values):
        raise UserError(f"frontier: a level of '{name}' stands twice")
    return values


def _prepared(made: _Frontier, folder: Path | None) -> Store:
    """The store of a frontier, new or as it was left."""
    attrs = made.attributes()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UserError(f"sweep: {folder} is a file; a frontier needs a folder")
    if folder is None or not folder.exists() or not any(folder.iterdir()):
        columns = lattice_of(made.spec.problem).COORDINATES
        example = {"numbers": np.zeros(len(made.columns)), "point": np.zeros(len(columns), np.int64)}
        return Store.created(folder, attrs, {}, example, len(made.places))
    with writing(folder, lambda: "nothing was changed"):
        store = Store.opened(folder)
    held = store.attributes
    differing = same_sweep(str(held.get("configuration", "{}")), attrs["configuration"])
    if differing:
        raise UserError(
            f"sweep: {folder} holds another sweep (it differs in {', '.join(differing)}): choose another --out"
        )
    if not store.finished:
        changed = ", ".join(same_sweep(str(held.get("versions", "{}")), attrs["versions"]))
        if changed:
            raise UserError(
                f"sweep: {folder} was begun by other versions of {changed}: finish it with those, or choose another --out"
            )
        with writing(folder, lambda: "nothing was changed"):
            store.sweep_up()
    return store


def _loaded(store: Store) -> xarray.Dataset:
    """A store in memory as xarray reads it."""
    import xarray

    return xarray.open_zarr(store.group.store, consolidated=False, chunks=None).load()


def _solve(made: _Frontier, store: Store, tell: Callable[[Progress], None] | None) -> None:
    """Solve the points that are not done, in their order, and write the summary.

    A point depends on those before it and on nothing else, so that an interruption changes no number.
    """
    todo = np.flatnonzero(~store.done())
    left = store.partials()
    numbers, points = left["numbers"], left["point"]
    goal, begun = made.column(numbers, made.metrics[0].name), time.monotonic()

    def kept() -> str:
        return f"{int(store.done().sum())} of {len(numbers)} points are kept"

    with writing(store.folder, kept):
        for count, at in enumerate(todo, 1):
            numbers[at], points[at] = _answer(made, int(at), numbers[:at], points[:at])
            store.write(int(at), (), {}, {"numbers": numbers[at], "point": points[at]})
            if tell is not None:
                best = float(np.nanmin(goal[: at + 1], initial=math.inf))
                tell(Progress(count, len(todo), time.monotonic() - begun, best))
        _improve(made, numbers, points)
        _hand_down(made, numbers)
        store.finish(as_columns(_summary(made, numbers)), {"finished": 1})


def _answer(made: _Frontier, at: int, numbers: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and whole numbers of a point, from those of the points before it.

    What a looser point proved infeasible is so here; a looser point's optimum that holds here too is the optimum here. Else a
    search, from all designs found so far.
    """
    feasible, certified = (made.column(numbers, name) > 0 for name in ("feasible", "certified"))
    looser = made.looser(at)
    proved = looser[certified[looser]]
    impossible = proved[~feasible[proved]]
    if len(impossible):
        return numbers[impossible[0]].copy(), points[impossible[0]].copy()
    limits = made.limits(at)
    used = np.stack([made.column(numbers, f"used_{name}") for name in limits], axis=1)
    same = made.places[proved] == made.places[at]  # what binds there is used up to the last bit, or a bit more
    holding = proved[(same | (used[proved] <= list(limits.values()))).all(axis=1)]
    if len(holding):
        best = holding[np.argmin(made.column(numbers, made.metrics[0].name)[holding])]
        return numbers[best].copy(), points[best].copy()
    problem = made.problem(at)
    solution = optimize(problem, seconds=made.seconds, designs=_designs(points), mending=False)
    return _found(made, problem, solution)


def _found(made: _Frontier, problem: Problem, solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and whole numbers of an answer; zeros where there are none to start others from."""
    whole = solution.feasible and not without_lattice(problem)
    point = (
        lattice_of(problem).point(solution.built) if whole else np.zeros(len(lattice_of(problem).COORDINATES), np.int64)
    )
    return made.numbers(solution), point


def _designs(points: np.ndarray) -> list[np.ndarray]:
    """Different designs among points."""
    return list(np.unique(points[points.any(axis=1)], axis=0))


def _improve(made: _Frontier, numbers: np.ndarray, points: np.ndarray) -> None:
    """Let no point be worse than a tighter one, as it may be within its gap: the tighter one's design under its own budgets."""
    goal, certified = (made.column(numbers, name) for name in (made.metrics[0].name, "certified"))
    for at in range(len(numbers) - 1, -1, -1):
        tighter = made.tighter(at)
        tighter = tighter[points[tighter].any(axis=1) & (certified[tighter] > 0)]
        if not len(tighter) or not goal[tighter].min() < np.nan_to_num(goal[at], nan=math.inf) * (1.0 - _SAME):
            continue
        bound = made.column(numbers, "lower_bound")[at]
        problem = made.problem(at)
        # No second search: its one round bounds the designs that it is given.
        found, point = _found(made, problem, optimize(problem, seconds=0.0, designs=_designs(points[tighter])))
        if made.column(found[None], "feasible")[0] and not made.column(found[None], made.metrics[0].name)[0] > goal[at]:
            numbers[at], points[at] = found, point
            held = made.column(numbers, "lower_bound")
            held[at] = np.fmax(held[at], bound)


def _hand_down(made: _Frontier, numbers: np.ndarray) -> None:
    """Let every point have the best bound of all looser ones; a gap, and whether it is certified, follow."""
    goal, bound = (made.column(numbers, name) for name in (made.metrics[0].name, "lower_bound"))
    certified = made.column(numbers, "certified")
    for at in map(int, np.flatnonzero(np.isfinite(goal))):
        best = np.fmax.reduce(bound[[*made.looser(at), at]])
        bound[at] = min(best, goal[at]) if np.isfinite(best) else best
        certified[at] = float(np.isfinite(best))
    made.column(numbers, "gap")[:] = goal / bound - 1.0


def _summary(made: _Frontier, numbers: np.ndarray) -> Summary:
    """Arrays of the root: levels, and what was found at each point."""
    dims = tuple(made.levels)
    metrics = {each.name: each.metric for each in made.spec.problem.budgets}
    held: Summary = {}
    for name, x in made.levels.items():
        attrs = {"units": metrics[name].unit, "long_name": attributes.words(name), "meaning": metrics[name].meaning}
        held[name] = ((name,), np.array(x), attrs)
    for name, attrs in made.columns.items():
        values = made.column(numbers, name)[::-1].reshape(made.shape)
        held[name] = (dims, values.astype(np.int8) if name in ("feasible", "certified") else values, attrs)
    return held
