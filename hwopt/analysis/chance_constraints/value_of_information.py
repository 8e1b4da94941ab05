"""Regret of today's answer when numbers turn out otherwise, and what it is worth to know them before deciding.

With C(d, s) the objective of design d in scenario s, and D the designs that are tried,

    regret(d, s) = C(d, s) - min over D of C(., s),        value of knowing = E[C(today, s)] - E[min over D of C(., s)].

D holds today's answer and the proved best of some scenarios, so that regret is at least what is said, and the value of knowing a
number alone is that of a quadrature whose scenarios are all solved. Budgets are checked with the numbers as stated: in a scenario
each limit moves with what today's design uses of it, so that today's answer stays possible, and a design that breaks a moved
limit is none of the scenario's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from hwopt.analysis.chance_constraints.sampling import FixedDesign, within_limits
from hwopt.analysis.chance_constraints.uncertainty_factors import UncertaintyFactor, check_one_chip_type, named_factors
from hwopt.calibration.intervals import DEVIATIONS, Interval, question_interval
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.options import options_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.options import SearchOptions
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution
from hwopt.validation import check_kinds, number_of

NODES = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))
"""Gauss-Hermite quadrature of a normal draw: exact for polynomials to the fifth power."""

MOST = 4
"""Numbers that vary together: 81 nodes, 16 corners, up to ten searches."""


@dataclass(frozen=True)
class DesignCandidate:
    """A design under all scenarios.

    **Arguments:** `values` of its variables, SI; `objective` by the numbers as stated; `expected` and `worst` regret, in the
    objective's unit, and the worst over the best there; `worst_at`: where, in words; infinite where it breaks a limit.
    """

    values: dict[str, float]
    objective: float
    expected: float
    worst: float
    worst_share: float
    worst_at: str
    words: str


@dataclass(frozen=True)
class InformationValue:
    """What one number is worth to know. **Arguments:** `proved`: its scenarios were solved to the end, else it is a lower bound."""

    name: str
    meaning: str
    varied: float
    saving: float
    share: float
    proved: bool


@dataclass(frozen=True)
class Regret:
    """An answer beside what else could have been decided. **Arguments:** `tried` designs; `solves` of scenarios."""

    today: DesignCandidate
    least: DesignCandidate  # of least worst regret
    knowing: tuple[InformationValue, ...]
    nodes: int
    corners: int
    tried: int
    solves: int


@dataclass(frozen=True)
class _Scenario:
    z: tuple[float, ...]
    solution: Solution


def regret(
    solution: Solution,
    vary: Mapping[str, float],
    *,
    deadline: Deadline | None = None,
    progress: bool = False,
    options: SearchOptions | None = None,
) -> Regret:
    """Regret of an answer under numbers that may be off, and the value of knowing each of them.

    **Arguments:** `solution` of `optimize`; `vary`: cause -> share by which it may be off, a range of 1 + share to each side that
    holds four in five; `deadline` by which it ends, with fewer scenarios solved; `options` of the searches.

    **Raises:** `UserError` for an unknown cause, an invalid share, more than `MOST` of them, an answer that breaks its
    budgets or has no proof.
    """
    check_kinds("regret", {"solution": solution}, {"solution": (Solution,)})
    shares, causes = varied_factors(solution.problem, vary, question_interval(solution))
    if not solution.feasible:
        raise UserError("vary: the answer breaks its budgets: nothing to compare with")
    with jax.enable_x64(True):
        search = options_of("regret", options, SearchOptions)
        return _Study(solution, causes, shares, deadline or Deadline(), progress, search).answer()


def varied_factors(
    problem: Problem, vary: Mapping[str, float], around: Interval | None
) -> tuple[dict[str, float], tuple[UncertaintyFactor, ...]]:
    """Return the uncertain shares of a question, and the causes of which each moves its inputs together.

    **Arguments:** `vary`: see `regret`; `around`: the interval of the step time, any interval before there is an answer.

    **Raises:** `UserError` as `regret`, but for an answer that breaks its budgets.
    """
    if not isinstance(vary, Mapping) or not vary:
        raise UserError("vary: name numbers and by what share they may be off, such as {'hbm': 0.3}")
    if len(vary) > MOST:
        raise UserError(f"vary: {len(vary)} numbers; at most {MOST} together: ask about some of them apart")
    if why := reason_without_lattice(problem):
        raise UserError(f"vary: {why}: nothing to compare with")
    check_one_chip_type(problem, "vary")
    shares = {str(name): number_of(f"vary: {name}", share) for name, share in vary.items()}
    causes = named_factors(shares, problem, around)
    for each in causes:
        if not each.inputs:
            raise UserError(f"vary: '{each.name}' stands for no number of this question that a search could know")
    return shares, causes


class _Study:
    """Scenarios, designs, and their table."""

    def __init__(
        self,
        solution: Solution,
        causes: Sequence[UncertaintyFactor],
        shares: Mapping[str, float],
        deadline: Deadline,
        progress: bool,
        options: SearchOptions,
    ):
        self.problem, self.solution, self.shares = solution.problem, solution, shares
        self.causes, self.deadline, self.progress = tuple(causes), deadline, progress
        self.options = options
        self.lattice = lattice_of(self.problem)
        self.today = FixedDesign(self.problem, design_values(solution), self.causes)
        self.points = [self.lattice.point(self.today.values)]
        self.count = len(self.problem.budgets)

    def answer(self) -> Regret:
        n, end = len(self.causes), math.sqrt(3.0)
        alone = [tuple(side * end * (i == j) for j in range(n)) for i in range(n) for side in (-1.0, 1.0)]
        both = [(side * DEVIATIONS,) * n for side in (-1.0, 1.0)] if n > 1 else [(-DEVIATIONS,), (DEVIATIONS,)]
        solved = {each.z: each for z in (*alone, *both) if (each := self._solved(z)) is not None}
        designs = [
            self.today,
            *(FixedDesign(self.problem, design_values(each.solution), self.causes) for each in solved.values()),
        ]
        designs = _different(designs)
        products = list(itertools.product(NODES, repeat=n))
        nodes = np.array([[z for z, _ in each] for each in products])
        weights = np.array([math.prod(w for _, w in each) for each in products])
        corners = np.array(list(itertools.product((-DEVIATIONS, DEVIATIONS), repeat=n)))
        scenarios = np.concatenate([nodes, corners])
        table = self._table(designs, scenarios)
        rows = [self._candidate(i, designs[i], table, weights, scenarios) for i in range(len(designs))]
        today, least = rows[0], min(rows, key=lambda each: (each.worst, each.expected))
        if not least.worst < today.worst:
            least = today
        knowing = tuple(self._knowing(i, designs, solved) for i in range(n))
        return Regret(today, least, knowing, len(nodes), len(corners), len(designs), len(solved))

    def _solved(self, z: tuple[float, ...]) -> _Scenario | None:
        """The best of a scenario; None where there was no time."""
        if self.deadline.over:
            return None
        rise = self._rises(np.array([z]))[0]
        moved = self.problem.with_numbers(self._factors(z)).relaxed(np.exp(rise))
        try:
            solution = solve_global(
                moved,
                deadline=self.deadline,
                progress=self.progress,
                designs=self.points,
                explain=False,
                options=self.options,
            )
        except NotDGP:
            return None
        if not solution.feasible:
            return None
        self.points.append(self.lattice.point(design_values(solution)))
        return _Scenario(z, solution)

    def _rises(self, z: np.ndarray) -> np.ndarray:
        """Of the logarithm of what today's design uses of each budget (scenario, budget)."""
        return self.today.logs(z)[:, 1 : 1 + self.count] - self.today.budgets

    def _factors(self, z: tuple[float, ...]) -> dict[tuple[int, int], float]:
        """Of each number that is moved, by its place."""
        moves = zip(self.today.inputs, self.today.cause, self.today.down, self.today.up, strict=True)
        factors: dict[tuple[int, int], float] = {}
        for each, cause, down, up in moves:
            move = math.exp(z[cause] * (up if z[cause] > 0.0 else down))
            factors[each.place] = factors.get(each.place, 1.0) * move
        return factors

    def _table(self, designs: Sequence[FixedDesign], z: np.ndarray) -> np.ndarray:
        """Objective of each design in each scenario; infinite where it breaks a limit there (design, scenario)."""
        moved = self._rises(z)
        rows = []
        for each in designs:
            logs = each.logs(z)
            budgets = logs[:, 1 : 1 + self.count] - moved
            # What is no budget, such as heat, counts where today's design holds it.
            kept = within_limits(budgets, 1e-5).all(axis=1) & ~(
                ~within_limits(logs[:, 1 + self.count :], 1e-5)
                & within_limits(self.today.logs(z)[:, 1 + self.count :], 1e-5)
            ).any(axis=1)
            rows.append(np.where(kept, np.exp(logs[:, 0]), np.inf))
        return np.array(rows)

    def _candidate(
        self, i: int, fixed: FixedDesign, table: np.ndarray, weights: np.ndarray, scenarios: np.ndarray
    ) -> DesignCandidate:
        best = table.min(axis=0)
        over = table[i] - best
        worst = int(np.argmax(over))
        expected = float(over[: len(weights)] @ weights)
        where = ", ".join(
            f"{cause.name} {100 * math.expm1(z / DEVIATIONS * math.log1p(self.shares[cause.name])):+.3g} %"
            for cause, z in zip(self.causes, scenarios[worst], strict=True)
        )
        return DesignCandidate(
            values=fixed.values,
            objective=float(np.exp(fixed.stated[0])),
            expected=expected,
            worst=float(over[worst]),
            worst_share=float(over[worst] / best[worst]),
            worst_at=where,
            words=_words(fixed.values),
        )

    def _knowing(
        self, i: int, designs: Sequence[FixedDesign], solved: Mapping[tuple[float, ...], _Scenario]
    ) -> InformationValue:
        """Expected saving of deciding with one number known, the others as stated."""
        z = np.array([[node * (i == j) for j in range(len(self.causes))] for node, _ in NODES])
        weights = np.array([weight for _, weight in NODES])
        table = self._table(designs, z)
        saving = max(0.0, float((table[0] - table.min(axis=0)) @ weights))
        ends = [solved.get(tuple(map(float, z[k]))) for k in (0, 2)]
        proved = all(each is not None and each.solution.outcome is Outcome.proved for each in ends)
        return InformationValue(
            self.causes[i].name, self.causes[i].meaning, self.shares[self.causes[i].name], saving,
            saving / float(table[0] @ weights), proved and self.solution.outcome is Outcome.proved,
        )  # fmt: skip


def _different(designs: Sequence[FixedDesign]) -> list[FixedDesign]:
    """Each design once, the first as it came."""
    kept: list[FixedDesign] = []
    for each in designs:
        if not any(np.allclose(list(each.values.values()), list(other.values.values()), rtol=1e-6) for other in kept):
            kept.append(each)
    return kept


_SAID = (
    "chips",
    "tp",
    "pp",
    "hbm_stacks",
    "nics_per_server",
    "clock_ratio",
    "global_batch_sequences",
    "replicas",
    "batch",
)


def _words(values: Mapping[str, float]) -> str:
    """A design in a few of its numbers."""
    return ", ".join(f"{name} {values[name]:,.5g}" for name in _SAID if name in values)
