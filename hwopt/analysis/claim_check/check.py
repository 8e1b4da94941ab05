"""A blueprint judged line by line, each failing line with its smallest repair, and one repair of them all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hwopt import catalog
from hwopt.analysis.claim_check.arithmetic_checks import arithmetic_checks, check_words
from hwopt.analysis.claim_check.check_line import CheckLine, CheckVerdict, Correction
from hwopt.analysis.claim_check.machine import ModelledClaim, flops_per_token, model_claim
from hwopt.analysis.claim_check.model_checks import model_checks
from hwopt.analysis.claim_check.statement import Blueprint, blueprint_of
from hwopt.errors import UserError

MOST_CHIPS = 2**20
"""Chips up to which a repair is looked for."""

GRAIN = 48
"""Steps of a search for chips: a power of two between 1/48 and 1/96 of their number, which plans divide."""

ROUNDS = 20
"""Repairs one after the other until nothing fails."""

INPUTS = ("chips", "tokens", "rack_chips", "global_batch")
"""Numbers that the model's figures follow from: with another one of these other lines stand or fall. The rest are claims."""

EACH = 0.1
"""What another changed number counts beside how far numbers move: as much as 10 % of one of them (a choice of ours)."""


@dataclass(frozen=True)
class JointCorrection:
    """Changes that mend all failing lines together: the least of those `tried`, by logarithms of ratios and how many there are."""

    changes: tuple[Correction, ...]
    tried: int

    @property
    def change(self) -> float:
        """How large they are together."""
        return sum(each.change + EACH for each in self.changes)


@dataclass(frozen=True)
class Check:
    """The verdict on a blueprint.

    **Arguments:** `lines`, those that fail with their repairs; `joint`: None where one repair or none mends all, or where none was
    found; `judged`: what the model says of the machine, or why it says nothing; `taken`: what was assumed.
    """

    blueprint: Blueprint
    lines: tuple[CheckLine, ...]
    joint: JointCorrection | None
    judged: ModelledClaim | str
    taken: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[CheckLine, ...]:
        """Lines that fail."""
        return tuple(each for each in self.lines if each.verdict is CheckVerdict.fails)

    @property
    def holds(self) -> bool:
        """Whether no line fails."""
        return not self.failing

    def __repr__(self) -> str:
        counts = {each: sum(line.verdict is each for line in self.lines) for each in CheckVerdict}
        said = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
        return f"Check({self.blueprint.title!r}: {said})"


def check(blueprint: str | Path | Mapping[str, object]) -> Check:
    """Whether a stated machine and plan can be, line by line.

    Arithmetic of what is stated first, then the model: by the stated plan, or the best one. A line fails where it lies outside of
    what four in five measured runs show (`calibration.intervals`), or of the leeway that its numbers are stated with. Its
    repairs are single stated numbers that the same calculation would let stand.

    **Arguments:** `blueprint`: a name of `hwopt catalog blueprints`, the path of a `.toml` of the same form, or a dictionary of
    it: `{"workload": "llama3.1-405b", "chip": "h100-sxm", "chips": 16384, "time": "54d"}`.

    **Raises:** `UserError` with all that is wrong of it.
    """
    return _Checker().check(blueprint_of(blueprint))


@dataclass
class _Checker:
    """Judges blueprints that differ in numbers; what the model says of one is remembered."""

    known: dict[object, ModelledClaim | str] = field(default_factory=dict)

    def check(self, b: Blueprint) -> Check:
        check_words(b)
        judged = self.judged(b)
        settled = b  # what a stated plan leaves open stays what is best of it
        if isinstance(judged, ModelledClaim) and judged.settings:
            settled = b.with_word("plan", judged.settings)
        lines = [self._with_chips(line, settled) for line in self.lines(b)]
        taken = () if isinstance(judged, str) else judged.taken
        return Check(b, tuple(lines), self._joint(settled, lines), judged, taken)

    def judged(self, b: Blueprint) -> ModelledClaim | str:
        """What the model says; numbers that are only compared with it change nothing."""
        read = (
            "parameters",
            "active_parameters",
            "tokens",
            "batch_tokens",
            "global_batch",
            "sequence_length",
            "steps",
            "rack_chips",
            "scale_out_bandwidth",
            "oversubscription",
        )
        key = (b.words, b.chips if b.chips == b.chips else None, tuple(each for each in b.numbers if each[0] in read))
        if key not in self.known:
            try:
                self.known[key] = model_claim(b)
            except UserError as error:
                self.known[key] = str(error)
        return self.known[key]

    def lines(self, b: Blueprint) -> list[CheckLine]:
        """All lines, with the repairs that cost no search."""
        judged = self.judged(b)
        return [*arithmetic_checks(b, flops_per_token(b)), *model_checks(b, judged)]

    def _with_chips(self, line: CheckLine, b: Blueprint) -> CheckLine:
        """A failing line with the chips that would mend it, where chips are stated and more of them help."""
        if line.verdict is not CheckVerdict.fails or line.name not in ("time", "fits") or not b.has("chips"):
            return line
        more = self._enough_chips(line, b)
        if more is None:
            return replace(line, why="; ".join(filter(None, (line.why, "no number of chips that was tried would do"))))
        return replace(line, repairs=(*line.repairs, more))

    def _enough_chips(self, line: CheckLine, b: Blueprint) -> Correction | None:
        """The fewest chips tried with which a line's figure is what is stated.

        The figure falls about as chips grow: from the number that it would take if it fell so, on by what is left over, then
        down again step by step.
        """
        stated = line.stated or math.nan

        def figure(chips: float) -> float:
            moved = b.with_number("chips", chips)
            found = {each.name: each for each in model_checks(moved, self.judged(moved))}
            ours = found[line.name].ours if line.name in found else None
            divides = "plan" not in found or found["plan"].verdict is CheckVerdict.holds
            return ours if divides and ours is not None else math.inf

        step = self._grain(b, b["chips"])
        chips, ours = b["chips"], line.ours or math.inf
        for _ in range(8):
            grown = chips * max(ours / stated, 1.0) if math.isfinite(ours) else chips * 1.05
            step = self._grain(b, grown)
            chips = max(math.ceil(grown / step - 1e-9) * step, chips + step)
            if chips > MOST_CHIPS:
                return None
            ours = figure(chips)
            if ours <= stated:
                break
        else:
            return None
        for _ in range(4):
            if chips - step <= b["chips"] or figure(chips - step) > stated:
                break
            chips -= step
        return Correction("chips", b["chips"], float(chips), f"the fewest tried, in steps of {step:,}")

    def _grain(self, b: Blueprint, chips: float) -> int:
        """Steps of a search for chips."""
        if b.word("plan"):
            asked = catalog.parse_plan(str(b.word("plan")))
            return math.prod(int(asked.get(name, 1)) for name in ("tp", "pp", "cp"))
        return 2 ** max(int(math.log2(max(chips / GRAIN, 1.0))), 0)

    def _joint(self, b: Blueprint, lines: list[CheckLine]) -> JointCorrection | None:
        """The least set of changes found that lets every line stand: none of `INPUTS` changed first, then each in turn."""
        failing = [line for line in lines if line.verdict is CheckVerdict.fails]
        if len(failing) < 2:
            return None
        firsts: dict[str, Correction] = {}
        for each in sorted((each for line in failing for each in line.repairs), key=lambda each: each.change):
            if each.key in INPUTS:
                firsts.setdefault(each.key, each)
        best, tried = None, 0
        for first in (None, *firsts.values()):
            tried += 1
            joint = self._mended_by(
                b, first, math.inf if best is None else best.change, {line.name for line in failing}
            )
            best = best if joint is None else joint
        return None if best is None else replace(best, tried=tried)

    def _mended_by(
        self, b: Blueprint, first: Correction | None, most: float, names: set[str]
    ) -> JointCorrection | None:
        """A first repair, then the smallest of what still fails, of numbers not changed yet; None where it costs `most`."""
        moved, changed = b, set[str]()
        if first is not None:
            moved, changed = b.with_number(first.key, first.after), {first.key}
        for _ in range(ROUNDS):
            changes = [Correction(key, b[key], moved[key]) for key in changed if moved[key] != b[key]]
            joint = JointCorrection(tuple(sorted(changes, key=lambda each: (-each.change, each.key))), 0)
            if joint.change >= most:
                return None
            lines = self.lines(moved)
            failing = [line for line in lines if line.verdict is CheckVerdict.fails]
            if not failing:  # what cannot be judged any more is not mended
                mended = {line.name for line in lines if line.verdict is CheckVerdict.holds}
                return (
                    joint if names <= mended | ({"batch of the plan", "plan"} - {line.name for line in lines}) else None
                )
            for line in sorted(failing, key=lambda each: not each.modelled):
                left = [each for each in line.repairs if each.key not in changed]
                repair = min(left, key=lambda each: (each.key in INPUTS, each.change), default=None)
                if repair is not None:
                    moved, changed = moved.with_number(repair.key, repair.after), changed | {repair.key}
                    break
            else:
                return None
        return None
