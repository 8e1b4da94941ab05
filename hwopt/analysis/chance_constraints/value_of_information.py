"""Regret of the present answer under uncertain inputs, and the value of information about them.

Let C(d, s) be the objective of design d in scenario s, and D the set of candidate designs. Then

    regret(d, s) = C(d, s) - min over D of C(., s),        value of information = E[C(today, s)] - E[min over D of C(., s)].

D contains the present answer and the certified optima of some scenarios, so that the stated regret is a lower bound. The value
of information about a single input uses a quadrature whose scenarios are all solved.

Budgets apply to the stated inputs. In a scenario each limit is therefore scaled by the change of the present design's use. The
present answer thus stays feasible. A design that violates a scaled limit is not a candidate in that scenario.
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
from hwopt.declared import Result, shown
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
"""Nodes and weights of a Gauss-Hermite quadrature for a standard normal variable, exact for polynomials up to degree five."""

MOST = 4
"""Maximum number of inputs varied together. Four give 81 quadrature nodes, 16 corners and up to ten searches."""


@dataclass(frozen=True)
class DesignCandidate:
    """A candidate design evaluated in all scenarios.

    **Arguments:**

    - `values`: values of its variables, SI.
    - `objective`: objective with the stated inputs.
    - `expected`, `worst`: expected and worst regret, in the objective's unit; infinite where the design violates a limit.
    - `worst_share`: worst regret over the best objective of that scenario.
    - `worst_at`: description of that scenario.
    - `words`: short description of the design.
    """

    words: str
    values: dict[str, float] = shown(key="design")
    objective: float = shown()
    expected: float = shown(key="expected_regret")
    worst: float = shown(key="worst_regret")
    worst_share: float = shown()
    worst_at: str = shown()


@dataclass(frozen=True)
class InformationValue:
    """Value of information about one uncertainty factor.

    **Arguments:**

    - `name`, `meaning`: name and description of the factor.
    - `varied`: its relative uncertainty.
    - `saving`: expected saving of the objective, in its unit.
    - `share`: saving over the expected objective of the present design.
    - `proved`: whether its scenarios were solved to optimality; otherwise the value is a lower bound.
    """

    name: str = shown()
    meaning: str = shown()
    varied: float = shown()
    saving: float = shown()
    share: float = shown()
    proved: bool = shown()


@dataclass(frozen=True)
class Regret(Result):
    """Regret analysis of an answer.

    **Arguments:**

    - `today`: the present design.
    - `least`: the design with the least worst-case regret.
    - `knowing`: value of information of each factor.
    - `nodes`, `corners`: number of quadrature nodes and corner scenarios.
    - `tried`: number of candidate designs.
    - `solves`: number of solved scenarios.
    """

    today: DesignCandidate = shown()
    least: DesignCandidate = shown(key="least_worst")
    knowing: tuple[InformationValue, ...] = shown()
    nodes: int = shown()
    corners: int = shown()
    tried: int = shown(key="designs")
    solves: int = shown()


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
    """Compute the regret of an answer under uncertain inputs, and the value of information about each of them.

    **Arguments:**

    - `solution`: an answer of `optimize`.
    - `vary`: uncertainty factor -> share by which it may be off. Its inputs are between their values divided by and multiplied
      by `1 + share` with a probability of 80 %.
    - `deadline`: time limit; fewer scenarios are solved when it is reached.
    - `progress`: whether to report the progress of each search.
    - `options`: options of the searches.

    **Raises:** `UserError` for an unknown factor, for an invalid share, for more than `MOST` factors, and for an answer that
    violates its budgets or cannot be certified.
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
    """Return the relative uncertainties of a question's inputs, and the factors that move inputs together.

    **Arguments:**

    - `problem`: the question.
    - `vary`: as in `regret`.
    - `around`: interval of the step time. Any interval will do before there is an answer.

    **Raises:** `UserError` as in `regret`, except for an answer that violates its budgets.
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
    """Regret analysis of one answer: scenarios, candidate designs, and their table of objectives."""

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
        """Solve a scenario to optimality; None where no time is left, or no feasible design or relaxation was found."""
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
        """Return the change of the log use of each budget by the present design (scenario, budget)."""
        return self.today.logs(z)[:, 1 : 1 + self.count] - self.today.budgets

    def _factors(self, z: tuple[float, ...]) -> dict[tuple[int, int], float]:
        """Return the factor on each uncertain input, by its position in the template."""
        moves = zip(self.today.inputs, self.today.cause, self.today.down, self.today.up, strict=True)
        factors: dict[tuple[int, int], float] = {}
        for each, cause, down, up in moves:
            move = math.exp(z[cause] * (up if z[cause] > 0.0 else down))
            factors[each.place] = factors.get(each.place, 1.0) * move
        return factors

    def _table(self, designs: Sequence[FixedDesign], z: np.ndarray) -> np.ndarray:
        """Return the objective of each design in each scenario (design, scenario); infinite where it violates a limit."""
        moved = self._rises(z)
        rows = []
        for each in designs:
            logs = each.logs(z)
            budgets = logs[:, 1 : 1 + self.count] - moved
            # Other constraints, such as thermal limits, count only where the present design meets them.
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
        """Return the expected saving of a decision with one factor known and the others at their stated values."""
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
    """Return the distinct designs; the first of equal ones is kept."""
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
    """Describe a design by a few of its variables."""
    return ", ".join(f"{name} {values[name]:,.5g}" for name in _SAID if name in values)
