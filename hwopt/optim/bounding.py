"""Lower bounds of boxes of integer designs, by convex programmes and their certificates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hwopt.convex import certificate
from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import impossible
from hwopt.convex.interior_point import Answers, solve
from hwopt.convex.programme import Structure
from hwopt.integers.boxes import Boxes
from hwopt.optim.programmes import Programmes


class Duals(NamedTuple):
    """Points and multipliers of programmes of one structure: what bounds a box, and boxes within it."""

    structure: Structure | None
    y: np.ndarray  # (box, variable)
    multipliers: np.ndarray  # (box, group)

    def of(self, rows: np.ndarray) -> Duals:
        return Duals(self.structure, self.y[rows], self.multipliers[rows])

    def with_more(self, other: Duals) -> Duals:
        """Both; of programmes of another structure nothing is kept."""
        if other.structure is not self.structure:
            other = Duals(
                self.structure,
                np.full((len(other.y), self.y.shape[1]), np.nan),
                np.full((len(other.y), self.multipliers.shape[1]), np.nan),
            )
        return Duals(
            self.structure,
            np.concatenate([self.y, other.y]),
            np.concatenate([self.multipliers, other.multipliers]),
        )


class Bounded(NamedTuple):
    """Programmes of boxes, solved."""

    programme: Programme
    answers: Answers
    lower: np.ndarray  # (box,) bounds of the objective's logarithm, checked by the certificate
    slopes: np.ndarray  # (box, variable): see `certificate.sloped_bound`

    @property
    def duals(self) -> Duals:
        return Duals(self.programme.structure, self.answers.y, self.answers.multipliers)


def bounded(
    programmes: Programmes,
    boxes: Boxes,
    cutoff: float = math.inf,
    tolerance: float = 1e-7,
    loose: float = 0.0,
    parents: Duals | None = None,
) -> Bounded:
    """Bound boxes by their programmes.

    **Arguments:** `loose`: gap that will do of a box below the cutoff, which is split in any case; `parents`: answers of boxes
    that hold these: what they put beyond the cutoff is not solved.
    """
    return solved(*programmes.of(boxes), boxes.points, cutoff, tolerance, loose, parents)


def solved(
    programme: Programme,
    holds: np.ndarray,
    points: np.ndarray,
    cutoff: float = math.inf,
    tolerance: float = 1e-7,
    loose: float = 0.0,
    parents: Duals | None = None,
) -> Bounded:
    """Bound boxes whose programmes are there.

    **Arguments:** `holds`: where the constraints that are numbers hold; `points`: which boxes are points; others as `bounded`.
    """
    structure, numbers = programme.structure, programme.numbers
    goal = cutoff - programme.constant
    settled = ~holds
    if parents is not None and parents.structure is structure:
        y = np.clip(parents.y, numbers.lower, numbers.upper)
        settled |= certificate.lower_bound(structure, numbers, y, parents.multipliers) > goal
        answers = Answers.none(y, parents.multipliers)
    else:
        answers = Answers.none(numbers.lower, np.zeros((len(holds), len(structure.target))))
    left = np.flatnonzero(~settled)
    if len(left):
        enough = np.where(points[left], 0.0, loose)
        answers.put(left, solve(structure, numbers.take(left), cutoff=goal[left], tolerance=tolerance, loose=enough))
    lower, slopes = certificate.sloped_bound(structure, numbers, answers.y, answers.multipliers)
    none = ~holds | impossible(structure, numbers, answers)
    return Bounded(programme, answers, np.where(none, np.inf, lower + programme.constant), slopes)
