"""Sources of a question's numbers: the catalog entries of its template by role, and its calibration constants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hwopt import catalog, escape
from hwopt.catalog import Record

DECODE = "decode_"
"""Prefix of the roles of the decode chips' entries, where these are of another type."""


@dataclass(frozen=True)
class Provenance:
    """Catalog records behind a template.

    **Arguments:**

    - `records`: by role: chip, stack, site, cooling, prices, ...
    - `constants`: a mode or a file of `hwopt calibrate`; None where none is specified.
    - `further`: additional references of the user.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    constants: str | Path | None = None
    further: tuple[str, ...] = ()

    @property
    def of_answers(self) -> dict[str, Record]:
        """The records by role; with two chip types, those of the decode chips."""
        own = {role.removeprefix(DECODE): each for role, each in self.records.items() if role.startswith(DECODE)}
        return {role: each for role, each in self.records.items() if not role.startswith(DECODE)} | own

    @property
    def sources(self) -> tuple[str, ...]:
        """Unique references of all numbers; those that the constants were fitted to come first."""
        fitted = self.calibration
        first = [f"Calibration: {fitted.title}"] if fitted is not None and fitted.runs else []
        return tuple(dict.fromkeys((*first, *self.further, *catalog.sources_of(*self.records.values()))))

    @property
    def approximations(self) -> list[str]:
        """Phrases that describe omissions and approximations of the workload's estimate."""
        return self.records["workload"].words("approximations") if "workload" in self.records else []

    @property
    def calibration(self) -> catalog.Calibration | None:
        """The calibration in use; None at theoretical peak rates, and where none is specified."""
        return None if self.constants is None else catalog.calibration(self.constants)

    @property
    def mode(self) -> str:
        """The constants in use, as text."""
        return "as the question's author set them" if self.constants is None else escape.line(str(self.constants))
