"""Design questions by name, with their constants scaled to a measured run where they state one."""

from dataclasses import replace
from typing import Any

from hwopt import registry


def objective(name: str, **fields: object) -> Any:
    """Return a design question by name, as `hwopt.registry.objective`; with a field `anchor`, its constants are scaled to the run.

    **Raises:** `UserError` as `hwopt.registry.objective` and `hwopt.calibration.fit.anchor.anchored`.
    """
    return anchored_objective(registry.objective(name, **fields))


def anchored_objective(question: Any) -> Any:
    """Return a question with its constants scaled to the run that its field `anchor` states; without one, the question itself."""
    anchor = getattr(question, "anchor", "")
    if not anchor:
        return question
    from hwopt.calibration.fit.anchor import anchored

    return replace(question, constants=anchored(anchor, question.constants, question.anchored_run()))
