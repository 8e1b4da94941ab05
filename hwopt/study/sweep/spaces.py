"""Which space a sweep of a question looks in."""

from __future__ import annotations

from hwopt.design.problem import Problem
from hwopt.errors import UserError
from hwopt.study.sweep.serving_space import ServingSpace
from hwopt.study.sweep.space import Space
from hwopt.study.sweep.training_space import TrainingSpace
from hwopt.workload.service import Service
from hwopt.workload.train_and_serve import TrainAndServe


def space_of(problem: Problem) -> Space:
    """The designs of a question about training or serving, as points of the unit cube.

    **Raises:** `UserError` for a question about both.
    """
    if isinstance(problem.template.workload, TrainAndServe):
        raise UserError(
            f"sweep: '{problem.name}' has two machines, a sweep one: ask about training or about serving alone"
        )
    return ServingSpace(problem) if isinstance(problem.template.workload, Service) else TrainingSpace(problem)
