"""Many convex programmes of one structure at once: a primal-dual interior point on slots refilled from a pool.

With slacks s, excesses e at the price R, multipliers λ and the box's multipliers l, u, Newton's method goes to the zero of

    c + Jᵀλ - l + u,   g(y) + s - e,   s·λ - μ,   e·(R - λ) - μ,   (y - lower)·l - μ,   (upper - y)·u - μ     as μ → 0

from a start that need not be feasible, with Mehrotra's predictor and corrector. With Λ = 1 / (s/λ + e/(R - λ)), its matrix is

    Σ_k λ_k ∇²g_k + Jᵀ Λ J + l / (y - lower) + u / (upper - y)

where a log-sum-exp of weights p has ∇²g = Σ p_i A_i A_iᵀ - ∇g ∇gᵀ, and none of one term has any. Exponents, Jacobians and
Newton matrices are mostly zeros, the same ones in all programmes of a structure: they are products of sparse matrices with
columns of numbers, and one sparse Cholesky factor for all. That is NumPy and SciPy's: nothing is traced or compiled, so
a new structure costs milliseconds. Each iteration tests the tangent bound of `hwopt.convex.certificate` on the gradient that
is there anyway: a programme that cannot beat `cutoff`, or has no feasible point at all, is dropped at once.

**Source:** Mehrotra, SIAM J. Optim. 2 (1992) 575; Wright, Primal-Dual Interior-Point Methods (1997); Boyd and Vandenberghe,
Convex Optimization (2004), 11.7.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from hwopt.convex.programme import Numbers, Structure
from hwopt.convex.sparse_cholesky import SparseCholesky

SLOTS = 128
"""Programmes in work at a time: enough that arithmetic outweighs calls, few enough for a cache."""
REFILL = 8
"""Slots are emptied and filled again when one in so many is done."""
BOUNDARY = 0.995
"""Fraction of the way to the boundary that a step may go."""
ABSENT = -1e9
"""Stands for -inf in exponents: its exponential is zero, and zero times it is no NaN."""
FROZEN_WIDTH = 1e-11
"""A narrower box holds a constant, not a variable."""
INSIDE = 0.05
"""Least distance of a start from each side of the box, as a fraction of its width."""
ROOF = 1e4
"""No multiplier exceeds this times the largest objective weight (or times one): a violation has a price, so that the search
stays bounded where there is no feasible point."""
SLOWER, FASTER, SLOWEST = 0.3, 2.0, 0.05
"""Steps shorten by this where the residuals grew, else lengthen again, and are never shorter than this part of a full one:
far from the solution, Newton's method on log-sum-exp oscillates."""
APART = 3.0
"""Largest ratio between the steps of primal and dual."""
DAMPING = 1e-12
"""Least addition to the Newton matrix's diagonal: it holds directions still that nothing else does."""
FLOOR = 0.1
"""Sum of the complementarity products at which centring stops, as a fraction of the tolerance."""
ROUNDING = 1e-12
"""Margin of bounds within the iteration, as a fraction of the sum of absolute values."""
STRUCTURES = 64
"""Structures whose sparsity is remembered."""


class Status(enum.IntEnum):
    """How the work on a programme ended."""

    solved = 1  # optimal within the tolerance
    dropped = 2  # its optimum is proved to lie above the cutoff
    infeasible = 3  # proved to have no feasible point
    unresolved = 4  # none of these; point and multipliers are those of the best bound seen
    open = 5  # its optimum lies below the cutoff, and is known well enough


_RUNNING = 0
_DONE = -1


@dataclass(frozen=True, eq=False)
class Answers:
    """What came out, problem by problem.

    `bound` is a lower bound on the optimum (infinite where there is no feasible point), reproduced from `y` and
    `multipliers` by `certificate.lower_bound`, as is the proof of infeasibility by `certificate.infeasibility`.
    """

    y: np.ndarray  # (problem, variable)
    multipliers: np.ndarray  # (problem, group)
    objective: np.ndarray  # (problem,) c·y; infinite where infeasible
    bound: np.ndarray  # (problem,)
    status: np.ndarray  # (problem,) int, of `Status`
    iterations: np.ndarray  # (problem,) int
    residual: np.ndarray  # (problem,) largest of |projected gradient|, violation, |λ_k g_k|

    @staticmethod
    def none(y: np.ndarray, multipliers: np.ndarray) -> Answers:
        """Problems that nobody worked on, with points and multipliers that bound them."""
        count = len(y)
        numbers = (np.full(count, np.inf), np.full(count, -np.inf), np.full(count, int(Status.dropped)))
        return Answers(y.copy(), multipliers.copy(), *numbers, np.zeros(count, int), np.full(count, np.inf))

    def put(self, rows: np.ndarray, answers: Answers) -> None:
        """Answers of some problems in their places."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(answers, each.name)


class _Frame:
    """What all programmes of a structure share: which numbers are there, and where they go.

    Groups are ordered log-sum-exps first, then those with targets; terms by groups; variables by elimination.
    """

    def __init__(self, structure: Structure):
        count, variables = len(structure.target), structure.exponents.shape[1]
        self.groups = np.argsort(structure.target >= 0, kind="stable")
        place = np.argsort(self.groups)
        self.terms = np.argsort(place[structure.group], kind="stable")
        self.group = place[structure.group][self.terms]
        self.soft = int((structure.target < 0).sum())
        self.soft_terms = int((self.group < self.soft).sum())
        self.present, self.first = np.unique(self.group[: self.soft_terms], return_index=True)
        sums = sparse.csr_array(
            (np.ones(len(self.group)), (self.group, np.arange(len(self.group)))), (count, len(self.group))
        )

        touched = (sums @ (structure.exponents[self.terms] != 0)) > 0
        bounded = np.arange(self.soft, count)
        touched[bounded, structure.target[self.groups[bounded]]] = True
        terms = np.bincount(self.group, minlength=count)
        self.straight = (np.arange(count) < self.soft) & (terms <= 1)  # log-sum-exps of one term
        self.factors = SparseCholesky(touched.T.astype(float) @ touched > 0)
        self.variables = self.factors.order
        entry, touched = self.factors.entry, touched[:, self.variables]
        exponents = structure.exponents[np.ix_(self.terms, self.variables)]
        self.target = np.argsort(self.variables)[structure.target[self.groups[bounded]]]
        self.objective = structure.objective[self.variables]
        self.roof = ROOF * max(1.0, np.abs(self.objective).max(initial=0.0))

        self.exponents = sparse.csr_array(exponents)
        self.by_variable = sparse.csr_array(exponents.T)
        self.sums = sums
        self.to_target = sparse.csr_array((np.ones(len(bounded)), (self.target, bounded)), (variables, count))
        # Σ w_i A_i A_iᵀ: numbers of the matrix from weights of the terms.
        term, row, column = _pairs(exponents != 0)
        self.squares = sparse.csr_array(
            (exponents[term, row] * exponents[term, column], (entry[row, column], term)),
            (self.factors.entries, len(exponents)),
        )
        # J of all but straight groups: its numbers from weights of the terms; Jᵀ D J from their products.
        curved = np.flatnonzero(~self.straight)
        at, of = np.nonzero(touched[curved])
        self.slope_group = curved[at]
        number = np.full(touched.shape, -1)
        number[self.slope_group, of] = np.arange(len(at))
        term, variable = np.nonzero(exponents)
        kept = ~self.straight[self.group[term]]
        term, variable = term[kept], variable[kept]
        self.slopes = sparse.csr_array(
            (exponents[term, variable], (number[self.group[term], variable], term)), (len(at), len(exponents))
        )
        self.of_targets = np.zeros((len(at), 1))
        self.of_targets[number[bounded, self.target]] = 1.0
        group, row, column = _pairs(touched & ~self.straight[:, None])
        into = entry[row, column]
        sort = np.argsort(into, kind="stable")
        self.left, self.right = number[group, row][sort], number[group, column][sort]
        self.outer = sparse.csr_array(
            (np.ones(len(into)), (into[sort], np.arange(len(into)))), (self.factors.entries, len(into))
        )


def _pairs(present: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a table, and all pairs (row of a matrix, column not after it) of what is present in each."""
    row, column = np.nonzero(np.tril(np.ones((present.shape[1],) * 2, bool)))
    each, pair = np.nonzero(present[:, row] & present[:, column])
    return each, row[pair], column[pair]


_frame = lru_cache(maxsize=STRUCTURES)(_Frame)


class _Given(NamedTuple):
    """Numbers of programmes, a column each, the box moved to [0, width]."""

    number: np.ndarray  # (problem,) which of all
    constants: np.ndarray  # (term, problem)
    offsets: np.ndarray  # (bounded group, problem)
    cap: np.ndarray  # (bounded term, problem): exponentials go on as straight lines from here
    width: np.ndarray  # (variable, problem)
    there: np.ndarray  # (pair, problem) 1, or 0 of groups without terms and of constants
    pairs: np.ndarray  # (problem,) how many are there
    cutoff: np.ndarray  # (problem,)
    loose: np.ndarray  # (problem,) tolerance of what cannot be dropped


class _State(NamedTuple):
    """Where programmes are, a column each.

    Complementary pairs (near, far) are (s, λ), (e, R - λ), (y - lower, l), (upper - y, u), in this order; what is not there
    is one.
    """

    y: np.ndarray  # (variable, problem)
    slack: np.ndarray  # (2 groups, problem) s, e
    multiplier: np.ndarray  # (group, problem) λ
    at_box: np.ndarray  # (2 variables, problem) l, u
    damping: np.ndarray
    merit: np.ndarray
    pace: np.ndarray
    iteration: np.ndarray
    best_y: np.ndarray
    best_multiplier: np.ndarray
    best_bound: np.ndarray
    best_residual: np.ndarray


class _Judged(NamedTuple):
    """What is known of programmes where they are, a column each."""

    status: np.ndarray
    values: np.ndarray  # (group, problem) g
    weights: np.ndarray  # (term, problem) of terms in the gradients
    bend: np.ndarray  # (term, problem) in the curvatures
    gradient: np.ndarray  # (variable, problem) of the Lagrangian


Columns = TypeVar("Columns", _Given, _State, _Judged)


def _taken(columns: Columns, which: np.ndarray) -> Columns:
    return type(columns)(*(each.take(which, axis=-1) for each in columns))


def _joined(columns: Columns, more: Columns) -> Columns:
    return type(columns)(*(np.concatenate(pair, axis=-1) for pair in zip(columns, more, strict=True)))


def _columns(table: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A table of problems (problem, number) with a column each, and its numbers in order."""
    return np.ascontiguousarray(table[:, order].T)


def _given(structure: Structure, numbers: Numbers, frame: _Frame, cutoff: np.ndarray, loose: np.ndarray) -> _Given:
    """All programmes, the box moved to [0, width]."""
    lower, upper = _columns(numbers.lower, frame.variables), _columns(numbers.upper, frame.variables)
    constants = _columns(numbers.constants, frame.terms)
    present = np.isfinite(constants)
    moved = np.where(present, constants, 0.0) + frame.exponents @ lower
    offsets = _columns(numbers.offsets, frame.groups[frame.soft :])
    # At a feasible point no exponential of the group exceeds the upper bound of its target less the offset.
    room = np.log(np.maximum(upper[frame.target] - offsets, 1e-30)) + 0.5
    alive = (frame.sums @ present.astype(float)) > 0
    alive[frame.soft :] = True
    width = upper - lower
    free = width > FROZEN_WIDTH
    there = np.concatenate([alive, alive, free, free]).astype(float)
    return _Given(
        np.arange(len(numbers)), np.where(present, moved, ABSENT), offsets - lower[frame.target],
        room[frame.group[frame.soft_terms :] - frame.soft], width, there, there.sum(axis=0),
        cutoff - numbers.lower @ structure.objective, loose,
    )  # fmt: skip


def _begin(frame: _Frame, given: _Given, start: np.ndarray) -> _State:
    """Fresh states: every product of a pair is one."""
    y = np.clip(start, INSIDE * given.width, (1.0 - INSIDE) * given.width)
    groups, count = len(frame.groups), y.shape[1]
    ones = np.ones((groups, count))
    free = given.there[2 * groups :] > 0
    return _State(
        y, np.concatenate([ones, ones / frame.roof]), ones, np.where(free, 1.0 / np.concatenate([y, given.width - y]), 1.0),
        np.zeros(count), np.full(count, np.inf), np.ones(count), np.zeros(count, int),
        y, np.zeros_like(ones), np.full(count, -np.inf), np.full(count, np.inf),
    )  # fmt: skip


def _values(frame: _Frame, given: _Given, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group values g, weights of terms in the gradients, and weights of terms in the curvatures."""
    weights = frame.exponents @ y
    weights += given.constants
    soft, terms = frame.soft, frame.soft_terms
    alive = given.there[:soft]
    shift = np.zeros_like(alive)
    if terms:
        shift[frame.present] = np.maximum.reduceat(weights[:terms], frame.first, axis=0)
    shift *= alive
    weights[:terms] -= shift.take(frame.group[:terms], axis=0)
    above = np.maximum(weights[terms:] - given.cap, 0.0)
    weights[terms:] -= above
    np.exp(weights, out=weights)
    bend = weights.copy()
    bend[terms:] *= 1.0 + above
    values = frame.sums @ bend
    scale = values[:soft] + (1.0 - alive)
    values[:soft] = shift + np.log(scale)
    values[soft:] += given.offsets - y[frame.target]
    weights[:terms] /= scale.take(frame.group[:terms], axis=0)
    bend[:terms] = weights[:terms]
    bend[terms:] = np.where(above > 0.0, 0.0, weights[terms:])
    return values, weights, bend


def _pull(frame: _Frame, weights: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Jᵀ v."""
    return frame.by_variable @ (weights * v.take(frame.group, axis=0)) - frame.to_target @ v


def _push(frame: _Frame, weights: np.ndarray, d: np.ndarray) -> np.ndarray:
    """J d."""
    terms = frame.exponents @ d
    terms *= weights
    result = frame.sums @ terms
    result[frame.soft :] -= d[frame.target]
    return result


def _judged(frame: _Frame, given: _Given, state: _State, tolerance: float) -> tuple[_Judged, _State]:
    """How programmes stand where they are, and their states with the best that was seen."""
    y, multiplier = state.y, state.multiplier
    values, weights, bend = _values(frame, given, y)
    of_constraints = _pull(frame, weights, multiplier)
    gradient = frame.objective[:, None] + of_constraints
    objective = frame.objective @ y
    violation = values.max(axis=0, initial=0.0)
    weighted = multiplier * values
    total = weighted.sum(axis=0)

    def least(slope: np.ndarray) -> np.ndarray:  # of a tangent over the box
        return np.minimum(-slope * y, slope * (given.width - y)).sum(axis=0)

    size = np.abs(weighted)
    mass = size.sum(axis=0) + (np.abs(of_constraints) * given.width).sum(axis=0)
    bound = objective + total + least(gradient)
    farkas = total + least(of_constraints)
    stationary = np.abs(y - np.clip(y - gradient, 0.0, given.width)).max(axis=0, initial=0.0)
    residual = np.maximum(np.maximum(stationary, violation), size.max(axis=0, initial=0.0))

    solved = (objective - bound <= tolerance) & (violation <= tolerance)
    status = np.where(solved, Status.solved, _RUNNING)
    enough = (objective - bound <= given.loose) & (violation <= given.loose) & (objective + given.loose <= given.cutoff)
    status[enough & ~solved] = Status.open
    status[bound - 10 * ROUNDING * (mass + np.abs(objective)) > given.cutoff] = Status.dropped
    status[farkas > 1e-9 + 10 * ROUNDING * mass] = Status.infeasible
    better = (bound > state.best_bound) | (status != _RUNNING)
    best = state._replace(
        best_y=np.where(better, y, state.best_y),
        best_multiplier=np.where(better, multiplier, state.best_multiplier),
        best_bound=np.where(better, bound, state.best_bound),
        best_residual=np.where(better, residual, state.best_residual),
    )
    return _Judged(status, values, weights, bend, gradient), best


def _factored(
    frame: _Frame, given: _Given, state: _State, judged: _Judged, ratio: np.ndarray, barrier: np.ndarray
) -> np.ndarray:
    """Cholesky factors of the Newton matrices. **Arguments:** `ratio`: Λ (group, problem); `barrier` (variable, problem)."""
    curvature = np.where(frame.straight[:, None], ratio, state.multiplier)
    matrix = frame.squares @ (judged.bend * curvature.take(frame.group, axis=0))
    slopes = frame.slopes @ judged.weights
    slopes -= frame.of_targets
    outer = ratio.copy()
    outer[: frame.soft] -= state.multiplier[: frame.soft]
    products = (slopes * outer.take(frame.slope_group, axis=0)).take(frame.left, axis=0)
    products *= slopes.take(frame.right, axis=0)
    matrix += frame.outer @ products
    diagonal = matrix[frame.factors.diagonal]
    diagonal += barrier + DAMPING + state.damping * (diagonal + barrier)
    matrix[frame.factors.diagonal] = np.where(_free(frame, given) > 0, diagonal, 1e30)
    return frame.factors.factor(matrix)


def _free(frame: _Frame, given: _Given) -> np.ndarray:
    """1 of variables, 0 of constants (variable, problem)."""
    return given.there[len(given.there) - len(given.width) :]


def _stepped(frame: _Frame, given: _Given, state: _State, judged: _Judged, tolerance: float) -> _State:
    """One step of Newton's method, predicted and corrected."""
    groups, variables = len(frame.groups), len(frame.variables)
    y, multiplier, there, free = state.y, state.multiplier, given.there, _free(frame, given)
    begins = state.iteration == 0
    slack = state.slack.copy()
    slack[:groups, begins] = np.maximum(-judged.values[:, begins], 1.0)
    fixed = 1.0 - free
    near = np.concatenate([slack, y + fixed * (1.0 - y), given.width - y + fixed * (1.0 - given.width + y)])
    far = np.concatenate([multiplier, frame.roof - multiplier, state.at_box])
    of_groups, of_box = slice(2 * groups), slice(2 * groups, None)
    at_lower, at_upper = state.at_box[:variables], state.at_box[variables:]
    ratios = near[of_groups] / far[of_groups]
    ratio = there[:groups] / (ratios[:groups] + ratios[groups:])
    barriers = far[of_box] / near[of_box]
    factor = _factored(frame, given, state, judged, ratio, barriers[:variables] + barriers[variables:])
    primal = there[:groups] * (judged.values + slack[:groups] - slack[groups:])
    dual = judged.gradient - at_lower + at_upper

    def direction(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Changes of `near` and `far` by which the products of pairs fall by `of`, to first order."""
        shares = of[of_groups] / far[of_groups]
        v = ratio * (primal - shares[:groups] + shares[groups:])
        shares = of[of_box] / near[of_box]
        right = free * (shares[variables:] - shares[:variables] - dual - _pull(frame, judged.weights, v))
        d = free * frame.factors.solve(factor, right)
        change = v + ratio * _push(frame, judged.weights, d)
        by_near, by_far = np.empty_like(near), np.empty_like(far)
        by_far[of_groups] = np.concatenate([change, -change])
        by_near[of_groups] = -(of[of_groups] + near[of_groups] * by_far[of_groups]) / far[of_groups]
        by_near[of_box] = np.concatenate([d, -d])
        by_far[of_box] = -(of[of_box] + far[of_box] * by_near[of_box]) / near[of_box]
        return by_near, by_far

    def reach(x: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Steps up to which x stays above zero."""
        return 1.0 / (-change / x).max(axis=0, initial=0.0)

    products = there * near * far
    mu = products.sum(axis=0) / given.pairs
    by_near, by_far = direction(products)
    a, b = np.minimum(reach(near, by_near), 1.0), np.minimum(reach(far, by_far), 1.0)
    ahead = (there * (near + a * by_near) * (far + b * by_far)).sum(axis=0) / given.pairs
    # Products far below the tolerance spoil the matrix and buy nothing.
    centre = np.maximum(np.clip(ahead / mu, 0.0, 1.0) ** 3 * mu, FLOOR * tolerance / given.pairs)
    by_near, by_far = direction(products + by_near * by_far - there * centre)
    merit = np.abs(free * dual).max(axis=0, initial=0.0) + np.abs(primal).max(axis=0, initial=0.0) + mu
    pace = np.where(merit > state.merit, SLOWER * state.pace, np.minimum(FASTER * state.pace, 1.0))
    pace = np.maximum(pace, SLOWEST)
    a, b = (pace * np.minimum(BOUNDARY * reach(*each), 1.0) for each in ((near, by_near), (far, by_far)))
    a, b = np.minimum(a, APART * b), np.minimum(b, APART * a)
    sound = np.isfinite(by_near.sum(axis=0) + by_far[:groups].sum(axis=0))

    def moved(x: np.ndarray, step: np.ndarray, by: np.ndarray) -> np.ndarray:
        return np.where(sound, x + step * by, x)

    return state._replace(
        y=moved(y, a, by_near[2 * groups : 2 * groups + variables]),
        slack=moved(slack, a, by_near[of_groups]),
        multiplier=moved(multiplier, b, by_far[:groups]),
        at_box=moved(state.at_box, b, by_far[of_box]),
        damping=np.where(sound, 0.1 * state.damping, np.maximum(1e2 * state.damping, 1e-14)),
        merit=merit,
        pace=pace,
        iteration=state.iteration + 1,
    )


def solve(
    structure: Structure,
    numbers: Numbers,
    *,
    cutoff: np.ndarray | float | None = None,
    start: np.ndarray | None = None,
    tolerance: float = 1e-9,
    loose: np.ndarray | float = 0.0,
    iterations: int = 80,
) -> Answers:
    """Solve all programmes of a batch.

    **Arguments:** `cutoff` of each problem, or of all: one whose optimum is proved to lie above it is dropped. `start`:
    points to begin at (problem, variable); the middle of the box if None. `tolerance`: largest gap between objective and
    bound, and largest violation, of a solved problem; `loose`: those of a problem whose optimum lies below the cutoff, where
    that is all that matters, of each problem or of all. `iterations`: after so many a problem is given up as unresolved.
    **Returns:** answers, in the order of the problems.
    """
    frame = _frame(structure)
    count = len(numbers)
    empty = np.any(numbers.lower > numbers.upper, axis=1)
    answers = Answers.none(numbers.lower, np.zeros((count, len(structure.target))))
    answers.status[:] = np.where(empty, Status.infeasible, Status.unresolved)
    limits = (np.broadcast_to(np.asarray(x, float), (count,)) for x in (np.inf if cutoff is None else cutoff, loose))
    with np.errstate(all="ignore"):
        given = _given(structure, numbers, frame, *limits)
        first = 0.5 * given.width if start is None else _columns(start - numbers.lower, frame.variables)
        for done, status, state in _worked(frame, given, first, np.flatnonzero(~empty), tolerance, iterations):
            alive = given.there[: len(frame.groups), done]
            answers.y[done[:, None], frame.variables] += state.best_y.T
            answers.multipliers[done[:, None], frame.groups] = (alive * state.best_multiplier).T
            answers.bound[done] = state.best_bound + numbers.lower[done] @ structure.objective
            answers.status[done] = np.where(status == _RUNNING, Status.unresolved, status)
            answers.iterations[done], answers.residual[done] = state.iteration, state.best_residual
    none = answers.status == Status.infeasible
    answers.y[:] = np.clip(answers.y, numbers.lower, np.maximum(numbers.lower, numbers.upper))
    answers.objective[:] = np.where(none, np.inf, answers.y @ structure.objective)
    answers.bound[none] = np.inf
    return answers


def _worked(
    frame: _Frame, given: _Given, first: np.ndarray, waiting: np.ndarray, tolerance: float, iterations: int
) -> Iterator[tuple[np.ndarray, np.ndarray, _State]]:
    """Programmes as they are done with: their numbers, how they ended, and their states.

    **Arguments:** `first`: points to begin at; `waiting`: numbers of those to work on.
    """
    here, state = _taken(given, waiting[:0]), _begin(frame, _taken(given, waiting[:0]), first[:, :0])
    while here.number.size or waiting.size:
        room = SLOTS - here.number.size
        if waiting.size and room * REFILL >= SLOTS:
            more = _taken(given, waiting[:room])
            state = _joined(state, _begin(frame, more, first.take(waiting[:room], axis=1)))
            here, waiting = _joined(here, more), waiting[room:]
        judged, state = _judged(frame, here, state, tolerance)
        done = (here.number != _DONE) & ((judged.status != _RUNNING) | (state.iteration >= iterations))
        if done.any():
            at = np.flatnonzero(done)
            yield here.number[at], judged.status[at], _taken(state, at)
            here.number[at] = _DONE
        left = np.flatnonzero(here.number != _DONE)
        if (here.number.size - left.size) * REFILL >= here.number.size:
            here, state, judged = _taken(here, left), _taken(state, left), _taken(judged, left)
        if here.number.size:
            state = _stepped(frame, here, state, judged, tolerance)
