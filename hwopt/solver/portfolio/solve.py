"""Certified optimization of a portfolio: the best shared parts, a design of each member on these, and a lower bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from hwopt.design.choices import refuse_strange
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.portfolio import CONTINUOUS, Portfolio, parts_of, portfolio_of
from hwopt.errors import UserError
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.gp.reader import NotDGP
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.portfolio.budget_allocation import JointBudgetSearch
from hwopt.solver.portfolio.master import ChoiceFamily, PortfolioSearch
from hwopt.solver.portfolio.solution import MemberAnswer, PortfolioSolution, joint_budget_uses, joint_violation
from hwopt.solver.portfolio.subproblem import MemberProblem, MemberSearch
from hwopt.solver.search.categorical import choice_group, grouped_choices, stated
from hwopt.solver.search.node_relaxations import CHOICE
from hwopt.solver.search.search_tree import SearchResult
from hwopt.solver.search.solve_global import AGREES, SearchProblem, best_design, search_bar, solve_global
from hwopt.solver.solution import Branch, BranchOutcome, Certificate, Outcome, Solution

AnySearch = PortfolioSearch | JointBudgetSearch


def families_of(portfolios: Mapping[int, Portfolio], options: SearchOptions = SEARCH) -> list[ChoiceFamily]:
    """Group portfolios that, for every member, differ only in numbers of their machines.

    **Arguments:** `portfolios`: portfolios by the index of their combination of choices.
    """
    first = next(iter(portfolios.values()))
    problems = [{i: each.members[m].problem for i, each in portfolios.items()} for m in range(len(first.members))]
    keys: dict[int, list[int]] = {i: [] for i in portfolios}
    for each in problems:
        for at, group in enumerate(grouped_choices(each, options)):
            for i in group.members:
                keys[i].append(at)
    together: dict[tuple[int, ...], list[int]] = {}
    for i, key in keys.items():
        together.setdefault(tuple(key), []).append(i)
    families = []
    for members in together.values():
        asked = []
        for m, each in enumerate(problems):
            own = [each[i] for i in members]
            boxed = tuple(p.name for p in parts_of(own[0]).values() if p.name in CONTINUOUS and p.lower < p.upper)
            programmes = replace(choice_group(members, each, lattice_of(own[0]), options).programmes, boxed=boxed)
            models = tuple(ExactModel(problem).prepare() for problem in own)
            asked.append(MemberProblem(portfolios[members[0]].members[m], tuple(own), models, programmes))
        families.append(ChoiceFamily(tuple(members), tuple(asked)))
    return families


def choice_rows(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    freeze: Iterable[str],
    bounds: Mapping[str, tuple[float, float]],
) -> list[Branch]:
    """Return a portfolio under all combinations of choices.

    **Raises:** `UserError` for an invalid portfolio, and for a named value that no combination accepts.
    """

    def state(asked: Any) -> Portfolio:
        portfolio = portfolio_of(asked)
        assert portfolio is not None
        return portfolio.frozen(freeze).narrowed(bounds)

    rows = stated(objective, choices, state)
    if refused := [row.refused for row in rows if row.refused and not choices]:
        raise UserError(refused[0])
    refuse_strange([(row.chosen, row.refused) for row in rows], choices)
    return rows


def certified_portfolio(
    rows: Sequence[Branch],
    *,
    deadline: Deadline | None = None,
    progress: bool = False,
    explain: bool = True,
    options: SearchOptions = SEARCH,
) -> PortfolioSolution:
    """Optimize a portfolio over its shared parts, the plans of its members, and all choices.

    **Arguments:**

    - `rows`: the portfolio under each combination of choices.
    - `deadline`: time at which the best joint design is returned with its proved gap.
    - `progress`: whether to show a progress bar.
    - `explain`: whether to compute the smallest relaxation for a member that has no feasible design.
    - `options`: options of the search.

    **Raises:** `UserError` where a member has no convex relaxation, so that nothing can be proved about it.
    """
    deadline = deadline or Deadline()
    portfolios = {i: row.question for i, row in enumerate(rows) if row.question is not None}
    for portfolio in portfolios.values():
        for each in portfolio.members:
            if why := reason_without_lattice(each.problem):
                raise UserError(f"portfolio: member '{each.name}' cannot be proved: {why}")
    families = families_of(portfolios, options)
    together = next(iter(portfolios.values())).budgets
    search = (
        JointBudgetSearch(families, together, deadline, options=options)
        if together
        else PortfolioSearch(families, deadline, options=options)
    )

    def work() -> PortfolioSolution:
        with jax.enable_x64(True), search_bar(progress) as bar:
            search.run(lambda now: _show(bar, now))
            return _answer(rows, portfolios, search, explain)

    try:
        return by_deadline(deadline, work, lambda: _answer(rows, portfolios, search, explain=False))
    except NotDGP as reason:
        raise UserError(f"portfolio: a member cannot be proved: {reason}") from None


def _answer(
    rows: Sequence[Branch], portfolios: Mapping[int, Portfolio], search: AnySearch, explain: bool
) -> PortfolioSolution:
    if search.best.family is None and not search.complete:
        search.last_look()
    best = search.best
    if best.family is None:
        return _without_design(rows, portfolios, search, explain)
    number = best.family.combinations[best.works[0].machine]
    portfolio = portfolios[number]
    kept = {name: value for name, value in best.works[0].parts.items() if name != CHOICE}
    kept |= {name: best.clock for name in CONTINUOUS if name in kept}
    found = [_solution(work, kept, search) for work in best.works]
    solutions = [solution for solution, _ in found]
    objective = sum(work.weight * each.objective for work, each in zip(best.works, solutions, strict=True))
    bound = min(search.proved_bound, objective)
    uses = joint_budget_uses(portfolio, solutions)
    violation = joint_violation(uses, solutions)
    agrees = all(each for _, each in found)
    proved = violation <= FEASIBILITY_TOLERANCE and agrees and bound > 0.0
    proof = Certificate(
        kkt_residual=max(each.certificate.kkt_residual for each in solutions),
        max_violation=violation,
        scope=_scope(search, len(portfolios)),
        lower_bound=bound if proved else None,
        gap=objective / bound - 1.0 if proved else None,
        stopped=None if search.complete else search.deadline.stop,
    )
    outcome = (
        Outcome.proved
        if proof.gap is not None and proof.gap <= search.options.portfolio.proved_gap
        else Outcome.best_found
    )
    parts = {name: solutions[0].design[name] for name in kept}
    own = portfolio.parts
    parts = {name: replace(each, lower=own[name].lower, upper=own[name].upper) for name, each in parts.items()}
    members = tuple(
        _member(portfolio, search, i, work, solution, kept, objective)
        for i, (work, solution) in enumerate(zip(best.works, solutions, strict=True))
    )
    choices = _fates(rows, search, number, objective)
    return PortfolioSolution(portfolio, objective, members, outcome, parts, proof, choices=choices, budgets=uses)


def _scope(search: AnySearch, combinations: int) -> str:
    among = f"{combinations} combinations of choices, " if combinations > 1 else ""
    parts = ", ".join(name for name in search.families[0].box if name != CHOICE)
    what = "shares of budgets" if isinstance(search, JointBudgetSearch) else "components"
    left = "" if search.complete else f"; stopped with {len(search.nodes)} open nodes over {what}"
    shared = f", {search.searches} searches for shares of budgets" if isinstance(search, JointBudgetSearch) else ""
    return (
        f"global over {among}components ({parts}) and the plans of all members on them: {search.boxes_of_parts} nodes over "
        f"components, {search.boxes:,} node relaxations solved{shared}{left}"
    )


def _solution(work: MemberSearch, kept: Mapping[str, float], search: AnySearch) -> tuple[Solution, bool]:
    """Return a member's design on the shared parts as a solution, and whether exact model and convex program agree on it."""
    problem = work.asked.problems[work.machine].kept_at(kept)
    lattice, point = work.search.lattice, work.result.point
    assert point is not None
    if CHOICE in lattice.at:
        point = np.delete(point, lattice.at[CHOICE])
    model = work.asked.models[work.machine]
    result = SearchResult(point=point, value=work.result.value, design=dict(work.result.design) | dict(kept))
    question = SearchProblem(problem, lattice_of(problem), model, search.deadline, result, options=search.options)
    best = best_design(question, problem, point)
    proof = Certificate(best.kkt_residual, best.violation, "a member of a portfolio, on the parts of all")
    agrees = abs(float(best.exact.objective) - best.objective) <= AGREES
    return best.solution(question, proof, Outcome.best_found), agrees


def _member(
    portfolio: Portfolio,
    search: AnySearch,
    i: int,
    work: MemberSearch,
    solution: Solution,
    kept: Mapping[str, float],
    total: float,
) -> MemberAnswer:
    """Return a member of the portfolio's solution.

    **Arguments:**

    - `i`, `work`, `solution`: index, search and design of the member.
    - `kept`: the shared parts.
    - `total`: total cost of all members on these.
    """
    alone = [each for (_, at), each in search.alone.items() if at == i]
    whole = len(search.families) == 1 and alone[0].over and alone[0].result.complete
    value = alone[0].value if whole and math.isfinite(alone[0].value) else None
    each, on_its_parts = portfolio.members[i], search.on_parts_of.get(i, ())
    if (
        on_its_parts
        and value is not None
        and all(math.isclose(alone[0].parts[name], kept[name], rel_tol=1e-6) for name in kept)
    ):
        on_its_parts = (min(on_its_parts[0], total), on_its_parts[1])  # the solution itself is on these parts
    return MemberAnswer(
        solution,
        each.name,
        each.weight,
        each.counted,
        each.weight * solution.objective,
        min(one.bound for one in alone),
        value,
        *on_its_parts,
    )


def _without_design(
    rows: Sequence[Branch], portfolios: Mapping[int, Portfolio], search: AnySearch, explain: bool
) -> PortfolioSolution:
    """Return the solution of a portfolio without a joint design, with the member that prevents one, if known."""
    portfolio = next(iter(portfolios.values()))
    none = [each for (at, _), each in search.alone.items() if at == 0 and math.isinf(each.bound)]
    proved = search.complete and math.isinf(search.bound)
    limits = ", ".join(each.name for each in portfolio.budgets)
    text = "Each member has feasible designs, but none on the same components" if proved else ""
    text += f" within the joint budgets ({limits})" if proved and limits else ""
    if none and len(portfolios) == 1:
        name = none[0].asked.member.name
        text = f"Member '{name}' has no design of its own that satisfies its budgets"
        if explain:
            text += f": {solve_global(none[0].asked.problems[0], deadline=search.deadline, options=search.options).infeasibility}"
    verdict = "infeasible, proved, over" if proved else "no design found, unproved, over"
    scope = f"{verdict} {_scope(search, len(portfolios)).removeprefix('global over ')}"
    proof = Certificate(math.nan, math.nan, scope, stopped=None if search.complete else search.deadline.stop)
    outcome = Outcome.infeasible if proved else Outcome.not_found
    choices = _fates(rows, search, -1, math.inf)
    return PortfolioSolution(portfolio, math.inf, (), outcome, {}, proof, text and text.rstrip(".") + ".", choices)


def _fates(rows: Sequence[Branch], search: AnySearch, best: int, objective: float) -> tuple[Branch, ...]:
    """Return the outcome of each combination of choices: the best first, refused ones last; empty without choices."""
    if len(rows) == 1 and not rows[0].chosen:
        return ()
    branches = []
    for i, row in enumerate(rows):
        bound, shown = search.bounds.get(i, math.nan), objective if i == best else None
        fate = (
            BranchOutcome.best if i == best else BranchOutcome.infeasible if math.isinf(bound) else BranchOutcome.beaten
        )
        proved = None if fate is BranchOutcome.infeasible or (i == best and math.isnan(bound)) else bound
        known = row.question is not None and (i == best or search.complete)
        branches.append(replace(row, fate=fate, objective=shown, lower_bound=proved) if known else row)
    return tuple(sorted(branches, key=lambda row: row.rank))


def _show(bar: tqdm, now: AnySearch) -> None:
    value, bound = now.best.value, now.proved_bound
    gap = (
        f"gap {100 * (value / bound - 1.0):.2g} %" if math.isfinite(value) and bound > 0.0 else "no list of designs yet"
    )
    bar.set_postfix_str(f"{now.boxes_of_parts} nodes over components, {now.boxes:,} nodes bounded, {gap}")
