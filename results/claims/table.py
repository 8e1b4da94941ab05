"""The table of all claims, as it is written to `results/claims.md` and read back."""

from __future__ import annotations

import functools
from typing import NamedTuple

from results.claims import CLAIMS
from results.claims.amended import TRUE_IF
from results.claims.claim import VERDICTS

HEAD = """# Claims under audit

Every numbered claim of five articles on AI clusters, settled by the model: 81 with figures (A), 38 of structure (B). Made by
`python -m results.claims --table > results/claims.md`; one row again by `python -m results.claims A56`.
A figure *holds* within a factor of 1.15 of the claim and does so *roughly* within 1.6; a statement without degrees holds or fails.
What no model of a cluster can settle says so; the last column says how a claim would have to be read, or changed, to hold.
Articles: 000 bottlenecks beyond GPUs; 001 why training slows as hardware
speeds up; 002 training as a systems problem; 003 the GPU scaling frontier; 004 clusters, memory and interconnect.
"""
COLUMNS = ("claim", "where", "what it says", "the model's figure", "verdict", "arithmetic", "what would make it true")


HOLDS = "it holds"


class Row(NamedTuple):
    """One line of the table."""

    id: str
    article: str
    says: str
    figure: str
    verdict: str
    arithmetic: str
    true_if: str


@functools.cache
def row(id: str) -> Row:
    claim = CLAIMS[id]
    found = claim.audit()
    return Row(id, claim.article, claim.says, found.figure, found.verdict, found.arithmetic, TRUE_IF.get(id, HOLDS))


def written() -> str:
    rows = [row(id) for id in CLAIMS]
    counts = ", ".join(f"{sum(each.verdict == verdict for each in rows)} {verdict}" for verdict in VERDICTS)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(' '.join(text.split()).replace('|', '/') for text in each)} |" for each in rows]
    return f"{HEAD}\nOf {len(rows)}: {counts}.\n\n" + "\n".join(lines) + "\n"


def read(text: str) -> dict[str, Row]:
    """The rows of a written table by their ids."""
    lines = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith(("| A", "| B"))]
    return {cells[0].strip(): Row(*(cell.strip() for cell in cells)) for cells in lines}
