"""Whole-number designs of a question: boxes of them, and what every kind of lattice has alike.

A box holds every whole-number design between two corners, in coordinates from which the question's whole variables follow.
A lattice says which boxes hold all designs, how they shrink and split, and what they mean for the model.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from hwopt.convex.signomial import Algebra, Kind, Signomial, number
from hwopt.design.problem import Problem
from hwopt.design.variables import Design, Variable
from hwopt.plan import stage_layers

SLIP = 1e-9
"""Relative rounding of bounds on products of whole numbers."""

FIXED_SLACK = 1e-4
"""Room that a fixed product of whole numbers gets in a relaxation, which an interior point needs; points have none."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of whole-number designs: corners, (box, coordinate) each, both inside."""

    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index) -> Boxes:
        return Boxes(self.low[index], self.high[index])

    @property
    def points(self) -> np.ndarray:
        """Which of them hold a single design."""
        return (self.low == self.high).all(axis=1)


def joined(boxes: list[Boxes]) -> Boxes:
    """All of them in one."""
    return Boxes(np.concatenate([b.low for b in boxes]), np.concatenate([b.high for b in boxes]))


@dataclass(frozen=True)
class DesignLattice:
    """The whole-number designs of a question, abstract."""

    problem: Problem
    prefix: str = ""  # of the names of its numbers, where two lattices make one

    COORDINATES: ClassVar[tuple[str, ...]]
    """Order of the columns of every box."""

    GAINS: ClassVar[tuple[float, ...]]
    """What the bound is expected to gain per factor of e by which a coordinate narrows, before a search has seen any."""

    COUNTS: ClassVar[tuple[str, ...]]
    """Coordinates that a dive branches on when all others are whole: those with many values."""

    @abstractmethod
    def roots(self) -> Boxes:
        """Boxes that together hold all designs."""

    @abstractmethod
    def samples(self) -> Boxes:
        """Boxes of common plans, not all designs: where a search looks first."""

    @abstractmethod
    def shrunk(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes without corners in which no design is valid; empty ones left out. And the numbers of those that are left."""

    @abstractmethod
    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which whole-number designs (design, coordinate) are ones of the lattice."""

    @abstractmethod
    def values(self, algebra: Algebra, boxes: Boxes) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
        """The problem's variables over boxes, and the constraints (not above 1) that tie the whole ones together."""

    @abstractmethod
    def rounded(self, box: Boxes, relaxed: np.ndarray) -> list[Boxes]:
        """Boxes with all but counts at whole numbers next to a relaxed point."""

    @abstractmethod
    def counted(self, box: Boxes, relaxed: np.ndarray) -> list[np.ndarray]:
        """Designs with whole counts around a relaxed point of a box."""

    @abstractmethod
    def count(self) -> float:
        """Whole-number designs of the lattice."""

    @abstractmethod
    def says(self) -> str:
        """What the lattice covers, in words."""

    @abstractmethod
    def point(self, design: Design) -> np.ndarray:
        """Whole numbers of a design, the inverse of `design`."""

    @abstractmethod
    def design(self, point: np.ndarray) -> dict[str, float]:
        """Values of the problem's whole variables at a point of the lattice."""

    @abstractmethod
    def held(self, name: str) -> float:
        """What the question's template holds of a whole number that it does not free."""

    @cached_property
    def at(self) -> dict[str, int]:
        """Column of each coordinate."""
        return {name: column for column, name in enumerate(self.COORDINATES)}

    def column(self, boxes: Boxes, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of a coordinate."""
        return boxes.low[:, self.at[name]], boxes.high[:, self.at[name]]

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Design variables by name."""
        return {each.name: each for each in self.problem.variables}

    @cached_property
    def layers(self) -> int:
        """Layers of the model."""
        return round(float(self.problem.template.workload.model.layers))

    def range(self, name: str) -> tuple[float, float]:
        """Box of a design variable; a point where the question does not free it."""
        if name in self.variables:
            return self.variables[name].lower, self.variables[name].upper
        value = self.held(name)
        return value, value

    def whole(self, name: str) -> tuple[int, int]:
        """Whole numbers in the box of a variable."""
        low, high = self.range(name)
        return math.ceil(low * (1 - SLIP)), math.floor(high * (1 + SLIP))

    def atoms(self, algebra: Algebra, boxes: Boxes) -> dict[str, Signomial]:
        """The coordinates over boxes: numbers where all are fixed."""
        made: dict[str, Signomial] = {}
        for name in self.COORDINATES:
            low, high = (x.astype(float) for x in self.column(boxes, name))
            fixed = (low == high).all()
            made[name] = number(low) if fixed else algebra.variable(self.prefix + name, low, high)
            if not fixed:
                algebra.narrow.add(len(algebra.atoms) - 1)
        return made

    def stage_table(self, most_stages: int, most_chunks: int) -> tuple[np.ndarray, np.ndarray]:
        """`stage_layers` of every (pp, chunks): fullest, last."""
        table = np.full((2, most_stages + 1, most_chunks + 1), np.nan)
        for p in range(1, most_stages + 1):
            for v in range(1, most_chunks + 1):
                if p * v <= self.layers + 2:
                    table[:, p, v] = stage_layers(self.layers, p, v)
        return table[0], table[1]

    def over_box(
        self,
        algebra: Algebra,
        name: str,
        table: np.ndarray,
        stages: tuple[np.ndarray, np.ndarray],
        chunks: tuple[np.ndarray, np.ndarray],
    ) -> Signomial:
        """A number of a stage table over boxes, or its range. **Arguments:** both ends of stages and chunks."""
        corners = list(zip(*stages, *chunks, strict=True))
        low, high = np.empty(len(corners)), np.empty(len(corners))
        seen: dict[tuple, tuple[float, float]] = {}
        for i, corner in enumerate(corners):
            if corner not in seen:
                part = table[corner[0] : corner[1] + 1, corner[2] : corner[3] + 1]
                known = not np.isnan(part).all()
                seen[corner] = (float(np.nanmin(part)), float(np.nanmax(part))) if known else (1.0, 1.0)
            low[i], high[i] = seen[corner]
        if (low == high).all():
            return number(low)
        made = algebra.atom(Kind.hull, (), low, high, name)
        algebra.narrow.add(len(algebra.atoms) - 1)
        return made

    def split(self, boxes: Boxes, columns: np.ndarray, parts: int = 2) -> tuple[Boxes, np.ndarray]:
        """Parts of each box along a coordinate, of equal ratio and at least one number each; and the number of each one's box."""
        rows = np.arange(len(boxes))
        low, high = boxes.low[rows, columns], boxes.high[rows, columns]
        made, first = [], low
        for part in range(1, parts + 1):
            share = part / parts
            last = np.floor(low ** (1.0 - share) * (high + 0.5) ** share).astype(np.int64) if part < parts else high
            last = np.clip(np.maximum(last, first), None, high)
            piece = Boxes(boxes.low.copy(), boxes.high.copy())
            piece.low[rows, columns], piece.high[rows, columns] = first, last
            made.append(piece)
            first = last + 1  # beyond the end where nothing is left: an empty box, which is left out
        pieces, left = self.shrunk(joined(made))
        return pieces, left % len(boxes)


def inside(value: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """Which products of whole numbers lie in a range, up to rounding."""
    return (value >= ends[0] * (1 - SLIP)) & (value <= ends[1] * (1 + SLIP))
