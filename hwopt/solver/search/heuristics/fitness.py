"""Fitness function of the evolutionary search: the exact model, with the same transformations as the convex relaxation."""

from __future__ import annotations

import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.solver.search.heuristics.evolutionary import Columns, Judge
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations


def fitness_function(programmes: NodeRelaxations) -> Judge:
    """Return the exact model as a fitness function. With several machines, each design is evaluated on its own machine.

    In an elastic problem the objective is the largest log factor by which the relaxed budgets are exceeded. A tilted objective
    is divided by powers of variables, as in the relaxation.
    """
    problem, machines, elastic = programmes.problem, programmes.machines, programmes.elastic
    model = ExactModel(problem).judge(() if machines is None else machines.places)
    constraints = list(problem.constraints)
    given = [constraints.index(name) for name in elastic.budgets] if elastic else []

    def judge(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        inputs = [columns[each.name] for each in problem.variables]
        if machines is not None:
            inputs = [*machines.table[columns[CHOICE].astype(int) - 1].T, *inputs]
        objective, used = model(inputs, len(inputs[-1]))
        if given:
            objective = np.maximum(used[:, given].max(axis=1), 0.0)
            used = np.delete(used, given, axis=1)
        for name, exponent in programmes.tilt.items():
            objective = objective - exponent * np.log(columns[name])
        return objective, used

    return judge
