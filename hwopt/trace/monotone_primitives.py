"""Functions of scalars as one operation each, of which it is known in which arguments they rise and fall: bounded by their ends.

Written out as arithmetic such a function may be long, and its range the wider the more often it uses an argument. As one operation
its least value in a box is its value at one corner, whatever its form.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, ArrayLike

from hwopt.trace.constant_folding import NUMBERS
from hwopt.trace.derivatives import RULES, value_and_gradient
from hwopt.trace.scalar_program import scalar_program
from hwopt.trace.yield_primitive import OPERATIONS

RISES, FALLS, EITHER, FIXED = 1, -1, 0, 2
"""What a function does as an argument grows; of `EITHER` it is only known that it is least, and most, at an end; a `FIXED` one has
a single value in every box."""

MONOTONE: dict[str, "MonotonePrimitive"] = {}
"""All such functions, by the name of their operation."""


class LowerEnvelope(NamedTuple):
    """A function that another one is nowhere below, of products of powers of that one's arguments.

    It rises in the first two of these products: where both grow, the other function passes a level, which bounds the two together.
    """

    function: "MonotonePrimitive"  # of the products
    products: tuple[Mapping[int, float], ...]  # exponents, by the number of the argument


class MonotonePrimitive:
    """A function of scalars as an operation.

    **Arguments:** `name` of the operation; `function` of arrays of one shape, element by element; `ways`: for each argument what
    the function does as it grows, which nothing here checks; `floor` of it, where a programme is to know one.
    """

    def __init__(
        self, name: str, function: Callable[..., Array], ways: tuple[int, ...], floor: LowerEnvelope | None = None
    ):
        self.name, self.function, self.ways, self.floor = name, function, ways, floor
        self.primitive = Primitive(name)
        self.primitive.def_impl(jax.jit(function))
        self.primitive.def_abstract_eval(lambda first, *_: first)
        mlir.register_lowering(self.primitive, mlir.lower_fun(function, multiple_results=False))
        batching.defbroadcasting(self.primitive)
        ad.primitive_jvps[self.primitive] = self._pushed
        MONOTONE[name], OPERATIONS[name] = self, self.primitive
        NUMBERS[name] = lambda *arguments, p: self.on_numbers(*arguments)
        RULES[name] = lambda g, r, *arguments: tuple(g * slope for slope in self.slopes(*arguments))

    def __call__(self, *arguments: ArrayLike) -> Array:
        """The function, its arguments broadcast."""
        arrays = jnp.broadcast_arrays(*arguments)
        kind = jnp.result_type(float, *arrays)
        return self.primitive.bind(*(each.astype(kind) for each in arrays))

    def _pushed(self, primals: Any, tangents: Any) -> Any:
        return jax.jvp(self.function, tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))

    @cached_property
    def _line(self) -> Any:
        """The function as scalar operations."""
        return scalar_program(lambda values: self.function(*values), len(self.ways))

    def on_numbers(self, *arguments: Any) -> np.ndarray:
        """The same in NumPy, arrays of any shapes that go together."""
        arrays = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in arguments))
        (values,) = self._line.on_numbers(*(each.ravel() for each in arrays))
        return np.broadcast_to(values, (arrays[0].size,)).reshape(arrays[0].shape)

    def slopes(self, *arguments: float) -> np.ndarray:
        """Derivatives by all arguments at a point."""
        return value_and_gradient(self._line, arguments, [0])[1][0]

    def least(self, *ends: Any) -> np.ndarray:
        """Its least value over boxes. **Arguments:** lower ends of all arguments, then upper ones."""
        return self._at(np.minimum, RISES, ends)

    def most(self, *ends: Any) -> np.ndarray:
        """Its largest value over boxes. **Arguments:** as of `least`."""
        return self._at(np.maximum, FALLS, ends)

    def _at(self, better: np.ufunc, rises: int, ends: tuple[Any, ...]) -> np.ndarray:
        """Over corners, all in one evaluation, which takes hardly longer than that of a few."""
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
