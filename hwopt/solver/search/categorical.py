"""Global optimization over categorical choices: one search and one certificate for all combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from hwopt.design.choices import Combination, combinations, refuse_strange
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.integers.system import Integer, Role, System
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.progress import counted
from hwopt.solver.deadline import Deadline, by_deadline
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.branch_and_bound import final_heuristic, search, search_all, stopped_early
from hwopt.solver.search.canonicalize import exponent_places, flat_numbers
from hwopt.solver.search.node_relaxations import CHOICE, ElasticProblem, MachineRelaxations, NodeRelaxations
from hwopt.solver.search.search_tree import MachineState, SearchResult
from hwopt.solver.search.solve_global import (
    SearchProblem,
    best_design,
    certified_solution,
    heuristic_design,
    infeasible_solution,
    search_bar,
    stopped_solution,
)
from hwopt.solver.solution import Branch, BranchOutcome, Certificate, Outcome, Solution

MOST_BRANCHES = 512
"""Maximum number of combinations of choices. Each takes a few seconds unless its first bound rules it out."""


def stated(objective: Any, choices: Mapping[str, Sequence[str]], state: Callable[[Any], Any]) -> list[Branch]:
    """Return every combination of choices, with its problem or with the reason why it has none.

    **Arguments:**

    - `objective`: the design objective, whose fields the choices replace.
    - `choices`: values to try by field.
    - `state`: function that makes a problem of an objective with one combination of values.
    """
    found = []
    for each in combinations(objective, choices, MOST_BRANCHES):
        try:
            found.append(Branch(each.chosen, question=state(each.objective)))
        except UserError as error:
            found.append(Branch(each.chosen, BranchOutcome.refused, refused=str(error)))
    return found


def choice_states(
    objective: Any,
    choices: Mapping[str, Sequence[str]],
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    *,
    relaxed: bool = False,
) -> list[Branch]:
    """Return the problems of all combinations of choices.

    **Arguments:**

    - `objective`, `choices`, `freeze`, `bounds`: see `optimize`.
    - `relaxed`: whether hardware is continuous instead of bought in whole units.

    **Raises:** `UserError` for a named value that no combination accepts, and for a problem that has no lattice to search.
    """

    def state(asked: Any) -> Problem:
        problem = asked.problem()
        return (problem.continuous if relaxed else problem).frozen(freeze).narrowed(bounds or {})

    asked = stated(objective, choices, state)
    for each in asked:
        if each.question is not None and (why := reason_without_lattice(each.question)):
            name = Combination(each.chosen, objective).name
            raise UserError(f"choices: {name} cannot be proved together with others: {why}; solve it alone")
    refuse_strange([(each.chosen, each.refused) for each in asked], choices)
    return asked


@dataclass(frozen=True)
class ChoiceGroup:
    """Problems of one form and one lattice that one search bounds together, distinguished by the coordinate `CHOICE`.

    **Arguments:**

    - `members`: their indices among all problems.
    - `programmes`: node relaxations that cover all members.
    - `result`: incumbent and bounds of the search.
    """

    members: tuple[int, ...]
    programmes: NodeRelaxations
    result: SearchResult = field(default_factory=SearchResult)

    @property
    def machines(self) -> list[MachineState]:
        """Return how far the search is for each alternative of the group, in the order of `members`.

        A state has the objective of the best design found and lower bounds on the objective, all as natural logarithms. The
        bounds cover the discarded and the open parts of the search tree.
        """
        if self.programmes.machines is None:
            result = self.result
            open_bound = math.inf if result.complete else result.open_bound
            return [MachineState(result.point, result.value, result.design, result.bound, open_bound)]
        states = [self.result.machines.get(i, MachineState()) for i in range(1, len(self.members) + 1)]
        if self.result.rounds or self.result.complete:
            return states
        return [
            replace(each, open_bound=-math.inf) for each in states
        ]  # designs that start a search come before any bound

    def winner(self) -> tuple[int, np.ndarray]:
        """Return the index of the incumbent's member, and the incumbent as a point of that member's lattice."""
        point = self.result.point
        assert point is not None
        if self.programmes.machines is None:
            return self.members[0], point
        at = self.programmes.lattice.at[CHOICE]
        return self.members[int(point[at]) - 1], np.delete(point, at)


def grouped_choices(problems: Mapping[int, Problem], options: SearchOptions = SEARCH) -> list[ChoiceGroup]:
    """Group problems that differ only in numbers of their machines.

    **Arguments:** `problems`: problems by index.
    """
    groups: dict[Any, list[int]] = {}
    lattices = {i: lattice_of(problem) for i, problem in problems.items()}
    for i, problem in problems.items():
        boxes = tuple((each.name, each.lower, each.upper) for each in problem.variables)
        form = problem.trace_key
        powers = flat_numbers(problem.template)[list(exponent_places(*form))].tobytes()
        groups.setdefault((form, boxes, tuple(problem.limits), repr(lattices[i]), powers), []).append(i)
    return [choice_group(members, problems, lattices[members[0]], options) for members in groups.values()]


def choice_group(
    members: Sequence[int], problems: Mapping[int, Problem], lattice: System, options: SearchOptions = SEARCH
) -> ChoiceGroup:
    """Return problems of one form and one lattice as a group.

    **Arguments:**

    - `members`: indices of the group's problems.
    - `problems`: all problems by index.
    - `lattice`: lattice of integer designs that the members share.
    """
    first = problems[members[0]]
    if len(members) == 1:
        return ChoiceGroup(tuple(members), NodeRelaxations(first, lattice, options=options))
    table = np.stack([flat_numbers(problems[i].template) for i in members])
    places = np.flatnonzero((table != table[0]).any(axis=0))
    choice = Integer(CHOICE, 1, len(members), role=Role.root)
    several = replace(lattice, coordinates=(*lattice.coordinates, choice))
    machines = MachineRelaxations(tuple(map(int, places)), table[:, places])
    return ChoiceGroup(tuple(members), NodeRelaxations(first, several, machines=machines, options=options))


def certified_choice(
    asked: Sequence[Branch],
    *,
    deadline: Deadline | None = None,
    progress: bool = False,
    explain: bool = True,
    figures: bool = False,
    options: SearchOptions = SEARCH,
) -> Solution:
    """Optimize globally over a lattice of designs and all combinations of choices.

    **Arguments:**

    - `asked`: the combinations, as `choice_states` returns them.
    - `deadline`, `progress`, `explain`, `options`: see `solve_global`.
    - `figures`: whether to find designs of the other combinations too, each by a bounded search (`with_design`).

    **Returns:** the best design of all combinations, whose certificate covers them all. Its `choices` state the outcome of
    each.
    """
    deadline = deadline or Deadline()
    problems = {i: each.question for i, each in enumerate(asked) if each.question is not None}
    groups = grouped_choices(problems, options)
    for group in groups:  # traced once for all members, before anything is compiled, as `by_deadline` requires
        ExactModel(group.programmes.problem).prepare()
    results = [each.result for each in groups]

    def question(groups: Sequence[ChoiceGroup]) -> SearchProblem:
        """Return the problem of the incumbent with the bound of all groups; the first problem if there is no incumbent."""
        best = min(groups, key=lambda each: (each.result.value, each.result.looked))
        at, point = (min(problems), None) if best.result.point is None else best.winner()
        own = {name: getattr(best.result, name) for name in ("value", "design", "looked")}
        result = replace(_together(results), point=point, **own)
        among = f"{len(problems)} combinations of choices; of the one shown "
        return SearchProblem(
            problems[at],
            lattice_of(problems[at]),
            ExactModel(problems[at]).prepare(),
            deadline,
            result,
            among,
            options=options,
        )

    def work() -> Solution | None:
        with jax.enable_x64(True), search_bar(progress) as bar:
            show = lambda now: _show(bar, now)
            models = [[ExactModel(problems[i]) for i in group.members] for group in groups]
            search_all([each.programmes for each in groups], results, deadline=deadline, progress=show, exact=models)
            best = question(groups)
            if deadline.over and stopped_early(best.result, options.heuristic):
                return None
            if best.result.point is None:
                return infeasible_solution(best, explain)
            return certified_solution(best, best_design(best, best.problem, best.result.point))

    solution = by_deadline(deadline, work, lambda: None) or stopped_solution(question(_looked_at(groups, options)))
    rows = _fates(asked, problems, groups, solution)
    if figures:
        by_deadline(deadline, lambda: _design_others(rows, groups, deadline, options), lambda: None)
    return replace(solution, choices=tuple(sorted(rows, key=lambda row: row.rank)))


def _design_others(
    rows: list[Branch], groups: Sequence[ChoiceGroup], deadline: Deadline, options: SearchOptions
) -> None:
    """Give combinations other than the best a design from a bounded search, those of the least bounds first."""
    others = [(rows[i].rank, i, group) for group in groups for i in group.members if rows[i].solution is None]
    with jax.enable_x64(True):
        for _, i, group in counted(
            sorted(others, key=lambda each: each[:2])[: options.heuristic.candidates], "candidate"
        ):
            if not deadline.over:
                rows[i] = with_design(rows[i], group, group.members.index(i), deadline, options)


def with_design(row: Branch, group: ChoiceGroup, place: int, deadline: Deadline, options: SearchOptions) -> Branch:
    """Return a combination with the best design that a bounded search finds, or else with the one nearest to its budgets.

    The search is one run of the evolutionary heuristic with the exact model, of `last_generations` generations. The convex
    programs of its best `solved_designs` designs are then solved. The design of the common search counts if it is better.
    Without any design, a second run minimizes the factor by which the budgets are exceeded.

    **Arguments:** `group`, `place`: the combination is `group.members[place]`.
    """
    only = lambda each: replace(each, lower=place + 1, upper=place + 1) if each.name == CHOICE else each
    lattice = replace(group.programmes.lattice, coordinates=tuple(map(only, group.programmes.lattice.coordinates)))
    longer = replace(options.heuristic, first_generations=options.heuristic.last_generations)
    programmes = replace(group.programmes, lattice=lattice, options=replace(options, heuristic=longer))
    question = SearchProblem(row.question, lattice, ExactModel(row.question), deadline)
    best, infeasible = group.machines[place], row.fate is BranchOutcome.infeasible
    if not infeasible:
        found = search(programmes, most_boxes=1, deadline=deadline, exact=[question.model] * len(group.members))
        best = min(best, found, key=lambda each: each.value)
    if best.point is None:
        elastic = ElasticProblem(tuple(each.name for each in row.question.budgets), options.elastic.most_factor)
        best = final_heuristic(replace(programmes, elastic=elastic, recordings=[], forms=[]), SearchResult())
    if best.point is None:
        return row
    design = heuristic_design(question, best)
    value = math.exp(design.exact.objective) if design.violation <= FEASIBILITY_TOLERANCE else None
    bound = value and row.lower_bound
    gap, scope = value / bound - 1.0 if value and bound else None, "one combination of choices, by a bounded search"
    proof = Certificate(math.nan, design.violation, scope, bound, gap, stopped="node limit")
    outcome = Outcome.best_found if value else Outcome.infeasible if infeasible else Outcome.not_found
    return replace(row, objective=value, solution=design.solution(question, proof, outcome))


def _looked_at(groups: Sequence[ChoiceGroup], options: SearchOptions) -> Sequence[ChoiceGroup]:
    """Return the groups; if none has an incumbent, only the most promising ones, after a last heuristic run of each."""
    if any(each.result.point is not None for each in groups):
        return groups
    first = sorted(groups, key=lambda each: each.result.proved_bound)[: options.heuristic.last_lattices]
    return [replace(each, result=final_heuristic(each.programmes, each.result)) for each in first]


def _together(results: Sequence[SearchResult]) -> SearchResult:
    """Return the bounds and counts of several searches as one result, without a design."""
    total = lambda name: sum(getattr(each, name) for each in results)
    return SearchResult(
        bound=min(each.bound for each in results),
        boxes=total("boxes"),
        infeasible=total("infeasible"),
        rounds=min(each.rounds for each in results),
        open_boxes=total("open_boxes"),
        open_bound=min(math.inf if each.complete else each.open_bound for each in results),
        complete=all(each.complete for each in results),
    )


def _show(bar: tqdm, now: Sequence[SearchResult]) -> None:
    value, bound = min(each.value for each in now), min(each.proved_bound for each in now)
    gap = f"gap {100 * math.expm1(value - bound):.2g} %" if math.isfinite(value - bound) else "no design yet"
    done = sum(each.complete for each in now)
    bar.set_postfix_str(f"{done} of {len(now)} lattices, {sum(each.boxes for each in now):,} nodes bounded, {gap}")


def _fates(
    asked: Sequence[Branch], problems: Mapping[int, Problem], groups: Sequence[ChoiceGroup], solution: Solution
) -> list[Branch]:
    """Return the outcome of each combination, in the order of `asked`."""
    rows = list(asked)
    for group in groups:
        for i, machine in zip(group.members, group.machines, strict=True):
            rows[i] = _fate(asked[i], machine, group.result.complete)
    if solution.feasible:
        first = next(i for i, problem in problems.items() if problem is solution.problem)
        rows[first] = replace(rows[first], fate=BranchOutcome.best, objective=solution.objective, solution=solution)
    return rows


def _fate(each: Branch, machine: MachineState, complete: bool) -> Branch:
    value = math.exp(machine.value) if math.isfinite(machine.value) else None
    bound = math.exp(machine.proved_bound) if math.isfinite(machine.proved_bound) else None
    is_open = not complete and machine.open_bound != math.inf
    fate = (
        BranchOutcome.open
        if is_open
        else BranchOutcome.infeasible
        if bound is None and value is None
        else BranchOutcome.beaten
    )
    return replace(each, fate=fate, objective=value, lower_bound=bound)
