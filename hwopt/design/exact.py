"""Evaluation of designs by the exact model: hard maxima and true integers. It verifies every result of a solver or a sweep.

The model is traced once for all questions of a form, cached on disk and run in NumPy, so that no compilation is necessary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from hwopt import renamed
from hwopt.design.design import Design
from hwopt.design.problem import Problem, ProblemForm, set_variables, values
from hwopt.model.chip.chip_project import areas, bill
from hwopt.model.chip.manufacture import ChipBill
from hwopt.model.chip.silicon import Areas
from hwopt.model.estimate import estimate
from hwopt.trace.cache import TracedFunction, cached_trace
from hwopt.trace.scalar_program import ScalarProgram, scalar_program
from hwopt.trace.symbols import Symbol


class CustomChipSummary(NamedTuple):
    """Area and manufacturing cost of a parametric chip."""

    bill: ChipBill
    areas: Areas


class ExactValues(NamedTuple):
    """Results of the exact model; with several designs, leaves have a leading axis."""

    design: Design
    report: Any
    chip: CustomChipSummary | None  # None for stock chips
    objective: Any  # logarithm
    constraints: Any  # logarithms of used over limit, (design, constraint)

    @property
    def violation(self) -> Any:
        """Return the largest constraint value of each design; a feasible design has at most 0, up to a tolerance."""
        return self.constraints.max(axis=-1)

    def one(self, index: int) -> ExactValues:
        """Return the values of a single design."""
        return jax.tree.map(lambda leaf: leaf[index], self)


def logarithms(values: Any) -> np.ndarray:
    """Return logarithms of variables; minus infinity for a last pipeline stage without layers."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(values, float))


class ExactModel:
    """Exact model of a question, in float64."""

    def __init__(self, problem: Problem):
        self.problem = problem

    @property
    def _general(self) -> TracedFunction:
        return _general(*self.problem.trace_key)

    @cached_property
    def numbers(self) -> list[np.ndarray]:
        """Numeric arguments of the trace before the variables: leaves of the template, then the limits of the budgets."""
        return [*(np.ravel(leaf) for leaf in jax.tree.leaves(self.problem.template)), self.problem.limits]

    @cached_property
    def _traced(self) -> TracedFunction:
        return _known(*self.problem.trace_key, np.concatenate(self.numbers).tobytes())

    @property
    def shapes(self) -> ExactValues:
        """Shapes of the results for one design."""
        return self._general.shapes

    def prepare(self) -> ExactModel:
        """Trace the model now, and return it."""
        _ = self._traced
        return self

    def line(self, function: Callable[[ExactValues], Any], places: Sequence[tuple[int, int]] = ()) -> ScalarProgram:
        """Trace a function of the evaluated design into scalar operations on the variables.

        **Arguments:**

        - `function`: function of one evaluated design.
        - `places`: positions (leaf, element) of template numbers that become inputs as well, behind the variables.
        """
        general = self._general
        leaves, tree = jax.tree.flatten(general.shapes)
        ends = np.cumsum([0, *(math.prod(each.shape) for each in leaves)])

        def outputs(x: Any) -> Any:
            parts = zip(pairwise(ends), leaves, strict=True)
            return function(jax.tree.unflatten(tree, [x[i:j].reshape(each.shape) for (i, j), each in parts]))

        free = tuple(Symbol("input", (i,)) for i in range(len(self.problem.variables) + len(places)))
        variables, others = free[: len(self.problem.variables)], free[len(self.problem.variables) :]
        numbers: list[Any] = list(np.concatenate(self.numbers))
        firsts = np.cumsum([0, *map(len, self.numbers)])
        for (leaf, element), symbol in zip(places, others, strict=True):
            numbers[firsts[leaf] + element] = symbol
        return scalar_program(outputs, ends[-1]).of(general.line.of(ScalarProgram(free, (), (*numbers, *variables))))

    def judge(self, places: Sequence[int] = ()) -> TracedFunction:
        """Return a traced function that computes only objectives and constraints of designs.

        **Arguments:** `places`: indices of template numbers (`flat_numbers`) that become inputs as well, before the variables.
        """
        numbers: list[float | None] = list(np.concatenate(self.numbers))
        for place in places:
            numbers[place] = None
        model = self._general.known(numbers) if places else self._traced
        return model.only(lambda exact: (exact.objective, exact.constraints))

    def designs(self, columns: Sequence[np.ndarray]) -> ExactValues:
        """Evaluate designs. **Arguments:** `columns`: one column for each of the problem's variables, SI."""
        return self._traced(columns, len(columns[0]))

    def at(self, points: np.ndarray) -> ExactValues:
        """Evaluate designs at points (design, variable) in log space.

        Integers are rounded, because `exp(log(n))` is not exact.
        """
        columns = np.exp(points).T
        integers = [each.integer for each in self.problem.variables]
        return self.designs([np.round(x) if whole else x for x, whole in zip(columns, integers, strict=True)])


@lru_cache(maxsize=8)
def _known(form: ProblemForm, tree: Any, shapes: tuple[tuple[int, ...], ...], numbers: bytes) -> TracedFunction:
    """Return the trace with the numbers of one template and its limits inserted.

    It is cached, because answers use it repeatedly.
    """
    return _general(form, tree, shapes).known(list(np.frombuffer(numbers)))


@cache
def _general(form: ProblemForm, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> TracedFunction:
    """Trace designs and reports of a form, as a function of the template's leaves, the limits and the variables."""

    def outputs(leaves: list[Any], limits: Any, x: Any) -> ExactValues:
        design = set_variables(form, jax.tree.unflatten(tree, leaves), list(x))
        report, project = estimate(*design.inputs), design.project
        chip = None if project is None else CustomChipSummary(bill(project), areas(project))
        return ExactValues(design, report, chip, *values(form, design, report, limits))

    number = lambda *shape: jax.ShapeDtypeStruct(shape, np.float64)
    arguments = [number(*shape) for shape in shapes], number(len(form.budgets)), number(len(form.places))
    return cached_trace(outputs, *arguments, key=(form, jax.tree.unflatten(tree, shapes)))


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
