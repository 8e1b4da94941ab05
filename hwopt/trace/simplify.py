"""Algebraic simplification of scalar programs for many points, and symbolic derivatives of scalar programs.

Results are equal in exact arithmetic wherever both forms are defined, and within a few rounding errors in floating point.
Exponentials of logarithms cancel. Repeated divisors are inverted once. Fractional powers become exponentials, since the
compiler's power takes ten times as long (jax 0.10.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwopt.trace.scalar_program import ScalarProgram, Simplifier, scalar_program
from hwopt.trace.symbols import Element, Symbol

ONE = np.float64(1.0)


def simplified(line: ScalarProgram) -> ScalarProgram:
    """Return an equivalent program with cheaper operations, for use where no further derivatives are taken."""
    divisors = Counter(id(each.arguments[1]) for each in line.operations if each.name == "div")
    return line.again(_CheaperOperations(frozenset(each for each, count in divisors.items() if count > 1)))


class _CheaperOperations(Simplifier):
    """Simplifier that replaces expensive operations by fewer or cheaper ones.

    **Arguments:** `inverted`: divisors, by `id`, whose inverse is computed once and reused.
    """

    rules = Simplifier.rules | {
        "exp": "_exp", "neg": "_neg", "add": "_sum", "add_any": "_sum", "stop_gradient": "_held",
    }  # fmt: skip

    def __init__(self, inverted: frozenset[int]):
        super().__init__()
        self.inverted = inverted

    def again(self, symbol: Symbol, arguments: tuple) -> Element:
        if symbol.name != "div" or id(symbol.arguments[1]) not in self.inverted:
            return super().again(symbol, arguments)
        self.origin = symbol.origin
        return self.simplified("mul", arguments[0], self.simplified("div", ONE, arguments[1]))

    def _exp(self, x: Element) -> Element | None:
        """Simplify exponentials of logarithms, of their negatives, and of choices among logarithms and numbers."""
        if not isinstance(x, Symbol):
            return np.exp(x)
        if x.name == "log":
            return x.arguments[0]
        if x.name == "neg":
            inner = self._exp(x.arguments[0])
            return None if inner is None else self.simplified("div", ONE, inner)
        if x.name == "select_n":
            cases = [self._exp(each) for each in x.arguments[1:]]
            return None if any(each is None for each in cases) else self.simplified("select_n", x.arguments[0], *cases)
        return None

    def _held(self, x: Element) -> Element:
        """Return the argument of `stop_gradient`: no further derivatives are taken, so terms that only carry gradients
        vanish.
        """
        return x

    def _neg(self, x: Symbol) -> Element | None:
        if x.name == "sub":
            return self.simplified("sub", *reversed(x.arguments))
        return x.arguments[0] if x.name == "neg" else None

    def _sum(self, a: Element, b: Element) -> Element | None:
        for one, other in ((a, b), (b, a)):
            if isinstance(other, Symbol) and other.name == "neg":
                return self.simplified("sub", one, other.arguments[0])
        return self._add(a, b)

    def _div(self, a: Element, b: Element) -> Element | None:
        if not isinstance(a, Symbol) and a == 1.0 and isinstance(b, Symbol) and b.name == "div":
            return self.simplified("div", *reversed(b.arguments))
        return super()._div(a, b)

    def _pow(self, a: Element, b: Element) -> Element | None:
        simpler = super()._pow(a, b)
        if simpler is not None or isinstance(b, Symbol) or float(b).is_integer():
            return simpler
        return self.simplified("exp", self.simplified("mul", self.simplified("log", a), b))


def slopes(line: ScalarProgram, places: Sequence[int]) -> ScalarProgram:
    """Return a program of the derivatives of a scalar program with one output, by JAX's reverse mode.

    **Arguments:** `line`: the program; `places`: indices of the inputs with respect to which derivatives are taken.

    **Returns:** a program with the inputs of `line`; its outputs are the derivatives.
    """

    def value(*x: Array) -> Any:
        return line.by({"div": _quotient}, *x)[0]

    def derivatives(x: Array) -> Array:
        return jnp.stack(jax.grad(value, tuple(places))(*(x[i] for i in range(len(line.inputs)))))

    return scalar_program(derivatives, len(line.inputs))


@jax.custom_jvp
def _quotient(a: Array, b: Array) -> Array:
    """Return `a / b`. Its derivatives divide by b twice rather than by its square, which may exceed the range of float32."""
    return a / b


@_quotient.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    (a, b), (da, db) = primals, tangents
    return a / b, (da - a / b * db) / b
