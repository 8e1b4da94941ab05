"""Answer of `hwopt check`: each stated number compared with the computed one, and the smallest corrections."""

import math

from hwopt.analysis.claim_check.check import Check
from hwopt.analysis.claim_check.check_line import CheckLine, CheckRelation, CheckVerdict, amount
from hwopt.analysis.claim_check.model_checks import POWER_LEEWAY
from hwopt.output.answer import Answer, Lines, Named, Part, Section, Sentences, Table

_MARK = {CheckVerdict.holds: "holds", CheckVerdict.fails: "FAILS", CheckVerdict.unjudged: "not judged"}


def off_words(line: CheckLine) -> str:
    """Return by how much a line fails, in percent or as a factor; empty where it does not fail."""
    if line.verdict is not CheckVerdict.fails or line.off is None or not line.stated:
        return ""
    ratio = (line.ours or math.nan) / line.stated
    return f"{abs(100 * line.off):.3g} %" if 0.5 < ratio < 2.0 else f"a factor of {max(ratio, 1 / ratio):.3g}"


def claim_words(line: CheckLine) -> str:
    """Return what a line requires, with the reason; of a failing line also how far off the computed figure is."""
    said = "; ".join(filter(None, (line.claim, line.why)))
    if line.verdict is not CheckVerdict.fails:
        return said
    off = off_words(line)
    return f"{f'off by {off}; ' if off else ''}required: {said}"


def interval(line: CheckLine) -> str:
    """Return the computed interval of a line in words; empty where there is none."""
    if line.low is None or line.high is None:
        return ""
    return f"{amount(line.low, line.unit, line.name)} .. {amount(line.high, line.unit, line.name)}"


def required(line: CheckLine) -> str:
    """Return the required relation of the computed figure to the stated one in words; empty where one of them is missing."""
    if line.stated is None or line.ours is None:
        return ""
    return "equal to stated" if line.relation is CheckRelation.equal else f"{line.relation.value} stated"


def summary(check: Check) -> str:
    """Return a sentence with the number of checked lines by verdict: holding, failing, not evaluated."""
    words = {
        CheckVerdict.holds: ("holds", "hold"),
        CheckVerdict.fails: ("fails", "fail"),
        CheckVerdict.unjudged: (CheckVerdict.unjudged.value,) * 2,
    }
    said = [f"{count} {words[CheckVerdict[each]][count > 1]}" for each, count in check.counts.items() if count]
    return f"Of {len(check.lines)} check{'s' if len(check.lines) > 1 else ''} {', '.join(said)}."


def check_answer(found: Check) -> Answer:
    """Return the answer of `hwopt check`, ready to be rendered as text, JSON or HTML."""
    lines, failing = found.lines, found.failing
    figure = lambda each, value: amount(value, each.unit, each.name)
    rows = [
        [
            each.name,
            _MARK[each.verdict],
            figure(each, each.stated),
            figure(each, each.ours),
            required(each),
            interval(each),
        ]
        for each in lines
    ]
    said = [claim_words(each) for each in lines]
    width = max((len(each.name) for each in lines), default=4)
    ways = [(each.name, "; or ".join(_ways(each)) or "no single correction") for each in failing]
    note = found.blueprint.record.text.get("note")
    note = f"Note: {note}" if isinstance(note, str) else ""
    table = Table(
        "lines",
        ("", "", "stated", "computed", "required", "range of computed"),
        rows,
        "llrrll",
        (4, 10, 14, 14),
        said,
        hang=True,
    )
    ranges = (
        f"Range of computed: of power, the model's mean error of {100 * POWER_LEEWAY:g} % (of power x PUE, the range of PUE); of "
        "all else, the 80 % prediction interval."
    )
    sections = (
        Section("Line by line", [table, Sentences([ranges] if any(map(interval, lines)) else [])], titled=False),
        Section("Minimal correction per failed check: one stated number changes", [Named(ways, width)]),
        Section("Smallest joint correction of all failed checks", _joint(found)),
        Section("Assumptions", [Sentences(found.taken, "  - ")]),
        Section("Note", [Sentences([note] if note else [], "", "")], titled=False),
    )
    shown = (
        f"{len(failing)} check{'s' * (len(failing) > 1)} fail{'s' * (len(failing) == 1)}"
        if failing
        else "No check fails"
    )
    badge = ("holds" if found.holds else "fails", found.holds, "")
    headline = ("claims about a machine and its run", shown)
    said_all = f"{summary(found)}{' See also the note at the end.' if note and failing else ''}"
    return Answer("check", found, found.title, said_all, headline, badge, sections, found.sources, found.holds)


def _ways(line: CheckLine) -> list[str]:
    """Return the smallest corrections of a failing line, at most three."""
    return [way.words for way in line.by_size[:3]]


def _joint(check: Check) -> list[Part]:
    """Return the smallest joint correction of all failing lines, where at least two fail."""
    if len(check.failing) < 2:
        return []
    if check.joint is None:
        return [Lines(["none found: change the stated machine or plan, not only numbers"])]
    tried = f"smallest of {check.joint.tried} sets of changes tried, by total relative change"
    return [Lines([each.words for each in check.joint.changes]), Sentences([tried], later="  ")]
