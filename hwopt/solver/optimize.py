"""Optimize a design problem: globally with a certificate, or locally from many starts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np

from hwopt.design.choices import left_open
from hwopt.design.lattices import reason_without_lattice
from hwopt.design.portfolio import PortfolioMembers, portfolio_of
from hwopt.design.problem import Objective, Problem
from hwopt.errors import UserError, suggest
from hwopt.options import options_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.options import SearchOptions
from hwopt.solver.portfolio.solve import PortfolioSolution, certified_portfolio, choice_rows
from hwopt.solver.search.categorical import certified_choice, choice_states
from hwopt.solver.search.solve_global import solve_global
from hwopt.solver.solution import Solution
from hwopt.validation import boxes_of, check_question, check_seconds, check_seed, names_of, question_of

if TYPE_CHECKING:
    import optax

REGIMES = ("certified", "relaxed", "local")


@overload
def optimize(
    objective: PortfolioMembers,
    *,
    progress: bool = ...,
    seconds: float = ...,
    freeze: Iterable[str] = ...,
    bounds: Mapping[str, tuple[float, float]] | None = ...,
    explain: bool = ...,
    choices: Mapping[str, Sequence[str]] | None = ...,
    options: SearchOptions | None = ...,
) -> PortfolioSolution: ...
@overload
def optimize(
    objective: Objective | Problem,
    *,
    seed: int = ...,
    progress: bool = ...,
    transformation: "optax.GradientTransformation | None" = ...,
    regime: str = ...,
    seconds: float = ...,
    freeze: Iterable[str] = ...,
    bounds: Mapping[str, tuple[float, float]] | None = ...,
    designs: Sequence[np.ndarray] = ...,
    explain: bool = ...,
    choices: Mapping[str, Sequence[str]] | None = ...,
    options: SearchOptions | None = ...,
) -> Solution: ...
def optimize(
    objective: Any,
    *,
    seed: int = 0,
    progress: bool = False,
    transformation: "optax.GradientTransformation | None" = None,
    regime: str = "certified",
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    designs: Sequence[np.ndarray] = (),
    explain: bool = True,
    choices: Mapping[str, Sequence[str]] | None = None,
    options: SearchOptions | None = None,
) -> Solution | PortfolioSolution:
    """Return the best design for a problem, in whole units that can be bought.

    **Certified** (default): branch and bound over integer designs, with lower bounds from convex relaxations of the model
    (`hwopt.solver.search.solve_global`). The result is proved optimal within a stated gap. Problems without such relaxations
    branch on unsupported integers or contain terms that are not geometric programs. They are solved locally over continuous
    hardware, and the certificate says so. Budgets hold for the stated input values; for uncertain inputs, `hwopt.confident`
    makes them hold with a given probability.

    **Relaxed:** the same over continuous hardware, with fractions of a memory stack, a lane or a NIC. Elasticities refer to
    this relaxation.

    **Local:** hardware and parallel degrees are continuous together, as functions of one vector (`hwopt.loss`), from Sobol
    starts. Integer designs around the best start are then re-optimized, and the exact model selects among them
    (`hwopt.solver.local.multistart`).

    **Arguments:**

    - `objective`: from `hwopt.objective(...)`, or a `Problem`.
    - `seed`: seed of the starts of the local regime.
    - `progress`: whether to show a progress bar on standard error.
    - `transformation`: optax transformation in place of Adam, for the local regime.
    - `regime`: "certified", "relaxed" or "local".
    - `seconds`: time limit, after which the incumbent is returned with its proved gap.
    - `freeze`: variables, or categories of variables, fixed at the present values of the machine.
    - `bounds`: lower and upper bound by variable, SI units, inside the problem's own.
    - `designs`: integer designs (`point` of the problem's lattice) that the certified search starts from, such as optima of
      similar problems.
    - `explain`: whether to compute the smallest relaxation of the budgets if no design satisfies them, and a design of each
      combination of choices other than the best, by a bounded search.
    - `choices`: values by field of the problem, `["*"]` for all catalog entries. One search covers all combinations, with one
      certificate.
    - `options`: tolerances, limits and schedules of the search (`hwopt.SearchOptions`).

    **Returns:** a `Solution`, whose outcome says what is proved. A `PortfolioSolution`, always certified, where the problem is
    a list of problems (`portfolio`); `freeze` and `bounds` then apply to the parts that its members share.

    **Raises:** `UserError` for an invalid problem or argument.
    """
    check_seed(seed)
    search = options_of("optimize", options, SearchOptions)
    deadline = Deadline(check_seconds(seconds))
    if regime not in REGIMES:
        raise UserError(f"unknown regime '{regime}': {suggest(regime, REGIMES)}")
    with jax.enable_x64(True):
        check_question(objective, "optimize")
        fixed, boxes = names_of("freeze", freeze), boxes_of(bounds or {})
        if portfolio_of(objective) is not None:
            if regime != "certified" or len(designs):
                raise UserError("optimize: a portfolio is certified: leave out the regime, and designs to start from")
            rows = choice_rows(objective, choices or {}, fixed, boxes)
            return certified_portfolio(rows, deadline=deadline, progress=progress, explain=explain, options=search)
        several = bool(choices) or (regime != "local" and bool(left_open(objective)))
        if several and len(designs):
            raise UserError("optimize: designs are points of one question's lattice: leave them out, or the choices")
        if several and regime == "local":
            raise UserError("optimize: choices are proved; leave out --regime local, or ask about each alone")
        if several:
            branches = choice_states(objective, choices or {}, fixed, boxes, relaxed=regime == "relaxed")
            try:
                return certified_choice(
                    branches,
                    deadline=deadline,
                    progress=progress,
                    explain=explain,
                    figures=explain,
                    options=search,
                )
            except NotDGP as reason:
                raise UserError(
                    f"choices: a combination cannot be proved together with others: {reason}; solve each alone"
                ) from None
        asked = question_of(objective)
        problem = asked if regime == "certified" else asked.continuous
        problem = problem.frozen(fixed).narrowed(boxes)
        if not problem.variables:
            raise UserError(f"problem '{problem.name}' has no variables: name at least one")
        why = "" if regime == "local" else reason_without_lattice(problem)
        if regime != "local" and not why:
            try:
                return solve_global(
                    problem, deadline=deadline, progress=progress, designs=designs, explain=explain, options=search
                )
            except NotDGP as reason:
                why = str(reason)
        if regime == "certified":  # whole units need a search that branches on them
            problem = problem.continuous
        from hwopt.solver.local.multistart import (
            optimize_relaxed,  # with optax and SciPy's samplers, which no proof needs
        )

        return optimize_relaxed(
            problem, seed, progress, transformation, f"; not certified: {why}" if why else "", deadline, search
        )
