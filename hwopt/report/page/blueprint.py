"""The page of `check`: each line of a blueprint with our figure beside the stated one, and what would mend it."""

from hwopt.report.blueprint import amount, interval, off_words, repair_words, summary
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Html, element, li, p
from hwopt.study.blueprint.check import Check
from hwopt.study.blueprint.lines import Line


def blueprint_page(check: Check, command: str) -> str:
    """One page for `check`; `command` that asked for it."""
    failing = len(check.failing)
    shown = (
        "No line fails"
        if check.holds
        else f"{failing} line{'s' if failing > 1 else ''} fail{'' if failing > 1 else 's'}"
    )
    top = sheet.answer(
        "a stated machine and plan", shown, "holds" if check.holds else "fails", check.holds, summary(check)
    )
    return sheet.page(
        "hwopt check",
        "",
        check.blueprint.title,
        top,
        [_lines(check), _repairs(check), _joint(check), _taken(check)],
        command,
        list(dict.fromkeys(check.blueprint.record.sources.values())),
    )


def _lines(check: Check) -> Html:
    heads = ("line", "verdict", "stated", "ours", "interval", "why")
    rows = [_row(each) for each in check.lines]
    return sheet.section("Line by line", pieces.table("lines", heads, rows, "llrrll"))


def _row(line: Line) -> list[Html | str]:
    verdict = " ".join(filter(None, (line.verdict.value, off_words(line))))
    return [
        pieces.named(line.name, line.claim), verdict, amount(line.stated, line.unit, line.name),
        amount(line.ours, line.unit, line.name), interval(line), line.why,
    ]  # fmt: skip


def _repairs(check: Check) -> Html | None:
    if not check.failing:
        return None
    said = []
    for line in check.failing:
        ways = [repair_words(way) for way in sorted(line.repairs, key=lambda way: way.change)[:3]]
        said.append((line.name, "; or ".join(ways) or "no single number would do"))
    return sheet.section("What would mend each", pieces.terms(said), note="One stated number, the rest as it is.")


def _joint(check: Check) -> Html | None:
    if check.joint is None:
        return None
    changes = element("ul", (li(repair_words(each)) for each in check.joint.changes))
    return sheet.section("What would mend all together", changes, note=f"The least of {check.joint.tried} sets tried.")


def _taken(check: Check) -> Html | None:
    return sheet.section("Assumptions", [p(each) for each in check.taken]) if check.taken else None
