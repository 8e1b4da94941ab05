"""Designs by the exact model: hard maxima, integers as integers. The last word on what a solver or a sweep found.

The model is traced once for all questions of a form, kept on disk and run in NumPy, so that nothing waits for a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from hwopt.design.design import Design
from hwopt.design.problem import Form, Problem, put, values
from hwopt.jaxprs.kept import Traced, traced
from hwopt.model.chip_project import areas, bill
from hwopt.model.estimate import estimate
from hwopt.model.manufacture import Bill
from hwopt.model.silicon import Areas


class DrawnChip(NamedTuple):
    """What a chip that is drawn takes and costs to make."""

    bill: Bill
    areas: Areas


class Exact(NamedTuple):
    """Designs by the exact model; leaves with a leading axis where there are several."""

    design: Design
    report: Any
    chip: DrawnChip | None  # None for chips as they are sold
    objective: Any  # logarithm
    constraints: Any  # logarithms of used over limit, (design, constraint)

    @property
    def violation(self) -> Any:
        """Largest of each design."""
        return self.constraints.max(axis=-1)

    def one(self, index: int) -> Exact:
        """A single design."""
        return jax.tree.map(lambda leaf: leaf[index], self)


def logarithms(values: Any) -> np.ndarray:
    """Logarithms of variables, minus infinity of a last stage without layers."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(values, float))


class ExactModel:
    """The exact model of a question, in float64."""

    def __init__(self, problem: Problem):
        self.problem = problem

    @cached_property
    def _traced(self) -> Traced:
        leaves, tree = jax.tree.flatten(self.problem.template)
        general = _general(self.problem.form, tree, tuple(np.shape(leaf) for leaf in leaves))
        limits = [each.limit for each in self.problem.budgets]
        return general.known([*(x for leaf in leaves for x in np.ravel(leaf)), *limits])

    def prepare(self) -> ExactModel:
        """The same, traced."""
        _ = self._traced
        return self

    def designs(self, columns: Sequence[np.ndarray]) -> Exact:
        """Some designs. **Arguments:** a column for each of the problem's variables, SI."""
        return self._traced(columns, len(columns[0]))

    def at(self, points: np.ndarray) -> Exact:
        """Designs at points (design, variable) in logarithms, integers rounded: `exp(log(n))` misses them by the last bit."""
        columns = np.exp(points).T
        integers = [each.integer for each in self.problem.variables]
        return self.designs([np.round(x) if whole else x for x, whole in zip(columns, integers, strict=True)])


@cache
def _general(form: Form, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> Traced:
    """Designs and reports of a form, of the template's leaves, limits and variables."""

    def outputs(leaves: list[Any], limits: Any, x: Any) -> Exact:
        design = put(form, jax.tree.unflatten(tree, leaves), list(x))
        report, project = estimate(*design.inputs), design.project
        chip = None if project is None else DrawnChip(bill(project), areas(project))
        return Exact(design, report, chip, *values(form, design, report, limits))

    number = lambda *shape: jax.ShapeDtypeStruct(shape, np.float64)
    arguments = [number(*shape) for shape in shapes], number(len(form.budgets)), number(len(form.places))
    return traced(outputs, *arguments, key=(form, jax.tree.unflatten(tree, shapes)))
