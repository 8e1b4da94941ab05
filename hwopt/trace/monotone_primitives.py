"""Monotone scalar functions as JAX primitives with declared directions, so that their range over a box follows from its
corners.

If such a function is expanded to arithmetic, it may be long, and interval arithmetic overestimates its range when an
argument occurs repeatedly. As one operation, its minimum over a box is its value at one corner, whatever its form.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, ArrayLike

from hwopt.trace.constant_folding import NUMBERS
from hwopt.trace.derivatives import RULES, value_and_gradient
from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.yield_primitive import bound, elementwise_primitive

RISES, FALLS, EITHER, FIXED = 1, -1, 0, 2
"""Direction of a function in an argument.

For `EITHER`, only the fact is known that its minimum and maximum are at an end. A `FIXED` argument has a single value in
every box.
"""

MONOTONE: dict[str, "MonotonePrimitive"] = {}
"""All monotone primitives, by name."""


class LowerEnvelope(NamedTuple):
    """Lower bound of another function, in terms of products of powers of that function's arguments.

    It increases in the first two products. A limit on the other function therefore bounds these two products jointly.
    """

    function: "MonotonePrimitive"  # of the products
    products: tuple[Mapping[int, float], ...]  # exponents, by index of the argument


class MonotonePrimitive:
    """Function of scalars as a JAX primitive with known directions of monotonicity.

    **Arguments:**

    - `name`: of the primitive.
    - `function`: elementwise, of arrays of one shape.
    - `ways`: direction of the function in each argument; this is not verified.
    - `floor`: lower envelope that convex programs may use, if any.
    """

    def __init__(
        self, name: str, function: Callable[..., Array], ways: tuple[int, ...], floor: LowerEnvelope | None = None
    ):
        self.name, self.function, self.ways, self.floor = name, function, ways, floor
        self.primitive = elementwise_primitive(name, function)
        MONOTONE[name] = self
        NUMBERS[name] = lambda *arguments, p: self.on_numbers(*arguments)
        RULES[name] = lambda g, r, *arguments: tuple(g * slope for slope in self.slopes(*arguments))

    def __call__(self, *arguments: ArrayLike) -> Array:
        """Apply the function to broadcast arguments."""
        return bound(self.primitive, arguments)

    @cached_property
    def _line(self) -> Any:
        """The function as a scalar program."""
        return scalar_program(lambda values: self.function(*values), len(self.ways))

    def on_numbers(self, *arguments: Any) -> np.ndarray:
        """Evaluate the function in NumPy, for arrays whose shapes broadcast."""
        arrays = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in arguments))
        (values,) = self._line.on_numbers(*(each.ravel() for each in arrays))
        return np.broadcast_to(values, (arrays[0].size,)).reshape(arrays[0].shape)

    def slopes(self, *arguments: float) -> np.ndarray:
        """Return the derivatives with respect to all arguments at a point."""
        return value_and_gradient(self._line, arguments, [0])[1][0]

    def least(self, *ends: Any) -> np.ndarray:
        """Return the minimum of the function over boxes. **Arguments:** `ends`: lower ends of all arguments, then upper
        ends.
        """
        return self._at(np.minimum, RISES, ends)

    def most(self, *ends: Any) -> np.ndarray:
        """Return the maximum of the function over boxes. **Arguments:** `ends`: see `least`."""
        return self._at(np.maximum, FALLS, ends)

    def _at(self, better: np.ufunc, rises: int, ends: tuple[Any, ...]) -> np.ndarray:
        """Return the extreme over the relevant corners. One evaluation of all corners takes hardly longer than one of a few."""
        count = len(self.ways)
        ends = tuple(np.asarray(each, np.float64) for each in ends)
        sides_of = {rises: (0,), -rises: (1,), EITHER: (0, 1), FIXED: (0,)}
        one = [np.array_equal(low, high) for low, high in zip(ends[:count], ends[count:], strict=True)]
        choices = [(0,) if same else sides_of[way] for way, same in zip(self.ways, one, strict=True)]
        corners = list(product(*choices))
        shape = np.broadcast_shapes(*(each.shape for each in ends))
        whole = [np.broadcast_to(each, shape) for each in ends]
        arguments = [np.stack([whole[i + corner[i] * count] for corner in corners]) for i in range(count)]
        return better.reduce(self.on_numbers(*arguments), axis=0)
