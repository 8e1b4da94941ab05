"""Dates of questions: the software and the chips that existed in a month. Nothing here reads the clock of the machine.

A month is text of the form `2026-11`, so that earlier months sort first.
"""

import re

from hwopt.catalog.calibrations import PUBLISHED, calibration_table
from hwopt.catalog.load import record
from hwopt.catalog.schema import Record
from hwopt.errors import UserError

RELEASED, FOLLOWS = "released", "follows"
"""Keys of a stack's entry: the month of its release, and the older stack that its users had before."""


def month(text: object, where: str) -> str:
    """Return a month that is written as `2026-11`.

    **Raises:** `UserError` for any other text. **Arguments:** `where`: the start of its message.
    """
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text):
        raise UserError(f"{where} = {text!r} is not a month: write year and month, such as 2026-11")
    return text


def question_date(date: str | None = None) -> str:
    """Return the month of a question: the stated one, else that of the shipped calibration.

    **Raises:** `UserError` for a text that is not a month.
    """
    return month(date, "date") if date else str(calibration_table(PUBLISHED)["date"])


def release(stack: Record) -> str:
    """Return the month in which a stack was released; empty, and so before all months, where its entry states none.

    **Raises:** `UserError` for an entry whose month is malformed.
    """
    stated = stack.text.get(RELEASED, "")
    return month(stated, f"stack '{stack.slug}': {RELEASED}") if stated else ""


def software_of(chip: Record, newest: str, date: str | None = None) -> str:
    """Return the software of a chip in a month: `newest`, or the first older stack of its line that had been released.

    **Arguments:** `chip`: its entry; `newest`: the stack that the chip's users have today; `date` as in `question_date`.

    **Raises:** `UserError` if no stack of the line had been released for the chip.
    """
    entry, on = record("stacks", newest), question_date(date)
    if release(entry) <= on:
        return newest
    older = str(entry.text.get(FOLLOWS, ""))
    if not older or chip.text["architecture"] not in record("stacks", older).words("runs_on"):
        raise UserError(
            f"date = {on}: chip '{chip.slug}' had no software of the catalog yet; the oldest of its line, '{newest}', is of "
            f"{release(entry)}: choose a later date, or name a stack"
        )
    return software_of(chip, older, on)


def check_date(chip: Record, stack: Record, date: str | None = None) -> None:
    """Refuse hardware and software that are newer than a question.

    Chips that are announced for a later year are part of the catalog. Questions at the reference date or later may ask about
    them; questions about the past may not.

    **Raises:** `UserError` in one line.
    """
    on, year = question_date(date), chip.si("year", 0.0)
    if on < question_date() and year > int(on[:4]):
        raise UserError(f"date = {on}: chip '{chip.slug}' is of {year:.0f}: choose an older chip, or a later date")
    if release(stack) > on:
        raise UserError(
            f"date = {on}: stack '{stack.slug}' is of {release(stack)}: choose an older stack, or a later date"
        )
