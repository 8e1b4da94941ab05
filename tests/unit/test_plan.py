"""Whole-number plans: stages, words, and what they refuse."""

import numpy as np
import pytest

from hwopt.plan import stage_layers


@pytest.mark.parametrize(
    ("layers", "pp", "chunks", "fullest", "last"),
    [
        (126, 16, 1, 8, 7),
        (126, 16, 8, 8, 7),
        (96, 8, 3, 12, 12),
        (105, 35, 3, 3, 3),
        (126, 12, 1, 11, 10),
        (80, 1, 1, 80, 80),
    ],
)
def test_fullest_and_last_stage(layers, pp, chunks, fullest, last):
    ratios = np.array(stage_layers(layers, pp, chunks)) * layers / pp
    np.testing.assert_allclose(ratios, (fullest, last))
