"""Where boxes are split."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwopt.integers.boxes import Boxes
from hwopt.integers.relations import Lookup
from hwopt.integers.system import Integer, System
from hwopt.optim.branching import Search
from hwopt.optim.deadline import Deadline

COORDINATES = (
    Integer("stages", 1, 16, pseudo_cost=0.3, stepped=True),
    Integer("chunks", 1, 8, pseudo_cost=0.001, stepped=True),
    Integer("racks", 1, 8, pseudo_cost=0.1),
)
LOOKUP = Lookup(("fullest",), ("stages", "chunks"), lambda stages, chunks: (np.ceil(80 / (stages * chunks)),))


def column_of(lookups: tuple[Lookup, ...], low: list[int], high: list[int]) -> str:
    """The coordinate along which a box is split."""
    lattice = System(COORDINATES, (), lookups)
    programmes: Any = SimpleNamespace(lattice=lattice)
    split = Search(programmes, 1e-4, Deadline()).split(Boxes(np.array([low]), np.array([high])))
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
