"""Answer of `hwopt check`: each stated number compared with the computed one, and the smallest corrections."""

import math
from typing import Any

from hwopt.analysis.claim_check.check import Check
from hwopt.analysis.claim_check.check_line import CheckLine, CheckVerdict, Correction
from hwopt.analysis.claim_check.statement import QUANTITIES
from hwopt.output.answer import Answer, Lines, Named, Part, Section, Sentences, Table
from hwopt.output.text.parts import number
from hwopt.units import pretty

_DAY = 86400.0
_PLAIN = ("", "chip", "sequence", "token", "parameter")
_MARK = {CheckVerdict.holds: "holds", CheckVerdict.fails: "FAILS", CheckVerdict.unjudged: "not judged"}


def amount(value: float | None, unit: str, key: str = "") -> str:
    """Return a figure in the notation that is customary for its quantity, such as days, T, B or M, or Gb/s.

    **Arguments:** `key`: name of the number; some quantities are customarily written in another unit.
    """
    if value is None or not math.isfinite(value):
        return "-"
    if key in ("chip hours", "chip_hours"):
        return f"{value / 3.6e9:.4g} M chip hours" if value >= 3.6e9 else f"{value / 3600.0:,.0f} chip hours"
    if unit == "s" and key == "time":
        return f"{value / _DAY:,.4g} days" if value < 9999.5 * _DAY else f"{value / _DAY:,.0f} days"
    if unit in _PLAIN and value >= 1e7:
        size, name = next(each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if value >= each[0])
        return f"{value / size:.4g} {name}"
    if unit in _PLAIN:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
    if key in ("scale_out_bandwidth", "network"):
        return f"{8e-9 * value:,.4g} Gb/s"
    return pretty(value, unit)


def _unit(key: str) -> str:
    unit = QUANTITIES[key].unit
    return "fraction" if key in ("mfu", "goodput", "communication") else unit


def repair_words(repair: Correction) -> str:
    """Return a correction of a stated number in words: `chips 17,408 instead of 16,384 (1,024 more)`."""
    unit, key = _unit(repair.key), repair.key
    more = repair.after - repair.before
    by = "more" if more > 0 else "fewer" if unit in _PLAIN else "less"
    ratio = repair.after / repair.before
    share = f"{100 * (ratio - 1):+.3g} %" if 0.5 <= ratio < 2.0 else f"{max(ratio, 1 / ratio):.3g} times {by}"
    step = f"{amount(abs(more), unit, key)} {by}, " if key in ("chips", "racks", "rack_chips") else ""
    how = f"; {repair.how}" if repair.how else ""
    to, was = (amount(each, unit, key) for each in (repair.after, repair.before))
    return f"{key.replace('_', ' ')} {to} instead of {was} ({step}{share}{how})"


def off_words(line: CheckLine) -> str:
    """Return by how much a line fails, in percent or as a factor; empty where it does not fail."""
    if line.verdict is not CheckVerdict.fails or line.off is None or not line.stated:
        return ""
    ratio = (line.ours or math.nan) / line.stated
    return f"by {abs(100 * line.off):.3g} %" if 0.5 < ratio < 2.0 else f"{max(ratio, 1 / ratio):.3g} times"


def check_document(check: Check) -> dict[str, Any]:
    """Return a checked blueprint (a stated machine and run) as JSON."""
    counts = {each.name: sum(line.verdict is each for line in check.lines) for each in CheckVerdict}
    return {
        "title": check.blueprint.title,
        "holds": check.holds,
        "counts": counts,
        "lines": [_line(each) for each in check.lines],
        "joint_repair": None if check.joint is None else {
            "changes": [_repair(each) for each in check.joint.changes], "tried": check.joint.tried,
        },
        "taken": list(check.taken),
        "sources": list(dict.fromkeys(check.blueprint.record.sources.values())),
    }  # fmt: skip


def _line(line: CheckLine) -> dict[str, Any]:
    return {
        "name": line.name, "claim": line.claim, "verdict": line.verdict.value, "unit": line.unit,
        "stated": None if line.stated is None else number(line.stated), "ours": None if line.ours is None else number(line.ours),
        "low": line.low, "high": line.high, "must_be": line.relation.value, "off": line.off, "why": line.why,
        "by": "model" if line.modelled else "arithmetic",
        "repairs": [_repair(each) for each in sorted(line.repairs, key=lambda each: each.change)],
    }  # fmt: skip


def _repair(repair: Correction) -> dict[str, Any]:
    return {
        "number": repair.key,
        "unit": repair.unit,
        "from": repair.before,
        "to": repair.after,
        "words": repair_words(repair),
    }


def interval(line: CheckLine) -> str:
    """Return the computed interval of a line in words; empty where there is none."""
    if line.low is None or line.high is None:
        return ""
    return f"{amount(line.low, line.unit, line.name)} .. {amount(line.high, line.unit, line.name)}"


def summary(check: Check) -> str:
    """Return a sentence with the number of checked lines by verdict: holding, failing, not evaluated."""
    words = {
        CheckVerdict.holds: ("holds", "hold"),
        CheckVerdict.fails: ("fails", "fail"),
        CheckVerdict.unjudged: (CheckVerdict.unjudged.value,) * 2,
    }
    counts = {each: sum(line.verdict is each for line in check.lines) for each in words}
    said = [f"{count} {words[each][count > 1]}" for each, count in counts.items() if count]
    return f"Of {len(check.lines)} line{'s' if len(check.lines) > 1 else ''} {', '.join(said)}."


def check_answer(found: Check) -> Answer:
    """Return the answer of `hwopt check`, ready to be rendered as text, JSON or HTML."""
    lines, failing = found.lines, found.failing
    figure = lambda each, value: amount(value, each.unit, each.name)
    rows = [
        [each.name, _MARK[each.verdict], figure(each, each.stated), figure(each, each.ours), interval(each)]
        for each in lines
    ]
    said = [
        ": ".join(filter(None, (off_words(each), "; ".join(filter(None, (each.claim, each.why)))))) for each in lines
    ]
    width = max((len(each.name) for each in lines), default=4)
    ways = [(each.name, "; or ".join(_ways(each)) or "no single number would do") for each in failing]
    note = found.blueprint.record.text.get("note")
    note = f"Note: {note}" if isinstance(note, str) else ""
    table = Table("lines", ("", "", "stated", "ours", "interval"), rows, "llrrl", (4, 10, 18, 18), said, hang=True)
    sections = (
        Section("Line by line", [table], titled=False),
        Section("What would mend each failing line: one stated number, the rest as it is", [Named(ways, width)]),
        Section("What would mend all of them together", _joint(found)),
        Section("Assumptions", [Sentences(found.taken, "  - ")]),
        Section("Summary", [Sentences(list(filter(None, (note, summary(found)))), "", "")], titled=False),
    )
    shown = (
        f"{len(failing)} line{'s' * (len(failing) > 1)} fail{'s' * (len(failing) == 1)}" if failing else "No line fails"
    )
    badge = ("holds" if found.holds else "fails", found.holds, summary(found))
    title, document = found.blueprint.title, check_document(found)
    headline = ("a stated machine and plan", shown)
    return Answer("check", document, title, "", headline, badge, sections, document["sources"], found.holds)


def _ways(line: CheckLine) -> list[str]:
    """Return the smallest corrections of a failing line, at most three."""
    return [repair_words(way) for way in sorted(line.repairs, key=lambda way: way.change)[:3]]


def _joint(check: Check) -> list[Part]:
    """Return the smallest joint correction of all failing lines, where at least two fail."""
    if len(check.failing) < 2:
        return []
    if check.joint is None:
        return [Lines(["nothing that was tried: change what is stated of machine and plan, not numbers alone"])]
    tried = f"the least of {check.joint.tried} sets tried, by how far numbers move"
    return [Lines([repair_words(each) for each in check.joint.changes]), Sentences([tried], later="  ")]
