"""What buying in whole units costs: the answer that can be bought, the one over continuous hardware, and a redesigned chip."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from hwopt.design.lattices import KINDS, lattice_of
from hwopt.design.problem import Objective, Problem
from hwopt.solver.deadline import Deadline
from hwopt.solver.optimize import optimize
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.solve_global import design_values, solve_global
from hwopt.solver.solution import Outcome, Solution


@dataclass(frozen=True)
class IntegralityGap:
    """The best machine that can be bought beside the best known over continuous hardware.

    **Arguments:** `share`: how much more it costs, of the relaxed objective: at least, where the gap is wide; `gap`: how far above
    what is proved of continuous hardware `relaxed` is.
    """

    relaxed: Solution
    share: float
    gap: float


@dataclass(frozen=True)
class AnswerAlternative:
    """One way to answer a question. **Arguments:** `solution`: None where none was known in time or none is possible."""

    name: str
    meaning: str
    solution: Solution | None


_ALIKE = ("cp", *KINDS)
"""What both machines have alike of their plans: continuous hardware has room for more kinds than a search has time for."""


LOOKED_AT = 2_000
"""Programmes bounded for a short look at continuous hardware: a twelfth of what proves it for the default question."""


def integrality_gap(
    solution: Solution,
    deadline: Deadline | None = None,
    most_boxes: int = LOOKED_AT,
    options: SearchOptions = SEARCH,
) -> IntegralityGap | None:
    """What buying in whole units costs, with a plan of the same kind; None where the question has no such price, or the answer
    is not proved.

    **Arguments:** `most_boxes` bounded: `TreeOptions.nodes` of a search for a proof.
    """
    problem = solution.problem
    if problem.relaxation is None or solution.outcome is not Outcome.proved:
        return None
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
    """The question as sold, in whole units near the relaxed answer, and with all of chip and domain redesigned.

    **Arguments:** `objective` behind the `solution`; `deadline` by which all of them end.
    """
    asked: Any = objective
    sold = solution if asked.free == "none" else _answer(dataclasses.replace(asked, free="none"), solution, deadline)
    redesigned = (
        solution if asked.free == "all" else _answer(dataclasses.replace(asked, free="all"), solution, deadline)
    )
    rows = [
        AnswerAlternative("as sold", "chip, memory, links and domain of the catalogue", sold),
        AnswerAlternative("redesigned", "stacks, lanes, domain and clock free, in whole units", redesigned),
    ]
    if price is not None:
        near = _nearest(dataclasses.replace(asked, free="all").problem(), price.relaxed, deadline)
        rows.insert(
            1, AnswerAlternative("nearest buildable", "the relaxed answer's hardware rounded to whole units", near)
        )
        rows.append(AnswerAlternative("relaxed", "continuous hardware, which nobody can buy", price.relaxed))
    return rows


def _answer(objective: Any, like: Solution, deadline: Deadline) -> Solution | None:
    if deadline.over:
        return None
    solution = optimize(objective, seconds=deadline.left, explain=False)
    return solution if solution.feasible else None


def _nearest(problem: Problem, relaxed: Solution, deadline: Deadline) -> Solution | None:
    """The best plan on hardware in whole units next to a relaxed answer's: each part at the integers beside what it had."""
    values, design = design_values(relaxed), relaxed.built
    boxes = {}
    for each in problem.variables:
        if each.integer and each.category in ("chip", "silicon", "network", "facility"):
            near = values.get(each.name) or float(each.place.get(design))
            low, high = max(each.lower, math.floor(near)), min(each.upper, math.ceil(near))
            boxes[each.name] = (low, max(low, high))
    for name in ("chips_per_rack", "scale_up_domain"):  # what holds whole servers may be half or twice as large
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
