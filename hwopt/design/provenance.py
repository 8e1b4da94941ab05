"""Where a question's numbers come from: the catalogue entries behind its template, by what they are of, and its constants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hwopt import catalog, escape
from hwopt.catalog import Record

DECODE = "decode_"
"""What stands before the role of an entry that is of the chips for answers alone, where these are of another kind."""


@dataclass(frozen=True)
class Provenance:
    """The records behind a template.

    **Arguments:** `records` by role: chip, stack, site, cooling, prices, ...; `constants`: a mode or a file of `hwopt
    calibrate`, None where nothing was said; `further` references of one's own.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    constants: str | Path | None = None
    further: tuple[str, ...] = ()

    @property
    def of_answers(self) -> dict[str, Record]:
        """The records by role, of two kinds of chips those of the chips for answers."""
        own = {role.removeprefix(DECODE): each for role, each in self.records.items() if role.startswith(DECODE)}
        return {role: each for role, each in self.records.items() if not role.startswith(DECODE)} | own

    @property
    def sources(self) -> tuple[str, ...]:
        """The reference behind every number, each once; what the constants were fitted to comes first."""
        fitted = self.calibration
        first = [f"Calibration: {fitted.title}"] if fitted is not None and fitted.runs else []
        return tuple(dict.fromkeys((*first, *self.further, *catalog.sources_of(*self.records.values()))))

    @property
    def approximations(self) -> list[str]:
        """Omissions and approximations of the workload's estimate, a phrase each."""
        return self.records["workload"].words("approximations") if "workload" in self.records else []

    @property
    def calibration(self) -> catalog.Calibration | None:
        """The constants in use, as fitted; None at the speed of light, and where nobody said which."""
        return None if self.constants is None else catalog.calibration(self.constants)

    @property
    def mode(self) -> str:
        """The constants in use, in words."""
        return "as the question's author set them" if self.constants is None else escape.line(str(self.constants))
