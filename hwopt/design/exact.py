"""Designs by the exact model: hard maxima, integers as integers. The last word on what a solver or a sweep found.

The model is traced once for all questions of a form, kept on disk and run in NumPy, so that nothing waits for a compiler.
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
from hwopt.trace.scalar_program import ScalarProgram, Symbol, scalar_program


class CustomChipSummary(NamedTuple):
    """What a chip that is drawn takes and costs to make."""

    bill: ChipBill
    areas: Areas


class ExactValues(NamedTuple):
    """Designs by the exact model; leaves with a leading axis where there are several."""

    design: Design
    report: Any
    chip: CustomChipSummary | None  # None for chips as they are sold
    objective: Any  # logarithm
    constraints: Any  # logarithms of used over limit, (design, constraint)

    @property
    def violation(self) -> Any:
        """Largest of each design."""
        return self.constraints.max(axis=-1)

    def one(self, index: int) -> ExactValues:
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
    def _key(self) -> tuple[ProblemForm, Any, tuple[tuple[int, ...], ...]]:
        """What models of other numbers share."""
        leaves, tree = jax.tree.flatten(self.problem.template)
        return self.problem.form, tree, tuple(np.shape(leaf) for leaf in leaves)

    @property
    def _general(self) -> TracedFunction:
        return _general(*self._key)

    @cached_property
    def _numbers(self) -> list[np.ndarray]:
        """Of the template, by leaf, and the limits behind them: what `_general` takes before variables."""
        limits = np.array([each.limit for each in self.problem.budgets])
        return [*(np.ravel(leaf) for leaf in jax.tree.leaves(self.problem.template)), limits]

    @cached_property
    def _traced(self) -> TracedFunction:
        return _known(*self._key, np.concatenate(self._numbers).tobytes())

    def prepare(self) -> ExactModel:
        """The same, traced."""
        _ = self._traced
        return self

    def line(self, function: Callable[[ExactValues], Any], places: Sequence[tuple[int, int]] = ()) -> ScalarProgram:
        """What a function says of designs, as scalar operations on the variables.

        **Arguments:** `function` of one design, traced; `places` of numbers of the template (leaf, element) that are inputs too,
        behind the variables.
        """
        general = self._general
        leaves, tree = jax.tree.flatten(general.shapes)
        ends = np.cumsum([0, *(math.prod(each.shape) for each in leaves)])

        def outputs(x: Any) -> Any:
            parts = zip(pairwise(ends), leaves, strict=True)
            return function(jax.tree.unflatten(tree, [x[i:j].reshape(each.shape) for (i, j), each in parts]))

        free = tuple(Symbol("input", (i,)) for i in range(len(self.problem.variables) + len(places)))
        variables, others = free[: len(self.problem.variables)], free[len(self.problem.variables) :]
        numbers: list[Any] = list(np.concatenate(self._numbers))
        firsts = np.cumsum([0, *map(len, self._numbers)])
        for (leaf, element), symbol in zip(places, others, strict=True):
            numbers[firsts[leaf] + element] = symbol
        return scalar_program(outputs, ends[-1]).of(general.line.of(ScalarProgram(free, (), (*numbers, *variables))))

    def judge(self, places: Sequence[int] = ()) -> TracedFunction:
        """Objectives and constraints of designs, no more.

        **Arguments:** `places` of numbers of the template, among all of them (`flat_numbers`), that are inputs too, before the
        variables.
        """
        numbers: list[float | None] = list(np.concatenate(self._numbers))
        for place in places:
            numbers[place] = None
        model = self._general.known(numbers) if places else self._traced
        return model.only(lambda exact: (exact.objective, exact.constraints))

    def designs(self, columns: Sequence[np.ndarray]) -> ExactValues:
        """Some designs. **Arguments:** a column for each of the problem's variables, SI."""
        return self._traced(columns, len(columns[0]))

    def at(self, points: np.ndarray) -> ExactValues:
        """Designs at points (design, variable) in logarithms, integers rounded: `exp(log(n))` misses them by the last bit."""
        columns = np.exp(points).T
        integers = [each.integer for each in self.problem.variables]
        return self.designs([np.round(x) if whole else x for x, whole in zip(columns, integers, strict=True)])


@lru_cache(maxsize=8)
def _known(form: ProblemForm, tree: Any, shapes: tuple[tuple[int, ...], ...], numbers: bytes) -> TracedFunction:
    """The same of one template and its limits: an answer asks it from several sides."""
    return _general(form, tree, shapes).known(list(np.frombuffer(numbers)))


@cache
def _general(form: ProblemForm, tree: Any, shapes: tuple[tuple[int, ...], ...]) -> TracedFunction:
    """Designs and reports of a form, of the template's leaves, limits and variables."""

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
