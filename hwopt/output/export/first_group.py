"""Selection of the best-ranked plan that a software's settings can express."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hwopt.errors import UserError
from hwopt.output.text.plans import plan_line
from hwopt.planning.plan_table import PlanCandidate

Settings = TypeVar("Settings", bound=Any)


def first_told(
    flag: str, title: str, ranked: Sequence[PlanCandidate], write: Callable[[PlanCandidate], Settings]
) -> Settings:
    """Return the settings of the best-ranked plan that can be written, with a note where that is not the best plan.

    **Arguments:**

    - `flag`: the flag named in the error.
    - `title`: name of the software.
    - `ranked`: plans, the best first.
    - `write`: returns the settings of a plan, which have `notes`, or raises `UserError`.

    **Raises:** `UserError` where no plan can be expressed, with the reason for the best one.
    """
    refusals = []
    for place, candidate in enumerate(ranked):
        try:
            settings = write(candidate)
        except UserError as refusal:
            refusals.append(str(refusal))
            continue
        if not place:
            return settings
        best = ranked[0]
        more = f"number {place + 1}, {100 * (candidate.objective / best.objective - 1):.2g} % above the best"
        passed = f"not the best plan but {more}: {plan_line(best.report, best.plan)} cannot be expressed: {refusals[0]}"
        return settings._replace(notes=[passed, *settings.notes])
    words = (
        f"the best {len(ranked)} plans"
        if len(ranked) > 1
        else f"the plan {plan_line(ranked[0].report, ranked[0].plan)}"
    )
    raise UserError(f"{flag}: {title} cannot be told {words}: {refusals[0]}")
