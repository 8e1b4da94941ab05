"""Functions run once in NumPy and float64, traced but not compiled: for what formulas say, not for how they are compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hwopt.trace.interpreter import Interpreter


class _Numbers(Interpreter):
    """Runs a jaxpr over numbers alone."""

    def unreadable(self, why: str = "") -> Exception:
        return NotImplementedError(why or f"'{self.origin[0].primitive.name}' in NumPy")

    def lifted(self, value: np.ndarray) -> Any:
        raise self.unreadable()

    def element(self, name: str, arguments: tuple, params: dict) -> Any:
        raise self.unreadable()

    def folded(self, name: str, row: list) -> Any:
        raise self.unreadable()


@functools.cache
def in_numpy(function: Callable) -> Callable[..., Any]:
    """`jax.vmap(function)` in NumPy: arguments are pytrees whose leaves have a leading axis, and so are results.

    Traced once for all numbers of rows; one row goes with many.
    """

    @functools.cache
    def trace(structure: Any, shapes: tuple) -> tuple[Any, Any]:
        one = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes])
        return jax.make_jaxpr(function, return_shape=True)(*one)

    def mapped(*rows: Any) -> Any:
        leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(rows)]
        with jax.enable_x64(True), np.errstate(all="ignore"):
            closed, out = trace(jax.tree.structure(rows), tuple(leaf.shape[1:] for leaf in leaves))
            results = _Numbers().run(closed, leaves, [True] * len(closed.jaxpr.outvars))
        count = max(map(len, leaves))
        whole = [np.broadcast_to(each, (count, *each.shape[1:])) for each in results]
        return jax.tree.unflatten(jax.tree.structure(out), whole)

    return mapped


def one_row(tree: Any) -> Any:
    """A tree as the only row of itself."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


def once(function: Callable) -> Callable[..., Any]:
    """`function` in NumPy, for one point."""
    mapped = in_numpy(function)
    return lambda *arguments: jax.tree.map(lambda row: row[0], mapped(*one_row(arguments)))
