"""Claim check: line-by-line verdicts, the smallest correction of each failing line, and one joint correction of all."""

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
from hwopt.declared import derived, shown
from hwopt.errors import UserError

MOST_CHIPS = 2**20
"""Maximum number of chips in the search for a correction."""

GRAIN = 48
"""Step size in the search for a number of chips: a power of two from 1/96 to 1/48 of the number, so that plans divide it."""

ROUNDS = 20
"""Maximum number of successive corrections in the search for a joint correction."""

INPUTS = ("chips", "tokens", "rack_chips", "global_batch")
"""Stated numbers that the model takes as inputs. A change of one affects other lines; all other numbers are claims only."""

EACH = 0.1
"""Penalty of each additional changed number, equivalent to about a 10 % change of one number (our choice)."""


@dataclass(frozen=True)
class JointCorrection:
    """Set of changes that corrects all failing lines together.

    Size is measured by logarithms of ratios and the number of changes.

    **Arguments:**

    - `changes`: the corrections.
    - `tried`: number of sets tried, of which this is the smallest.
    """

    changes: tuple[Correction, ...] = shown()
    tried: int = shown()

    @property
    def change(self) -> float:
        """Return the total size of the changes."""
        return sum(each.change + EACH for each in self.changes)


@dataclass(frozen=True)
class Check:
    """Result of checking a claim.

    **Arguments:**

    - `blueprint`: the claim.
    - `judged`: model results for the machine, or the reason for their absence.
    - `lines`: all lines; failing ones have corrections.
    - `joint`: joint correction. It is None where fewer than two lines fail, or none was found.
    - `taken`: assumptions made.
    """

    blueprint: Blueprint
    judged: ModelledClaim | str
    lines: tuple[CheckLine, ...] = shown()
    joint: JointCorrection | None = shown(key="joint_repair")
    taken: tuple[str, ...] = shown(default=())

    @property
    def failing(self) -> tuple[CheckLine, ...]:
        """Return the lines that fail."""
        return tuple(each for each in self.lines if each.verdict is CheckVerdict.fails)

    @derived()
    def title(self) -> str:
        return self.blueprint.title

    @derived()
    def counts(self) -> dict[str, int]:
        """Return the number of lines by verdict."""
        return {each.name: sum(line.verdict is each for line in self.lines) for each in CheckVerdict}

    @derived()
    def sources(self) -> list[str]:
        """Return the references of the claim."""
        return list(dict.fromkeys(self.blueprint.record.sources.values()))

    @derived(meaning="whether no line fails; exit code 1 where it is false")
    def holds(self) -> bool:
        """Return whether no line fails."""
        return not self.failing

    def __repr__(self) -> str:
        said = ", ".join(f"{number} {CheckVerdict[name]}" for name, number in self.counts.items() if number)
        return f"Check({self.title!r}: {said})"


def check(blueprint: str | Path | Mapping[str, object]) -> Check:
    """Check a claim about a training machine, one stated number at a time.

    The first checks use arithmetic on the stated numbers alone. The others run the cost model. They use the stated plan, or the
    fastest plan where the claim states none.

    A model check fails only if no value in the 80 % prediction interval agrees with the stated number. The comparison has a
    tolerance for rounding. Where a check fails, the result lists corrections. Each one changes a single stated number so that the
    check passes.

    **Arguments:** `blueprint`: the claim. It is a name from `hwopt catalog blueprints`, the path of such a `.toml` file, or a
    dictionary: `{"workload": "llama3.1-405b", "chip": "h100-sxm", "chips": 16384, "time": "54d"}`.

    **Returns:** all checks with verdict and corrections, and one joint correction where several checks fail.

    **Raises:** `UserError` with all errors in the claim.
    """
    return _Checker().check(blueprint_of(blueprint))


@dataclass
class _Checker:
    """Checker of claims that differ only in numbers. Model results are cached."""

    known: dict[object, ModelledClaim | str] = field(default_factory=dict)

    def check(self, b: Blueprint) -> Check:
        check_words(b)
        judged = self.judged(b)
        settled = b  # settings that a stated plan leaves open stay at their best values
        if isinstance(judged, ModelledClaim) and judged.settings:
            settled = b.with_word("plan", judged.settings)
        lines = [self._with_chips(line, settled) for line in self.lines(b)]
        taken = () if isinstance(judged, str) else judged.taken
        return Check(b, judged, tuple(lines), self._joint(settled, lines), taken)

    def judged(self, b: Blueprint) -> ModelledClaim | str:
        """Return the model results.

        They are cached by the numbers that the model uses, without those that are only compared.
        """
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
        """Return all lines, with the corrections that need no search."""
        judged = self.judged(b)
        return [*arithmetic_checks(b, flops_per_token(b)), *model_checks(b, judged)]

    def _with_chips(self, line: CheckLine, b: Blueprint) -> CheckLine:
        """Return a failing line with the number of chips that would correct it, where chips are stated and more help."""
        if line.verdict is not CheckVerdict.fails or line.name not in ("time", "fits") or not b.has("chips"):
            return line
        more = self._enough_chips(line, b)
        if more is None:
            return replace(line, why="; ".join(filter(None, (line.why, "no tried number of chips is sufficient"))))
        return replace(line, repairs=(*line.repairs, more))

    def _enough_chips(self, line: CheckLine, b: Blueprint) -> Correction | None:
        """Return the smallest tried number of chips with which a line's figure meets the stated one; None without any.

        The figure is roughly in inverse proportion to the number of chips. The search extrapolates upwards with this rule until
        the figure is met. It then goes down in single steps.
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
        return Correction("chips", b["chips"], float(chips), f"smallest number tried, in steps of {step:,}")

    def _grain(self, b: Blueprint, chips: float) -> int:
        """Return the step size of a search for a number of chips."""
        if b.word("plan"):
            asked = catalog.parse_plan(str(b.word("plan")))
            return math.prod(int(asked.get(name, 1)) for name in ("tp", "pp", "cp"))
        return 2 ** max(int(math.log2(max(chips / GRAIN, 1.0))), 0)

    def _joint(self, b: Blueprint, lines: list[CheckLine]) -> JointCorrection | None:
        """Return the smallest joint correction found: first without changes of `INPUTS`, then with each changed first."""
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
        """Apply a first correction, then repeatedly the smallest correction of a remaining failure; each number changes once.

        Return None where the total reaches `most`, or where a failing line cannot be corrected or evaluated any more.
        """
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
            if not failing:  # a line that can no longer be evaluated is not corrected
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
