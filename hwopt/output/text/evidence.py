"""Pages of `hwopt catalog evidence`: measured runs by features of plans."""

from typing import Any

from hwopt.calibration.evidence import ENOUGH, EVERYTHING, FEATURES, STUDY, CountKey, counts
from hwopt.errors import UserError, suggest
from hwopt.output.answer import Table

_MEANINGS = {each.name: each.meaning for each in FEATURES} | {STUDY: "studies, each with the software of its runs"}


def evidence_page(feature: str | None) -> tuple[dict[str, Any], str]:
    """Return the features of plans with their counts, or all counts of one feature, as JSON and as text.

    **Raises:** `UserError` for an unknown feature.
    """
    if feature is not None and feature not in _MEANINGS:
        raise UserError(f"unknown feature '{feature}' of plans: {suggest(feature, _MEANINGS)}")
    of = [feature] if feature else [*_MEANINGS]
    keys = [key for key in counts() if key.feature in of and (feature or not key.software)]
    lines = _values(feature, keys) if feature else _overview()
    return {"evidence": [key._asdict() | counts()[key]._asdict() for key in keys]}, "\n".join(lines)


def _values(feature: str, keys: list[CountKey]) -> list[str]:
    """Return a line for each phrase of a feature; below it, one for each software of the rows with the phrase."""
    name = lambda key: f"{key.phrase}: {key.software}" if feature == STUDY else key.software and f"  {key.software}"
    rows = [
        [name(key) or key.phrase, key.work, *(f"{number:,}" for number in each[:-1]), f"{each.year or '-'}"]
        for key, each in ((key, counts()[key]) for key in keys)
    ]
    table = Table(feature, ("", "of", "rows", "studies", "chips", "tokens", "year"), rows, "llrrrrr")
    return [f"{_MEANINGS[feature]}: measured rows and studies, the largest and the newest run", "", *table.lines()]


def _overview() -> list[str]:
    """Return a line for each feature: its values, and how many of them fewer than two studies measured."""
    every = {key: each for key, each in counts().items() if key == EVERYTHING._replace(work=key.work)}
    of = lambda name: [
        each.studies < ENOUGH for key, each in counts().items() if key.feature == name and not key.software
    ]
    rows = [
        [name, f"{len(of(name))}", f"{sum(of(name))}", meaning] for name, meaning in _MEANINGS.items() if name != STUDY
    ]
    return [
        f"Measured runs by features of plans; hwopt catalog evidence FEATURE lists the values of one, {STUDY} the studies.",
        *(
            f"  {key.work}: {each.rows:,} rows of {each.studies} studies, to {each.chips:,} chips and {each.tokens:,} tokens"
            for key, each in every.items()
        ),
        "",
        *Table("features", ("feature", "values", "with < 2 studies", "meaning"), rows, "lrrl").lines(),
    ]
