"""What an evolution holds designs against: a question's exact model, as its programmes put the question."""

from __future__ import annotations

import numpy as np

from hwopt.design.exact import ExactModel
from hwopt.solver.search.heuristics.evolutionary import Columns, Judge
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations


def fitness_function(programmes: NodeRelaxations) -> Judge:
    """Objectives and constraints of designs by the exact model; over several machines, each by its own numbers.

    Where budgets may be exceeded, the objective is the factor by which they are; where the objective is divided by powers of
    variables, these are taken off.
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
