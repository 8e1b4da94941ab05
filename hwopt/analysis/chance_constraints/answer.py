"""Find the best design whose limits hold jointly with a required probability when inputs are uncertain.

The problem may leave text fields open, such as the chip. Then the best combination of their values is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from hwopt.analysis.chance_constraints.choices import best_confident_choice
from hwopt.analysis.chance_constraints.search import (
    DRAWS,
    ConfidenceRequest,
    check_confidence,
    solve_chance_constrained,
)
from hwopt.design.choices import left_open
from hwopt.design.problem import Objective, Problem
from hwopt.errors import UserError
from hwopt.options import options_of
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SearchOptions
from hwopt.solver.solution import Solution
from hwopt.validation import boxes_of, check_question, check_seconds, check_seed, names_of, question_of


def confident(
    objective: Objective | Problem,
    confidence: float,
    *,
    regime: str = "certified",
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    progress: bool = False,
    explain: bool = True,
    options: SearchOptions | None = None,
) -> Solution:
    """Find the best design whose budgets all hold jointly with a given probability, under uncertain inputs.

    The uncertainty of the inputs is that of `uncertainty_factors`. Limits are tightened until draws of the exact model satisfy
    all budgets together. The answer is certified for these limits
    (`hwopt.analysis.chance_constraints.search.solve_chance_constrained`). With `choices`, the best combination is returned
    (`best_confident_choice`).

    **Arguments:**

    - `objective`: a design question.
    - `confidence`: required probability, from 0.5 to below 1.
    - `regime`: "certified", or "relaxed" for continuous hardware.
    - `seed`, `draws`: seed and number of the draws.
    - `seconds`, `freeze`, `bounds`, `choices`, `progress`, `explain`, `options`: as in `optimize`.

    **Returns:** a `Solution` whose `promise` describes the draws. It is infeasible where no design meets the tightened limits.
    The suggested relaxations then refer to the original limits, as in `optimize`.

    **Raises:** `UserError` for a question that cannot be posed or certified.
    """
    asked = check_confidence(confidence)
    check_seed(seed)
    search = options_of("confident", options, SearchOptions)
    deadline = Deadline(check_seconds(seconds))
    if regime not in ("certified", "relaxed"):
        raise UserError(f"confidence: limits are tightened in proofs, and --regime {regime} makes none; leave it out")
    asking = ConfidenceRequest(asked, deadline, seed, draws, progress, explain, search)
    kept, boxes, relaxed = names_of("freeze", freeze), boxes_of(bounds or {}), regime == "relaxed"
    if choices or left_open(objective):
        check_question(objective, "confident")
        return best_confident_choice(objective, choices or {}, asking, relaxed=relaxed, freeze=kept, bounds=boxes)
    question = question_of(objective)
    return solve_chance_constrained((question.continuous if relaxed else question).frozen(kept).narrowed(boxes), asking)
