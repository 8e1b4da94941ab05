"""Chance-constrained search of one question: tighten limits, solve, sample the exact model, and repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from hwopt.analysis.chance_constraints.sampling import FixedDesign, normal_draws, probability, within_limits
from hwopt.analysis.chance_constraints.tightening import (
    joint_multiple,
    limit_factors,
    sampled_multiple,
    single_budget_multiple,
)
from hwopt.analysis.chance_constraints.uncertainty_factors import check_one_chip_type, uncertainty_factors
from hwopt.calibration.intervals import question_interval
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.solver.chance_constraints import BudgetProbability, ChanceConstraint, DeterministicAnswer, InputDeviation
from hwopt.solver.deadline import Deadline
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.options import SEARCH, ConfidenceOptions, SearchOptions
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution
from hwopt.units import pretty
from hwopt.validation import number_of

DRAWS = 100_000
"""Default number of draws of the uncertain inputs. It gives the probability to about 0.1 percentage points."""

_FIRST, _FRESH = 0, 1
"""Streams of random draws: one to fit the multiple k, one to verify the final probability independently."""


def check_confidence(confidence: Any) -> float:
    """Return a valid confidence level as a float.

    **Raises:** `UserError` for a level below 0.5, and for 1 or more.
    """
    value = number_of("confidence", confidence)
    if not 0.5 <= value < 1.0:
        raise UserError(f"confidence = {value:g} must be at least 0.5 and below 1, such as 0.9 for nine times in ten")
    return value


@dataclass(frozen=True)
class ConfidenceRequest:
    """Settings of a chance-constrained search. **Arguments:** as in `hwopt.confident`."""

    confidence: float
    deadline: Deadline
    seed: int = 0
    draws: int = DRAWS
    progress: bool = False
    explain: bool = True
    options: SearchOptions = SEARCH


def solve_chance_constrained(problem: Problem, asking: ConfidenceRequest, beat: float = math.inf) -> Solution:
    """Find the best design of one question whose budgets all hold jointly with the given probability.

    Limits are tightened by `exp(-k s)`, where s is the first-order deviation of each budget's log use. If the use is far from
    log-normal, quantiles of draws replace this factor. The tightened question is then certified like any other. The multiple k
    is the least at which draws of the exact model satisfy all budgets. It is found by iteration: solve, draw at the design,
    adjust k, and solve again.

    **Arguments:**

    - `problem`: the question.
    - `asking`: confidence level and settings.
    - `beat`: objective to improve on. If even the deterministic lower bound is not below it, the deterministic answer is
      returned, and its `promise` is None.

    **Raises:** `UserError` for a question that cannot be certified.
    """
    check_one_chip_type(problem, "confidence")
    if why := reason_without_lattice(problem):
        raise UserError(f"confidence: {why}: there is no proof to tighten limits in")
    with jax.enable_x64(True):
        return _Search(problem, asking).answer(beat)


@dataclass(frozen=True)
class _Trial:
    """A design optimized for one set of tightened limits, and its sampled probability."""

    solution: Solution  # solution of the tightened question
    tightened: np.ndarray  # factors on the limits (budget,)
    multiple: float
    options: ConfidenceOptions
    fixed: FixedDesign | None = None  # None where no design meets the tightened limits
    probability: float = 0.0
    rises: np.ndarray | None = None  # (draw, budget)

    @property
    def idle(self) -> np.ndarray:
        """Budgets with so much slack beyond the tightening that they will not bind in the next iteration either."""
        assert self.fixed is not None
        return np.log(self.tightened) - self.fixed.budgets > self.options.idle * self.fixed.deviations

    def room(self, multiple: float) -> np.ndarray:
        """Return the factors that tighten the limits for a multiple k, from deviations and draws at this design."""
        assert self.fixed is not None
        return limit_factors(multiple, self.fixed.deviations, self.rises, self.options.normal)

    def first(self, confidence: float) -> float:
        """Return the first multiple k, from the joint normal distribution of the budgets that may bind.

        If the draws give a clearly different multiple, it is used instead.
        """
        assert self.fixed is not None
        normal = joint_multiple(self.fixed.loadings[~self.idle], confidence, self.options.joint_draws)
        drawn = self.next(confidence)
        return drawn if math.isfinite(drawn) and abs(drawn - normal) > self.options.step else normal

    def next(self, confidence: float) -> float:
        """Return the multiple that the draws require. Non-binding budgets keep the use that they have in this design."""
        assert self.fixed is not None and self.rises is not None
        slack = np.where(self.idle, -self.fixed.budgets, -np.inf)
        return sampled_multiple(self.rises, slack, confidence)


class _Search:
    """Iteration of one chance-constrained question: solve, draw, adjust the multiple."""

    def __init__(self, problem: Problem, asking: ConfidenceRequest):
        self.problem, self.confidence, self.deadline = problem, asking.confidence, asking.deadline
        self.seed, self.draws, self.progress, self.explain = asking.seed, asking.draws, asking.progress, asking.explain
        self.options = asking.options.confidence
        self.programmes = NodeRelaxations(problem, lattice_of(problem), options=asking.options)
        # Aim above the requested level by half of the deviation between two sets of draws, because fresh draws verify the
        # result.
        asked = self.confidence
        self.sure = min(asked + 0.5 * math.sqrt(2.0 * asked * (1.0 - asked) / self.draws), 0.5 * (1.0 + asked))
        self.points: list[np.ndarray] = []
        self.solves = 0

    def answer(self, beat: float) -> Solution:
        ones = np.ones(len(self.problem.budgets))
        plain = self._trial(ones, 0.0, explain=self.explain)
        bound = plain.solution.certificate.lower_bound
        if bound is not None and bound >= beat:
            return plain.solution
        if plain.fixed is None:
            return plain.solution  # the budgets conflict even without uncertainty
        if plain.probability >= self.sure or not len(ones):
            return self._promised(plain, plain)
        best, closed = self._between(plain)
        return self._promised(best, plain) if best is not None else self._broken(closed, plain)

    def _between(self, plain: _Trial) -> tuple[_Trial | None, list[_Trial]]:
        """Return the cheapest trial that reaches the probability, and the trials whose tightened limits are infeasible."""
        assert plain.fixed is not None
        low, high, closed, own = plain, None, [], self.options
        least = single_budget_multiple(self.confidence)
        multiple, latest = max(plain.first(self.sure), own.step), plain
        while not self.deadline.over and self.solves < (own.searches if high is not None else 2 * own.searches):
            trial = self._trial(latest.room(multiple), multiple)
            if trial.fixed is None:
                closed.append(trial)
                if multiple <= max(least, low.multiple + own.step) * (1.0 + 1e-9):
                    break
                multiple = max(least, 0.5 * (low.multiple + multiple))
                continue
            latest = trial
            if trial.probability < self.sure:
                low = trial if trial.multiple > low.multiple else low
            else:
                high = trial if high is None or trial.solution.objective <= high.solution.objective else high
                if trial.probability <= self.confidence + min(own.excess, 0.5 * (1.0 - self.confidence)):
                    break
            top = min((each.multiple for each in (high, *closed) if each is not None), default=math.inf)
            if top - low.multiple < own.step:
                break
            if high is not None and high.solution.objective <= low.solution.objective * (1.0 + own.close):
                break
            wanted = trial.next(self.sure)
            if not low.multiple + 0.1 * own.step < wanted < top - 0.1 * own.step:
                wanted = 0.5 * (low.multiple + top) if math.isfinite(top) else low.multiple + 4 * own.step
            multiple = wanted
        return high, closed

    def _trial(self, tightened: np.ndarray, multiple: float, explain: bool = False) -> _Trial:
        """Solve with the limits multiplied by factors, and draw at the resulting design."""
        self.solves += 1
        tight = self.problem.tightened(tightened) if multiple else self.problem
        try:
            solution = solve_global(
                tight, deadline=self.deadline, progress=self.progress, designs=self.points, explain=explain,
                like=self.programmes,
            )  # fmt: skip
        except NotDGP as reason:
            raise UserError(f"confidence: {reason}: there is no proof to tighten limits in") from None
        if not solution.feasible:
            return _Trial(solution, tightened, multiple, self.options)
        values = design_values(solution)
        self.points.append(self.programmes.lattice.point(values))
        fixed = FixedDesign(self.problem, values, uncertainty_factors(self.problem, question_interval(solution)))
        logs = fixed.logs(normal_draws(self.seed, _FIRST, self.draws, len(fixed.causes)))[:, 1 : 1 + len(tightened)]
        kept = probability(within_limits(logs).all(axis=1))
        return _Trial(solution, tightened, multiple, self.options, fixed, kept, logs - fixed.budgets)

    def _promised(self, trial: _Trial, plain: _Trial) -> Solution:
        """Return the answer with its original limits, and its probability from draws that were not used for fitting."""
        return replace(_as_asked(trial.solution, self.problem), promise=self._promise(trial, plain))

    def _promise(self, trial: _Trial, plain: _Trial) -> ChanceConstraint:
        fixed, count = trial.fixed, len(self.problem.budgets)
        assert fixed is not None
        kept = within_limits(fixed.logs(normal_draws(self.seed, _FRESH, self.draws, len(fixed.causes)))[:, 1:])
        loadings, deviations = fixed.loadings, fixed.deviations
        budgets = tuple(
            BudgetProbability(
                each.name, probability(kept[:, i]), float(trial.tightened[i]), float(deviations[i]),
                _shares([cause.name for cause in fixed.causes], loadings[i]),
            )
            for i, each in enumerate(self.problem.budgets)
        )  # fmt: skip
        return ChanceConstraint(
            confidence=self.confidence,
            probability=probability(kept[:, :count].all(axis=1)),
            others=_broken_besides(self.problem.constraints[count:], kept[:, count:]),
            draws=self.draws,
            seed=self.seed,
            multiple=trial.multiple,
            budgets=budgets,
            causes=tuple(InputDeviation(each.name, each.meaning, *each.deviations) for each in fixed.causes),
            solves=self.solves,
            plain=DeterministicAnswer(plain.solution.objective, plain.probability),
            together=probability(kept.all(axis=1)),
        )

    def _broken(self, closed: Sequence[_Trial], plain: _Trial) -> Solution:
        """Return the answer where no design reaches the probability, with the necessary changes of the requested limits.

        **Arguments:**

        - `closed`: trials whose limits are infeasible, from those for all budgets jointly to those for each budget alone.
        - `plain`: the trial without tightening.
        """
        asked, goal = f"{100 * self.confidence:.3g} %", self.problem.objective
        said = [
            f"Without the chance constraint the best design has {goal.name} {pretty(plain.solution.objective, goal.unit, 6)} and "
            f"satisfies all budgets in {100 * plain.probability:.1f} % of draws."
        ]
        if not closed:
            text = f"No design was found whose budgets hold with a probability of {asked} before the search stopped."
            shown = _as_asked(plain.solution, self.problem)
            return replace(shown, outcome=Outcome.not_found, infeasibility=" ".join([text, *said]))
        first, last = closed[0], closed[-1]
        shown = first.solution
        if self.explain and not self.deadline.over:
            tight = self.problem.tightened(first.tightened)
            shown = solve_global(tight, deadline=self.deadline, progress=self.progress, like=self.programmes)
        limits = ", ".join(
            f"{each.name} to {100 * share:.3g} %"
            for each, share in zip(self.problem.budgets, first.tightened, strict=True)
        )
        alone_too = last.multiple <= single_budget_multiple(self.confidence) * (1.0 + 1e-9)
        proved = all(each.solution.outcome is Outcome.infeasible for each in (first, last)) and alone_too
        if alone_too:
            said.insert(0, f"Even with {asked} for each budget alone, no design exists.")
        text = f"For all budgets to hold with {asked}, limits are tightened ({limits} of the requested limit). "
        text += shown.infeasibility
        outcome = Outcome.infeasible if proved else Outcome.not_found
        return replace(_as_asked(shown, self.problem), infeasibility=" ".join([text, *said]), outcome=outcome)


def _broken_besides(names: Sequence[str], kept: np.ndarray) -> dict[str, float]:
    """Return the constraints other than budgets that do not hold in all draws, the worst first."""
    shares = zip(names, kept.mean(axis=0).tolist(), strict=True)
    return dict(sorted((each for each in shares if each[1] < 1.0), key=lambda each: each[1]))


def _shares(names: list[str], row: np.ndarray) -> dict[str, float]:
    """Return each factor's share of a budget's variance, the largest first; shares below 1 % are left out."""
    total = float((row**2).sum())
    if not total:
        return {}
    shares = sorted(zip(names, (row**2 / total).tolist(), strict=True), key=lambda each: -each[1])
    return {name: share for name, share in shares if share >= 0.01}


def _as_asked(solution: Solution, problem: Problem) -> Solution:
    """Return an answer to tightened limits in terms of the original limits.

    Elasticities with respect to the limits are unchanged.
    """
    if solution.problem is problem:
        return solution
    budgets = [
        replace(used, limit=asked.limit, shadow_price=used.elasticity * solution.objective / asked.limit)
        for used, asked in zip(solution.budgets, problem.budgets, strict=True)
    ]
    shares = ", ".join(f"{100 * each.limit / each.asked:.3g} %" for each in solution.problem.budgets if each.asked)
    scope = (
        f"{solution.certificate.scope}; for limits tightened to {shares} of the requested ones (a safe approximation)"
    )
    return replace(solution, problem=problem, budgets=budgets, certificate=replace(solution.certificate, scope=scope))
