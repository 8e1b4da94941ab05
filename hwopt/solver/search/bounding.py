"""Lower bounds of nodes, from convex relaxations and dual certificates."""

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
    """Solved relaxations of nodes."""

    programme: ConvexProgram
    answers: BatchResult
    lower: np.ndarray  # (node,) lower bounds of the log objective, proved by the dual certificate
    slopes: np.ndarray  # (node, variable): see `certificate.lower_bound_with_slopes`

    def values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the relaxed values of the named variables at some nodes (row,), SI units."""
        names = self.programme.names
        return {name: np.exp(self.answers.y[rows, column]) for column, name in enumerate(names) if name}


def bound_nodes(
    programmes: NodeRelaxations,
    boxes: Boxes,
    cutoff: float = math.inf,
    tolerance: float | None = None,
    loose: float = 0.0,
) -> BoundedNodes:
    """Bound nodes by their convex relaxations.

    **Arguments:**

    - `programmes`: node relaxations of the problem.
    - `boxes`: nodes.
    - `cutoff`: log objective above which a node is discarded, so that its exact bound does not matter.
    - `tolerance`: gap to which programs are solved; `node_gap` of the options by default.
    - `loose`: gap that suffices for a node below the cutoff, which is split in any case.
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
    """Bound nodes whose convex programs are already built.

    **Arguments:**

    - `programme`: batch of convex programs, one for each node.
    - `holds`: whether the constant constraints of each node are satisfied (node,).
    - `points`: which nodes are single designs (node,).
    - `cutoff`, `tolerance`, `loose`: see `bound_nodes`.
    """
    structure, numbers = programme.structure, programme.numbers
    tolerance = options.tree.node_gap if tolerance is None else tolerance
    goal, enough = cutoff - programme.constant, np.where(points, 0.0, loose)
    answers = BatchResult.none(numbers.lower, np.zeros((len(holds), len(structure.target))))
    lower, slopes = np.full(len(holds), np.inf), np.zeros_like(numbers.lower)
    left = np.flatnonzero(holds)
    device = choose_device(structure, len(left), options.interior_point.accelerator)
    count = workers.chunks_of(len(left), options.tree.parallel_nodes) if device is None else 1
    # Interleaved, because neighboring nodes take similar numbers of iterations.
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
    """Solve programs and return solutions, lower bounds (infinite where infeasibility is proved) and slopes of the bounds."""
    answers = solve(structure, numbers, cutoff=cutoff, tolerance=tolerance, loose=loose, device=device, options=options)
    lower, slopes = certificate.lower_bound_with_slopes(structure, numbers, answers.y, answers.multipliers)
    return answers, np.where(proved_infeasible(structure, numbers, answers, options), np.inf, lower), slopes
