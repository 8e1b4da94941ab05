"""Which space a sweep of a question looks in."""

from __future__ import annotations

from hwopt.design.problem import Problem
from hwopt.study.sweep.serving_space import ServingSpace
from hwopt.study.sweep.space import Space
from hwopt.study.sweep.training_space import TrainingSpace
from hwopt.workload.service import Service


def space_of(problem: Problem) -> Space:
    """The designs of a question about training or serving, as points of the unit cube."""
    return ServingSpace(problem) if isinstance(problem.template.workload, Service) else TrainingSpace(problem)
