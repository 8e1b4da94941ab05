"""Design space of a sweep: maps points of the unit cube to buildable designs, a column of variants at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from hwopt.design.lattices import lattice_of
from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError, suggest
from hwopt.integers.relations import near_integer
from hwopt.integers.sampling import NEAR, ROUNDING, broken, complete_points, sampled_value
from hwopt.integers.system import System
from hwopt.trace.scalar_program import ScalarProgram, scalar_program

Columns = Mapping[str, Array]


@dataclass(frozen=True)
class Space:
    """The design space of a problem: its variable bounds and integer designs.

    Continuous coordinates are log-uniform within their bounds; integers follow from the lattice of the problem. Designs that
    leave their bounds by rounding are kept, and marked by `beyond`.
    """

    problem: Problem

    @cached_property
    def system(self) -> System:
        """System of integer coordinates and relations of the problem.

        **Raises:** `UserError` if the bounds of an integer exclude all of its admissible values.
        """
        system = lattice_of(self.problem).without_pieces()
        for each in system.coordinates:
            if each.values == ():
                raise UserError(
                    f"no {each.name} between {each.lower:g} and {each.upper:g} fits the model: "
                    f"it may be {', '.join(map(str, each.among or ()))}"
                )
        return system

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Sampled variables by name, without those that are looked up in tables."""
        return {each.name: each for each in self.problem.variables if each.category != "lookup"}

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Variables that can vary within their bounds: the dimensions of the unit cube."""
        return tuple(name for name, each in self.variables.items() if each.lower < each.upper)

    @cached_property
    def in_turn(self) -> tuple[str, ...]:
        """Integers among `coordinates`, each after those that its values depend on.

        Integers that follow from a product are omitted.
        """
        order = [each.name for each in self.system.coordinates]
        tied = [name for name in order if name in self.coordinates]
        return (*(name for name in self.coordinates if self.variables[name].integer and name not in self._tied), *tied)

    @cached_property
    def _tied(self) -> frozenset[str]:
        """Names of variables whose values the lattice determines."""
        return frozenset((*self.system.names, *self.system.quantities))

    def drawn(self, cube: Columns) -> dict[str, Array]:
        """Map points of the unit cube to designs.

        **Arguments:** `cube`: a column in [0, 1) for each of `coordinates`.

        **Returns:** a column for each of the problem's variables, in SI units.
        """
        values: dict[str, Any] = {}
        for name, each in self.variables.items():
            if name not in cube:
                values[name] = each.lower
            elif each.integer and name not in self._tied:
                values[name] = sampled_value(cube[name], each.lower, each.upper, each.step)
            else:
                values[name] = each.lower * jnp.exp(cube[name] * math.log(each.upper / each.lower))
        return self._with_integers(values, {name: cube[name] for name in self.system.names if name in cube})

    def nearest(self, wanted: Columns) -> dict[str, Array]:
        """Return buildable designs near the `wanted` ones. Arguments and result have a column for each variable."""
        values: dict[str, Any] = dict(wanted)
        for name, each in self.variables.items():
            if each.integer and name not in self._tied:
                values[name] = each.step * jnp.round(values[name] / each.step)
        return self._with_integers(values, {})

    def _with_integers(self, values: Mapping[str, Any], cube: Columns) -> dict[str, Any]:
        points = self.system.quantities_at(complete_points(self.system, values, cube))
        return {each.name: points.get(each.name, values.get(each.name, each.lower)) for each in self.problem.variables}

    def as_listed(self, values: Columns) -> dict[str, Any]:
        """Return designs exactly as the user lists them, with looked-up variables added; `outside` marks unbuildable ones."""
        points = self.system.quantities_at(self.system.coordinates_at(values))
        return {each.name: values.get(each.name, points.get(each.name, each.lower)) for each in self.problem.variables}

    def points(self, kind: str, names: Sequence[str]) -> ScalarProgram:
        """Return the scalar program from the numbers of a point to a column for each of the problem's variables, in SI units.

        **Arguments:**

        - `kind`: how the numbers are interpreted: "cube" (unit cube), "wanted" (rounded to a design) or "values" (used as
          given).
        - `names`: names of the numbers.
        """
        placed = {"cube": self.drawn, "wanted": self.nearest, "values": self.as_listed}[kind]

        def variables(numbers: Array) -> list[Array]:
            values = placed(dict(zip(names, numbers, strict=True)))
            return [jnp.asarray(values[each.name], numbers.dtype) for each in self.problem.variables]

        return scalar_program(variables, len(names))

    def outside(self, values: Columns) -> Array:
        """Return the largest log(value / bound): 0 within the bounds, at least 1 if an integer or relation is violated."""
        return jnp.log(self.beyond(values))

    def beyond(self, values: Columns) -> Array:
        """Return the largest ratio of value to bound: 1 within the bounds, at least e if an integer or relation is violated."""
        over: Any = 1.0
        under: Any = 1.0
        for name, each in self.variables.items():
            over = jnp.maximum(over, values[name] * (1.0 / each.upper))
            under = jnp.minimum(under, values[name] * (1.0 / each.lower))
        worst = jnp.maximum(over, 1.0 / under)
        worst = jnp.where(worst <= 1.0 + ROUNDING, 1.0, worst)
        missed = broken(self.system, self.system.coordinates_at(values))
        for name, each in self.variables.items():
            if each.integer and name not in self._tied:
                missed.append(~near_integer(values[name] / each.step, ROUNDING, NEAR))
        for each in missed:
            worst = jnp.maximum(worst, jnp.where(each, math.e, 1.0))
        return worst

    def completed(self, columns: Mapping[str, float | Sequence[float]]) -> dict[str, Any]:
        """Add a column for each variable that is missing in `columns`.

        A missing variable gets the value of the problem's starting machine, clipped to the variable's bounds.

        **Arguments:** `columns`: variable name -> one value for all designs, or a value for each design.

        **Raises:** `UserError` for a name that is not a variable of the problem.
        """
        for name in columns:
            if name not in self.variables:
                raise UserError(f"'{name}' is not a variable of '{self.problem.name}': {suggest(name, self.variables)}")
        present = {name: float(each.place.get(self.problem.template)) for name, each in self.variables.items()}
        return {
            name: columns[name] if name in columns else max(each.lower, min(each.upper, present[name]))
            for name, each in self.variables.items()
        }
