"""Integrality gap of hardware: the best buyable machine, the best over continuous hardware, and a redesigned chip."""

import math
from dataclasses import dataclass, replace
from typing import Any

from hwopt.declared import derived, shown
from hwopt.design.lattices import KINDS, lattice_of
from hwopt.design.problem import Objective, Problem
from hwopt.solver.deadline import Deadline
from hwopt.solver.optimize import optimize
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution


@dataclass(frozen=True)
class IntegralityGap:
    """Gap between the best buyable machine and the best known design over continuous hardware.

    **Arguments:**

    - `relaxed`: the design over continuous hardware.
    - `share`: extra cost of the buyable machine, relative to the relaxed objective. It is a lower estimate where `gap` is wide.
    - `gap`: relative distance of the relaxed objective from its proved lower bound.
    """

    relaxed: Solution
    share: float = shown()
    gap: float = shown(key="relaxed_gap")

    @derived()
    def relaxed_objective(self) -> float:
        """Objective of the design over continuous hardware."""
        return self.relaxed.objective


@dataclass(frozen=True)
class AnswerAlternative:
    """One alternative answer to a question. **Arguments:** `solution`: None where it is infeasible or was not found in time."""

    solution: Solution | None
    name: str = shown()
    meaning: str = shown()

    @derived()
    def objective(self) -> float | None:
        """Objective of the answer; None without one."""
        return self.solution and self.solution.objective

    @derived()
    def gap(self) -> float | None:
        """Optimality gap of the answer; None without a proof or an answer."""
        return self.solution and self.solution.certificate.gap

    @derived()
    def design(self) -> dict[str, float] | None:
        """Variables of the answer by name, SI units; None without an answer."""
        return self.solution and {name: each.value for name, each in self.solution.design.items()}


_ALIKE = ("cp", *KINDS)
"""Plan settings that both machines share. With all of them free, a search over continuous hardware takes too long."""


LOOKED_AT = 400
"""Default number of node relaxations for the search over continuous hardware: its first round. Five times as many find a
design that is 1.5 % cheaper for the default question, and take as long as the proof of the whole answer.
"""


def integrality_gap(
    solution: Solution,
    deadline: Deadline | None = None,
    most_boxes: int = LOOKED_AT,
    options: SearchOptions = SEARCH,
) -> IntegralityGap | None:
    """Return the integrality gap of a proved answer, with context parallelism and categorical plan settings fixed.

    Return None where the question has no continuous relaxation or one with other limits (means in place of percentiles), or
    the answer is not proved.

    **Arguments:**

    - `solution`: the proved answer.
    - `deadline`: time limit; None for no limit.
    - `most_boxes`: maximum number of nodes to bound; use `TreeOptions.nodes` for a full proof.
    - `options`: options of the search.
    """
    problem = solution.problem
    if problem.relaxation is None or solution.outcome is not Outcome.proved:
        return None
    limited = [{each.metric.name for each in asked.budgets} for asked in (problem, problem.relaxation)]
    if limited[0] != limited[1]:
        return None
    if most_boxes < options.tree.nodes:  # a short search has a short run of the heuristic, too
        full = options.heuristic
        short = replace(full, generations=full.continued_generations, patience=full.continued_patience)
        options = replace(options, heuristic=short)
    known = design_values(solution)
    loose = problem.relaxation.kept_at({name: known[name] for name in _ALIKE if name in known})
    own = {each.name: float(each.place.get(solution.built)) for each in loose.variables}
    relaxed = solve_global(
        loose,
        deadline=deadline,
        explain=False,
        most_boxes=most_boxes,
        designs=[lattice_of(loose).point(own)],
        options=options,
    )
    if not relaxed.feasible or relaxed.certificate.gap is None:
        return None
    return IntegralityGap(relaxed, solution.objective / relaxed.objective - 1.0, relaxed.certificate.gap)


def alternatives(
    objective: Objective, solution: Solution, price: IntegralityGap | None, deadline: Deadline
) -> list[AnswerAlternative]:
    """Solve a question with stock hardware, with whole units near the relaxed answer, and with a fully redesigned chip.

    The redesign includes the scale-up domain.
    **Arguments:**

    - `objective`: the question behind `solution`.
    - `solution`: its answer.
    - `price`: its integrality gap, if known. It adds the relaxed design and the nearest buildable one.
    - `deadline`: common time limit.
    """
    asked: Any = objective
    sold = solution if asked.free == "none" else _answer(replace(asked, free="none"), solution, deadline)
    redesigned = solution if asked.free == "all" else _answer(replace(asked, free="all"), solution, deadline)
    rows = [
        AnswerAlternative(sold, "as sold", "chip, memory, links and domain of the catalogue"),
        AnswerAlternative(redesigned, "redesigned", "stacks, lanes, domain and clock free, in whole units"),
    ]
    if price is not None:
        near = _nearest(replace(asked, free="all").problem(), price.relaxed, deadline)
        rows.insert(
            1, AnswerAlternative(near, "nearest buildable", "the relaxed answer's hardware rounded to whole units")
        )
        rows.append(AnswerAlternative(price.relaxed, "relaxed", "continuous hardware, which nobody can buy"))
    return rows


def _answer(objective: Any, like: Solution, deadline: Deadline) -> Solution | None:
    if deadline.over:
        return None
    solution = optimize(objective, seconds=deadline.left, explain=False)
    return solution if solution.feasible else None


def _nearest(problem: Problem, relaxed: Solution, deadline: Deadline) -> Solution | None:
    """Return the best design with each hardware variable at the integers next to its relaxed value.

    Return None where none is feasible or time is over.
    """
    values, design = design_values(relaxed), relaxed.built
    boxes = {}
    for each in problem.variables:
        if each.integer and each.category in ("chip", "silicon", "network", "facility"):
            near = min(max(values.get(each.name) or float(each.place.get(design)), each.lower), each.upper)
            low, high = max(each.lower, math.floor(near)), min(each.upper, math.ceil(near))
            boxes[each.name] = (low, max(low, high))
    for name in ("chips_per_rack", "scale_up_domain"):  # variables that span whole servers may halve or double
        if name in boxes:
            known = next(each for each in problem.variables if each.name == name)
            low, high = boxes[name]
            boxes[name] = max(known.lower, math.floor(low / 2)), min(known.upper, 2 * high)
    if "nics_per_server" in boxes:
        known = next(each for each in problem.variables if each.name == "nics_per_server")
        low, high = boxes["nics_per_server"]
        boxes["nics_per_server"] = max(known.lower, math.floor(low / 2)), min(known.upper, 2 * high)
    if deadline.over:
        return None
    solution = solve_global(problem.narrowed(boxes), deadline=deadline, explain=False)
    return solution if solution.feasible else None
