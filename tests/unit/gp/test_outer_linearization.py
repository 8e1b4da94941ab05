"""Lines that support a convex function: never above it, and hardly below."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from hwopt.solver.gp import outer_linearization
from hwopt.solver.gp.canonical import draft
from hwopt.solver.gp.options import REFORMULATION
from hwopt.solver.gp.outer_linearization import dies_made
from hwopt.solver.gp.signomial import Algebra, AtomKind, number
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.trace.yield_primitive import on_numbers

CLUSTERING = 10.0


def read(fixed, open_to_repair, spares, boxes=False):
    """The function at points as it is read, (low, high) of each argument."""
    algebra = Algebra()
    known = [algebra.variable(name, *ends) for name, ends in (("fixed", fixed), ("open", open_to_repair))]
    if boxes:
        algebra.narrow.add(len(algebra.atoms))
    count = algebra.variable("spares", *spares) if boxes else number(spares[0])
    return algebra, dies_made(algebra, *known, count, CLUSTERING)


def at(algebra, value, fixed, open_to_repair):
    """The largest of its lines."""
    ((key, _),) = value.terms.items()
    atom = algebra.atoms[key[0][0]]
    assert atom.kind is AtomKind.maximum

    def monomial(key):
        result = 1.0
        for index, power in key:
            own = algebra.atoms[index]
            inner = {"fixed": fixed, "open": open_to_repair}[own.name] if own.name else 1.0 + fixed / CLUSTERING
            result = result * inner**power
        return result

    return np.max([sum(c * monomial(k) for k, c in part.terms.items()) for part in atom.parts], axis=0), atom


@pytest.mark.parametrize("spares", [0.0, 1.0, 2.0, 3.3, 12.0, 40.0])
@pytest.mark.parametrize(
    ("boxes", "within"),
    [(False, REFORMULATION.fine_yield), (True, REFORMULATION.coarse_yield)],
    ids=["points", "boxes"],
)
def test_lines_lie_below_and_near(spares, boxes, within):
    rng = np.random.default_rng(0)
    fixed, open_to_repair = rng.uniform(1e-3, 0.5, 2000), np.exp(rng.uniform(np.log(1e-3), 0.0, 2000))
    algebra, value = read((1e-3, 0.5), (1e-3, 1.0), (spares, spares), boxes)
    below, atom = at(algebra, value, fixed, open_to_repair)
    exact = on_numbers(fixed, open_to_repair, spares, CLUSTERING)
    assert (below <= exact * (1.0 + 1e-12)).all()
    assert (exact <= below * (1.0 + 1.5 * within)).all()
    assert (atom.low <= exact).all() and (exact <= atom.high).all()


def test_heights_are_those_of_the_arrays_asked_for():
    (first, _), *_, (last, _) = lines = outer_linearization._lines(1.5, REFORMULATION.coarse_yield)
    assert len(lines) > 2 and first.args[0] is last.args[0]
    one, other = np.array([0.0, 3.0, 3.0, 12.0]), np.array([3.0, 3.0, 0.0, 1.0])
    slopes = tuple(slope for _, slope in lines)
    for spares in (one, other, one, one[:2], one.reshape(2, 2), 3.0):
        for line in (first, last):
            shape = np.shape(spares)
            asked = zip(np.ravel(spares), np.ravel(np.broadcast_to(CLUSTERING, shape)), strict=True)
            alone = [outer_linearization._heights(float(s), float(a), slopes)[line.args[1]] for s, a in asked]
            np.testing.assert_array_equal(line(spares, CLUSTERING), np.reshape(alone, shape))
    sent = pickle.loads(pickle.dumps(last))
    np.testing.assert_array_equal(sent(one, CLUSTERING), last(one, CLUSTERING))


def test_over_a_box_of_spares_the_most_count():
    fixed, open_to_repair = np.full(5, 0.2), np.geomspace(0.01, 1.0, 5)
    algebra, value = read((1e-3, 0.5), (1e-3, 1.0), (1.0, 6.0), boxes=True)
    below, atom = at(algebra, value, fixed, open_to_repair)
    assert (below <= on_numbers(fixed, open_to_repair, 6.0, CLUSTERING)).all()
    assert (on_numbers(fixed, open_to_repair, 1.0, CLUSTERING) <= atom.high).all()


def test_a_programme_of_it_has_the_right_optimum():
    """Least of `made (1 / H + F)` against a grid: more area to repair computes more and yields less."""
    algebra = Algebra()
    fixed, open_to_repair = algebra.variable("fixed", 0.05, 0.5), algebra.variable("open", 0.01, 2.0)
    made = dies_made(algebra, fixed, open_to_repair, number(1.0), CLUSTERING)
    goal = algebra.times(made, algebra.plus(algebra.power(open_to_repair, -1.0), fixed))
    programme = draft(algebra, goal, {}).programme(1)
    answers = solve(programme.structure, programme.numbers)
    assert answers.status[0] == SolveStatus.solved
    f, h = np.meshgrid(np.linspace(0.05, 0.5, 200), np.geomspace(0.01, 2.0, 4000))
    least = (on_numbers(f, h, 1.0, CLUSTERING) * (1.0 / h + f)).min()
    assert np.exp(answers.objective[0] + programme.constant[0]) == pytest.approx(least, rel=1e-5)


def test_without_area_to_repair_it_is_a_power():
    algebra = Algebra()
    value = dies_made(algebra, algebra.variable("fixed", 0.1, 1.0), number(0.0), number(0.0), CLUSTERING)
    assert not any(each.kind is AtomKind.maximum for each in algebra.atoms)
    np.testing.assert_allclose(algebra.range(value), [[1.01**10], [1.1**10]])
