"""Which lattice of whole-number designs a question has."""

from __future__ import annotations

from hwopt.design.problem import Problem
from hwopt.optim.both_lattice import BothLattice
from hwopt.optim.boxes import DesignLattice
from hwopt.optim.lattice import Lattice
from hwopt.optim.serving_lattice import ServingLattice
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe


def _kind(problem: Problem) -> type[Lattice] | type[ServingLattice] | type[BothLattice]:
    if isinstance(problem.template.workload, TrainAndServe):
        return BothLattice
    return ServingLattice if isinstance(problem.template.workload, Service) else Lattice


def lattice_of(problem: Problem) -> DesignLattice:
    """The whole-number designs of a question about training or serving."""
    return _kind(problem)(problem)


def without_lattice(problem: Problem) -> str:
    """Why a question has no lattice; empty where it has one."""
    return _kind(problem).covers(problem)
