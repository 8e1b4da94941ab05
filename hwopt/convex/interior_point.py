"""Many convex programmes of one structure at once: a primal-dual interior point on slots refilled from a pool.

With slacks s, excesses e at the price R, multipliers λ and the box's multipliers l, u, Newton's method goes to the zero of

    c + Jᵀλ - l + u,   g(y) + s - e,   s·λ - μ,   e·(R - λ) - μ,   (y - lower)·l - μ,   (upper - y)·u - μ     as μ → 0

from a start that need not be feasible, with Mehrotra's predictor and corrector. With Λ = 1 / (s/λ + e/(R - λ)), its matrix is

    Σ_k λ_k ∇²g_k + Jᵀ Λ J + l / (y - lower) + u / (upper - y)

where a log-sum-exp of weights p has ∇²g = Σ p_i A_i A_iᵀ - ∇g ∇gᵀ, and none of one term has any: all A_i A_iᵀ of a batch are
one matrix product, and what remains is one small product for each programme. Derivatives of log-sum-exp are written
out, so that no model is ever traced here: structures and numbers are arguments of one kernel, which compiles once for each
class of sizes. Each iteration tests the tangent bound of `hwopt.convex.certificate` on the gradient that is there anyway:
a programme that cannot beat `cutoff`, or has no feasible point at all, is dropped at once.

**Source:** Mehrotra, SIAM J. Optim. 2 (1992) 575; Wright, Primal-Dual Interior-Point Methods (1997); Boyd and Vandenberghe,
Convex Optimization (2004), 11.7.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hwopt.convex.programme import Numbers, Structure

SLOTS = (64, 16)
"""Programmes in work at a time: many, and where no more are left."""
STRIDE = 2
"""Iterations between two looks at which slots are done."""
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
"""Margin of bounds within the kernel, as a fraction of the sum of absolute values."""


class Status(enum.IntEnum):
    """How the work on a programme ended."""

    solved = 1  # optimal within the tolerance
    dropped = 2  # its optimum is proved to lie above the cutoff
    infeasible = 3  # proved to have no feasible point
    unresolved = 4  # none of these; point and multipliers are those of the best bound seen
    open = 5  # its optimum lies below the cutoff, and is known well enough


CLASS = (384, 48, 80, 384, 64, 384)
"""Sizes of the smallest class: terms, variables, groups, pairs of variables that share a term,
curved groups, entries of their Jacobian. Compiling costs seconds, padding milliseconds a batch."""

MOST_CLASSES = 2
"""Classes from which on a structure that fits one gets none of its own."""

MANY = 900
"""Problems of one batch from which a fitting class is worth compiling."""

_RUNNING = 0
_IDLE = -1


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


class _Frame(NamedTuple):
    """A structure, padded: NumPy outside the kernel, JAX within. "Curved" groups are all but single log-sum-exp terms."""

    exponents: Any  # (term, variable)
    group: Any  # (term,) int
    members: Any  # (term, group) 0 or 1
    soft: Any  # (group,) bool: log-sum-exp
    targets: Any  # (group, variable) 0 or 1
    objective: Any  # (variable,)
    straight: Any  # (group,) bool: log-sum-exp of one term
    products: Any  # (pair, term) A_ij·A_ij'
    unpack: Any  # (variable·variable,) int: pair of each entry of the Hessian
    entries: Any  # (entry, term) A_ij of entry (group, j)
    spread: Any  # (curved·variable,) int: entry of each entry of the curved groups' Jacobian
    curved: Any  # (curved,) int
    curved_weight: Any  # (curved,) 0 where padding
    curved_targets: Any  # (curved, variable)
    roof: Any  # () largest multiplier


class _Slots(NamedTuple):
    """Numbers of the programmes in work, the box moved to [0, width]."""

    constants: Any  # (slot, term)
    offsets: Any  # (slot, group)
    cap: Any  # (slot, group): exponentials go on as straight lines from here
    width: Any  # (slot, variable)
    free: Any  # (slot, variable) bool
    alive: Any  # (slot, group) bool
    cutoff: Any  # (slot,)
    loose: Any  # (slot,) tolerance of what cannot be dropped


class _State(NamedTuple):
    y: Any
    slack: Any
    excess: Any
    multiplier: Any
    at_lower: Any
    at_upper: Any
    damping: Any
    merit: Any
    pace: Any
    status: Any
    iteration: Any
    best_y: Any
    best_multiplier: Any
    best_bound: Any
    best_residual: Any


_traces = 0


def traces() -> int:
    """How often the kernel was traced in this process."""
    return _traces


class _Sizes(NamedTuple):
    """Shapes of a frame: what the kernel is compiled for."""

    terms: int
    variables: int
    groups: int
    pairs: int  # of variables that share a term
    curved: int  # groups
    entries: int  # of the curved groups' Jacobian

    def hold(self, other: _Sizes) -> bool:
        return all(a >= b for a, b in zip(self, other, strict=True))

    @property
    def work(self) -> float:
        """Multiplications of an iteration, about."""
        return self.terms * (self.pairs + self.entries) + self.curved * self.variables**2 + self.variables**3


_classes: list[_Sizes] = []


def _class_of(need: _Sizes, problems: int) -> _Sizes:
    """The smallest class of sizes that the kernel was compiled for and that holds a structure; else a new one.

    Many small problems get a class of their own, which pays for its compiling.
    """
    many = problems >= MANY and len(_classes) < MOST_CLASSES
    fitting = [known for known in _classes if known.hold(need) and not (many and known.work > 2.0 * need.work)]
    if fitting:
        return min(fitting, key=lambda known: known.work)
    # In quarters of the usual class, which is the least where problems are few.
    quarters = zip(need, CLASS, strict=True)
    rounded = _Sizes(
        *(max(usual // 4 if many else usual, -(-4 * count // usual) * usual // 4) for count, usual in quarters)
    )
    _classes.append(rounded)
    return rounded


def _frame(structure: Structure, problems: int) -> _Frame:
    term, variable = structure.exponents.shape
    group = len(structure.target)
    members = np.zeros((term, group))
    members[np.arange(term), structure.group] = 1.0
    straight = (structure.target < 0) & (members.sum(axis=0) <= 1)
    curved = np.flatnonzero(~straight)
    touched = (members[:, curved].T @ (structure.exponents != 0)) > 0  # (curved, variable)
    at, of = np.nonzero(touched)
    rows, columns = np.tril_indices(variable)
    products = (structure.exponents[:, rows] * structure.exponents[:, columns]).T
    used = np.flatnonzero(np.any(products != 0, axis=1))
    sizes = _class_of(_Sizes(term, variable, group + 1, len(used) + 1, len(curved), len(at) + 1), problems)
    m, n, k = sizes.terms, sizes.variables, sizes.groups

    exponents = np.zeros((m, n))
    exponents[:term, :variable] = structure.exponents
    groups = np.full(m, k - 1)
    groups[:term] = structure.group
    wide = np.zeros((m, k))
    wide[:term, :group] = members
    target = np.full(k, -1)
    target[:group] = structure.target
    targets = (target[:, None] == np.arange(n)).astype(float)
    objective = np.zeros(n)
    objective[:variable] = structure.objective
    flat = np.ones(k, bool)
    flat[:group] = straight

    where = np.full((n, n), sizes.pairs - 1)  # an empty pair
    where[rows[used], columns[used]] = np.arange(len(used))
    where = np.minimum(where, where.T)
    packed = np.zeros((sizes.pairs, m))
    packed[: len(used), :term] = products[used]

    entries = np.zeros((sizes.entries, m))
    entries[: len(at), :term] = members[:, curved[at]].T * structure.exponents[:, of].T
    spread = np.full((sizes.curved, n), sizes.entries - 1)
    spread[at, of] = np.arange(len(at))
    padded = np.full(sizes.curved, k - 1)
    padded[: len(curved)] = curved
    weight = (np.arange(sizes.curved) < len(curved)).astype(float)
    return _Frame(
        exponents, groups, wide, target < 0, targets, objective, flat, packed, where.ravel(), entries,
        spread.ravel(), padded, weight, targets[padded] * weight[:, None],
        np.asarray(ROOF * max(1.0, np.abs(objective).max())),
    )  # fmt: skip


def _pool(structure: Structure, numbers: Numbers, frame: _Frame, cutoff: np.ndarray, loose: np.ndarray) -> _Slots:
    """All problems, padded, the box moved to [0, width]."""
    problem = len(numbers)
    term, variable = structure.exponents.shape
    group = len(structure.target)
    m, n = frame.exponents.shape
    k = len(frame.soft)
    constants = np.full((problem, m), ABSENT)
    present = np.isfinite(numbers.constants)
    moved = np.where(present, numbers.constants, 0.0) + numbers.lower @ structure.exponents.T
    constants[:, :term] = np.where(present, moved, ABSENT)
    width = np.zeros((problem, n))
    width[:, :variable] = numbers.upper - numbers.lower
    bounded = structure.target >= 0
    t = np.maximum(structure.target, 0)
    offsets = np.zeros((problem, k))
    offsets[:, :group] = np.where(bounded, numbers.offsets - numbers.lower[:, t], 0.0)
    # At a feasible point no exponential of the group exceeds the upper bound of its target less the offset.
    cap = np.full((problem, k), 1e9)
    room = np.where(bounded, numbers.upper[:, t] - numbers.offsets, 1.0)
    cap[:, :group] = np.where(bounded, np.log(np.maximum(room, 1e-30)) + 0.5, 1e9)
    alive = np.zeros((problem, k), bool)
    alive[:, :group] = bounded | (present @ frame.members[:term, :group] > 0)
    shift = numbers.lower @ structure.objective
    return _Slots(constants, offsets, cap, width, width > FROZEN_WIDTH, alive, cutoff - shift, loose)


def _values(frame: _Frame, slots: _Slots, y):
    """Group values g, weights p of terms in the gradients, and weights of terms in the curvatures."""
    z = y @ frame.exponents.T + slots.constants
    # Within 100·log(terms) of the largest exponent of the group, which is near enough.
    shift = 100.0 * jnp.log(jnp.maximum(jnp.exp(jnp.minimum(z / 100.0, 600.0)) @ frame.members, 1e-250))
    shift = jnp.where(frame.soft & slots.alive, shift, 0.0)
    above = z - slots.cap[:, frame.group]
    power = jnp.exp(jnp.minimum(z, z - above) - shift[:, frame.group])
    total = (power * (1.0 + jnp.maximum(above, 0.0))) @ frame.members
    scale = jnp.where(frame.soft & slots.alive, total, 1.0)
    bounded = total + slots.offsets - y @ frame.targets.T
    g = jnp.where(slots.alive, jnp.where(frame.soft, shift + jnp.log(scale), bounded), 0.0)
    p = power / scale[:, frame.group]
    return g, p, jnp.where(above > 0.0, 0.0, p)


def _iterate(frame: _Frame, slots: _Slots, state: _State, tolerance) -> _State:
    """Judge the point, then take one step."""
    y, running = state.y, state.status == _RUNNING
    free, alive, width = slots.free, slots.alive, slots.width
    g, p, bend = _values(frame, slots, y)
    multiplier = state.multiplier
    slack = jnp.where(state.iteration[:, None] == 0, jnp.maximum(-g, 1.0), state.slack)

    def pull(v):  # Jᵀv
        return (p * v[:, frame.group]) @ frame.exponents - v @ frame.targets

    def push(d):  # J d
        return (p * (d @ frame.exponents.T)) @ frame.members - d @ frame.targets.T

    # The judgement.
    constraint_gradient = pull(multiplier)
    gradient = frame.objective + constraint_gradient
    objective = y @ frame.objective
    violation = jnp.max(g, axis=1, initial=0.0)
    weighted = multiplier * g

    def least(slope):  # of a tangent over the box
        return jnp.sum(jnp.minimum(-slope * y, slope * (width - y)), axis=1)

    mass = jnp.sum(jnp.abs(weighted), axis=1) + jnp.sum(jnp.abs(constraint_gradient) * width, axis=1)
    bound = objective + jnp.sum(weighted, axis=1) + least(gradient)
    farkas = jnp.sum(weighted, axis=1) + least(constraint_gradient)
    scale = mass + jnp.abs(objective)
    stationary = jnp.max(jnp.abs(y - jnp.clip(y - gradient, 0.0, width)), axis=1)
    residual = jnp.maximum(jnp.maximum(stationary, violation), jnp.max(jnp.abs(weighted), axis=1))
    solved = (objective - bound <= tolerance) & (violation <= tolerance)
    status = jnp.where(solved, Status.solved, _RUNNING)
    enough = (objective - bound <= slots.loose) & (violation <= slots.loose) & (objective + slots.loose <= slots.cutoff)
    status = jnp.where(enough & ~solved, Status.open, status)
    status = jnp.where(bound - 10 * ROUNDING * scale > slots.cutoff, Status.dropped, status)
    status = jnp.where(farkas > 1e-9 + 10 * ROUNDING * mass, Status.infeasible, status)
    status = jnp.where(running, status, state.status).astype(state.status.dtype)
    better = running & ((bound > state.best_bound) | (status != _RUNNING))
    best = (
        jnp.where(better[:, None], y, state.best_y),
        jnp.where(better[:, None], multiplier, state.best_multiplier),
        jnp.where(better, bound, state.best_bound),
        jnp.where(better, residual, state.best_residual),
    )

    # The Newton matrix.
    to_lower, to_upper = jnp.where(free, y, 1.0), jnp.where(free, width - y, 1.0)
    at_lower, at_upper = state.at_lower, state.at_upper
    excess, spare = state.excess, frame.roof - multiplier
    ratio = jnp.where(alive, 1.0 / (slack / multiplier + excess / spare), 0.0)
    weights = bend * jnp.where(frame.straight, ratio, multiplier)[:, frame.group]
    packed = (frame.products @ weights.T).T
    n = y.shape[1]
    hessian = packed[:, frame.unpack].reshape(-1, n, n)
    jacobian = (frame.entries @ p.T).T[:, frame.spread].reshape(len(y), -1, n) - frame.curved_targets
    outer = ((ratio - jnp.where(frame.soft, multiplier, 0.0))[:, frame.curved]) * frame.curved_weight
    hessian = hessian + jnp.matmul(jnp.swapaxes(jacobian * outer[:, :, None], 1, 2), jacobian)
    barrier = at_lower / to_lower + at_upper / to_upper
    damping = DAMPING + state.damping[:, None] * (jnp.diagonal(hessian, axis1=1, axis2=2) + barrier)
    diagonal = jnp.where(free, barrier + damping, 1e30)
    factor = jax.lax.linalg.cholesky(hessian + diagonal[:, :, None] * jnp.eye(n), symmetrize_input=False)

    # The step.
    primal = jnp.where(alive, g + slack - excess, 0.0)
    dual = gradient - at_lower + at_upper
    pairs = 2 * jnp.sum(alive, axis=1) + 2 * jnp.sum(free, axis=1)

    def average(s, e, m, a, b, low, high):
        products = jnp.sum(jnp.where(alive, s * m + e * (frame.roof - m), 0.0), axis=1)
        return (products + jnp.sum(jnp.where(free, a * low + b * high, 0.0), axis=1)) / pairs

    def direction(of_slack, of_excess, of_lower, of_upper):
        v = ratio * (primal - of_slack / multiplier + of_excess / spare)
        v = jnp.where(alive, v, 0.0)
        right = -dual - pull(v) - of_lower / to_lower + of_upper / to_upper
        right = jnp.where(free, right, 0.0)[:, :, None]
        d = jax.scipy.linalg.cho_solve((factor, True), right)[:, :, 0]
        d = jnp.where(free, d, 0.0)
        jd = push(d)
        return (
            d,
            jnp.where(alive, -(of_slack + slack * (v + ratio * jd)) / multiplier, 0.0),
            jnp.where(alive, (excess * (v + ratio * jd) - of_excess) / spare, 0.0),
            v + ratio * jd,
            jnp.where(free, (-of_lower - at_lower * d) / to_lower, 0.0),
            jnp.where(free, (at_upper * d - of_upper) / to_upper, 0.0),
        )

    def longest(x, d, mask):
        return jnp.min(jnp.where(mask & (d < 0), -x / jnp.where(d < 0, d, -1.0), jnp.inf), axis=1)

    def reach(d, ds, de, dm, dl, du):
        a = jnp.minimum(longest(slack, ds, alive), longest(to_lower, d, free))
        a = jnp.minimum(a, longest(to_upper, -d, free))
        a = jnp.minimum(a, longest(excess, de, alive))
        b = jnp.minimum(longest(multiplier, dm, alive), longest(at_lower, dl, free))
        b = jnp.minimum(b, longest(spare, -dm, alive))
        return a, jnp.minimum(b, longest(at_upper, du, free))

    mu = average(slack, excess, multiplier, to_lower, to_upper, at_lower, at_upper)
    d, ds, de, dm, dl, du = direction(slack * multiplier, excess * spare, to_lower * at_lower, to_upper * at_upper)
    a, b = (jnp.minimum(x, 1.0)[:, None] for x in reach(d, ds, de, dm, dl, du))
    ahead = average(
        slack + a * ds,
        excess + a * de,
        multiplier + b * dm,
        to_lower + a * d,
        to_upper - a * d,
        at_lower + b * dl,
        at_upper + b * du,
    )
    # Products far below the tolerance spoil the matrix and buy nothing.
    centre = jnp.maximum(jnp.clip(ahead / mu, 0.0, 1.0) ** 3 * mu, FLOOR * tolerance / pairs)[:, None]
    d, ds, de, dm, dl, du = direction(
        slack * multiplier + ds * dm - centre,
        excess * spare - de * dm - centre,
        to_lower * at_lower + d * dl - centre,
        to_upper * at_upper - d * du - centre,
    )
    merit = jnp.max(jnp.abs(jnp.where(free, dual, 0.0)), axis=1) + jnp.max(jnp.abs(primal), axis=1) + mu
    pace = jnp.where(merit > state.merit, SLOWER * state.pace, jnp.minimum(FASTER * state.pace, 1.0))
    pace = jnp.maximum(pace, SLOWEST)
    a, b = (pace[:, None] * jnp.minimum(BOUNDARY * x, 1.0)[:, None] for x in reach(d, ds, de, dm, dl, du))
    a, b = jnp.minimum(a, APART * b), jnp.minimum(b, APART * a)
    sound = jnp.isfinite(jnp.sum(d, axis=1) + jnp.sum(ds, axis=1) + jnp.sum(dm, axis=1))
    go = sound & (status == _RUNNING)

    def move(x, by, mask):
        return jnp.where(go[:, None] & mask, x + by, x)

    return _State(
        move(y, a * d, free), move(slack, a * ds, alive), move(excess, a * de, alive), move(multiplier, b * dm, alive),
        move(at_lower, b * dl, free), move(at_upper, b * du, free),
        jnp.where(sound, 0.1 * state.damping, jnp.maximum(1e2 * state.damping, 1e-14)), merit, pace, status,
        state.iteration + (running & (status == _RUNNING)), *best,
    )  # fmt: skip


def _advance(frame: _Frame, slots: _Slots, state: _State, tolerance) -> _State:
    global _traces
    _traces += 1
    return jax.lax.fori_loop(0, STRIDE, lambda _, at: _iterate(frame, slots, at, tolerance), state)


_kernel = jax.jit(_advance)
_one_at_a_time = threading.Lock()  # two threads within it were seen to wait for each other forever (jax 0.10.1, CPU)


def _begin(slots: _Slots, start: np.ndarray, roof: float) -> _State:
    """Fresh states: every product of the complementarity is one."""
    y = np.clip(start, INSIDE * slots.width, (1.0 - INSIDE) * slots.width)
    count = len(y)
    return _State(
        y, np.ones(slots.alive.shape), np.full(slots.alive.shape, 1.0 / roof), slots.alive.astype(float),
        np.divide(1.0, y, out=np.zeros_like(y), where=slots.free),
        np.divide(1.0, slots.width - y, out=np.zeros_like(y), where=slots.free),
        np.zeros(count), np.full(count, np.inf), np.ones(count), np.zeros(count, np.int32), np.zeros(count, np.int32),
        y.copy(), np.zeros(slots.alive.shape), np.full(count, -np.inf), np.full(count, np.inf),
    )  # fmt: skip


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
    problem, variable = numbers.lower.shape
    group = len(structure.target)
    empty = np.any(numbers.lower > numbers.upper, axis=1)
    frame = _frame(structure, problem)
    limit = np.broadcast_to(np.asarray(np.inf if cutoff is None else cutoff, float), (problem,))
    pool = _pool(structure, numbers, frame, limit, np.broadcast_to(np.asarray(loose, float), (problem,)))
    first = 0.5 * pool.width
    if start is not None:
        first[:, :variable] = start - numbers.lower
    fresh = _begin(pool, first, float(frame.roof))
    done = _work(frame, pool, fresh, np.flatnonzero(~empty), tolerance, iterations)

    status = np.where(empty, Status.infeasible, np.where(done.status == _RUNNING, Status.unresolved, done.status))
    shift = numbers.lower @ structure.objective
    y = np.clip(done.best_y[:, :variable] + numbers.lower, numbers.lower, np.maximum(numbers.lower, numbers.upper))
    none = status == Status.infeasible
    return Answers(
        y=y,
        multipliers=done.best_multiplier[:, :group],
        objective=np.where(none, np.inf, y @ structure.objective),
        bound=np.where(none, np.inf, done.best_bound + shift),
        status=status.astype(int),
        iterations=done.iteration.astype(int),
        residual=done.best_residual,
    )


def _work(frame: _Frame, pool: _Slots, states: _State, todo: np.ndarray, tolerance: float, iterations: int) -> _State:
    """Send all problems of `todo` through the slots; returns `states` as they ended, which is overwritten."""
    many, few = SLOTS
    size = many if len(todo) > few else few
    occupant = np.full(size, -1)
    slots = _Slots(*(x[np.zeros(size, int)] for x in pool))
    state = _State(*(x[np.zeros(size, int)] for x in states))
    state.status[:] = _IDLE
    following = 0
    with jax.enable_x64(True):
        frame = _Frame(*(jnp.asarray(x) for x in frame))
        while True:
            finished = (state.status != _RUNNING) | (state.iteration >= iterations)
            leaving = np.flatnonzero(finished & (occupant >= 0))
            for kept, now in zip(states, state, strict=True):
                kept[occupant[leaving]] = now[leaving]
            occupant[leaving] = -1
            vacant = np.flatnonzero(occupant < 0)[: len(todo) - following]
            occupant[vacant] = todo[following : following + len(vacant)]
            following += len(vacant)
            for of_pool, now in zip((*pool, *states), (*slots, *state), strict=True):
                now[vacant] = of_pool[occupant[vacant]]
            state.status[occupant < 0] = _IDLE
            working = np.flatnonzero(occupant >= 0)
            if not len(working):
                return states
            if len(working) <= few < len(occupant):  # none is waiting: go on in a small pool
                kept = np.concatenate([working, np.flatnonzero(occupant < 0)])[:few]
                occupant = occupant[kept]
                slots, state = _Slots(*(x[kept] for x in slots)), _State(*(x[kept] for x in state))
            with _one_at_a_time:
                state = _State(*(np.array(x) for x in _kernel(frame, slots, state, tolerance)))
