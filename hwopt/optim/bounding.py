"""Lower bounds of boxes of integer designs, by convex programmes and their certificates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hwopt.convex import certificate
from hwopt.convex.answers import Answers
from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import impossible
from hwopt.convex.interior_point import solve
from hwopt.convex.on_device import place_of
from hwopt.integers.boxes import Boxes
from hwopt.optim.programmes import Programmes


class Bounded(NamedTuple):
    """Programmes of boxes, solved."""

    programme: Programme
    answers: Answers
    lower: np.ndarray  # (box,) bounds of the objective's logarithm, checked by the certificate
    slopes: np.ndarray  # (box, variable): see `certificate.sloped_bound`

    def values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Where the programmes of some boxes put the variables that have names (row,)."""
        names = self.programme.names
        return {name: np.exp(self.answers.y[rows, column]) for column, name in enumerate(names) if name}


def bounded(
    programmes: Programmes, boxes: Boxes, cutoff: float = math.inf, tolerance: float = 1e-7, loose: float = 0.0
) -> Bounded:
    """Bound boxes by their programmes.

    **Arguments:** `loose`: gap that will do of a box below the cutoff, which is split in any case.
    """
    return solved(*programmes.of(boxes), boxes.points, cutoff, tolerance, loose)


def solved(
    programme: Programme,
    holds: np.ndarray,
    points: np.ndarray,
    cutoff: float = math.inf,
    tolerance: float = 1e-7,
    loose: float = 0.0,
) -> Bounded:
    """Bound boxes whose programmes are there.

    **Arguments:** `holds`: where the constraints that are numbers hold; `points`: which boxes are points; others as `bounded`.
    """
    structure, numbers = programme.structure, programme.numbers
    answers = Answers.none(numbers.lower, np.zeros((len(holds), len(structure.target))))
    left = np.flatnonzero(holds)
    if len(left):
        goal, enough = (cutoff - programme.constant)[left], np.where(points[left], 0.0, loose)
        limits = {"cutoff": goal, "tolerance": tolerance, "loose": enough}
        answers.put(left, solve(structure, numbers.take(left), **limits, device=place_of(structure, len(left))))
    lower, slopes = certificate.sloped_bound(structure, numbers, answers.y, answers.multipliers)
    none = ~holds | impossible(structure, numbers, answers)
    return Bounded(programme, answers, np.where(none, np.inf, lower + programme.constant), slopes)
