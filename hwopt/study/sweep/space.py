"""Where a sweep looks: points of the unit cube as designs that can be built, a column of variants at a time."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.errors import UserError, suggest
from hwopt.optim.boxes import DesignLattice
from hwopt.optim.lattices import lattice_of
from hwopt.optim.whole_plans import divisors

ROUNDING = 1e-6
"""Relative slack of whole numbers computed in float32."""

WHOLE = 1e-4
"""How far from a whole number a count may be, absolutely."""

Columns = Mapping[str, Array]


@dataclass(frozen=True)
class Space:
    """The box of a question, and its whole-number designs; abstract.

    Coordinates are log-uniform in their boxes. Degrees are divisors of heads and experts. What ends outside its box after
    rounding is kept and marked by `outside`.
    """

    problem: Problem

    TIED: ClassVar[tuple[str, ...]]
    """Variables that whole numbers tie to each other."""

    COUNTED: ClassVar[tuple[str, ...]]
    """Those of them that follow from others: drawn without rounding."""

    @abstractmethod
    def settled(self, wanted: dict[str, Any], cube: Columns) -> dict[str, Array]:
        """Whole numbers tied to each other. **Arguments:** `cube`: columns in [0, 1) of what is drawn, empty where none is."""

    @abstractmethod
    def as_given(self, values: Columns) -> dict[str, Array]:
        """Designs as somebody lists them, with what follows from their whole numbers; `outside` marks what cannot be built."""

    @abstractmethod
    def outside(self, values: Columns) -> Array:
        """Largest logarithm of value over bound: 0 inside the box; 1 and more where a count is not whole."""

    @cached_property
    def lattice(self) -> DesignLattice:
        return lattice_of(self.problem)

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Variables that are drawn, by name; what follows from whole layers and stages is not."""
        return {each.name: each for each in self.problem.variables if each.category != "rounding"}

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Variables with room in their boxes: the dimensions of the unit cube."""
        return tuple(name for name, each in self.variables.items() if each.lower < each.upper)

    @cached_property
    def heads(self) -> int | None:
        """Heads of the model; None where its shape is free and tensor-parallel degrees are powers of two."""
        return None if "hidden" in self.variables else round(float(self.problem.template.workload.model.heads))

    def range(self, name: str) -> tuple[float, float]:
        """Box of a variable; a point where it is not free."""
        return self.lattice.range(name)

    def degrees(self, name: str) -> np.ndarray:
        """Degrees to choose from."""
        low, high = self.range(name)
        tensor = name.endswith("tp")
        if tensor:
            known = divisors(self.heads) if self.heads else [2**k for k in range(12)]
        else:
            known = divisors(max(1, round(float(self.problem.template.workload.model.experts))))
        divide = [each for each in known if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]
        if not divide:
            raise UserError(
                f"no {name} between {low:g} and {high:g} divides the model's {'heads' if tensor else 'experts'}: "
                f"it may be {', '.join(map(str, known))}"
            )
        return np.asarray(divide, float)

    @property
    def layers(self) -> float | None:
        """Layers of the model; None where they are a variable."""
        return None if "layers" in self.variables else float(self.lattice.layers)

    def drawn(self, cube: Columns) -> dict[str, Array]:
        """Designs of points of the unit cube.

        **Arguments:** `cube`: a column in [0, 1) for each of `coordinates`.

        **Returns:** a column for each of the problem's variables, SI.
        """
        wanted: dict[str, Any] = {}
        for name, each in self.variables.items():
            if name in self.TIED and name.endswith(("tp", "ep")):
                wanted[name] = chosen(self.degrees(name), cube.get(name))
            elif name not in cube:
                wanted[name] = each.lower
            elif each.whole and name not in self.COUNTED:
                wanted[name] = whole(cube[name], each.lower, each.upper, each.step)
            else:
                wanted[name] = each.lower * jnp.exp(cube[name] * math.log(each.upper / each.lower))
        return self.settled(wanted, cube)

    def nearest(self, wanted: Columns) -> dict[str, Array]:
        """Designs that can be built near wanted ones: a column for each variable, which it shares with `wanted`."""
        held: dict[str, Any] = dict(wanted)
        for name in held:
            if name in self.TIED and name.endswith(("tp", "ep")):
                held[name] = closest(self.degrees(name), held[name])
        for name, each in self.variables.items():
            if each.whole and name not in self.TIED:
                held[name] = each.step * jnp.round(held[name] / each.step)
        for name in held:
            if name in self.TIED and name not in self.COUNTED:
                held[name] = jnp.maximum(1.0, jnp.round(held[name]))
        return self.settled(held, {})

    def completed(self, given: Mapping[str, float | Sequence[float]]) -> dict[str, Any]:
        """Columns by variable, those that are not given at what the question's machine has now.

        **Raises:** `UserError` for unknown names, or a variable without a present value.
        """
        from hwopt.design.variables import present

        for name in given:
            if name not in self.variables:
                raise UserError(f"'{name}' is no variable of '{self.problem.name}': {suggest(name, self.variables)}")
        return {
            name: given[name]
            if name in given
            else max(each.lower, min(each.upper, present(each, self.problem.template)))
            for name, each in self.variables.items()
        }

    def beyond_box(self, values: Columns) -> Any:
        """Largest logarithm of a variable over its bound, 0 inside."""
        worst: Any = 0.0
        for name, each in self.variables.items():
            beyond = jnp.maximum(jnp.log(values[name] * (1.0 / each.upper)), jnp.log(each.lower / values[name]))
            worst = jnp.maximum(worst, jnp.where(beyond > ROUNDING, beyond, 0.0))
        return worst


def floor(value: Any) -> Array:
    """The whole number below, of what is whole but for rounding that number."""
    return jnp.floor(value * (1.0 + ROUNDING))


def whole(u: Array, low: Any, high: Any, step: float = 1.0) -> Array:
    """Whole multiples of a step from `low` to `high`, log-uniform."""
    first, last = jnp.ceil(low / step * (1.0 - ROUNDING)), floor(high / step)
    drawn = jnp.floor(first * jnp.exp(u * jnp.log((last + 1.0) / first)))
    return step * jnp.clip(drawn, first, last)


def inside(wanted: Any, box: tuple[float, float], each: Any, step: Any = 1.0) -> Array:
    """The count nearest to what is wanted, a multiple of a step and at least one.

    **Arguments:** `box` of what is counted, `each` at a time; its ends hold where a multiple lies between them.
    """
    first = jnp.ceil(box[0] / (each * step) * (1.0 - ROUNDING))
    last = floor(box[1] / (each * step))
    near = jnp.round(wanted / step)
    near = jnp.where(near > last, last, near)
    near = jnp.where((near < first) & (first <= last), first, near)
    return step * jnp.maximum(near, 1.0)


def chosen(known: np.ndarray, u: Array | None) -> Any:
    """One of a few ascending numbers, all as likely; the first without a coordinate."""
    if u is None:
        return float(known[0])
    chosen = jnp.full_like(u, known[0])
    for i, value in enumerate(known[1:], 1):
        chosen = jnp.where(u >= i / len(known), value, chosen)
    return chosen


def closest(known: np.ndarray, wanted: Any) -> Array:
    """The known number nearest in ratio."""
    chosen = jnp.full_like(jnp.asarray(wanted, float), known[0])
    for below, value in itertools.pairwise(known):
        chosen = jnp.where(wanted >= math.sqrt(below * value), value, chosen)
    return chosen
