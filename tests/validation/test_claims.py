"""The committed audit is complete, and every row of it comes out again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from results.claims import CLAIMS
from results.claims.amended import TRUE_IF
from results.claims.claim import VERDICTS, numbers
from results.claims.table import HOLDS, read, row

EXPECTED = [f"A{number}" for number in range(1, 82)] + [f"B{number}" for number in range(1, 39)]
COMMITTED = read((Path(__file__).parents[2] / "results" / "claims.md").read_text(encoding="utf-8"))


def test_every_claim_has_one_row():
    assert list(CLAIMS) == EXPECTED == list(COMMITTED)
    assert all(each.verdict in VERDICTS and len(each.arithmetic) > 20 for each in COMMITTED.values())


def test_what_does_not_hold_says_what_would_make_it_true():
    assert {id for id, each in COMMITTED.items() if each.verdict != "holds"} == set(TRUE_IF)
    assert {id: each.true_if for id, each in COMMITTED.items()} == {id: TRUE_IF.get(id, HOLDS) for id in EXPECTED}


@pytest.mark.slow
@pytest.mark.parametrize("id", EXPECTED)
def test_the_verdict_comes_out_again(id):
    """The verdict exactly, every number of the figure within two per cent."""
    found, committed = row(id), COMMITTED[id]
    assert (found.verdict, found.says, found.article) == (committed.verdict, committed.says, committed.article)
    np.testing.assert_allclose(numbers(found.figure), numbers(committed.figure), rtol=0.02)
