"""Where boxes are split."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import DerivedColumns
from hwopt.integers.system import Integer, RangePiece, System
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH
from hwopt.solver.search.search_tree import OpenNodes, SearchState

COORDINATES = (
    Integer("stages", 1, 16, pseudo_cost=0.3, stepped=True),
    Integer("chunks", 1, 8, pseudo_cost=0.001, stepped=True),
    Integer("racks", 1, 8, pseudo_cost=0.1),
)
LOOKUP = DerivedColumns(("fullest",), ("stages", "chunks"), lambda stages, chunks: (np.ceil(80 / (stages * chunks)),))


def column_of(lookups: tuple[DerivedColumns, ...], low: list[int], high: list[int]) -> str:
    """The coordinate along which a box is split."""
    lattice = System(COORDINATES, (), lookups)
    programmes: Any = SimpleNamespace(lattice=lattice, options=SEARCH)
    split = SearchState(programmes, 1e-4, Deadline()).split(Boxes(np.array([low]), np.array([high])))
    return lattice.names[split.columns[0]]


@pytest.mark.parametrize(
    ("lookups", "low", "high", "expected"),
    [
        ((LOOKUP,), [1, 1, 1], [8, 8, 8], "stages"),
        ((LOOKUP,), [4, 1, 1], [4, 8, 8], "chunks"),
        ((LOOKUP,), [4, 2, 1], [4, 2, 8], "racks"),
        ((), [4, 1, 1], [4, 8, 8], "racks"),
        ((), [15, 1, 1], [16, 1, 4], "stages"),  # though their ratio is small
    ],
)
def test_what_is_looked_up_together_is_split_together(lookups, low, high, expected):
    assert column_of(lookups, low, high) == expected


@pytest.mark.parametrize(
    ("slope", "left"),
    [
        (0.0, (1, 8)),
        (0.5, (1, 4)),  # 0.5 log(x / 1) = log 4 at 16, the end of the fourth piece
        (-0.5, (5, 8)),  # 0.5 log(256 / x) = log 4 at 16, where the fifth begins
        (0.1, (1, 8)),  # passes the cutoff beyond the box
    ],
)
def test_slopes_cut_pieces_of_what_is_continuous(slope, left):
    """A size of 1 to 256 in eight pieces; the cutoff lies a factor of four above the bound."""
    piece = RangePiece("size", tuple(2.0**i for i in range(9)))
    lattice = System((Integer(piece.name, 1, 8),), (), pieces=(piece,))
    programmes: Any = SimpleNamespace(lattice=lattice, options=SEARCH)
    work = SearchState(programmes, 0.0, Deadline())
    work.result.value = np.log(4.0) * (1.0 - 1e-6)
    zero = np.zeros(1)
    tight, rows = work.tightened(OpenNodes(lattice.initial_boxes(), zero, zero, np.array([[slope]])))
    assert rows.tolist() == [0] and (tight.low[0, 0], tight.high[0, 0]) == left
