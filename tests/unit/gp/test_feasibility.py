"""Contradictions are proved, by programmes whose feasibility is known by construction; what is feasible never is."""

from __future__ import annotations

import numpy as np
import pytest

from hwopt.solver.gp import certificate
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.elastic import MOST, elastic_program, infeasible
from hwopt.solver.interior_point.result import SolveStatus

VARIABLES = 4
BATCH = 40


def random_structure(random, terms=3, groups=6):
    """Groups of a few terms; the last two bound a variable each."""
    count = terms * groups
    exponents = random.normal(size=(count, VARIABLES)) * (random.uniform(size=(count, VARIABLES)) < 0.7)
    target = np.full(groups, -1)
    target[-2:] = 0, 1
    exponents[-2 * terms : -terms, 0] = exponents[-terms:, 1] = 0.0
    return ProgramStructure(exponents, np.repeat(np.arange(groups), terms), target, random.normal(size=VARIABLES))


def through(structure, random, slack):
    """Numbers of programmes in which every group has exactly this slack at some point of the box."""
    count, groups = len(slack), len(structure.target)
    lower = random.uniform(-3, -0.5, (count, VARIABLES))
    upper = random.uniform(0.5, 3, (count, VARIABLES))
    y = random.uniform(lower, upper)
    constants = random.normal(size=(count, len(structure.group)))
    constants[random.uniform(size=constants.shape) < 0.1] = -np.inf
    offsets = np.zeros((count, groups))
    z = np.exp(constants + y @ structure.exponents.T)
    for k in range(groups):
        terms = structure.group == k
        total, target = z[:, terms].sum(axis=1), structure.target[k]
        if target < 0:
            with np.errstate(divide="ignore"):
                constants[:, terms] -= np.where(total > 0, np.log(total) + slack, 0.0)[:, None]
        else:
            offsets[:, k] = y[:, target] - total - slack
    return ProgramNumbers(constants, offsets, lower, upper), y


@pytest.mark.parametrize("seed", range(4))
def test_what_has_a_feasible_point_is_never_proved_infeasible(seed):
    random = np.random.default_rng(seed)
    structure = random_structure(random)
    slack = np.repeat([0.0, 1e-9, 1e-3, 0.3], BATCH // 4)
    numbers, y = through(structure, random, slack)
    np.testing.assert_array_less(certificate.violation(structure, numbers, y), 1e-12)
    assert not infeasible(structure, numbers).any()


def with_groups(structure, numbers, rows, constants):
    """The same with monomials more: exponents (row, variable), constants (problem, row)."""
    count, first = len(rows), len(structure.target)
    wider = ProgramStructure(
        np.vstack([structure.exponents, rows]),
        np.append(structure.group, first + np.arange(count)),
        np.append(structure.target, np.full(count, -1)),
        structure.objective,
    )
    offsets = np.hstack([numbers.offsets, np.zeros_like(constants)])
    return wider, ProgramNumbers(np.hstack([numbers.constants, constants]), offsets, numbers.lower, numbers.upper)


@pytest.mark.parametrize("seed", range(4))
def test_two_rows_that_exclude_each_other_are_proved_to(seed):
    """`m <= 1` and `m >= 1 + d` for a monomial m that could be 1 in the box, among rows that could hold."""
    random = np.random.default_rng(seed)
    structure = random_structure(random)
    numbers, y = through(structure, random, np.full(BATCH, 0.1))
    row = random.normal(size=VARIABLES)
    apart = np.repeat([1e-5, 1e-3, 0.1, 3.0], BATCH // 4)
    at = y @ row
    wider, clash = with_groups(structure, numbers, [row, -row], np.stack([-at, at + np.log1p(apart)], axis=1))
    assert infeasible(wider, clash).all()
    wider, holds = with_groups(structure, numbers, [row, -row], np.stack([-at, at], axis=1))
    assert not infeasible(wider, holds).any()


def test_the_mean_of_two_shares():
    """x + y <= 1 leaves 1/(xy) >= 4, which no pair of rows shows, but their curvature."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    structure = ProgramStructure(rows, np.array([0, 0, 1]), np.array([-1, -1]), np.zeros(2))
    most = np.array([3.0, 3.99, 3.999, 3.9999, 4.0, 4.0001, 5.0])
    count = len(most)
    numbers = ProgramNumbers(
        np.stack([np.zeros(count), np.zeros(count), -np.log(most)], axis=1),
        np.zeros((count, 2)),
        np.full((count, 2), np.log(0.01)),
        np.zeros((count, 2)),
    )
    np.testing.assert_array_equal(infeasible(structure, numbers), most < 4.0)


def test_exponentials_and_boxes():
    """exp(x) + c <= t with x and t in boxes: the groups that define a target are part of a contradiction too."""
    structure = ProgramStructure(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1]), np.array([1, -1]), np.zeros(2))
    cap = np.array([1.0, 2.7, np.e - 1e-4, np.e + 1e-4, 3.0])
    count = len(cap)
    lower, upper = np.tile([1.0, -5.0], (count, 1)), np.tile([2.0, 9.0], (count, 1))
    constants = np.stack([np.zeros(count), -cap], axis=1)  # x from the box, log t' = t <= cap
    numbers = ProgramNumbers(constants, np.zeros((count, 2)), lower, upper)
    np.testing.assert_array_equal(infeasible(structure, numbers), cap < np.e)
    shifted = ProgramNumbers(constants, np.tile([0.5, 0.0], (count, 1)), lower, upper)
    np.testing.assert_array_equal(infeasible(structure, shifted), cap < np.e + 0.5)
    by_box = ProgramNumbers(
        np.stack([np.zeros(count), np.full(count, -9.0)], 1), np.zeros((count, 2)), lower, upper.copy()
    )
    by_box.upper[:, 1] = cap  # the box against a group that never gives way: no false proof, if not always one
    assert not (infeasible(structure, by_box) & (cap > np.e)).any()


def test_what_cannot_give_way_far_enough_is_still_right():
    """A row violated by more than the elastic programme can stretch is infeasible, and proved so."""
    structure = ProgramStructure(np.array([[1.0]]), np.array([0]), np.array([-1]), np.zeros(1))
    constants = np.array([[-2.0], [2.0], [2 * MOST]])
    numbers = ProgramNumbers(constants, np.zeros((3, 1)), np.full((3, 1), -1.0), np.full((3, 1), 1.0))
    np.testing.assert_array_equal(infeasible(structure, numbers), [False, True, True])


@pytest.mark.parametrize("seed", range(3))
def test_the_elastic_programme_finds_the_least_common_excess(seed):
    """Rows that give way by its optimum hold at its point; by 1 % less they cannot."""
    random = np.random.default_rng(seed)
    structure = random_structure(random)
    numbers, _ = through(structure, random, np.full(BATCH, -0.2))
    numbers.offsets[:, structure.target >= 0] -= 0.2  # groups with a target hold all the same
    form, given = elastic_program(structure, numbers)
    answers = solve(form, given, tolerance=1e-8)
    assert (answers.status == SolveStatus.solved).all()
    least = answers.objective
    assert (least <= 0.2 + 1e-8).all()
    soft = (structure.target < 0)[structure.group]

    def stretched(by):
        return ProgramNumbers(
            numbers.constants - np.where(soft, by[:, None], 0.0), numbers.offsets, numbers.lower, numbers.upper
        )

    assert (certificate.violation(structure, stretched(least), answers.y[:, :-1]) <= 1e-7).all()
    inside = least > -0.99  # the excess has an end
    assert inside.any()
    assert infeasible(structure, stretched(least - 0.01))[inside].all()
    assert not infeasible(structure, stretched(least + 1e-6)).any()
