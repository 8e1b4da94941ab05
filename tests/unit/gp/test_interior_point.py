"""The batched interior point against independent solvers, derivatives and itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from hwopt.errors import UserError
from hwopt.solver.gp import certificate
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus


def programmes(seed, problem=8, variable=8, group=12, term=30, exponential=2, absent=0.1, narrow=1):
    """Random programmes, each with a point that satisfies all constraints."""
    random = np.random.default_rng(seed)
    sizes = np.ones(group, int) + random.multinomial(term - group, np.r_[np.zeros(group // 3), np.ones(group - group // 3)]
                                                     / (group - group // 3))  # fmt: skip
    of = np.repeat(np.arange(group), sizes)
    target = np.full(group, -1)
    if exponential:
        target[-exponential:] = np.arange(exponential)
    exponents = np.zeros((term, variable))
    for i in range(term):
        touched = random.choice(np.arange(exponential, variable), random.integers(1, 4), replace=False)
        exponents[i, touched] = random.choice([-2, -1, -0.5, 0.5, 1, 2], len(touched)) * (
            0.3 if target[of[i]] >= 0 else 1
        )
    objective = random.normal(size=variable)
    objective[:exponential] = random.uniform(0.2, 1.0, exponential)
    width = random.uniform(1.0, 6.0, (problem, variable))
    width[:, variable - narrow :] = 2e-6
    middle = random.normal(size=(problem, variable)) * 2
    inside = middle + 0.7 * (random.uniform(size=width.shape) - 0.5) * width
    b = random.normal(size=(problem, term)) - inside @ exponents.T
    b[random.uniform(size=b.shape) < absent] = -np.inf
    offsets = np.zeros((problem, group))
    room = np.where(random.uniform(size=(problem, group)) < 0.4, 0.03, random.exponential(size=(problem, group)))
    for k in range(group):
        z = b[:, of == k] + inside @ exponents[of == k].T
        total = np.exp(z).sum(axis=1)
        if target[k] >= 0:
            offsets[:, k] = inside[:, target[k]] - total - room[:, k]
        else:
            b[:, of == k] -= (np.log(np.where(total > 0, total, 1.0)) + room[:, k])[:, None]
    structure = ProgramStructure(exponents, of, target, objective)
    return structure, ProgramNumbers(b, offsets, middle - width / 2, middle + width / 2), inside


def constraints(structure, numbers, y):
    """Values and Jacobian of one problem's groups, terms absent left out; written for these tests alone."""
    values, slopes = [], []
    for k, t in enumerate(structure.target):
        here = (structure.group == k) & np.isfinite(numbers.constants[0])
        z = structure.exponents[here] @ y + numbers.constants[0, here]
        if t >= 0:
            values.append(np.exp(z).sum() + numbers.offsets[0, k] - y[t])
            slopes.append(np.exp(z) @ structure.exponents[here] - np.eye(len(y))[t])
        elif len(z):
            values.append(np.logaddexp.reduce(z))
            slopes.append(np.exp(z - values[-1]) @ structure.exponents[here])
    return np.array(values), np.array(slopes)


def by_slsqp(structure, numbers, start):
    problem = dict(
        fun=lambda y: structure.objective @ y,
        jac=lambda y: structure.objective,
        bounds=list(zip(numbers.lower[0], numbers.upper[0], strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda y: -constraints(structure, numbers, y)[0],
            "jac": lambda y: -constraints(structure, numbers, y)[1],
        },
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return minimize(x0=start, **problem)


def by_cvxpy(structure, numbers):
    cvxpy = pytest.importorskip("cvxpy")
    y = cvxpy.Variable(len(structure.objective))
    rules = [y >= numbers.lower[0], y <= numbers.upper[0]]
    for k in range(len(structure.target)):
        here = (structure.group == k) & np.isfinite(numbers.constants[0])
        if here.any():
            rules.append(cvxpy.log_sum_exp(structure.exponents[here] @ y + numbers.constants[0, here]) <= 0)
    problem = cvxpy.Problem(cvxpy.Minimize(structure.objective @ y), rules)
    problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_slsqp(seed):
    structure, numbers, inside = programmes(seed)
    answers = solve(structure, numbers)
    assert np.all(answers.status == SolveStatus.solved)
    assert np.all(certificate.violation(structure, numbers, answers.y) <= 1e-8)
    bound = certificate.lower_bound(structure, numbers, answers.y, answers.multipliers)
    assert np.all(answers.objective - bound <= 3e-9)
    np.testing.assert_allclose(bound, answers.bound, atol=1e-9)
    assert np.all(certificate.kkt_residual(structure, numbers, answers.y, answers.multipliers) <= 1e-6)
    assert np.all(answers.residual <= 1e-6)
    compared = 0
    for i in range(len(numbers)):
        one = numbers.take([i])
        other = by_slsqp(structure, one, inside[i])
        if other.success and constraints(structure, one, other.x)[0].max() < 1e-9:
            assert answers.objective[i] == pytest.approx(other.fun, abs=1e-6)
            compared += 1
    assert compared >= len(numbers) // 2


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_cvxpy(seed):
    structure, numbers, _ = programmes(100 + seed, problem=4, exponential=0)
    answers = solve(structure, numbers)
    for i in range(len(numbers)):
        assert answers.objective[i] == pytest.approx(by_cvxpy(structure, numbers.take([i])), abs=1e-6)


def test_redundant_and_parallel_constraints():
    structure, numbers, _ = programmes(5)
    twice = ProgramStructure(
        np.concatenate([structure.exponents, 3 * structure.exponents[:4], structure.exponents]),
        np.concatenate([structure.group, [12, 13, 14, 15], structure.group + 16]),
        np.concatenate([structure.target, [-1] * 4, structure.target]),
        structure.objective,
    )
    b = numbers.constants
    again = replace(
        numbers,
        constants=np.concatenate([b, 3 * b[:, :4], b], axis=1),
        offsets=np.concatenate([numbers.offsets, np.zeros((len(numbers), 4)), numbers.offsets], axis=1),
    )
    once, more = solve(structure, numbers), solve(twice, again)
    assert np.all(more.status == SolveStatus.solved)
    np.testing.assert_allclose(more.objective, once.objective, atol=3e-9)


def test_wide_boxes_and_a_constant():
    structure, numbers, inside = programmes(6, exponential=2, narrow=1)
    numbers.lower[:, 2:-1] = inside[:, 2:-1] - 30
    numbers.upper[:, 2:-1] = inside[:, 2:-1] + 30
    numbers.lower[:, -1] = numbers.upper[:, -1] = inside[:, -1]
    answers = solve(structure, numbers)
    assert np.all(answers.status == SolveStatus.solved)
    np.testing.assert_array_equal(answers.y[:, -1], inside[:, -1])


def test_a_group_without_terms_holds():
    structure, numbers, _ = programmes(7)
    numbers.constants[:, structure.group == 5] = -np.inf
    answers = solve(structure, numbers)
    assert np.all(answers.status == SolveStatus.solved)
    assert np.all(answers.multipliers[:, 5] == 0)
    assert np.all(np.isfinite(answers.y)) and np.all(np.isfinite(answers.multipliers))


def test_multipliers_are_derivatives_of_the_optimum():
    structure, numbers, _ = programmes(8, problem=4)
    answers = solve(structure, numbers, tolerance=1e-10)
    step = 1e-4
    for k, t in enumerate(structure.target):
        ends = []
        for sign in (1, -1):
            b, offsets = numbers.constants.copy(), numbers.offsets.copy()
            if t >= 0:
                offsets[:, k] += sign * step
            else:
                b[:, structure.group == k] += sign * step
            ends.append(solve(structure, replace(numbers, constants=b, offsets=offsets), tolerance=1e-10).objective)
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), answers.multipliers[:, k], atol=2e-3)


def contradiction(numbers, structure, random, curved):
    """Two further groups of terms, or one, that no point satisfies."""
    a = np.zeros(len(structure.objective))
    a[2:5] = random.normal(size=3)
    at = 0.5 * (numbers.lower + numbers.upper) @ a
    last = structure.group[-1]
    wide = ProgramStructure(
        np.concatenate([structure.exponents, [a, -a]]),
        np.concatenate([structure.group, [last + 1, last + (1 if curved else 2)]]),
        np.concatenate([structure.target, [-1, -1]]),
        structure.objective,
    )
    by = 0.01 - (np.log(2.0) if curved else 0.0)
    b = np.concatenate([numbers.constants, (by - at)[:, None], (by + at)[:, None]], axis=1)
    offsets = np.concatenate([numbers.offsets, np.zeros((len(numbers), 2))], axis=1)
    return wide, replace(numbers, constants=b, offsets=offsets)


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_infeasible_ones_are_proved(seed, curved):
    structure, numbers, _ = programmes(200 + seed)
    structure, numbers = contradiction(numbers, structure, np.random.default_rng(seed), curved)
    answers = solve(structure, numbers)
    assert np.all(answers.status == SolveStatus.infeasible)
    assert np.all(certificate.infeasibility(structure, numbers, answers.y, answers.multipliers) > 0)
    assert np.all(np.isinf(answers.objective)) and np.all(np.isinf(answers.bound))


def test_never_a_false_proof():
    for seed in range(300, 310):
        structure, numbers, _ = programmes(seed, problem=40, absent=0.2)
        assert np.all(solve(structure, numbers).status == SolveStatus.solved)


def test_an_empty_box_is_infeasible():
    structure, numbers, _ = programmes(9)
    numbers.lower[0, 3] = numbers.upper[0, 3] + 1.0
    assert solve(structure, numbers).status[0] == SolveStatus.infeasible


def test_cutoff_drops_with_proof():
    structure, numbers, _ = programmes(10, problem=70)
    full = solve(structure, numbers)
    limit = np.median(full.objective)
    answers = solve(structure, numbers, cutoff=limit)
    np.testing.assert_array_equal(answers.status == SolveStatus.dropped, full.objective > limit + 1e-8)
    dropped = answers.status == SolveStatus.dropped
    assert np.all(answers.bound[dropped] > limit)
    assert np.all(answers.bound[dropped] <= full.objective[dropped] + 1e-8)
    assert answers.iterations[dropped].mean() < full.iterations[dropped].mean()


def test_rough_answers_begin_in_single_precision_and_prove_as_much():
    structure, numbers, _ = programmes(14, problem=140)
    full = solve(structure, numbers)
    limit = float(np.median(full.objective))
    rough = np.where(np.arange(140) % 7, 2e-3, 0.0)
    answers = solve(structure, numbers, cutoff=limit, loose=rough)
    bound = certificate.lower_bound(structure, numbers, answers.y, answers.multipliers)
    assert np.all(bound <= full.objective + 1e-8)
    clear = np.abs(full.objective - limit) > 1e-3
    np.testing.assert_array_equal((bound > limit)[clear], (full.objective > limit)[clear])
    assert set(answers.status.tolist()) <= {SolveStatus.dropped, SolveStatus.open, SolveStatus.solved}
    opened = answers.status == SolveStatus.open
    assert opened.any()
    assert np.all(full.objective[opened] - bound[opened] <= 2e-3 + 1e-8)
    sharp = rough == 0.0
    alone = solve(structure, numbers.take(np.flatnonzero(sharp)), cutoff=limit)
    np.testing.assert_allclose(answers.objective[sharp], alone.objective, atol=1e-12)
    np.testing.assert_array_equal(answers.status[sharp], alone.status)


def test_rough_answers_beyond_single_precision():
    """min t, exp(20 + x) + exp(20 - x) <= t: 2 exp(20), which single precision has to 64."""
    size, loose = 20.0, 2e-3
    structure = ProgramStructure(
        np.array([[1.0, 0.0], [-1.0, 0.0]]), np.zeros(2, int), np.array([1]), np.array([0.0, 1.0])
    )
    ends = np.array([[-1.0, 0.0]]), np.array([[2.0, 10.0 * np.exp(size)]])
    numbers = ProgramNumbers(np.full((1, 2), size), np.zeros((1, 1)), *ends)
    answers = solve(structure, numbers, loose=loose)
    assert answers.status[0] in (SolveStatus.open, SolveStatus.solved)
    assert abs(answers.objective[0] - 2.0 * np.exp(size)) <= 2.0 * loose
    bound = certificate.lower_bound(structure, numbers, answers.y, answers.multipliers)[0]
    assert bound <= 2.0 * np.exp(size) * (1.0 + 1e-12)


def test_infeasible_rough_ones_are_proved():
    structure, numbers, _ = programmes(9, problem=70)
    numbers.constants[::2] += 1.0
    sharp, rough = solve(structure, numbers), solve(structure, numbers, loose=2e-3)
    np.testing.assert_array_equal(rough.status == SolveStatus.infeasible, sharp.status == SolveStatus.infeasible)
    none = rough.status == SolveStatus.infeasible
    assert none.any()
    assert np.all(certificate.infeasibility(structure, numbers, rough.y, rough.multipliers)[none] > 0)


def test_too_few_iterations_are_unresolved_with_a_true_bound():
    structure, numbers, _ = programmes(11)
    full, short = solve(structure, numbers), solve(structure, numbers, iterations=4)
    assert np.all(short.status == SolveStatus.unresolved)
    assert np.all(short.bound <= full.objective + 1e-8)
    bound = certificate.lower_bound(structure, numbers, short.y, short.multipliers)
    np.testing.assert_allclose(bound, short.bound, atol=1e-8)


def test_batch_is_single_and_any_start_does():
    structure, numbers, inside = programmes(12, problem=100)
    together = solve(structure, numbers)
    elsewhere = solve(structure, numbers, start=inside)
    np.testing.assert_allclose(elsewhere.objective, together.objective, atol=3e-9)
    for i in (0, 50, 99):
        alone = solve(structure, numbers.take([i]))
        np.testing.assert_allclose(alone.y[0], together.y[i], atol=1e-9)
        np.testing.assert_allclose(alone.multipliers[0], together.multipliers[i], atol=1e-7)


def test_padding_has_no_effect():
    structure, numbers, _ = programmes(13)
    wide = ProgramStructure(
        np.pad(structure.exponents, ((0, 60), (0, 5))),
        np.concatenate([structure.group, np.repeat(np.arange(12, 32), 3)]),
        np.concatenate([structure.target, np.full(20, -1)]),
        np.pad(structure.objective, (0, 5)),
    )
    count = len(numbers)
    more = ProgramNumbers(
        np.pad(numbers.constants, ((0, 0), (0, 60)), constant_values=-np.inf),
        np.pad(numbers.offsets, ((0, 0), (0, 20))),
        np.concatenate([numbers.lower, np.zeros((count, 5))], axis=1),
        np.concatenate([numbers.upper, np.zeros((count, 5))], axis=1),
    )
    plain, padded = solve(structure, numbers), solve(wide, more)
    np.testing.assert_allclose(padded.y[:, :8], plain.y, atol=1e-8)
    np.testing.assert_allclose(padded.multipliers[:, :12], plain.multipliers, atol=1e-6)
    np.testing.assert_array_equal(padded.iterations, plain.iterations)


def test_sense_of_a_structure():
    with pytest.raises(UserError, match="ascend"):
        ProgramStructure(np.zeros((2, 3)), np.array([1, 0]), np.array([-1, -1]), np.zeros(3))
    with pytest.raises(UserError, match="targets"):
        ProgramStructure(np.zeros((2, 3)), np.array([0, 1]), np.array([-1, 3]), np.zeros(3))
