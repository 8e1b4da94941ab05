"""Evolution: what it draws are points of the lattice, what it judges is the exact model, where it ends is near the optimum."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.design.variables import Variable
from hwopt.integers.relations import Divides, ProductLimit
from hwopt.integers.system import Integer, RangePiece, Role, System
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH, HeuristicOptions
from hwopt.solver.search.branch_and_bound import polish_neighbors, seed_evolution
from hwopt.solver.search.categorical import grouped_choices
from hwopt.solver.search.heuristics.evolutionary import EvolutionarySearch
from hwopt.solver.search.heuristics.fitness import fitness_function
from hwopt.solver.search.node_relaxations import CHOICE, ElasticProblem, NodeRelaxations
from hwopt.solver.search.search_tree import SearchState
from tests.rotation import one_in

EDGES = tuple(np.geomspace(1.0, 100.0, 9))
SYSTEM = System(
    (
        Integer("t", 1, 8, among=(1, 2, 4, 8), role=Role.root),
        Integer("kind", 1, 3, role=Role.kind),
        Integer("p", 1, 12, stepped=True),
        Integer("racks", 1, 40),
        Integer("d", 1, 1000),
        Integer("size_piece", 1, len(EDGES) - 1),
    ),
    (ProductLimit(("t", "p", "d"), (), 1, 4096, name="chips", follows="d"), Divides(("racks",), ("d",))),
    pieces=(RangePiece("size", EDGES),),
)


def variable(name: str, low: float, high: float, whole: bool = True) -> Variable:
    return dataclasses.replace(TEMPLATE, name=name, lower=low, upper=high, integer=whole)


TEMPLATE = hwopt.objective("train_cost").problem().variables[0]
VARIABLES = (variable("chips", 1, 4096), variable("size", 1.0, 100.0, whole=False))


def judge(columns):
    """A dear optimum in a corner: work of 1,000 over chips and size, kinds that cost, sizes that cost more."""
    time = 1000.0 / (columns["chips"] ** 0.9 * columns["size"] ** 0.5) * (1.0 + 0.1 * columns["p"] / columns["t"])
    cost = columns["chips"] * (1.0 + 0.02 * columns["size"]) + 3.0 * columns["racks"] + 7.0 * columns["kind"]
    return np.log(cost), np.stack([np.log(time / 3.0), np.log(columns["size"] / 60.0)], axis=1)


@cache
def optimum() -> float:
    """The best of all points, the size on a fine grid."""
    every = itertools.product(*(SYSTEM.values_of(each) for each in SYSTEM.coordinates[:4]))
    best = np.inf
    size = np.geomspace(1.0, 60.0, 2000)
    for t, kind, p, racks in every:
        if kind > 1 or racks > 1:  # which cost, and do nothing
            continue
        d = np.arange(1, 4096 // (t * p) + 1)[:1000, None]
        columns = {
            "t": t,
            "kind": kind,
            "p": p,
            "racks": racks,
            "chips": t * p * d + 0.0 * size,
            "size": size + 0.0 * d,
        }
        objective, used = judge(columns)
        best = min(best, objective[(used <= 0.0).all(axis=1)].min(initial=np.inf))
    return best


def test_it_ends_near_the_best_of_all_points():
    for seed in range(3):
        found = EvolutionarySearch(SYSTEM, VARIABLES, judge, seed).seeded().run()
        assert found.excess[0] <= 1e-6
        assert optimum() - 1e-3 <= found.merit[0] <= optimum() + 5e-3


def test_all_that_it_holds_are_points_with_sizes_in_their_pieces():
    found = EvolutionarySearch(SYSTEM, VARIABLES, judge).seeded().run(10)
    assert 0 < len(found.points) <= SEARCH.heuristic.population and SYSTEM.valid(found.points).all()
    assert len(np.unique(found.points, axis=0)) == len(found.points)
    edges, piece, size = np.asarray(EDGES), found.points[:, SYSTEM.at["size_piece"]], found.sizes[:, 0]
    assert (edges[piece - 1] <= size).all() and (size <= edges[piece]).all()
    objective, used = judge(found.columns(found.points, found.sizes))
    np.testing.assert_allclose(found.excess, np.maximum(used, 0.0).sum(axis=1))
    np.testing.assert_allclose(found.merit, objective + found.weight * found.excess)
    assert (np.diff(found.merit) >= 0.0).all()


def test_the_same_seed_finds_the_same():
    one, same, other = (EvolutionarySearch(SYSTEM, VARIABLES, judge, seed).seeded().run(5) for seed in (0, 0, 1))
    assert np.array_equal(one.points, same.points) and np.array_equal(one.sizes, same.sizes)
    assert not np.array_equal(one.points, other.points)


def test_each_choice_of_kinds_keeps_its_best():
    found = EvolutionarySearch(SYSTEM, VARIABLES, judge, options=HeuristicOptions(population=40)).seeded().run(20)
    kinds = {tuple(each) for each in found.points[:, [SYSTEM.at[name] for name in ("t", "kind", "p")]].tolist()}
    assert len(kinds) == 40  # of 144, where the best choice alone has far more than 40 good designs


def test_what_is_wanted_in_a_box_stays_in_it():
    low, high = np.array([[2, 1, 3, 4, 1, 1]]), np.array([[2, 1, 3, 8, 400, 8]])
    found = EvolutionarySearch(SYSTEM, VARIABLES, judge)
    points, rows = found.led_back(low, high, np.array([[2.0, 1.0, 3.0, 5.2, 37.0, 1.0]]))
    found.join_at(points, {"size": np.array([10.0])[rows]})
    (point,) = found.points
    assert (low <= point).all() and (point <= high).all()
    assert point[3] == 5 and point[4] % 5 == 0 and found.sizes[0, 0] == 10.0


def test_families_hold_their_best_designs_and_all_of_the_same_kinds():
    held = EvolutionarySearch(SYSTEM, VARIABLES, judge).seeded().run(10)
    boxes, kinds = held.families(7), [SYSTEM.at[name] for name in ("t", "kind", "p")]
    first = list(dict.fromkeys(map(tuple, held.points[:, kinds])))[:7]
    assert [tuple(row) for row in boxes.low[:, kinds]] == first and (boxes.low[:, kinds] == boxes.high[:, kinds]).all()
    for number, family in enumerate(first):
        own = held.points[(held.points[:, kinds] == family).all(axis=1)]
        assert len(own) and (own >= boxes.low[number]).all() and (own <= boxes.high[number]).all()


def test_children_move_and_trade_sizes_within_their_ends():
    held = EvolutionarySearch(SYSTEM, VARIABLES, judge).seeded()
    sizes, points = held.sizes[:400].copy(), held.points[:400].astype(float)
    held._move(sizes)
    moved = (sizes != held.sizes[:400]).any(axis=1).mean()
    assert 0.2 < moved < 0.6 and (sizes >= 1.0).all() and (sizes <= 100.0).all()
    changed, before = np.zeros(points.shape, bool), points.copy()
    held._trade(points, sizes, changed)
    low, high = np.array([each.ends for each in SYSTEM.coordinates]).T
    assert changed.any() and not changed[:, SYSTEM.at["kind"]].any() and (sizes >= 1.0).all() and (sizes <= 100.0).all()
    assert (points[~changed] == before[~changed]).all() and (points >= low).all() and (points <= high).all()
    assert (sizes != held.sizes[:400]).any() and (points[changed] != before[changed]).any()


@one_in(4, 3)
def test_designs_next_to_relaxed_points_join_with_the_sizes_of_their_own_programmes():
    """A drawn chip's sizes, left in the middle, break limits; its programmes put them where the exact model takes them."""
    problem = hwopt.objective("train_time").problem().continuous
    programmes = NodeRelaxations(problem, lattice_of(problem))
    work = SearchState(programmes, 5e-3, Deadline(), exact=[ExactModel(problem)])
    held = EvolutionarySearch(programmes.lattice, problem.variables, fitness_function(programmes)).seeded().run(5)
    families = held.families(16)
    known = work.bound(families)
    held.points, held.sizes, held.merit, held.excess = (
        each[:0] for each in (held.points, held.sizes, held.merit, held.excess)
    )
    seed_evolution(work, held, families, known, np.flatnonzero(np.isfinite(known.lower)))
    assert len(held.best(16)) and held.excess[0] < 1e-6
    assert held.merit[0] == pytest.approx(work.result.value, rel=1e-3)
    before, boxes = held.points.copy(), work.result.boxes
    seed_evolution(work, held, families, known, np.zeros(0, int))
    assert np.array_equal(held.points, before) and work.result.boxes == boxes

    met = work.result.value
    polish_neighbors(work, held)
    assert work.result.value < met - 0.01  # a population of five generations is far from the best
    holds = held.excess < 1e-6  # others, with sizes rounded to single precision, may be a little better
    assert held.merit[holds].min() == pytest.approx(work.result.value, rel=1e-3)


def test_points_next_to_the_best_are_points_of_the_lattice():
    held = EvolutionarySearch(SYSTEM, VARIABLES, judge).seeded().run(5)
    near = held.near()
    assert len(near) > 100 and SYSTEM.valid(near).all()
    parents = held.best(SEARCH.heuristic.neighbor_parents)
    apart = (near[:, None] != parents[None]).sum(axis=2).min(axis=1)
    assert apart.max() > 0 and np.median(apart) <= 2


def test_nothing_comes_of_limits_that_nobody_can_judge():
    nothing = lambda columns: (np.zeros(len(columns["chips"])), np.full((len(columns["chips"]), 1), np.inf))
    found = EvolutionarySearch(SYSTEM, VARIABLES, nothing).seeded().run(3)
    assert not len(found.points) and not len(found.best(4)) and not len(found.near())


@pytest.fixture(scope="module")
def question():
    problem = hwopt.objective("train_cost").problem()
    return problem, lattice_of(problem)


def some(problem, lattice):
    found = EvolutionarySearch(lattice, problem.variables, fitness_function(NodeRelaxations(problem, lattice))).seeded()
    return found.columns(found.points[:50], found.sizes[:50])


def test_designs_are_judged_by_the_exact_model(question):
    problem, lattice = question
    columns = some(problem, lattice)
    objective, used = fitness_function(NodeRelaxations(problem, lattice))(columns)
    exact = ExactModel(problem).designs([columns[each.name] for each in problem.variables])
    np.testing.assert_allclose(objective, exact.objective, rtol=1e-12)
    np.testing.assert_allclose(used, exact.constraints, rtol=1e-9, atol=1e-12)


def test_an_elastic_question_is_judged_by_what_its_budgets_give(question):
    problem, lattice = question
    columns, names = some(problem, lattice), [each.name for each in problem.budgets]
    _, used = fitness_function(NodeRelaxations(problem, lattice))(columns)
    factor, left = fitness_function(NodeRelaxations(problem, lattice, ElasticProblem(tuple(names[:2]), 100.0)))(columns)
    np.testing.assert_allclose(factor, np.maximum(used[:, :2].max(axis=1), 0.0))
    np.testing.assert_allclose(left, used[:, 2:])


def test_a_tilt_is_taken_off(question):
    problem, lattice = question
    columns = some(problem, lattice)
    plain, _ = fitness_function(NodeRelaxations(problem, lattice))(columns)
    tilted, _ = fitness_function(NodeRelaxations(problem, lattice).tilted({"chips": 0.3}))(columns)
    np.testing.assert_allclose(tilted, plain - 0.3 * np.log(columns["chips"]))


def test_several_machines_are_judged_each_by_its_own_numbers():
    problems = {
        i: hwopt.objective("train_cost", prices=prices).problem() for i, prices in enumerate(("default", "on-premise"))
    }
    (group,) = grouped_choices(problems)
    columns = dict(some(problems[0], lattice_of(problems[0])))
    judged = fitness_function(group.programmes)
    for number, problem in problems.items():
        columns[CHOICE] = np.full(50, number + 1.0)
        objective, _ = judged(columns)
        alone = ExactModel(problem).designs([columns[each.name] for each in problem.variables])
        np.testing.assert_allclose(objective, alone.objective, rtol=1e-12)


def test_a_search_without_points_has_no_families():
    assert len(EvolutionarySearch(SYSTEM, VARIABLES, judge).families(4)) == 0
