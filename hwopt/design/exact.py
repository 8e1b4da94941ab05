"""Designs by the exact model: hard maxima, integers as integers. The last word on what a solver or a sweep found.

The model is traced once for all questions of a form and run in NumPy, so that nothing waits for a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from hwopt.design.design import Design
from hwopt.design.problem import Form, Problem, put, values
from hwopt.jaxprs.straight_line import StraightLine, straightened
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
    def _line(self) -> tuple[StraightLine, Any]:
        leaves, tree = jax.tree.flatten(self.problem.template)
        closed, shapes = _traced(self.problem.form, tree, tuple(np.shape(leaf) for leaf in leaves))
        limits = [np.asarray([each.limit for each in self.problem.budgets])]
        return straightened(closed, [*leaves, *limits]), shapes

    def prepare(self) -> ExactModel:
        """The same, traced."""
        _ = self._line
        return self

    def designs(self, columns: Sequence[np.ndarray]) -> Exact:
        """Some designs. **Arguments:** a column for each of the problem's variables, SI."""
        line, shapes = self._line
        numbers = line.on_numbers(*columns)
        count, leaves, at = len(columns[0]), [], 0
        for each in jax.tree.leaves(shapes):
            size = int(np.prod(each.shape))
            part = np.stack([np.broadcast_to(x, (count,)) for x in numbers[at : at + size]], axis=-1)
            leaves.append(part.reshape(count, *each.shape))
            at += size
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    def at(self, points: np.ndarray) -> Exact:
        """Designs at points (design, variable) in logarithms, integers rounded: `exp(log(n))` misses them by the last bit."""
        columns = np.exp(points).T
        integers = [each.integer for each in self.problem.variables]
        return self.designs([np.round(x) if whole else x for x, whole in zip(columns, integers, strict=True)])


@cache
def _traced(form: Form, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[core.ClosedJaxpr, Exact]:
    """The jaxpr of a form's designs and reports, and the shapes of what it returns."""

    def outputs(leaves: list[Any], limits: Any, x: Any) -> Exact:
        design = put(form, jax.tree.unflatten(tree, leaves), list(x))
        report, project = estimate(*design.inputs), design.project
        chip = None if project is None else DrawnChip(bill(project), areas(project))
        return Exact(design, report, chip, *values(form, design, report, limits))

    with jax.enable_x64(True):
        number = lambda *shape: jax.ShapeDtypeStruct(shape, np.float64)
        arguments = [number(*shape) for shape in shapes], number(len(form.budgets)), number(len(form.places))
        return jax.make_jaxpr(outputs, return_shape=True)(*arguments)
