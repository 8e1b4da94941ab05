"""From signomials to programmes: exact where nothing is replaced, a relaxation always, on small functions and on a whole model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import Boxes
from hwopt.integers.system import System
from hwopt.solver.gp import certificate
from hwopt.solver.gp.canonical import ConvexProgram, draft
from hwopt.solver.gp.reader import read
from hwopt.solver.gp.signomial import ONE, Algebra, number
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from tests.rotation import one_in, rotated
from tests.unit.gp.reading import value

SAMPLES = 2000


def programme_of(function: Callable, low: np.ndarray, high: np.ndarray, algebra: Algebra) -> ConvexProgram:
    """Minimise the first output subject to the others <= 1, over boxes (variable, node)."""
    variables = []
    for each in zip(low, high, strict=True):
        held = np.empty((), object)
        held[()] = algebra.variable(f"x{len(variables)}", *each)
        variables.append(held)
    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(lambda *x: [jnp.asarray(each) for each in function(x, jnp)])(*[1.0] * len(low))
    goal, *limits = (each[()] for each in read(jaxpr, variables, algebra))
    return draft(algebra, goal, {f"limit {i}": each for i, each in enumerate(limits)}).programme(low.shape[1])


# Functions of x and of where maximum, minimum and exp come from: objective, then what must not exceed 1.


class Case(NamedTuple):
    function: Callable[[Any, Any], list]
    low: tuple[float, ...]
    high: tuple[float, ...]


CASES = {
    "posynomial": Case(lambda x, of: [x[0] + 1 / (x[0] * x[1]) + x[1] ** 0.5], (0.1, 0.1), (9, 9)),
    "at a corner": Case(lambda x, of: [x[0] ** 2 / x[1] + x[0]], (0.5, 0.5), (4, 2)),
    "maximum": Case(lambda x, of: [of.maximum(x[0], 2 / x[1]) + x[1] / x[0] + x[1]], (0.1, 0.1), (9, 9)),
    "three branches": Case(
        lambda x, of: [of.maximum(of.maximum(x[0] * x[1], 3 / x[0]), x[2]) * (1 + 1 / x[2]) + 1 / x[1]],
        (0.1,) * 3, (9,) * 3,
    ),
    "product of sums": Case(
        lambda x, of: [(x[0] + x[1]) * (1 / x[0] + x[2]) * (1 + x[1] / x[2]) + 1 / x[1]], (0.1,) * 3, (9,) * 3
    ),
    "power of a sum": Case(
        lambda x, of: [(x[0] ** 2 + x[1] + 0.1) ** 1.7 * (1 / x[0] + 1 / x[1]) ** 0.3 / x[1] ** 0.5], (0.1,) * 2, (9,) * 2
    ),
    "quotient by a difference": Case(
        lambda x, of: [1 / (1 - x[0] * x[1]) + 1 / x[0] + 1 / x[1]], (0.1, 0.1), (0.9, 0.9)
    ),
    "quotient by a difference of sums": Case(
        lambda x, of: [(x[1] + 1 / x[0]) / (2 - x[0] - x[0] * x[1] ** 2 / 3)], (0.05, 0.05), (1.2, 1.2)
    ),
    "exponential": Case(lambda x, of: [of.exp(x[0] / x[1]) * x[1] + 1 / x[0] + x[1] ** 2 / 5], (0.2, 0.2), (5, 5)),
    "exponential of a maximum": Case(
        lambda x, of: [of.exp(of.maximum(x[0], x[1] ** 2) + 0.3) + 2 / (x[0] * x[1])], (0.2, 0.2), (3, 3)
    ),
    "decay": Case(lambda x, of: [x[0] / (of.exp(-x[0])) + 1 / x[0]], (0.1,), (3,)),
    "minimum below": Case(
        lambda x, of: [1 / of.minimum(x[0], 2 * x[1] ** 0.5) + x[0] * x[1] + 0.2 * x[0]], (0.1, 0.1), (5, 5)
    ),
    "minimum of shares": Case(
        lambda x, of: [(1 + x[1]) / (of.minimum(1 / (1 + x[0] ** 2), x[0] / (1 + x[1])))], (0.1, 0.1), (5, 5)
    ),
    "what is taken away cancels": Case(lambda x, of: [(x[0] + x[1]) - x[1] + 1 / x[0]], (0.2, 0.2), (5, 5)),
    "a maximum less a part": Case(
        lambda x, of: [3 * x[0] + of.maximum(x[0] + x[1], 2.0) - x[0] + 0.3 / (x[0] * x[1])], (0.1, 0.1), (5, 5)
    ),
    "a limit": Case(lambda x, of: [1 / (x[0] * x[1]), x[0] + x[1]], (0.01, 0.01), (2, 2)),
    "limits of many kinds": Case(
        lambda x, of: [
            1 / (x[0] * x[1] ** 2 * x[2]),
            of.maximum(x[0] ** 2, x[1]) + x[2] / 3,
            of.exp(x[0] + x[2]) / 8,
            x[1] / (of.minimum(x[0], 1 / x[2])),
        ],
        (0.01,) * 3, (5,) * 3,
    ),
    "a limit on a queue": Case(
        lambda x, of: [x[1] + 0.2 * x[2] + 1 / x[2], x[0] / (1 - x[0] / x[1]), 0.4 / x[0]], (0.1, 1, 0.1), (0.9, 5, 5)
    ),
    "shared parts": Case(
        lambda x, of: [of.maximum(x[0] + x[1], x[2]) ** 2 + of.maximum(x[0] + x[1], x[2]) / x[1] + 1 / (x[0] * x[2])],
        (0.1,) * 3, (5,) * 3,
    ),
    "four variables": Case(
        lambda x, of: [
            of.maximum(x[0] * x[3], x[1] / x[2] + x[2]) / (1 - x[3] / 4) + (1 / x[0] + x[0] / x[1]) ** 1.5,
            of.minimum(x[2], x[3]) ** -0.5 * x[1],
        ],
        (0.1,) * 4, (3,) * 4,
    ),
}  # fmt: skip


class Smooth:
    """Maxima and minima as variables of their own, bounded by their parts: what remains is smooth."""

    def __init__(self, values):
        self.values, self.made, self.rows = values, [], []

    def maximum(self, a, b):
        return self._extreme(a, b, 1.0)

    def minimum(self, a, b):
        return self._extreme(a, b, -1.0)

    def _extreme(self, a, b, sign):
        index = len(self.made)
        self.made.append(max(np.real(a), np.real(b)) if sign > 0 else min(np.real(a), np.real(b)))
        t = self.values[index] if index < len(self.values) else self.made[index]
        self.rows += [sign * (np.log(t) - np.log(each)) for each in (a, b)]
        return t

    @staticmethod
    def exp(a):
        return np.exp(a)


def by_slsqp(case: Case, starts: int) -> float:
    """Logarithm of the best objective, by SciPy on the smooth twin with complex-step gradients."""
    random = np.random.default_rng(0)
    low, high = np.log(case.low), np.log(case.high)
    count = len(low)

    def rows(y):
        at = Smooth(np.exp(y[count:]))
        goal, *limits = case.function(np.exp(y[:count]), at)
        return np.array([np.log(goal), *(1.0 - each for each in limits), *at.rows])

    def slopes(y):
        steps = 1e-30j * np.eye(len(y))
        return np.stack([rows(y + step).imag / 1e-30 for step in steps], axis=1)

    best = math.inf
    for _ in range(starts):
        y = random.uniform(low, high)
        at = Smooth([])
        case.function(np.exp(y), at)
        y = np.append(y, np.log(at.made))
        bounds = [*zip(low, high, strict=True), *[(-30.0, 30.0)] * len(at.made)]
        with np.errstate(all="ignore"):
            found = minimize(
                lambda y: rows(y)[0], y, jac=lambda y: slopes(y)[0], bounds=bounds, method="SLSQP",
                constraints={"type": "ineq", "fun": lambda y: rows(y)[1:], "jac": lambda y: slopes(y)[1:]},
                options={"ftol": 1e-14, "maxiter": 500},
            )  # fmt: skip
            at = rows(found.x)
        if np.isfinite(at).all() and at[1:].min(initial=0.0) > -1e-9:
            best = min(best, found.fun)
    return best


@pytest.mark.parametrize("name", CASES)
def test_where_nothing_is_replaced_the_optimum_is_the_true_one(name):
    case = CASES[name]
    low, high = (np.array(each, float)[:, None] for each in (case.low, case.high))
    made = programme_of(case.function, low, high, Algebra())
    assert not made.relaxed, [str(each) for each in made.relaxed]
    answers = solve(made.structure, made.numbers, tolerance=1e-10)
    assert answers.status[0] == SolveStatus.solved
    found = answers.objective[0] + made.constant[0]
    assert found == pytest.approx(by_slsqp(case, 12), abs=1e-6)
    # The variables' own values reach it too.
    y = [answers.y[0, made.names.index(f"x{i}")] if f"x{i}" in made.names else 0.0 for i in range(len(low))]
    goal, *limits = case.function(np.clip(np.exp(y), case.low, case.high), np)
    assert np.log(goal) == pytest.approx(found, abs=1e-6)
    assert max(limits, default=0.0) <= 1.0 + 1e-6


# Random functions: a tree of operations, positive parts where a sign is needed.


def random_tree(random, count: int, depth: int) -> Callable[[Any, Any], Any]:
    """A function of x that is positive wherever the sign of its parts is: differences are only made at the top."""
    if depth == 0:
        index, power = random.integers(count), random.choice([1.0, 1.0, 1.0, 2.0, 0.5, -1.0])
        scale = random.uniform(0.2, 2.0)
        return lambda x, of: scale * x[index] ** power
    a, b = (random_tree(random, count, depth - 1) for _ in range(2))
    c = random.uniform(0.3, 2.0)
    power = random.choice([0.5, 1.5, -0.7, 2.0])
    return [
        lambda x, of: a(x, of) + c * b(x, of),
        lambda x, of: a(x, of) * b(x, of),
        lambda x, of: a(x, of) / (c + b(x, of)),
        lambda x, of: (a(x, of) + c) ** power,
        lambda x, of: of.maximum(a(x, of), c * b(x, of)),
        lambda x, of: of.minimum(a(x, of), b(x, of) + c),
        lambda x, of: of.exp(a(x, of) / (1 + a(x, of)) - 0.5 * b(x, of) / (1 + b(x, of))),
        lambda x, of: of.log(a(x, of) + 2.0),
        lambda x, of: 1.0 / (1.0 + c - a(x, of) / (a(x, of) + b(x, of))),
        lambda x, of: 1.0 - c / 2 * of.exp(-a(x, of)),
    ][random.integers(10)]


def random_function(random, count: int, low, high) -> Callable[[Any, Any], list]:
    """An objective that holds differences, and a limit that about two thirds of the box keep."""
    a, b, c, d = (random_tree(random, count, random.integers(1, 4)) for _ in range(4))
    x = low.min(1) * (high.max(1) / low.min(1)) ** random.uniform(size=(400, count))
    first, second, third = (np.array([each(row, np) for row in x]) for each in (a, b, c))
    share = random.choice([0.0, 0.3, 1.0, 3.0])
    shift = max(0.0, 1e-2 + 1.3 * float(-(first - share * second).min()))
    level = float(np.quantile(third, 0.66))
    spare = 1.2 * max(float(np.max([d(row, np) for row in x])), 1e-3)

    def function(x, of):
        first, second = a(x, of), b(x, of)
        goal = of.maximum(first, 0.5 * shift + second) + (first + shift) - share * second
        return [goal + 0.1 / (1 - d(x, of) / spare), c(x, of) / level]

    return function


def worst_violation(made: ConvexProgram, atoms: dict[int, np.ndarray], inside: np.ndarray) -> float:
    """How far true points (sample, node) are outside the programme's rows and box, at most."""
    shape = inside.shape
    with np.errstate(all="ignore"):
        y = np.stack([np.log(np.broadcast_to(atoms[atom], shape)) for atom in made.columns], axis=-1)
    worst = -math.inf
    # A range that overflows leaves a node without a bound, which is asked for below.
    for node in np.flatnonzero(np.isfinite(made.numbers.upper).all(axis=1)):
        points = y[inside[:, node], node]
        if len(points):
            numbers = made.numbers.take(np.full(len(points), node))
            worst = max(worst, float(certificate.violation(made.structure, numbers, points).max()))
    return worst


def check_soundness(seed: int) -> tuple[float, float, int]:
    """Worst violation of a row by a true point, least distance of the bound to the best sample, and points looked at."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 5))
    low = random.uniform(0.1, 1.0, (count, 1)) * np.ones((1, 4))
    width = random.uniform(1.0, 8.0, (count, 1)) ** np.array([1.0, 0.5, 0.05, 0.0])  # nested boxes, then a point
    high = low * width
    function = random_function(random, count, low, high)
    algebra = Algebra(granting=bool(seed % 2))
    made = programme_of(function, low, high, algebra)
    share = random.uniform(-0.1, 1.1, (SAMPLES, count, 1)).clip(0.0, 1.0)
    x = (low * (high / low) ** share).transpose(1, 0, 2)  # (variable, sample, node)
    with np.errstate(all="ignore"):
        goal, limit = function(x, np)
        _, atoms = value([], algebra, x)
    used = [atoms[atom] for atom in made.columns]
    assert all(np.isfinite(each).all() for each in used)
    # Atoms are positive, or taken to be: what is 0 but for rounding is not.
    positive = np.all([np.broadcast_to(each, goal.shape) > 1e-9 * np.abs(each).max() for each in used], axis=0)
    for atom, each in zip(made.columns, used, strict=True):
        if not algebra.atoms[atom].positive:  # looked for from a share of its largest value
            positive &= each >= algebra.atoms[atom].low
    inside = positive & (np.broadcast_to(limit, goal.shape) <= 1.0) & (goal > 0)
    violation = worst_violation(made, atoms, inside)
    with np.errstate(all="ignore"):
        answers = solve(made.structure, made.numbers, tolerance=1e-8)
    lower = certificate.lower_bound(made.structure, made.numbers, answers.y, answers.multipliers) + made.constant
    impossible = answers.status == SolveStatus.infeasible
    best = np.where(inside, np.log(np.where(inside, goal, 1.0)), np.inf).min(axis=0)
    assert not (impossible & np.isfinite(best)).any()
    known = np.isfinite(best)
    return violation, float((best - lower)[known].min(initial=np.inf)), int(inside.sum())


@pytest.mark.parametrize("seed", rotated(range(60), 3))
def test_every_true_point_satisfies_every_row(seed):
    violation, distance, looked = check_soundness(seed)
    assert looked > 50
    assert violation <= 1e-8
    assert distance >= -1e-8


def test_a_choice_that_boxes_know_is_bounded_from_above_in_each():
    """Another term in each box: none leads in all of them."""
    low, high = np.array([[0.1, 3.0], [0.2, 0.2]]), np.array([[1.0, 5.0], [6.0, 6.0]])
    function = lambda x, of: [1 / jnp.where(x[0] > 2.0, x[0], x[1] / 2) + 0.1 * x[0] + 0.01 * x[1]]
    made = programme_of(function, low, high, Algebra())
    answers = solve(made.structure, made.numbers, tolerance=1e-10)
    lower = certificate.lower_bound(made.structure, made.numbers, answers.y, answers.multipliers) + made.constant
    np.testing.assert_allclose(lower, np.log([2 / 6 + 0.01 + 0.06, 1 / 10**0.5 + 0.1 * 10**0.5 + 0.002]), atol=1e-7)


def test_a_sum_keeps_its_lower_end_however_loose_the_upper_one_is():
    """1 - x may be 0 in the box, so that nothing bounds the powers from above; but they are least where x is."""
    low, high = np.full((1, 1), 0.5), np.full((1, 1), 1.1)
    algebra = Algebra()
    made = programme_of(lambda x, of: [(1 + (1 + 1 / (1 - x[0]) ** 2) ** 1.5) ** 0.5], low, high, algebra)
    _, atoms = value([], algebra, np.linspace(0.5, 0.9, 9).reshape(1, 9, 1))
    assert worst_violation(made, atoms, np.ones((9, 1), bool)) <= 1e-8
    answers = solve(made.structure, made.numbers)
    lower = certificate.lower_bound(made.structure, made.numbers, answers.y, answers.multipliers) + made.constant
    assert lower[0] <= 0.5 * math.log(1 + 5**1.5) + 1e-8


def test_ranges_without_an_end_leave_the_other_problems_of_a_batch_alone():
    """An exponential that overflows in one box, not in the other."""
    low, high = np.array([[0.1, 0.1]]), np.array([[0.9999999, 0.5]])
    made = programme_of(lambda x, of: [of.exp(1 / (1 - x[0])) + 1 / x[0]], low, high, Algebra())
    with np.errstate(all="ignore"):
        answers = solve(made.structure, made.numbers)
        lower = certificate.lower_bound(made.structure, made.numbers, answers.y, answers.multipliers) + made.constant
    x = np.linspace(0.1, 0.5, 200001)
    best = np.log((np.exp(1 / (1 - x)) + 1 / x).min())
    assert lower[0] <= best + 1e-9
    assert lower[1] == pytest.approx(best, abs=1e-6)


# The whole model: boxes of the default lattice around designs.

GOOD = {
    "tp": 16, "ep": 1, "pp": 8, "virtual_stages": 16, "micro_batch": 1, "dp": 128, "micro_batches": 16, "groups": 2,
    "chips_per_rack": 25, "hbm_stacks": 1, "dies": 1,
}  # fmt: skip
"""A design of the default question that satisfies its budgets."""


def designs_near(lattice: System, random, count: int) -> np.ndarray:
    """Valid integer designs around a good one."""
    points = []
    batch = lattice.quantities["global_batch_sequences"]
    while len(points) < count:
        design = dict(GOOD)
        design["tp"] = random.choice([8, 16, 32])
        design["pp"] = random.integers(4, 13)
        design["virtual_stages"] = random.integers(1, 128 // design["pp"] + 1)
        design["micro_batches"] = random.integers(4, 33)
        design["dp"] = math.floor(math.exp(random.uniform(*np.log([batch.low, batch.high]))) / design["micro_batches"])
        design["groups"] = random.integers(1, 9)
        design["chips_per_rack"] = random.integers(8, 33)
        point = lattice.point(design)
        if 1.5e4 < design["tp"] * design["pp"] * design["dp"] < 4e4 and lattice.valid(point[None])[0]:
            points.append(point)
    return np.array(points)


@pytest.fixture(scope="module")
def question():
    with jax.enable_x64(True):
        problem = hwopt.objective("train_cost").problem().continuous
    looser = replace(problem, budgets=tuple(replace(each, limit=1.3 * each.limit) for each in problem.budgets))
    lattice = lattice_of(looser)
    points = designs_near(lattice, np.random.default_rng(0), 100)
    points = np.vstack([lattice.point(GOOD), points])
    known = bound_nodes(NodeRelaxations(looser, lattice), Boxes(points, points), tolerance=1e-9)
    made, answers, lower = known.programme, known.answers, known.lower
    assert not made.relaxed
    solved = np.flatnonzero((answers.status == SolveStatus.solved) & np.isfinite(lower))[:12]
    assert len(solved) == 12
    return looser, lattice, points[solved], (answers.objective + made.constant)[solved]


@one_in(4, 2)
def test_boxes_of_the_lattice_bound_the_designs_inside(question):
    """And the smaller the box, the better: a bound does not fall where a box shrinks."""
    problem, lattice, points, optima = question
    random = np.random.default_rng(1)
    widest = random.uniform(0.0, 1.2, points.shape) * (random.uniform(size=points.shape) < 0.7)
    widest[:, [lattice.at["tp"], lattice.at["ep"]]] = 0.0  # boxes have one degree of tensor and expert parallelism
    before = np.full(len(points), -np.inf)
    for share in (1.0, 0.5, 0.1, 0.0):
        low = np.floor(points * np.exp(-share * widest) + 1e-9).clip(1).astype(np.int64)
        high = np.ceil(points * np.exp(share * widest) - 1e-9).astype(np.int64)
        initial = lattice.initial_boxes()
        low, high = np.maximum(low, initial.low.min(0)), np.minimum(high, initial.high.max(0))
        boxes, left = lattice.propagate(Boxes(low, high))
        assert len(left) == len(points)
        assert ((boxes.low <= points) & (points <= boxes.high)).all()
        # To 1e-9 one of 80 takes more iterations than there are.
        known = bound_nodes(NodeRelaxations(problem, lattice), boxes, tolerance=1e-8)
        answers, lower = known.answers, known.lower
        assert (answers.status == SolveStatus.solved).all()
        assert (lower <= optima + 1e-8).all()
        assert (lower >= before - 1e-6).all()
        before = lower
    np.testing.assert_allclose(before, optima, atol=1e-7)


def test_what_is_zero_at_a_node_weighs_nothing_there():
    """Latencies are nanoseconds: what stands for zero may not be a picosecond."""
    algebra = Algebra()
    x = algebra.variable("x", 0.1, 10.0)
    wait = algebra.hull(np.array([0.0, 1e-9]), np.array([0.0, 5e-9]))
    share = algebra.over(algebra.plus(algebra.times(number(1e13), wait), ONE), algebra.times(number(1e5), x))
    programme = draft(algebra, x, {"waits": share}).programme(2)
    found = solve(programme.structure, programme.numbers)
    assert (found.status == SolveStatus.solved).all()
    np.testing.assert_allclose(np.exp(found.objective + programme.constant), [0.1, 0.1 + 1e-5], rtol=2e-4)
    at_most = algebra.lifted(algebra.plus(x, algebra.times(number(1e13), wait)))  # an atom of both
    programme = draft(algebra, at_most, {}).programme(2)
    found = solve(programme.structure, programme.numbers)
    np.testing.assert_allclose(np.exp(found.objective + programme.constant), [0.1, 1e4 + 0.1], rtol=1e-6)
