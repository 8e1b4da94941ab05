"""Certified optima against independent solvers: SciPy on the exact model, CVXPY on the arrays, enumeration, evolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import differential_evolution, linprog, minimize

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.design.metrics import METRICS
from hwopt.design.problem import Problem, ProblemForm, evaluate
from hwopt.integers import counting
from hwopt.integers.boxes import Boxes
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import solve_leaf
from tests.in_numpy import once
from tests.rotation import rotated, shared_out
from tests.unit.gp.test_canonical import GOOD, designs_near

QUESTIONS = ("train_cost", "train_time", "train_energy", "carbon", "tokens_per_dollar")
LIMITED = (
    "run_time_s",
    "capex_usd",
    "peak_power_w",
    "run_cost_usd",
    "run_energy_j",
    "run_carbon_kg",
    "cost_per_token_usd",
)


@cache
def problem_of(name: str) -> Problem:
    """A question; the default one a little looser, so that many designs satisfy its budgets."""
    with jax.enable_x64(True):
        kind = type(hwopt.objective(name))
        alike = {field: "none" for field in ("recompute", "offload") if hasattr(kind, field)}
        problem = hwopt.objective(name, **alike).problem().continuous
        problem = problem.narrowed({name: (1.0, 1.0) for name in ("cp", "zero") if alike})
    return with_limits(problem, [1.3 * each.limit for each in problem.budgets]) if name == "train_cost" else problem


def with_limits(problem: Problem, limits) -> Problem:
    pairs = zip(problem.budgets, limits, strict=True)
    return replace(problem, budgets=tuple(replace(each, limit=float(limit)) for each, limit in pairs))


@cache
def leaves(name: str, count: int) -> tuple[np.ndarray, ...]:
    """Designs of a question's lattice that can satisfy its budgets."""
    problem = problem_of(name)
    lattice = lattice_of(problem)
    points = designs_near(lattice, np.random.default_rng(3), 250)
    known = bound_nodes(NodeRelaxations(problem, lattice), Boxes(points, points))
    answers, lower = known.answers, known.lower
    held = np.flatnonzero((answers.status == SolveStatus.solved) & np.isfinite(lower))
    return tuple(points[held[:count]])


def leaf_of(problem: Problem, point: np.ndarray):
    """Programme, answers, logarithm of the optimum."""
    programme, answers = solve_leaf(NodeRelaxations(problem, lattice_of(problem)), point)
    assert not programme.relaxed
    assert answers.status[0] == SolveStatus.solved
    return programme, answers, float(answers.objective[0] + programme.constant[0])


# The exact model.


def values_and_slopes(places: tuple):
    """Logarithms of all metrics of interest and all margins, and their slopes."""
    form = ProblemForm(places, METRICS["run_cost_usd"], tuple((name, METRICS[name]) for name in LIMITED))

    def both(template, y):
        def values(y):
            used = evaluate(form, template, y, jnp.ones(len(LIMITED)), None).constraints
            return jnp.where(jnp.isneginf(used), -100.0, used)  # limits that do not apply: SciPy wants numbers

        return values(y), jax.jacfwd(values)(y)

    return both


@cache
def compiled(places: tuple):
    """One program for all questions."""
    return jax.jit(values_and_slopes(places))


class Exact:
    """The exact model of a question at integers that are fixed, in the logarithms of what stays free."""

    def __init__(self, problem: Problem, point: np.ndarray, program: Callable | None = None):
        self.program = program or compiled(problem.form.places)
        self.problem, design = problem, lattice_of(problem).design(point)
        self.integers = np.array([math.log(design.get(each.name, 1.0)) for each in problem.variables])
        self.free = [i for i, each in enumerate(problem.variables) if each.name not in design]
        box = [problem.variables[i] for i in self.free]
        self.bounds = np.log([[each.lower, each.upper] for each in box])
        self.names = [each.name for each in box]
        at = [LIMITED.index(each.metric.name) for each in problem.budgets]
        self.goal = LIMITED.index(problem.objective.name)
        self.shift = np.log([each.limit for each in problem.budgets])
        self.budgets = at
        self._last: tuple = (None, None)

    def _of(self, x, which: int) -> np.ndarray:
        key = x.tobytes()
        if self._last[0] != key:
            y = self.integers.copy()
            y[self.free] = x
            with jax.enable_x64(True):
                made = self.program(self.problem.template, jnp.asarray(y))
            self._last = key, tuple(np.asarray(each) for each in made)
        return self._last[1][which]

    def values(self, x) -> tuple[float, np.ndarray]:
        """Objective; what must not be above 0."""
        all_ = self._of(x, 0)
        return all_[self.goal], np.append(all_[self.budgets] - self.shift, all_[len(LIMITED) :])

    def slopes(self, x) -> tuple[np.ndarray, np.ndarray]:
        all_ = self._of(x, 1)[:, self.free]
        return all_[self.goal], np.vstack([all_[self.budgets], all_[len(LIMITED) :]])

    def slsqp(self, start: np.ndarray) -> tuple[float, float]:
        """Objective and largest violation where SciPy ends."""
        x = minimize(
            lambda x: self.values(x)[0], np.clip(start, *self.bounds.T), jac=lambda x: self.slopes(x)[0],
            bounds=self.bounds, method="SLSQP", options={"maxiter": 60, "ftol": 1e-12},
            constraints={"type": "ineq", "fun": lambda x: -self.values(x)[1], "jac": lambda x: -self.slopes(x)[1]},
        ).x.clip(*self.bounds.T)  # fmt: skip
        goal, rows = self.values(x)
        return float(goal), float(rows.max())

    def cutting_planes(self, x: np.ndarray, box: np.ndarray) -> tuple[float, float]:
        """The same in a box by linear programmes over the tangents met (Kelley), which kinks do not stop."""
        cuts, best = [], (math.inf, math.inf)
        count = len(x)
        for _ in range(80):
            (goal, rows), (slope, slopes) = self.values(x), self.slopes(x)
            if rows.max() <= 1e-7 and goal < best[0]:
                best = float(goal), float(rows.max())
            tangents = np.column_stack([np.vstack([slope, slopes]), -(np.arange(len(rows) + 1) == 0).astype(float)])
            cuts.append((tangents, tangents[:, :count] @ x - np.append(goal, rows)))
            found = linprog(
                np.append(np.zeros(count), 1.0), np.vstack([a for a, _ in cuts]), np.concatenate([b for _, b in cuts]),
                bounds=[*box, (None, None)],
            )  # fmt: skip
            if found.status or best[0] - found.fun < 1e-7:
                break
            x = found.x[:count].clip(*box.T)
        return best


def free_values(exact: Exact, programme, answers) -> np.ndarray:
    """Logarithms of the free variables at an answer; ones that nothing depends on at their lower end."""
    at = dict(zip(programme.names, answers.y[0], strict=True))
    return np.array([at.get(name, low) for name, low in zip(exact.names, exact.bounds[:, 0], strict=True)])


def check_against_slsqp(problem: Problem, point: np.ndarray, starts: int, seed: int = 0) -> tuple[float, float, float]:
    """Relative distance from the optimum: of SLSQP from it, of SLSQP from elsewhere, of cutting planes near it."""
    programme, answers, optimum = leaf_of(problem, point)
    exact = Exact(problem, point)
    answer = free_values(exact, programme, answers)
    goal, rows = exact.values(answer)
    assert goal == pytest.approx(optimum, abs=1e-6)
    assert rows.max() <= 1e-6
    random = np.random.default_rng(seed)
    others = [answer + random.normal(0, 0.2, len(answer)), *random.uniform(*exact.bounds.T, (starts, len(answer)))]
    # Far from designs that hold the clock, the exact model is not the convex one: tangents there are none here.
    near = np.stack([answer - 0.2, answer + 0.2], axis=1).clip(exact.bounds[:, :1], exact.bounds[:, 1:])
    ends = [exact.slsqp(answer), *map(exact.slsqp, others), exact.cutting_planes(random.uniform(*near.T), near)]
    feasible = [end[0] if end[1] <= 1e-7 else math.inf for end in ends]
    bound = float(answers.bound[0] + programme.constant[0])
    assert min(feasible) >= bound - 1e-6  # multipliers times what SciPy exceeds
    return min(feasible[0], goal) - optimum, min(feasible[1:-1]) - optimum, feasible[-1] - optimum


@pytest.mark.search
@pytest.mark.parametrize("name", shared_out(QUESTIONS, 3))
def test_the_exact_model_has_the_same_optimum(name):
    points = leaves(name, 4 if name == "train_cost" else 1)
    assert points
    for point in points:
        near, far, planes = check_against_slsqp(problem_of(name), point, starts=1)
        print(name, point, f"SLSQP less optimum: {near:.1e} from it, {far:.1e} from elsewhere; planes {planes:.1e}")
        assert abs(near) <= 1e-5
        assert abs(planes) <= 1e-5
        assert far >= -1e-6  # it gets stuck on kinks


# The arrays.


def by_cvxpy(cvxpy, programme) -> float:
    """Logarithm of the optimum: log-sum-exp and exponential cones, as the arrays say."""
    form, given = programme.structure, programme.numbers
    y = cvxpy.Variable(form.exponents.shape[1])
    rows = [y >= given.lower[0], y <= given.upper[0]]
    for k, target in enumerate(form.target):
        at = np.flatnonzero((form.group == k) & np.isfinite(given.constants[0]))
        if not len(at):
            continue
        z = form.exponents[at] @ y + given.constants[0, at]
        if target >= 0:
            rows.append(cvxpy.sum(cvxpy.exp(z)) + given.offsets[0, k] <= y[target])
        else:
            rows.append(cvxpy.log_sum_exp(z) <= 0 if len(at) > 1 else z <= 0)
    problem = cvxpy.Problem(cvxpy.Minimize(form.objective @ y), rows)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    return float(problem.value + programme.constant[0])


@pytest.mark.parametrize("name", rotated(("train_cost", "carbon", "tokens_per_dollar"), 3))
def test_cvxpy_has_the_same_optimum(name):
    cvxpy = pytest.importorskip("cvxpy")
    programme, _, optimum = leaf_of(problem_of(name), leaves(name, 1)[0])
    assert (programme.structure.target >= 0).any()
    found = by_cvxpy(cvxpy, programme)
    print(name, f"CVXPY less optimum: {found - optimum:.1e}")
    assert found == pytest.approx(optimum, abs=1e-5)


# Shadow prices.


def elasticities(problem: Problem, point: np.ndarray) -> tuple[np.ndarray, float, frozenset]:
    """Multipliers of the budgets, optimum, and which constraints are active."""
    programme, answers, optimum = leaf_of(problem, point)
    of = np.array([answers.multipliers[0, programme.group(each.name)].sum() for each in problem.budgets])
    active = frozenset(np.flatnonzero(answers.multipliers[0] > 1e-6))
    return of, optimum, active


@pytest.mark.search
@pytest.mark.parametrize("index", shared_out(range(3), 2))
def test_prices_are_what_solving_again_says(index):
    """Each budget of the default question binding in turn, the others loose.

    The central difference at +-1 %; a tenth of that step, or a hundredth, where a constraint starts or ceases to bind in
    between, which a price says nothing about, or where the least that the budget could be is nearer than ten steps: there
    prices go to infinity.
    """
    problem = problem_of("train_cost")
    point = leaves("train_cost", 1)[0]
    loose = np.array([each.limit for each in problem.budgets]) * 1e3
    free = with_limits(problem, loose)
    least = leaf_of(replace(free, objective=problem.budgets[index].metric), point)[2]
    programme, answers, _ = leaf_of(free, point)
    exact = Exact(free, point, once(values_and_slopes(free.form.places)))
    used = exact.values(free_values(exact, programme, answers))[1][index] + math.log(loose[index])
    assert used > least + 1e-3  # there is something to give up
    compared = 0
    for share in (0.3, 0.6, 0.9):
        limits = loose.copy()
        limits[index] = math.exp(least + share * (used - least))
        price, _, active = elasticities(with_limits(problem, limits), point)
        np.testing.assert_allclose(np.delete(price, index), 0.0, atol=1e-6)
        for step in (0.01, 0.001, 0.0001):
            if 10 * step > math.log(limits[index]) - least:
                continue
            sides = []
            for sign in (1, -1):
                moved = limits.copy()
                moved[index] *= math.exp(sign * step)
                sides.append(elasticities(with_limits(problem, moved), point))
            if sides[0][2] == sides[1][2] == active:
                slope = (sides[1][1] - sides[0][1]) / (2 * step)
                print(problem.budgets[index].name, share, f"step {step:g}: price {price[index]:.6g}, slope {slope:.6g}")
                assert price[index] > 1e-4
                assert price[index] == pytest.approx(slope, rel=0.01)
                compared += 1
                break
    assert compared >= 2


# Whole lattices.

COORDINATES = (
    "tp", "ep", "pp", "virtual_stages", "micro_batch", "dp", "micro_batches", "groups", "chips_per_rack", "hbm_stacks", "dies",
    "cp", "recompute", "zero", "weights_tier", "optimizer_tier", "activations_tier", "recovery",
)  # fmt: skip


def narrowed(problem: Problem, **boxes: tuple[float, float]) -> Problem:
    made = [v.bounded(*boxes[v.name]) if v.name in boxes else v for v in problem.variables]
    return replace(problem, variables=tuple(made))


def tiny(name: str = "train_cost") -> Problem:
    return narrowed(
        problem_of(name), tp=(8, 16), pp=(4, 6), virtual_stages=(1, 2), micro_batch=(1, 1), chips=(24000, 24800),
        scale_up_domain=(32, 32), chips_per_rack=(24, 24), global_batch_sequences=(2000, 2100),
    )  # fmt: skip


def enumerated(problem: Problem) -> np.ndarray:
    """Every integer design, by trying all, in the order of `COORDINATES`; continuous hardware recovers in memory."""
    box = {each.name: (each.lower, each.upper) for each in problem.variables}
    layers = int(problem.template.workload.model.layers)
    integers = lambda name: range(math.ceil(box[name][0]), math.floor(box[name][1]) + 1)
    rows = []
    for t, p, v, b, n in product(*map(integers, ("tp", "pp", "virtual_stages", "micro_batch", "chips_per_rack"))):
        if int(problem.template.workload.model.heads) % t or p * v > layers + 2 or (v > 1 and p == 1):
            continue
        domains = [g for g in range(1, 600) if box["scale_up_domain"][0] <= t * g <= box["scale_up_domain"][1]]
        for d in range(1, int(box["chips"][1]) // (t * p) + 1):
            if t * p * d < box["chips"][0]:
                continue
            for m in range(1, int(box["global_batch_sequences"][1]) // (d * b) + 1):
                if d * b * m >= box["global_batch_sequences"][0] and (v == 1 or m % p == 0):
                    rows += [(t, 1, p, v, b, d, m, g, n, 1, 1, *6 * (1,), 3) for g in domains]
    return np.array(rows)


@pytest.mark.search
@pytest.mark.parametrize("name", shared_out(("train_cost", "carbon"), 2))
def test_the_best_of_a_tiny_lattice_is_the_best_of_all_its_designs(name):
    problem = tiny(name)
    problem = with_limits(problem, [1.2 * each.limit for each in problem.budgets])
    lattice = lattice_of(problem)
    points = enumerated(problem)[:, [COORDINATES.index(name) for name in lattice.names]]
    assert len(points) == counting.count(lattice).points
    assert lattice.valid(points).all()
    optima = []
    for point in points:
        programme, answers = solve_leaf(NodeRelaxations(problem, lattice), point)
        solved = answers.status[0] == SolveStatus.solved
        assert solved or answers.status[0] == SolveStatus.infeasible
        optima.append(float(answers.objective[0] + programme.constant[0]) if solved else math.inf)
    best = float(np.min(optima))
    assert math.isfinite(best)
    solution = hwopt.optimize(problem, regime="certified")
    assert solution.feasible
    found = math.log(solution.objective)
    print(name, len(points), "designs,", np.isfinite(optima).sum(), f"feasible; found less best {found - best:.1e}")
    assert best - 1e-7 <= found <= best + math.log1p(solution.certificate.gap) + 1e-7
    assert math.log(solution.certificate.lower_bound) <= best + 1e-9
    assert found <= best + 1e-4
    for i in np.argsort(optima)[:3]:  # the designs' own optima, by SciPy
        near, _, planes = check_against_slsqp(problem, points[i], starts=1)
        assert abs(near) <= 1e-5 and abs(planes) <= 1e-5


@pytest.mark.search
def test_evolution_finds_nothing_better():
    """SciPy's differential evolution over replicas, micro-batches, groups, racks and hardware; the plan's shape is fixed."""
    problem = narrowed(
        problem_of("train_cost"),
        tp=(16, 16),
        pp=(8, 8),
        virtual_stages=(1, 1),
        micro_batch=(1, 1),
        chips=(24000, 26000),
    )
    solution = hwopt.optimize(problem, regime="certified")
    assert solution.feasible
    gap, answer = solution.certificate.gap, math.log(solution.objective)
    names = [each.name for each in problem.variables]
    box = {each.name: (each.lower, each.upper) for each in problem.variables}
    free = [n for n in names if n.endswith(("_per_s", "_bytes", "_ratio"))]
    form = ProblemForm(problem.form.places, problem.objective, problem.form.budgets)
    at = jax.jit(jax.vmap(lambda y: evaluate(form, problem.template, y, problem.limits, None)))
    lattice = lattice_of(problem)
    design = lattice.design(lattice.point(GOOD | {"virtual_stages": 1, "micro_batches": 11, "dp": 188}))
    best = [math.inf]
    boxed = [i for i, name in enumerate(names) if not name.endswith("_stage")]  # those follow from the plan

    def penalised(x):  # (parameter, candidate)
        d, m, g, n = np.round(x[:4])
        columns = {name: np.full(x.shape[1], design.get(name, 1.0)) for name in names}
        columns |= {"chips": 128 * d, "global_batch_sequences": d * m, "scale_up_domain": 16 * g, "chips_per_rack": n}
        y = np.log(np.stack([columns[name] for name in names], axis=1))
        y[:, [names.index(name) for name in free]] = x[4:].T
        ends = np.log([box[name] for name in names])
        outside = np.maximum(ends[:, 0] - y, y - ends[:, 1])[:, boxed].max(axis=1)
        with jax.enable_x64(True):
            values = at(jnp.asarray(y))
        rows = np.maximum(np.asarray(values.constraints).max(axis=1), outside - 1e-9)
        goal = np.asarray(values.objective)
        held = rows <= 0.0
        best[0] = min(best[0], float(goal[held].min(initial=math.inf)))
        return goal + 3.0 * np.maximum(rows, 0.0) + 0.01 * ~held

    ends = [(188, 203), (9.6, 11.4), (1, 36), (8, 48), *(tuple(np.log(box[name])) for name in free)]
    for seed in shared_out(range(3), 3):
        differential_evolution(
            penalised, ends, seed=seed, popsize=20, maxiter=400, tol=1e-9, vectorized=True, updating="deferred", polish=False
        )  # fmt: skip
    print(f"evolution less answer: {best[0] - answer:.2e}, gap {gap:.1e}")
    assert best[0] >= answer - math.log1p(gap) - 1e-7
    assert best[0] <= answer + 0.02  # it looked in the right place


def test_coordinates_are_as_enumerated():
    assert sorted(COORDINATES) == sorted(lattice_of(problem_of("train_cost")).names)
