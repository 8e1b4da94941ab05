"""The page of `deploy`: build, colocate or rent."""

import datetime
from collections.abc import Sequence

from hwopt.report.deploy import HEADS, cells, energised, feed, power_bill, scope, spares, turning, verdict
from hwopt.report.page import pieces, sheet
from hwopt.report.page.markup import Child, element, li, p
from hwopt.study.deploy import Deploy
from hwopt.units import pretty


def deploy_page(answer: Deploy, title: str, ordered: datetime.date | None, command: str, sources: Sequence[str]) -> str:
    """One page for `deploy`. **Arguments:** as of `deploy_screen`; `command` that asked for it; `sources` of its numbers."""
    best = answer.best
    top = sheet.answer(
        f"the cheapest way: {best.name}", pretty(best.horizon_usd, "USD", 4), "modelled", False, "no proof: every way is compared",
        p(f"{verdict(answer)}."),
    )  # fmt: skip
    rows: list[list[Child]] = [list(cells(each, ordered)) for each in answer.options]
    sections: list[Child] = [
        sheet.section("Ways to the machine", pieces.table("ways", HEADS, rows, "l" + "r" * (len(HEADS) - 1))),
        sheet.section(
            "When, with what power", *(p(f"{each}.") for each in (energised(answer), power_bill(answer), feed(answer)))
        ),
        sheet.section("Spare power and cooling of what is built", element("ul", [li(each) for each in spares(answer)])),
        sheet.section("What would change the answer", p(turning(answer))),
        sheet.section("How good is it", p(scope(answer))),
    ]
    return sheet.page("hwopt deploy", "", title, top, sections, command, sources)
