"""Lower bounds of boxes of integer designs, by convex programmes and their certificates."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hwopt import workers
from hwopt.integers.boxes import Boxes
from hwopt.solver.gp import certificate
from hwopt.solver.gp.canonical import ConvexProgram
from hwopt.solver.gp.options import InteriorPointOptions
from hwopt.solver.gp.program import ProgramNumbers, ProgramStructure
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.device_loop import Device, choose_device
from hwopt.solver.interior_point.elastic import proved_infeasible
from hwopt.solver.interior_point.result import BatchResult
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.node_relaxations import NodeRelaxations


class BoundedNodes(NamedTuple):
    """Programmes of boxes, solved."""

    programme: ConvexProgram
    answers: BatchResult
    lower: np.ndarray  # (box,) bounds of the objective's logarithm, checked by the certificate
    slopes: np.ndarray  # (box, variable): see `certificate.sloped_bound`

    def values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Where the programmes of some boxes put the variables that have names (row,)."""
        names = self.programme.names
        return {name: np.exp(self.answers.y[rows, column]) for column, name in enumerate(names) if name}


def bound_nodes(
    programmes: NodeRelaxations,
    boxes: Boxes,
    cutoff: float = math.inf,
    tolerance: float | None = None,
    loose: float = 0.0,
) -> BoundedNodes:
    """Bound boxes by their programmes.

    **Arguments:** `tolerance`: gap to which programs are solved, `node_gap` of the options by default; `loose`: gap that will do
    of a box below the cutoff, which is split in any case.
    """
    return solve_nodes(*programmes.of(boxes), boxes.points, cutoff, tolerance, loose, programmes.options)


def solve_nodes(
    programme: ConvexProgram,
    holds: np.ndarray,
    points: np.ndarray,
    cutoff: float = math.inf,
    tolerance: float | None = None,
    loose: float = 0.0,
    options: SearchOptions = SEARCH,
) -> BoundedNodes:
    """Bound boxes whose programmes are there.

    **Arguments:** `holds`: where the constraints that are numbers hold; `points`: which boxes are points; others as `bound_nodes`.
    """
    structure, numbers = programme.structure, programme.numbers
    tolerance = options.tree.node_gap if tolerance is None else tolerance
    goal, enough = cutoff - programme.constant, np.where(points, 0.0, loose)
    answers = BatchResult.none(numbers.lower, np.zeros((len(holds), len(structure.target))))
    lower, slopes = np.full(len(holds), np.inf), np.zeros_like(numbers.lower)
    left = np.flatnonzero(holds)
    device = choose_device(structure, len(left), options.interior_point.accelerator)
    count = workers.chunks_of(len(left), options.tree.parallel_nodes) if device is None else 1
    # Interleaved: boxes beside each other take alike many iterations.
    parts = [left[first::count] for first in range(count) if len(left)]
    given = [
        (numbers.take(rows), goal[rows], enough[rows], tolerance, device, options.interior_point) for rows in parts
    ]
    for rows, (found, bound, slope) in zip(parts, workers.map_chunks(_proved, structure, given), strict=True):
        answers.put(rows, found)
        lower[rows], slopes[rows] = bound + programme.constant[rows], slope
    return BoundedNodes(programme, answers, lower, slopes)


def _proved(
    structure: ProgramStructure,
    numbers: ProgramNumbers,
    cutoff: np.ndarray,
    loose: np.ndarray,
    tolerance: float,
    device: Device | None,
    options: InteriorPointOptions,
) -> tuple[BatchResult, np.ndarray, np.ndarray]:
    """Answers, bounds (infinite where nothing is feasible), and the slopes behind them."""
    answers = solve(structure, numbers, cutoff=cutoff, tolerance=tolerance, loose=loose, device=device, options=options)
    lower, slopes = certificate.lower_bound_with_slopes(structure, numbers, answers.y, answers.multipliers)
    return answers, np.where(proved_infeasible(structure, numbers, answers, options), np.inf, lower), slopes
