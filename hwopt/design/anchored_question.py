"""The run in question, for an anchor that measured it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hwopt import catalog

_PARTS = {True: ("tp", "pp", "cp", "virtual_stages", "micro_batch", "zero", "recompute"), False: ("tp", "pp", "batch")}
"""Whether a run is training -> parts that make its plan known where a search would choose the others."""


class AnchoredQuestion(NamedTuple):
    """Workload, machine and plan in question, for an anchor."""

    workload: str | Path
    run: Any  # training run or service
    trains: bool
    chip: str
    stack: str
    chips: int | None  # None where they are not stated
    plan: str | None  # text
    operation: str | None
    cluster: Callable[[str], Any]  # operation -> cluster
    completed: bool = False  # whether defaults complete the plan

    @property
    def unknown(self) -> str:
        """Return what is missing for the run to be the one in question; empty where nothing is."""
        if self.chips is None:
            return "the number of chips of the run is not known"
        parse = catalog.parse_plan if self.trains else catalog.parse_serving_plan
        stated = parse(self.plan) if self.plan else {}
        parts = (*_PARTS[self.trains], *["ep"] * catalog.has_experts(self.run.model))
        missing = ", ".join(name for name in parts if name not in stated)
        return f"the plan of the run is not known: add {missing} to plan" * bool(
            missing and not (self.completed and stated)
        )
