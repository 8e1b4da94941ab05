"""Whole-number designs of two machines of the same chips: those of one that trains times those of one that serves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from hwopt.convex.signomial import Algebra, Signomial
from hwopt.design.metrics import METRICS
from hwopt.design.problem import Problem
from hwopt.design.variables import SERVE, Design, Variable
from hwopt.optim.boxes import Boxes, DesignLattice
from hwopt.optim.lattice import Lattice
from hwopt.optim.serving_lattice import ServingLattice

_SERVED = (
    "tp",
    "ep",
    "pp",
    "batch",
    "replicas",
    "prefill_tp",
    "prefill_ep",
    "prefill_pp",
    "prefill_batch",
    "prefill_replicas",
)
"""Coordinates of the serving machine that are its own: domains, racks and chips are those of training."""

_OWN = [ServingLattice.COORDINATES.index(name) for name in _SERVED]

_ROUNDED = 2
"""Roundings of the serving machine tried beside each of training's."""


@dataclass(frozen=True)
class BothLattice(DesignLattice):
    """The whole-number designs of a question about training and serving on one chip."""

    COORDINATES: ClassVar[tuple[str, ...]] = (*Lattice.COORDINATES, *(SERVE + name for name in _SERVED))
    GAINS: ClassVar[tuple[float, ...]] = (
        *Lattice.GAINS, *(ServingLattice.GAINS[column] for column in _OWN),
    )  # fmt: skip
    COUNTS: ClassVar[tuple[str, ...]] = (*Lattice.COUNTS, *(SERVE + n for n in ServingLattice.COUNTS))

    @cached_property
    def training(self) -> Lattice:
        """The lattice of the machine that trains."""
        template = self.problem.template
        own = tuple(each for each in self.problem.variables if not each.name.startswith(SERVE))
        return Lattice(_part(self.problem, own, _training(template)))

    @cached_property
    def serving(self) -> ServingLattice:
        """The lattice of the machine that serves, whose domain is the other's."""
        own = tuple(
            replace(each, name=each.name.removeprefix(SERVE))
            for each in self.problem.variables
            if each.name.startswith(SERVE)
        )
        return ServingLattice(_part(self.problem, own, _serving(self.problem.template)), prefix=SERVE)

    @property
    def _cut(self) -> int:
        return len(Lattice.COORDINATES)

    def _split_up(self, boxes: Boxes) -> tuple[Boxes, Boxes]:
        """Boxes of both machines."""
        ends = []
        for end in (boxes.low, boxes.high):
            whole = np.ones((*end.shape[:-1], len(ServingLattice.COORDINATES)), np.int64)
            whole[..., _OWN] = end[..., self._cut :]
            ends.append(whole)
        return Boxes(boxes.low[..., : self._cut], boxes.high[..., : self._cut]), Boxes(*ends)

    def _together(self, training: Boxes, serving: Boxes) -> Boxes:
        low = np.concatenate([training.low, serving.low[..., _OWN]], axis=-1)
        return Boxes(low, np.concatenate([training.high, serving.high[..., _OWN]], axis=-1))

    def _product(self, training: Boxes, serving: Boxes) -> Boxes:
        i, j = (grid.ravel() for grid in np.indices((len(training), len(serving))))
        return self._together(training[i], serving[j])

    def roots(self) -> Boxes:
        """Every root of one machine with every root of the other."""
        return self._product(self.training.roots(), self.serving.roots())

    def samples(self) -> Boxes:
        """Training's common plans with the serving machine on one stage."""
        serving = self.serving.roots()
        at = ServingLattice.COORDINATES.index("pp")
        serving.high[:, at] = serving.low[:, at]
        return self._product(self.training.samples(), serving)

    def shrunk(self, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
        """Boxes without corners in which no design is valid; empty ones left out."""
        training, serving = self._split_up(boxes)
        training, left = self.training.shrunk(training)
        serving, stay = self.serving.shrunk(serving[left])
        return self._together(training[stay], serving), left[stay]

    def valid(self, points: np.ndarray) -> np.ndarray:
        """Which whole-number designs (design, coordinate) are ones of the lattice."""
        if not len(points):
            return np.zeros(0, bool)
        training, serving = self._split_up(Boxes(points, points))
        return self.training.valid(training.low) & self.serving.valid(serving.low)

    def values(self, algebra: Algebra, boxes: Boxes) -> tuple[dict[str, Signomial], dict[str, Signomial]]:
        """The problem's variables over boxes, and the constraints that tie the whole ones together."""
        training, serving = self._split_up(boxes)
        values, ties = self.training.values(algebra, training)
        served, _ = self.serving.values(algebra, serving)
        return values | {SERVE + name: value for name, value in served.items()}, ties

    def rounded(self, box: Boxes, relaxed: np.ndarray) -> list[Boxes]:
        """Boxes with all but counts at whole numbers next to a relaxed point."""
        training, serving = self._split_up(box)
        wanted = self._split_up(Boxes(relaxed, relaxed))
        mine = self.training.rounded(training, relaxed[: self._cut])
        theirs = self.serving.rounded(serving, np.maximum(wanted[1].low, 1.0))[:_ROUNDED]
        return [self._together(a, b) for a, b in itertools.product(mine, theirs)]

    def counted(self, box: Boxes, relaxed: np.ndarray) -> list[np.ndarray]:
        """Designs with whole counts around a relaxed point of a box."""
        training, serving = self._split_up(box)
        wanted = np.ones(len(ServingLattice.COORDINATES))
        wanted[_OWN] = relaxed[self._cut :]
        pairs = itertools.product(
            self.training.counted(training, relaxed[: self._cut]), self.serving.counted(serving, wanted)
        )
        return [np.concatenate([a, b[_OWN]]) for a, b in pairs]

    def count(self) -> float:
        """Whole-number designs of the lattice."""
        return self.training.count() * self.serving.count()

    def says(self) -> str:
        """What the lattice covers, in words."""
        return f"training: {self.training.says()}; serving: {self.serving.says()}"

    @staticmethod
    def covers(problem: Problem) -> str:
        """Why a question has no lattice of this kind; empty where it has one."""
        known = {*BothLattice.COORDINATES, "chips", "global_batch_sequences", "scale_up_domain"}
        strange = [each.name for each in problem.variables if each.whole and each.name not in known]
        return f"whole-number variables {', '.join(strange)} are not branched on" if strange else ""

    def held(self, name: str) -> float:
        """What the template holds of a whole number that is not free."""
        return self.serving.held(name.removeprefix(SERVE)) if name.startswith(SERVE) else self.training.held(name)

    def point(self, design: Design) -> np.ndarray:
        """Whole numbers of a design, the inverse of `design`."""
        return np.concatenate([self.training.point(_training(design)), self.serving.point(_serving(design))[_OWN]])

    def design(self, point: np.ndarray) -> dict[str, float]:
        """Values of the problem's whole variables at a point of the lattice."""
        _, serving = self._split_up(Boxes(point, point))
        served = {SERVE + name: value for name, value in self.serving.design(serving.low).items()}
        return self.training.design(point[: self._cut]) | served


def _part(problem: Problem, variables: tuple[Variable, ...], template: Design) -> Problem:
    """One machine's whole numbers as a question of its own, without budgets; what it minimises plays no part."""
    return replace(problem, objective=METRICS["cost_per_token_usd"], variables=variables, template=template, budgets=())


def _training(design: Design) -> Design:
    return Design(design.workload.training, design.cluster, design.plan.training, design.project)


def _serving(design: Design) -> Design:
    return Design(design.workload.service, design.cluster, design.plan.serving)
